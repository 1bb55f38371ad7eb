//! What is counted of an upstream and of each of its replicas.

use super::labels::{CountBy, ResponseClass};
use curtail_metrics::Counts;
use curtail_policy::{Decided, Effect, Event, Failure, Outcome, Reason};
use curtail_sketch::{AtomicHistogram, Histogram, Precision};
use curtail_units::Duration;

/// The counters of one upstream: the events that its machines handled, and their decisions.
///
/// Some 350 KB with its histograms, of which nothing grows.
#[derive(Debug)]
pub(crate) struct UpstreamMetrics {
    requests: CountBy<ResponseClass>,
    latency: AtomicHistogram,
    /// Ages of requests without a complete response.
    cut_short: AtomicHistogram,
    sent: CountBy<Reason>,
    cancelled: CountBy<Reason>,
    responses: CountBy<Reason>,
    failed: CountBy<Reason>,
    skipped: CountBy<Reason>,
    probes: CountBy<Reason>,
    attempts_responded: CountBy<Outcome>,
    attempts_failed: CountBy<Failure>,
}

#[derive(Clone, Debug)]
pub(crate) struct UpstreamCounts {
    pub(super) requests: Counts,
    pub(super) latency: Histogram,
    pub(super) cut_short: Histogram,
    pub(super) sent: Counts,
    pub(super) cancelled: Counts,
    pub(super) responses: Counts,
    pub(super) failed: Counts,
    pub(super) skipped: Counts,
    pub(super) probes: Counts,
    pub(super) attempts_responded: Counts,
    pub(super) attempts_failed: Counts,
}

impl Default for UpstreamMetrics {
    fn default() -> Self {
        Self {
            requests: CountBy::usually(&["none", "2xx", "3xx", "4xx", "5xx", "incomplete"]),
            latency: AtomicHistogram::new(Precision::FINE),
            cut_short: AtomicHistogram::new(Precision::COARSE),
            sent: CountBy::usually(&[
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
            cancelled: CountBy::usually(&["lost", "request_timeout", "client_gone"]),
            responses: CountBy::usually(&["first_good", "nothing_better"]),
            failed: CountBy::usually(&[
                "request_timeout",
                "may_not_repeat",
                "attempts_spent",
                "budget_spent",
                "no_replica",
            ]),
            skipped: CountBy::usually(&[
                "budget_spent",
                "no_other_replica",
                "may_not_repeat",
                "attempts_spent",
            ]),
            probes: CountBy::usually(&["probe_for_request", "probe_when_idle"]),
            attempts_responded: CountBy::default(),
            // The others are what the machine makes of responses.
            attempts_failed: CountBy::usually(&["not_sent", "broken"]),
        }
    }
}

impl UpstreamMetrics {
    pub(crate) fn handled(&self, event: &Event) {
        match event {
            Event::Responded { outcome, .. } => self.attempts_responded.add(outcome),
            Event::Failed { failure, .. } => self.attempts_failed.add(failure),
            Event::Ended { whole: false, .. } => self.attempts_failed.add(&Failure::Broken),
            Event::Arrived
            | Event::Ended { whole: true, .. }
            | Event::ReplayLost
            | Event::Abandoned
            | Event::Woke => {}
        }
    }

    /// A machine has decided: counts every effect by its reason.
    pub(crate) fn decided(&self, decided: &Decided<Effect, Reason>) {
        let counts = match decided.effect {
            Effect::Send { .. } => &self.sent,
            Effect::Cancel { .. } => &self.cancelled,
            Effect::Respond { .. } => &self.responses,
            Effect::Fail { .. } => &self.failed,
            Effect::Skip => &self.skipped,
            Effect::Probe { .. } => &self.probes,
        };
        counts.add(&decided.reason);
    }

    /// A request is over at this age. Without a complete response that is not its latency, but a lower bound.
    pub(crate) fn ended(&self, response: ResponseClass, age: Duration) {
        self.requests.add(&response);
        match response {
            ResponseClass::Status(_) => self.latency.record(age),
            ResponseClass::None | ResponseClass::Incomplete => self.cut_short.record(age),
        }
    }

    pub(crate) fn read(&self) -> UpstreamCounts {
        UpstreamCounts {
            requests: self.requests.read(),
            latency: self.latency.snapshot(),
            cut_short: self.cut_short.snapshot(),
            sent: self.sent.read(),
            cancelled: self.cancelled.read(),
            responses: self.responses.read(),
            failed: self.failed.read(),
            skipped: self.skipped.read(),
            probes: self.probes.read(),
            attempts_responded: self.attempts_responded.read(),
            attempts_failed: self.attempts_failed.read(),
        }
    }
}
