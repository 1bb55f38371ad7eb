//! Retries: a further attempt after one that failed or is overdue.
//!
//! **Decides** when an attempt is overdue, whether another one follows a failed or overdue one, and after which
//! backoff.
//! **Inputs**: what happened to the attempt; a quantile of the upstream's recent latencies.
//! **Limits**: [`RetryConfig::retries_max`] retries a request, paid from the [`crate::budget`]. Only the retry of an
//! attempt that provably was not executed ([`crate::Failure::NotSent`]) is free. A retry goes to an untried replica at
//! once, and after a backoff when all were tried.
//! **Invariants** `repeat-only-if-safe`: a request that a server may have executed is sent again only if it is
//! repeatable. Its client gets no refusal, because a refusal means that nothing was executed.
//! `slow-is-not-cancelled`: an overdue attempt stays in the race with the next one.
//! **Source**: Envoy's `hedge_on_per_try_timeout`, for overdue attempts; Google Cloud, "Identifying causes of app
//! latency"; full jitter: Brooker, "Exponential backoff and jitter", AWS Architecture Blog, 2015.
//! **Hurts when** the upstream fails because of load: every retry adds to it. Hence the budget.

use curtail_units::{Duration, Quantile, Rng};
use serde::{Deserialize, Serialize};

/// When failed and overdue attempts are retried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetryConfig {
    /// Retries of one request.
    pub retries_max: u8,
    /// The bound on the wait before the first retry; it doubles with each.
    pub backoff: Duration,
    /// The bound on the wait before any retry.
    pub backoff_max: Duration,
    /// When an attempt is overdue; absent: only failed attempts are retried.
    pub overdue: Option<OverdueConfig>,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            retries_max: 2,
            backoff: Duration::from_ms(10),
            backoff_max: Duration::from_secs(1),
            overdue: Some(OverdueConfig::default()),
        }
    }
}

/// When an attempt without a response is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverdueConfig {
    /// The delay is this quantile of recent latencies. At 0.995, one attempt in two hundred is overdue.
    pub quantile: Quantile,
    /// The minimum delay.
    pub delay_min: Duration,
    /// The maximum delay; also the delay while too few latencies are known.
    pub delay_max: Duration,
}

impl Default for OverdueConfig {
    fn default() -> Self {
        Self {
            quantile: Quantile::new(0.995).expect("0.995 is a quantile"),
            delay_min: Duration::from_ms(100),
            delay_max: Duration::from_secs(5),
        }
    }
}

/// The delay after which an attempt is overdue, given the `estimate` of the configured quantile.
#[must_use]
pub fn overdue_delay(config: &OverdueConfig, estimate: Option<Duration>) -> Duration {
    estimate.map_or(config.delay_max, |e| e.max(config.delay_min).min(config.delay_max))
}

/// The wait before the `nth` retry (from 1): uniform between zero and `backoff` × 2^(nth − 1), truncated.
pub fn backoff(config: &RetryConfig, nth: u8, rng: &mut Rng) -> Duration {
    let doubled = config.backoff.mul_f64(libm::exp2(f64::from(nth.saturating_sub(1))));
    doubled.min(config.backoff_max).mul_f64(rng.unit())
}

/// The largest number of attempts that a single request can cause, and the largest average over a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amplification {
    /// Attempts of one request at most. A tie makes two more: the second copy, and one that is sent again
    /// because it was dropped for a twin that then failed.
    pub attempts_max: u32,
    /// Attempts that reach a server, for each request, averaged over the budget's window, when every attempt
    /// fails or is slow and the window holds many requests.
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
