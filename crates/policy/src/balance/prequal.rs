//! Prequal: probing for requests in flight and latency.
//!
//! **Decides** which replicas are probed, which results are kept, and which replica gets an attempt: the *cold* one
//! (few requests in flight) with the lowest latency, or, when all are *hot*, the one with the fewest in flight. Probes
//! run ahead of requests, so requests never wait. An idle upstream is probed every [`PrequalConfig::idle_interval`].
//! **Inputs**: the load that leaves report to probes. For a replica without a leaf, the root uses its own attempts in
//! flight and their latencies, and probes again after 10 s.
//! **Limits**: a pool of [`PrequalConfig::pool_len_max`] results. A result leaves the pool when its replica has a newer
//! one, when the pool is full, at [`PrequalConfig::age_max`], at the end of its reuse budget, or by removal.
//! **Invariants** `removal-leaves-two`: removal never makes the pool too small to choose from; `rates-are-exact`: n
//! requests cause n × the probe rate in probes and n × the removal rate in removals, each rounded down;
//! `one-entry-a-replica`; `never-probed-alone`: a single replica is not probed; `never-probed-drained`.
//! **Weights**: each choice looks at a replica with its share as the probability, and requests in flight count relative to
//! shares. The paper's replicas are alike.
//! **Zones**: cold near replicas come before cold far ones. If all near ones are hot, zones do not count.
//! **Source**: Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI 2024, section 4.
//! Ours: unlimited reuse where the paper's formula is undefined, removal that leaves two, and replicas without leaves.
//! **Hurts when** many roots have few requests each: probes then outnumber requests. Also when only some replicas have
//! leaves: the other replicas look less loaded than they are, because a root sees only its own requests.

mod pool;
mod threshold;

use super::{Choice, Rule};
use crate::replica::{Candidates, Replicas};
use crate::upstream::Sent;
use crate::{Load, Reason, ReplicaId, ReplicaMap};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Quantile, Rng};
use pool::{Entry, Pool};
use serde::{Deserialize, Serialize};
use threshold::Threshold;

/// The minimum size of the pool for a choice (the paper's minimum): one result leaves no choice.
const POOL_LEN_MIN: usize = 2;

/// A replica that had no leaf is probed again after this time, because leaves are deployed and removed.
const LEAF_ASKED_AGAIN_AFTER: Duration = Duration::from_secs(10);

/// A shorter idle interval would keep a driver awake for nothing.
const IDLE_INTERVAL_MIN: Duration = Duration::from_ms(1);

/// The parameters of Prequal. The defaults are the paper's, except `hot_quantile`: 0.6, the low end of what the paper
/// advises, gave a shorter tail than the paper's 0.84 at every load of `scenarios/prequal.yaml`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrequalConfig {
    /// Mean number of probes for each request, at most the number of replicas.
    pub probes_per_request: f64,
    /// Maximum number of entries of the pool.
    pub pool_len_max: u8,
    /// An entry older than this is removed.
    pub age_max: Duration,
    /// A replica is hot when its requests in flight reach this quantile of what recent probes reported; at 1 no replica
    /// is hot, and latency alone decides.
    pub hot_quantile: Quantile,
    /// Mean number of entries removed per request, oldest and worst in turn; none if all replicas fit the pool.
    pub removals_per_request: f64,
    /// δ of the reuse budget: the larger it is, the more often a result is used.
    pub reuse_slack: f64,
    /// Maximum time between the probes of an upstream without requests; at least a millisecond.
    pub idle_interval: Duration,
    /// The timeout of a probe.
    pub probe_timeout: Duration,
}

impl Default for PrequalConfig {
    fn default() -> Self {
        Self {
            probes_per_request: 3.0,
            pool_len_max: 16,
            age_max: Duration::from_secs(1),
            hot_quantile: Quantile::new(0.6).expect("0.6 is a quantile"),
            removals_per_request: 1.0,
            reuse_slack: 1.0,
            idle_interval: Duration::from_ms(250),
            probe_timeout: Duration::from_ms(3),
        }
    }
}

impl PrequalConfig {
    /// The mean number of uses after which a result leaves the pool; absent: unlimited.
    ///
    /// The paper's b = max(1, (1 + δ) / ((1 − m/n) × probes − removals)) for a pool of m results and n replicas. The
    /// divisor is the number of results that a request adds to the pool. If it is not positive, the formula is
    /// undefined: the pool loses results faster than it gets them. A limit would then only empty it, and age and
    /// removal still apply.
    fn reuse_budget(&self, replicas: usize) -> Option<f64> {
        let pooled = f64::from(self.pool_len_max) / replicas as f64;
        let growth = (1.0 - pooled) * self.probes_per_request - self.removals_per_request;
        (growth > 0.0).then(|| ((1.0 + self.reuse_slack) / growth).max(1.0))
    }
}

