//! Why a machine at the root decided as it did.
//!
//! A reason is what the trace attribute, the metric label, the journal and the tests all show: a short
//! constant name, and the numbers that were compared.

use crate::label::labels;
use crate::{AttemptId, Failure};
use curtail_units::{Duration, Quantile, Ratio};
use serde::Serialize;

/// Why an [`crate::Effect`] was decided.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The request's first attempt.
    First,
    /// The request has waited longer than a quantile of the upstream's recent latencies.
    SlowerThanQuantile {
        /// How long it has waited.
        age: Duration,
        /// The delay that it outlasted.
        delay: Duration,
        /// The quantile which that delay is.
        quantile: Quantile,
    },
    /// The request has waited longer than the longest delay that the configuration allows.
    SlowerThanCap {
        /// How long it has waited.
        age: Duration,
        /// The cap.
        cap: Duration,
    },
    /// Extra attempts have used up their share of the window.
    BudgetSpent {
        /// Extra attempts in the window.
        extra: u64,
        /// Requests in the window.
        requests: u64,
        /// The share that is allowed.
        ratio: Ratio,
    },
    /// Every replica has an attempt of this request already, or has failed it.
    NoOtherReplica,
    /// The first copy of a tie: its twin follows.
    TieFirst,
    /// The second copy of a tie, sent two mean message delays after the first.
    TieSecond {
        /// The time between the copies.
        delay: Duration,
    },
    /// The second copy goes out early, because the first was lost.
    TieFirstLost {
        /// What happened to the first.
        failure: Failure,
    },
    /// The copy that was dropped goes out again, because its twin, which had started, was lost.
    TieStartedLost {
        /// What happened to the twin.
        failure: Failure,
    },
    /// The attempt failed and another is allowed.
    Retry {
        /// What happened to the attempt before.
        failure: Failure,
        /// How many times this request has been retried, this one included.
        nth: u8,
        /// The wait, drawn uniformly from zero to the truncated exponential bound.
        backoff: Duration,
    },
    /// The last attempt is overdue, so the request is sent to another replica as well.
    Overdue {
        /// The time since the last attempt was sent, without a response.
        waited: Duration,
        /// The delay after which the attempt is overdue.
        delay: Duration,
    },
    /// It is the first good response.
    FirstGood,
    /// The response to another attempt came first.
    Lost {
        /// The one that won.
        winner: AttemptId,
    },
    /// The response is not good, and no better one can come.
    NothingBetter,
    /// The attempt failed, and the request may not be sent twice.
    MayNotRepeat,
    /// The attempt failed, and the request has had all its attempts.
    AttemptsSpent {
        /// How many it had.
        attempts: u8,
    },
    /// No response came within the request's timeout.
    RequestTimeout {
        /// How long it has waited.
        age: Duration,
    },
    /// The client has gone away.
    ClientGone,
    /// The upstream has no replica to send to.
    NoReplica,
    /// A request asks for this many probes.
    ProbeForRequest,
    /// Nothing was probed for a while, and the load known is growing old.
    ProbeWhenIdle,
}

labels!(Reason {
    First => "first",
    SlowerThanQuantile => "slower_than_quantile",
    SlowerThanCap => "slower_than_cap",
    BudgetSpent => "budget_spent",
    NoOtherReplica => "no_other_replica",
    TieFirst => "tie_first",
    TieSecond => "tie_second",
    TieFirstLost => "tie_first_lost",
    TieStartedLost => "tie_started_lost",
    Retry => "retry",
    Overdue => "overdue",
    FirstGood => "first_good",
    Lost => "lost",
    NothingBetter => "nothing_better",
    MayNotRepeat => "may_not_repeat",
    AttemptsSpent => "attempts_spent",
    RequestTimeout => "request_timeout",
    ClientGone => "client_gone",
    NoReplica => "no_replica",
    ProbeForRequest => "probe_for_request",
    ProbeWhenIdle => "probe_when_idle",
});

impl Reason {
    /// Whether it says more than its name: there are numbers that were compared, or a failure.
    #[must_use]
    pub const fn has_detail(&self) -> bool {
        !matches!(
            self,
            Self::First
                | Self::NoOtherReplica
                | Self::TieFirst
                | Self::FirstGood
                | Self::NothingBetter
                | Self::MayNotRepeat
                | Self::ClientGone
                | Self::NoReplica
                | Self::ProbeForRequest
                | Self::ProbeWhenIdle
        )
    }
}

impl core::fmt::Display for Reason {
    /// One line for people: the name's meaning with its numbers.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::First => f.write_str("first attempt"),
            Self::SlowerThanQuantile { age, delay, quantile } => {
                write!(f, "waited {age}, longer than {delay} (quantile {quantile})")
            }
            Self::SlowerThanCap { age, cap } => {
                write!(f, "waited {age}, longer than the cap {cap}")
            }
            Self::BudgetSpent { extra, requests, ratio } => {
                write!(f, "budget spent: {extra} extra of {requests} requests, allowed {ratio}")
            }
            Self::NoOtherReplica => f.write_str("no other replica"),
            Self::TieFirst => f.write_str("first copy of a tie"),
            Self::TieSecond { delay } => write!(f, "second copy of a tie after {delay}"),
            Self::TieFirstLost { failure } => write!(f, "second copy at once: first {failure}"),
            Self::TieStartedLost { failure } => {
                write!(f, "dropped copy again: its twin {failure}")
            }
            Self::Retry { failure, nth, backoff } => {
                write!(f, "retry {nth} after {backoff}: {failure}")
            }
            Self::Overdue { waited, delay } => {
                write!(f, "no response for {waited}; overdue after {delay}")
            }
            Self::FirstGood => f.write_str("first good response"),
            Self::Lost { winner } => write!(f, "attempt {} responded first", winner.0),
            Self::NothingBetter => f.write_str("no better response can come"),
            Self::MayNotRepeat => f.write_str("the request may not be sent twice"),
            Self::AttemptsSpent { attempts } => write!(f, "all {attempts} attempts spent"),
            Self::RequestTimeout { age } => write!(f, "no response within {age}"),
            Self::ClientGone => f.write_str("the client has gone"),
            Self::NoReplica => f.write_str("the upstream has no replica"),
            Self::ProbeForRequest => f.write_str("probe for a request"),
            Self::ProbeWhenIdle => f.write_str("probe while idle"),
        }
    }
}
