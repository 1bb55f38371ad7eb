//! A histogram that many threads record into, for metrics.
//!
//! **Holds** one atomic `u64` for each bucket of [`Precision`], allocated at once: 36 KiB at [`Precision::COARSE`] and
//! 264 KiB at [`Precision::FINE`].
//!
//! **Cost**: recording is one relaxed addition, without locks and loops. A shared sum or maximum would be one cache line that
//! every request of every core writes.
//!
//! **Limits**: sum, minimum and maximum are therefore read from the buckets, each off by at most [`Precision::error`].
//! The count of a bucket wraps after 2^64 values: 584 years at one value a nanosecond.
//!
//! **Hurts when** all threads record the same duration: all then write one cache line. Real latencies vary enough.

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

impl Default for AtomicHistogram {
    /// An empty histogram of [`Precision::COARSE`], which is enough for most metrics.
    fn default() -> Self {
        Self::new(Precision::COARSE)
    }
}

impl AtomicHistogram {
    /// An empty histogram; all its memory is allocated now.
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
            // A reader that sees this sees the count above too: no more overflow than the last bucket holds.
            self.overflowed.fetch_add(1, Release);
        }
    }

    /// The values recorded so far.
    ///
    /// The snapshot may contain values that are recorded while it is taken. No count decreases in a later snapshot.
    #[must_use]
    pub fn snapshot(&self) -> Histogram {
        let overflowed = self.overflowed.load(Acquire);
        let counts: Vec<_> = self.counts.iter().map(|count| count.load(Relaxed)).collect();
        Histogram::from_counts(self.precision, &counts, overflowed)
    }
}

#[cfg(test)]
mod tests {
    use super::AtomicHistogram;
    use crate::{
        Histogram, Precision,
        samples::{SHAPES, quantiles, relative_error},
    };
    use curtail_units::Duration;

    #[test]
    fn threads_recording_at_once_lose_nothing() {
        for shape in SHAPES {
            let durations = shape.sample(1, 100_000);
            let atomic = AtomicHistogram::new(Precision::FINE);
            std::thread::scope(|scope| {
                for part in durations.chunks(25_000) {
                    scope.spawn(|| part.iter().for_each(|&duration| atomic.record(duration)));
                }
            });
            let mut expected = Histogram::new(Precision::FINE);
            durations.iter().for_each(|&duration| expected.record(duration));
            let snapshot = atomic.snapshot();
            assert!(snapshot.buckets().eq(expected.buckets()), "{}", shape.name);
            assert_eq!(snapshot.count(), expected.count());
            assert_off_by_no_more_than_stated(&snapshot, &expected);
        }
    }

    /// Both read the same bucket; the exact histogram may know better where in it the extremes are, so
    /// the two may lie half a bucket from each other.
    fn assert_off_by_no_more_than_stated(snapshot: &Histogram, expected: &Histogram) {
        let error = Precision::FINE.error();
        for quantile in quantiles() {
            let exact = expected.quantile(quantile).expect("values");
            let got = snapshot.quantile(quantile).expect("values");
            assert!(relative_error(got, exact) <= error, "{quantile}: {got} {exact}");
        }
        let sums = (snapshot.sum_secs_f64(), expected.sum_secs_f64());
        assert!((sums.0 - sums.1).abs() <= error * sums.1);
        let mean = (snapshot.mean().expect("values"), expected.mean().expect("values"));
        assert!(relative_error(mean.0, mean.1) <= error);
    }

    #[test]
    fn overflow_is_counted_and_read_as_the_last_bucket() {
        let atomic = AtomicHistogram::new(Precision::COARSE);
        atomic.record(Duration::MAX);
        atomic.record(Precision::END);
        atomic.record(Duration::from_ms(1));
        let snapshot = atomic.snapshot();
        assert_eq!((snapshot.count(), snapshot.overflowed()), (3, 2));
        let last = snapshot.max().expect("values");
        assert!(relative_error(last, Precision::END) <= Precision::COARSE.error());
    }

    #[test]
    fn nothing_recorded_is_an_empty_histogram() {
        let atomic = AtomicHistogram::new(Precision::COARSE);
        assert_eq!(atomic.snapshot(), Histogram::new(Precision::COARSE));
    }
}
