//! SQL over the tables of the trace store: `spans`, `logs`, `points`, `traces`.
//!
//! This is the one place that links DataFusion, which takes longer to compile than all the rest together; so
//! no other crate uses this one; other programs start `curtail-sql`.
//!
//! What a table is, our own reader of its Delta log says ([`curtail_store::delta`]); which of its files can have
//! what is asked for, the extremes in that log ([`files`]); where in a file it is, the file's end, which is read
//! once ([`footers`]). From there on it is DataFusion's: its parquet source skips row groups and pages, and reads
//! no column that is not asked for.
//!
//! **Invariant**: it changes nothing, on disk or in its own session.
//! **Invariant**: a query for one tenant learns nothing about the rows of others ([`tenant`]).
//! **Invariant**: a query has a bounded length and bounded memory. Nothing is spilled to disk.
//!
//! **When it hurts**: what the server has only in memory is not seen; and the questions that Curtail's own API
//! serves (a trace by its ID, the slowest, quantiles) it serves faster.

mod columns;
pub mod command;
mod error;
mod files;
mod footers;
mod print;
mod query_result;
mod table;
mod tables;
mod tenant;

pub use error::{AskError, OpenError};
pub use print::{Format, PrintError, Printer};
pub use query_result::QueryResult;
pub use tables::{Bounds, Tables};
