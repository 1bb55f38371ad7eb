//! Detects a lack of progress: a client that does not read, a stream without bytes in either direction.

use crate::clock::Clock;
use crate::timers::{Timer, Timers};
use curtail_units::{Duration, Instant};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A timer that becomes ready when a count has not changed for a time.
///
/// A poll costs one read of the clock. The timer is set at most once per timeout, because it is set again only if it
/// fires before the deadline. All polls come from one task.
#[derive(Debug)]
pub struct ProgressTimer {
    timer: Timer,
    clock: Clock,
    timeout: Duration,
    /// The count at its last change.
    seen: Option<u64>,
    /// The deadline for the next change.
    until: Instant,
    armed: Option<Instant>,
}

impl ProgressTimer {
    /// Creates a timer that rests.
    #[must_use]
    pub fn new(timers: &Arc<Timers>, clock: Clock, timeout: Duration) -> Self {
        let (seen, until, armed) = (None, Instant::default(), None);
        Self { timer: Timer::new(timers), clock, timeout, seen, until, armed }
    }

    /// Stops the timer while no progress is expected.
    #[inline]
    pub const fn rest(&mut self) {
        self.seen = None;
    }

    /// Takes the current count while progress is expected; ready at the deadline.
    pub fn poll(&mut self, cx: &mut Context<'_>, count: u64) -> Poll<()> {
        self.poll_within(cx, count, self.timeout)
    }

    /// The same with another timeout, which applies from the next change of the count.
    pub fn poll_within(&mut self, cx: &mut Context<'_>, count: u64, timeout: Duration) -> Poll<()> {
        let now = self.clock.now();
        if self.seen != Some(count) {
            self.seen = Some(count);
            self.until = now + timeout;
        }
        // The timer that is set wakes this task later.
        if self.armed.is_some_and(|at| now < at && at <= self.until) {
            return Poll::Pending;
        }
        loop {
            let at = self.armed.map_or(self.until, |at| at.min(self.until));
            self.armed = Some(at);
            ready!(self.timer.poll_until(cx, at, now));
            self.armed = None;
            if at >= self.until {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::precise_timer::PreciseTimer;
    use std::future::poll_fn;
    use std::task::Waker;

    #[tokio::test]
    async fn it_is_late_when_nothing_has_moved_since_it_last_did() {
        let timers = Arc::new(Timers::default());
        let clock = Clock::start();
        let running = Arc::clone(&timers);
        let timer = PreciseTimer::new().expect("a file");
        tokio::spawn(async move { running.run(clock, timer).await });
        let timer = |ms| ProgressTimer::new(&timers, clock, Duration::from_ms(ms));
        let (mut half, mut whole) = (timer(20), timer(40));
        let start = clock.now();
        assert!(poll_fn(|cx| Poll::Ready(whole.poll(cx, 0))).await.is_pending());
        poll_fn(|cx| half.poll(cx, 0)).await;
        poll_fn(|cx| whole.poll(cx, 1)).await;
        assert!(clock.now().since(start) >= Duration::from_ms(60), "it moved after half the time");
        whole.rest();
        assert!(whole.poll(&mut Context::from_waker(Waker::noop()), 1).is_pending());
        let mut hour = timer(3_600_000);
        assert!(poll_fn(|cx| Poll::Ready(hour.poll(cx, 0))).await.is_pending());
        // A shorter timeout replaces the deadline that is set.
        poll_fn(|cx| hour.poll_within(cx, 1, Duration::from_ms(1))).await;
    }
}
