//! The exponential histogram of OpenTelemetry: what latencies look like on the wire.
//!
//! **Holds** counts of buckets between powers of a base `2^(2^-scale)`, in seconds, the unit that the
//! conventions of OpenTelemetry and Prometheus give to durations: bucket `i` holds what is longer than
//! `base^i` and at most `base^(i + 1)`. (Prometheus numbers the same bucket `i + 1`.) Zero is counted
//! apart. Buckets stand in one piece from `offset` on, as the protocol wants them.
//! **Limits**: at most `max_size` buckets; when the values span more, the scale is lowered until they
//! fit. A range from 1 ms to 60 s takes 508 buckets at scale 5 and 127 at scale 3.
//! **Error**: a [`Histogram`] is converted bucket by bucket through their middles, since the two
//! layouts do not align. With `a` the error of the scale ([`Scale::error`]) and `b` that of the
//! precision, a quantile is off by at most `a + b + a·b` and half a nanosecond of rounding: 1.13 % at
//! scale 5 from [`Precision::FINE`](crate::Precision::FINE).
//! **Invariant**: lowering the scale by one joins buckets `2i` and `2i + 1` and loses nothing else; it
//! equals a conversion at the lower scale. So does merging, whatever the two scales.
//! **Source**: the data model of OpenTelemetry metrics, "`ExponentialHistogram`".
//! **Hurts when** `max_size` stays at the 160 of most SDKs: that forces scale 3 and errors up to 4.3 %.

use crate::{Histogram, rank};
use alloc::{vec, vec::Vec};
use curtail_units::{Duration, OutOfRange, Quantile};

#[cfg(test)]
mod tests;

/// How finely octaves are split: into 2^scale buckets; below 0, buckets of 2^-scale octaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scale(i8);

impl Scale {
    /// The finest scale that Prometheus native histograms know.
    pub const PROMETHEUS_FINEST: Self = Self(8);

    const COARSEST: i8 = -10;
    const FINEST: i8 = 20;

    /// A scale as OpenTelemetry numbers them.
    ///
    /// # Errors
    /// When `scale` is not in -10..=20.
    pub fn new(scale: i8) -> Result<Self, OutOfRange> {
        if (Self::COARSEST..=Self::FINEST).contains(&scale) {
            Ok(Self(scale))
        } else {
            Err(OutOfRange {
                value: f64::from(scale),
                expected: "a scale from -10 to 20 (5 for 1.1 %)",
            })
        }
    }

    /// The number of the scale.
    #[must_use]
    pub const fn get(self) -> i8 {
        self.0
    }

    /// The largest error of a value read back at this scale, as a share of the value.
    #[must_use]
    pub fn error(self) -> f64 {
        let base = libm::exp2(self.octaves_per_bucket());
        (base - 1.0) / (base + 1.0)
    }

    fn octaves_per_bucket(self) -> f64 {
        libm::exp2(-f64::from(self.0))
    }

    /// The bucket that `duration` falls into; it is not zero.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most 35 octaves of 2^20 buckets on either side of a second"
    )]
    fn index(self, duration: Duration) -> i32 {
        let octaves = libm::log2(duration.as_secs_f64());
        // The upper bound belongs to the bucket, hence one below the next boundary.
        libm::ceil(octaves / self.octaves_per_bucket()) as i32 - 1
    }

    /// The value, in seconds, that is off by the same share from both bounds of bucket `index`.
    fn middle_secs(self, index: i32) -> f64 {
        let bound = |index| libm::exp2(f64::from(index) * self.octaves_per_bucket());
        let (lower, upper) = (bound(index), bound(index + 1));
        // The harmonic mean; at the coarsest scales one bound is 0 or infinite.
        let upper_share = lower / upper;
        2.0 * lower / (1.0 + upper_share)
    }

    /// How many steps `lower` is down from here; none when it is no lower.
    fn steps_to(self, lower: Self) -> u32 {
        u32::try_from(i32::from(self.0) - i32::from(lower.0)).unwrap_or(0)
    }

    /// The scale `by` steps down, or the coarsest.
    fn lowered(self, by: u32) -> Self {
        let by = i8::try_from(by).unwrap_or(i8::MAX);
        Self(self.0.saturating_sub(by).max(Self::COARSEST))
    }
}

/// An exponential histogram of durations, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Exponential {
    scale: Scale,
    max_size: usize,
    zero_count: u64,
    offset: i32,
    counts: Vec<u64>,
    count: u64,
    sum_secs: f64,
    /// `Duration::MAX` while empty.
    min: Duration,
    /// `Duration::ZERO` while empty.
    max: Duration,
}

