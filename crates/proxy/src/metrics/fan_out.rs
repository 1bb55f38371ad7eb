//! What is counted of a route that fans out.

use curtail_metrics::CounterVec;
use curtail_sketch::{AtomicHistogram, Precision};
use curtail_units::Duration;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How a request to all shards ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FanOutResult {
    /// As many shards as needed responded.
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
        missing: AtomicU64 = AtomicU64::new(0),
        latency: AtomicHistogram = AtomicHistogram::new(Precision::FINE),
    }
}

impl FanOutMetrics {
    /// A request ended without the responses of `missing` shards.
    pub(crate) fn ended(&self, result: FanOutResult, missing: u64, latency: Duration) {
        self.requests.add(&result, 1);
        self.missing.fetch_add(missing, Relaxed);
        self.latency.record(latency);
    }
}
