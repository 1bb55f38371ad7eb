//! Connection attempts of one pool: decides which request opens a connection, and which requests wait for it.
//!
//! A connection that requests can share is opened in its own task. If its request is cancelled, such as a hedge that
//! lost, later requests use the connection. Requests that arrive during the attempt wait for it, and fail with it.

use super::Transport;
use crate::clock::Clock;
use crate::connect::{ConnectConfig, Protocol};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Attempts {
    /// Maximum number of shared connections.
    connections_max: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// The protocol that the server speaks; `Auto` until TLS has negotiated it.
    negotiated: Protocol,
    /// The number of shared connection attempts in progress.
    connecting: usize,
    /// The number of requests that wait for a shared connection attempt.
    waiting: usize,
    failed: u64,
    /// Whether the last attempt failed; no attempt is then made ahead of need until the next sweep.
    is_growth_paused: bool,
}

/// The turn of a request that found no connection with capacity.
#[derive(Debug)]
pub(super) enum Turn<L> {
    /// The request uses a shared connection that now has capacity.
    Use(L),
    /// The request opens a connection for all waiting requests, in a separate task.
    OpenForAll(Attempt),
    /// The request opens an HTTP/1.1 connection for itself.
    OpenAlone(Attempt),
}

/// Why a request gets no connection.
#[derive(Debug)]
pub(super) enum WaitError {
    /// The connection attempt that the request waited for failed.
    AttemptFailed,
    /// All connections are full, and no more may be opened.
    Full,
}

