//! Zones: first attempts stay in the zone of the root while its replicas carry them.
//!
//! Replicas in the zone of the root are *near*, others are *far*. The balancing rule chooses among the near ones.
//! **Decides** whether the attempt goes to a far replica instead: to the one of two drawn that has fewer attempts in
//! flight. It does if near replicas respond slower than far ones, and load × latency of the near replica is more than
//! [`SPILL_FACTOR`] times that of the far one. The load is the number of attempts in flight relative to weights, and one
//! more; the latency is the mean of the side. Without recent latencies of both sides, and while near replicas stall, the
//! loads decide.
//! **Inputs**: attempts in flight, and the mean latencies of both sides, which include the way to another zone.
//! **Limits**: O(1) a choice, apart from draws among few near replicas. The rule [`crate::balance::prequal`] prefers near
//! replicas by the load that leaves report.
//! **Invariant** `near-is-not-overloaded`: while far replicas have room, near ones respond at most about
//! [`SPILL_FACTOR`] times slower. This needs no count of the roots in each zone.
//! **Source**: Envoy's zone-aware routing and Linkerd's load bands have the same purpose. The rule is ours.
//! **Hurts when** each of hundreds of roots sends few requests: their latencies are old when the load changes. After a stall
//! of few but long requests, attempts leave the zone until [`MEMORY`] ends.

use crate::ReplicaId;
use crate::balance::Choice;
use crate::replica::{Candidates, ZoneSide};
use crate::upstream::Sent;
use curtail_units::{Duration, Instant, Rng};

/// The factor between load × latency of near and far replicas from which on attempts leave the zone.
const SPILL_FACTOR: f64 = 2.0;

/// The time constant of the mean latencies, and the time after the last latency at which a mean is unknown.
const MEMORY: Duration = Duration::from_secs(10);

/// Near replicas stall if none has responded for this many mean latencies, although an attempt waits.
const STALL_MEANS: f64 = 4.0;

/// A shorter silence is no stall: timers and schedulers of busy machines cause it.
const STALL_MIN: Duration = Duration::from_ms(10);

/// A mean that forgets with the time constant [`MEMORY`]. Each latency counts alike, however long after the last one it
/// comes: one slow response among many changes little.
#[derive(Clone, Copy, Debug, Default)]
struct MeanLatency {
    /// The sum of the latencies in ns, and their number. Both decay.
    sum: f64,
    count: f64,
    /// The time of the last latency.
    at: Option<Instant>,
}

impl MeanLatency {
    fn observe(&mut self, now: Instant, latency: Duration) {
        // A mean that is unknown begins anew.
        let age = self.at.map(|at| now.since(at)).filter(|age| *age < MEMORY);
        let old = age.map_or(0.0, |age| libm::exp(-age.as_ns_f64() / MEMORY.as_ns_f64()));
        self.sum = self.sum * old + latency.as_ns_f64();
        self.count = self.count * old + 1.0;
        self.at = Some(now);
    }

    /// The mean in ns.
    fn get(&self, now: Instant) -> Option<f64> {
        (now.since(self.at?) < MEMORY).then(|| self.sum / self.count)
    }
}

/// The latencies of near and far replicas.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ZoneLatencies {
    near: MeanLatency,
    far: MeanLatency,
    /// When the first near attempt was sent since the last near response.
    near_waits_since: Option<Instant>,
}

impl ZoneLatencies {
    pub(crate) fn sent(&mut self, is_far: bool, now: Instant) {
        if !is_far && self.near_waits_since.is_none() {
            self.near_waits_since = Some(now);
        }
    }

    pub(crate) fn observe(&mut self, sent: Sent, is_far: bool, now: Instant) {
        if !is_far {
            self.near_waits_since = None;
        }
        self.side(is_far).observe(now, now.since(sent.at));
    }

    /// An attempt was cancelled before its response: its latency would have been longer than its age.
    pub(crate) fn observe_cancelled(&mut self, sent: Sent, is_far: bool, now: Instant) {
        let (side, age) = (self.side(is_far), now.since(sent.at));
        if side.get(now).is_some_and(|mean| age.as_ns_f64() > mean) {
            side.observe(now, age);
        }
    }

    const fn side(&mut self, is_far: bool) -> &mut MeanLatency {
        if is_far { &mut self.far } else { &mut self.near }
    }

    /// Whether the mean of near replicas in ns tells nothing about the attempts that they have now.
    fn is_near_stalled(&self, mean: f64, now: Instant) -> bool {
        let stall = f64::max(mean * STALL_MEANS, STALL_MIN.as_ns_f64());
        self.near_waits_since.is_some_and(|since| now.since(since).as_ns_f64() > stall)
    }

    /// The far replica that gets the attempt instead of `near`, which the rule chose; absent: none.
    pub(crate) fn spill(
        &self,
        candidates: Candidates<'_>,
        near: ReplicaId,
        rng: &mut Rng,
    ) -> Option<(ReplicaId, Choice)> {
        let now = candidates.now();
        let slowdown = match self.near.get(now).zip(self.far.get(now)) {
            Some((near, far)) if near > far => near / far.max(1.0),
            Some((near, _)) if !self.is_near_stalled(near, now) => return None,
            Some(_) | None => 1.0,
        };
        let load = |id: ReplicaId| candidates.relative_in_flight(id) + 1.0;
        let near_load = load(near) * slowdown;
        // A far replica has at least no attempts in flight.
        if near_load <= SPILL_FACTOR {
            return None;
        }
        let all_far = candidates.on(ZoneSide::Far);
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
