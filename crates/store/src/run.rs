//! Runs: sorted files of rows, in Parquet.
//!
//! Rows are written in row groups, each of them [`Columns`], and every column of one in pages of
//! [`PAGE_ROWS`]; the page index says which trace IDs, starts and durations a page has, so that one trace is
//! read without the rest; a file of spans says besides how long the slowest of each service took ([`slowest`]). A column of which all rows have the same, or nothing, is one page.
//!
//! Places in dictionaries go from [`Columns`] to pages and back as they are: that is why pages are made here,
//! and only the file around them by the parquet crate. Every page has a checksum.
//!
//! | of | encoding |
//! |---|---|
//! | texts, numbers | a dictionary, or plainly when most are different |
//! | starts, durations, times | differences |
//! | IDs | side by side |
//!
//! A column is compressed (zstd, level 1) where that saves at least a tenth.
//!
//! **Limits**: a row group has less than 2^31 rows and 2 GiB; files are read that were written here.
//!
//! **Source**: the documents of apache/parquet-format: README, Encodings, "Page index", Compression.
//!
//! [`Columns`]: crate::Columns

mod chunk;
mod chunk_reader;
mod page;
mod read;
mod slowest;
mod write;

pub use read::{Run, RunError, Wanted};
pub use slowest::{Known, OfService};
pub use write::RunWriter;

/// How many rows a page has, but for the last of a row group.
pub const PAGE_ROWS: usize = 8_192;

/// A row group has no more bytes than this in memory, unless it has one row: long texts make small ones.
pub const GROUP_BYTES: usize = 64 << 20;

/// How many rows a row group has at most.
pub const GROUP_ROWS: usize = 8 * PAGE_ROWS;
