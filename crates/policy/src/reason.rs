//! Why a machine at the root decided as it did.
//!
//! A reason is what the trace attribute, the metric label, the journal and the tests all show: a short
//! constant name, and the numbers that were compared.

use crate::label::reasons;
use crate::{AttemptId, Failure};
use curtail_units::{Duration, Quantile, Ratio};
use serde::Serialize;

reasons!(
    /// Why an [`crate::Effect`] was decided.
    Reason {
        First => "first", "first attempt";
        /// The delay is this quantile of the upstream's recent latencies.
        SlowerThanQuantile { age: Duration, delay: Duration, quantile: Quantile } =>
            "slower_than_quantile", "waited {age}, longer than {delay} (quantile {quantile})";
        /// The cap is the longest delay that the configuration allows.
        SlowerThanCap { age: Duration, cap: Duration } =>
            "slower_than_cap", "waited {age}, longer than the cap {cap}";
        /// Extra attempts and requests of the budget's window.
        BudgetSpent { extra: u64, requests: u64, ratio: Ratio } =>
            "budget_spent", "budget spent: {extra} extra of {requests} requests, allowed {ratio}";
        /// Every replica has an attempt of this request already, or has failed it.
        NoOtherReplica => "no_other_replica", "no other replica";
        TieFirst => "tie_first", "first copy of a tie";
        /// The delay is two mean message delays.
        TieSecond { delay: Duration } => "tie_second", "second copy of a tie after {delay}";
        TieFirstLost { failure: Failure } =>
            "tie_first_lost", "second copy at once: first {failure}";
        /// The twin of the dropped copy had started, and was lost.
        TieStartedLost { failure: Failure } =>
            "tie_started_lost", "dropped copy again: its twin {failure}";
        /// `nth` counts the retries of this request, this one included. The backoff is drawn uniformly from zero to the
        /// truncated exponential bound.
        Retry { failure: Failure, nth: u8, backoff: Duration } =>
            "retry", "retry {nth} after {backoff}: {failure}";
        /// The last attempt is overdue, so the request is sent to another replica as well.
        Overdue { waited: Duration, delay: Duration } =>
            "overdue", "no response for {waited}; overdue after {delay}";
        FirstGood => "first_good", "first good response";
        Lost { winner: AttemptId } => "lost", "attempt {} responded first", winner.0;
        /// The response is not good.
        NothingBetter => "nothing_better", "no better response can come";
        /// The attempt failed.
        MayNotRepeat => "may_not_repeat", "the request may not be sent twice";
        /// The last of them failed.
        AttemptsSpent { attempts: u8 } => "attempts_spent", "all {attempts} attempts spent";
        /// The request's own time ran out.
        RequestTimeout { age: Duration } => "request_timeout", "no response within {age}";
        ClientGone => "client_gone", "the client has gone";
        /// Or none of the replicas that the call is pinned to.
        NoReplica => "no_replica", "the upstream has no replica";
        ProbeForRequest => "probe_for_request", "probe for a request";
        /// Nothing was probed for a while, and the load known is growing old.
        ProbeWhenIdle => "probe_when_idle", "probe while idle";
    }
);
