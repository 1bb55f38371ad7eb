//! The timers of one worker's requests.
//!
//! Nearly every request sets a timer for its hedge, and nearly no timer fires. One timer of the kernel therefore serves
//! all requests of a worker, and a task that sets a timer also wakes tasks whose timers are due. When the kernel's timer
//! is set for requests that are done by now, later requests postpone it, so it wakes the worker for nothing less often.
//!
//! On a virtual machine, the kernel needs up to 9 µs to set its timer to an instant before its next tick, and 17 µs for
//! the event. At 2,500 requests/s with a hedge after 1 ms, that was a seventh of the proxy's CPU time. So while timers are
//! set without a pause ([`DENSE_AFTER`]), the requests alone wake what is due, and the kernel's timer, which is then only
//! for pauses, is set [`TICK`] ahead at least.
//! **Limits**: one entry for each request in progress. A timer fires up to [`RESOLUTION`] late, and by the time that a
//! processor takes to wake. Without pauses, a timer fires when the next one is set, or up to [`TICK`] late if none is.
//! **Hurts when** requests are steady, their hedges short (some milliseconds), and many hedges needed: a hedge is then late by
//! the time to the next request, 0.4 ms at 2,500 requests/s.

use crate::clock::Clock;
use crate::precise_timer::PreciseTimer;
use curtail_units::{Duration, Instant};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// Minimum time from one event of the kernel's timer to the next.
const RESOLUTION: Duration = Duration::from_us(100);

/// The interval of the kernel's own ticks (`CONFIG_HZ=250`, the usual one). A timer beyond the next tick costs little. A
/// time this long in which no timer is set is a pause.
const TICK: Duration = Duration::from_ms(4);

/// Timers are dense after this time without a pause: at random intervals, from some 1,500 a second on. Bursts of a fan-out
/// are not dense.
const DENSE_AFTER: Duration = Duration::from_ms(100);

/// The wakers by instant; a number distinguishes entries of the same instant.
type Due = BTreeMap<(Instant, u64), Waker>;

/// All timers of a worker.
#[derive(Debug, Default)]
pub struct Timers {
    state: Mutex<State>,
    /// Signals that the kernel's timer is to be set again.
    rearmed: Notify,
}

#[derive(Debug, Default)]
struct State {
    due: Due,
    entries: u64,
    /// The instant at which the kernel's timer wakes [`Timers::run`].
    armed: Option<Instant>,
    /// The earliest instant at which it may wake.
    earliest: Instant,
    /// When the last timer was set.
    last_set: Instant,
    /// When the last pause ended.
    dense_since: Instant,
}

