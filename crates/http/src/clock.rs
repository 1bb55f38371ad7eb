//! A monotonic clock with the wall-clock time of its start.

use curtail_units::{Duration, Instant};
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall-clock time, since 1970.
#[must_use]
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().into()
}

/// A monotonic clock that counts from its start, and has the wall-clock time of its start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
    start_unix_ns: u64,
}

impl Clock {
    /// Starts the clock: its first instant is zero.
    #[must_use]
    pub fn start() -> Self {
        Self { start: std::time::Instant::now(), start_unix_ns: unix_time().as_ns() }
    }

    /// Returns the time since the start.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_ns(Duration::from(self.start.elapsed()).as_ns())
    }

    /// Returns the deadline of the runtime for `instant`; [`None`] if `instant` is too far in the future.
    #[must_use]
    #[inline]
    pub fn deadline(&self, instant: Instant) -> Option<tokio::time::Instant> {
        let since_start = std::time::Duration::from_nanos(instant.as_ns());
        self.start.checked_add(since_start).map(tokio::time::Instant::from_std)
    }

    /// Returns the wall-clock time of `instant`, in nanoseconds since 1970.
    #[must_use]
    #[inline]
    pub fn unix_ns(&self, instant: Instant) -> u64 {
        self.start_unix_ns.saturating_add(instant.as_ns())
    }
}
