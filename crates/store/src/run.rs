//! Runs: sorted files of rows, in Parquet.
//!
//! A row group is one [`Columns`], and each column has pages of [`PAGE_ROWS`]. The page index has the minima and maxima of
//! the [zone columns](crate::schema::Table::zones), so one trace is read alone. The metadata of the file has the
//! [indexes](crate::schema::Table::indexes). A column with one value in all rows, or none, is one page.
//!
//! The codes of dictionaries are written to pages as they are. So pages are made here, and only the file around them by the
//! parquet crate. Every page has a checksum.
//!
//! | values | encoding |
//! |---|---|
//! | texts, numbers | a dictionary, or plain if most differ |
//! | starts, durations, times | differences |
//! | IDs | byte arrays of fixed length |
//!
//! A column is compressed (zstd, level 1) if that saves at least a tenth.
//!
//! **Limits**: a row group has less than 2^31 rows and 2 GiB; only files of this crate are read.
//!
//! **Source**: the documents of apache/parquet-format: README, Encodings, "Page index", Compression.
//!
//! [`Columns`]: crate::Columns

mod chunk;
mod chunk_reader;
mod max_index;
mod page;
mod read;
mod write;

pub use max_index::{MaximaOfText, PageMaximum};
pub use read::{Run, RunError, Wanted};
pub use write::RunWriter;

/// The number of rows of a page, except the last of a row group.
pub const PAGE_ROWS: usize = 8_192;

/// Maximum size of a row group in memory, unless it has one row. So row groups of long texts have fewer rows.
pub const GROUP_BYTES: usize = 64 << 20;

/// Maximum number of rows of a row group.
pub const GROUP_ROWS: usize = 8 * PAGE_ROWS;
