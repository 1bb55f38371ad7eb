//! The connections of one worker to one replica, and one exchange over them.
//!
//! An HTTP/1.1 connection serves one request at a time and is driven by its task ([`crate::http1`]); an
//! HTTP/2 connection is shared by many and has a task of its own.
//!
//! **Limits**: `connections_max` HTTP/1.1 connections, `idle_max` of them unused;
//! `http2_connections_max` HTTP/2 connections, with [`STREAMS_MAX`] requests at once on one of those.
//!
//! **Cancelling**: dropping the answer of an HTTP/2 exchange resets its stream. By default hyper and h2
//! take many resets for an attack and end the connection, live requests and all; hedging lives by resets,
//! so both counts are lifted here ([`RESETS_REMEMBERED`]).

use crate::body::AttemptBody;
use crate::clock::Clock;
use crate::config::ConnectConfig;
use crate::connect::{ConnectError, Connected, Connector};
use crate::http1::{Http1, OpenCount};
use crate::metrics::ReplicaMetrics;
use crate::trail::ConnectPhases;
use bytes::Bytes;
use curtail_policy::Failure;
use curtail_units::Instant;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::sync::Notify;

/// Requests at once on one HTTP/2 connection before another one is made: what servers commonly allow.
const STREAMS_MAX: usize = 100;

/// Reset streams whose late frames are still expected, for each connection. h2 forgets the oldest beyond
/// this, and counts the late frames of forgotten streams as offences of the replica.
const RESETS_REMEMBERED: usize = 10_000;

/// Flow control of HTTP/2 towards replicas: what Envoy grants a stream by default is 16 MiB, which a
/// proxy that streams has no use for.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// An attempt that ended without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{replica}: all {max} connections are in use")]
    Full { replica: String, max: usize },
    #[error("{replica}: the connection was closed before the request was written")]
    NotSent { replica: String },
    #[error("{replica}: no answer: {source}")]
    Broken { replica: String, source: hyper::Error },
}

impl ExchangeError {
    pub(crate) const fn failure(&self) -> Failure {
        match self {
            Self::Connect(_) | Self::Full { .. } | Self::NotSent { .. } => Failure::NotSent,
            Self::Broken { .. } => Failure::Broken,
        }
    }
}

/// The connections of one worker to one replica.
#[derive(Debug)]
pub(crate) struct Pool {
    connector: Connector,
    config: ConnectConfig,
    idle: Mutex<Vec<Http1>>,
    /// HTTP/1.1 connections, in use or not.
    open: Arc<AtomicUsize>,
    http2: Mutex<Http2Connections>,
    http2_changed: Notify,
    pub(crate) metrics: Arc<ReplicaMetrics>,
}

#[derive(Debug, Default)]
struct Http2Connections {
    open: Vec<Http2>,
    is_connecting: bool,
}

#[derive(Debug, Clone)]
struct Http2 {
    sender: http2::SendRequest<AttemptBody>,
    streams: Arc<AtomicUsize>,
}

/// An answer, and how its connection came about.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) response: Response<ReplicaBody>,
    /// How long making the connection took; [`None`] when there was one.
    pub(crate) phases: Option<ConnectPhases>,
}

impl Pool {
    pub(crate) fn new(
        connector: Connector,
        config: ConnectConfig,
        metrics: Arc<ReplicaMetrics>,
    ) -> Self {
        Self {
            connector,
            config,
            idle: Mutex::default(),
            open: Arc::default(),
            http2: Mutex::default(),
            http2_changed: Notify::new(),
            metrics,
        }
    }

