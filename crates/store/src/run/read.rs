//! Reads a run: its footer first, then the wanted pages.
//!
//! Nothing is fetched here: [`Run::want`] lists the bytes, and [`Run::read`] decodes them.

use super::chunk_reader::{Stored, column, may_have_key};
use super::max_index::{Maxima, MaximaOfText};
use crate::columns::Columns;
use crate::encoding::Damaged;
use crate::schema::{Form, Schema, Table};
use bytes::Bytes;
use parquet::basic::CompressionCodec;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use std::collections::BTreeSet;
use std::ops::Range;

/// An open run: the metadata at the end of its file.
#[derive(Debug)]
pub struct Run {
    table: &'static Table,
    metadata: ParquetMetaData,
    /// The columns of each field in the file; none if the run was written before the field was added.
    columns: Vec<Vec<usize>>,
    /// One for each index of the table.
    indexes: Vec<Maxima>,
}

/// The bytes that are needed to read some rows of a row group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    group: usize,
    fields: Vec<usize>,
    /// Only maps with one of these keys are decoded; [`None`]: all maps.
    keys: Option<BTreeSet<String>>,
    rows: Range<usize>,
    /// The ranges of the file, in the order in which [`Run::read`] expects them.
    pub ranges: Vec<Range<u64>>,
}

/// Why a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// More bytes of the file's end are needed: this many in total.
    #[error("its last {0} bytes are needed")]
    Longer(usize),
    /// The end of the file is not that of a run.
    #[error("it does not end as a run does")]
    NoRun(#[source] ParquetError),
    /// The end has changed since it was written.
    #[error("its end has the wrong checksum")]
    End,
    /// A column is damaged.
    #[error("row group {group}, column {column}")]
    Damaged {
        /// The row group, from zero.
        group: usize,
        /// The name of the column.
        column: &'static str,
        /// The damage.
        #[source]
        source: Damaged,
    },
}

impl Wanted {
    /// Skips maps in which the row group has none of these keys. Skipped maps are empty.
    #[must_use]
    pub fn with_keys(self, keys: Option<&BTreeSet<String>>) -> Self {
        Self { keys: keys.cloned(), ..self }
    }
}

impl Run {
    /// Opens a run from the end of its file of `len` bytes. `end_bytes` are the last bytes, as many as were fetched.
    ///
    /// # Errors
    /// When `end_bytes` is too short, or the file is no run.
    pub fn open(table: &'static Table, end_bytes: &Bytes, len: u64) -> Result<Self, RunError> {
        let mut reader =
            ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
        reader.try_parse_sized(end_bytes, len).map_err(|error| {
            if let ParquetError::NeedMoreData(bytes) = error {
                RunError::Longer(bytes)
            } else {
                RunError::NoRun(error)
            }
        })?;
        let metadata = reader.finish().map_err(RunError::NoRun)?;
        let names: Vec<_> = metadata
            .file_metadata()
            .schema_descr()
            .columns()
            .iter()
            .map(|column| column.path().string())
            .collect();
        let mut ours = table.schema().parquet().columns().iter();
        let columns = table.schema().fields().iter().map(|field| {
            let parts = ours.by_ref().take(field.form.parts().len());
            let parts = parts.map(|part| {
                let name = part.path().string();
                names.iter().position(|of_file| *of_file == name)
            });
            // A field that lacks a part is missing. Collected first, so that all of its parts are consumed.
            let parts: Vec<_> = parts.collect();
            parts.into_iter().collect::<Option<_>>().unwrap_or_default()
        });
        let columns = columns.collect();
        let entries = metadata.file_metadata().key_value_metadata();
        let indexes = table.indexes.iter().map(|index| {
            let entry = entries.and_then(|all| all.iter().find(|each| each.key == index.key));
            entry.and_then(|entry| entry.value.as_deref()).map(Maxima::read).unwrap_or_default()
        });
        let indexes = indexes.collect();
        Ok(Self { table, metadata, columns, indexes })
    }

