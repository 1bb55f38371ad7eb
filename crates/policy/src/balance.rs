//! Balancing: which replica gets an attempt.
//!
//! **Decides** the replica, among those that are neither excluded (they have an attempt of this request
//! already) nor left out for their failures.
//! **Inputs**: attempts in flight and latencies as this root sees them; for [`prequal`] also the load that
//! leaves report.
//! **Limits**: O(1) a choice but for the pool walk of Prequal (16 entries).
//! **Invariants** `excluded-is-never-chosen`; `some-replica-when-there-is-one`: when every replica fails,
//! failing ones are chosen rather than none.
//! **Source**: each rule names its own.
//! **Hurts when** the signal is stale or shared: many roots then choose the same replica (herding).

mod peak_ewma;
pub mod prequal;

use crate::ReplicaId;
use crate::replica::Replicas;
use alloc::boxed::Box;
use curtail_units::{Duration, Instant, Rng};
use peak_ewma::PeakEwma;
use prequal::Prequal;
pub use prequal::PrequalConfig;
use serde::{Deserialize, Serialize};

/// The rule by which an upstream's attempts are spread over its replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "policy")]
pub enum BalanceConfig {
    /// Each in turn.
    RoundRobin,
    /// Uniformly at random.
    Random,
    /// Of two drawn at random, the one with fewer attempts in flight from this root (Mitzenmacher, "The
    /// power of two choices in randomized load balancing", 1996).
    #[default]
    LeastRequest,
    /// Of two drawn at random, the one with the lower latency × (attempts in flight + 1), where the latency
    /// jumps to peaks and decays slowly.
    PeakEwma {
        /// The time constant of the decay.
        decay: Duration,
    },
    /// Probes for requests in flight and latency (Wydrowski et al., NSDI 2024).
    Prequal(PrequalConfig),
}

/// Why a replica was chosen, with the numbers that were compared.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// There was no other.
    Only,
    /// It was its turn.
    Turn,
    /// By chance.
    Chance,
    /// It had fewer attempts in flight, or as many, than the other one drawn.
    FewerInFlight {
        /// Its attempts in flight.
        in_flight: u32,
        /// Those of the other.
        other: u32,
    },
    /// Its latency × (attempts in flight + 1) was not above that of the other one drawn.
    LowerPeakEwma {
        /// Its cost.
        cost: Duration,
        /// That of the other.
        other: Duration,
    },
    /// It was cold (fewer requests in flight than the threshold) and had the lowest latency of the pool.
    ColdLowestLatency {
        /// The latency it reported.
        latency: Duration,
        /// The requests in flight it reported, plus those sent to it since.
        in_flight: u32,
        /// The threshold between cold and hot, in requests in flight.
        threshold: u32,
    },
    /// All were hot, and it had the fewest requests in flight.
    AllHotFewestInFlight {
        /// The requests in flight it reported, plus those sent to it since.
        in_flight: u32,
        /// The threshold between cold and hot, in requests in flight.
        threshold: u32,
    },
    /// The pool of probes held too few, so it was drawn at random.
    PoolTooSmall {
        /// How many it held.
        len: u32,
    },
}

impl Choice {
    /// The constant name: a metric label and a trace attribute.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::Turn => "turn",
            Self::Chance => "chance",
            Self::FewerInFlight { .. } => "fewer_in_flight",
            Self::LowerPeakEwma { .. } => "lower_peak_ewma",
            Self::ColdLowestLatency { .. } => "cold_lowest_latency",
            Self::AllHotFewestInFlight { .. } => "all_hot_fewest_in_flight",
            Self::PoolTooSmall { .. } => "pool_too_small",
        }
    }
}

/// The state of a balancing rule.
#[derive(Clone, Debug)]
pub(crate) enum Balance {
    RoundRobin { next: usize },
    Random,
    LeastRequest,
    PeakEwma(PeakEwma),
    Prequal(Box<Prequal>),
}

