//! A delay that follows the recent latencies: after it a request is hedged, and an attempt is overdue.

use curtail_units::{Duration, Quantile};
use serde::{Deserialize, Serialize};

/// A quantile of the upstream's recent latencies, within limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuantileDelay {
    /// The delay is this quantile of recent latencies.
    pub quantile: Quantile,
    /// The minimum delay.
    #[serde(rename = "delay_min")]
    pub min: Duration,
    /// The maximum delay; also the delay while too few latencies are known.
    #[serde(rename = "delay_max")]
    pub max: Duration,
}

impl QuantileDelay {
    /// The estimate of the quantile within the limits; the maximum while there is no estimate.
    pub(crate) fn clamp_estimate(&self, estimate: Option<Duration>) -> Duration {
        estimate.map_or(self.max, |estimate| estimate.max(self.min).min(self.max))
    }
}
