//! A read view: what a query reads.

use super::{StoredRun, Unread};
use crate::columns::Columns;
use crate::memtable::{Rows, SharedMemtable};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The memtables and the runs of a tree at one moment. Taking one copies no rows.
#[derive(Debug)]
pub(crate) struct ReadView<R: Rows> {
    pub(super) memtables: Vec<Arc<SharedMemtable<R>>>,
    pub(crate) runs: Arc<[Arc<StoredRun>]>,
    /// Runs of the table that cannot be read.
    pub(crate) unopened: Vec<Unread>,
}

impl<R: Rows> ReadView<R> {
    /// Some columns of each memtable, or more. Rows that came after the view was taken may be among them.
    pub(crate) fn memory(&self, fields: &BTreeSet<usize>) -> Vec<Arc<Columns>> {
        self.memtables.iter().map(|memtable| memtable.columns(fields)).collect()
    }

    /// The rows of each memtable with an ID in the field by which runs are sorted.
    pub(super) fn memory_with_id(&self, id: u128) -> Vec<Columns> {
        self.memtables.iter().map(|memtable| memtable.rows_with_id(id)).collect()
    }
}
