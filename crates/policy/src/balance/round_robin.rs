//! Round robin: each replica in turn, from a random start, so that roots that start together do not walk in step.

use super::{Choice, Rule};
use crate::ReplicaId;
use crate::replica::Replicas;
use curtail_units::{Instant, Rng};

/// The rule, and where the next turn begins.
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
    fn choose(
        &mut self,
        replicas: &Replicas,
        _: &mut Rng,
        now: Instant,
        exclude: &[ReplicaId],
    ) -> Option<(ReplicaId, Choice)> {
        let id = replicas.next_eligible(self.next, now, exclude)?;
        self.next = ReplicaId(id.0.wrapping_add(1));
        Some((id, Choice::Turn))
    }
}
