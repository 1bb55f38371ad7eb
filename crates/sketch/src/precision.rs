//! The layout of buckets.
//!
//! Durations are split by octave (powers of two of nanoseconds) and each octave into 2^bits buckets of equal width, so the
//! relative width of a bucket is at most 2^-bits. Below 2^(bits + 1) ns a bucket holds one nanosecond, and nothing is lost.
//!
//! This is the layout of `HdrHistogram` (Tene, 2012) on base 2: finding a bucket takes the position of the leading bit, a shift
//! and an addition. Buckets of a finer precision nest in those of a coarser one, so coarsening is exact.
//!
//! **Limits**: durations of [`Precision::END`] (2^42 ns, 73 minutes) or more are in the last bucket.

use curtail_units::{Duration, OutOfRange};

/// The number of buckets in an octave of durations: 2^bits.
///
/// The value of a bucket is its middle, so a duration read back is off by at most 2^-(bits + 1) of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Precision {
    bits: u8,
}

impl Precision {
    /// 32 buckets an octave: at most 1.6 % off; 256 bytes for each octave seen.
    pub const ROUGH: Self = Self { bits: 5 };
    /// 128 buckets an octave: at most 0.4 % off; 1 KiB for each octave seen.
    pub const COARSE: Self = Self { bits: 7 };
    /// 1,024 buckets an octave: at most 0.05 % off; 8 KiB for each octave seen.
    pub const FINE: Self = Self { bits: 10 };
    /// The first duration that is too long for a bucket of its own: 2^42 ns, about 73 minutes.
    pub const END: Duration = Duration::from_ns(1 << END_BITS);

    /// A precision of 2^`bits` buckets an octave.
    ///
    /// # Errors
    /// When `bits` is not in 4..=12: less is too rough for any verdict, more is below what clocks resolve.
    pub fn new(bits: u8) -> Result<Self, OutOfRange> {
        if (4..=12).contains(&bits) {
            Ok(Self { bits })
        } else {
            Err(OutOfRange {
                value: f64::from(bits),
                expected: "a precision from 4 to 12 bits (10 for 0.05 %)",
            })
        }
    }

    /// The largest error of a duration read back, as a share of the duration: 2^-(bits + 1).
    #[must_use]
    pub fn error(self) -> f64 {
        0.5 / self.octave_len() as f64
    }

    /// The number of buckets in an octave.
    pub(crate) const fn octave_len(self) -> usize {
        1 << self.bits
    }

    /// The number of buckets. Those of the first two octaves are 1 ns wide; each later octave doubles the width.
    pub(crate) const fn bucket_count(self) -> usize {
        (END_BITS as usize + 1 - self.bits as usize) << self.bits
    }

    /// The bucket that `ns` falls into.
    #[inline]
    pub(crate) const fn index(self, ns: u64) -> usize {
        let ns = if ns < Self::END.as_ns() { ns } else { Self::END.as_ns() - 1 };
        let bits = self.bits as u32;
        // How many low bits the bucket disregards; none below 2^(bits + 1).
        let shift = (ns | (1 << bits)).ilog2() - bits;
        // `ns >> shift` has its leading bit at 2^bits, except in the first octave: so octaves follow
        // one another without a gap, and the first needs no case of its own.
        let index = ((shift as u64) << bits) + (ns >> shift);
        #[expect(clippy::cast_possible_truncation, reason = "less than bucket_count, at most 2^17")]
        let index = index as usize;
        index
    }

    /// The shortest duration in bucket `index`, and the width of the bucket, both in nanoseconds.
    #[inline]
    pub(crate) const fn bucket(self, index: usize) -> (u64, u64) {
        let octave = index >> self.bits;
        if octave == 0 {
            return (index as u64, 1);
        }
        let within = (index & (self.octave_len() - 1)) | self.octave_len();
        let shift = octave - 1;
        ((within as u64) << shift, 1 << shift)
    }

    /// The value of bucket `index`, in nanoseconds: its middle.
    #[inline]
    pub(crate) const fn middle(self, index: usize) -> u64 {
        let (lower, width) = self.bucket(index);
        lower + width / 2
    }
}

const END_BITS: u32 = 42;

#[cfg(test)]
mod tests {
    use super::Precision;

    fn all() -> impl Iterator<Item = Precision> {
        (4..=12).map(|bits| Precision::new(bits).expect("in range"))
    }

    #[test]
    fn buckets_tile_the_range_without_gap_or_overlap() {
        for precision in all() {
            let mut expected = 0;
            for index in 0..precision.bucket_count() {
                let (lower, width) = precision.bucket(index);
                assert_eq!(lower, expected, "bucket {index} of {precision:?}");
                assert_eq!(precision.index(lower), index);
                assert_eq!(precision.index(lower + width - 1), index);
                expected = lower + width;
            }
            assert_eq!(expected, Precision::END.as_ns());
        }
    }

    #[test]
    fn the_middle_is_off_by_no_more_than_stated() {
        for precision in all() {
            for index in 0..precision.bucket_count() {
                let (lower, width) = precision.bucket(index);
                for ns in [lower, lower + width - 1] {
                    let error = precision.middle(index).abs_diff(ns) as f64;
                    assert!(error <= precision.error() * ns as f64, "{ns} ns at {precision:?}");
                }
            }
        }
    }

    #[test]
    fn a_finer_bucket_lies_within_one_coarser_bucket() {
        for fine in all() {
            for coarse in all().filter(|&coarse| coarse < fine) {
                for index in 0..fine.bucket_count() {
                    let (lower, width) = fine.bucket(index);
                    assert_eq!(coarse.index(lower), coarse.index(lower + width - 1));
                }
            }
        }
    }

    #[test]
    fn from_the_end_on_everything_is_in_the_last_bucket() {
        for precision in all() {
            let last = precision.bucket_count() - 1;
            assert_eq!(precision.index(Precision::END.as_ns()), last);
            assert_eq!(precision.index(u64::MAX), last);
        }
    }

    #[test]
    fn precisions_outside_their_range_are_refused() {
        assert!(Precision::new(3).is_err());
        assert!(Precision::new(13).is_err());
        assert_eq!(Precision::new(5), Ok(Precision::ROUGH));
        assert_eq!(Precision::new(7), Ok(Precision::COARSE));
        assert_eq!(Precision::new(10), Ok(Precision::FINE));
    }
}
