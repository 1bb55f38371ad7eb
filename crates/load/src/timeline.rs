//! Latency over time, for heatmaps and for the detection of a steady state.
//!
//! Each slot of time has the response times of the requests whose intended time lies in the slot, and the number of
//! failed requests. A pause therefore shows at its start and with its full effect.
//! **Limits**: [`SLOTS_MAX`] slots; in a longer run, slots are merged in pairs.

use crate::{Failure, Timing};
use curtail_sketch::{Histogram, Precision};
use curtail_units::Duration;

/// Maximum number of slots of a timeline.
pub const SLOTS_MAX: usize = 1_024;

/// The recording of the requests whose intended time lies in one slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Response times of successful requests.
    pub response: Histogram,
    /// The number of failed requests.
    pub failed: u64,
}

impl Slot {
    /// An empty recording.
    #[must_use]
    pub const fn new() -> Self {
        Self { response: Histogram::new(Precision::COARSE), failed: 0 }
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.response.merge(&other.response);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}

/// Requests by their intended time.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    width: Duration,
    slots: Vec<Slot>,
}

impl Timeline {
    /// An empty timeline with slots of `width`, at least a nanosecond.
    #[must_use]
    pub fn new(width: Duration) -> Self {
        Self { width: width.max(Duration::from_ns(1)), slots: Vec::new() }
    }

    /// The width of a slot.
    #[must_use]
    pub const fn width(&self) -> Duration {
        self.width
    }

    /// The slots, from the start of the timeline on.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// A timeline of `slots`.
    #[must_use]
    pub fn of_slots(width: Duration, slots: Vec<Slot>) -> Self {
        let mut timeline = Self { slots, ..Self::new(width) };
        while timeline.slots.len() > SLOTS_MAX {
            timeline.halve();
        }
        timeline
    }

    /// Records one request, intended `since_start`.
    pub fn record(&mut self, since_start: Duration, timing: &Timing, failure: Option<Failure>) {
        let mut nth = since_start.as_ns() / self.width.as_ns();
        while nth >= SLOTS_MAX as u64 {
            self.halve();
            nth = since_start.as_ns() / self.width.as_ns();
        }
        let nth = usize::try_from(nth).unwrap_or(SLOTS_MAX - 1);
        if self.slots.len() <= nth {
            self.slots.resize_with(nth + 1, Slot::new);
        }
        let slot = &mut self.slots[nth];
        if failure.is_some() {
            slot.failed += 1;
        } else {
            slot.response.record(timing.ended.since(timing.intended));
        }
    }

    /// Adds all of `other`, a timeline of the same start whose width differs by a power of two, if at all.
    pub fn merge(&mut self, other: &Self) {
        while self.width < other.width {
            self.halve();
        }
        let mut other = other.clone();
        while other.width < self.width {
            other.halve();
        }
        if self.slots.len() < other.slots.len() {
            self.slots.resize_with(other.slots.len(), Slot::new);
        }
        for (slot, more) in self.slots.iter_mut().zip(&other.slots) {
            slot.merge(more);
        }
    }

    fn halve(&mut self) {
        let merged = self.slots.chunks(2).map(|pair| {
            let mut slot = pair[0].clone();
            if let Some(second) = pair.get(1) {
                slot.merge(second);
            }
            slot
        });
        self.slots = merged.collect();
        self.width = self.width.mul_f64(2.0);
    }
}

#[cfg(test)]
mod tests {
    use super::{SLOTS_MAX, Timeline};
    use crate::{Failure, Timing};
    use curtail_units::{Duration, Instant};

    fn record(timeline: &mut Timeline, second: u64, failure: Option<Failure>) {
        let intended = Instant::ZERO + Duration::from_secs(second);
        let ended = intended + Duration::from_ms(10);
        let timing = Timing { intended, ready: intended, sent: intended, ended };
        timeline.record(Duration::from_secs(second), &timing, failure);
    }

    #[test]
    fn a_long_run_keeps_every_request_in_wider_slots() {
        let mut timeline = Timeline::new(Duration::from_secs(1));
        let seconds = 5 * SLOTS_MAX as u64;
        for second in 0..seconds {
            record(&mut timeline, second, (second % 10 == 0).then_some(Failure::Closed));
        }
        assert_eq!(timeline.width(), Duration::from_secs(8));
        assert!(timeline.slots().len() <= SLOTS_MAX);
        let responded: u64 = timeline.slots().iter().map(|slot| slot.response.count()).sum();
        let failed: u64 = timeline.slots().iter().map(|slot| slot.failed).sum();
        assert_eq!((responded, failed), (seconds - seconds / 10, seconds / 10));
    }

    #[test]
    fn timelines_of_two_generators_merge() {
        let (mut one, mut two) =
            (Timeline::new(Duration::from_secs(1)), Timeline::new(Duration::from_secs(1)));
        let mut both = one.clone();
        for second in 0..2 * SLOTS_MAX as u64 {
            record(if second % 3 == 0 { &mut one } else { &mut two }, second, None);
            record(&mut both, second, None);
        }
        one.merge(&two);
        assert_eq!(one, both);
    }
}
