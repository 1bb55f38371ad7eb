//! A timer that is exact to some hundred microseconds: a thread that sleeps until the next instant and wakes its waiters.
//!
//! The runtime's timer counts in whole milliseconds, so a wait of 1 ms would take 2 ms.
//! **Limits**: no wait ends early. A wait ends late by the kernel's timer slack (50 µs on Linux), and by more on a busy
//! machine. A dropped wait stays in memory until its instant.
//! **Hurts when** tens of thousands of waits end in a second: each wait costs a message between two threads.

use curtail_units::{Duration, Instant};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time;
use tokio::sync::{Notify, oneshot};

/// A timer that wakes tasks at exact instants, and a clock. Its thread ends when it is dropped.
#[derive(Debug)]
pub struct Alarm {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    started: time::Instant,
    state: Mutex<State>,
    /// Notified when a wait is added that ends before all others, or when the alarm is dropped.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The waits by instant, then in the order of the calls.
    waits: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    added: u64,
    ended: bool,
}

impl Alarm {
    /// An alarm whose clock starts now.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            started: time::Instant::now(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("alarm".to_owned())
            .spawn(move || of_thread.wake_until_ended())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.now()
    }

    /// Waits until `at`; returns at once if `at` has passed.
    pub async fn until(&self, at: Instant) {
        // The wait is added here and its end awaited below, so that no lock is held meanwhile.
        let Some(woken) = self.shared.add(at) else { return };
        // It cannot end while this wait borrows it, so this is always the instant and never the end.
        let _instant = woken.await;
    }
}

/// Maximum time of one wait: a dropped wait stays in memory for at most this time.
const WAIT_MAX: Duration = Duration::from_secs(1);

impl Alarm {
    /// Waits until `due`, but at most a second, or until `due_earlier` is notified.
    pub(crate) async fn until_due(&self, due: Option<Instant>, due_earlier: &Notify) {
        let Some(due) = due else { return due_earlier.notified().await };
        tokio::select! {
            () = self.until(due.min(self.now() + WAIT_MAX)) => {}
            () = due_earlier.notified() => {}
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn now(&self) -> Instant {
        Instant::ZERO + Duration::from(self.started.elapsed())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while the lock is held")
    }

    fn add(&self, at: Instant) -> Option<oneshot::Receiver<()>> {
        if at <= self.now() {
            return None;
        }
        let (wake, woken) = oneshot::channel();
        let mut state = self.state();
        let nth = state.added;
        state.added += 1;
        let is_next = state.waits.first_key_value().is_none_or(|((next, _), _)| at < *next);
        state.waits.insert((at, nth), wake);
        drop(state);
        if is_next {
            self.changed.notify_one();
        }
        Some(woken)
    }

    fn wake_until_ended(&self) {
        let mut state = self.state();
        while !state.ended {
            let now = self.now();
            let later = state.waits.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut state.waits, later);
            if !due.is_empty() {
                // Waking takes a system call at times: not with the lock in hand.
                drop(state);
                for wake in due.into_values() {
                    // The waiter may be gone.
                    let _gone = wake.send(());
                }
                state = self.state();
                continue;
            }
            let next = state.waits.first_key_value().map(|((at, _), _)| *at);
            state = match next {
                Some(at) => {
                    let wait = self.changed.wait_timeout(state, at.since(now).into());
                    wait.expect("nothing panics while the lock is held").0
                }
                None => {
                    let wait = self.changed.wait(state);
                    wait.expect("nothing panics while the lock is held")
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Alarm;
    use curtail_units::{Duration, Instant, Rng};

    #[tokio::test]
    async fn nobody_is_woken_early_and_everybody_is_woken() {
        let seed = 3;
        let mut rng = Rng::new(seed);
        let alarm = Alarm::start().expect("a thread");
        let start = alarm.now();
        let mut instants: Vec<Instant> =
            (0..200).map(|_| start + Duration::from_us(rng.below(20_000) as u64)).collect();
        let woken = std::cell::RefCell::new(Vec::new());
        let waits = instants.iter().map(|&at| {
            let (alarm, woken) = (&alarm, &woken);
            async move {
                alarm.until(at).await;
                assert!(alarm.now() >= at, "woken before {at:?}, seed {seed}");
                woken.borrow_mut().push(at);
            }
        });
        join_all(waits).await;
        instants.sort_unstable();
        let mut woken = woken.into_inner();
        assert_eq!(woken.len(), instants.len());
        woken.sort_unstable();
        assert_eq!(woken, instants);
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_wakes_nobody_and_hinders_nobody() {
        let alarm = Alarm::start().expect("a thread");
        let soon = alarm.now() + Duration::from_ms(2);
        let far = alarm.now() + Duration::from_secs(3_600);
        tokio::select! {
            () = alarm.until(far) => panic!("an hour has not passed"),
            () = alarm.until(soon) => {}
        }
        assert!(alarm.now() >= soon);
        // Dropping joins the thread although a wait of an hour is left in the heap.
        drop(alarm);
    }

    /// Polls all futures until each is done.
    async fn join_all(futures: impl Iterator<Item = impl Future<Output = ()>>) {
        let mut futures: Vec<_> = futures.map(Box::pin).collect();
        std::future::poll_fn(move |context| {
            futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
            if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}
