//! Retries: a further attempt after one that failed or is overdue.
//!
//! **Decides** when an attempt is overdue, whether a further attempt follows a failed or overdue one, and after which
//! backoff.
//! **Inputs**: failures of attempts; a quantile of the upstream's recent latencies.
//! **Limits**: at most [`RetryConfig::retries_max`] retries for one request, paid from the [`crate::budget`]. These
//! retries are free: of an attempt that provably has caused no load ([`crate::Failure::NotSent`],
//! [`crate::Failure::Unprocessed`], [`crate::Failure::ConnectionLimit`]), and of a copy that a leaf dropped and whose twin
//! failed ([`crate::Failure::TwinLost`]). A retry goes to an untried replica without a backoff, and to any replica after a
//! backoff when all were tried.
//! **Invariants** `repeat-only-if-safe`: a request that a server may have executed is sent again only if it is
//! repeatable. If it is not repeatable, its client gets no refusal, because a refusal states that nothing was executed.
//! `slow-is-not-cancelled`: an overdue attempt stays in the race with the next one.
//! **Source**: Envoy's `hedge_on_per_try_timeout`, for overdue attempts; Google Cloud, "Identifying causes of app
//! latency"; full jitter: Brooker, "Exponential backoff and jitter", AWS Architecture Blog, 2015.
//! **Hurts when** the upstream fails because of load: every retry adds load. The budget limits this.

use crate::QuantileDelay;
use curtail_units::{Duration, Quantile, Rng};
use serde::{Deserialize, Serialize};

/// The configuration of retries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryConfig {
    /// Maximum number of retries of one request, including further attempts after overdue ones.
    pub retries_max: u8,
    /// Maximum wait before the first retry; it doubles with each further retry.
    pub backoff: Duration,
    /// Maximum wait before any retry.
    pub backoff_max: Duration,
    /// The delay after which an attempt without a response is overdue; absent: only failed attempts are retried.
    pub overdue: Option<QuantileDelay>,
}

impl RetryConfig {
    /// The default of [`Self::overdue`]: one attempt in two hundred is overdue.
    pub const OVERDUE: QuantileDelay = QuantileDelay {
        quantile: Quantile::P995,
        min: Duration::from_ms(100),
        max: Duration::from_secs(5),
    };
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            retries_max: 2,
            backoff: Duration::from_ms(10),
            backoff_max: Duration::from_secs(1),
            overdue: Some(Self::OVERDUE),
        }
    }
}

/// The wait before retry `nth` (from 1): uniform between zero and `backoff` × 2^(nth − 1), or `backoff_max` if less.
pub fn backoff(config: &RetryConfig, nth: u8, rng: &mut Rng) -> Duration {
    let doubled = config.backoff.mul_f64(libm::exp2(f64::from(nth.saturating_sub(1))));
    doubled.min(config.backoff_max).mul_f64(rng.unit())
}

/// The maximum number of attempts of a single request, and the maximum mean per request over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amplification {
    /// Maximum number of attempts of one request. A tie adds two: the second copy, and a dropped copy that is sent
    /// again because its twin failed.
    pub attempts_max: u32,
    /// Maximum mean number of attempts per request that reach a server, over a budget window with many requests, when
    /// every attempt fails or is slow.
    pub average_max: f64,
}

#[cfg(test)]
mod tests {
    use super::{RetryConfig, backoff};
    use curtail_units::{Duration, Rng};

    #[test]
    fn backoff_doubles_is_truncated_and_uses_the_full_range() {
        let config = RetryConfig { backoff_max: Duration::from_ms(25), ..RetryConfig::default() };
        let mut rng = Rng::new(5);
        for (nth, bound_ms) in [(1, 10), (2, 20), (3, 25), (200, 25)] {
            let draws = [(); 1000].map(|()| backoff(&config, nth, &mut rng));
            let longest = draws.iter().max().copied().expect("a thousand draws");
            let shortest = draws.iter().min().copied().expect("a thousand draws");
            assert!(longest <= Duration::from_ms(bound_ms), "{nth}: {longest}");
            assert!(longest > Duration::from_ms(bound_ms).mul_f64(0.98), "{nth}: {longest}");
            assert!(shortest < Duration::from_ms(bound_ms).mul_f64(0.02), "{nth}: {shortest}");
        }
    }
}
