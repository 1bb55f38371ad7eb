//! The connections of one worker to one server, and one exchange over them.
//!
//! An HTTP/1.1 connection serves one request at a time and is driven by its task ([`crate::http1`]); an
//! HTTP/2 connection is shared by many and has a task of its own ([`crate::http2`]).
//!
//! **Limits**: `connections_max` HTTP/1.1 connections, `idle_max` of them unused;
//! `http2_connections_max` HTTP/2 connections with `http2_streams_max` requests each.

use crate::clock::Clock;
use crate::connect::{ConnectConfig, ConnectError, Connected, Connector, Offer, Protocol};
use crate::connection_counts::{ConnectPhases, ConnectionCounters, CountedConnection, OpenCount};
use crate::head::{Known, ResponseHead};
use crate::http1::{self, ClientConnection};
use crate::http2::{
    self, ConnectionAttempt, Http2Body, Http2Connections, LeaseError, Negotiated, StreamLease, Turn,
};
use crate::outbound_request::OutboundRequest;
use bytes::Bytes;
use curtail_units::Instant;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

/// An exchange that ended without a response.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// No connection was made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// All connections are in use, and no more may be opened.
    #[error("{server}: all {max} connections are in use")]
    Full {
        /// The server.
        server: String,
        /// The limit.
        max: usize,
    },
    /// All HTTP/2 connections are full, and no more may be opened.
    #[error("{server}: all {connections} HTTP/2 connections carry {streams} requests each")]
    FullHttp2 {
        /// The server.
        server: String,
        /// The maximum number of connections.
        connections: usize,
        /// The maximum number of requests on each.
        streams: usize,
    },
    /// The request was not processed.
    #[error("{server}: the connection was closed before the server processed the request")]
    NotSent {
        /// The server.
        server: String,
    },
    /// The connection attempt that the request waited for failed.
    #[error("{server}: the connection attempt that the request waited for failed")]
    AttemptFailed {
        /// The server.
        server: String,
    },
    /// The exchange broke off; the request may have been processed.
    #[error("{server}: no complete response: {source}")]
    Broken {
        /// The server.
        server: String,
        /// How it broke off.
        source: ResponseError,
    },
    /// The server sent `101` to a request that asked for no other protocol.
    #[error("{server}: switched protocols, which the request did not ask for")]
    ChangedProtocol {
        /// The server.
        server: String,
    },
}

impl ExchangeError {
    /// Whether the server provably did not process the request.
    #[must_use]
    pub const fn is_not_sent(&self) -> bool {
        match self {
            Self::Connect(_)
            | Self::Full { .. }
            | Self::FullHttp2 { .. }
            | Self::NotSent { .. }
            | Self::AttemptFailed { .. } => true,
            Self::Broken { .. } | Self::ChangedProtocol { .. } => false,
        }
    }
}

