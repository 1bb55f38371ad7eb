//! Round robin: each replica in turn, from a random start, so that roots that start together do not walk in step.
//!
//! If weights differ, a replica earns a part of a turn whenever it is passed, in proportion to its weight. It has its
//! turn when it has earned a whole one, and keeps the rest.
//!
//! **Limits**: O(1) a choice, and a walk over all replicas if weights differ.
//! **Source**: interleaved weighted round robin, Katevenis et al., 1991; the parts of turns are ours.

use super::{Choice, Rule};
use crate::replica::Candidates;
use crate::{ReplicaId, ReplicaMap};
use curtail_units::Rng;

/// Parts of a turn that amount to one may fall short of it by rounding.
const ROUNDING: f64 = 1e-9;

#[derive(Clone, Debug)]
pub(super) struct RoundRobin {
    next: ReplicaId,
    /// The part of a turn that each replica has earned.
    earned: ReplicaMap<f64>,
}

impl RoundRobin {
    pub(super) fn new(replicas: usize, rng: &mut Rng) -> Self {
        Self { next: ReplicaId::at(rng.below(replicas.max(1))), earned: ReplicaMap::default() }
    }

    /// The next eligible replica that has earned a turn. The one with the largest share earns a whole one.
    fn next_by_share(&mut self, candidates: Candidates<'_>) -> Option<ReplicaId> {
        let shares = candidates.eligible_from(self.next).map(|id| candidates.share(id));
        let largest = shares.fold(0.0, f64::max);
        candidates.eligible_from(self.next).find(|id| {
            let Some(earned) = self.earned.get_mut(*id) else { return true };
            *earned += candidates.share(*id) / largest;
            let has_turn = *earned >= 1.0 - ROUNDING;
            *earned -= if has_turn { 1.0 } else { 0.0 };
            has_turn
        })
    }
}

impl Rule for RoundRobin {
    fn choose(&mut self, candidates: Candidates<'_>, _: &mut Rng) -> Option<(ReplicaId, Choice)> {
        let by_share = candidates.is_uneven().then(|| self.next_by_share(candidates)).flatten();
        let id = by_share.or_else(|| candidates.next_from(self.next))?;
        self.next = ReplicaId(id.0.wrapping_add(1));
        Some((id, Choice::Turn))
    }

    fn replica_joined(&mut self, replica: ReplicaId) {
        self.earned.insert(replica, 0.0);
    }

    fn replica_left(&mut self, replica: ReplicaId) {
        self.earned.remove(replica);
    }
}
