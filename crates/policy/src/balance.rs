//! Balancing: the choice of the replica for an attempt. Each rule is one file that implements [`Rule`].
//!
//! **Decides** the replica, among those that are neither ejected nor excluded by an attempt of the same request.
//! **Inputs**: attempts in flight and latencies as this root sees them; for [`prequal`] also the load that leaves
//! report.
//! **Limits**: O(1) a choice, apart from Prequal's walk over its pool of 16.
//! **Invariants**: `excluded-is-never-chosen`; `some-replica-when-there-is-one`, an ejected one if all are ejected.
//! **Hurts when** the signal is stale or shared: many roots then choose the same replica (herding).

mod least_request;
mod peak_ewma;
pub mod prequal;
mod random;
mod round_robin;

use crate::replica::{Candidates, Replicas};
use crate::upstream::Sent;
use crate::{Load, Reason, ReplicaId};
use alloc::boxed::Box;
use core::fmt::{self, Debug, Display};
use curtail_units::{Duration, Instant, Rng};
use least_request::LeastRequest;
use peak_ewma::PeakEwma;
use prequal::Prequal;
pub use prequal::PrequalConfig;
use random::Random;
use round_robin::RoundRobin;
use serde::{Deserialize, Serialize};

/// The rule by which an upstream's attempts are spread over its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "policy")]
pub enum BalanceConfig {
    /// Each replica in turn.
    RoundRobin,
    /// Uniformly at random.
    Random,
    /// Of `choices` replicas drawn at random, the one with the fewest attempts in flight from this root (Mitzenmacher,
    /// "The power of two choices in randomized load balancing", 1996).
    LeastRequest {
        /// The number of replicas drawn. The first two differ; a further one may be drawn again.
        #[serde(default = "two")]
        choices: u8,
    },
    /// Of two replicas drawn at random, the one with the lower latency × (attempts in flight + 1), where the latency
    /// jumps to peaks and decays slowly.
    PeakEwma {
        /// The time constant of the decay.
        decay: Duration,
    },
    /// Probes for requests in flight and latency (Wydrowski et al., NSDI 2024).
    Prequal(PrequalConfig),
}

curtail_units::labels!(BalanceConfig {
    RoundRobin => "round_robin",
    Random => "random",
    LeastRequest => "least_request",
    PeakEwma => "peak_ewma",
    Prequal => "prequal",
});

const fn two() -> u8 {
    2
}

impl Default for BalanceConfig {
    fn default() -> Self {
        Self::LEAST_REQUEST
    }
}

impl BalanceConfig {
    /// The usual least request: of two replicas.
    pub const LEAST_REQUEST: Self = Self::LeastRequest { choices: 2 };
    /// Peak EWMA with its usual time constant.
    pub const PEAK_EWMA: Self = Self::PeakEwma { decay: Duration::from_secs(10) };

    /// The timeout of the rule's probes, if it sends probes.
    #[must_use]
    pub const fn probe_timeout(&self) -> Option<Duration> {
        if let Self::Prequal(prequal) = self { Some(prequal.probe_timeout) } else { None }
    }

    /// The rule for an upstream that `replicas` replicas are about to join. `rng` seeds the rule's own randomness.
    pub(crate) fn rule(&self, replicas: usize, rng: &Rng) -> Box<dyn Rule> {
        match self {
            Self::RoundRobin => Box::new(RoundRobin::new(replicas, &mut rng.split("round robin"))),
            Self::Random => Box::new(Random),
            Self::LeastRequest { choices } => Box::new(LeastRequest { choices: *choices }),
            Self::PeakEwma { decay } => Box::new(PeakEwma::new(*decay)),
            Self::Prequal(config) => Box::new(Prequal::new(*config, &rng.split("prequal"))),
        }
    }
}

impl Display for BalanceConfig {
    /// One line for people: the name, the rule, its main parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        match self {
            Self::RoundRobin => f.write_str(": each in turn"),
            Self::Random => Ok(()),
            Self::LeastRequest { choices: 2 } => f.write_str(": of two at random, fewer in flight"),
            Self::LeastRequest { choices } => {
                write!(f, ": of {choices} at random, fewest in flight")
            }
            Self::PeakEwma { decay } => {
                write!(f, ": of two at random, lower peak latency × in flight; decay {decay}")
            }
            Self::Prequal(PrequalConfig { probes_per_request, hot_quantile, .. }) => {
                write!(
                    f,
                    ": {probes_per_request} probes a request, hot from quantile {hot_quantile}"
                )
            }
        }
    }
}

