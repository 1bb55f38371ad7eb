//! The HTTP/2 connections of one pool to one server, each shared by many requests.
//!
//! A connection is made in a task of its own: a request that is cancelled meanwhile (a hedge that lost)
//! leaves it to those that follow, else the server that is never the fastest would never be connected to.
//! Requests that come meanwhile wait for it, and fail with it rather than one after the other.
//!
//! **Limits**: [`Limits`]. A request that finds every connection full is not sent.
//!
//! **Flow control**: h2 returns the credit of a stream and of its connection together, when the body is read. A
//! stalled response therefore keeps its part of the connection's window. The connection window is the sum of all
//! stream windows, so no stream waits for a stalled one. That sum bounds the memory. Requests are spread over
//! connections long before one is full.
//!
//! **Cancelling**: dropping the response of an exchange resets its stream. By default h2 treats many resets as an
//! attack and closes the connection with all its requests. Hedging resets streams all the time, so both limits are
//! raised here ([`RESETS_REMEMBERED`]).
//!
//! The connections use h2 directly, because hyper's client does not report interim responses.

mod activity;
mod body_sender;
mod exchange;

use crate::connect::ConnectConfig;
use crate::replay::OutboundBody;
use crate::stream::Stream;
use activity::{Activity, StreamCount};
use bytes::Bytes;
use curtail_units::{Bytes as ByteSize, Duration, Instant};
pub use exchange::Error;
pub(crate) use exchange::Http2Body;
use h2::client::SendRequest;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Uri, header};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;

/// The largest flow-control window (RFC 9113, section 6.9.1).
pub const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// A size as an HTTP/2 flow-control window, or the largest one.
#[must_use]
pub fn flow_control_window(bytes: ByteSize) -> u32 {
    u32::try_from(bytes.get()).unwrap_or(u32::MAX).min(WINDOW_BYTES_MAX)
}

/// Another connection is opened when each open one carries this fraction of its maximum.
const SPREAD: usize = 4;

/// Reset streams whose late frames are still expected, for each connection. h2 forgets the oldest beyond
/// this, and counts the late frames of forgotten streams as offences of the server.
const RESETS_REMEMBERED: usize = 10_000;

/// Maximum size of the headers that h2 accepts. It may close the connection when headers are far larger.
/// [`HEAD_BYTES_MAX`](crate::http1::HEAD_BYTES_MAX) is lower and fails only the stream.
const HEADERS_BYTES_MAX: u32 = 256 << 10;

/// Maximum streams on a connection before the server's settings arrive (RFC 9113, section 6.5.2).
const STREAMS_BEFORE_SETTINGS: usize = 100;

/// Per stream, the bytes that h2 buffers and the server has not accepted.
const SENDING_BYTES_MAX: usize = 1 << 20;

/// The limits of the connections to one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections_max: usize,
    /// Maximum concurrent requests on one connection.
    pub(crate) streams_max: usize,
    stream_window: u32,
    connection_window: u32,
    idle_timeout: Duration,
    ping_interval: Duration,
}

impl From<&ConnectConfig> for Limits {
    fn from(config: &ConnectConfig) -> Self {
        Self {
            connections_max: config.http2_connections_max,
            streams_max: config.http2_streams_max,
            stream_window: flow_control_window(config.http2_stream_window),
            connection_window: flow_control_window(config.http2_connection_window()),
            idle_timeout: config.idle_timeout,
            ping_interval: config.http2_ping_interval,
        }
    }
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Http2Connections {
    limits: Limits,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    open: Vec<Http2>,
    negotiated: Negotiated,
    /// Connection attempts in progress.
    connecting: usize,
    /// Requests that wait for one of those.
    waiting: usize,
    /// Connections that came to nothing.
    failed: u64,
    /// The last connection attempt failed, so none is opened ahead of need until the next sweep.
    is_growth_paused: bool,
}

/// What is negotiated with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Negotiated {
    /// TLS has not negotiated it yet.
    Unknown,
    Http1,
    Http2,
}

