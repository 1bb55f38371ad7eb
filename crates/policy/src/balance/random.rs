//! Random: a replica drawn uniformly.

use super::{Choice, Rule};
use crate::ReplicaId;
use crate::replica::Replicas;
use curtail_units::{Instant, Rng};

#[derive(Clone, Debug)]
pub(super) struct Random;

impl Rule for Random {
    fn choose(
        &mut self,
        replicas: &Replicas,
        rng: &mut Rng,
        now: Instant,
        exclude: &[ReplicaId],
    ) -> Option<(ReplicaId, Choice)> {
        Some((replicas.draw(rng, now, exclude)?, Choice::Chance))
    }
}
