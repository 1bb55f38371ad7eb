//! Why a gather decided as it did.

use crate::label::reasons;
use curtail_units::Duration;
use serde::Serialize;

reasons!(
    /// Why a [`super::GatherEffect`] was decided.
    #[derive(Eq)]
    GatherReason {
        /// The request arrived.
        FirstWave => "first_wave", "first wave";
        CanariesSucceeded { canaries: u32 } =>
            "canaries_succeeded", "all {canaries} canaries succeeded";
        /// The other calls do not start.
        CanaryFailed { canaries: u32 } => "canary_failed", "one of {canaries} canaries failed";
        Enough { succeeded: u32, needed: u32 } =>
            "enough", "{succeeded} calls succeeded, {needed} needed";
        /// The calls that have not failed are too few.
        TooManyFailed { failed: u32, calls: u32, needed: u32 } =>
            "too_many_failed", "{failed} of {calls} calls failed, {needed} needed";
        Deadline { waited: Duration, deadline: Duration, succeeded: u32, needed: u32 } =>
            "deadline",
            "{succeeded} calls succeeded within {waited} (deadline {deadline}), {needed} needed";
        ClientGone => "client_gone", "the client has left";
        RestRejected => "rest_rejected", "too many calls of earlier requests are still open";
    }
);
