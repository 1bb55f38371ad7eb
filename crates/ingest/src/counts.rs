//! What receivers count.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start, but for what is said to be so now.
#[derive(Debug, Default)]
pub struct Counts {
    batches: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    rows_refused: AtomicU64,
    batches_refused: AtomicU64,
    delayed: AtomicU64,
    duplicates: AtomicU64,
    waiting: AtomicU64,
}

/// A batch that waits for the disk; it is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Counts);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    pub(crate) fn taken(&self, rows: usize, bytes: usize) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn rows_refused(&self, rows: u64) {
        self.rows_refused.fetch_add(rows, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self, comes_again: bool) {
        let counter = if comes_again { &self.delayed } else { &self.batches_refused };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn duplicate(&self) {
        self.duplicates.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn begin_to_wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Batches that wait for the disk now.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Batches that are durable.
    pub fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Rows in them.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Batches that were sent again within ten minutes: acknowledged, but not stored again.
    pub fn duplicate_batches(&self) -> u64 {
        self.duplicates.load(Ordering::Relaxed)
    }

    /// Their bytes, decompressed.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Rows that were left out of good batches.
    pub fn refused_rows(&self) -> u64 {
        self.rows_refused.load(Ordering::Relaxed)
    }

    /// Requests that are the sender's fault.
    pub fn refused_batches(&self) -> u64 {
        self.batches_refused.load(Ordering::Relaxed)
    }

    /// Requests that the sender may retry later.
    pub fn delayed_batches(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }
}
