//! Random: a replica drawn uniformly, or by weight.

use super::{Choice, Rule};
use crate::ReplicaId;
use crate::replica::Candidates;
use curtail_units::Rng;

#[derive(Clone, Debug)]
pub(super) struct Random;

impl Rule for Random {
    fn choose(&mut self, candidates: Candidates<'_>, rng: &mut Rng) -> Option<(ReplicaId, Choice)> {
        Some((candidates.draw(rng)?, Choice::Chance))
    }
}