/// How an exchange broke off.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// Over HTTP/1.1.
    #[error(transparent)]
    Http1(#[from] http1::Error),
    /// Over HTTP/2.
    #[error(transparent)]
    Http2(#[from] http2::Error),
    /// Over a connection that was upgraded.
    #[error(transparent)]
    Hyper(#[from] hyper::Error),
}

/// Idle connections, in boxes, because each moves twice a request.
type Idle = Vec<Box<Http1>>;

/// An HTTP/1.1 connection of a pool.
#[derive(Debug)]
struct Http1 {
    connection: ClientConnection,
    idle_since: Instant,
    _counted: CountedConnection,
}

/// The connections of one worker to one server.
#[derive(Debug)]
pub struct Pool {
    connector: Connector,
    config: ConnectConfig,
    /// The last one returned is the first one taken.
    idle: Mutex<Idle>,
    /// HTTP/1.1 connections, in use or not.
    open: Arc<AtomicUsize>,
    http2: Arc<Http2Connections>,
    /// The last connection could not be made.
    is_unreachable: AtomicBool,
    counters: Arc<ConnectionCounters>,
}

/// A response, and how its connection came about.
#[derive(Debug)]
pub struct Exchanged {
    /// The head of the response.
    pub head: ResponseHead,
    /// Its body.
    pub body: ResponseBody,
    /// How long each phase of the connection attempt took; [`None`] if an open connection was used.
    pub phases: Option<ConnectPhases>,
}

impl Pool {
    /// A pool without connections.
    #[must_use]
    pub fn new(
        connector: Connector,
        config: ConnectConfig,
        counters: Arc<ConnectionCounters>,
    ) -> Self {
        let negotiated = match config.protocol {
            Protocol::Auto if connector.origin().tls => Negotiated::Unknown,
            Protocol::Auto | Protocol::Http1 => Negotiated::Http1,
            Protocol::Http2 => Negotiated::Http2,
        };
        let http2 = Http2Connections::new(negotiated, http2::Limits::from(&config));
        Self {
            connector,
            config,
            idle: Mutex::default(),
            open: Arc::default(),
            http2,
            is_unreachable: AtomicBool::new(false),
            counters,
        }
    }

    /// Sends `request` on a connection of the pool, or on a new one, and waits for the head of its response.
    ///
    /// `fresh` asks for a new HTTP/1.1 connection, because an idle one may have just failed this request.
    ///
    /// # Errors
    /// [`ExchangeError`], which tells whether the server can have executed the request.
    pub async fn exchange(
        self: &Arc<Self>,
        mut request: OutboundRequest,
        clock: &Clock,
        fresh: bool,
    ) -> Result<Exchanged, ExchangeError> {
        if !request.has(Known::Host) {
            // A client of HTTP/1.0 need not say whom it asks; we must.
            request.set(Known::Host, self.connector.origin().authority().as_bytes());
        }
        // HTTP/2 knows no change of protocol; where it must be negotiated, none is asked for.
        if request.has(Known::Upgrade) && self.config.protocol != Protocol::Http2 {
            return Box::pin(self.exchange_upgrade(request, clock)).await;
        }
        if let Some(lease) = self.http2.lease_shared() {
            if let Some(attempt) = lease.grows {
                self.grow(attempt, clock);
            }
            return Box::pin(self.exchange_http2(request, lease.lent, None)).await;
        }
        let idle = if fresh { None } else { self.take_idle(clock.now()) };
        if let Some(connection) = idle {
            return self.exchange_http1(request, connection, None, clock).await;
        }
        // Rare and large: it would make the future of every attempt larger.
        match Box::pin(self.connect(clock)).await? {
            (NewConnection::Http1(connection), phases) => {
                self.exchange_http1(request, connection, phases, clock).await
            }
            (NewConnection::Http2(lent), phases) => {
                Box::pin(self.exchange_http2(request, lent, phases)).await
            }
        }
    }

    async fn exchange_http1(
        self: &Arc<Self>,
        request: OutboundRequest,
        mut connection: Box<Http1>,
        phases: Option<ConnectPhases>,
        clock: &Clock,
    ) -> Result<Exchanged, ExchangeError> {
        let answered = connection.connection.send(request).await;
        let head = answered.map_err(|error| {
            // The server closed a reused connection after it accepted the first byte, so it may have executed the
            // request.
            let is_unwritten = matches!(error, http1::Error::Unwritten(_));
            if is_unwritten { self.not_sent() } else { self.broken(error) }
        })?;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(ExchangeError::ChangedProtocol { server: self.server() });
        }
        let home = PoolHandle { pool: Arc::clone(self), clock: *clock };
        Ok(Exchanged { head, body: ResponseBody::lent(connection, home), phases })
    }

    /// Asks for another protocol, on an HTTP/1.1 connection of its own that is then not ours any more.
    async fn exchange_upgrade(
        self: &Arc<Self>,
        request: OutboundRequest,
        clock: &Clock,
    ) -> Result<Exchanged, ExchangeError> {
        let (connected, counted) = self.open(clock, Offer::Http1).await?;
        let phases = Some(connected.phases);
        let io = TokioIo::new(connected.stream);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(io).await.map_err(|_| self.not_sent())?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "connection for another protocol ended");
            }
            drop(counted);
        });
        let answered = sender.send_request(request.into_request()).await;
        let mut response = answered.map_err(|source| self.broken(source))?;
        let upgrade = hyper::upgrade::on(&mut response);
        let (head, body) = response.into_parts();
        Ok(Exchanged {
            head: head.into(),
            body: ResponseBody(BodySource::Upgrade(body, upgrade)),
            phases,
        })
    }

    async fn exchange_http2(
        &self,
        mut request: OutboundRequest,
        lent: StreamLease,
        phases: Option<ConnectPhases>,
    ) -> Result<Exchanged, ExchangeError> {
        let interim = request.interim.take();
        let mut request = request.into_request();
        http2::put_in_form(&mut request, self.connector.origin().tls);
        let answered = lent.send(request, interim).await;
        let (head, body) = answered.map_err(|error| {
            if error.is_unprocessed() { self.not_sent() } else { self.broken(error) }
        })?;
        Ok(Exchanged { head, body: ResponseBody(BodySource::Http2(body)), phases })
    }

    /// The least recently returned connections grow old; the newest is the likeliest to be alive.
    fn take_idle(&self, now: Instant) -> Option<Box<Http1>> {
        loop {
            let mut connection = self.idle().pop()?;
            if now.since(connection.idle_since) > self.config.idle_timeout {
                // All that are left are older still.
                self.idle().clear();
                return None;
            }
            if connection.connection.is_usable() {
                return Some(connection);
            }
        }
    }

    fn put_idle(&self, mut connection: Box<Http1>, now: Instant) {
        connection.idle_since = now;
        let mut idle = self.idle();
        if idle.len() < self.config.idle_max {
            idle.push(connection);
        }
    }

    /// Closes what has been idle for too long, and what servers have closed.
    pub fn sweep(&self, now: Instant) {
        self.idle().retain_mut(|connection| {
            now.since(connection.idle_since) <= self.config.idle_timeout
                && connection.connection.is_usable()
        });
        self.http2.sweep(now);
    }

    /// A response that broke off while it was read.
    #[must_use]
    pub fn broken(&self, source: impl Into<ResponseError>) -> ExchangeError {
        ExchangeError::Broken { server: self.server(), source: source.into() }
    }

    fn not_sent(&self) -> ExchangeError {
        ExchangeError::NotSent { server: self.server() }
    }

    fn server(&self) -> String {
        self.connector.origin().to_string()
    }

    /// Whether no connection is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0 && self.http2.is_empty()
    }

    /// Connections that are open and unused.
    #[must_use]
    pub fn idle_len(&self) -> usize {
        self.idle().len()
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for a request that found none.
    async fn connect(
        self: &Arc<Self>,
        clock: &Clock,
    ) -> Result<(NewConnection, Option<ConnectPhases>), ExchangeError> {
        match self.http2.wait_for_connection().await {
            Ok(Turn::Take(lent)) => Ok((NewConnection::Http2(lent), None)),
            Ok(Turn::ConnectAlone(attempt)) => self.make(attempt, clock).await,
            Ok(Turn::ConnectForAll(attempt)) => {
                let (pool, clock) = (Arc::clone(self), *clock);
                let made = tokio::spawn(async move { pool.make(attempt, &clock).await }).await;
                // A task that is not over by itself ends with its worker.
                made.unwrap_or_else(|_| Err(ExchangeError::AttemptFailed { server: self.server() }))
            }
            Err(LeaseError::AttemptFailed) => {
                Err(ExchangeError::AttemptFailed { server: self.server() })
            }
            Err(LeaseError::Full) => {
                let http2::Limits { connections_max, streams_max, .. } = self.http2.limits();
                let (connections, streams) = (connections_max, streams_max);
                Err(ExchangeError::FullHttp2 { server: self.server(), connections, streams })
            }
        }
    }

    /// Opens another HTTP/2 connection ahead of need.
    fn grow(self: &Arc<Self>, attempt: ConnectionAttempt, clock: &Clock) {
        let (pool, clock) = (Arc::clone(self), *clock);
        tokio::spawn(async move {
            if let Err(error) = pool.make(attempt, &clock).await {
                tracing::debug!(%error, "failed to open another HTTP/2 connection ahead of need");
            }
        });
    }

    async fn make(
        &self,
        attempt: ConnectionAttempt,
        clock: &Clock,
    ) -> Result<(NewConnection, Option<ConnectPhases>), ExchangeError> {
        let (connected, mut counted) = self.open(clock, Offer::All).await?;
        let phases = Some(connected.phases);
        if !connected.is_http2 {
            attempt.got_http1();
            let connection = Http1 {
                connection: ClientConnection::new(connected.stream),
                idle_since: clock.now(),
                _counted: counted,
            };
            return Ok((NewConnection::Http1(Box::new(connection)), phases));
        }
        counted.open_count = None;
        let (lent, connection) =
            attempt.handshake(connected.stream).await.map_err(|_| self.not_sent())?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "HTTP/2 connection to a replica ended");
            }
            drop(counted);
        });
        Ok((NewConnection::Http2(lent), phases))
    }

    /// Opens a connection and counts it. What goes wrong is said once, until it goes right again: a server
    /// that is gone would otherwise fill the log with every request.
    async fn open(
        &self,
        clock: &Clock,
        offer: Offer,
    ) -> Result<(Connected, CountedConnection), ExchangeError> {
        let max = self.config.connections_max;
        let open_count = OpenCount::new(&self.open, max)
            .ok_or_else(|| ExchangeError::Full { server: self.server(), max })?;
        match self.connector.connect(clock, offer).await {
            Ok(connected) => {
                if self.is_unreachable.swap(false, Ordering::Relaxed) {
                    tracing::info!(replica = %self.connector.origin(), "connected again");
                }
                self.counters.connected(&connected.phases);
                let counters = Arc::clone(&self.counters);
                let counted = CountedConnection { counters, open_count: Some(open_count) };
                Ok((connected, counted))
            }
            Err(error) => {
                self.counters.connect_failed();
                if self.is_unreachable.swap(true, Ordering::Relaxed) {
                    tracing::debug!(%error, "connection not made");
                } else {
                    tracing::warn!(%error, "connection not made; further ones are counted, and logged for debugging");
                }
                Err(error.into())
            }
        }
    }
}

