//! Connections that are opened ahead of requests, so that a request finds one after a start, a join or a quiet time.
//!
//! A refill opens one connection after the other, until `idle_min` HTTP/1.1 connections are idle or an HTTP/2 connection
//! is open. A failure ends it; the next one begins after [`WAIT_MIN`], doubled with each failure in a row up to
//! [`WAIT_MAX`], so that a server that refuses connections is asked less and less.
//! **Limits**: one refill of a pool at a time.

use super::{ExchangeError, NewLease, Pool, Transport as _};
use crate::clock::Clock;
use curtail_units::{Duration, Instant};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The wait after the first failure in a row.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// The longest wait after a failure.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The refills of one pool.
#[derive(Debug, Default)]
pub(super) struct Refills(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    failures_in_row: u32,
    /// The next refill begins no earlier.
    due: Instant,
}

impl Refills {
    /// Whether a refill begins now.
    fn begin(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let begins = !state.is_running && now >= state.due;
        state.is_running |= begins;
        begins
    }

    fn end(&self, now: Instant, has_succeeded: bool) {
        let mut state = self.lock();
        state.is_running = false;
        if has_succeeded {
            state.failures_in_row = 0;
        } else {
            let doublings = state.failures_in_row.min(5);
            state.due = now + WAIT_MIN.mul_f64(f64::from(1_u32 << doublings)).min(WAIT_MAX);
            state.failures_in_row = state.failures_in_row.saturating_add(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Opens the connections that are missing, after `delay`.
    pub fn refill(self: &Arc<Self>, clock: &Clock, delay: std::time::Duration) {
        if !self.is_missing_idle() || !self.refills.begin(clock.now()) {
            return;
        }
        let (pool, clock) = (Arc::clone(self), *clock);
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            let mut result = Ok(());
            while result.is_ok() && pool.is_missing_idle() {
                result = pool.open_idle(&clock).await;
            }
            if let Err(error) = &result {
                tracing::debug!(%error, "failed to open a connection ahead of requests");
            }
            pool.refills.end(clock.now(), result.is_ok());
        });
    }

    fn is_missing_idle(&self) -> bool {
        let is_missing = self.http1.idle_count() < self.config.idle_min;
        let has_room = self.http1.connection_count() < self.config.connections_max;
        is_missing && has_room && self.http2.connection_count() == 0
    }

    async fn open_idle(&self, clock: &Clock) -> Result<(), ExchangeError> {
        let Some(attempt) = self.attempts.begin_idle_attempt(&*self.http2) else {
            return Err(ExchangeError::AttemptFailed { server: self.server() });
        };
        match self.open_lease(attempt, clock).await?.0 {
            NewLease::Http1(lease) => self.http1.put_idle(lease, clock.now()),
            // The connection stays without its lease.
            NewLease::Http2(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Refills, WAIT_MAX, WAIT_MIN};
    use curtail_units::{Duration, Instant};

    #[test]
    fn one_refill_runs_at_a_time_and_failures_in_a_row_double_the_wait() {
        let refills = Refills::default();
        let mut now = Instant::ZERO;
        let mut expected = WAIT_MIN;
        for _ in 0..2 {
            for _ in 0..10 {
                assert!(refills.begin(now) && !refills.begin(now), "{now:?}");
                refills.end(now, false);
                let due = now + expected;
                assert!(!refills.begin(Instant::from_ns(due.as_ns() - 1)), "{now:?}");
                now = due;
                expected = (expected + expected).min(WAIT_MAX);
            }
            assert_eq!(expected, WAIT_MAX);
            assert!(refills.begin(now));
            refills.end(now, true);
            assert!(refills.begin(now), "no wait after a success");
            refills.end(now, true);
            expected = Duration::from_secs(1);
        }
    }
}