#[derive(Debug)]
struct Http2 {
    sender: SendRequest<Bytes>,
    activity: Arc<Activity>,
    /// Requests that have used this connection.
    lent: u64,
    /// The number of such requests at the last sweep that found it in use, and the time of that sweep.
    used: Option<(u64, Instant)>,
}

/// A stream on an open connection.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) lent: StreamLease,
    /// Present when the connections fill up: the caller opens another one, and the request does not wait for it.
    pub(crate) grows: Option<ConnectionAttempt>,
}

/// What a request that needs a connection is to do.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Use this one.
    Take(StreamLease),
    /// Make one for all who wait, in a task of its own.
    ConnectForAll(ConnectionAttempt),
    /// Make one for this request alone: it will speak HTTP/1.1.
    ConnectAlone(ConnectionAttempt),
}

/// Why a request gets no connection.
#[derive(Debug)]
pub(crate) enum LeaseError {
    /// The connection attempt that it waited for failed.
    AttemptFailed,
    /// All connections are full, and no more may be opened.
    Full,
}

impl Http2Connections {
    pub(crate) fn new(negotiated: Negotiated, limits: Limits) -> Arc<Self> {
        let state = State {
            open: Vec::new(),
            negotiated,
            connecting: 0,
            waiting: 0,
            failed: 0,
            is_growth_paused: false,
        };
        Arc::new(Self { limits, state: Mutex::new(state), changed: Notify::new() })
    }

    pub(crate) const fn limits(&self) -> Limits {
        self.limits
    }

    /// Leases a stream on the least loaded connection, if one has room.
    pub(crate) fn lease_shared(self: &Arc<Self>) -> Option<Lease> {
        let mut state = self.lock();
        if state.open.is_empty() {
            return None;
        }
        let (lent, is_crowded) = state.lend(&self.limits)?;
        let grows = is_crowded
            && !state.is_growth_paused
            && state.connecting == 0
            && state.open.len() < self.limits.connections_max;
        state.connecting += usize::from(grows);
        Some(Lease { lent, grows: grows.then(|| ConnectionAttempt::new(self, true)) })
    }

    /// Waits until there is a connection to use, or one is to be made.
    ///
    /// # Errors
    /// [`LeaseError`], when the connection attempt failed or the connections are full.
    pub(crate) async fn wait_for_connection(self: &Arc<Self>) -> Result<Turn, LeaseError> {
        let failed = self.lock().failed;
        loop {
            let changed = self.changed.notified();
            let waiter = {
                let mut state = self.lock();
                if let Some((lent, _)) = state.lend(&self.limits) {
                    return Ok(Turn::Take(lent));
                }
                if state.negotiated == Negotiated::Http1 {
                    return Ok(Turn::ConnectAlone(ConnectionAttempt::new(self, false)));
                }
                if state.connecting == 0 && state.failed != failed {
                    return Err(LeaseError::AttemptFailed);
                }
                if state.needs_another(&self.limits) {
                    state.connecting += 1;
                    return Ok(Turn::ConnectForAll(ConnectionAttempt::new(self, true)));
                }
                if state.connecting == 0 {
                    return Err(LeaseError::Full);
                }
                state.waiting += 1;
                Waiter(self)
            };
            changed.await;
            drop(waiter);
        }
    }

    /// Removes connections that servers have closed and those that were idle for too long. An idle connection closes
    /// with its last handle.
    pub(crate) fn sweep(&self, now: Instant) {
        let timeout = self.limits.idle_timeout;
        let mut state = self.lock();
        state.is_growth_paused = false;
        state.open.retain_mut(|open| !open.is_closed() && !open.is_idle(now, timeout));
    }

    /// Whether no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().open.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that waits for a connection; counted until dropped.
struct Waiter<'a>(&'a Http2Connections);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