enum NewConnection {
    Http1(Box<Http1>),
    Http2(StreamLease),
}

/// Where a connection goes back to.
#[derive(Debug)]
struct PoolHandle {
    pool: Arc<Pool>,
    clock: Clock,
}

/// The body of a response; it holds on to its connection. One that is not read to its end takes its HTTP/1.1
/// connection with it.
#[derive(Debug)]
pub struct ResponseBody(BodySource);

/// Where a body comes from.
#[derive(Debug)]
enum BodySource {
    /// It comes over a connection that is lent until its end.
    Http1(Box<Http1>, PoolHandle),
    /// It has come, and the connection is back, or gone.
    Ended,
    /// It comes over a stream that counts until its end.
    Http2(Http2Body),
    /// A change of protocol was asked for; the body is that of a server that did not agree.
    Upgrade(Incoming, OnUpgrade),
}

impl ResponseBody {
    fn lent(connection: Box<Http1>, home: PoolHandle) -> Self {
        let mut body = Self(BodySource::Http1(connection, home));
        body.give_back_at_end();
        body
    }

    /// The connection itself, once both sides have agreed to change its protocol.
    #[must_use]
    pub fn into_upgrade(self) -> Option<OnUpgrade> {
        match self.0 {
            BodySource::Upgrade(_, upgrade) => Some(upgrade),
            BodySource::Http1(..) | BodySource::Ended | BodySource::Http2(_) => None,
        }
    }

