//! Text for people: numbers with their units, and lines and tables for a terminal.
//!
//! | to | look at |
//! |---|---|
//! | write a latency, a count, a rate, a share, a size, an instant | [`numbers`] |
//! | wrap or cut a text | [`lines`] |
//! | print an error with its causes | [`describe_error`] |
//! | print a table | [`Columns`], [`Page`] |
//! | suggest a word for a mistyped one | [`expectation`] |
//!
//! **Invariant**: no line of a [`Page`] is wider than its terminal, [`WIDTH`] columns by default.
//! **Limits**: each character counts as one column, although wide ones (emoji, Chinese) take two.
#![no_std]

extern crate alloc;

mod errors;
pub mod lines;
pub mod numbers;
mod spelling;
mod table;

pub use errors::describe_error;
pub use lines::{WIDTH, cut, cut_middle, wrapped};
pub use spelling::{expectation, nearest};
pub use table::Column::{Left, Rest, Right};
pub use table::{Column, Columns, Page};