    /// Sends `request` on a connection of the pool, or on a new one, and waits for the head of its answer.
    ///
    /// `fresh` asks for a new HTTP/1.1 connection: one that was idle has just failed this request.
    ///
    /// # Errors
    /// [`ExchangeError`], which knows whether the replica can have seen the request.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        request: Request<AttemptBody>,
        clock: &Clock,
        fresh: bool,
    ) -> Result<Exchanged, ExchangeError> {
        if request.headers().contains_key(http::header::UPGRADE) {
            return self.exchange_upgrade(request, clock).await;
        }
        if let Some(lent) = self.shared_http2() {
            return self.exchange_http2(request, lent, None).await;
        }
        let idle = if fresh { None } else { self.take_idle(clock.now()) };
        if let Some(connection) = idle {
            return self.exchange_http1(request, connection, None, clock).await;
        }
        match self.connect(clock).await? {
            (New::Http1(connection), phases) => {
                self.exchange_http1(request, *connection, phases, clock).await
            }
            (New::Http2(lent), phases) => self.exchange_http2(request, lent, phases).await,
        }
    }

    async fn exchange_http1(
        self: &Arc<Self>,
        request: Request<AttemptBody>,
        mut connection: Http1,
        phases: Option<ConnectPhases>,
        clock: &Clock,
    ) -> Result<Exchanged, ExchangeError> {
        let repeatable = request.method().is_safe();
        let answered = connection.send(request).await;
        let response = answered.map_err(|mut error| {
            let replica = self.connector.replica().to_string();
            let unwritten = error.take_message().is_some();
            let source = error.into_error();
            // An idle connection that the replica closes just when we write: it has not looked at a
            // request, so one that may be repeated anyway goes out again.
            let stale = connection.is_reused && repeatable && is_closed_unanswered(&source);
            if unwritten || stale {
                ExchangeError::NotSent { replica }
            } else {
                ExchangeError::Broken { replica, source }
            }
        })?;
        let home = Home { pool: Arc::clone(self), clock: *clock };
        let body = |incoming| ReplicaBody::lent(incoming, connection, home);
        Ok(Exchanged { response: response.map(body), phases })
    }

    /// Asks for another protocol, on an HTTP/1.1 connection of its own that is then not ours any more.
    async fn exchange_upgrade(
        &self,
        request: Request<AttemptBody>,
        clock: &Clock,
    ) -> Result<Exchanged, ExchangeError> {
        let connected = self.connector.connect(clock).await.inspect_err(|error| {
            self.metrics.connect_failed();
            tracing::debug!(%error, "connection not made");
        })?;
        self.metrics.connected(&connected.phases);
        let phases = Some(connected.phases);
        let io = TokioIo::new(connected.stream);
        let (mut sender, connection) =
            http1::handshake(io).await.map_err(|source| self.broken(source))?;
        let metrics = Arc::clone(&self.metrics);
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "connection for another protocol ended");
            }
            metrics.closed(1);
        });
        let answered = sender.send_request(request).await;
        let mut response = answered.map_err(|source| self.broken(source))?;
        let upgrade = hyper::upgrade::on(&mut response);
        Ok(Exchanged {
            response: response.map(|body| ReplicaBody::upgraded(body, upgrade)),
            phases,
        })
    }

    async fn exchange_http2(
        &self,
        request: Request<AttemptBody>,
        mut lent: LentHttp2,
        phases: Option<ConnectPhases>,
    ) -> Result<Exchanged, ExchangeError> {
        let answered = lent.sender.try_send_request(request).await;
        let response = answered.map_err(|mut error| {
            let replica = self.connector.replica().to_string();
            let unwritten = error.take_message().is_some();
            let source = error.into_error();
            if unwritten || is_refused_stream(&source) {
                ExchangeError::NotSent { replica }
            } else {
                ExchangeError::Broken { replica, source }
            }
        })?;
        let stream = lent.stream;
        Ok(Exchanged {
            response: response.map(|incoming| ReplicaBody::stream(incoming, stream)),
            phases,
        })
    }

    /// The least recently returned connections grow old; the newest is the likeliest to be alive.
    fn take_idle(&self, now: Instant) -> Option<Http1> {
        loop {
            let mut connection = self.idle().pop()?;
            if now.since(connection.idle_since) > self.config.idle_timeout {
                // All that are left are older still.
                let expired = std::mem::take(&mut *self.idle());
                self.metrics.closed(expired.len() + 1);
                return None;
            }
            if connection.is_usable() {
                return Some(connection);
            }
            self.metrics.closed(1);
        }
    }

    fn put_idle(&self, mut connection: Http1, now: Instant) {
        connection.is_reused = true;
        connection.idle_since = now;
        let mut idle = self.idle();
        if idle.len() < self.config.idle_max {
            idle.push(connection);
        } else {
            self.metrics.closed(1);
        }
    }

    /// Closes what has been idle for too long, and what replicas have closed.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut idle = self.idle();
        let before = idle.len();
        idle.retain_mut(|connection| {
            now.since(connection.idle_since) <= self.config.idle_timeout && connection.is_usable()
        });
        self.metrics.closed(before - idle.len());
        drop(idle);
        self.http2().open.retain(|connection| !connection.sender.is_closed());
    }

    /// An answer that broke off while it was read.
    pub(crate) fn broken(&self, source: hyper::Error) -> ExchangeError {
        ExchangeError::Broken { replica: self.connector.replica().to_string(), source }
    }

    /// Connections that are open and unused.
    pub(crate) fn idle_len(&self) -> usize {
        self.idle().len()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Http1>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn http2(&self) -> MutexGuard<'_, Http2Connections> {
        self.http2.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place on the HTTP/2 connection with the most room, if one has any.
    fn shared_http2(&self) -> Option<LentHttp2> {
        let mut http2 = self.http2();
        if http2.open.is_empty() {
            return None;
        }
        http2.open.retain(|connection| !connection.sender.is_closed());
        let freest = http2.open.iter().min_by_key(|c| c.streams.load(Ordering::Relaxed))?;
        let full = freest.streams.load(Ordering::Relaxed) >= STREAMS_MAX;
        let may_grow =
            http2.open.len() + usize::from(http2.is_connecting) < self.config.http2_connections_max;
        // When all are full and no other may be made, h2 itself queues beyond the replica's limit.
        (!full || !may_grow).then(|| LentHttp2::new(freest))
    }

    /// Makes a connection. Requests that come meanwhile wait for one that is being made over HTTP/2.
    async fn connect(&self, clock: &Clock) -> Result<(New, Option<ConnectPhases>), ExchangeError> {
        let speaks_http2 =
            !self.http2().open.is_empty() || self.config.protocol == crate::config::Protocol::Http2;
        let mut must_wait = speaks_http2;
        while must_wait {
            let changed = self.http2_changed.notified();
            if let Some(lent) = self.shared_http2() {
                return Ok((New::Http2(lent), None));
            }
            must_wait = std::mem::replace(&mut self.http2().is_connecting, true);
            if must_wait {
                changed.await;
            }
        }
        let connecting = speaks_http2.then(|| Connecting { pool: self });
        let max = self.config.connections_max;
        let full = || ExchangeError::Full { replica: self.connector.replica().to_string(), max };
        let open = OpenCount::new(&self.open, max).ok_or_else(full)?;
        let connected = self.connector.connect(clock).await.inspect_err(|error| {
            self.metrics.connect_failed();
            tracing::debug!(%error, "connection not made");
        })?;
        self.metrics.connected(&connected.phases);
        let phases = connected.phases;
        let new = self.handshake(connected, open, clock).await?;
        drop(connecting);
        Ok((new, Some(phases)))
    }

    async fn handshake(
        &self,
        connected: Connected,
        open: OpenCount,
        clock: &Clock,
    ) -> Result<New, ExchangeError> {
        let broken = |source| self.broken(source);
        if !connected.is_http2 {
            let connection = Http1::new(connected.stream, open, clock.now()).await;
            let connection = connection.map_err(broken)?;
            return Ok(New::Http1(Box::new(connection)));
        }
        let io = TokioIo::new(connected.stream);
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_concurrent_reset_streams(RESETS_REMEMBERED)
            .max_local_error_reset_streams(None)
            .handshake(io)
            .await
            .map_err(broken)?;
        let metrics = Arc::clone(&self.metrics);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "HTTP/2 connection to a replica ended");
            }
            metrics.closed(1);
        });
        let connection = Http2 { sender, streams: Arc::default() };
        let lent = LentHttp2::new(&connection);
        self.http2().open.push(connection);
        Ok(New::Http2(lent))
    }
}

