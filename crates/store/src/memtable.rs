//! The memtable: the rows since the last flush, in memory, in the order of arrival.
//!
//! Rows are [`Columns`], so queries read memory and runs alike, and a repeated text is stored once. Rows are sorted when the
//! memtable is flushed.
//!
//! **Limits**: none of its own; the caller checks [`Memtable::bytes`] and begins another memtable.

mod attributes;
mod envelope;
mod logs;
mod points;
mod series;
mod shared_memtable;
mod spans;

pub use logs::LogRows;
pub use points::PointRows;
pub(crate) use shared_memtable::SharedMemtable;
pub use spans::SpanRows;

use crate::columns::Columns;
use crate::run::GROUP_ROWS;
use crate::schema::Table;
use crate::sort::{Key, Place, sort};
use std::sync::Arc;

/// The rows of a table: from batches to columns.
pub trait Rows: std::fmt::Debug + Default + Send + Sync + 'static {
    /// A decoded batch.
    type Batch: std::fmt::Debug + Send + Sync;

    /// The table.
    fn table() -> &'static Table;

    /// Adds the rows of a batch to columns; `rows` is the decoded batch.
    fn insert(&mut self, columns: &mut Columns, tenant: &str, batch: &[u8], rows: &Self::Batch);
}

/// The rows since the last flush.
#[derive(Debug)]
pub struct Memtable<R> {
    /// Shared with queries once the memtable is sealed.
    columns: Arc<Columns>,
    rows: R,
}

impl<R: Rows> Default for Memtable<R> {
    fn default() -> Self {
        Self { columns: Columns::new(R::table().schema()).into(), rows: R::default() }
    }
}

impl<R: Rows> Memtable<R> {
    /// Adds the rows of a batch; `rows` is the decoded batch.
    ///
    /// # Panics
    /// When `rows` were read of another batch.
    pub fn insert(&mut self, tenant: &str, batch: &[u8], rows: &R::Batch) {
        self.rows.insert(Arc::make_mut(&mut self.columns), tenant, batch, rows);
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

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The rows, in the order in which they came.
    #[must_use]
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The rows that have an ID in the field by which runs are sorted, in the order in which they came.
    pub fn with_id(&self, id: u128) -> impl Iterator<Item = usize> {
        let ids = self.columns.wide(R::table().order().0).iter().enumerate();
        ids.filter(move |(_, each)| **each == id).map(|(row, _)| row)
    }

    /// All rows in the order of a run, as the row groups of one.
    pub fn sorted(&self) -> impl Iterator<Item = Columns> {
        let (id, time) = R::table().order();
        let ids = self.columns.wide(id).iter().zip(self.columns.longs(time));
        let mut keys: Vec<Key> = (0..)
            .zip(ids)
            .map(|(row, (trace_id, start_ns))| Key {
                trace_id: *trace_id,
                start_ns: start_ns.cast_unsigned(),
                place: Place { batch: 0, row },
            })
            .collect();
        sort(&mut keys);
        let places: Vec<_> = keys.iter().map(|key| key.place).collect();
        let groups = places.len().div_ceil(GROUP_ROWS);
        (0..groups).map(move |nth| {
            let of_group = &places[nth * GROUP_ROWS..((nth + 1) * GROUP_ROWS).min(places.len())];
            Columns::gather(R::table().schema(), &[&self.columns], of_group)
        })
    }
}

#[cfg(test)]
mod tests;
