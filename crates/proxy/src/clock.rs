//! The one clock of the proxy's machines.

use curtail_units::{Duration, Instant};
use std::time::{SystemTime, UNIX_EPOCH};

/// Counts from the proxy's start, without jumps; also knows which wall-clock time that was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
    start_unix_ns: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            start: std::time::Instant::now(),
            start_unix_ns: Duration::from(since_epoch).as_ns(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_ns(Duration::from(self.start.elapsed()).as_ns())
    }

    /// When the runtime must wake us for `instant`; [`None`] when that is beyond any process's life.
    pub(crate) fn deadline(&self, instant: Instant) -> Option<tokio::time::Instant> {
        let since_start = std::time::Duration::from_nanos(instant.as_ns());
        self.start.checked_add(since_start).map(tokio::time::Instant::from_std)
    }

    /// The wall-clock time of `instant`, in nanoseconds since 1970.
    pub(crate) fn unix_ns(&self, instant: Instant) -> u64 {
        self.start_unix_ns.saturating_add(instant.as_ns())
    }
}
