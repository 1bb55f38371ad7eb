//! Tied requests: two copies queued at once, each knowing the other.
//!
//! **Decides** at the root when the second copy follows the first. [`crate::Leaf`] cancels the twin of a copy that
//! starts.
//! **Inputs**: message delays between root and leaf, one way.
//! **Limits**: two copies, on two replicas. The root sends the second [`MESSAGES`] mean message delays after the first,
//! so that the cancel of a first copy that starts at once can overtake it.
//! **Invariant** `tie-at-most-one-duplicate`: a crash or a lost message costs at most one redundant execution. It never
//! costs the response, because a dropped copy whose twin fails is sent again.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, pages 77–78 and table 2.
//! **Hurts when** queues are empty, because both copies then start, or when requests are slow in service, because a tie
//! ends when a copy starts.

use curtail_units::Duration;
use serde::{Deserialize, Serialize};

/// The second copy waits this many mean message delays.
pub const MESSAGES: u64 = 2;

/// The weight of a new message delay in the running mean.
const MEAN_WEIGHT: f64 = 0.05;

/// Whether, and how, an upstream's requests are tied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TieConfig {
    /// A fixed time between the copies; absent: two mean message delays, learned.
    pub delay: Option<Duration>,
    /// The message delay assumed before any was seen.
    pub message_delay: Duration,
}

impl Default for TieConfig {
    fn default() -> Self {
        Self { delay: None, message_delay: Duration::from_us(500) }
    }
}

/// Names one tie; unique among the ties alive at two leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TieId(pub u64);

/// One of the two copies of a tie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TieRole {
    /// The copy that was sent first.
    First,
    /// The copy that followed.
    Second,
}

/// A tie, as one of its copies knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tie {
    /// The tie's name, the same on both copies.
    pub id: TieId,
    /// The replica of the other copy.
    pub twin: crate::ReplicaId,
    /// This copy.
    pub role: TieRole,
}

/// The running mean of message delays, and what follows from it.
#[derive(Clone, Debug)]
pub(crate) struct MessageDelay {
    config: TieConfig,
    mean: Duration,
}

impl MessageDelay {
    pub(crate) const fn new(config: TieConfig) -> Self {
        Self { mean: config.message_delay, config }
    }

    /// A message took `one_way` from root to leaf, or from leaf to root.
    pub(crate) fn observe(&mut self, one_way: Duration) {
        let mean = self.mean.as_ns_f64();
        let moved = mean + MEAN_WEIGHT * (one_way.as_ns_f64() - mean);
        self.mean = Duration::from_ns_f64(moved);
    }

    pub(crate) fn between_copies(&self) -> Duration {
        self.config.delay.unwrap_or_else(|| self.mean.mul_f64(MESSAGES as f64))
    }
}

#[cfg(test)]
mod two_leaves;
