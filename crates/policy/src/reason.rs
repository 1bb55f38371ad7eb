//! The reasons for the decisions of the machines at the root.
//!
//! A reason is a short constant name, and the numbers that were compared. Trace attributes, the journal and the tests
//! show both. Metric labels show the name.

use crate::label::reasons;
use crate::{AttemptId, Failure, RemedyEstimate, SlowShares};
use curtail_units::{Duration, Quantile, Ratio};
use serde::Serialize;

reasons!(
    /// The reason for an [`crate::Effect`].
    Reason {
        First => "first", "first attempt";
        /// `delay` is this quantile of the recent latencies, or `delay_min` if that is longer.
        SlowerThanQuantile { age: Duration, delay: Duration, quantile: Quantile } =>
            "slower_than_quantile", "waited {age}, longer than {delay} (quantile {quantile})";
        /// `cap` is `delay_max`, which is also the delay while too few latencies are known.
        SlowerThanCap { age: Duration, cap: Duration } =>
            "slower_than_cap", "waited {age}, longer than the cap {cap}";
        /// The extra attempts and the requests within the budget's window.
        BudgetSpent { extra: u64, requests: u64, ratio: Ratio } =>
            "budget_spent", "budget spent: {extra} extra of {requests} requests, allowed {ratio}";
        /// All replicas of the call were tried. After an overdue attempt: all have an open attempt.
        /// In a dry run also: no other replica has responded yet.
        NoOtherReplica => "no_other_replica", "no other replica";
        /// A hedge is due, but this is a dry run. `other` is the latency of the latest response of another replica.
        DryRun { age: Duration, delay: Duration, other: Duration } =>
            "dry_run", "dry run: waited {age}, longer than {delay}; another replica has just taken {other}";
        TieFirst => "tie_first", "first copy of a tie";
        /// `delay` is the time since the first copy: [`crate::TieConfig::delay`], or two mean message delays.
        TieSecond { delay: Duration } => "tie_second", "second copy of a tie after {delay}";
        TieFirstLost { failure: Failure } =>
            "tie_first_lost", "second copy at once: first {failure}";
        /// The twin of the dropped copy had started, and then failed.
        TieStartedLost { failure: Failure } =>
            "tie_started_lost", "dropped copy again: its twin {failure}";
        /// `nth` counts the retries of this request, including this one. `backoff` is zero for an untried replica.
        /// Otherwise it is drawn uniformly between zero and the truncated exponential bound.
        Retry { failure: Failure, nth: u8, backoff: Duration } =>
            "retry", "retry {nth} after {backoff}: {failure}";
        /// The last attempt is overdue, so the request is sent to another replica as well.
        Overdue { waited: Duration, delay: Duration } =>
            "overdue", "no response for {waited}; overdue after {delay}";
        /// The first response with an outcome that is not retried, which may be an error such as 500.
        FirstAccepted => "first_accepted", "first accepted response";
        Lost { winner: AttemptId } => "lost", "attempt {} responded first", winner.0;
        /// The response is the last one that was kept, and is not good.
        NothingBetter => "nothing_better", "no better response can come";
        /// An attempt failed, and a further one might execute the request twice, or lacks a part of the request body.
        MayNotRepeat => "may_not_repeat", "the request may not be sent twice";
        /// The request has had its maximum number of retries or attempts.
        AttemptsSpent { attempts: u8 } => "attempts_spent", "all {attempts} attempts spent";
        /// The request's timeout has passed.
        RequestTimeout { age: Duration } => "request_timeout", "no response within {age}";
        ClientGone => "client_gone", "the client has gone";
        /// The upstream has no replica, or none of those that the call is pinned to.
        NoReplica => "no_replica", "the upstream has no replica";
        /// A dry run estimates a gain: a trial begins.
        GainEstimated { estimate: RemedyEstimate } => "gain_estimated", "estimated: {estimate}";
        /// A dry run begins again.
        NoGainEstimated { estimate: RemedyEstimate } =>
            "no_gain_estimated", "estimated: {estimate}";
        /// The holdout has more slow requests: the remedies are on.
        GainProven { shares: SlowShares } => "gain_proven", "measured: {shares}";
        /// The remedies gain too little, or do harm.
        NoGain { shares: SlowShares } => "no_gain", "measured: {shares}";
        /// The time for a proof is over.
        GainUnproven { shares: SlowShares } => "gain_unproven", "measured: {shares}";
        /// A new dry run begins.
        TriesAgain { waited: Duration } => "tries_again", "off for {waited}";
        ProbeForRequest => "probe_for_request", "probe for a request";
        /// No probe was sent for a while, so the known loads are getting old.
        ProbeWhenIdle => "probe_when_idle", "probe while idle";
    }
);
