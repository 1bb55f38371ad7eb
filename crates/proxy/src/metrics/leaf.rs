//! The counters of a leaf.

use curtail_metrics::CounterVec;
use curtail_policy::{Decided, LeafEffect, LeafReason};
use curtail_sketch::AtomicHistogram;
use curtail_units::Duration;

curtail_metrics::counters! {
    pub(crate) LeafMetrics, LeafCounts {
        started: CounterVec<LeafReason> = CounterVec::usually(&["below_limit", "next_in_class"]),
        dropped: CounterVec<LeafReason> = CounterVec::usually(&["twin_started", "twin_started_before", "twin_is_here"]),
        refused: CounterVec<LeafReason> = CounterVec::usually(&["queue_full", "pushed_out"]),
        twin_cancels: CounterVec<LeafReason> = CounterVec::usually(&["tie_started"]),
        waited: AtomicHistogram,
    }
}

impl LeafMetrics {
    /// Counts an effect by its reason, and records the queueing time of a request that starts.
    pub(crate) fn decided(&self, decided: &Decided<LeafEffect, LeafReason>) {
        let reason = &decided.reason;
        match decided.effect {
            LeafEffect::Start { .. } => {
                self.started.add(reason, 1);
                self.waited.record(wait(reason));
            }
            LeafEffect::Drop { .. } => self.dropped.add(reason, 1),
            LeafEffect::Refuse { .. } => self.refused.add(reason, 1),
            LeafEffect::TellTwin { .. } => self.twin_cancels.add(reason, 1),
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
