//! The counters of a route that fans out.

use curtail_metrics::{Counter, CounterVec};
use curtail_sketch::{AtomicHistogram, Precision};
use curtail_units::Duration;

/// The result of a request that fans out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FanOutResult {
    /// As many shards or replicas as needed responded.
    Complete,
    /// The deadline passed first, and the client got the responses so far.
    Partial,
    /// The client got an error.
    Failed,
    /// The bodies exceeded `response_max`.
    TooLarge,
    /// The client left first.
    ClientGone,
}

curtail_units::labels!(FanOutResult {
    Complete => "complete",
    Partial => "partial",
    Failed => "failed",
    TooLarge => "too_large",
    ClientGone => "client_gone",
});

curtail_metrics::counters! {
    pub(crate) FanOutMetrics, FanOutCounts {
        requests: CounterVec<FanOutResult>,
        rest_finished: Counter,
        rest_cancelled: Counter,
        missing: Counter,
        latency: AtomicHistogram = AtomicHistogram::new(Precision::FINE),
    }
}

impl FanOutMetrics {
    /// Counts calls that were open when their request was done: they ran to their end, or there was no room for them.
    pub(crate) fn rest_ended(&self, is_finished: bool, calls: usize) {
        let counter = if is_finished { &self.rest_finished } else { &self.rest_cancelled };
        counter.add(calls as u64);
    }

    /// Counts a request for which `missing` shards or replicas failed or missed the deadline.
    pub(crate) fn ended(&self, result: FanOutResult, missing: u64, latency: Duration) {
        self.requests.add(&result, 1);
        self.missing.add(missing);
        self.latency.record(latency);
    }
}