impl Attempts {
    pub(super) fn new(negotiated: Protocol, config: &ConnectConfig) -> Arc<Self> {
        let state =
            State { negotiated, connecting: 0, waiting: 0, failed: 0, is_growth_paused: false };
        Arc::new(Self {
            connections_max: config.http2_connections_max,
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    /// Waits until a shared connection has capacity, or this request must open one.
    pub(super) async fn wait<T: Transport>(
        self: &Arc<Self>,
        shared: &T,
        clock: &Clock,
    ) -> Result<Turn<T::Lease>, WaitError> {
        let failed = self.lock().failed;
        loop {
            let changed = self.changed.notified();
            let waiter = {
                // An attempt adds its connection before it takes this lock.
                let mut state = self.lock();
                if let Some(turn) = self.next_turn(&mut state, failed, (shared, clock)) {
                    if state.connecting == 0 {
                        // No end of an attempt will wake the others.
                        self.changed.notify_waiters();
                    }
                    return turn;
                }
                state.waiting += 1;
                Waiter(self)
            };
            changed.await;
            drop(waiter);
        }
    }

    /// The turn of a request now; [`None`]: it waits for the attempts in progress. `failed` is the number of failed
    /// attempts when the request arrived.
    fn next_turn<T: Transport>(
        self: &Arc<Self>,
        state: &mut State,
        failed: u64,
        (shared, clock): (&T, &Clock),
    ) -> Option<Result<Turn<T::Lease>, WaitError>> {
        if let Some(lease) = shared.lease(clock.now()) {
            return Some(Ok(Turn::Use(lease)));
        }
        if state.negotiated == Protocol::Http1 {
            return Some(Ok(Turn::OpenAlone(Attempt::new(self, false))));
        }
        if state.connecting == 0 && state.failed != failed {
            return Some(Err(WaitError::AttemptFailed));
        }
        if self.needs_another(state, shared) {
            state.connecting += 1;
            return Some(Ok(Turn::OpenForAll(Attempt::new(self, true))));
        }
        (state.connecting == 0).then_some(Err(WaitError::Full))
    }

    /// Whether a request opens a connection, instead of waiting for the attempts in progress. A burst of requests must
    /// not wait for one handshake after the other.
    fn needs_another(&self, state: &State, shared: &impl Transport) -> bool {
        // Whether requests can share the first connection is unknown until it has negotiated.
        let places = match state.negotiated {
            Protocol::Auto => usize::MAX,
            Protocol::Http1 | Protocol::Http2 => shared.exchanges_max(),
        };
        // The request that opens a connection uses one of its streams. A server may announce that it allows none.
        let expected = state.connecting.saturating_mul(places.saturating_sub(1));
        self.may_grow(state, shared) && (state.connecting == 0 || expected <= state.waiting)
    }

    fn may_grow(&self, state: &State, shared: &impl Transport) -> bool {
        shared.connection_count() + state.connecting < self.connections_max
    }

    /// Returns an attempt of a request that needs the first stream of a connection, unless the last attempt failed, or there
    /// are enough connections.
    pub(super) fn begin_for_first_stream(
        self: &Arc<Self>,
        shared: &impl Transport,
    ) -> Option<Attempt> {
        let mut state = self.lock();
        let begins = !state.is_growth_paused && self.may_grow(&state, shared);
        state.connecting += usize::from(begins);
        begins.then(|| Attempt::new(self, true))
    }

    /// Returns an attempt ahead of need, unless one is in progress, the last failed, or there are enough connections.
    pub(super) fn grow(self: &Arc<Self>, shared: &impl Transport) -> Option<Attempt> {
        let mut state = self.lock();
        let grows = !state.is_growth_paused
            && state.connecting == 0
            && shared.connection_count() < self.connections_max;
        state.connecting += usize::from(grows);
        grows.then(|| Attempt::new(self, true))
    }

    /// Whether the server is known to speak HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.lock().negotiated == Protocol::Http2
    }

    /// Whether requests may share a connection: the server speaks HTTP/2, as far as is known.
    pub(super) fn may_share(&self) -> bool {
        self.lock().negotiated != Protocol::Http1
    }

    /// Returns an attempt for a connection that is to be idle, on the same conditions if requests may share it.
    pub(super) fn begin_idle_attempt(self: &Arc<Self>, shared: &impl Transport) -> Option<Attempt> {
        if self.may_share() { self.grow(shared) } else { Some(Attempt::new(self, false)) }
    }

    pub(super) fn resume_growth(&self) {
        self.lock().is_growth_paused = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The count of a request that waits for a connection, until this is dropped.
struct Waiter<'a>(&'a Attempts);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// A connection attempt in progress. When this is dropped, the waiting requests check again; after a rejection, one of
/// them.
#[derive(Debug)]
pub(super) struct Attempt {
    attempts: Arc<Attempts>,
    is_for_all: bool,
    negotiated: Option<Protocol>,
    /// Whether a limit of the pool rejected the attempt.
    is_rejected: bool,
}

impl Attempt {
    fn new(attempts: &Arc<Attempts>, is_for_all: bool) -> Self {
        Self { attempts: Arc::clone(attempts), is_for_all, negotiated: None, is_rejected: false }
    }

    /// Notes that the connection is open and uses this protocol.
    pub(super) fn succeed(mut self, negotiated: Protocol) {
        self.negotiated = Some(negotiated);
    }

    /// Notes that a limit of the pool rejected the attempt. The requests that wait for it then try for themselves,
    /// because it says nothing about the server.
    pub(super) fn reject(mut self) {
        self.is_rejected = true;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let mut state = self.attempts.lock();
        if self.is_for_all {
            state.connecting -= 1;
            state.failed += u64::from(self.negotiated.is_none() && !self.is_rejected);
            state.is_growth_paused = self.negotiated.is_none();
        }
        if let Some(negotiated) = self.negotiated {
            state.negotiated = negotiated;
        }
        drop(state);
        if self.is_rejected {
            // Each request that waits opens a connection for itself, and wakes the next one if that is rejected, too.
            self.attempts.changed.notify_one();
        } else {
            self.attempts.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::http2::Http2Transport;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn attempts(
        negotiated: Protocol,
        config: &ConnectConfig,
    ) -> (Arc<Attempts>, Http2Transport, Clock) {
        (Attempts::new(negotiated, config), Http2Transport::new(config, false), Clock::start())
    }

    /// The number of connections that a burst of requests opens.
    fn connections_for(requests: usize, negotiated: Protocol, streams: usize) -> usize {
        let config = ConnectConfig {
            http2_streams_max: streams,
            http2_connections_max: 4,
            ..ConnectConfig::default()
        };
        let (attempts, shared, clock) = attempts(negotiated, &config);
        let mut cx = Context::from_waker(Waker::noop());
        let mut turns: Vec<_> =
            (0..requests).map(|_| Box::pin(attempts.wait(&shared, &clock))).collect();
        // The requests that open a connection continue; the others wait.
        let polled: Vec<_> = turns.iter_mut().map(|turn| turn.as_mut().poll(&mut cx)).collect();
        let opened = polled.iter().filter(|turn| matches!(turn, Poll::Ready(Ok(_)))).count();
        let failed = polled.iter().filter(|turn| matches!(turn, Poll::Ready(Err(_)))).count();
        assert_eq!(failed, 0, "all of them wait");
        drop((turns, polled));
        let state = attempts.lock();
        assert_eq!((state.waiting, state.connecting), (0, 0), "all have gone away");
        opened
    }

    #[test]
    fn a_burst_of_requests_opens_as_many_connections_at_once_as_it_needs() {
        for (requests, connections) in [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (1_000, 4)] {
            assert_eq!(connections_for(requests, Protocol::Http2, 10), connections, "{requests}");
        }
        assert_eq!(connections_for(1_000, Protocol::Auto, 10), 1, "it may be HTTP/1.1");
        assert_eq!(connections_for(3, Protocol::Http2, 0), 3, "each connection waits for a stream");
    }

    #[tokio::test]
    async fn requests_that_wait_for_a_failed_connection_attempt_fail() {
        let (attempts, shared, clock) = attempts(Protocol::Http2, &ConnectConfig::default());
        let Ok(Turn::OpenForAll(attempt)) = attempts.wait(&shared, &clock).await else {
            panic!("no connection is open")
        };
        let mut waiting = pin!(attempts.wait(&shared, &clock));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(attempt);
        assert!(matches!(waiting.await, Err(WaitError::AttemptFailed)));
    }

    #[test]
    fn a_request_that_is_sent_again_opens_no_connection_after_a_failed_attempt() {
        let (attempts, shared, _) = attempts(Protocol::Http2, &ConnectConfig::default());
        let first = attempts.begin_for_first_stream(&shared).expect("none has failed");
        let second = attempts.begin_for_first_stream(&shared).expect("none has failed");
        drop(first);
        assert!(attempts.begin_for_first_stream(&shared).is_none());
        second.succeed(Protocol::Http2);
        assert!(attempts.begin_for_first_stream(&shared).is_some(), "the last one succeeded");
        // That one was dropped, which is a failure, too.
        assert!(attempts.begin_for_first_stream(&shared).is_none());
        attempts.resume_growth();
        assert!(attempts.begin_for_first_stream(&shared).is_some());
    }

    #[tokio::test]
    async fn requests_that_wait_for_an_attempt_beyond_a_limit_try_for_themselves() {
        let (attempts, shared, clock) = attempts(Protocol::Auto, &ConnectConfig::default());
        let Ok(Turn::OpenForAll(attempt)) = attempts.wait(&shared, &clock).await else {
            panic!("no connection is open")
        };
        let mut waiting = pin!(attempts.wait(&shared, &clock));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        attempt.reject();
        assert!(matches!(waiting.await, Ok(Turn::OpenForAll(_))));
    }

    #[tokio::test]
    async fn a_rejection_wakes_one_request_that_waits() {
        const REQUESTS: usize = 100;
        let (attempts, shared, clock) = attempts(Protocol::Auto, &ConnectConfig::default());
        let Ok(Turn::OpenForAll(attempt)) = attempts.wait(&shared, &clock).await else {
            panic!("no connection is open")
        };
        let wakes = Arc::<WakeCounter>::default();
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let mut turns: Vec<_> =
            (0..REQUESTS).map(|_| Box::pin(attempts.wait(&shared, &clock))).collect();
        assert!(turns.iter_mut().all(|turn| turn.as_mut().poll(&mut cx).is_pending()));
        attempt.reject();
        for (nth, mut turn) in turns.into_iter().enumerate() {
            assert_eq!(wakes.0.load(Ordering::Relaxed), nth + 1);
            let Poll::Ready(Ok(Turn::OpenForAll(attempt))) = turn.as_mut().poll(&mut cx) else {
                panic!("it opens a connection")
            };
            attempt.reject();
        }
    }

    #[tokio::test]
    async fn a_request_that_goes_on_after_a_rejection_lets_the_others_go_on() {
        let (attempts, shared, clock) = attempts(Protocol::Auto, &ConnectConfig::default());
        let Ok(Turn::OpenForAll(attempt)) = attempts.wait(&shared, &clock).await else {
            panic!("no connection is open")
        };
        let mut cx = Context::from_waker(Waker::noop());
        let [mut one, mut other] = [(); 2].map(|()| Box::pin(attempts.wait(&shared, &clock)));
        assert!(
            one.as_mut().poll(&mut cx).is_pending() && other.as_mut().poll(&mut cx).is_pending()
        );
        // Meanwhile a request found out that the server speaks HTTP/1.1.
        attempts.lock().negotiated = Protocol::Http1;
        attempt.reject();
        assert!(matches!(one.await, Ok(Turn::OpenAlone(_))));
        assert!(matches!(other.await, Ok(Turn::OpenAlone(_))));
    }
}
