//! The root's view of each replica of an upstream: its attempts in flight, and whether it is ejected or suspect.
//!
//! After [`EJECTION_FAILURES`] failures in a row, a replica gets no attempts for [`EJECTION`] or longer. Otherwise a
//! replica that refuses every connection would look idle and attract all requests (sinkholing). For the same reason a
//! replica is *suspect* after a later attempt at another replica overtook one of its attempts. The suspicion ends when
//! one of its responses begins, or after [`SUSPECT_AGES`] × the age of the overtaken attempt. This time doubles if
//! the replica becomes suspect again without a response, up to [`EJECTION_MAX`]. Rules that compare two replicas avoid
//! suspect ones: a third, suspect replica is chosen only if it costs less than both. They do not avoid suspect replicas if
//! the weights of the others together are below the largest weight. They avoid a *full* replica in the same way, because
//! it has fewer attempts in flight than replicas with room: one whose limit of connections has rejected an attempt, for
//! [`FULL`] or until one of its responses begins. The limit is that of one worker, and all workers avoid the replica.
//!
//! The driver may check the health of replicas, too: an *unhealthy* one gets no attempts until a check passes.
//! A replica has a *weight*, relative to those of the others. One that has joined or become healthy is *warming up* for
//! the time of `slow_start`: it gets a part of its weight, which grows evenly from [`WARM_UP_MIN`] to 1. Balancing
//! rules use the *share* of a replica: its weight times this part, divided by the largest weight. A replica of weight 0 is
//! *drained*: it gets no attempts.

mod candidates;
mod circuit;

use crate::{Load, LoadTracker, ReplicaId, ReplicaMap, Weight};
pub(crate) use candidates::{Candidates, ZoneSide};
pub use circuit::{Circuit, CircuitChange, CircuitState, EjectionReason};
use curtail_units::{Duration, Instant};

/// Maximum number of replicas of one upstream.
pub const REPLICAS_MAX: usize = 4_096;

/// A replica is ejected after this many failures in a row.
const EJECTION_FAILURES: u32 = 3;

/// Duration of the first ejection; it doubles with each further failure.
const EJECTION: Duration = Duration::from_ms(100);

const EJECTION_MAX: Duration = Duration::from_secs(10);

/// The time for which a replica is suspect, in ages of the overtaken attempt. It doubles each further time in a row. A
/// stall that has lasted for a time tends to last for several times as long.
const SUSPECT_AGES: u64 = 8;

/// The time for which a replica is full after its limit of connections has rejected an attempt.
const FULL: Duration = Duration::from_ms(100);

/// The part of its weight that a replica gets when it begins to warm up.
const WARM_UP_MIN: f64 = 0.1;

/// One replica as the root sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replica {
    /// Failures since the last success.
    failures: u32,
    /// The time of the last failure that counted.
    failed_at: Instant,
    ejected_until: Instant,
    /// Whether the driver's health checks fail.
    is_unhealthy: bool,
    weight: Weight,
    /// Whether it is in another zone than the root.
    is_far: bool,
    /// When the replica joined or became healthy, unless it has been there from the beginning.
    warms_since: Option<Instant>,
    /// Overtaken attempts since it became suspect, including the first; they count as in flight for balancing.
    overtaken: u32,
    suspect_until: Instant,
    /// The number of times in a row that the replica became suspect.
    suspected: u32,
    full_until: Instant,
    /// Attempts in flight from this root, and latencies if the replica has no leaf.
    pub(crate) load: LoadTracker,
}

impl Replica {
    /// Records a response that was complete, or that its client abandoned. It clears the failures only if its attempt
    /// was sent after the last one: an earlier attempt says nothing about the replica since then.
    pub(crate) fn succeeded(&mut self, sent: Instant) {
        if sent >= self.failed_at {
            self.failures = 0;
            self.ejected_until = Instant::ZERO;
        }
    }

    /// Whether the replica gets no attempts because of its failures.
    pub(crate) fn is_ejected(&self, now: Instant) -> bool {
        now < self.ejected_until
    }

    /// Whether the replica gets no attempts because its health checks fail.
    pub(crate) const fn is_unhealthy(&self) -> bool {
        self.is_unhealthy
    }

    pub(crate) const fn weight(&self) -> Weight {
        self.weight
    }

    /// Whether it is in another zone than the root.
    pub(crate) const fn is_far(&self) -> bool {
        self.is_far
    }

    /// The part of its weight that the replica gets, if it is warming up for the time of `slow_start`.
    pub(crate) fn warm_up_share(&self, now: Instant, slow_start: Duration) -> Option<f64> {
        let age = now.since(self.warms_since?);
        (age < slow_start).then(|| (age.as_secs_f64() / slow_start.as_secs_f64()).max(WARM_UP_MIN))
    }

