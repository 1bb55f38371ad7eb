//! The one clock of a run.

use curtail_units::{Duration, Instant};
use std::time::{SystemTime, UNIX_EPOCH};

/// Counts from the start of a run, without jumps; also knows which wall-clock time that was.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
    start_unix_ns: u64,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            start: std::time::Instant::now(),
            start_unix_ns: Duration::from(since_epoch).as_ns(),
        }
    }

    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + Duration::from(self.start.elapsed())
    }

    /// When it started, in nanoseconds since 1970 (UTC).
    #[must_use]
    pub const fn start_unix_ns(&self) -> u64 {
        self.start_unix_ns
    }
}
