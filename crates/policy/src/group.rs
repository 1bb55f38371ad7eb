//! The state that upstreams of a group share: recent latencies, the quantile estimates, and the budget.
//!
//! The shards of one data set are upstreams of their own that serve requests of the same kind. When a replica of one
//! shard stalls, the shard can spend budget that the other shards have not used. A shard with little traffic uses the
//! latencies of the other shards. An [`Upstream`](crate::Upstream) without a group has a `Group` to itself. Events of an
//! upstream with a group pass through [`Upstream::in_group`](crate::Upstream::in_group), which lends it the `Group`.
//! **Limits**: any number of upstreams share one budget, a window of latencies, and a window of cancelled attempts.
//! **Invariant** `extra-within-budget` holds for the group as a whole, not for each upstream.
//! **Hurts when** the upstreams differ: a slow upstream is hedged at the latency of the fast ones, and an upstream that
//! is down spends the budget of the other upstreams.

use crate::UpstreamConfig;
use crate::budget::{Budget, BudgetConfig};
use curtail_sketch::{Precision, Window};
use curtail_units::{Duration, Instant, Quantile};
use serde::{Deserialize, Serialize};

const LATENCY_WINDOW: Duration = Duration::from_secs(10);

/// The number of slots of the window. Latencies expire one slot at a time.
const LATENCY_SLOTS: usize = 10;

/// The minimum number of latencies for a quantile: 1 / (1 − 0.99), so that a p99 has at least one sample above it.
pub const SAMPLES_MIN: u64 = 100;

/// The maximum age of a computed quantile: a hundredth of the window.
pub(crate) const ESTIMATE_AGE_MAX: Duration = Duration::from_ms(100);

/// The configuration that all upstreams of a group must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupConfig {
    /// The budget of all upstreams together.
    pub budget: BudgetConfig,
    /// The quantile of recent latencies after which a request is hedged; absent: requests are not hedged.
    pub hedge_quantile: Option<Quantile>,
    /// The quantile of recent latencies after which an attempt is overdue; absent: attempts are never overdue.
    pub overdue_quantile: Option<Quantile>,
}

impl From<&UpstreamConfig> for GroupConfig {
    fn from(config: &UpstreamConfig) -> Self {
        let overdue = config.retry.and_then(|retry| retry.overdue);
        Self {
            budget: config.budget,
            hedge_quantile: config.hedge.map(|hedge| hedge.delay.quantile),
            overdue_quantile: overdue.map(|overdue| overdue.quantile),
        }
    }
}

/// A quantile of the recent latencies, cached for [`ESTIMATE_AGE_MAX`].
#[derive(Clone, Copy, Debug)]
struct Estimate {
    quantile: Quantile,
    value: Option<Duration>,
    stale_at: Instant,
}

impl Estimate {
    const fn new(quantile: Quantile) -> Self {
        Self { quantile, value: None, stale_at: Instant::ZERO }
    }

    fn get(&mut self, latencies: &mut Latencies, now: Instant) -> Option<Duration> {
        if now >= self.stale_at {
            let enough = latencies.count(now) >= SAMPLES_MIN;
            self.value = enough.then(|| latencies.quantile(now, self.quantile)).flatten();
            self.stale_at = now + ESTIMATE_AGE_MAX;
        }
        self.value
    }
}

/// The recent latencies, and the ages at which attempts were cancelled. Such an age is a censored latency: the attempt
/// would have taken longer. Dropping it, or counting it as a latency, would make the slow tail look faster than it is.
#[derive(Clone, Debug)]
struct Latencies {
    ended: Window,
    cancelled: Window,
}

impl Latencies {
    fn new() -> Self {
        let ended = Window::new(Precision::COARSE, LATENCY_WINDOW, LATENCY_SLOTS);
        Self { cancelled: ended.clone(), ended }
    }

    fn count(&mut self, now: Instant) -> u64 {
        self.ended.count(now) + self.cancelled.count(now)
    }

    fn quantile(&mut self, now: Instant, quantile: Quantile) -> Option<Duration> {
        self.ended.quantile_with_censored(&mut self.cancelled, now, quantile)
    }
}

/// The state that the upstreams of a group share.
#[derive(Clone, Debug)]
pub struct Group {
    latencies: Latencies,
    hedge: Option<Estimate>,
    overdue: Option<Estimate>,
    budget: Budget,
}

impl Group {
    /// A group without latencies and with an unspent budget.
    #[must_use]
    pub fn new(config: GroupConfig) -> Self {
        Self {
            latencies: Latencies::new(),
            hedge: config.hedge_quantile.map(Estimate::new),
            overdue: config.overdue_quantile.map(Estimate::new),
            budget: Budget::new(config.budget),
        }
    }

    pub(crate) const fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    pub(crate) fn record_latency(&mut self, now: Instant, latency: Duration) {
        self.latencies.ended.record(now, latency);
    }

    pub(crate) fn record_cancelled(&mut self, now: Instant, age: Duration) {
        self.latencies.cancelled.record(now, age);
    }

    pub(crate) fn latency(&mut self, now: Instant, quantile: Quantile) -> Option<Duration> {
        self.latencies.quantile(now, quantile)
    }

    /// The quantile after which a request is hedged, once there are [`SAMPLES_MIN`] latencies.
    pub(crate) fn hedge_estimate(&mut self, now: Instant) -> Option<Duration> {
        self.hedge.as_mut()?.get(&mut self.latencies, now)
    }

    /// The same, without an effect on later estimates.
    pub(crate) fn peek_hedge_estimate(&mut self, now: Instant) -> Option<Duration> {
        let mut estimate = self.hedge?;
        estimate.get(&mut self.latencies, now)
    }

    /// The quantile after which an attempt is overdue, once there are [`SAMPLES_MIN`] latencies.
    pub(crate) fn overdue_estimate(&mut self, now: Instant) -> Option<Duration> {
        self.overdue.as_mut()?.get(&mut self.latencies, now)
    }
}

#[cfg(test)]
mod tests;