    /// Attempts in flight as balancing counts them: while the replica is suspect, with the overtaken ones.
    pub(crate) fn in_flight(&self, now: Instant) -> u32 {
        let overtaken = if now < self.suspect_until { self.overtaken } else { 0 };
        self.load.in_flight().saturating_add(overtaken)
    }

    /// The rest of the time for which the replica is suspect; zero: it is not.
    pub(crate) fn suspect_for(&self, now: Instant) -> Duration {
        self.suspect_until.since(now)
    }

    /// The rest of the time for which the replica is full; zero: it is not.
    pub(crate) fn full_for(&self, now: Instant) -> Duration {
        self.full_until.since(now)
    }

    /// Whether the replica's limit of connections has just rejected an attempt.
    fn is_full(&self, now: Instant) -> bool {
        now < self.full_until
    }

    /// Whether rules that compare replicas avoid this one: it is suspect or full.
    fn is_avoided(&self, now: Instant) -> bool {
        now < self.suspect_until || self.is_full(now)
    }

    /// Records that a response has begun: the replica is neither suspect nor full any more.
    pub(crate) const fn responded(&mut self) {
        (self.overtaken, self.suspect_until, self.suspected) = (0, Instant::ZERO, 0);
        self.full_until = Instant::ZERO;
    }

    /// Records an attempt that was cancelled at this age because a later attempt at another replica was faster.
    fn overtaken(&mut self, now: Instant, age: Duration) {
        if now < self.suspect_until {
            self.overtaken = self.overtaken.saturating_add(1);
            return;
        }
        let factor = SUSPECT_AGES << self.suspected.min(16);
        let suspect = Duration::from_ns(age.as_ns().saturating_mul(factor)).min(EJECTION_MAX);
        self.suspected = self.suspected.saturating_add(1);
        (self.overtaken, self.suspect_until) = (1, now + suspect);
    }

    pub(crate) fn failed(&mut self, now: Instant) {
        // Attempts that fail during an ejection were usually sent before it. A hundred attempts that break off together
        // must not count as a hundred failures.
        if self.is_ejected(now) {
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.failed_at = now;
        if let Some(beyond) = self.failures.checked_sub(EJECTION_FAILURES) {
            let factor = 1_u64 << beyond.min(16);
            let ejection = Duration::from_ns(EJECTION.as_ns() * factor).min(EJECTION_MAX);
            self.ejected_until = now + ejection;
        }
    }
}

/// The present replicas of an upstream. Events about a replica that has left change nothing.
#[derive(Clone, Debug)]
pub(crate) struct Replicas {
    all: ReplicaMap<Replica>,
    /// The lowest number that no replica has had.
    next: ReplicaId,
    /// No replica is suspect or full from this instant on.
    avoided_until: Instant,
    /// The time for which a new or recovered replica warms up; absent: none does.
    slow_start: Option<Duration>,
    /// No replica warms up from this instant on.
    warm_from: Instant,
    weights: Weights,
}

/// What choices need of all weights and zones.
#[derive(Clone, Copy, Debug, Default)]
struct Weights {
    max: Weight,
    are_different: bool,
    has_zero: bool,
    has_far: bool,
    /// Whether a weight or the replicas have changed since.
    are_outdated: bool,
}

impl Replicas {
    pub(crate) fn new(slow_start: Option<Duration>) -> Self {
        Self {
            all: ReplicaMap::default(),
            next: ReplicaId(0),
            avoided_until: Instant::ZERO,
            slow_start,
            warm_from: Instant::ZERO,
            weights: Weights::default(),
        }
    }

    /// Replicas numbered from 0.
    #[cfg(test)]
    pub(crate) fn numbered(len: usize) -> Self {
        let mut replicas = Self::new(None);
        (0..len).for_each(|index| assert!(replicas.join(ReplicaId::at(index))));
        replicas
    }

    /// A replica that a test knows to be present.
    #[cfg(test)]
    pub(crate) fn known(&mut self, id: ReplicaId) -> &mut Replica {
        self.get_mut(id).expect("present")
    }

    /// Adds a replica; false when its number was used before or there are [`REPLICAS_MAX`].
    pub(crate) fn join(&mut self, id: ReplicaId) -> bool {
        let may_join = id >= self.next && self.len() < REPLICAS_MAX;
        if may_join {
            self.all.insert(id, Replica::default());
            self.next = ReplicaId(id.0.saturating_add(1));
            self.weights.are_outdated = true;
        }
        may_join
    }

    /// Adds a replica after the start, which warms up.
    pub(crate) fn join_later(&mut self, id: ReplicaId, now: Instant) -> bool {
        let has_joined = self.join(id);
        if has_joined && let Some(replica) = self.all.get_mut(id) {
            replica.warms_since = Some(now);
            self.warm_from = now + self.slow_start.unwrap_or_default();
        }
        has_joined
    }

