//! Counters of the receivers and of the log.

use crate::rejection::RejectReason;
use curtail_metrics::{Counter, CounterVec, Gauge, Instrument as _};
use curtail_otlp::Signal;
use curtail_sketch::AtomicHistogram;
use std::time::Duration;

/// Counters of the receivers since the start.
#[derive(Debug, Default)]
pub struct IngestMetrics {
    /// Durable batches, by signal.
    pub batches: CounterVec<Signal>,
    /// The rows of durable batches, by signal.
    pub rows: CounterVec<Signal>,
    /// The decompressed bytes of durable batches, by signal.
    pub bytes: CounterVec<Signal>,
    /// Rejected requests, by reason.
    pub rejected: CounterVec<RejectReason>,
    /// Rows that were left out of accepted batches.
    pub rows_rejected: Counter,
    /// Duplicates of batches of the last ten minutes, which are acknowledged but not stored.
    pub duplicates: Counter,
    /// Times from the head of a request to the acknowledgement of its batch.
    pub acknowledged: AtomicHistogram,
    /// Batches that wait for the log.
    pub waiting: Gauge,
    /// Open connections.
    pub connections: Gauge,
}

impl IngestMetrics {
    pub(crate) fn stored(&self, signal: Signal, rows: usize, bytes: usize) {
        self.batches.add(&signal, 1);
        self.rows.add(&signal, rows as u64);
        self.bytes.add(&signal, bytes as u64);
    }

    /// Counts an acknowledged request, and the rows that were left out of its batch.
    pub(crate) fn acknowledged(&self, took: Duration, rows_rejected: u64) {
        self.acknowledged.record(took.into());
        self.rows_rejected.add(rows_rejected);
    }

    /// Returns the number of durable batches, and of duplicates.
    pub fn batch_counts(&self) -> (u64, u64) {
        (self.batches.sum(), self.duplicates.read())
    }
}

/// Counters of the thread that writes the log.
#[derive(Debug, Default)]
pub struct LogMetrics {
    /// Bytes of durable batches.
    pub bytes: Counter,
    /// Groups of batches that could not be written.
    pub failures: Counter,
    /// Times to write and sync one group of batches.
    pub writes: AtomicHistogram,
}
