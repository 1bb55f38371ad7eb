//! SQL over the tables of the trace store: `spans`, `logs`, `points`, `traces`.
//!
//! Only this crate links DataFusion, which takes longer to compile than everything else together. No other crate
//! depends on this crate: programs start `curtail-sql`.
//!
//! Our own reader of the Delta log lists the files of a table ([`curtail_store::delta`]). The minima and maxima in the
//! log select files ([`files`]), and cached footers locate rows in these files ([`footers`]). DataFusion's Parquet
//! source skips row groups and pages, and reads only the columns of the query.
//!
//! **Invariant**: a query changes nothing on disk or in its session.
//! **Invariant**: a query for one tenant learns nothing about the rows of other tenants ([`tenant`]).
//! **Invariant**: a query has a bounded length and bounded memory. Nothing is spilled to disk.
//!
//! **When it hurts**: rows that are only in the server's memory are missing. For a trace by its ID, the slowest traces
//! and quantiles, the server's query API is faster.

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
