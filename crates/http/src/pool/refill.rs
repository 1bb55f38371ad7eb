//! Connections that are opened ahead of requests, so that a request finds one after a start, a join or a quiet time.
//!
//! A refill opens one connection after the other, until `idle_min` HTTP/1.1 connections are idle or an HTTP/2 connection
//! is open. Connections that soon reach their idle timeout do not count, so their successors are open before they close.
//!
//! A failure ends a refill; the next one begins after [`WAIT_MIN`], doubled with each failure in a row up to [`WAIT_MAX`],
//! and up to half of this wait more, at random. A server that closes a connection at once, before a request, is a failure
//! too.
//! The pool logs that a server does not keep idle connections, after [`REPORTED_FAILURES`] failures in a row, and that it
//! keeps them again.
//! **Limits**: one refill of a pool at a time.

use super::{ExchangeError, NewLease, Pool, Transport as _};
use crate::clock::Clock;
use crate::connect::ConnectConfig;
use curtail_units::{Duration, Instant};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The wait after the first failure in a row.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// The longest wait after a failure.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// A server that closes a new connection within this time does not keep idle connections. Servers with an idle timeout
/// wait longer.
pub(super) const KEPT_MIN: Duration = Duration::from_secs(2);
/// The failures in a row after which a closed connection is no coincidence.
const REPORTED_FAILURES: u32 = 3;
/// The successor of a connection is opened this long before the connection reaches its idle timeout.
const SUCCESSION_MAX: Duration = Duration::from_secs(5);

/// The idle time after which a connection needs a successor. An idle timeout of 4 s leaves two ticks of the driver.
pub(super) fn succession_after(idle_timeout: Duration) -> Duration {
    idle_timeout - idle_timeout.mul_f64(0.5).min(SUCCESSION_MAX)
}

/// The refills of one pool.
#[derive(Debug, Default)]
pub(super) struct Refills(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    failures_in_row: u32,
    /// The next refill begins no earlier.
    due: Instant,
    /// When the last refill succeeded, until its connections prove to be kept or not.
    filled: Option<Instant>,
    /// Whether the log says that the server does not keep idle connections.
    is_reported: bool,
}

impl Refills {
    /// Whether a refill begins now.
    fn begin(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let begins = !state.is_running && now >= state.due;
        state.is_running |= begins;
        begins
    }

    /// Ends the failures in a row once the connections of a refill are kept; returns whether the log must say so.
    fn take_kept(&self, now: Instant) -> bool {
        let mut state = self.lock();
        let is_kept = state.filled.take_if(|at| now.since(*at) >= KEPT_MIN).is_some();
        if is_kept {
            state.failures_in_row = 0;
        }
        is_kept && std::mem::take(&mut state.is_reported)
    }

    /// Ends a refill that opened nothing.
    fn end(&self) {
        self.lock().is_running = false;
    }

    fn succeed(&self, now: Instant) {
        let mut state = self.lock();
        (state.is_running, state.filled) = (false, Some(now));
    }

    fn fail(&self, now: Instant, jitter: f64) {
        let mut state = self.lock();
        state.is_running = false;
        state.wait(now, jitter);
    }