impl Timers {
    /// Wakes tasks whose timers are due; runs as long as the worker. If the kernel's timer fails, that of the runtime, which
    /// counts in milliseconds, is used.
    pub async fn run(&self, clock: Clock, mut timer: PreciseTimer) {
        loop {
            let now = clock.now();
            let left = self.lock().armed.map(|at| at.since(now));
            let wait = async {
                let left = left.unwrap_or_default();
                if timer.wait(left).await.is_err() {
                    tokio::time::sleep(left.into()).await;
                }
            };
            tokio::select! {
                biased;
                () = self.rearmed.notified() => {}
                () = wait, if left.is_some() => {
                    let due = self.lock().look(clock.now());
                    due.into_values().for_each(Waker::wake);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the timers that are due at an event of the kernel's timer, which is then to be set for the next one.
    fn look(&mut self, now: Instant) -> Due {
        let due = self.take_due(now);
        self.earliest = now + RESOLUTION;
        self.armed = None;
        // The event itself shows that no timer has been set for some time.
        self.rearm(now, now);
        due
    }

    /// Whether the kernel's timer is to be set again, to `at_least` at the earliest: it would be late, or expire in less than
    /// half of the time that is left.
    fn rearm(&mut self, now: Instant, at_least: Instant) -> bool {
        let Some((&(next, _), _)) = self.due.first_key_value() else { return false };
        let next = next.max(self.earliest).max(at_least);
        let is_needed = self.armed.is_none_or(|armed| {
            next < armed || armed.since(now).as_ns() < next.since(now).as_ns() / 2
        });
        if is_needed {
            self.armed = Some(next);
        }
        is_needed
    }

    /// Notes that a timer is set. Returns the earliest instant for the kernel's timer.
    fn note_set(&mut self, now: Instant) -> Instant {
        if now.since(self.last_set) >= TICK {
            self.dense_since = now;
        }
        self.last_set = self.last_set.max(now);
        if now.since(self.dense_since) >= DENSE_AFTER { now + TICK } else { now }
    }

    fn take_due(&mut self, now: Instant) -> Due {
        if self.due.first_key_value().is_none_or(|(&(at, _), _)| at > now) {
            return Due::new();
        }
        let later = self.due.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.due, later)
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
        let due = state.take_due(now);
        let at_least = state.note_set(now);
        if state.rearm(now, at_least) {
            self.timers.rearmed.notify_one();
        }
        drop(state);
        due.into_values().for_each(Waker::wake);
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
            let mut state = timers.lock();
            (state.look(now).len(), state.armed)
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
        let mut state = timers.lock();
        assert_eq!((state.look(at(2_000)).len(), state.armed), (1, Some(at(2_200))));
        let after_this_event = (0, Some(at(2_250)));
        assert_eq!((state.look(at(2_150)).len(), state.armed), after_this_event);
        drop(state);
    }

    #[test]
    fn the_kernel_s_timer_is_set_to_an_earlier_instant_and_postponed_when_it_would_be_much_too_early()
     {
        let timers = Arc::new(Timers::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut set = |due, now| {
            let mut timer = Timer::new(&timers);
            assert!(timer.poll_until(&mut cx, at(due), at(now)).is_pending());
            (timer, timers.lock().armed)
        };
        let (first, armed) = set(2_000, 0);
        assert_eq!(armed, Some(at(2_000)));
        let (second, armed) = set(1_500, 100);
        assert_eq!(armed, Some(at(1_500)), "it is earlier");
        let (third, armed) = set(2_400, 400);
        assert_eq!(armed, Some(at(1_500)), "it is later");
        drop((first, second));
        let (fourth, armed) = set(2_450, 450);
        assert_eq!(armed, Some(at(1_500)), "most of the time of the third one");
        let (fifth, armed) = set(2_700, 700);
        assert_eq!(armed, Some(at(2_400)), "less than half of the time of the third one");
        drop((third, fourth, fifth));
        // Two events of the kernel's timer are a resolution apart.
        assert!(timers.lock().look(at(2_400)).is_empty());
        assert_eq!(set(2_410, 2_405).1, Some(at(2_500)));
    }

    /// Sets timers of 1 ms, each for a request that is done before the next one, as the kernel's timer fires meanwhile. Returns
    /// the events of that timer, and how often it was set.
    fn serve(timers: &Arc<Timers>, instants: impl Iterator<Item = u64>) -> (u32, u32) {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut events, mut settings) = (0, 0);
        for now in instants {
            if timers.lock().armed.is_some_and(|armed| armed <= at(now)) {
                events += 1;
                assert!(timers.lock().look(at(now)).is_empty());
            }
            let armed = timers.lock().armed;
            let mut timer = Timer::new(timers);
            assert!(timer.poll_until(&mut cx, at(now + 1_000), at(now)).is_pending());
            settings += u32::from(timers.lock().armed != armed);
        }
        (events, settings)
    }

    #[test]
    fn while_timers_are_dense_the_kernel_s_timer_is_for_pauses() {
        let timers = Arc::new(Timers::default());
        let mut cx = Context::from_waker(Waker::noop());
        let mut set = |due, now| {
            let mut timer = Timer::new(&timers);
            assert!(timer.poll_until(&mut cx, at(due), at(now)).is_pending());
            (timer, timers.lock().armed.expect("there is a timer"))
        };
        let (_, before) = serve(&timers, (0..250).map(|nth| nth * 400));
        assert!(before > 100, "{before}: timers are not dense yet");
        let (events, settings) = serve(&timers, (250..10_250).map(|nth| nth * 400));
        assert_eq!(events, 0);
        assert!(settings <= 2_000, "{settings}: at most every two milliseconds");
        // The next timer that is set wakes the last one.
        let now = 10_250 * 400;
        let (last, armed) = set(now + 1_000, now);
        assert!((at(now + 2_000)..=at(now + 4_000)).contains(&armed), "{armed:?}");
        let (next, _) = set(now + 2_100, now + 1_100);
        assert_eq!(timers.lock().due.len(), 1, "only its own");
        // Without a next one, the kernel's timer does, up to a tick late. From the event on, it is exact.
        let (far, armed) = set(now + 9_000, now + 1_200);
        assert!(armed <= at(now + 6_000), "{armed:?}");
        let mut state = timers.lock();
        assert_eq!((state.look(armed).len(), state.armed), (1, Some(at(now + 9_000))));
        drop(state);
        drop((last, next, far));
        // It is exact after a pause, too.
        let (_after, armed) = set(now + 10_000, now + 9_500);
        assert_eq!(armed, at(now + 10_000));
    }

    #[test]
    fn bursts_with_pauses_are_not_dense() {
        let timers = Arc::new(Timers::default());
        let mut cx = Context::from_waker(Waker::noop());
        for burst in 0..100 {
            let now = burst * 10_000;
            drop(timers.lock().look(at(now)));
            let mut calls: Vec<_> = (0..100).map(|_| Timer::new(&timers)).collect();
            for (nth, call) in (0..).zip(&mut calls) {
                assert!(
                    call.poll_until(&mut cx, at(now + nth + 1_000), at(now + nth)).is_pending()
                );
            }
            assert_eq!(timers.lock().armed, Some(at(now + 1_000)));
        }
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
