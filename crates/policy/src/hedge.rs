//! Hedged requests: a second attempt after a delay.
//!
//! **Decides** how long a request waits before its hedge is due.
//! **Inputs**: a quantile of the upstream's recent latencies, from sending an attempt to its response. The age of a
//! cancelled attempt counts as a censored latency: without it the delay would drift down.
//! **Limits**: a delay within [`HedgeConfig::delay_min`] and [`HedgeConfig::delay_max`]; [`HedgeConfig::hedges_max`]
//! hedges a request, each on another replica and paid from the [`crate::budget`].
//! **Invariants** `hedge-other-replica`, `hedge-within-budget`.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, page 77. The cap follows Cassandra's
//! `MIN(99PERCENTILE, 35MS)` (CASSANDRA-14293: one bad replica drags a bare percentile up).
//! **Hurts when** copies are slow together, because a heavy request is heavy everywhere; and near saturation, where
//! extra attempts feed the queues they wait in.

use crate::Reason;
use curtail_units::{Duration, Quantile};
use serde::{Deserialize, Serialize};

/// When an upstream's requests are hedged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HedgeConfig {
    /// The hedge is due when the request is slower than this quantile of recent latencies. About 1 − quantile
    /// of the requests become due while nothing is wrong. By default they use half of the budget's ratio, and
    /// the other half remains for stalls.
    pub quantile: Quantile,
    /// The delay is never shorter than this.
    pub delay_min: Duration,
    /// The delay is never longer than this; also the delay while too few latencies are known.
    pub delay_max: Duration,
    /// Hedges of one request.
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
