//! A limit as a circuit breaker: whether it has rejected anything lately, for metrics, states and logs.
//!
//! The limit itself decides each rejection. The breaker opens with a rejection, and closes at the first [`tick`] after a
//! whole interval of ticks without one, so that short bursts of rejections are one line of a log.
//!
//! [`tick`]: LimitBreaker::tick

use curtail_metrics::Instrument;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The rejections of a limit.
#[derive(Debug, Default)]
pub struct LimitBreaker {
    rejected: AtomicU64,
    /// The rejections until the last tick.
    seen: AtomicU64,
    is_open: AtomicBool,
}

/// The values of a [`LimitBreaker`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCounts {
    /// The number of rejections.
    pub rejected: u64,
    /// Whether there was a rejection lately.
    pub is_open: bool,
}

impl LimitBreaker {
    /// Counts a rejection; true if it opens the breaker.
    pub fn reject(&self) -> bool {
        self.rejected.fetch_add(1, Relaxed);
        !self.is_open.swap(true, Relaxed)
    }

    /// True if the breaker closes now. Only one caller ticks, at regular times.
    pub fn tick(&self) -> bool {
        let rejected = self.rejected.load(Relaxed);
        let is_quiet = self.seen.swap(rejected, Relaxed) == rejected;
        is_quiet && self.is_open.swap(false, Relaxed)
    }
}

impl Instrument for LimitBreaker {
    type Value = LimitCounts;

    fn read(&self) -> LimitCounts {
        LimitCounts { rejected: self.rejected.load(Relaxed), is_open: self.is_open.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitBreaker, LimitCounts};
    use curtail_metrics::Instrument as _;

    #[test]
    fn a_breaker_is_open_until_an_interval_without_rejections() {
        let breaker = LimitBreaker::default();
        assert!(!breaker.tick(), "it was closed");
        assert!(breaker.reject() && !breaker.reject(), "only the first one opens it");
        assert!(!breaker.tick(), "there were rejections since the last tick");
        assert!(!breaker.reject());
        assert!(!breaker.tick());
        assert_eq!(breaker.read(), LimitCounts { rejected: 3, is_open: true });
        assert!(breaker.tick() && !breaker.tick());
        assert_eq!(breaker.read(), LimitCounts { rejected: 3, is_open: false });
        assert!(breaker.reject());
    }
}
