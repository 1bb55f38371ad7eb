//! The timers of one worker's requests.
//!
//! Nearly every request sets a timer for its hedge, and nearly no timer fires. One timer of the kernel therefore serves
//! all requests of a worker, and a task that sets a timer also wakes tasks whose timers are due. The kernel's timer is
//! reset only to an earlier instant: while requests set timers for later and later instants, it fires about once in the
//! hedge delay minus the latency.
//! **Limits**: one entry for each request in progress. A timer fires up to [`RESOLUTION`] late, and by the time that a
//! processor takes to wake.

use crate::clock::Clock;
use crate::precise_timer::PreciseTimer;
use curtail_units::{Duration, Instant};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// Minimum time from one event of the kernel's timer to the next: one costs as much as a tenth of a request on a virtual machine.
const RESOLUTION: Duration = Duration::from_us(100);

/// The wakers by instant; a number distinguishes entries of the same instant.
type Due = BTreeMap<(Instant, u64), Waker>;

/// All timers of a worker.
#[derive(Debug, Default)]
pub struct Timers {
    state: Mutex<State>,
    /// Signals that a timer is due earlier than [`Timers::run`] would wake.
    sooner: Notify,
}

#[derive(Debug, Default)]
struct State {
    due: Due,
    entries: u64,
    /// The instant at which [`Timers::run`] wakes.
    armed: Option<Instant>,
    /// The earliest instant at which it may wake.
    earliest: Instant,
}

