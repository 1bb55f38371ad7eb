//! A histogram of durations: quantiles of all recorded values, with a known error.
//!
//! **Holds** a count for each bucket of [`Precision`], and the exact sum, minimum and maximum in nanoseconds.
//!
//! **Limits**: durations from 2^42 ns (73 minutes) are in the last bucket and counted as [`Histogram::overflowed`]; at most
//! 2^64 - 1 values, further ones are dropped. Memory is 8 bytes for each bucket of the octaves between the shortest and the
//! longest duration: 13 KiB at [`Precision::COARSE`] for 100 µs to 0.4 s, at most 36 KiB; at most 264 KiB at
//! [`Precision::FINE`].
//!
//! **Invariant**: merging is exact. Histograms that are merged in any order equal one that recorded all values, bucket for
//! bucket.
//!
//! **Source**: Tene's `HdrHistogram` (2012) for the layout; the rule of ranks is in [`rank()`].
//!
//! **Hurts when** quantiles of a fine histogram are read often: each read walks the buckets of all octaves seen.

use crate::{Precision, counts::Counts, rank};
use curtail_units::{Duration, Quantile};

mod exact;
#[cfg(test)]
mod tests;

pub use exact::{Exact, Inconsistent};

/// Durations counted in buckets of known relative width.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    counts: Counts,
    sum_ns: u128,
    /// `u64::MAX` while empty.
    min_ns: u64,
    /// 0 while empty.
    max_ns: u64,
    overflowed: u64,
}

/// A bucket that holds at least one value: durations from `lower` up to but not including `upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The shortest duration of the bucket.
    pub lower: Duration,
    /// The first duration that is too long for the bucket. The last bucket of the layout also holds all longer
    /// durations.
    pub upper: Duration,
    /// The number of values in the bucket.
    pub count: u64,
}

impl Histogram {
    /// An empty histogram. It takes no memory before the first value.
    #[must_use]
    pub const fn new(precision: Precision) -> Self {
        Self {
            counts: Counts::new(precision),
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            overflowed: 0,
        }
    }

    /// The relative width of a bucket.
    #[must_use]
    pub const fn precision(&self) -> Precision {
        self.counts.precision()
    }

    /// Records one `duration`.
    #[inline]
    pub fn record(&mut self, duration: Duration) {
        self.record_n(duration, 1);
    }

    /// Records `duration` `n` times.
    #[inline]
    pub fn record_n(&mut self, duration: Duration, n: u64) {
        let ns = duration.as_ns();
        let n = self.counts.add(self.precision().index(ns), n);
        if n == 0 {
            return;
        }
        // Fewer than 2^64 values below 2^64 each: the sum fits.
        self.sum_ns += u128::from(ns) * u128::from(n);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        if duration >= Precision::END {
            self.overflowed += n;
        }
    }

    /// The number of recorded values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.counts.total()
    }

    /// The number of values too long for a bucket of their own. A quantile among these values reads as about 2^42 ns,
    /// which is too short, unless it is the minimum or the maximum.
    #[must_use]
    pub const fn overflowed(&self) -> u64 {
        self.overflowed
    }

    /// The value with rank `ceil(q · n)`, off by at most [`Precision::error`] of itself; nothing when
    /// the histogram is empty. Quantiles 0 and 1 are the exact minimum and maximum.
    #[must_use]
    pub fn quantile(&self, quantile: Quantile) -> Option<Duration> {
        self.at_rank(rank(quantile, self.count()))
    }

    /// The value of `rank` among the sorted values, where rank 1 is the shortest. It is off by at most
    /// [`Precision::error`] of itself; [`None`] when no value has this rank.
    #[must_use]
    pub fn at_rank(&self, rank: u64) -> Option<Duration> {
        match rank {
            0 => return None,
            1 => return self.min(),
            _ if rank == self.count() => return self.max(),
            _ => {}
        }
        let ns = self.precision().middle(self.counts.bucket_of_rank(rank)?);
        Some(Duration::from_ns(ns.clamp(self.min_ns, self.max_ns)))
    }

    /// The number of values longer than `limit`. Values in the bucket of `limit` are not counted, because they cannot
    /// be distinguished from `limit`.
    #[must_use]
    pub fn count_above(&self, limit: Duration) -> u64 {
        self.counts.total_after(self.precision().index(limit.as_ns()))
    }

    /// The shortest value; nothing when the histogram is empty.
    #[must_use]
    pub fn min(&self) -> Option<Duration> {
        (self.count() > 0).then_some(Duration::from_ns(self.min_ns))
    }

    /// The longest value; nothing when the histogram is empty.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        (self.count() > 0).then_some(Duration::from_ns(self.max_ns))
    }

    /// The mean, rounded down to the nanosecond; nothing when the histogram is empty.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum_ns.checked_div(u128::from(self.count()))?;
        Some(Duration::from_ns(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The sum of all values in seconds, for a metric that counts for years.
    #[must_use]
    pub const fn sum_secs_f64(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Adds everything that `other` recorded. At the same precision nothing is lost. Otherwise the result has the
    /// coarser precision and equals a histogram that recorded everything at that precision.
    pub fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        // Saturating, for totals near 2^64, where the counts leave values out.
        self.overflowed = self.overflowed.saturating_add(other.overflowed);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Removes every value; keeps the memory for the next values.
    pub fn clear(&mut self) {
        self.counts.clear();
        (self.sum_ns, self.min_ns, self.max_ns, self.overflowed) = (0, u64::MAX, 0, 0);
    }

    /// The buckets that hold a value, from the shortest durations to the longest.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = Bucket> + '_ {
        self.counts.non_empty().map(|(index, count)| {
            let (lower, width) = self.precision().bucket(index);
            Bucket {
                lower: Duration::from_ns(lower),
                upper: Duration::from_ns(lower + width),
                count,
            }
        })
    }

    /// The middle and the count of each bucket that holds a value, in order. The exact extremes do not change the
    /// middles, so the middles of a merged histogram are those of its parts.
    pub(crate) fn middles(&self) -> impl DoubleEndedIterator<Item = (Duration, u64)> + '_ {
        let middle = |index| Duration::from_ns(self.precision().middle(index));
        self.counts.non_empty().map(move |(index, count)| (middle(index), count))
    }

    /// A histogram from the counts of all buckets, in order. Every value counts as the middle of its
    /// bucket.
    pub(crate) fn from_counts(precision: Precision, counts: &[u64], overflowed: u64) -> Self {
        let mut histogram = Self::new(precision);
        histogram.counts.make_room_for(counts);
        for (index, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            histogram.record_n(Duration::from_ns(precision.middle(index)), count);
        }
        histogram.overflowed = overflowed;
        histogram
    }

    /// The counts alone, for a total over several histograms.
    pub(crate) const fn counts(&self) -> &Counts {
        &self.counts
    }
}
