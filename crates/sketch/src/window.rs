//! A histogram of a sliding window.
//!
//! **Holds** a ring of histograms, one for each slot of time, and their total. A value is recorded in the current slot
//! and in the total. A quantile reads the total. An expired slot is subtracted from the total.
//!
//! **Inputs**: the present [`Instant`] with every call, and durations.
//!
//! **Limits**: values expire by the slot, at an age between `length - length / slots` and `length`. Memory is one
//! histogram for each slot and one for the total: 143 KiB with ten slots at [`Precision::COARSE`], for latencies from
//! 100 µs to 0.4 s.
//!
//! **Cost**: recording adds to two histograms. The first call in a new slot subtracts and clears one histogram: some
//! microseconds at [`Precision::FINE`]. The first call after a pause clears at most all slots.
//!
//! **Invariant**: the total equals the merged slots, bucket for bucket.
//!
//! **Hurts when** traffic is thin: few values then decide a quantile. Check [`Window::count`] before a high quantile.

use crate::counts::{Counts, sum};
use crate::{Histogram, Precision, rank};
use alloc::{vec, vec::Vec};
use curtail_units::{Duration, Instant, Quantile};

#[cfg(test)]
mod tests;

/// The values up to a duration `t` and beyond it; those with a bound of at most `t` are neither.
#[derive(Clone, Copy)]
struct Seen {
    at_most: u64,
    longer: u64,
}

impl Seen {
    /// For a longer `t`, with `ended` more values and `unknown` more bounds up to it.
    const fn after(self, ended: u64, unknown: u64) -> Self {
        Self { at_most: self.at_most + ended, longer: self.longer - ended - unknown }
    }

    fn reaches(self, quantile: Quantile) -> bool {
        self.at_most as f64 >= quantile.get() * (self.at_most + self.longer) as f64
    }
}

/// Durations recorded within the last `length`, or up to one slot less.
///
/// Instants come from one clock and do not go back. Threads that read the clock and then wait for the lock around a
/// window may still arrive slightly out of order. A value with an instant before the current slot is recorded in that
/// slot.
#[derive(Clone, Debug)]
pub struct Window {
    slots: Vec<Histogram>,
    /// The slot being filled; the next slot is the oldest.
    current: usize,
    /// The start of the current slot.
    began: Instant,
    slot_length: Duration,
    total: Counts,
}

impl Window {
    /// An empty window over the last `length`, divided into `slots` slots.
    ///
    /// # Panics
    /// When `slots` is zero, or `length` is less than one nanosecond for each slot.
    #[must_use]
    pub fn new(precision: Precision, length: Duration, slots: usize) -> Self {
        let slot_ns = length.as_ns().checked_div(slots as u64).unwrap_or(0);
        assert!(slot_ns > 0, "a window of {length} cannot be kept in {slots} slots");
        Self {
            slots: vec![Histogram::new(precision); slots],
            current: 0,
            began: Instant::ZERO,
            slot_length: Duration::from_ns(slot_ns),
            total: Counts::new(precision),
        }
    }

    /// Records `duration` at `now`.
    #[inline]
    pub fn record(&mut self, now: Instant, duration: Duration) {
        self.forget_before(now);
        self.total.add(self.total.precision().index(duration.as_ns()), 1);
        self.slots[self.current].record(duration);
    }

    /// The number of values in the window.
    #[inline]
    pub fn count(&mut self, now: Instant) -> u64 {
        self.forget_before(now);
        self.total.total()
    }

    /// The value with rank `ceil(q · n)` in the window, off by at most [`Precision::error`] of itself;
    /// nothing when the window is empty. Quantiles 0 and 1 are the exact minimum and maximum.
    pub fn quantile(&mut self, now: Instant, quantile: Quantile) -> Option<Duration> {
        self.forget_before(now);
        let count = self.total.total();
        let (min, max) = (
            self.slots.iter().filter_map(Histogram::min).min()?,
            self.slots.iter().filter_map(Histogram::max).max()?,
        );
        let rank = rank(quantile, count);
        match rank {
            1 => return Some(min),
            _ if rank == count => return Some(max),
            _ => {}
        }
        let ns = self.total.precision().middle(self.total.bucket_of_rank(rank)?);
        Some(Duration::from_ns(ns).clamp(min, max))
    }

    /// The value at `quantile` when `censored`, a window of this precision and length, holds only lower bounds.
    ///
    /// At a duration `t`, a value is at most `t`, or longer than `t`, or unknown because its bound is at most `t`. The
    /// result is the least `t` at which a share of `quantile` of the known values is at most `t`: the reduced-sample
    /// estimate of Kaplan and Meier (1958). Low bounds do not lower the result, as they would if they counted as
    /// values. The result never exceeds the longest recorded duration.
    pub fn quantile_with_censored(
        &mut self,
        censored: &mut Self,
        now: Instant,
        quantile: Quantile,
    ) -> Option<Duration> {
        if censored.count(now) == 0 {
            return self.quantile(now, quantile);
        }
        self.forget_before(now);
        let (values, bounds) = (&self.total, &censored.total);
        let mut seen = Seen { at_most: 0, longer: values.total() + bounds.total() };
        for octave in values.octaves_with(bounds) {
            let (ended, unknown) = (values.octave(octave), bounds.octave(octave));
            // The share rises with `t`: where the end of an octave does not reach it, no bucket of the octave does.
            let end = seen.after(sum(ended), sum(unknown));
            if !end.reaches(quantile) {
                seen = end;
                continue;
            }
            for nth in 0..values.precision().octave_len() {
                let count = |counts: &[u64]| counts.get(nth).copied().unwrap_or(0);
                let (ended, unknown) = (count(ended), count(unknown));
                seen = seen.after(ended, unknown);
                if ended + unknown > 0 && seen.reaches(quantile) {
                    let bucket = octave * values.precision().octave_len() + nth;
                    return Some(Duration::from_ns(values.precision().middle(bucket)));
                }
            }
        }
        None
    }

    /// Moves on to the slot of `now`. A call within the current slot pays only for the comparison.
    #[inline]
    fn forget_before(&mut self, now: Instant) {
        let elapsed = now.since(self.began);
        if elapsed >= self.slot_length {
            self.move_on(elapsed);
        }
    }

    #[cold]
    fn move_on(&mut self, elapsed: Duration) {
        let steps = elapsed.as_ns() / self.slot_length.as_ns();
        // Slots keep to multiples of their length, however irregular the calls are. The product is at
        // most `elapsed`.
        self.began = self.began + Duration::from_ns(steps * self.slot_length.as_ns());
        let stale = usize::try_from(steps).unwrap_or(usize::MAX).min(self.slots.len());
        for _ in 0..stale {
            self.current = (self.current + 1) % self.slots.len();
            let oldest = &mut self.slots[self.current];
            if oldest.count() > 0 {
                self.total.subtract(oldest.counts());
                oldest.clear();
            }
        }
    }
}