impl Exponential {
    /// Converts `histogram`, at `scale` or the next lower one at which `max_size` buckets are enough.
    ///
    /// A `max_size` below 2 counts as 2: no scale has one bucket for both sides of a second.
    #[must_use]
    pub fn from_histogram(histogram: &Histogram, scale: Scale, max_size: usize) -> Self {
        let mut converted = Self {
            scale,
            max_size: max_size.max(2),
            zero_count: 0,
            offset: 0,
            counts: Vec::new(),
            count: histogram.count(),
            sum_secs: histogram.sum_secs_f64(),
            min: histogram.min().unwrap_or(Duration::MAX),
            max: histogram.max().unwrap_or(Duration::ZERO),
        };
        let mut positive = histogram.middles().filter(|&(value, _)| value > Duration::ZERO);
        let shortest = positive.next();
        let longest = positive.next_back().or(shortest);
        if let (Some((shortest, _)), Some((longest, _))) = (shortest, longest) {
            converted.cover(scale.index(shortest), scale.index(longest));
        }
        for (value, n) in histogram.middles() {
            if value == Duration::ZERO {
                converted.zero_count = n;
            } else {
                converted.add(converted.scale.index(value), n);
            }
        }
        converted
    }

    /// The scale: as wanted, or lower to fit the bound.
    #[must_use]
    pub const fn scale(&self) -> Scale {
        self.scale
    }

    /// How many values are zero.
    #[must_use]
    pub const fn zero_count(&self) -> u64 {
        self.zero_count
    }

    /// The index of the first of [`Self::counts`].
    #[must_use]
    pub const fn offset(&self) -> i32 {
        self.offset
    }

    /// How many values each bucket holds, from index [`Self::offset`] on.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many values there are, zeros included.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all values in seconds.
    #[must_use]
    pub const fn sum_secs_f64(&self) -> f64 {
        self.sum_secs
    }

    /// The shortest value; nothing when there is none.
    #[must_use]
    pub fn min(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.min)
    }

    /// The longest value; nothing when there is none.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.max)
    }

    /// The value with rank `ceil(q · n)`, off by at most the error stated above; nothing when there is
    /// no value. The first and the last rank are the minimum and the maximum.
    #[must_use]
    pub fn quantile(&self, quantile: Quantile) -> Option<Duration> {
        let rank = rank(quantile, self.count);
        match rank {
            1 => return self.min(),
            _ if rank == self.count => return self.max(),
            _ => {}
        }
        let mut seen = self.zero_count;
        if rank <= seen {
            return Some(Duration::ZERO);
        }
        for (index, n) in (self.offset..).zip(&self.counts) {
            seen = seen.saturating_add(*n);
            if rank <= seen {
                let value = Duration::from_secs_f64(self.scale.middle_secs(index));
                return Some(value.clamp(self.min, self.max));
            }
        }
        None
    }

    /// Lowers the scale by `by`, to -10 at most. Each step joins pairs of buckets.
    pub fn downscale(&mut self, by: u32) {
        let lowered = self.scale.lowered(by);
        let steps = self.scale.steps_to(lowered);
        self.scale = lowered;
        if steps == 0 || self.counts.is_empty() {
            return;
        }
        let offset = self.offset >> steps;
        let mut joined = vec![0_u64; as_place((self.last_index() >> steps) - offset) + 1];
        for (index, n) in (self.offset..).zip(&self.counts) {
            let count = &mut joined[as_place((index >> steps) - offset)];
            *count = count.saturating_add(*n);
        }
        (self.offset, self.counts) = (offset, joined);
    }

    /// Adds the values of `other`. The scale becomes the lower of the two, or lower still when the
    /// values of both need it to fit the bound of this histogram.
    pub fn merge(&mut self, other: &Self) {
        self.downscale(self.scale.steps_to(other.scale));
        if !other.counts.is_empty() {
            let steps = other.scale.steps_to(self.scale);
            self.cover(other.offset >> steps, other.last_index() >> steps);
        }
        // Making room may have lowered the scale.
        let steps = other.scale.steps_to(self.scale);
        for (index, n) in (other.offset..).zip(&other.counts) {
            self.add(index >> steps, *n);
        }
        self.zero_count = self.zero_count.saturating_add(other.zero_count);
        self.count = self.count.saturating_add(other.count);
        self.sum_secs += other.sum_secs;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Makes room for the buckets from `low` to `high`, numbered at the present scale; lowers the scale
    /// when that would be too many.
    fn cover(&mut self, mut low: i32, mut high: i32) {
        if !self.counts.is_empty() {
            low = low.min(self.offset);
            high = high.max(self.last_index());
        }
        let mut steps = 0;
        // Ends: below scale -6 every duration is in bucket -1 or 0.
        while as_place((high >> steps) - (low >> steps)) >= self.max_size {
            steps += 1;
        }
        self.downscale(steps);
        let (low, high) = (low >> steps, high >> steps);
        let mut counts = vec![0; as_place(high - low) + 1];
        if !self.counts.is_empty() {
            let from = as_place(self.offset - low);
            counts[from..from + self.counts.len()].copy_from_slice(&self.counts);
        }
        (self.offset, self.counts) = (low, counts);
    }

    fn add(&mut self, index: i32, n: u64) {
        let count = &mut self.counts[as_place(index - self.offset)];
        *count = count.saturating_add(n);
    }

    /// The index of the last bucket; there is one.
    fn last_index(&self) -> i32 {
        let len =
            i32::try_from(self.counts.len()).expect("all durations need fewer than 2^27 buckets");
        self.offset + len - 1
    }
}

/// A place in the counts from the distance between two indexes.
fn as_place(distance: i32) -> usize {
    usize::try_from(distance).expect("counts start at the lowest index")
}