impl State {
    /// Whether a request without a connection opens one, instead of waiting for those in progress: a burst must not
    /// wait for one handshake after the other.
    fn needs_another(&self, limits: &Limits) -> bool {
        // Whether requests can share the first connection is unknown until it has negotiated.
        let places = match self.negotiated {
            Negotiated::Unknown => usize::MAX,
            Negotiated::Http1 | Negotiated::Http2 => limits.streams_max,
        };
        // The request that opens a connection uses one of its streams.
        let expected = self.connecting.saturating_mul(places - 1);
        let may_grow = self.open.len() + self.connecting < limits.connections_max;
        may_grow && (self.connecting == 0 || expected <= self.waiting)
    }

    /// The least loaded connection with room, and whether even that one is crowded.
    fn lend(&mut self, limits: &Limits) -> Option<(StreamLease, bool)> {
        self.open.retain_mut(|connection| !connection.is_closed());
        // A connection at the server's own limit comes last, because requests would queue there.
        let freest = self.open.iter_mut().min_by_key(|open| {
            let streams = open.activity.streams();
            (streams >= open.streams_allowed(), streams)
        })?;
        let streams = freest.activity.streams();
        if streams >= limits.streams_max {
            return None;
        }
        freest.lent += 1;
        let allowed = freest.streams_allowed().min(limits.streams_max);
        Some((StreamLease::new(freest), streams * SPREAD >= allowed))
    }
}

impl Http2 {
    /// Whether the connection accepts no further request.
    fn is_closed(&mut self) -> bool {
        // This handle has no request of its own that could be pending.
        let polled = self.sender.poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(Err(_)))
    }

    /// The server's `SETTINGS_MAX_CONCURRENT_STREAMS`; h2 queues requests beyond it.
    fn streams_allowed(&self) -> usize {
        self.sender.current_max_send_streams()
    }

    /// Whether no request has used it for this time.
    fn is_idle(&mut self, now: Instant, timeout: Duration) -> bool {
        let is_used = self.activity.streams() > 0;
        match self.used {
            Some((lent, at)) if !is_used && lent == self.lent => now.since(at) > timeout,
            _ => {
                self.used = Some((self.lent, now));
                false
            }
        }
    }
}

/// A connection that is being made; whoever waits for it looks again when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionAttempt {
    connections: Arc<Http2Connections>,
    for_all: bool,
    made: Option<(Negotiated, Option<Http2>)>,
}

impl ConnectionAttempt {
    fn new(connections: &Arc<Http2Connections>, for_all: bool) -> Self {
        Self { connections: Arc::clone(connections), for_all, made: None }
    }

    /// The server has negotiated HTTP/1.1.
    pub(crate) fn got_http1(mut self) {
        self.made = Some((Negotiated::Http1, None));
    }

    /// Starts HTTP/2 on a new connection and hands it to the waiting requests. The caller gets the first stream and
    /// drives the connection.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub(crate) async fn handshake(
        mut self,
        stream: Stream,
    ) -> Result<(StreamLease, impl Future<Output = Result<(), h2::Error>> + use<>), h2::Error> {
        let limits = self.connections.limits;
        let (sender, mut connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
            .initial_window_size(limits.stream_window)
            .initial_connection_window_size(limits.connection_window)
            .max_header_list_size(HEADERS_BYTES_MAX)
            .max_send_buffer_size(SENDING_BYTES_MAX)
            .max_concurrent_reset_streams(RESETS_REMEMBERED)
            .max_local_error_reset_streams(None)
            .handshake(stream)
            .await?;
        let pings = connection.ping_pong();
        let made = Http2 { sender, activity: Activity::new(), lent: 1, used: None };
        let lent = StreamLease::new(&made);
        let activity = Arc::clone(&made.activity);
        self.made = Some((Negotiated::Http2, Some(made)));
        let driven = async move {
            let pings = pings.expect("they are taken once");
            let mut silent = pin!(activity.wait_until_silent(pings, limits.ping_interval.into()));
            poll_fn(|cx| match silent.as_mut().poll(cx) {
                // Waiting requests wake when the connection is dropped.
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => Pin::new(&mut connection).poll(cx),
            })
            .await
        };
        Ok((lent, driven))
    }
}

