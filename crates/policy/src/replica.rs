//! What the root knows of each replica of an upstream.
//!
//! Besides the attempts in flight this is *error aversion*: a replica that fails is left out for a
//! while. Without it, the replica that refuses every connection has the fewest attempts in flight, looks
//! the best to every balancing rule, and draws all requests (sinkholing).

use crate::{LoadTracker, ReplicaId};
use curtail_units::{Duration, Instant, Rng};

/// The most replicas of one upstream.
pub const REPLICAS_MAX: usize = 4_096;

/// A replica is left out after this many failures in a row.
const FAILURES_AVERTED: u32 = 3;

/// The first time that a failing replica is left out; it doubles with each further failure.
const AVERSION: Duration = Duration::from_ms(100);

/// The longest time that a failing replica is left out without being tried.
const AVERSION_MAX: Duration = Duration::from_secs(10);

/// One replica as the root sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    /// Failures since the last success.
    failures: u32,
    /// Left out before this instant.
    averted_until: Instant,
    /// Attempts sent from here and not ended; and their latencies, where no leaf keeps them.
    pub(crate) load: LoadTracker,
}

impl Replica {
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
        self.averted_until = Instant::ZERO;
    }

    pub(crate) fn failed(&mut self, now: Instant) {
        // What fails while the replica is left out was sent before, by and large: a hundred attempts that
        // break off together are one piece of news, not a hundred.
        if now < self.averted_until {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        if let Some(beyond) = self.failures.checked_sub(FAILURES_AVERTED) {
            let factor = 1_u64 << beyond.min(16);
            let aversion = Duration::from_ns(AVERSION.as_ns() * factor).min(AVERSION_MAX);
            self.averted_until = now + aversion;
        }
    }
}

/// All replicas of an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Replicas {
    all: alloc::vec::Vec<Replica>,
}

impl Replicas {
    pub(crate) fn new(len: usize) -> Self {
        assert!(len <= REPLICAS_MAX, "at most {REPLICAS_MAX} replicas");
        Self { all: alloc::vec![Replica::default(); len] }
    }

    pub(crate) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, id: ReplicaId) -> &Replica {
        &self.all[id.index()]
    }

    pub(crate) fn get_mut(&mut self, id: ReplicaId) -> &mut Replica {
        &mut self.all[id.index()]
    }

    /// Every replica.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..self.len()).map(ReplicaId::at)
    }

    /// Whether a replica may be chosen: not excluded, and not left out for its failures.
    pub(crate) fn is_eligible(&self, id: ReplicaId, now: Instant, exclude: &[ReplicaId]) -> bool {
        !exclude.contains(&id) && self.get(id).averted_until <= now
    }

    /// The first of `len` candidates from `start` on, in a ring, that may be chosen; failing ones when
    /// there are only such (a policy must not take a site down), excluded ones never.
    pub(crate) fn next_eligible(
        &self,
        start: usize,
        now: Instant,
        exclude: &[ReplicaId],
    ) -> Option<ReplicaId> {
        let ring = || (start..start + self.len()).map(|i| ReplicaId::at(i % self.len()));
        ring()
            .find(|id| self.is_eligible(*id, now, exclude))
            .or_else(|| ring().find(|id| !exclude.contains(id)))
    }

    /// A replica drawn uniformly from those that may be chosen, by the same rule.
    pub(crate) fn draw(
        &self,
        rng: &mut Rng,
        now: Instant,
        exclude: &[ReplicaId],
    ) -> Option<ReplicaId> {
        // Nearly always the first draw is eligible; the exact way costs a walk over all.
        for _ in 0..4 {
            if self.all.is_empty() {
                return None;
            }
            let id = ReplicaId::at(rng.below(self.len()));
            if self.is_eligible(id, now, exclude) {
                return Some(id);
            }
        }
        let nth = |rng: &mut Rng, wanted: &dyn Fn(&ReplicaId) -> bool| {
            let count = self.ids().filter(wanted).count();
            (count > 0).then(|| self.ids().filter(wanted).nth(rng.below(count))).flatten()
        };
        nth(rng, &|id| self.is_eligible(*id, now, exclude))
            .or_else(|| nth(rng, &|id| !exclude.contains(id)))
    }

    /// Two different replicas drawn like [`Self::draw`]; one when there is no second.
    pub(crate) fn draw_two(
        &self,
        rng: &mut Rng,
        now: Instant,
        exclude: &[ReplicaId],
    ) -> Option<(ReplicaId, Option<ReplicaId>)> {
        let first = self.draw(rng, now, exclude)?;
        let mut without: arrayvec::ArrayVec<ReplicaId, { crate::ATTEMPTS_MAX + 1 }> =
            exclude.iter().copied().collect();
        without.push(first);
        // A failing replica is not worth comparing with one that works.
        let second = self.draw(rng, now, &without);
        Some((first, second.filter(|id| self.is_eligible(*id, now, &without))))
    }
}

#[cfg(test)]
mod tests;
