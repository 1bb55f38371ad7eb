//! Why a leaf decided as it did: the counterpart of [`crate::Reason`] at the root.

use crate::Class;
use crate::label::reasons;
use curtail_units::Duration;
use serde::Serialize;

reasons!(
    /// Why a [`crate::LeafEffect`] was decided.
    #[derive(Eq)]
    LeafReason {
        /// The requests in service include this one, which has just arrived.
        BelowLimit { in_service: u32, concurrency: u32 } =>
            "below_limit", "the server has room: {in_service} of {concurrency} in service";
        /// The server has room again, and of the most urgent class that waits this request waited longest.
        NextInClass { class: Class, waited: Duration } =>
            "next_in_class", "next of class {} after waiting {waited}", class.name();
        TieStarted => "tie_started", "a copy of a tie starts";
        /// This copy waited until then.
        TwinStarted { waited: Duration } => "twin_started", "the twin started; waited {waited}";
        /// This copy arrived afterwards.
        TwinStartedBefore => "twin_started_before", "the twin had started before";
        /// Two replicas of the upstream lead to one server.
        TwinIsHere => "twin_is_here", "the twin is at this leaf";
        /// No queued request is less urgent.
        QueueFull { len: u32, max: u32 } => "queue_full", "queue full: {len} of {max} wait";
        /// This request was the youngest of the least urgent; `by` is the class of the one that took its place.
        PushedOut { by: Class, waited: Duration } =>
            "pushed_out", "queue full: made room for class {} after {waited}", by.name();
    }
);
