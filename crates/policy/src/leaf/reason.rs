//! The reasons for the decisions of a leaf; [`crate::Reason`] has those of the root.

use crate::Class;
use crate::label::reasons;
use curtail_units::Duration;
use serde::Serialize;

reasons!(
    /// The reason for a [`crate::LeafEffect`].
    #[derive(Eq)]
    LeafReason {
        /// The requests in service include this one, which has just arrived.
        BelowLimit { in_service: u32, concurrency: u32 } =>
            "below_limit", "the server has room: {in_service} of {concurrency} in service";
        /// The server has room again. This request waited longest of the most urgent class in the queue.
        NextInClass { class: Class, waited: Duration } =>
            "next_in_class", "next of class {} after waiting {waited}", class.name();
        TieStarted => "tie_started", "a copy of a tie starts";
        /// This copy was queued when the message of its twin's leaf arrived.
        TwinStarted { waited: Duration } => "twin_started", "the twin started; waited {waited}";
        /// The message of the twin's leaf arrived before this copy.
        TwinStartedBefore => "twin_started_before", "the twin had started before";
        /// Both copies were sent to this leaf, because two replicas of the upstream lead to one server.
        TwinIsHere => "twin_is_here", "the twin is at this leaf";
        /// No queued request is less urgent.
        QueueFull { len: u32, max: u32 } => "queue_full", "queue full: {len} of {max} wait";
        /// This request, the youngest of the least urgent class, made room for a request of class `by`.
        PushedOut { by: Class, waited: Duration } =>
            "pushed_out", "queue full: made room for class {} after {waited}", by.name();
    }
);
