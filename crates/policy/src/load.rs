//! The load of a replica, as its leaf reports it to probes.
//!
//! Source: Wydrowski et al., "Load is not what you should balance: Introducing Prequal", NSDI 2024,
//! section 4.

use curtail_units::Duration;
use serde::{Deserialize, Serialize};

/// A replica's answer to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Requests that have arrived and not finished, the queue included.
    pub in_flight: u32,
    /// What a request that arrives now can expect: the median latency of recent requests that arrived
    /// at about the same number in flight.
    pub latency: Duration,
}

/// Keeps the load of one replica: O(1) a request.
#[derive(Clone, Debug, Default)]
pub struct LoadTracker {}