    /// The position of the first page index. The end of the file begins there: the page indexes, then the footer.
    #[must_use]
    pub fn end_begins(&self) -> Option<u64> {
        let chunks = self.metadata.row_groups().iter().flat_map(|group| group.columns());
        let indexes =
            chunks.flat_map(|chunk| [chunk.column_index_offset(), chunk.offset_index_offset()]);
        indexes.flatten().filter_map(|at| u64::try_from(at).ok()).min()
    }

    /// The fields.
    #[must_use]
    pub const fn schema(&self) -> &'static Schema {
        self.table.schema()
    }

    /// The number of row groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.metadata.num_row_groups()
    }

    /// The number of rows of a row group.
    ///
    /// # Panics
    /// When there is no such row group.
    #[must_use]
    pub fn rows(&self, group: usize) -> usize {
        position(self.metadata.row_group(group).num_rows())
    }

    /// The rows of each page of a row group that may have a value from `least` to `greatest` in a field of sixteen
    /// bytes, by the page index.
    ///
    /// # Panics
    /// When there is no such row group.
    pub fn rows_between(
        &self,
        group: usize,
        field: usize,
        least: u128,
        greatest: u128,
    ) -> impl Iterator<Item = Range<usize>> {
        let pages = self.pages(group, self.columns[field].first().copied());
        let index = self.columns[field].first().and_then(|column| self.index(group, *column));
        let ids = match index {
            Some(ColumnIndexMetaData::BYTE_ARRAY(ids)) => Some(ids),
            _ => None,
        };
        let may_have = move |nth: usize| {
            let of_page = ids.and_then(|ids| {
                let id = |bytes: &[u8]| bytes.try_into().ok().map(u128::from_be_bytes);
                Some((id(ids.min_value(nth)?)?, id(ids.max_value(nth)?)?))
            });
            let has_ids = ids.is_none_or(|ids| !ids.is_null_page(nth));
            has_ids && of_page.is_none_or(|(from, to)| from <= greatest && to >= least)
        };
        pages.into_iter().enumerate().filter(move |(nth, _)| may_have(*nth)).map(|(_, rows)| rows)
    }

    /// The rows of each page of a field, and the least and the greatest number in the page.
    ///
    /// # Panics
    /// When there is no such row group.
    pub fn extremes(
        &self,
        group: usize,
        field: usize,
    ) -> impl Iterator<Item = (Range<usize>, i64, i64)> {
        let column = self.columns[field].first().copied();
        let index = match column.and_then(|column| self.index(group, column)) {
            Some(ColumnIndexMetaData::INT64(numbers)) => Some(numbers),
            _ => None,
        };
        self.pages(group, column).into_iter().enumerate().map(move |(nth, rows)| {
            let least = index.and_then(|numbers| numbers.min_value(nth).copied());
            let greatest = index.and_then(|numbers| numbers.max_value(nth).copied());
            (rows, least.unwrap_or(i64::MIN), greatest.unwrap_or(i64::MAX))
        })
    }

    /// The maxima of the rows with a text, in the nth index of the table.
    ///
    /// # Panics
    /// When there is no such index.
    #[must_use]
    pub fn maxima(&self, nth: usize, text: &str) -> MaximaOfText<'_> {
        self.indexes[nth].of(text)
    }

    /// The bytes that are needed to read fields of rows of a row group.
    ///
    /// # Panics
    /// When there is no such row group.
    #[must_use]
    pub fn want(&self, group: usize, fields: &[usize], rows: Range<usize>) -> Wanted {
        let mut ranges = Vec::new();
        for column in fields.iter().flat_map(|field| &self.columns[*field]) {
            ranges.extend(self.parts(group, *column, &rows).0);
        }
        Wanted { group, fields: fields.to_vec(), keys: None, rows, ranges }
    }

    /// Decodes the wanted rows from the fetched bytes. Fields that were not wanted are empty.
    ///
    /// # Errors
    /// When the bytes are damaged.
    pub fn read(&self, wanted: &Wanted, fetched: &[Bytes]) -> Result<Columns, RunError> {
        let Wanted { group, fields, keys, rows, .. } = wanted;
        let mut fetched = fetched.iter();
        let mut columns = Columns::nothing(self.schema(), rows.len());
        for field in fields {
            let of_field = &self.schema().fields()[*field];
            let damaged =
                |source| RunError::Damaged { group: *group, column: of_field.name, source };
            let mut stored = Vec::new();
            let mut read = rows.clone();
            for column in &self.columns[*field] {
                let (ranges, of_pages) = self.parts(*group, *column, rows);
                let parts: Vec<_> = fetched.by_ref().take(ranges.len()).cloned().collect();
                let is_compressed = self.chunk(*group, *column).compression_codec()
                    != CompressionCodec::UNCOMPRESSED;
                stored.push(Stored { is_compressed, parts });
                read = of_pages;
            }
            if stored.iter().all(|stored| stored.parts.is_empty()) {
                // No row has a value.
                continue;
            }
            if let (Form::Map(_), Some(keys)) = (of_field.form, keys)
                && !may_have_key(&stored[0], keys).map_err(damaged)?
            {
                continue;
            }
            let within = rows.start - read.start..rows.end - read.start;
            let column = column(of_field, &stored, &within).map_err(damaged)?;
            columns.put(*field, column);
        }
        Ok(columns)
    }

    /// The ranges of the dictionary and of the pages with some rows, and all rows of these pages.
    fn parts(
        &self,
        group: usize,
        column: usize,
        rows: &Range<usize>,
    ) -> (Vec<Range<u64>>, Range<usize>) {
        let chunk = self.chunk(group, column);
        let nulls = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
        if nulls == Some(chunk.num_values().cast_unsigned()) || rows.is_empty() {
            return (Vec::new(), rows.clone());
        }
        let pages = self.pages(group, Some(column));
        let first = pages.partition_point(|page| page.end <= rows.start);
        let last = pages.partition_point(|page| page.start < rows.end) - 1;
        let locations = self.locations(group, column);
        let dictionary = chunk.dictionary_page_offset().map(|from| {
            let to = locations[0].offset;
            from.cast_unsigned()..to.cast_unsigned()
        });
        let end = locations[last].offset + i64::from(locations[last].compressed_page_size);
        let pages_at = locations[first].offset.cast_unsigned()..end.cast_unsigned();
        let ranges = dictionary.into_iter().chain([pages_at]).collect();
        (ranges, pages[first].start..pages[last].end)
    }

    /// The rows of each page of a column. A column that is not in the file counts as one page.
    fn pages(&self, group: usize, column: Option<usize>) -> Vec<Range<usize>> {
        let rows = self.rows(group);
        let locations = column.map(|column| self.locations(group, column));
        let Some(locations) = locations else { return std::iter::once(0..rows).collect() };
        let starts = locations.iter().map(|at| position(at.first_row_index));
        let ends = starts.clone().skip(1).chain([rows]);
        starts.zip(ends).map(|(from, to)| from..to).collect()
    }

    fn chunk(&self, group: usize, column: usize) -> &ColumnChunkMetaData {
        self.metadata.row_group(group).column(column)
    }

    fn locations(
        &self,
        group: usize,
        column: usize,
    ) -> &[parquet::file::page_index::offset_index::PageLocation] {
        let index = self.metadata.offset_index().expect("it was required");
        index[group][column].page_locations()
    }

    fn index(&self, group: usize, column: usize) -> Option<&ColumnIndexMetaData> {
        Some(&self.metadata.column_index()?[group][column])
    }
}

/// A count of rows, which is never negative.
fn position(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}
