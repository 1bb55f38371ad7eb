//! The exponential histogram of OpenTelemetry: latencies on the wire.
//!
//! **Holds** the counts of buckets between powers of a base `2^(2^-scale)`, in seconds. Bucket `i` has durations above
//! `base^i` and up to `base^(i + 1)`; Prometheus numbers the same bucket `i + 1`. Zeros are counted apart.
//!
//! **Limits**: at most `max_size` buckets; the scale is lowered until the values fit. A range from 1 ms to 60 s takes 508
//! buckets at scale 5 and 127 at scale 3.
//!
//! **Error**: a [`Histogram`] is converted by the middles of its buckets. Let `a` be half the relative width of a
//! bucket of the exponential histogram, and `b` half that of the [`Precision`](crate::Precision). A quantile is off by
//! at most `a + b + a·b`: 1.13 % at scale 5 from [`Precision::FINE`](crate::Precision::FINE).
//!
//! **Source**: the data model of OpenTelemetry metrics, "`ExponentialHistogram`".
//!
//! **Hurts when** `max_size` stays at the 160 of most SDKs: that forces scale 3 and errors up to 4.3 %.

use crate::Histogram;
use alloc::{vec, vec::Vec};
use curtail_units::{Duration, OutOfRange};

#[cfg(test)]
mod tests;

/// The resolution: 2^scale buckets an octave. At a scale below 0, a bucket spans 2^-scale octaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scale(i8);

impl Scale {
    const COARSEST: i8 = -10;
    const FINEST: i8 = 20;

    /// A scale with the number that OpenTelemetry gives it.
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

    fn octaves_per_bucket(self) -> f64 {
        libm::exp2(-f64::from(self.0))
    }

    /// The bucket of `duration`, which is above zero.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most 35 octaves of 2^20 buckets on either side of a second"
    )]
    fn index(self, duration: Duration) -> i32 {
        let octaves = libm::log2(duration.as_secs_f64());
        // The upper bound belongs to the bucket, hence one below the next boundary.
        libm::ceil(octaves / self.octaves_per_bucket()) as i32 - 1
    }
}

/// An exponential histogram of durations, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Exponential {
    scale: Scale,
    zero_count: u64,
    offset: i32,
    counts: Vec<u64>,
}

impl Exponential {
    /// Converts `histogram` at `scale`, or at the next lower scale at which `max_size` buckets are enough.
    ///
    /// A `max_size` below 2 counts as 2: at every scale, one second is the bound between two buckets.
    #[must_use]
    pub fn from_histogram(histogram: &Histogram, scale: Scale, max_size: usize) -> Self {
        let mut converted = Self { scale, zero_count: 0, offset: 0, counts: Vec::new() };
        let mut positive = histogram.middles().filter(|&(value, _)| value > Duration::ZERO);
        let shortest = positive.next();
        let longest = positive.next_back().or(shortest);
        if let (Some((shortest, _)), Some((longest, _))) = (shortest, longest) {
            converted.cover(scale.index(shortest), scale.index(longest), max_size.max(2));
        }
        for (value, n) in histogram.middles() {
            if value == Duration::ZERO {
                converted.zero_count = n;
            } else {
                let place = as_place(converted.scale.index(value) - converted.offset);
                converted.counts[place] = converted.counts[place].saturating_add(n);
            }
        }
        converted
    }

    /// The scale: the requested one, or a lower one at which `max_size` buckets are enough.
    #[must_use]
    pub const fn scale(&self) -> Scale {
        self.scale
    }

    /// The number of zero durations.
    #[must_use]
    pub const fn zero_count(&self) -> u64 {
        self.zero_count
    }

    /// The index of the first of [`Self::counts`].
    #[must_use]
    pub const fn offset(&self) -> i32 {
        self.offset
    }

    /// The count of each bucket, from index [`Self::offset`] on.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Makes room for the buckets from `low` to `high`; lowers the scale until at most `max_size` buckets are needed.
    fn cover(&mut self, low: i32, high: i32, max_size: usize) {
        let mut steps = 0;
        // Ends: below scale -6 every duration is in bucket -1 or 0.
        while as_place((high >> steps) - (low >> steps)) >= max_size {
            steps += 1;
        }
        self.scale.0 -= steps;
        self.offset = low >> steps;
        self.counts = vec![0; as_place((high >> steps) - self.offset) + 1];
    }
}

/// The index of a bucket in the counts from its distance to the first one.
fn as_place(distance: i32) -> usize {
    usize::try_from(distance).expect("counts start at the lowest index")
}
