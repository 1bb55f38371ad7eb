//! Counters of the receivers and of the log.

use crate::refusal::Kind;
use curtail_metrics::{CounterVec, Counts, Gauge};
use curtail_otlp::Signal;
use curtail_sketch::{AtomicHistogram, Histogram, Precision};
use curtail_units::Duration;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The values of the label `signal`, in the order of [`Signal`].
const SIGNALS: &[&str] = &["traces", "logs", "metrics"];

/// Counters of the receivers since the start.
#[derive(Debug)]
pub struct IngestMetrics {
    batches: CounterVec,
    rows: CounterVec,
    bytes: CounterVec,
    rejected: CounterVec,
    rows_rejected: AtomicU64,
    duplicates: AtomicU64,
    acknowledged: AtomicHistogram,
    waiting: Gauge,
    connections: Gauge,
}

/// The counters of the receivers at one moment.
#[derive(Clone, Debug)]
pub struct IngestCounts {
    /// Durable batches, by signal.
    pub batches: Counts,
    /// The rows in them.
    pub rows: Counts,
    /// Their bytes, decompressed.
    pub bytes: Counts,
    /// Rejected requests, by reason.
    pub rejected: Counts,
    /// Rows that were left out of accepted batches.
    pub rows_rejected: u64,
    /// Batches that were sent again within ten minutes: acknowledged, but not stored again.
    pub duplicates: u64,
    /// Times from the head of a request to its acknowledgement.
    pub acknowledged: Histogram,
    /// Batches that wait for the log.
    pub waiting: u64,
    /// Open connections.
    pub connections: u64,
}

impl Default for IngestMetrics {
    fn default() -> Self {
        let by_signal = || CounterVec::new(SIGNALS, SIGNALS);
        Self {
            batches: by_signal(),
            rows: by_signal(),
            bytes: by_signal(),
            rejected: CounterVec::new(Kind::NAMES, Kind::NAMES),
            rows_rejected: AtomicU64::default(),
            duplicates: AtomicU64::default(),
            acknowledged: AtomicHistogram::new(Precision::COARSE),
            waiting: Gauge::default(),
            connections: Gauge::default(),
        }
    }
}

impl IngestMetrics {
    pub(crate) fn stored(&self, signal: Signal, rows: usize, bytes: usize) {
        self.batches.add(signal as usize, 1);
        self.rows.add(signal as usize, rows as u64);
        self.bytes.add(signal as usize, bytes as u64);
    }

    pub(crate) fn duplicate(&self) {
        self.duplicates.fetch_add(1, Relaxed);
    }

    /// Counts an acknowledged request, and the rows that were left out of its batch.
    pub(crate) fn acknowledged(&self, took: std::time::Duration, rows_rejected: u64) {
        self.acknowledged.record(took.into());
        self.rows_rejected.fetch_add(rows_rejected, Relaxed);
    }

    pub(crate) fn rejected(&self, kind: Kind) {
        self.rejected.add(kind as usize, 1);
    }

    pub(crate) const fn waiting(&self) -> &Gauge {
        &self.waiting
    }

    pub(crate) const fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// The number of durable batches, and of duplicates.
    pub fn batches(&self) -> (u64, u64) {
        (self.batches.sum(), self.duplicates.load(Relaxed))
    }

    /// The counters now.
    pub fn read(&self) -> IngestCounts {
        IngestCounts {
            batches: self.batches.read(),
            rows: self.rows.read(),
            bytes: self.bytes.read(),
            rejected: self.rejected.read(),
            rows_rejected: self.rows_rejected.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            acknowledged: self.acknowledged.snapshot(),
            waiting: self.waiting.get(),
            connections: self.connections.get(),
        }
    }
}

/// Counters of the thread that writes the log.
#[derive(Debug)]
pub struct LogMetrics {
    bytes: AtomicU64,
    failures: AtomicU64,
    writes: AtomicHistogram,
}

/// The counters of the log at one moment.
#[derive(Clone, Debug)]
pub struct LogCounts {
    /// Bytes of durable batches.
    pub bytes: u64,
    /// Groups of batches that could not be written.
    pub failures: u64,
    /// Times of writing and syncing one group of batches.
    pub writes: Histogram,
}

impl Default for LogMetrics {
    fn default() -> Self {
        let writes = AtomicHistogram::new(Precision::COARSE);
        Self { bytes: AtomicU64::default(), failures: AtomicU64::default(), writes }
    }
}

impl LogMetrics {
    pub(crate) fn written(&self, bytes: usize, took: std::time::Duration) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.writes.record(Duration::from(took));
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    /// The counters now.
    pub fn read(&self) -> LogCounts {
        LogCounts {
            bytes: self.bytes.load(Relaxed),
            failures: self.failures.load(Relaxed),
            writes: self.writes.snapshot(),
        }
    }
}
