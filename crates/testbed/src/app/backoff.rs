//! How long the client waits before it sends a request again.
//!
//! **Decides** truncated exponential backoff: the first wait is `backoff`, each further one twice as long as
//! the one before, up to [`WAIT_MAX`], and each is between half and one and a half times that, at random, so
//! that requests that failed together do not come back together.
//! **Source**: the retries of Google's storage clients, 500 ms × 2 ± 50 %, as the test app had them.
//! **Hurts** by itself: a request that is refused once is half a second late, however quick the server is by then.

use curtail_units::{Duration, Rng};

/// The longest wait before its jitter.
const WAIT_MAX: Duration = Duration::from_secs(32);

/// The wait after `failed` failures (from 1 on).
pub(super) fn wait(backoff: Duration, failed: u32, rng: &mut Rng) -> Duration {
    let doublings = i32::try_from(failed.saturating_sub(1)).unwrap_or(i32::MAX);
    let wait = backoff.mul_f64(2_f64.powi(doublings)).min(WAIT_MAX);
    wait.mul_f64(0.5 + rng.unit())
}

#[cfg(test)]
mod tests {
    use super::{WAIT_MAX, wait};
    use curtail_units::{Duration, Rng};

    #[test]
    fn each_wait_is_twice_the_one_before_within_half_of_it_and_truncated() {
        let seed = 7;
        let mut rng = Rng::new(seed);
        for (failed, ms) in [(1, 500), (2, 1_000), (3, 2_000), (7, 32_000), (40, 32_000)] {
            let middle = Duration::from_ms(ms).min(WAIT_MAX);
            let waits: Vec<Duration> =
                (0..200).map(|_| wait(Duration::from_ms(500), failed, &mut rng)).collect();
            let (low, high) = (middle.mul_f64(0.5), middle.mul_f64(1.5));
            assert!(waits.iter().all(|wait| (low..=high).contains(wait)), "{failed}, seed {seed}");
            // Uniform: among 200, none in either quarter would be a chance of 2 in 10^25.
            assert!(waits.iter().any(|wait| *wait < middle.mul_f64(0.75)), "{failed}, seed {seed}");
            assert!(waits.iter().any(|wait| *wait > middle.mul_f64(1.25)), "{failed}, seed {seed}");
        }
    }
}