    /// Records the result of the driver's health checks.
    pub(crate) fn health_checked(&mut self, id: ReplicaId, now: Instant, is_healthy: bool) {
        let Some(replica) = self.all.get_mut(id) else { return };
        if is_healthy && replica.is_unhealthy {
            replica.warms_since = Some(now);
            self.warm_from = now + self.slow_start.unwrap_or_default();
        }
        replica.is_unhealthy = !is_healthy;
    }

    pub(crate) fn set_weight(&mut self, id: ReplicaId, weight: Weight) {
        let Some(replica) = self.all.get_mut(id) else { return };
        replica.weight = weight;
        self.weights.are_outdated = true;
    }

    pub(crate) fn set_far(&mut self, id: ReplicaId, is_far: bool) {
        let Some(replica) = self.all.get_mut(id) else { return };
        replica.is_far = is_far;
        self.weights.are_outdated = true;
    }

    /// Compares the weights if one has changed. The caller does this before a choice: a change of many weights costs one
    /// walk over all.
    pub(crate) fn compare_weights(&mut self) {
        if !self.weights.are_outdated {
            return;
        }
        let weights = || self.all.values().map(|replica| replica.weight);
        let max = weights().max().unwrap_or_default();
        self.weights = Weights {
            max,
            are_different: weights().any(|weight| weight != max),
            has_zero: weights().any(Weight::is_zero),
            has_far: self.all.values().any(Replica::is_far),
            are_outdated: false,
        };
    }

    /// Whether a replica is in another zone than the root.
    pub(crate) const fn has_far(&self) -> bool {
        self.weights.has_far
    }

    /// Whether a replica has less than the largest weight.
    fn is_uneven(&self, now: Instant) -> bool {
        self.weights.are_different || now < self.warm_from
    }

    /// The weight that a replica has now, in the largest weight.
    pub(crate) fn share(&self, id: ReplicaId, now: Instant) -> f64 {
        let Some(replica) = self.get(id).filter(|_| self.is_uneven(now)) else { return 1.0 };
        let warm = self.slow_start.and_then(|time| replica.warm_up_share(now, time));
        replica.weight.get() / self.weights.max.get() * warm.unwrap_or(1.0)
    }

    /// Whether a replica has the weight 0, or is not present.
    pub(crate) fn is_drained(&self, id: ReplicaId) -> bool {
        self.get(id).is_none_or(|replica| replica.weight().is_zero())
    }

    /// Forgets a replica; false when there is no such replica.
    pub(crate) fn leave(&mut self, id: ReplicaId) -> bool {
        self.weights.are_outdated = true;
        self.all.remove(id).is_some()
    }

    pub(crate) const fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, id: ReplicaId) -> Option<&Replica> {
        self.all.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: ReplicaId) -> Option<&mut Replica> {
        self.all.get_mut(id)
    }

    /// Attempts in flight as balancing counts them.
    pub(crate) fn in_flight(&self, id: ReplicaId, now: Instant) -> u32 {
        self.get(id).map_or(0, |replica| replica.in_flight(now))
    }

    /// The load of a replica as this root sees it.
    pub(crate) fn load(&self, id: ReplicaId, now: Instant) -> Load {
        self.get(id).map_or_else(Load::default, |replica| replica.load.load(now))
    }

    /// Records an attempt that was cancelled at this age because a later attempt at another replica was faster.
    pub(crate) fn overtaken(&mut self, id: ReplicaId, now: Instant, age: Duration) {
        let Some(replica) = self.all.get_mut(id) else { return };
        replica.overtaken(now, age);
        self.avoided_until = self.avoided_until.max(replica.suspect_until);
    }

    /// Records that the limit of connections to a replica has rejected an attempt.
    pub(crate) fn rejected(&mut self, id: ReplicaId, now: Instant) {
        let Some(replica) = self.all.get_mut(id) else { return };
        replica.full_until = now + FULL;
        self.avoided_until = self.avoided_until.max(replica.full_until);
    }

    /// Every replica.
    #[cfg(test)]
    pub(crate) fn ids(&self) -> impl Iterator<Item = ReplicaId> {
        self.all.ids()
    }

    /// The candidates for an attempt: every replica of `eligible`, or of all, that is not in `exclude`.
    pub(crate) fn candidates<'a>(
        &'a self,
        now: Instant,
        eligible: Option<&'a [ReplicaId]>,
        exclude: &'a [ReplicaId],
    ) -> Candidates<'a> {
        Candidates::new(self, now, eligible, exclude)
    }
}

#[cfg(test)]
mod tests;