impl Drop for ConnectionAttempt {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        if self.for_all {
            state.connecting -= 1;
            state.failed += u64::from(self.made.is_none());
            state.is_growth_paused = self.made.is_none();
        }
        if let Some((negotiated, connection)) = self.made.take() {
            state.negotiated = negotiated;
            state.open.extend(connection);
        }
        drop(state);
        self.connections.changed.notify_waiters();
    }
}

/// A place on a connection.
#[derive(Debug)]
pub(crate) struct StreamLease {
    sender: SendRequest<Bytes>,
    stream: StreamCount,
}

impl StreamLease {
    fn new(connection: &Http2) -> Self {
        let stream = StreamCount::new(&connection.activity);
        Self { sender: connection.sender.clone(), stream }
    }
}

/// Says whom the request asks as HTTP/2 does, in `:scheme` and `:authority` instead of `host` (RFC 9113,
/// section 8.3.1): many servers refuse a request without them. A change of protocol, which HTTP/2 does not
/// know (section 8.6), is not asked for; a server may decline it at any time.
pub(crate) fn put_in_form(request: &mut Request<OutboundBody>, tls: bool) {
    let headers = request.headers_mut();
    headers.remove(header::UPGRADE);
    headers.remove(header::CONNECTION);
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let Some(authority) = host.and_then(|host| Authority::try_from(host).ok()) else {
        // Not a name that can stand there: the server is told what the client said, as it said it.
        return;
    };
    headers.remove(header::HOST);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(authority);
    *request.uri_mut() = Uri::from_parts(parts).expect("scheme, authority and path are all there");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of connections that a burst of requests opens.
    fn connections_for(requests: usize, negotiated: Negotiated) -> usize {
        let limits = Limits::from(&ConnectConfig {
            http2_streams_max: 10,
            http2_connections_max: 4,
            ..ConnectConfig::default()
        });
        let connections = Http2Connections::new(negotiated, limits);
        let mut cx = Context::from_waker(Waker::noop());
        let mut turns: Vec<_> =
            (0..requests).map(|_| Box::pin(connections.wait_for_connection())).collect();
        // The requests that open a connection continue; the others wait.
        let polled: Vec<_> = turns.iter_mut().map(|turn| turn.as_mut().poll(&mut cx)).collect();
        let makers = polled.iter().filter(|turn| matches!(turn, Poll::Ready(Ok(_)))).count();
        let failed = polled.iter().filter(|turn| matches!(turn, Poll::Ready(Err(_)))).count();
        assert_eq!(failed, 0, "all of them wait, however many there are");
        drop((turns, polled));
        let state = connections.lock();
        assert_eq!((state.waiting, state.connecting), (0, 0), "all have gone away");
        makers
    }

    #[test]
    fn a_burst_of_requests_makes_as_many_connections_at_once_as_it_needs() {
        for (requests, connections) in [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (1_000, 4)] {
            assert_eq!(connections_for(requests, Negotiated::Http2), connections, "{requests}");
        }
        assert_eq!(connections_for(1_000, Negotiated::Unknown), 1, "it may be HTTP/1.1");
    }

    #[tokio::test]
    async fn requests_that_wait_for_a_failed_connection_attempt_fail() {
        let limits = Limits::from(&ConnectConfig::default());
        let connections = Http2Connections::new(Negotiated::Http2, limits);
        let Ok(Turn::ConnectForAll(attempt)) = connections.wait_for_connection().await else {
            panic!("there is none")
        };
        let mut waiting = pin!(connections.wait_for_connection());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(attempt);
        assert!(matches!(waiting.await, Err(LeaseError::AttemptFailed)));
    }
}