/// The reason for choosing a replica, with the numbers that were compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "a variant explains its fields")]
pub enum Choice {
    /// There was no other replica to compare: the others were ejected, unhealthy, excluded, suspect or full.
    Only,
    /// The replica's turn had come.
    Turn,
    /// The replica was drawn at random, by its weight if weights differ.
    Chance,
    /// The replica had at most as many attempts in flight, relative to its weight, as the others drawn, of which `other`
    /// is the least.
    FewerInFlight { in_flight: u32, other: u32 },
    /// The replica's cost, latency × (attempts in flight + 1), was at most the cost of the other one drawn.
    LowerPeakEwma { cost: Duration, other: Duration },
    /// The replica was cold (fewer requests in flight than the threshold) and had the lowest latency of the cold ones.
    /// Requests that were sent after the report count as in flight. Without a threshold no replica is hot.
    ColdLowestLatency { latency: Duration, in_flight: u32, threshold: Option<u32> },
    /// All were hot (at least `threshold` requests in flight), and the replica had the fewest in flight.
    AllHotFewestInFlight { in_flight: u32, threshold: u32 },
    /// The near replica that the rule chose had too many attempts in flight, so the replica is one of another zone.
    OtherZone { in_flight: u32, near: u32 },
    /// The pool had too few eligible results of probes, so the replica was drawn at random.
    PoolTooSmall { len: u32 },
}

curtail_units::labels!(Choice {
    Only => "only",
    Turn => "turn",
    Chance => "chance",
    FewerInFlight => "fewer_in_flight",
    LowerPeakEwma => "lower_peak_ewma",
    ColdLowestLatency => "cold_lowest_latency",
    AllHotFewestInFlight => "all_hot_fewest_in_flight",
    OtherZone => "other_zone",
    PoolTooSmall => "pool_too_small",
});

/// A balancing rule and its state. Every method except [`Self::choose`] does nothing by default.
pub(crate) trait Rule: Debug + Send + CloneRule {
    /// Chooses one of the candidates, if there is one.
    fn choose(&mut self, candidates: Candidates<'_>, rng: &mut Rng) -> Option<(ReplicaId, Choice)>;

    /// Whether [`Self::choose`] itself prefers near replicas, if [`Candidates::prefers_near`]. Otherwise it gets only these.
    fn knows_zones(&self) -> bool {
        false
    }

    fn replica_joined(&mut self, _replica: ReplicaId) {}

    /// A replica has left the upstream; its number is not used again.
    fn replica_left(&mut self, _replica: ReplicaId) {}

    fn request_sent(&mut self, _replicas: &Replicas, _now: Instant) {}

    /// An attempt, sent at `sent.at`, got a good response at `now` (see [`crate::hedge`] for the end of a latency).
    fn latency_observed(&mut self, _replicas: &mut Replicas, _sent: Sent, _now: Instant) {}

    /// An attempt was cancelled before its response: its latency would have been longer than its age.
    fn attempt_cancelled(&mut self, _replicas: &mut Replicas, _sent: Sent, _now: Instant) {}

    fn probe_succeeded(
        &mut self,
        _replicas: &Replicas,
        (_replica, _load): (ReplicaId, Load),
        _now: Instant,
    ) {
    }

    /// A replica responded to a probe, but not as a leaf.
    fn probe_unsupported(&mut self, _replicas: &Replicas, _replica: ReplicaId, _now: Instant) {}

    /// The instant of [`Self::poll_timeout`] has come.
    fn woke(&mut self, _replicas: &Replicas, _now: Instant) {}

    fn poll_probe(&mut self) -> Option<(ReplicaId, Reason)> {
        None
    }

    /// When to call [`Self::woke`].
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

pub(crate) trait CloneRule {
    fn clone_rule(&self) -> Box<dyn Rule>;
}

impl<R: Rule + Clone + 'static> CloneRule for R {
    fn clone_rule(&self) -> Box<dyn Rule> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Rule> {
    fn clone(&self) -> Self {
        (**self).clone_rule()
    }
}

/// The cheapest of some drawn replicas, or a suspect replica that is cheaper than all of them. `choice` states the
/// reason for the first replica instead of the second.
fn lowest<C: PartialOrd>(
    candidates: Candidates<'_>,
    (choices, rng): (u8, &mut Rng),
    cost: impl Fn(ReplicaId) -> C,
    choice: impl Fn(ReplicaId, ReplicaId) -> Choice,
) -> Option<(ReplicaId, Choice)> {
    let (mut best, second) = candidates.draw_two(rng)?;
    let mut other = None;
    let mut compare = |id| {
        if cost(id) < cost(best) {
            other = Some(core::mem::replace(&mut best, id));
        } else if id != best && other.is_none_or(|other| cost(id) < cost(other)) {
            other = Some(id);
        }
    };
    if second.is_some() || candidates.is_uneven() {
        second.into_iter().for_each(&mut compare);
        for _ in 2..choices {
            compare(candidates.draw_two(rng)?.0);
        }
    }
    let chosen = match other {
        Some(other) => choice(best, other),
        None if candidates.is_uneven() => Choice::Chance,
        None => Choice::Only,
    };
    let suspect = candidates.draw_suspect(rng).filter(|suspect| cost(*suspect) < cost(best));
    Some(suspect.map_or((best, chosen), |suspect| (suspect, choice(suspect, best))))
}

#[cfg(test)]
mod tests;