/// A rate per request, taken in whole numbers: n requests take n × rate, rounded down.
#[derive(Clone, Debug, Default)]
struct Rate {
    per_request: f64,
    /// The fraction that is owed, in [0, 1).
    owed: f64,
}

impl Rate {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from float to integer saturates, and a negative rate gives none"
    )]
    fn take(&mut self) -> usize {
        self.owed += self.per_request;
        let whole = libm::floor(self.owed);
        self.owed -= whole;
        whole as usize
    }
}

#[derive(Clone, Debug)]
pub(super) struct Prequal {
    config: PrequalConfig,
    reuse_budget: Option<f64>,
    probes: Rate,
    removals: Rate,
    worst_is_next: bool,
    pool: Pool,
    threshold: Threshold,
    /// Every replica once, in the order that the last shuffle of [`Self::probe`] left.
    targets: Vec<ReplicaId>,
    /// When a replica that had no leaf is probed again; absent for a replica that may have a leaf.
    leaf_asked_again: ReplicaMap<Instant>,
    /// When a replica is probed even if no request comes.
    idle_probe: Instant,
    to_send: VecDeque<(ReplicaId, Reason)>,
    target_rng: Rng,
    reuse_rng: Rng,
}

impl Prequal {
    pub(super) fn new(config: PrequalConfig, rng: &Rng) -> Self {
        let idle_interval = config.idle_interval.max(IDLE_INTERVAL_MIN);
        Self {
            reuse_budget: None,
            probes: Rate::default(),
            removals: Rate::default(),
            worst_is_next: false,
            pool: Pool::new(usize::from(config.pool_len_max)),
            threshold: Threshold::new(config.hot_quantile),
            targets: Vec::new(),
            leaf_asked_again: ReplicaMap::default(),
            idle_probe: Instant::ZERO + idle_interval,
            to_send: VecDeque::new(),
            target_rng: rng.split("target"),
            reuse_rng: rng.split("reuse"),
            config: PrequalConfig { idle_interval, ..config },
        }
    }

    /// Sets the rates and the reuse budget, which depend on the number of replicas.
    fn set_rates(&mut self) {
        let (config, replicas) = (&self.config, self.targets.len());
        // Removal keeps the worst results from filling the pool when the best are used up. If the pool has room for all
        // replicas, reuse is unlimited and the best are never used up.
        let all_fit = replicas <= usize::from(config.pool_len_max);
        let removals = config.removals_per_request.min(f64::from(config.pool_len_max));
        self.removals.per_request = if all_fit { 0.0 } else { removals };
        self.probes.per_request = config.probes_per_request.min(replicas as f64);
        self.reuse_budget = config.reuse_budget(replicas);
    }

    /// Whether the root keeps the latencies of this replica itself.
    fn is_without_leaf(&self, replica: ReplicaId) -> bool {
        self.leaf_asked_again.get(replica).is_some()
    }

    /// Probes `count` replicas, drawn uniformly without replacement from those that are not drained.
    fn probe(&mut self, replicas: &Replicas, now: Instant, count: usize, why: Reason) {
        let len = self.targets.len();
        if len < 2 || count == 0 {
            return;
        }
        self.idle_probe = now + self.config.idle_interval;
        let is_alone = |targets: &[ReplicaId]| {
            targets.iter().filter(|target| !replicas.is_drained(**target)).nth(1).is_none()
        };
        if is_alone(&self.targets) {
            return;
        }
        let mut left = count;
        for nth in 0..len {
            // A step of the Fisher-Yates shuffle: each of the remaining targets is equally likely.
            self.targets.swap(nth, nth + self.target_rng.below(len - nth));
            let target = self.targets[nth];
            if replicas.is_drained(target) {
                continue;
            }
            match self.leaf_asked_again.get(target) {
                Some(at) if now < *at => {
                    self.add(replicas, target, replicas.load(target, now), now)
                }
                _ => self.to_send.push_back((target, why)),
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }

    fn add(&mut self, replicas: &Replicas, replica: ReplicaId, load: Load, now: Instant) {
        if replicas.is_drained(replica) {
            return;
        }
        let share = replicas.share(replica, now);
        let step = in_flight_at_share(1, share).max(1);
        let load = Load { in_flight: in_flight_at_share(load.in_flight, share), ..load };
        self.threshold.record(load.in_flight);
        let uses_left = self.reuse_budget.map(|budget| self.reuse_rng.round(budget));
        self.pool.add(Entry { replica, received: now, load, step, uses_left });
    }

    fn remove_one(&mut self) {
        if self.pool.len() <= POOL_LEN_MIN {
            return;
        }
        if self.worst_is_next {
            self.pool.remove_worst(self.threshold.get());
        } else {
            self.pool.remove_oldest();
        }
        self.worst_is_next = !self.worst_is_next;
    }
}

/// The requests in flight that a replica with the share 1 would have under the same load.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from float to integer saturates"
)]
fn in_flight_at_share(in_flight: u32, share: f64) -> u32 {
    libm::round(f64::from(in_flight) / share) as u32
}