    fn give_back_at_end(&mut self) {
        let BodySource::Http1(connection, _) = &mut self.0 else { return };
        if connection.connection.is_end()
            && let BodySource::Http1(connection, PoolHandle { pool, clock }) =
                std::mem::replace(&mut self.0, BodySource::Ended)
            && connection.connection.is_reusable()
        {
            pool.put_idle(connection, clock.now());
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        match &mut self.0 {
            BodySource::Http1(connection, _) => {
                let frame = connection.connection.poll_frame(cx).map_err(ResponseError::from);
                self.give_back_at_end();
                frame
            }
            BodySource::Http2(body) => body.poll_frame(cx).map_err(ResponseError::from),
            BodySource::Upgrade(incoming, _) => {
                Pin::new(incoming).poll_frame(cx).map_err(ResponseError::from)
            }
            BodySource::Ended => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            BodySource::Http1(connection, _) => connection.connection.is_end(),
            BodySource::Http2(body) => body.is_end(),
            BodySource::Upgrade(incoming, _) => incoming.is_end_stream(),
            BodySource::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            BodySource::Http1(connection, _) => connection.connection.size_hint(),
            BodySource::Http2(body) => body.size_hint(),
            BodySource::Upgrade(incoming, _) => incoming.size_hint(),
            BodySource::Ended => SizeHint::with_exact(0),
        }
    }
}
