//! The trace store: an LSM tree for each table. Spans and log records are sorted by trace ID, metric points by series.
//!
//! Batches are appended to the [`log`] and acknowledged when they are durable. A [`Memtable`] holds their rows as [`Columns`]. A
//! full memtable is [sorted](sort()) by ID and time and written as a [`run`]: a Parquet file, which a commit adds to a
//! [Delta](delta) table.
//!
//! The caller passes in [`Files`], so that tests can make every operation fail. The crate reads no clock, opens no socket and
//! starts no thread.
//!
//! **Source**: O'Neil et al., "The Log-Structured Merge-Tree", Acta Informatica 33, 1996; Segment, "Changing one character
//! improved our app's performance", 2022.

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
pub use memtable::Memtable;
pub use retention::{Expired, Retention};
pub use sort::{Key, RowPosition, sort};
pub use store::{
    Compactor, CompactorError, Flusher, OpenError, Recovery, Settings, Store, StoreParts, TailKept,
};

/// Maximum length of an SQL query in bytes, for the API that accepts the query and for the program that runs it. The
/// program's stack must suffice for the deepest nesting that fits in this length.
pub const SQL_BYTES_MAX: usize = 16 << 10;

/// The default tenant.
pub const DEFAULT_TENANT: &str = "anonymous";
