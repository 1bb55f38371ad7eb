//! A histogram that many threads record into at once, for metrics.
//!
//! **Holds** one atomic `u64` for each bucket of [`Precision`], all of them from the start: 36 KiB at
//! [`Precision::COARSE`] (a replica), 264 KiB at [`Precision::FINE`] (an upstream). It never grows.
//! **Cost**: recording is one relaxed addition, no lock and no loop, so a thread always finishes within
//! a bounded number of steps. There are no other shared numbers on purpose: a sum or a maximum would be
//! one cache line that every request of every core writes.
//! **Limits**: so sum, minimum and maximum are read back from the buckets, each off by at most
//! [`Precision::error`]. Counts wrap after 2^64 values in one bucket: 584 years at one a nanosecond.
//! **Hurts when** every thread records the same duration: then they do share one cache line. Real
//! latencies spread.

use crate::{Histogram, Precision};
use alloc::{boxed::Box, vec::Vec};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use curtail_units::Duration;

/// Durations counted by many threads; read with [`AtomicHistogram::snapshot`].
#[derive(Debug)]
pub struct AtomicHistogram {
    precision: Precision,
    counts: Box<[AtomicU64]>,
    overflowed: AtomicU64,
}

impl AtomicHistogram {
    /// An empty histogram; all its memory is taken now.
    #[must_use]
    pub fn new(precision: Precision) -> Self {
        let counts: Vec<_> = (0..precision.bucket_count()).map(|_| AtomicU64::new(0)).collect();
        Self { precision, counts: counts.into_boxed_slice(), overflowed: AtomicU64::new(0) }
    }

    /// Records one `duration`.
    #[inline]
    pub fn record(&self, duration: Duration) {
        self.counts[self.precision.index(duration.as_ns())].fetch_add(1, Relaxed);
        if duration >= Precision::END {
            // Whoever sees this sees the count above too: no more overflow than the last bucket holds.
            self.overflowed.fetch_add(1, Release);
        }
    }

    /// What was recorded so far.
    ///
    /// Values recorded while the snapshot is taken may be in it or not, each for itself. No count is
    /// ever less in a later snapshot, so differences between snapshots are sound.
    #[must_use]
    pub fn snapshot(&self) -> Histogram {
        let overflowed = self.overflowed.load(Acquire);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        Histogram::from_counts(self.precision, counts, overflowed)
    }
}
