//! The counts of buckets, for [`Histogram`](crate::Histogram) and [`Window`](crate::Window).
//!
//! **Holds** an array with one `u64` for each bucket of the octaves (powers of two) from the shortest to the longest
//! value. Latencies of one upstream span a dozen of some 35 octaves, so the array has a third of its full size. It
//! grows by octaves and never shrinks.
//!
//! **Why `u64`**: at 100,000 responses a second, a `u32` overflows within 12 hours if most responses are in one bucket.
//!
//! **Invariant**: the counts add up to `total`, which fits a `u64`. Further values are dropped, so no sum over buckets
//! overflows. Only bulk additions can reach so large a total.

use crate::Precision;
use alloc::{vec, vec::Vec};
use core::ops::Range;

/// Counts by bucket.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    precision: Precision,
    /// The index of the bucket that `counts[0]` counts: the first of its octave.
    first: usize,
    /// The counts of the buckets of whole octaves.
    counts: Vec<u64>,
    total: u64,
}

impl Counts {
    pub(crate) const fn new(precision: Precision) -> Self {
        Self { precision, first: 0, counts: Vec::new(), total: 0 }
    }

    pub(crate) const fn precision(&self) -> Precision {
        self.precision
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Counts `n` values in bucket `index`. Returns the number of values counted: `n`, or less if the total would
    /// exceed a `u64`.
    #[inline]
    pub(crate) fn add(&mut self, index: usize, n: u64) -> u64 {
        let n = n.min(u64::MAX - self.total);
        // A bucket before the first wraps to a place far behind the last: one comparison for both ends.
        if let Some(count) = self.counts.get_mut(index.wrapping_sub(self.first)) {
            *count += n;
        } else {
            self.cover(index, index);
            self.counts[index - self.first] += n;
        }
        self.total += n;
        n
    }

    /// Adds the counts of `other`. The result has the coarser of the two precisions.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.coarsen(other.precision);
        let (Some(low), Some(high)) = (other.lowest(), other.highest()) else {
            return;
        };
        if self.precision != other.precision || other.total > u64::MAX - self.total {
            for (index, n) in other.non_empty() {
                self.add(self.precision.index(other.precision.bucket(index).0), n);
            }
            return;
        }
        self.cover(low, high);
        let mine = &mut self.counts[low - self.first..=high - self.first];
        let theirs = &other.counts[low - other.first..=high - other.first];
        for (mine, theirs) in mine.iter_mut().zip(theirs) {
            *mine = mine.wrapping_add(*theirs);
        }
        self.total += other.total;
    }

    /// Subtracts the counts of `part`, which were added before at the same precision.
    pub(crate) fn subtract(&mut self, part: &Self) {
        debug_assert!(part.is_within(self), "what is subtracted must have been added");
        let (Some(low), Some(high)) = (part.lowest(), part.highest()) else {
            return;
        };
        let mine = &mut self.counts[low - self.first..=high - self.first];
        let theirs = &part.counts[low - part.first..=high - part.first];
        for (mine, theirs) in mine.iter_mut().zip(theirs) {
            *mine = mine.wrapping_sub(*theirs);
        }
        self.total -= part.total;
    }

    /// Whether `whole` has the same precision and, in each bucket, at least the count of `self`.
    pub(crate) fn is_within(&self, whole: &Self) -> bool {
        self.precision == whole.precision
            && self.non_empty().all(|(index, n)| {
                whole.counts.get(index.wrapping_sub(whole.first)).is_some_and(|&of| of >= n)
            })
    }

    /// Removes every value; keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// Lowers the precision to `precision`, as if every value had been counted at that precision. A finer
    /// `precision` changes nothing.
    pub(crate) fn coarsen(&mut self, precision: Precision) {
        if precision < self.precision {
            let mut coarse = Self::new(precision);
            coarse.merge(self);
            *self = coarse;
        }
    }

    /// The bucket of the value with `rank`, counted from 1; [`None`] when there are fewer than `rank` values.
    pub(crate) fn bucket_of_rank(&self, rank: u64) -> Option<usize> {
        let mut below = 0;
        let octave_len = self.precision.octave_len();
        for (octave, counts) in self.counts.chunks_exact(octave_len).enumerate() {
            // Whole octaves are added up first: the sum runs several counts an instruction.
            let within = sum(counts);
            if rank <= below + within {
                for (bucket, count) in counts.iter().enumerate() {
                    below += count;
                    if rank <= below {
                        return Some(self.first + octave * octave_len + bucket);
                    }
                }
            }
            below += within;
        }
        None
    }