    /// Handles a new connection that the server closed before a request; returns whether the log must say so.
    fn connection_lost(&self, now: Instant, jitter: f64) -> bool {
        let mut state = self.lock();
        state.wait(now, jitter);
        let is_news = state.failures_in_row >= REPORTED_FAILURES && !state.is_reported;
        state.is_reported |= is_news;
        is_news
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wait(&mut self, now: Instant, jitter: f64) {
        let doubled = WAIT_MIN.mul_f64(f64::from(1_u32 << self.failures_in_row.min(5)));
        self.due = now + doubled.min(WAIT_MAX).mul_f64(1.0 + jitter / 2.0);
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        self.filled = None;
    }
}

/// The end of a refill without a failure.
enum RefillEnd {
    /// The missing connections are open.
    Filled,
    /// Another connection attempt is in progress, or has just failed and counts there.
    Unneeded,
}

impl Pool {
    /// Opens the connections that are missing, at a time within `tick` that `jitter` chooses, a random number from 0 to 1.
    /// The caller sweeps first.
    pub fn refill(self: &Arc<Self>, clock: &Clock, tick: std::time::Duration, jitter: f64) {
        let now = clock.now();
        // Both, because each forgets what it found.
        let is_lost = self.http1.take_early_close() | self.http2.take_early_close();
        if is_lost && self.refills.connection_lost(now, jitter) {
            let (upstream, replica) = self.names();
            tracing::warn!(
                upstream,
                replica,
                idle_min = self.config.idle_min,
                "the replica closes idle connections at once: fewer than connect.idle_min stay open"
            );
        } else if self.refills.take_kept(now) {
            let (upstream, replica) = self.names();
            tracing::info!(upstream, replica, "the replica keeps idle connections again");
        }
        if !self.is_missing_idle(now) || !self.refills.begin(now) {
            return;
        }
        let (pool, clock) = (Arc::clone(self), *clock);
        tokio::spawn(async move {
            tokio::time::sleep(tick.mul_f64(jitter)).await;
            match pool.open_missing(&clock).await {
                Ok(RefillEnd::Filled) => pool.refills.succeed(clock.now()),
                Ok(RefillEnd::Unneeded) => pool.refills.end(),
                Err(error) => {
                    tracing::debug!(%error, "failed to open a connection ahead of requests");
                    pool.refills.fail(clock.now(), jitter);
                }
            }
        });
    }

    /// A server that closes connections at once gets no more than `idle_min` of them.
    async fn open_missing(&self, clock: &Clock) -> Result<RefillEnd, ExchangeError> {
        for _ in 0..self.config.idle_min {
            if !self.is_missing_idle(clock.now()) {
                break;
            }
            // The connection that a request opens may be enough.
            let Some(attempt) = self.attempts.begin_idle_attempt(&*self.http2) else {
                return Ok(RefillEnd::Unneeded);
            };
            match self.open_lease(attempt, clock).await?.0 {
                NewLease::Http1(lease) => self.http1.put_successor(lease, clock.now()),
                // The connection stays without its lease.
                NewLease::Http2(_) => {}
            }
        }
        Ok(RefillEnd::Filled)
    }

    /// Whether connections are missing, now or soon, and there is room for them.
    fn is_missing_idle(&self, now: Instant) -> bool {
        let ConnectConfig { idle_min, connections_max, http2_connections_max, .. } = self.config;
        let http2_count = self.http2.connection_count();
        if http2_count > 0 {
            let is_missing = idle_min > 0 && !self.http2.has_lasting(now);
            return is_missing && http2_count < http2_connections_max;
        }
        let is_missing = self.http1.lasting_count(now) < idle_min;
        is_missing && self.http1.connection_count() < connections_max
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT_MIN, Refills, WAIT_MAX, WAIT_MIN, succession_after};
    use crate::clock::Clock;
    use crate::connect::{ConnectConfig, Connector, Protocol};
    use crate::origin::ServerOrigin;
    use crate::pool::{Pool, Transport as _};
    use curtail_units::{Duration, Instant};
    use std::cell::Cell;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::Arc;
    use tokio::net::TcpListener;

    /// Fails refills in a row with `fail`, and checks the wait after each; returns the time at which the next is due.
    fn fail_in_a_row(
        refills: &Refills,
        mut now: Instant,
        jitter: f64,
        fail: impl Fn(Instant),
    ) -> Instant {
        let mut wait = WAIT_MIN;
        for _ in 0..10 {
            assert!(refills.begin(now) && !refills.begin(now), "{now:?}");
            fail(now);
            let due = now + wait.mul_f64(1.0 + jitter / 2.0);
            assert!(!refills.begin(Instant::from_ns(due.as_ns() - 1)), "{now:?}");
            now = due;
            wait = (wait + wait).min(WAIT_MAX);
        }
        assert_eq!(wait, WAIT_MAX);
        now
    }

