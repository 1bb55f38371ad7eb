//! Why a leaf decided as it did: the counterpart of [`crate::Reason`] at the root.

use crate::Class;
use crate::label::labels;
use curtail_units::Duration;
use serde::Serialize;

/// Why a [`crate::LeafEffect`] was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LeafReason {
    /// The server had room when the request arrived.
    BelowLimit {
        /// Requests the server works on, this one included.
        in_service: u32,
        /// The most it works on.
        concurrency: u32,
    },
    /// The server has room again, and of the most urgent class that waits this request waited longest.
    NextInClass {
        /// Its class.
        class: Class,
        /// How long it waited.
        waited: Duration,
    },
    /// The request that starts is one copy of a tie.
    TieStarted,
    /// The twin started while this copy waited.
    TwinStarted {
        /// How long it waited.
        waited: Duration,
    },
    /// The twin had started before this copy arrived.
    TwinStartedBefore,
    /// The twin is at this very leaf: two replicas of the upstream lead to one server.
    TwinIsHere,
    /// As many requests wait as may, none of them less urgent.
    QueueFull {
        /// How many wait.
        len: u32,
        /// The most that may.
        max: u32,
    },
    /// As many requests wait as may; this one, the youngest of the least urgent, made room.
    PushedOut {
        /// The class of the request that took its place.
        by: Class,
        /// How long it waited.
        waited: Duration,
    },
}

labels!(LeafReason {
    BelowLimit => "below_limit",
    NextInClass => "next_in_class",
    TieStarted => "tie_started",
    TwinStarted => "twin_started",
    TwinStartedBefore => "twin_started_before",
    TwinIsHere => "twin_is_here",
    QueueFull => "queue_full",
    PushedOut => "pushed_out",
});

impl core::fmt::Display for LeafReason {
    /// One line for people: the name's meaning with its numbers.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::BelowLimit { in_service, concurrency } => {
                write!(f, "the server has room: {in_service} of {concurrency} in service")
            }
            Self::NextInClass { class, waited } => {
                write!(f, "next of class {} after waiting {waited}", class.name())
            }
            Self::TieStarted => f.write_str("a copy of a tie starts"),
            Self::TwinStarted { waited } => write!(f, "the twin started; waited {waited}"),
            Self::TwinStartedBefore => f.write_str("the twin had started before"),
            Self::TwinIsHere => f.write_str("the twin is at this leaf"),
            Self::QueueFull { len, max } => write!(f, "queue full: {len} of {max} wait"),
            Self::PushedOut { by, waited } => {
                write!(f, "queue full: made room for class {} after {waited}", by.name())
            }
        }
    }
}
