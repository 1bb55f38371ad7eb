//! Tied requests: two copies in the queues of two replicas, each with the name of the other.
//!
//! **Decides** at the root when the second copy follows the first. [`crate::Leaf`] cancels the twin of a copy that
//! starts.
//! **Inputs**: one-way message delays between root and leaf.
//! **Limits**: two copies, on two replicas. The root sends the second copy after [`TieConfig::delay`], or, if this is
//! not set, after [`MESSAGES`] × the mean message delay. A first copy that starts at once can then cancel the second
//! before it arrives.
//! **Invariant** `tie-at-most-one-duplicate`: a crash or a lost message costs at most one redundant execution. It never
//! costs the response, because a dropped copy whose twin fails is sent again.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, pages 77–78 and table 2.
//! **Hurts when** queues are empty, because both copies then start, or when requests are slow in service, because a tie
//! ends when a copy starts.

use curtail_units::Duration;
use serde::{Deserialize, Serialize};

/// The time between the copies in mean message delays, unless [`TieConfig::delay`] is set.
pub const MESSAGES: u64 = 2;

/// The weight of a new message delay in the running mean.
const MEAN_WEIGHT: f64 = 0.05;

/// The configuration of ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TieConfig {
    /// The time between the copies; absent: two mean message delays, as measured.
    pub delay: Option<Duration>,
    /// The mean message delay before the first measurement.
    pub message_delay: Duration,
}

impl Default for TieConfig {
    fn default() -> Self {
        Self { delay: None, message_delay: Duration::from_us(500) }
    }
}

/// The ID of a tie, unique among the ties that are open at its two leaves.
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

/// A tie, as one of its copies carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tie {
    /// The ID, which both copies share.
    pub id: TieId,
    /// The replica of the other copy.
    pub twin: crate::ReplicaId,
    /// The role of this copy.
    pub role: TieRole,
}

/// The running mean of message delays, and the time between copies that follows from it.
#[derive(Clone, Debug)]
pub(crate) struct MessageDelay {
    config: TieConfig,
    mean: Duration,
}

impl MessageDelay {
    pub(crate) const fn new(config: TieConfig) -> Self {
        Self { mean: config.message_delay, config }
    }

    /// Adds the time that a message took between root and leaf, in either direction.
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
