//! Least request: of two replicas drawn at random, the one with fewer attempts in flight from this root.
//!
//! **Source**: Mitzenmacher, "The power of two choices in randomized load balancing", 1996.

use super::{Choice, Rule, lower_of_two};
use crate::ReplicaId;
use crate::replica::Replicas;
use curtail_units::{Instant, Rng};

#[derive(Clone, Debug)]
pub(super) struct LeastRequest;

impl Rule for LeastRequest {
    fn choose(
        &mut self,
        replicas: &Replicas,
        rng: &mut Rng,
        now: Instant,
        exclude: &[ReplicaId],
    ) -> Option<(ReplicaId, Choice)> {
        let in_flight = |id: ReplicaId| replicas.in_flight(id, now);
        let choice = |in_flight, other| Choice::FewerInFlight { in_flight, other };
        lower_of_two(replicas, rng, (now, exclude), in_flight, choice)
    }
}
