//! What is counted of a route that fans out.

use curtail_metrics::CounterVec;
use curtail_sketch::{AtomicHistogram, Precision};
use curtail_units::Duration;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How a request that fans out ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FanOutResult {
    /// As many shards or replicas as needed responded.
    Complete,
    /// The deadline passed before that, and the client got what had come.
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
        requests: CounterVec<FanOutResult> = CounterVec::default(),
        rest_finished: AtomicU64 = AtomicU64::new(0),
        rest_cancelled: AtomicU64 = AtomicU64::new(0),
        missing: AtomicU64 = AtomicU64::new(0),
        latency: AtomicHistogram = AtomicHistogram::new(Precision::FINE),
    }
}

impl FanOutMetrics {
    /// Calls that were open when their request was done have run to their end, or there was no room for that.
    pub(crate) fn rest_ended(&self, is_finished: bool, calls: usize) {
        let counter = if is_finished { &self.rest_finished } else { &self.rest_cancelled };
        counter.fetch_add(calls as u64, Relaxed);
    }

    /// A request ended without the responses of `missing` shards or replicas.
    pub(crate) fn ended(&self, result: FanOutResult, missing: u64, latency: Duration) {
        self.requests.add(&result, 1);
        self.missing.fetch_add(missing, Relaxed);
        self.latency.record(latency);
    }
}
