//! Questions about spans, asked of memtables and runs alike.
//!
//! | question | answer |
//! |---|---|
//! | [`Tree::top`](crate::tree::Tree::top) | the slowest spans, or the newest: truly those, not the first that are found |
//! | [`Tree::quantiles`](crate::tree::Tree::quantiles) | quantiles of durations, by time and by values: exact, or with a known error when there are very many |
//!
//! Only the columns that a [`Filter`] names are read, and of these only pages that may have what is asked for.
//! A condition is asked once for each different value of a page, in its dictionary, and not for each row.
//!
//! **When it hurts**: a question about attributes without a column of their own reads the maps, which are the
//! largest columns.

mod filter;
mod quantiles;
mod scan;
mod top;

pub use filter::{Condition, Filter, Literal, Of, Test};
pub use quantiles::{Group, Quantiles, QuantilesOf, TooManyGroups};
pub use top::{Hit, Order, Top};

#[cfg(test)]
mod tests;
