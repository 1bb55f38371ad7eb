//! Writes a run.

use super::GROUP_BYTES;
use super::chunk::{Chunk, Encoder};
use super::max_index::NewMaxima;
use crate::columns::Columns;
use crate::schema::Table;
use bytes::Bytes;
use parquet::basic::{BoundaryOrder, Compression, Encoding, Type, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, KeyValue, OffsetIndexBuilder,
};
use parquet::file::properties::WriterProperties;
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnDescPtr;

/// A run that is being written in memory. Its finished parts may be [taken](Self::take) before it is complete.
pub struct RunWriter {
    table: &'static Table,
    file: SerializedFileWriter<Vec<u8>>,
    encoder: Encoder,
    indexes: Vec<NewMaxima>,
    rows: u64,
}

impl std::fmt::Debug for RunWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunWriter").field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl RunWriter {
    /// Begins a run.
    #[must_use]
    pub fn new(table: &'static Table) -> Self {
        const WRITER: &str = concat!("curtail ", env!("CARGO_PKG_VERSION"));
        let properties = WriterProperties::builder().set_created_by(WRITER.to_owned()).build();
        let root = table.schema().parquet().root_schema_ptr();
        let file = in_memory(SerializedFileWriter::new(Vec::new(), root, properties.into()));
        let indexes = table.indexes.iter().map(NewMaxima::new).collect();
        Self { table, file, encoder: Encoder::new(), indexes, rows: 0 }
    }

    /// Writes the next rows as a row group, or as several if they have more than [`GROUP_BYTES`].
    ///
    /// # Panics
    /// When the rows are of another table.
    pub fn write(&mut self, rows: &Columns) {
        if rows.bytes() > GROUP_BYTES && rows.len() > 1 {
            let half = rows.len() / 2;
            self.write(&rows.part(0..half));
            return self.write(&rows.part(half..rows.len()));
        }
        in_memory(self.write_group(rows));
        self.indexes.iter_mut().for_each(|index| index.push(rows));
        self.rows += rows.len() as u64;
    }

    fn write_group(&mut self, rows: &Columns) -> Result<(), ParquetError> {
        let Self { table, encoder, .. } = self;
        let mut columns = table.schema().parquet().columns().iter();
        let mut group = self.file.next_row_group()?;
        for (nth, field) in table.schema().fields().iter().enumerate() {
            let is_zone = table.zones.contains(&nth);
            for chunk in encoder.field((field, is_zone), rows.column(nth), rows.len()) {
                let column = columns.next().expect("a column for each part");
                let close = close(&chunk, column, rows.len())?;
                group.append_column(&Bytes::from(chunk.bytes), close)?;
            }
        }
        group.close().map(drop)
    }

    /// The number of written rows.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes the bytes of the file that were written since the last call.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        in_memory(self.file.flush());
        std::mem::take(self.file.inner_mut())
    }

    /// Writes the end of the run; returns the bytes that were not taken.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        for (index, maxima) in self.table.indexes.iter().zip(&self.indexes) {
            let metadata = KeyValue::new(index.key.to_owned(), maxima.finish());
            self.file.append_key_value_metadata(metadata);
        }
        in_memory(self.file.into_inner())
    }
}

/// The result of a write to memory, which does not fail.
fn in_memory<T>(written: Result<T, impl std::fmt::Debug>) -> T {
    written.expect("memory can be written to")
}

/// The metadata and indexes of a chunk.
fn close(
    chunk: &Chunk,
    column: &ColumnDescPtr,
    rows: usize,
) -> Result<ColumnCloseResult, ParquetError> {
    let mut encodings = vec![Encoding::RLE, chunk.encoding];
    if chunk.dictionary_len > 0 {
        encodings.push(Encoding::PLAIN);
    }
    let values: usize = chunk.pages.iter().map(|page| page.values).sum();
    let codec = if chunk.is_compressed {
        Compression::ZSTD(ZstdLevel::default())
    } else {
        Compression::UNCOMPRESSED
    };
    let metadata = ColumnChunkMetaData::builder(column.clone())
        .set_encodings(encodings)
        .set_num_values(long(values))
        .set_compression(codec)
        .set_total_compressed_size(long(chunk.bytes.len()))
        .set_total_uncompressed_size(long(chunk.raw_len))
        .set_dictionary_page_offset((chunk.dictionary_len > 0).then_some(0))
        .set_data_page_offset(long(chunk.dictionary_len))
        .set_statistics(statistics(chunk, column.physical_type()));
    let mut offsets = OffsetIndexBuilder::new();
    for page in &chunk.pages {
        offsets.append_row_count(long(page.rows));
        let len = i32::try_from(page.len).expect("a page has less than 2 GiB");
        offsets.append_offset_and_size(long(page.at), len);
    }
    let mut index = ColumnIndexBuilder::new(column.physical_type());
    // In such a column, a page without extremes has only nulls.
    let is_indexed = chunk.pages.iter().any(|page| page.extremes.is_some());
    for page in &chunk.pages {
        let (least, greatest) = page.extremes.clone().unwrap_or_default();
        index.append(page.extremes.is_none(), least, greatest, long(page.nulls));
    }
    index.set_boundary_order(order(chunk));
    Ok(ColumnCloseResult {
        bytes_written: chunk.bytes.len() as u64,
        rows_written: rows as u64,
        metadata: metadata.build()?,
        bloom_filter: None,
        column_index: if is_indexed { Some(index.build()?) } else { None },
        offset_index: Some(offsets.build()),
    })
}

/// The order of pages by their extremes: trace IDs ascend, compared as bytes. Other columns have no order.
fn order(chunk: &Chunk) -> BoundaryOrder {
    let is_id = |page: &super::chunk::Page| {
        page.extremes.as_ref().is_some_and(|(least, _)| least.len() == size_of::<u128>())
    };
    let is_ascending = chunk.pages.is_sorted_by(|a, b| match (&a.extremes, &b.extremes) {
        (Some(a), Some(b)) => a.0 <= b.0 && a.1 <= b.1,
        _ => false,
    });
    if is_ascending && chunk.pages.iter().all(is_id) {
        BoundaryOrder::ASCENDING
    } else {
        BoundaryOrder::UNORDERED
    }
}

/// The statistics: the least and the greatest value, and the number of rows without a value.
fn statistics(chunk: &Chunk, of: Type) -> Statistics {
    let nulls = Some(chunk.pages.iter().map(|page| page.nulls as u64).sum());
    let extremes = chunk.pages.iter().filter_map(|page| page.extremes.as_ref());
    let least = extremes.clone().map(|(least, _)| least);
    let greatest = extremes.map(|(_, greatest)| greatest);
    if of == Type::INT64 {
        let int = |bytes: &Vec<u8>| crate::columns::int(bytes);
        let (least, greatest) = (least.map(int).min(), greatest.map(int).max());
        Statistics::int64(least, greatest, None, nulls, false)
    } else if of == Type::DOUBLE {
        Statistics::double(None, None, None, nulls, false)
    } else if of == Type::BOOLEAN {
        Statistics::boolean(None, None, None, nulls, false)
    } else {
        let bytes = |bytes: &Vec<u8>| ByteArray::from(bytes.clone());
        let (least, greatest) = (least.min().map(bytes), greatest.max().map(bytes));
        Statistics::byte_array(least, greatest, None, nulls, false)
    }
}

fn long(number: usize) -> i64 {
    i64::try_from(number).expect("memory is bounded")
}