    /// The octaves for which `self` or `other`, of the same precision, has counts.
    pub(crate) fn octaves_with(&self, other: &Self) -> Range<usize> {
        let octaves = |counts: &Self| {
            let len = counts.precision.octave_len();
            (counts.first / len, (counts.first + counts.counts.len()) / len)
        };
        let (one, two) = (octaves(self), octaves(other));
        one.0.min(two.0)..one.1.max(two.1)
    }

    /// The counts of the buckets of an octave; empty if it has no values.
    pub(crate) fn octave(&self, octave: usize) -> &[u64] {
        let len = self.precision.octave_len();
        let from = (octave * len).checked_sub(self.first);
        from.and_then(|from| self.counts.get(from..from + len)).unwrap_or_default()
    }

    /// The number of values in buckets after `index`.
    pub(crate) fn total_after(&self, index: usize) -> u64 {
        let from = (index + 1).saturating_sub(self.first).min(self.counts.len());
        sum(&self.counts[from..])
    }

    /// The buckets that hold a value, in order, with their counts.
    pub(crate) fn non_empty(&self) -> impl DoubleEndedIterator<Item = (usize, u64)> + '_ {
        let counts = self.counts.iter().enumerate();
        counts.filter(|&(_, &n)| n > 0).map(|(bucket, &n)| (self.first + bucket, n))
    }

    fn lowest(&self) -> Option<usize> {
        self.counts.iter().position(|&n| n > 0).map(|bucket| self.first + bucket)
    }

    fn highest(&self) -> Option<usize> {
        self.counts.iter().rposition(|&n| n > 0).map(|bucket| self.first + bucket)
    }

    /// Makes room for every value that `all` counts; `all` has a count for each bucket of the precision.
    pub(crate) fn make_room_for(&mut self, all: &[u64]) {
        let holds_values = |&n: &u64| n > 0;
        let ends = (all.iter().position(holds_values), all.iter().rposition(holds_values));
        if let (Some(low), Some(high)) = ends {
            self.cover(low, high);
        }
    }

    /// Makes room for the buckets from `low` to `high`. Cold, because each octave is added once at most.
    #[cold]
    fn cover(&mut self, low: usize, high: usize) {
        let octave_len = self.precision.octave_len();
        let (mut first, mut end) =
            (low / octave_len * octave_len, (high / octave_len + 1) * octave_len);
        if !self.counts.is_empty() {
            first = first.min(self.first);
            end = end.max(self.first + self.counts.len());
        }
        if end - first == self.counts.len() {
            return;
        }
        let mut counts = vec![0; end - first];
        if !self.counts.is_empty() {
            counts[self.first - first..][..self.counts.len()].copy_from_slice(&self.counts);
        }
        (self.first, self.counts) = (first, counts);
    }
}

/// Equal when both count the same values at the same precision; the allocated octaves may differ.
impl PartialEq for Counts {
    fn eq(&self, other: &Self) -> bool {
        self.precision == other.precision
            && self.total == other.total
            && self.non_empty().eq(other.non_empty())
    }
}

/// The sum of `counts`. The addition wraps: checks for an overflow that cannot happen would keep the compiler from
/// adding several counts at once.
pub(crate) fn sum(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, &count| sum.wrapping_add(count))
}

#[cfg(test)]
mod tests {
    use super::Counts;
    use crate::Precision;

    /// Kibibytes after the durations `low` and `high`, in nanoseconds, were counted in either order.
    fn kib(precision: Precision, low: u64, high: u64) -> usize {
        let taken = [[low, high], [high, low]].map(|order| {
            let mut counts = Counts::new(precision);
            for ns in order {
                counts.add(precision.index(ns), 1);
            }
            counts.counts.capacity() * size_of::<u64>() / 1_024
        });
        assert_eq!(taken[0], taken[1]);
        taken[0]
    }

    #[test]
    fn the_memory_taken_is_what_the_documents_say() {
        assert_eq!(kib(Precision::COARSE, 100_000, 400_000_000), 13);
        assert_eq!(kib(Precision::COARSE, 0, u64::MAX), 36);
        assert_eq!(kib(Precision::FINE, 5_000_000, 5_000_000), 8);
        assert_eq!(kib(Precision::FINE, 0, u64::MAX), 264);
        assert_eq!(Counts::new(Precision::FINE).counts.capacity(), 0);
    }
}