/// An HTTP/2 connection is being made: whoever waits looks again when this is dropped.
struct Connecting<'a> {
    pool: &'a Pool,
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.pool.http2().is_connecting = false;
        self.pool.http2_changed.notify_waiters();
    }
}

enum New {
    Http1(Box<Http1>),
    Http2(LentHttp2),
}

/// A place on an HTTP/2 connection.
struct LentHttp2 {
    sender: http2::SendRequest<AttemptBody>,
    stream: StreamCount,
}

impl LentHttp2 {
    fn new(connection: &Http2) -> Self {
        Self { sender: connection.sender.clone(), stream: StreamCount::new(&connection.streams) }
    }
}

/// One stream in flight; counted until dropped.
#[derive(Debug)]
struct StreamCount(Arc<AtomicUsize>);

impl StreamCount {
    fn new(streams: &Arc<AtomicUsize>) -> Self {
        streams.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(streams))
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connection ended, in whatever way, before a single byte of the answer.
fn is_closed_unanswered(error: &hyper::Error) -> bool {
    use std::io::ErrorKind;
    let io = std::error::Error::source(error).and_then(|s| s.downcast_ref::<std::io::Error>());
    error.is_incomplete_message()
        || error.is_canceled()
        || io.is_some_and(|io| {
            matches!(io.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
        })
}

/// The replica says that it has not begun with this stream (RFC 9113, section 8.7).
fn is_refused_stream(error: &hyper::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<h2::Error>())
        .is_some_and(|h2| h2.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Where a connection goes back to.
#[derive(Debug)]
struct Home {
    pool: Arc<Pool>,
    clock: Clock,
}

/// The body of an answer; it holds on to its connection.
#[derive(Debug)]
pub(crate) struct ReplicaBody {
    incoming: Incoming,
    lent: Option<(Http1, Home)>,
    upgrade: Option<OnUpgrade>,
    _stream: Option<StreamCount>,
}

impl ReplicaBody {
    fn upgraded(incoming: Incoming, upgrade: OnUpgrade) -> Self {
        Self { incoming, lent: None, upgrade: Some(upgrade), _stream: None }
    }

    fn stream(incoming: Incoming, stream: StreamCount) -> Self {
        Self { incoming, lent: None, upgrade: None, _stream: Some(stream) }
    }

    fn lent(incoming: Incoming, connection: Http1, home: Home) -> Self {
        let lent = Some((connection, home));
        let mut body = Self { incoming, lent, upgrade: None, _stream: None };
        if body.incoming.is_end_stream() {
            body.give_back();
        }
        body
    }

    /// The connection itself, once both sides have agreed to change its protocol.
    pub(crate) fn into_upgrade(mut self) -> Option<OnUpgrade> {
        self.upgrade.take()
    }

    fn give_back(&mut self) {
        if let Some((connection, Home { pool, clock })) = self.lent.take() {
            if connection.is_over() {
                pool.metrics.closed(1);
            } else {
                pool.put_idle(connection, clock.now());
            }
        }
    }
}

impl Drop for ReplicaBody {
    fn drop(&mut self) {
        // An answer that is not read to its end takes its HTTP/1.1 connection with it.
        if let Some((_, home)) = &self.lent {
            home.pool.metrics.closed(1);
        }
    }
}

impl Body for ReplicaBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let incoming = &mut this.incoming;
        let frame = match &mut this.lent {
            // The connection reads on only when somebody has asked for more.
            Some((connection, _)) => {
                connection.poll_news(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx))
            }
            None => Pin::new(incoming).poll_frame(cx),
        };
        if matches!(frame, Poll::Ready(None)) || this.incoming.is_end_stream() {
            this.give_back();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
