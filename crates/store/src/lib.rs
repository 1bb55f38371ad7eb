//! The trace store: an LSM tree for each signal. Spans and log records are sorted by trace ID, points of metrics
//! by series.
//!
//! What comes in is written to the [`log`] and acknowledged when it is on disk; beside that it is kept in a
//! [`Memtable`], as [`Columns`]. A full memtable is [sorted](sort()) by ID and time, so that whole traces
//! lie together, and written as a [`run`]: a file of Parquet, which is part of a [Delta](delta) table
//! once that is committed.
//!
//! Files come in through [`Files`], so that every operation can be made to fail in a test. Nothing here
//! reads a clock, opens a socket or starts a thread.
//!
//! **Source**: O'Neil et al., "The Log-Structured Merge-Tree", Acta Informatica 33, 1996; Segment, "Changing
//! one character improved our app's performance", 2022.

pub mod batch;
mod columns;
mod copies;
pub mod delta;
mod encoding;
pub mod files;
pub mod log;
mod memtable;
pub mod merge;
pub mod parallel;
pub mod query;
pub mod recent;
mod retention;
pub mod run;
pub mod schema;
mod sort;
mod store;
pub mod tail;
pub mod traces;
pub mod tree;

pub use columns::{Coded, Column, Columns, Dictionary, Lists, Plain, Values};
pub use files::{Directory, Files};
pub use memtable::{LogRows, Memtable, PointRows, Rows, SpanRows};
pub use retention::{Expired, Retention};
pub use sort::{Key, Place, sort};
pub use store::{
    Compactor, CompactorError, Flusher, OpenError, Recovery, Settings, Store, StoreParts, TailKept,
};

/// Maximum length of a query in SQL, for the program that runs it and for the API that takes it. A query nested as deep
/// as that allows must find room on the program's stack.
pub const SQL_BYTES_MAX: usize = 16 << 10;

/// The tenant of those who name none.
pub const NOBODY: &str = "anonymous";
