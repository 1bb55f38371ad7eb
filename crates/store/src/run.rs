//! Runs: sorted files of rows, in Parquet.
//!
//! A row group is one [`Columns`], and each column has pages of [`PAGE_ROWS`] rows. The page index has the minima and
//! maxima of the [zone columns](crate::schema::Table::zones), so a query for a trace reads only its pages. The file's
//! metadata has the [indexes](crate::schema::Table::indexes). A column with a single value, or none, is one page.
//!
//! This crate encodes the pages, because it writes the dictionaries of the [`Columns`] and their codes, instead of
//! building new ones. The parquet crate writes only the file around the pages. Every page has a checksum.
//!
//! | values | encoding |
//! |---|---|
//! | texts, doubles, integers | a dictionary; if most values differ: plain, differences for integers |
//! | starts, durations, times | differences (`DELTA_BINARY_PACKED`) |
//! | IDs | bytes side by side (`DELTA_LENGTH_BYTE_ARRAY`) |
//!
//! A column is compressed (zstd, level 1) if that saves more than a tenth.
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
