//! What is counted of a leaf.

use super::labels::CountBy;
use curtail_metrics::Counts;
use curtail_policy::{Decided, LeafEffect, LeafReason};
use curtail_sketch::{AtomicHistogram, Histogram, Precision};
use curtail_units::Duration;

#[derive(Debug)]
pub(crate) struct LeafMetrics {
    started: CountBy<LeafReason>,
    dropped: CountBy<LeafReason>,
    refused: CountBy<LeafReason>,
    twin_cancels: CountBy<LeafReason>,
    waited: AtomicHistogram,
}

#[derive(Clone, Debug)]
pub(crate) struct LeafCounts {
    pub(super) started: Counts,
    pub(super) dropped: Counts,
    pub(super) refused: Counts,
    pub(super) twin_cancels: Counts,
    pub(super) waited: Histogram,
}

impl Default for LeafMetrics {
    fn default() -> Self {
        Self {
            started: CountBy::usually(&["below_limit", "next_in_class"]),
            dropped: CountBy::usually(&["twin_started", "twin_started_before", "twin_is_here"]),
            refused: CountBy::usually(&["queue_full", "pushed_out"]),
            twin_cancels: CountBy::usually(&["tie_started"]),
            waited: AtomicHistogram::new(Precision::COARSE),
        }
    }
}

impl LeafMetrics {
    /// The machine has decided: counts every effect by its reason, and the waits of those that start.
    pub(crate) fn decided(&self, decided: &Decided<LeafEffect, LeafReason>) {
        let reason = &decided.reason;
        match decided.effect {
            LeafEffect::Start { .. } => {
                self.started.add(reason);
                self.waited.record(wait(reason));
            }
            LeafEffect::Drop { .. } => self.dropped.add(reason),
            LeafEffect::Refuse { .. } => self.refused.add(reason),
            LeafEffect::TellTwin { .. } => self.twin_cancels.add(reason),
        }
    }

    pub(crate) fn read(&self) -> LeafCounts {
        LeafCounts {
            started: self.started.read(),
            dropped: self.dropped.read(),
            refused: self.refused.read(),
            twin_cancels: self.twin_cancels.read(),
            waited: self.waited.snapshot(),
        }
    }
}

/// The queueing time of a request that starts for this reason.
const fn wait(reason: &LeafReason) -> Duration {
    match reason {
        LeafReason::NextInClass { waited, .. } => *waited,
        LeafReason::BelowLimit { .. }
        | LeafReason::TieStarted
        | LeafReason::TwinStarted { .. }
        | LeafReason::TwinStartedBefore
        | LeafReason::TwinIsHere
        | LeafReason::QueueFull { .. }
        | LeafReason::PushedOut { .. } => Duration::ZERO,
    }
}
