//! SQL over the tables of the trace store: `spans`, `logs`, `points`, `traces`.
//!
//! Only this crate links DataFusion, which takes longer to compile than everything else together. No other crate uses it:
//! programs start `curtail-sql`.
//!
//! Our own reader of the Delta log lists the files of a table ([`curtail_store::delta`]). The extremes in the log select
//! files ([`files`]), and cached footers locate rows in them ([`footers`]). DataFusion does the rest: its Parquet source
//! skips row groups and pages, and reads only the columns of the query.
//!
//! **Invariant**: it changes nothing, on disk or in its own session.
//! **Invariant**: a query for one tenant learns nothing about the rows of others ([`tenant`]).
//! **Invariant**: a query has a bounded length and bounded memory. Nothing is spilled to disk.
//!
//! **When it hurts**: rows that are only in the server's memory are missing. Curtail's own API is faster for its queries (a
//! trace by its ID, the slowest, quantiles).

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

pub use error::{OpenError, QueryError};
pub use print::{Format, PrintError, Printer};
pub use query_result::QueryResult;
pub use tables::{Bounds, Tables};