impl Balance {
    /// The state of `config` for `replicas` replicas; `rng` is Prequal's own.
    pub(crate) fn new(config: &BalanceConfig, replicas: usize, rng: &Rng) -> Self {
        match config {
            // Roots that start together must not walk in step.
            BalanceConfig::RoundRobin => {
                Self::RoundRobin { next: rng.split("round robin").below(replicas.max(1)) }
            }
            BalanceConfig::Random => Self::Random,
            BalanceConfig::LeastRequest => Self::LeastRequest,
            BalanceConfig::PeakEwma { decay } => Self::PeakEwma(PeakEwma::new(*decay, replicas)),
            BalanceConfig::Prequal(config) => {
                let prequal = Prequal::new(*config, replicas, &rng.split("prequal"));
                Self::Prequal(Box::new(prequal))
            }
        }
    }

    /// A replica that is not in `exclude`, if there is one.
    pub(crate) fn choose(
        &mut self,
        replicas: &Replicas,
        rng: &mut Rng,
        now: Instant,
        exclude: &[ReplicaId],
    ) -> Option<(ReplicaId, Choice)> {
        if replicas.len() == 1 {
            let only = ReplicaId::at(0);
            return (!exclude.contains(&only)).then_some((only, Choice::Only));
        }
        match self {
            Self::RoundRobin { next } => {
                let id = replicas.next_eligible(*next, now, exclude)?;
                *next = (id.index() + 1) % replicas.len();
                Some((id, Choice::Turn))
            }
            Self::Random => Some((replicas.draw(rng, now, exclude)?, Choice::Chance)),
            Self::LeastRequest => {
                let in_flight = |id: ReplicaId| replicas.get(id).in_flight(now);
                let choice = |in_flight, other| Choice::FewerInFlight { in_flight, other };
                lower_of_two(replicas, rng, (now, exclude), in_flight, choice)
            }
            Self::PeakEwma(ewma) => {
                let cost = |id: ReplicaId| ewma.cost(id, now, replicas.get(id).in_flight(now));
                let choice = |cost, other| Choice::LowerPeakEwma { cost, other };
                lower_of_two(replicas, rng, (now, exclude), cost, choice)
            }
            Self::Prequal(prequal) => prequal.choose(replicas, rng, now, exclude),
        }
    }

    /// An attempt on `id` was answered, or had lasted that long when it was cancelled.
    pub(crate) fn observed(&mut self, id: ReplicaId, now: Instant, latency: Duration) {
        if let Self::PeakEwma(ewma) = self {
            ewma.observe(id, now, latency);
        }
    }
}

/// The cheaper of two drawn replicas, or a suspect replica that is cheaper than both.
fn lower_of_two<C: Copy + PartialOrd>(
    replicas: &Replicas,
    rng: &mut Rng,
    (now, exclude): (Instant, &[ReplicaId]),
    cost: impl Fn(ReplicaId) -> C,
    choice: impl Fn(C, C) -> Choice,
) -> Option<(ReplicaId, Choice)> {
    let (first, second) = replicas.draw_two(rng, now, exclude)?;
    let chosen = lower((first, second), &cost, &choice);
    let Some(suspect) = replicas.draw_suspect(rng, now, exclude) else { return Some(chosen) };
    let (suspect_cost, other) = (cost(suspect), cost(chosen.0));
    Some(if suspect_cost < other { (suspect, choice(suspect_cost, other)) } else { chosen })
}

/// The one of two with the lower cost; the first when they are equal or there is no second.
fn lower<C: Copy + PartialOrd>(
    (first, second): (ReplicaId, Option<ReplicaId>),
    cost: impl Fn(ReplicaId) -> C,
    choice: impl Fn(C, C) -> Choice,
) -> (ReplicaId, Choice) {
    let Some(second) = second else { return (first, Choice::Only) };
    let (first_cost, second_cost) = (cost(first), cost(second));
    if second_cost < first_cost {
        (second, choice(second_cost, first_cost))
    } else {
        (first, choice(first_cost, second_cost))
    }
}

#[cfg(test)]
mod tests;
