//! Least request: of two or more replicas drawn at random, the one with the fewest attempts in flight from this root.
//!
//! Attempts in flight count relative to weights, as in `random(2)` of `HAProxy`.
//!
//! **Source**: Mitzenmacher, "The power of two choices in randomized load balancing", 1996.

use super::{Choice, Rule, lowest};
use crate::ReplicaId;
use crate::replica::Candidates;
use curtail_units::Rng;

#[derive(Clone, Debug)]
pub(super) struct LeastRequest {
    pub(super) choices: u8,
}

impl Rule for LeastRequest {
    fn choose(&mut self, candidates: Candidates<'_>, rng: &mut Rng) -> Option<(ReplicaId, Choice)> {
        let choice = |id, other| Choice::FewerInFlight {
            in_flight: candidates.in_flight(id),
            other: candidates.in_flight(other),
        };
        lowest(candidates, (self.choices, rng), |id| candidates.relative_in_flight(id), choice)
    }
}