impl Rule for Prequal {
    /// The best eligible entry of the pool; a random replica when the pool is too small.
    fn choose(&mut self, candidates: Candidates<'_>, rng: &mut Rng) -> Option<(ReplicaId, Choice)> {
        self.pool.expire(candidates.now(), self.config.age_max);
        let hot_from = self.threshold.get();
        let is_eligible = |id| candidates.is_eligible(id);
        let prefers_near = candidates.prefers_near();
        let is_far = |id| prefers_near && candidates.is_far(id);
        let accepts = |id| candidates.accepts(id, rng);
        let (best, eligible) = self.pool.best(hot_from, (is_eligible, is_far), accepts);
        let Some(best) = best.filter(|_| eligible >= POOL_LEN_MIN) else {
            let id = candidates.draw(rng)?;
            self.pool.sent_to(id);
            if eligible >= POOL_LEN_MIN {
                return Some((id, Choice::Chance));
            }
            let len = u32::try_from(eligible).expect("at most pool_len_max");
            return Some((id, Choice::PoolTooSmall { len }));
        };
        let Entry { replica, load, .. } = self.pool.use_entry(best);
        let Load { in_flight, latency } = load;
        let choice = match hot_from {
            Some(threshold) if in_flight >= threshold => {
                Choice::AllHotFewestInFlight { in_flight, threshold }
            }
            threshold => Choice::ColdLowestLatency { latency, in_flight, threshold },
        };
        Some((replica, choice))
    }

    fn knows_zones(&self) -> bool {
        true
    }

    fn request_sent(&mut self, replicas: &Replicas, now: Instant) {
        for _ in 0..self.removals.take() {
            self.remove_one();
        }
        let count = self.probes.take();
        self.probe(replicas, now, count, Reason::ProbeForRequest);
    }

    fn probe_succeeded(
        &mut self,
        replicas: &Replicas,
        (replica, load): (ReplicaId, Load),
        now: Instant,
    ) {
        self.leaf_asked_again.remove(replica);
        self.add(replicas, replica, load, now);
    }

    /// From now on, the root's own view of the replica replaces the reports of a leaf.
    fn probe_unsupported(&mut self, replicas: &Replicas, replica: ReplicaId, now: Instant) {
        self.leaf_asked_again.insert(replica, now + LEAF_ASKED_AGAIN_AFTER);
        self.add(replicas, replica, replicas.load(replica, now), now);
    }

    fn latency_observed(&mut self, replicas: &mut Replicas, sent: Sent, now: Instant) {
        if self.is_without_leaf(sent.replica)
            && let Some(replica) = replicas.get_mut(sent.replica)
        {
            let latency = now.since(sent.at);
            replica.load.observe(now, sent.in_flight_on_arrival, latency);
        }
    }

    fn attempt_cancelled(&mut self, replicas: &mut Replicas, sent: Sent, now: Instant) {
        if self.is_without_leaf(sent.replica)
            && let Some(replica) = replicas.get_mut(sent.replica)
        {
            let age = now.since(sent.at);
            replica.load.observe_cancelled(now, sent.in_flight_on_arrival, age);
        }
    }

    fn replica_joined(&mut self, replica: ReplicaId) {
        self.targets.push(replica);
        self.set_rates();
    }

    fn replica_left(&mut self, replica: ReplicaId) {
        self.targets.retain(|target| *target != replica);
        self.to_send.retain(|(target, _)| *target != replica);
        self.leaf_asked_again.remove(replica);
        self.pool.remove(replica);
        self.set_rates();
    }

    fn woke(&mut self, replicas: &Replicas, now: Instant) {
        if self.poll_timeout().is_some_and(|at| now >= at) {
            self.probe(replicas, now, 1, Reason::ProbeWhenIdle);
        }
    }

    fn poll_probe(&mut self) -> Option<(ReplicaId, Reason)> {
        self.to_send.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.targets.len() > 1).then_some(self.idle_probe)
    }
}

#[cfg(test)]
mod tests;