impl Timers {
    /// Wakes tasks whose timers are due; runs as long as the worker. If the kernel's timer fails, that of the runtime, which
    /// counts in milliseconds, is used.
    pub async fn run(&self, clock: Clock, mut timer: PreciseTimer) {
        loop {
            let now = clock.now();
            let (due, next) = self.lock().look(now);
            due.into_values().for_each(Waker::wake);
            let left = next.map(|at| at.since(now));
            let wait = async {
                let left = left.unwrap_or_default();
                if timer.wait(left).await.is_err() {
                    tokio::time::sleep(left.into()).await;
                }
            };
            tokio::select! {
                biased;
                () = self.sooner.notified() => {}
                () = wait, if left.is_some() => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the timers that are due; also returns the next instant of the kernel's timer.
    fn look(&mut self, now: Instant) -> (Due, Option<Instant>) {
        let due = self.take_due(now);
        let next = self.due.first_key_value().map(|(&(at, _), _)| at);
        self.earliest = now + RESOLUTION;
        self.armed = next.map(|at| at.max(self.earliest));
        (due, self.armed)
    }

    fn take_due(&mut self, now: Instant) -> Due {
        let later = self.due.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.due, later)
    }

    fn is_any_due(&self, now: Instant) -> bool {
        self.due.first_key_value().is_some_and(|(&(at, _), _)| at <= now)
    }
}

/// The timer of one request.
#[derive(Debug)]
pub struct Timer {
    timers: Arc<Timers>,
    entry: Option<(Instant, u64)>,
}

impl Timer {
    /// Creates a timer that is not set.
    #[must_use]
    pub fn new(timers: &Arc<Timers>) -> Self {
        Self { timers: Arc::clone(timers), entry: None }
    }

    /// Ready once, at `at`; a call with another instant replaces the previous instant. `now` is approximately the time.
    pub fn poll_until(&mut self, cx: &mut Context<'_>, at: Instant, now: Instant) -> Poll<()> {
        let mut state = self.timers.lock();
        match self.entry {
            Some(entry) if entry.0 == at => {
                let Some(waker) = state.due.get_mut(&entry) else {
                    self.entry = None;
                    return Poll::Ready(());
                };
                waker.clone_from(cx.waker());
                return Poll::Pending;
            }
            Some(entry) => drop(state.due.remove(&entry)),
            None => {}
        }
        state.entries += 1;
        let entry = (at, state.entries);
        self.entry = Some(entry);
        state.due.insert(entry, cx.waker().clone());
        let wakes = at.max(state.earliest);
        if state.armed.is_none_or(|armed| wakes < armed) {
            state.armed = Some(wakes);
            self.timers.sooner.notify_one();
        }
        if state.is_any_due(now) {
            let due = state.take_due(now);
            drop(state);
            due.into_values().for_each(Waker::wake);
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.timers.lock().due.remove(&entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    const fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    #[test]
    fn what_is_due_is_woken_and_what_was_dropped_is_forgotten() {
        let timers = Arc::new(Timers::default());
        let mut cx = Context::from_waker(Waker::noop());
        let look = |now| {
            let (due, next) = timers.lock().look(now);
            (due.len(), next)
        };
        let (mut first, mut second) = (Timer::new(&timers), Timer::new(&timers));
        assert!(first.poll_until(&mut cx, at(10_000), at(0)).is_pending());
        assert!(second.poll_until(&mut cx, at(20_000), at(0)).is_pending());
        assert_eq!(look(at(9_000)), (0, Some(at(10_000))));
        assert_eq!(look(at(10_000)), (1, Some(at(20_000))));
        assert!(first.poll_until(&mut cx, at(10_000), at(10_000)).is_ready());
        assert!(second.poll_until(&mut cx, at(20_000), at(10_000)).is_pending());
        let later = second.poll_until(&mut cx, at(30_000), at(10_000));
        assert!(later.is_pending(), "asked for a later instant");
        assert_eq!(look(at(20_000)), (0, Some(at(30_000))));
        drop(second);
        assert_eq!(look(at(21_000)), (0, None));
    }

    #[test]
    fn a_task_that_sets_a_timer_looks_and_the_kernel_s_timer_has_a_resolution() {
        let timers = Arc::new(Timers::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut all: Vec<_> = (0..10).map(|_| Timer::new(&timers)).collect();
        for (nth, timer) in (0..).zip(&mut all) {
            let now = nth * 200;
            assert!(timer.poll_until(&mut cx, at(now + 1_000), at(now)).is_pending());
        }
        // Those that were due when the later ones were set have been taken.
        assert_eq!(timers.lock().due.len(), 5);
        assert!(all[4].poll_until(&mut cx, at(1_800), at(1_800)).is_ready());
        assert!(all[5].poll_until(&mut cx, at(2_000), at(1_800)).is_pending());
        let (due, next) = timers.lock().look(at(2_000));
        assert_eq!((due.len(), next), (1, Some(at(2_200))));
        let (due, next) = timers.lock().look(at(2_150));
        assert_eq!((due.len(), next), (0, Some(at(2_250))), "the resolution after this event");
    }

    #[test]
    fn only_an_instant_before_the_armed_one_wakes_the_task_that_waits() {
        let timers = Arc::new(Timers::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut notified = std::pin::pin!(timers.sooner.notified());
        assert!(notified.as_mut().poll(&mut cx).is_pending());
        let mut all: Vec<_> = (0..3).map(|_| Timer::new(&timers)).collect();
        assert!(all[0].poll_until(&mut cx, at(2_000), at(0)).is_pending());
        assert!(notified.as_mut().poll(&mut cx).is_ready(), "nothing was armed");
        notified.set(timers.sooner.notified());
        assert!(all[1].poll_until(&mut cx, at(3_000), at(1_000)).is_pending());
        assert!(notified.as_mut().poll(&mut cx).is_pending());
        assert!(all[2].poll_until(&mut cx, at(1_500), at(1_000)).is_pending());
        assert!(notified.as_mut().poll(&mut cx).is_ready());
        // It does not wake twice within the resolution.
        assert_eq!(timers.lock().look(at(1_490)).1, Some(at(1_590)));
        notified.set(timers.sooner.notified());
        assert!(notified.as_mut().poll(&mut cx).is_pending());
        assert!(all[1].poll_until(&mut cx, at(1_495), at(1_491)).is_pending());
        assert!(notified.as_mut().poll(&mut cx).is_pending());
    }

    #[tokio::test]
    async fn a_timer_that_is_due_sooner_than_the_one_waited_for_fires_first() {
        let timers = Arc::new(Timers::default());
        let clock = Clock::start();
        let running = Arc::clone(&timers);
        let timer = PreciseTimer::new().expect("a file");
        tokio::spawn(async move { running.run(clock, timer).await });
        let wait = |at| {
            let mut timer = Timer::new(&timers);
            async move { poll_fn(|cx| timer.poll_until(cx, at, clock.now())).await }
        };
        let now = clock.now();
        let (far, near) = (now + Duration::from_secs(3_600), now + Duration::from_ms(5));
        tokio::select! {
            () = wait(far) => panic!("an hour has not passed"),
            () = wait(near) => {}
        }
        assert!(clock.now() >= near);
    }
}
