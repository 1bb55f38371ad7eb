//! The pool: the results of recent probes that may still be used for a choice.

use crate::{Load, ReplicaId};
use alloc::vec::Vec;
use curtail_units::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) replica: ReplicaId,
    pub(super) received: Instant,
    /// The load that the leaf reported. Each attempt sent to the replica since then adds to its requests in flight, which are
    /// relative to weights.
    pub(super) load: Load,
    /// The requests in flight that an attempt adds: more than one if the replica has less than the largest weight.
    pub(super) step: u32,
    /// Uses that are left; absent: unlimited.
    pub(super) uses_left: Option<u32>,
}

impl Entry {
    /// The order of preference, the best first: cold before hot, the cold by latency, the hot by requests in flight.
    /// The other of these two signals breaks ties. Far cold entries come after the other cold ones. The order is one number,
    /// because a choice compares sixteen and a triple costs three times as much.
    const fn rank(&self, hot_from: Option<u32>, is_far: bool) -> u128 {
        let (in_flight, latency) = (self.load.in_flight as u128, self.load.latency.as_ns() as u128);
        match hot_from {
            Some(threshold) if in_flight >= threshold as u128 => {
                1 << 127 | in_flight << 64 | latency
            }
            _ => (is_far as u128) << 126 | latency << 32 | in_flight,
        }
    }
}

/// At most one entry for each replica, the oldest first.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    entries: Vec<Entry>,
    len_max: usize,
}

impl Pool {
    pub(super) fn new(len_max: usize) -> Self {
        Self { entries: Vec::with_capacity(len_max), len_max }
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    #[cfg(test)]
    pub(super) fn holds(&self, replica: ReplicaId) -> bool {
        self.place(replica).is_some()
    }

    /// Adds the newest entry, in place of an older one of the same replica, or of the oldest one if the pool is full.
    pub(super) fn add(&mut self, entry: Entry) {
        if let Some(older) = self.place(entry.replica) {
            self.entries.remove(older);
        } else if self.entries.len() >= self.len_max {
            self.remove_oldest();
        }
        if self.len_max > 0 {
            self.entries.push(entry);
        }
    }

    pub(super) fn expire(&mut self, now: Instant, age_max: Duration) {
        let is_old = |entry: &Entry| now.since(entry.received) > age_max;
        let old = self.entries.iter().take_while(|entry| is_old(entry)).count();
        self.entries.drain(..old);
    }

    /// The place of the best entry that is eligible and accepted, and the number of eligible entries.
    pub(super) fn best(
        &self,
        hot_from: Option<u32>,
        (eligible, is_far): (impl Fn(ReplicaId) -> bool, impl Fn(ReplicaId) -> bool),
        mut accepts: impl FnMut(ReplicaId) -> bool,
    ) -> (Option<usize>, usize) {
        let mut candidates = 0;
        let of_eligible = self.entries.iter().enumerate().filter(|(_, e)| eligible(e.replica));
        let best = of_eligible
            .inspect(|_| candidates += 1)
            .filter(|(_, entry)| accepts(entry.replica))
            .min_by_key(|(_, entry)| entry.rank(hot_from, is_far(entry.replica)))
            .map(|(place, _)| place);
        (best, candidates)
    }

    /// Uses the entry at `place` for a choice: counts the use and the attempt, and returns the entry as it was before.
    pub(super) fn use_entry(&mut self, place: usize) -> Entry {
        let entry = &mut self.entries[place];
        let as_it_was = *entry;
        entry.load.in_flight = entry.load.in_flight.saturating_add(entry.step);
        entry.uses_left = entry.uses_left.map(|uses| uses.saturating_sub(1));
        if entry.uses_left == Some(0) {
            self.entries.remove(place);
        }
        as_it_was
    }

    /// Counts an attempt to a replica that was not chosen by its entry.
    pub(super) fn sent_to(&mut self, replica: ReplicaId) {
        if let Some(place) = self.place(replica) {
            let Entry { load, step, .. } = &mut self.entries[place];
            load.in_flight = load.in_flight.saturating_add(*step);
        }
    }

    pub(super) fn remove_oldest(&mut self) {
        if !self.entries.is_empty() {
            self.entries.remove(0);
        }
    }

    pub(super) fn remove(&mut self, replica: ReplicaId) {
        if let Some(place) = self.place(replica) {
            self.entries.remove(place);
        }
    }

    /// Removes the hot entry with the most in flight, or, if none is hot, the entry with the highest latency.
    pub(super) fn remove_worst(&mut self, hot_from: Option<u32>) {
        let ranked = self.entries.iter().enumerate();
        if let Some((worst, _)) = ranked.max_by_key(|(_, entry)| entry.rank(hot_from, false)) {
            self.entries.remove(worst);
        }
    }

    fn place(&self, replica: ReplicaId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.replica == replica)
    }
}
