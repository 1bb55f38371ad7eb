//! Zones: first attempts stay in the zone of the root while its replicas carry them.
//!
//! Replicas in the zone of the root are *near*, others are *far*. The balancing rule chooses among the near ones.
//! **Decides** whether the attempt goes to a far replica instead: to the one of two drawn that has fewer attempts in
//! flight. It does if near replicas respond slower than far ones, and load × latency of the near replica is more than
//! [`SPILL_FACTOR`] times that of the far one. The load is the number of attempts in flight relative to weights, and one
//! more; the latency is the mean of the side. Without recent latencies of both sides, the loads decide.
//! **Inputs**: attempts in flight, and the mean latencies of both sides, which include the way to another zone.
//! **Limits**: O(1) a choice, apart from draws among few near replicas. The rule [`crate::balance::prequal`] prefers near
//! replicas by the load that leaves report.
//! **Invariant** `near-is-not-overloaded`: while far replicas have room, near ones respond at most about
//! [`SPILL_FACTOR`] times slower. This needs no count of the roots in each zone.
//! **Source**: Envoy's zone-aware routing and Linkerd's load bands have the same purpose. The rule is ours.
//! **Hurts when** each of hundreds of roots sends few requests: their latencies are old when the load changes.

use crate::ReplicaId;
use crate::balance::Choice;
use crate::replica::{Candidates, Side};
use crate::upstream::Sent;
use curtail_units::{Duration, Instant, Rng};

/// The factor between load × latency of near and far replicas from which on attempts leave the zone.
const SPILL_FACTOR: f64 = 2.0;

/// The time constant of the mean latencies, and the time after the last latency at which a mean is unknown.
const MEMORY: Duration = Duration::from_secs(10);

/// A mean that forgets with the time constant [`MEMORY`].
#[derive(Clone, Copy, Debug, Default)]
struct MeanLatency {
    latency: Duration,
    /// The time of the last latency.
    at: Option<Instant>,
}

impl MeanLatency {
    fn observe(&mut self, now: Instant, latency: Duration) {
        let old =
            self.at.map_or(0.0, |at| libm::exp(-now.since(at).as_ns_f64() / MEMORY.as_ns_f64()));
        self.latency = self.latency.mul_f64(old) + latency.mul_f64(1.0 - old);
        self.at = Some(now);
    }

    fn get(&self, now: Instant) -> Option<Duration> {
        let at = self.at?;
        (now.since(at) < MEMORY).then_some(self.latency)
    }
}

/// The latencies of near and far replicas.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ZoneLatencies {
    near: MeanLatency,
    far: MeanLatency,
}

impl ZoneLatencies {
    pub(crate) fn observe(&mut self, sent: Sent, is_far: bool, now: Instant) {
        let side = if is_far { &mut self.far } else { &mut self.near };
        side.observe(now, now.since(sent.at));
    }

    /// An attempt was cancelled before its response: its latency would have been longer than its age.
    pub(crate) fn observe_cancelled(&mut self, sent: Sent, is_far: bool, now: Instant) {
        let mean = if is_far { self.far } else { self.near }.get(now);
        if mean.is_some_and(|mean| now.since(sent.at) > mean) {
            self.observe(sent, is_far, now);
        }
    }

    /// The far replica that gets the attempt instead of `near`, which the rule chose; absent: none.
    pub(crate) fn spill(
        &self,
        candidates: Candidates<'_>,
        near: ReplicaId,
        rng: &mut Rng,
    ) -> Option<(ReplicaId, Choice)> {
        let latencies = self.near.get(candidates.now()).zip(self.far.get(candidates.now()));
        let slowdown = match latencies {
            Some((near, far)) if near <= far => return None,
            Some((near, far)) => near.as_ns_f64() / far.as_ns_f64().max(1.0),
            None => 1.0,
        };
        let load = |id: ReplicaId| candidates.relative_in_flight(id) + 1.0;
        let near_load = load(near) * slowdown;
        // A far replica has at least no attempts in flight.
        if near_load <= SPILL_FACTOR {
            return None;
        }
        let all_far = candidates.on(Side::Far);
        let (one, other) = all_far.draw_two(rng)?;
        let far = other.filter(|other| load(*other) < load(one)).unwrap_or(one);
        let is_right = all_far.is_eligible(far) && near_load > SPILL_FACTOR * load(far);
        let choice = Choice::OtherZone {
            in_flight: candidates.in_flight(far),
            near: candidates.in_flight(near),
        };
        is_right.then_some((far, choice))
    }
}

#[cfg(test)]
mod tests;
