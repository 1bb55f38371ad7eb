//! Hedged requests: a second attempt after a delay.
//!
//! **Decides** how long a request waits before its hedge is due.
//! **Inputs**: a quantile of the upstream's recent latencies. A latency is the time from sending an attempt to its
//! response: to the headers, or to the end of a response that the driver buffers (`limits.response_buffer` in the
//! proxy). The age of a cancelled attempt counts as a censored latency; without these ages the delay would drift down.
//! **Limits**: a delay within [`HedgeConfig::delay_min`] and [`HedgeConfig::delay_max`]; [`HedgeConfig::hedges_max`]
//! hedges a request, each on another replica and paid from the [`crate::budget`].
//! **Invariants** `hedge-other-replica`, `hedge-within-budget`.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, page 77. The cap follows Cassandra's
//! `MIN(99PERCENTILE, 35MS)` (CASSANDRA-14293: one bad replica drags a bare percentile up).
//! **Hurts when** all copies are slow, because a heavy request is heavy everywhere; and near saturation, where extra
//! attempts lengthen the queues.

use crate::Reason;
use curtail_units::{Duration, Quantile};
use serde::{Deserialize, Serialize};

/// The configuration of hedges.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HedgeConfig {
    /// The hedge delay is this quantile of recent latencies. While nothing is wrong, hedges become due for about 1 −
    /// quantile of the requests. By default this is half of the budget's ratio, and the other half remains for stalls.
    pub quantile: Quantile,
    /// The minimum delay.
    pub delay_min: Duration,
    /// The maximum delay; also the delay while too few latencies are known.
    pub delay_max: Duration,
    /// Maximum number of hedges of one request.
    pub hedges_max: u8,
}

impl Default for HedgeConfig {
    fn default() -> Self {
        Self {
            quantile: Quantile::P99,
            delay_min: Duration::from_ms(1),
            delay_max: Duration::from_secs(1),
            hedges_max: 1,
        }
    }
}

/// The wait of a request before its hedge is due, given the `estimate` of the configured quantile.
#[must_use]
pub fn delay(config: &HedgeConfig, estimate: Option<Duration>) -> Duration {
    estimate.map_or(config.delay_max, |e| e.max(config.delay_min).min(config.delay_max))
}

/// The reason of a hedge that was due after `delay`, at the given `age` of the request.
#[must_use]
pub fn reason(config: &HedgeConfig, delay: Duration, age: Duration) -> Reason {
    if delay < config.delay_max {
        Reason::SlowerThanQuantile { age, delay, quantile: config.quantile }
    } else {
        Reason::SlowerThanCap { age, cap: config.delay_max }
    }
}
