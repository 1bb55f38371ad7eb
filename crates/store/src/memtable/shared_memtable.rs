//! A memtable that is filled and queried at the same time: batches that arrive while a query copies columns are queued.
//!
//! The next insert, query or flush that gets the lock adds the queued batches. A sealed memtable is shared, not copied.
//!
//! **Limits**: [`QUEUE_BYTES_MAX`] of batches in the queue. Beyond it, an insert waits until no query is copying.

use super::Memtable;
use crate::columns::{Columns, short};
use crate::log::Record;
use crate::schema::Table;
use crate::sort::RowPosition;
use curtail_otlp::Decoded;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

/// Maximum size of the queue. A query copies for some 10 ms, in which 200 MB/s of batches fill a quarter of the queue.
const QUEUE_BYTES_MAX: usize = 8 << 20;

/// A memtable that one thread fills and any number of threads read.
#[derive(Debug)]
pub(crate) struct SharedMemtable {
    queue: Mutex<Queue>,
    memtable: RwLock<Memtable>,
    /// The size of the memtable without the queue.
    bytes: AtomicUsize,
    is_sealed: AtomicBool,
}

/// Batches that are not in the memtable yet, the oldest first.
#[derive(Debug, Default)]
struct Queue {
    batches: Vec<(Record, Decoded)>,
    bytes: usize,
}

impl SharedMemtable {
    /// An empty memtable of a table.
    pub(crate) fn new(table: &'static Table) -> Self {
        Self {
            queue: Mutex::default(),
            memtable: RwLock::new(Memtable::new(table)),
            bytes: AtomicUsize::default(),
            is_sealed: AtomicBool::default(),
        }
    }

    /// Adds a batch, or queues it while a query copies.
    pub(crate) fn insert(&self, record: &Record, rows: Decoded) {
        let is_long = {
            let queue = &mut *self.queue();
            queue.bytes += record.batch.len();
            queue.batches.push((record.clone(), rows));
            queue.bytes > QUEUE_BYTES_MAX
        };
        if is_long {
            self.insert_queued(self.write());
        } else {
            match self.memtable.try_write() {
                Ok(memtable) => self.insert_queued(memtable),
                Err(TryLockError::Poisoned(poisoned)) => self.insert_queued(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
    }

    /// Seals the memtable: nothing is inserted any more, so queries share the columns.
    pub(crate) fn seal(&self) {
        self.is_sealed.store(true, Ordering::Release);
    }

    /// The size in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.queue().bytes + self.bytes.load(Ordering::Relaxed)
    }

    /// The memtable with all batches.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Memtable> {
        if !self.queue().batches.is_empty() {
            self.insert_queued(self.write());
        }
        self.memtable.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some columns of all rows: shared if the memtable is sealed, else copied.
    pub(crate) fn columns(&self, fields: &BTreeSet<usize>) -> Arc<Columns> {
        let memtable = self.read();
        if self.is_sealed.load(Ordering::Acquire) {
            return Arc::clone(&memtable.columns);
        }
        Arc::new(memtable.columns.only(fields))
    }

    /// A copy of the rows with an ID in the ID field by which runs are sorted.
    pub(crate) fn rows_with_id(&self, id: u128) -> Columns {
        let memtable = self.read();
        let row = |row| RowPosition { batch: 0, row: short(row) };
        let positions: Vec<_> = memtable.with_id(id).map(row).collect();
        Columns::gather(memtable.table.schema(), &[&memtable.columns], &positions)
    }

    fn insert_queued(&self, mut memtable: RwLockWriteGuard<'_, Memtable>) {
        let queue = std::mem::take(&mut *self.queue());
        for (record, rows) in &queue.batches {
            memtable.insert(&record.tenant, &record.batch, rows);
        }
        self.bytes.store(memtable.bytes(), Ordering::Relaxed);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Memtable> {
        self.memtable.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
