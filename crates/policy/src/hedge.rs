//! Hedged requests: a second attempt after a delay.
//!
//! **Decides** how long a request waits before its hedge is due.
//! **Inputs**: a quantile of the upstream's recent latencies. A latency is the time from sending an attempt to its
//! response: to the headers, or to the end of a response that the driver buffers (`limits.response_buffer` in the
//! proxy). The age of a cancelled attempt counts as a censored latency; without these ages the delay would drift down.
//! **Limits**: a delay within [`QuantileDelay::min`] and [`QuantileDelay::max`]; at most [`HedgeConfig::hedges_max`]
//! hedges for one request, each on another replica and paid from the [`crate::budget`].
//! **Invariants** `hedge-other-replica`, `hedge-within-budget`.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, page 77. The cap follows Cassandra's
//! `MIN(99PERCENTILE, 35MS)` (CASSANDRA-14293: one bad replica drags a bare percentile up).
//! **Hurts when** all copies are slow, because a heavy request is heavy everywhere; and near saturation, where extra
//! attempts lengthen the queues.

use crate::{QuantileDelay, Reason};
use curtail_units::{Duration, Quantile};
use serde::{Deserialize, Serialize};

/// The configuration of hedges.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HedgeConfig {
    /// The hedge delay. While nothing is wrong, hedges become due for about 1 − quantile of the requests. By default
    /// this is half of the budget's ratio, and the other half remains for stalls.
    #[serde(flatten)]
    pub delay: QuantileDelay,
    /// Maximum number of hedges of one request.
    pub hedges_max: u8,
}

impl Default for HedgeConfig {
    fn default() -> Self {
        let (min, max) = (Duration::from_ms(1), Duration::from_secs(1));
        Self { delay: QuantileDelay { quantile: Quantile::P99, min, max }, hedges_max: 1 }
    }
}

/// The reason of a hedge that was due after `delay`, at the given `age` of the request.
#[must_use]
pub fn reason(config: &HedgeConfig, delay: Duration, age: Duration) -> Reason {
    let QuantileDelay { quantile, max, .. } = config.delay;
    if delay < max {
        Reason::SlowerThanQuantile { age, delay, quantile }
    } else {
        Reason::SlowerThanCap { age, cap: max }
    }
}
