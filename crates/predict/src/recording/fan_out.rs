//! Requests that fan out: each makes a call to every shard, and takes as long as the slowest call.

use crate::fit::REQUESTS_MIN;
use curtail_units::{Duration, Instant};

/// The requests of a fan-out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FanOut {
    /// The number of shards, each with equally many replicas.
    pub shards: u32,
    /// The usual number of calls of a request.
    pub calls: u32,
    /// The requests, in order of arrival.
    pub requests: Vec<FanOutRequest>,
}

/// A request that fans out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanOutRequest {
    /// The arrival.
    pub arrived: Instant,
    /// The time until the response; absent if the request failed.
    pub latency: Option<Duration>,
    /// The time beyond that of its slowest call.
    pub overhead: Duration,
}

impl FanOut {
    /// Keeps the first requests: with at most `calls_max` calls, or twice the least number of requests. Returns the arrival of the first one that is left out;
    /// [`None`]: all are kept.
    pub(super) fn shorten(&mut self, calls_max: usize) -> Option<Instant> {
        let kept = (calls_max / self.calls.max(1) as usize).max(2 * REQUESTS_MIN);
        let end = self.requests.get(kept)?.arrived;
        self.requests.truncate(kept);
        Some(end)
    }
}
