//! Waits for an instant, exact to some tens of microseconds.
//!
//! The runtime's timer counts in whole milliseconds, and a sleeping processor takes time to wake. The wait therefore
//! sleeps until shortly before the instant, and then polls connections.
//! **Hurts when** many threads wait on few processors: each wait ends with polling for [`AWAKE`].

use curtail_http::clock::Clock;
use curtail_units::{Duration, Instant};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

/// The polling time before the instant: the p99 of the time that a processor takes to wake.
const AWAKE: Duration = Duration::from_us(100);

const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

#[derive(Debug)]
pub(super) struct Pace {
    timer: AsyncFd<OwnedFd>,
    clock: Clock,
}

impl Pace {
    pub(super) fn new(clock: Clock) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        #[expect(
            deprecated,
            reason = "the sound way in is unsafe, for types that may change their descriptor; this one owns it and keeps it"
        )]
        let timer = AsyncFd::new(timer)?;
        Ok(Self { timer, clock })
    }

    /// Returns at `at`, or at once when `at` has passed. Only one caller may wait at a time.
    pub(super) async fn until(&self, at: Instant) -> io::Result<()> {
        let left = at.since(self.clock.now());
        if left > AWAKE {
            self.sleep(left - AWAKE).await?;
        }
        while self.clock.now() < at {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn sleep(&self, time: Duration) -> io::Result<()> {
        let ns = i64::try_from(time.as_ns()).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
        timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: NONE, it_value },
        )?;
        let mut ready = self.timer.readable().await?;
        let mut expirations = [0; 8];
        match rustix::io::read(&self.timer, &mut expirations) {
            // Reading is what resets the timer; how often it has expired says nothing here.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
