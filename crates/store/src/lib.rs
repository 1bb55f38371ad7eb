//! The trace store: an LSM tree of spans, sorted by trace ID.
//!
//! What comes in is written to the [`log`] and acknowledged when it is on disk; beside that it is kept in a
//! [`Memtable`], the batches as they came with their rows. A full memtable is [sorted](sort()) by trace ID
//! and start: whole traces then lie together, in every run and through every merge.
//!
//! Files come in through [`Files`], so that every operation can be made to fail in a test. Nothing here
//! reads a clock, opens a socket or starts a thread.
//!
//! **Source**: O'Neil et al., "The Log-Structured Merge-Tree", Acta Informatica 33, 1996; Segment, "Changing
//! one character improved our app's performance", 2022.

pub mod delta;
pub mod files;
pub mod log;
mod memtable;
mod sort;

pub use files::{Directory, Files};
pub use memtable::{Batch, Memtable};
pub use sort::{Key, Place, sort};
