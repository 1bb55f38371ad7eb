//! The lines between the workers and the file.
//!
//! Each worker appends to a buffer of its own. The writer ([`super::writer`]) swaps the buffers for empty ones ten times a
//! second, so a worker wakes no thread. Others hold its lock for a swap, and at a reload for lines.
//! **Limits**: [`BYTES_MAX`] in all, in equal parts; as many bytes again are on their way to the file. Further lines are
//! dropped before they are encoded, and counted.

use super::line::SecondText;
use crate::guard;
use curtail_metrics::Counter;
use curtail_units::{Duration, Instant};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum size of all buffers together. Each worker's buffer may exceed its part by one line.
const BYTES_MAX: usize = 8 << 20;

/// The minimum interval between two warnings in the log about dropped lines.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// The number of no writer.
const NO_WRITER: u64 = 0;

/// The lines that wait for the file. They outlive reloads, so no reload loses a line.
#[derive(Debug)]
pub(crate) struct LineBuffers {
    by_worker: Box<[WorkerBuffer]>,
    /// The empty buffers of a writer that has ended. Its successor starts with them: new memory costs a page fault for
    /// every ten lines.
    spare: Mutex<Vec<Lines>>,
    /// The writer that may take lines, by number; [`NO_WRITER`]: no access log is configured.
    current: Mutex<u64>,
    writers: AtomicU64,
    counters: AccessLogCounters,
    warnings: Mutex<Warnings>,
}

/// The lines of one worker; aligned, so that no two workers write to one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WorkerBuffer(Mutex<Lines>);

/// Lines about in the order in which their requests ended.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    /// The number of lines, so that the writer does not count them again.
    pub(super) count: u64,
    /// The second of the last line, which the next one usually shares.
    second: SecondText,
}

curtail_metrics::counters! {
    /// The number of lines so far, by outcome.
    pub(crate) AccessLogCounters, AccessLogCounts {
        /// Written to the file.
        written: Counter,
        /// Dropped, because the buffers were full.
        buffer_full: Counter,
        /// Dropped, because the file could not be written.
        write_failed: Counter,
        /// Dropped, because the encoder panicked.
        encoder_panicked: Counter,
    }
}

#[derive(Debug, Default)]
struct Warnings {
    next: Instant,
    /// The dropped lines that the last warning knew.
    dropped: u64,
    /// The error of the last write that failed since the last warning.
    failure: Option<String>,
}

