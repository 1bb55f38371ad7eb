//! Round robin: each replica in turn, from a random start, so that roots that start together do not walk in step.

use super::{Choice, Rule};
use crate::ReplicaId;
use crate::replica::Candidates;
use curtail_units::Rng;

#[derive(Clone, Debug)]
pub(super) struct RoundRobin {
    next: ReplicaId,
}

impl RoundRobin {
    pub(super) fn new(replicas: usize, rng: &mut Rng) -> Self {
        Self { next: ReplicaId::at(rng.below(replicas.max(1))) }
    }
}

impl Rule for RoundRobin {
    fn choose(&mut self, candidates: Candidates<'_>, _: &mut Rng) -> Option<(ReplicaId, Choice)> {
        let id = candidates.next_from(self.next)?;
        self.next = ReplicaId(id.0.wrapping_add(1));
        Some((id, Choice::Turn))
    }
}
