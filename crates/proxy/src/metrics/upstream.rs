//! The counters of an upstream.

use super::labels::ResponseClass;
use crate::config::ZoneSide;
use crate::health::CheckResult;
use curtail_metrics::{Counter, CounterVec};
use curtail_policy::{
    Decided, Effect, EjectionReason, Event, Failure, GatherReason, Outcome, Reason,
};
use curtail_sketch::{AtomicHistogram, Precision};
use curtail_units::Duration;

curtail_metrics::counters! {
    /// The counters of one upstream: the events that its machines handled, and their decisions.
    ///
    /// They take some 350 KB with the histograms, and do not grow.
    pub(crate) UpstreamMetrics, UpstreamCounts {
        health_checks: CounterVec<CheckResult>,
        ejections: CounterVec<EjectionReason>,
        requests: CounterVec<ResponseClass> = CounterVec::usually(&["none", "2xx", "3xx", "4xx", "5xx", "incomplete"]),
        latency: AtomicHistogram = AtomicHistogram::new(Precision::FINE),
        /// Ages of requests without a complete response.
        cut_short: AtomicHistogram,
        sent: CounterVec<Reason> = CounterVec::usually(&[
            "first",
            "slower_than_quantile",
            "slower_than_cap",
            "overdue",
            "tie_first",
            "tie_second",
            "tie_first_lost",
            "tie_started_lost",
            "retry",
        ]),
        /// Attempts at replicas whose zone and that of the proxy are known.
        zones: CounterVec<ZoneSide>,
        cancelled: CounterVec<Reason> = CounterVec::usually(&["lost", "request_timeout", "client_gone"]),
        cancelled_by_fan_out: CounterVec<GatherReason> = CounterVec::usually(&[]),
        responses: CounterVec<Reason> = CounterVec::usually(&["first_accepted", "nothing_better"]),
        failed: CounterVec<Reason> = CounterVec::usually(&[
            "request_timeout",
            "may_not_repeat",
            "attempts_spent",
            "budget_spent",
            "no_replica",
        ]),
        skipped: CounterVec<Reason> = CounterVec::usually(&[
            "budget_spent",
            "no_other_replica",
            "dry_run",
            "may_not_repeat",
            "attempts_spent",
        ]),
        /// Hedges of a dry run that would have been faster than the response.
        dry_run_won: Counter,
        /// Decisions about the remedies.
        remedy_decisions: CounterVec<Reason> = CounterVec::usually(&[
            "gain_estimated",
            "no_gain_estimated",
            "gain_proven",
            "no_gain",
            "gain_unproven",
            "tries_again",
        ]),
        probes: CounterVec<Reason> = CounterVec::usually(&["probe_for_request", "probe_when_idle"]),
        attempts_responded: CounterVec<Outcome>,
        // The other failures follow from responses, which are counted by outcome.
        attempts_failed: CounterVec<Failure> = CounterVec::usually(&["not_sent", "broken"]),
    }
}

impl UpstreamMetrics {
    pub(crate) fn handled(&self, event: &Event) {
        match event {
            Event::Responded { outcome, .. } => self.attempts_responded.add(outcome, 1),
            Event::Failed { failure, .. } => self.attempts_failed.add(failure, 1),
            Event::Ended { whole: false, .. } => self.attempts_failed.add(&Failure::Broken, 1),
            Event::Arrived
            | Event::Ended { whole: true, .. }
            | Event::ReplayLost
            | Event::Abandoned
            | Event::Woke => {}
        }
    }

    /// Counts an effect by its reason.
    pub(crate) fn decided(&self, decided: &Decided<Effect, Reason>) {
        let counts = match decided.effect {
            Effect::Send { .. } => &self.sent,
            Effect::Cancel { .. } => &self.cancelled,
            Effect::Respond { .. } => &self.responses,
            Effect::Fail { .. } => &self.failed,
            Effect::Skip => &self.skipped,
            Effect::Probe { .. } => &self.probes,
            Effect::SetRemedy { .. } => &self.remedy_decisions,
        };
        counts.add(&decided.reason, 1);
    }

    /// Counts a request that ended at this age. Without a complete response, the age is a lower bound of the latency.
    pub(crate) fn ended(&self, response: ResponseClass, age: Duration) {
        self.requests.add(&response, 1);
        match response {
            ResponseClass::Status(_) | ResponseClass::GrpcFailure => self.latency.record(age),
            ResponseClass::None | ResponseClass::Incomplete | ResponseClass::Cancelled => {
                self.cut_short.record(age);
            }
        }
    }
}
