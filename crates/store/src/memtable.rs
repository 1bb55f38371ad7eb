//! The memtable: the rows since the last flush, in memory, in the order of arrival. A flush sorts them.
//!
//! Rows are [`Columns`], so queries read memory and runs alike, and a repeated text is stored once.
//!
//! **Limits**: the caller checks [`Memtable::bytes`] and begins another memtable.

mod attributes;
mod envelope;
mod logs;
mod points;
mod series;
mod shared_memtable;
mod spans;

pub(crate) use shared_memtable::SharedMemtable;

use crate::columns::Columns;
use crate::run::GROUP_ROWS;
use crate::schema::Table;
use crate::sort::{Key, RowPosition, sort};
use attributes::Attributes;
use curtail_otlp::Decoded;
use std::sync::Arc;

/// The rows of a table since its last flush.
#[derive(Debug)]
pub struct Memtable {
    table: &'static Table,
    /// Shared with queries once the memtable is sealed.
    columns: Arc<Columns>,
    writer: RowWriter,
}

/// Adds decoded batches to columns.
#[derive(Debug)]
struct RowWriter {
    attributes: Attributes,
    /// A buffer for attributes as plain JSON.
    json: Vec<u8>,
}

impl Memtable {
    /// An empty memtable of a table of ingested rows.
    #[must_use]
    pub fn new(table: &'static Table) -> Self {
        let writer =
            RowWriter { attributes: Attributes::new(&table.schema().own), json: Vec::new() };
        Self { table, columns: Columns::new(table.schema()).into(), writer }
    }

    /// Adds the rows of a batch; `rows` is the decoded batch.
    ///
    /// # Panics
    /// When `rows` are of another batch or table.
    pub fn insert(&mut self, tenant: &str, batch: &[u8], rows: &Decoded) {
        let columns = Arc::make_mut(&mut self.columns);
        match rows {
            Decoded::Spans(spans) => self.writer.spans(columns, tenant, batch, spans),
            Decoded::Logs(logs) => self.writer.logs(columns, tenant, batch, logs),
            Decoded::Points(points) => self.writer.points(columns, tenant, batch, points),
        }
        self.writer.attributes.put(columns, batch);
    }

    /// The size in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.columns.bytes()
    }

    /// The number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The rows in order of arrival.
    #[must_use]
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The rows with an ID in the ID field by which runs are sorted, in order of arrival.
    pub fn with_id(&self, id: u128) -> impl Iterator<Item = usize> {
        let ids = self.columns.wide(self.table.order.0).iter().enumerate();
        ids.filter(move |(_, each)| **each == id).map(|(row, _)| row)
    }

    /// All rows in the order of a run, as row groups.
    pub fn sorted(&self) -> impl Iterator<Item = Columns> {
        let (id, time) = self.table.order;
        let ids = self.columns.wide(id).iter().zip(self.columns.longs(time));
        let mut keys: Vec<Key> = (0..)
            .zip(ids)
            .map(|(row, (trace_id, start_ns))| Key {
                trace_id: *trace_id,
                start_ns: start_ns.cast_unsigned(),
                position: RowPosition { batch: 0, row },
            })
            .collect();
        sort(&mut keys);
        let positions: Vec<_> = keys.iter().map(|key| key.position).collect();
        let groups = positions.len().div_ceil(GROUP_ROWS);
        (0..groups).map(move |nth| {
            let of_group =
                &positions[nth * GROUP_ROWS..((nth + 1) * GROUP_ROWS).min(positions.len())];
            Columns::gather(self.table.schema(), &[&self.columns], of_group)
        })
    }
}

#[cfg(test)]
mod tests;
