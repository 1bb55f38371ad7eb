//! A timer that is exact to some tens of microseconds: a timer of the kernel that the runtime polls like a socket.
//!
//! The runtime's own timer counts in whole milliseconds, so a wait of 1 ms would take 2 ms.
//! **Limits**: each timer is an open file. No wait ends early. A wait ends late by the time that a processor takes to
//! wake.

use curtail_units::Duration;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

const NONE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A timer for one wait at a time.
#[derive(Debug)]
pub struct PreciseTimer(AsyncFd<OwnedFd>);

impl PreciseTimer {
    /// Creates a timer on the runtime of the caller.
    ///
    /// # Errors
    /// When the process may not open another file.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "the sound way in is unsafe, for types that may change their descriptor; this one owns it and keeps it"
        )]
        Ok(Self(AsyncFd::new(timer)?))
    }

    /// Waits for `time`. A wait that is dropped does not affect later ones.
    ///
    /// # Errors
    /// When the kernel or the runtime refuses to wait, which a timer that could be created does not cause.
    pub async fn wait(&mut self, time: Duration) -> io::Result<()> {
        if time == Duration::ZERO {
            return Ok(());
        }
        let ns = i64::try_from(time.as_ns()).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: ns / 1_000_000_000, tv_nsec: ns % 1_000_000_000 };
        let once = Itimerspec { it_interval: NONE, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.0.readable().await?;
            let mut expirations = [0; 8];
            match rustix::io::read(&self.0, &mut expirations) {
                Ok(_) => {
                    ready.clear_ready();
                    return Ok(());
                }
                // What was ready is an earlier wait, which was dropped.
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PreciseTimer;
    use curtail_units::{Duration, Rng};
    use std::time::Instant;

    #[tokio::test]
    async fn no_wait_ends_early() {
        let seed = 3;
        let mut rng = Rng::new(seed);
        let mut timer = PreciseTimer::new().expect("a file");
        for _ in 0..100 {
            let time = Duration::from_us(rng.below(1_000) as u64);
            let began = Instant::now();
            timer.wait(time).await.expect("a timer");
            assert!(Duration::from(began.elapsed()) >= time, "{time} ended early, seed {seed}");
        }
    }

    #[tokio::test]
    async fn a_dropped_wait_does_not_end_the_next_one() {
        let mut timer = PreciseTimer::new().expect("a file");
        for dropped in [Duration::from_us(1), Duration::from_secs(3_600)] {
            tokio::select! {
                biased;
                _ = timer.wait(dropped) => panic!("it was polled only once"),
                () = std::future::ready(()) => {}
            }
            // The short one is over by now, and the runtime learns it.
            let began = Instant::now();
            while began.elapsed() < Duration::from_ms(1).into() {
                tokio::task::yield_now().await;
            }
            let began = Instant::now();
            timer.wait(Duration::from_ms(5)).await.expect("a timer");
            assert!(began.elapsed() >= Duration::from_ms(5).into());
        }
    }
}
