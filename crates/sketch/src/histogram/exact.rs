//! A histogram for files: its counts, and its exact figures (sum, minimum, maximum, number of overflowed values).
//!
//! **Invariant**: a histogram that is rebuilt from both equals the original in every bucket and every exact figure.
//!
//! **Limits**: files may be damaged, so figures that no recording can produce are rejected.

use super::{Bucket, Histogram};
use crate::Precision;
use curtail_units::Duration;

/// The exact figures of a histogram, kept in addition to its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// The sum of all values, in nanoseconds.
    pub sum_ns: u128,
    /// The shortest value; zero when the histogram is empty.
    pub min: Duration,
    /// The longest value; zero when the histogram is empty.
    pub max: Duration,
    /// The number of values too long for a bucket of their own.
    pub overflowed: u64,
}

/// The error for counts and exact figures that no recording can produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inconsistent {
    /// The expectation that failed, in words.
    pub expected: &'static str,
}

impl core::fmt::Display for Inconsistent {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the figures of a histogram contradict its counts: expected {}", self.expected)
    }
}

impl core::error::Error for Inconsistent {}

impl Histogram {
    /// The exact figures.
    #[must_use]
    pub const fn exact(&self) -> Exact {
        let is_empty = self.count() == 0;
        Exact {
            sum_ns: self.sum_ns,
            min: Duration::from_ns(if is_empty { 0 } else { self.min_ns }),
            max: Duration::from_ns(self.max_ns),
            overflowed: self.overflowed,
        }
    }

    /// Rebuilds a histogram from exact figures and the count of each bucket, given with any duration of the bucket.
    ///
    /// # Errors
    /// When the figures contradict the counts, or there are 2^64 values or more.
    pub fn from_exact(
        precision: Precision,
        counts: impl IntoIterator<Item = (Duration, u64)>,
        exact: Exact,
    ) -> Result<Self, Inconsistent> {
        let mut histogram = Self::new(precision);
        for (duration, count) in counts {
            if histogram.counts.add(precision.index(duration.as_ns()), count) != count {
                return Err(Inconsistent { expected: "fewer than 2^64 values" });
            }
        }
        histogram.check(&exact).map_err(|expected| Inconsistent { expected })?;
        if histogram.count() > 0 {
            (histogram.min_ns, histogram.max_ns) = (exact.min.as_ns(), exact.max.as_ns());
        }
        (histogram.sum_ns, histogram.overflowed) = (exact.sum_ns, exact.overflowed);
        Ok(histogram)
    }

    /// Checks that no figure contradicts the counts; the error is the expectation that failed.
    fn check(&self, exact: &Exact) -> Result<(), &'static str> {
        let (Some(first), Some(last)) = (self.buckets().next(), self.buckets().next_back()) else {
            let nothing =
                Exact { sum_ns: 0, min: Duration::ZERO, max: Duration::ZERO, overflowed: 0 };
            return if *exact == nothing {
                Ok(())
            } else {
                Err("all of them 0 when there is no value")
            };
        };
        let index = |duration: Duration| self.precision().index(duration.as_ns());
        if index(exact.min) != index(first.lower) {
            return Err("a minimum in the first bucket that holds a value");
        }
        if index(exact.max) != index(last.lower) || exact.max < exact.min {
            return Err("a maximum in the last bucket that holds a value");
        }
        let is_last_of_all = last.upper == Precision::END;
        if exact.overflowed > last.count || (exact.overflowed > 0 && !is_last_of_all) {
            return Err("as many values beyond the last bucket as that bucket can hold");
        }
        if exact.max >= Precision::END && exact.overflowed == 0 {
            return Err("a value beyond the last bucket when the maximum is");
        }
        let product = |of: Duration, count: u64| u128::from(of.as_ns()) * u128::from(count);
        let (least, most) = self.buckets().fold((0_u128, 0_u128), |(least, most), bucket| {
            let Bucket { lower, upper, count } = bucket;
            (least + product(lower, count), most + product(upper, count))
        });
        // Values beyond the last bucket can be of any length.
        if exact.sum_ns < least || (exact.sum_ns > most && exact.overflowed == 0) {
            return Err("a sum between those of the buckets' shortest and longest durations");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Exact, Inconsistent};
    use crate::{Histogram, Precision, samples::SHAPES};
    use alloc::vec::Vec;
    use curtail_units::Duration;

    fn again(histogram: &Histogram, exact: Exact) -> Result<Histogram, Inconsistent> {
        let counts: Vec<_> = histogram.buckets().map(|b| (b.lower, b.count)).collect();
        Histogram::from_exact(histogram.precision(), counts, exact)
    }

    #[test]
    fn what_is_put_together_again_is_equal() {
        for precision in [Precision::COARSE, Precision::FINE] {
            let mut histogram = Histogram::new(precision);
            assert_eq!(again(&histogram, histogram.exact()), Ok(histogram.clone()));
            for shape in SHAPES {
                for duration in shape.sample(4, 10_000) {
                    histogram.record(duration);
                }
                let (before, after) = (&histogram, again(&histogram, histogram.exact()));
                assert_eq!(after.as_ref(), Ok(before), "{}", shape.name);
            }
            histogram.record(Duration::MAX);
            histogram.record(Duration::ZERO);
            assert_eq!(again(&histogram, histogram.exact()), Ok(histogram.clone()));
        }
    }

    #[test]
    fn figures_that_contradict_the_counts_are_refused() {
        let mut histogram = Histogram::new(Precision::FINE);
        histogram.record_n(Duration::from_ms(10), 3);
        histogram.record(Duration::from_ms(40));
        let exact = histogram.exact();
        let wrong = [
            Exact { min: Duration::from_ms(9), ..exact },
            Exact { max: Duration::from_ms(41), ..exact },
            Exact { max: Duration::from_ms(10), ..exact },
            Exact { overflowed: 1, ..exact },
            Exact { sum_ns: exact.sum_ns * 2, ..exact },
            Exact { sum_ns: 0, ..exact },
        ];
        for wrong in wrong {
            assert!(again(&histogram, wrong).is_err(), "{wrong:?}");
        }
        assert!(again(&Histogram::new(Precision::FINE), exact).is_err());
        let too_many = [(Duration::from_ms(1), u64::MAX), (Duration::from_ms(1), 1)];
        assert!(Histogram::from_exact(Precision::FINE, too_many, exact).is_err());
    }
}