    #[test]
    fn one_refill_runs_at_a_time_and_failures_in_a_row_double_the_wait() {
        for jitter in [0.0, 0.5, 1.0] {
            let refills = Refills::default();
            let mut now = Instant::ZERO;
            for _ in 0..2 {
                now = fail_in_a_row(&refills, now, jitter, |now| refills.fail(now, jitter));
                assert!(refills.begin(now));
                refills.succeed(now);
                assert!(refills.begin(now), "no wait after a success");
                refills.succeed(now);
                now = now + KEPT_MIN;
                assert!(!refills.take_kept(now), "nothing was reported");
            }
        }
    }

    #[test]
    fn connections_that_the_server_closes_at_once_double_the_wait_and_are_reported_once() {
        let (refills, reports) = (Refills::default(), Cell::new(0));
        let mut now = Instant::ZERO;
        for _ in 0..2 {
            now = fail_in_a_row(&refills, now, 0.0, |now| {
                refills.succeed(now);
                reports.set(reports.get() + u32::from(refills.connection_lost(now, 0.0)));
                assert!(!refills.take_kept(now + KEPT_MIN));
            });
            assert_eq!(reports.take(), 1, "one report for failures in a row");
            assert!(refills.begin(now));
            refills.succeed(now);
            // These are kept.
            assert!(!refills.take_kept(now));
            now = now + KEPT_MIN;
            assert!(refills.take_kept(now) && !refills.take_kept(now), "one report");
        }
    }

    fn pool(server: SocketAddr, protocol: Protocol) -> Arc<Pool> {
        let config = ConnectConfig { protocol, idle_min: 1, ..ConnectConfig::default() };
        let connector = Connector::load(&ServerOrigin::from(server), &config);
        Arc::new(Pool::new(connector.expect("it is in clear text"), config, Arc::default()))
    }

    #[tokio::test]
    async fn a_refill_that_meets_the_handshake_of_a_request_is_no_failure() {
        let pool = pool(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), Protocol::Http2);
        let of_request = pool.attempts.begin_idle_attempt(&*pool.http2).expect("the first one");
        let clock = Clock::start();
        pool.refill(&clock, std::time::Duration::ZERO, 0.0);
        assert!(pool.refills.lock().is_running);
        while pool.refills.lock().is_running {
            tokio::task::yield_now().await;
        }
        drop(of_request);
        assert!(pool.refills.begin(clock.now()), "it may begin again at once");
    }

    #[tokio::test]
    async fn a_connection_needs_a_successor_before_it_reaches_its_idle_timeout() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        for protocol in [Protocol::Http1, Protocol::Http2] {
            let (pool, clock) = (pool(address, protocol), Clock::start());
            let connections = || pool.idle_len() + pool.http2.connection_count();
            let before = clock.now();
            assert!(pool.is_missing_idle(before));
            pool.open_missing(&clock).await.expect("it listens");
            let opened = clock.now();
            pool.sweep(opened);
            let idle_timeout = pool.config.idle_timeout;
            let succession = succession_after(idle_timeout);
            let just_before = Instant::from_ns((before + succession).as_ns() - 1);
            assert!(!pool.is_missing_idle(just_before), "{protocol:?}");
            pool.sweep(opened + succession);
            assert!(pool.is_missing_idle(opened + succession), "{protocol:?}");
            assert_eq!(connections(), 1, "{protocol:?}");
            pool.sweep(Instant::from_ns((opened + idle_timeout).as_ns() + 1));
            assert_eq!(connections(), 0, "{protocol:?}");
        }
    }

    #[test]
    fn a_successor_is_opened_at_most_five_seconds_ahead() {
        for (idle_timeout, expected) in [(60_000, 55_000), (10_000, 5_000), (4_000, 2_000), (1, 0)]
        {
            let after = succession_after(Duration::from_ms(idle_timeout));
            assert_eq!(after.as_ns() / 1_000_000, expected, "{idle_timeout} ms");
        }
    }
}