impl LineBuffers {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            by_worker: (0..workers).map(|_| WorkerBuffer::default()).collect(),
            spare: Mutex::default(),
            current: Mutex::default(),
            writers: AtomicU64::new(0),
            counters: AccessLogCounters::default(),
            warnings: Mutex::default(),
        }
    }

    /// Appends a line, if there is room.
    pub(super) fn append(&self, worker: usize, write: impl FnOnce(&mut Vec<u8>, &mut SecondText)) {
        let mut lines = lock(&self.by_worker[worker].0);
        if lines.bytes.len() >= BYTES_MAX / self.by_worker.len() {
            self.counters.buffer_full.add(1);
            return;
        }
        let Lines { bytes, count, second } = &mut *lines;
        if guard::encode("line of the access log", bytes, |bytes| write(bytes, second)) {
            *count += 1;
        } else {
            self.counters.encoder_panicked.add(1);
        }
    }

    /// The number of a further writer.
    pub(super) fn next_writer(&self) -> u64 {
        self.writers.fetch_add(1, Relaxed) + 1
    }

    /// From now on this writer takes the lines, and no earlier one does.
    pub(super) fn set_current(&self, writer: u64) {
        *lock(&self.current) = writer;
    }

    /// The buffers with which a writer begins.
    pub(super) fn take_spare(&self) -> Vec<Lines> {
        std::mem::take(&mut lock(&self.spare))
    }

    /// Ends a writer: a successor gets its buffers. Without one, the memory of all buffers is freed.
    pub(super) fn end_writer(&self, writer: u64, batch: Vec<Lines>) {
        let mut current = lock(&self.current);
        if *current == writer {
            *current = NO_WRITER;
        }
        if *current != NO_WRITER {
            *lock(&self.spare) = batch;
            return;
        }
        lock(&self.spare).clear();
        for buffer in &self.by_worker {
            lock(&buffer.0).bytes.shrink_to_fit();
        }
    }

    /// The lines that wait, as text.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        let bytes = self.by_worker.iter().flat_map(|buffer| lock(&buffer.0).bytes.clone());
        String::from_utf8(bytes.collect()).expect("lines are UTF-8")
    }

    /// Swaps the buffers for those of `batch`, which are empty; does nothing if another writer is current.
    pub(super) fn take(&self, writer: u64, batch: &mut Vec<Lines>) {
        let current = lock(&self.current);
        if *current == writer {
            batch.resize_with(self.by_worker.len(), Lines::default);
            for (buffer, empty) in self.by_worker.iter().zip(batch) {
                std::mem::swap(&mut *lock(&buffer.0), empty);
            }
        }
    }

    /// Counts lines that a writer has written or dropped, and keeps the error for the next warning.
    pub(super) fn settle(&self, written: u64, dropped: u64, failure: Option<String>) {
        self.counters.written.add(written);
        self.counters.write_failed.add(dropped);
        if failure.is_some() {
            lock(&self.warnings).failure = failure;
        }
    }

    /// The number of lines so far, by outcome.
    pub(crate) fn counts(&self) -> AccessLogCounts {
        self.counters.read()
    }

    /// Logs how many lines were dropped since the last warning, if any were and the last warning is long ago.
    pub(crate) fn warn(&self, now: Instant) {
        let is_due = now >= lock(&self.warnings).next;
        if is_due && self.warn_at_once() {
            lock(&self.warnings).next = now + WARN_INTERVAL;
        }
    }

    /// Logs how many lines were dropped since the last warning; false if none were.
    pub(crate) fn warn_at_once(&self) -> bool {
        let mut warnings = lock(&self.warnings);
        let counts = self.counts();
        let dropped = counts.buffer_full + counts.write_failed;
        if dropped == warnings.dropped {
            return false;
        }
        let lines = dropped - warnings.dropped;
        let failure = warnings.failure.take();
        let why = failure.as_deref().unwrap_or("the file cannot keep up");
        tracing::warn!(lines, why, "the access log has dropped lines");
        warnings.dropped = dropped;
        true
    }
}

/// Nothing panics while it holds one of these locks; should it ever, logging goes on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{LineBuffers, Lines, lock};

    /// The memory of the buffers, in bytes.
    fn capacity(buffers: &LineBuffers) -> usize {
        let spare = lock(&buffers.spare).iter().map(|lines| lines.bytes.capacity()).sum::<usize>();
        let by_worker = buffers.by_worker.iter().map(|buffer| lock(&buffer.0).bytes.capacity());
        spare + by_worker.sum::<usize>()
    }

    /// Begins a further writer, which takes a line and clears its buffers.
    fn begin_writer(buffers: &LineBuffers) -> (u64, Vec<Lines>) {
        let (writer, mut batch) = (buffers.next_writer(), buffers.take_spare());
        buffers.set_current(writer);
        for _ in 0..2 {
            buffers.append(0, |bytes, _| bytes.extend_from_slice(b"line\n"));
            buffers.take(writer, &mut batch);
            batch.iter_mut().for_each(|lines| lines.bytes.clear());
        }
        (writer, batch)
    }

    #[test]
    fn a_successor_gets_the_buffers_of_a_writer_and_the_last_writer_frees_them() {
        let buffers = LineBuffers::new(1);
        let (first, first_batch) = begin_writer(&buffers);
        let (second, second_batch) = begin_writer(&buffers);
        buffers.end_writer(first, first_batch);
        assert!(!lock(&buffers.spare).is_empty() && capacity(&buffers) > 0);
        buffers.end_writer(second, second_batch);
        assert_eq!(capacity(&buffers), 0);
        // A writer that ends late has no successor either.
        buffers.end_writer(first, vec![Lines { bytes: vec![0; 9], ..Lines::default() }]);
        assert_eq!(capacity(&buffers), 0);
    }
}
