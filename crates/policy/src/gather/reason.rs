//! Why a gather decided as it did.

use crate::label::labels;
use curtail_units::Duration;
use serde::Serialize;

/// Why a [`super::GatherEffect`] was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GatherReason {
    /// The request arrived.
    FirstWave,
    /// All canaries succeeded.
    CanariesSucceeded {
        /// The number of canaries.
        canaries: u32,
    },
    /// A canary failed, so the others do not start.
    CanaryFailed {
        /// The number of canaries.
        canaries: u32,
    },
    /// Enough calls succeeded.
    Enough {
        /// The calls that succeeded.
        succeeded: u32,
        /// The calls that were needed.
        needed: u32,
    },
    /// The calls that have not failed are too few.
    TooManyFailed {
        /// The calls that failed.
        failed: u32,
        /// All calls.
        calls: u32,
        /// The calls that were needed.
        needed: u32,
    },
    /// The deadline passed first.
    Deadline {
        /// The age of the request.
        waited: Duration,
        /// The deadline.
        deadline: Duration,
        /// The calls that succeeded.
        succeeded: u32,
        /// The calls that were needed.
        needed: u32,
    },
    /// The client left.
    ClientGone,
}

labels!(GatherReason {
    FirstWave => "first_wave",
    CanariesSucceeded => "canaries_succeeded",
    CanaryFailed => "canary_failed",
    Enough => "enough",
    TooManyFailed => "too_many_failed",
    Deadline => "deadline",
    ClientGone => "client_gone",
});

impl core::fmt::Display for GatherReason {
    /// One line for people: the name's meaning with its numbers.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::FirstWave => f.write_str("first wave"),
            Self::CanariesSucceeded { canaries } => write!(f, "all {canaries} canaries succeeded"),
            Self::CanaryFailed { canaries } => write!(f, "one of {canaries} canaries failed"),
            Self::Enough { succeeded, needed } => {
                write!(f, "{succeeded} calls succeeded, {needed} needed")
            }
            Self::TooManyFailed { failed, calls, needed } => {
                write!(f, "{failed} of {calls} calls failed, {needed} needed")
            }
            Self::Deadline { waited, deadline, succeeded, needed } => write!(
                f,
                "{succeeded} calls succeeded within {waited} (deadline {deadline}), {needed} needed"
            ),
            Self::ClientGone => f.write_str("the client has left"),
        }
    }
}
