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
    /// Keeps the last requests: with at most `calls_max` calls, or twice the least number of requests. Returns the number of
    /// requests that are left out.
    pub(super) fn shorten(&mut self, calls_max: usize) -> u32 {
        let kept = (calls_max / self.calls.max(1) as usize).max(2 * REQUESTS_MIN);
        let left_out = self.requests.len().saturating_sub(kept);
        self.requests.drain(..left_out);
        u32::try_from(left_out).expect("indices of requests have 32 bits")
    }
}
