//! The connections of one worker to one server, and one exchange over them.
//!
//! Each protocol is a [`Transport`]. A connection of [`http1`] carries one exchange at a time, and the task of the
//! request drives it. A connection of [`http2`] carries many exchanges, and has its own task. A request that finds no
//! open connection with capacity opens one, or waits for one ([`attempts`]).
//!
//! **Limits**: `connections_max` HTTP/1.1 connections, of which `idle_max` may be idle
//! and `idle_min` are opened ahead of requests ([`refill`]); `http2_connections_max` HTTP/2
//! connections with `http2_streams_max` requests each, or as many as the server allows. A request beyond these limits is
//! not sent, so no request waits for the end of another one. Requests whose bodies are incomplete use at most half of the
//! HTTP/1.1 connections, or of the streams of HTTP/2 until their responses begin, rounded up: clients that never finish
//! their bodies leave the other half to complete requests.

mod attempts;
mod body;
mod client_pools;
mod http1;
mod http2;
mod refill;
mod resend;
mod upgrade;

pub use body::{ResponseBody, ServerTunnel};
pub use client_pools::ClientPools;

use self::http1::{Http1Lease, Http1Transport};
use self::http2::{Http2Lease, Http2Transport};
use crate::clock::Clock;
use crate::connect::{ConnectConfig, ConnectError, Connector, Offer, OpenedConnection, Protocol};
use crate::connection_counts::{ConnectPhases, ConnectionCounters, CountedConnection};
use crate::head::{Known, ResponseHead};
use crate::limit_breaker::LimitBreaker;
use crate::outbound_request::OutboundRequest;
use crate::proxy_protocol::ConnectionAddresses;
use crate::replay::{BodyError, OutboundBody};
use crate::stream::Stream;
use ::http::StatusCode;
use attempts::{Attempt, Attempts, Turn, WaitError};
use curtail_metrics::{Gauge, GaugeGuard};
use curtail_units::Instant;
use refill::Refills;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use upgrade::UpgradeAttempt;

/// One protocol over the connections of a pool.
trait Transport {
    /// The right to one exchange on an open connection.
    type Lease;

    /// Returns a lease, if an open connection has capacity.
    fn lease(&self, now: Instant) -> Option<Self::Lease>;

    /// Begins the protocol on a new connection, and leases the connection.
    async fn start(
        &self,
        stream: Stream,
        counted: CountedConnection,
        now: Instant,
    ) -> Result<Self::Lease, ResponseError>;

    /// Closes connections that have been idle for too long, and removes connections that the server has closed.
    fn sweep(&self, now: Instant);

    fn connection_count(&self) -> usize;

    /// Maximum number of exchanges at once on a new connection, as far as is known.
    fn exchanges_max(&self) -> usize;
}

/// An exchange that ended without a response.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum ExchangeError {
    /// No connection was made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// All connections are in use, and no more may be opened.
    #[error("{server}: all {max} connections are in use")]
    Full { server: String, max: usize },
    /// Too many requests with incomplete bodies are in progress.
    #[error("{server}: {max} other requests wait for the rest of their bodies")]
    FullUploads { server: String, max: usize },
    /// All HTTP/2 connections are full, and no more may be opened.
    #[error("{server}: all {connections} HTTP/2 connections carry {streams} requests each")]
    FullHttp2 { server: String, connections: usize, streams: usize },
    /// Too many requests wait for a connection.
    #[error("{server}: {max} other requests wait for a connection")]
    FullWaiting { server: String, max: usize },
    /// The request was not processed.
    #[error("{server}: the connection was closed before the server processed the request")]
    NotSent { server: String },
    /// The server refused the request each time, before it processed the request.
    #[error("{server}: the server did not process the request: {source}")]
    Unprocessed { server: String, source: crate::http2::Error },
    /// The server refused the request before it processed the request, whose body cannot be sent again.
    #[error(
        "{server}: the server did not process the request, whose body is too long to be sent again: {source}"
    )]
    UnprocessedBody { server: String, source: crate::http2::Error },
    /// The connection attempt that the request waited for failed.
    #[error("{server}: the connection attempt that the request waited for failed")]
    AttemptFailed { server: String },
    /// The exchange broke off; the request may have been processed.
    #[error("{server}: no complete response: {source}")]
    Broken { server: String, source: ResponseError },
    /// The server sent `101` to a request that asked for no other protocol.
    #[error("{server}: switched protocols, which the request did not ask for")]
    SwitchedProtocols { server: String },
    /// The server sent `101`, but does not prove that it speaks the protocol of WebSockets.
    #[error(
        "{server}: the response to the WebSocket handshake lacks `connection`, `upgrade` or the right `sec-websocket-accept`"
    )]
    BadHandshake { server: String },
}

/// The kind of an [`ExchangeError`], by its meaning for the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeErrorKind {
    /// A limit of the pool rejected the request. The server did not see it, and may be healthy.
    Limit,
    /// The server provably did not process the request.
    NotSent,
    /// The server said that it did not process the request, as it may when it ends a connection.
    Unprocessed,
    /// The request could not be sent to its end, because the replay buffer does not have its whole body.
    BodyNotKept,
    /// The server may have processed the request.
    Broken,
}

impl ExchangeError {
    /// Returns the meaning of the error for the server.
    #[must_use]
    pub const fn kind(&self) -> ExchangeErrorKind {
        match self {
            Self::Full { .. }
            | Self::FullUploads { .. }
            | Self::FullHttp2 { .. }
            | Self::FullWaiting { .. } => ExchangeErrorKind::Limit,
            Self::Connect(_) | Self::NotSent { .. } | Self::AttemptFailed { .. } => {
                ExchangeErrorKind::NotSent
            }
            Self::Unprocessed { .. } | Self::UnprocessedBody { .. } => {
                ExchangeErrorKind::Unprocessed
            }
            Self::Broken { source, .. }
                if matches!(source.body_error(), Some(BodyError::NotKept)) =>
            {
                ExchangeErrorKind::BodyNotKept
            }
            Self::Broken { .. } | Self::SwitchedProtocols { .. } | Self::BadHandshake { .. } => {
                ExchangeErrorKind::Broken
            }
        }
    }
}

/// The error that broke an exchange off.
#[derive(Debug, thiserror::Error)]
pub enum ResponseError {
    /// The error of an exchange over HTTP/1.1.
    #[error(transparent)]
    Http1(#[from] crate::http1::Error),
    /// The error of an exchange over HTTP/2.
    #[error(transparent)]
    Http2(#[from] crate::http2::Error),
    /// The error of an exchange that requested an upgrade.
    #[error(transparent)]
    Hyper(#[from] hyper::Error),
}

impl ResponseError {
    /// The error of the request body, if it is the cause.
    #[must_use]
    pub const fn body_error(&self) -> Option<BodyError> {
        match self {
            Self::Http1(crate::http1::Error::Body(error))
            | Self::Http2(crate::http2::Error::Body(error)) => Some(*error),
            Self::Http1(_) | Self::Http2(_) | Self::Hyper(_) => None,
        }
    }

    /// Whether the server has reset the stream of the exchange with `CANCEL`.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        use crate::http2::{Error, ErrorCode};
        matches!(self, Self::Http2(Error::Reset(code)) if *code == ErrorCode::CANCEL)
    }

    /// Whether the server provably did not process the request.
    fn is_not_sent(&self) -> bool {
        match self {
            Self::Http1(error) => matches!(error, crate::http1::Error::Unwritten(_)),
            Self::Http2(error) => error.is_unprocessed(),
            Self::Hyper(_) => false,
        }
    }
}

/// The connections of one worker to one server.
#[derive(Debug)]
pub struct Pool {
    connector: Connector,
    config: ConnectConfig,
    http1: Arc<Http1Transport>,
    http2: Arc<Http2Transport>,
    attempts: Arc<Attempts>,
    /// The requests that wait for a connection, those of the pools of clients included.
    waiting: Gauge,
    refills: Refills,
    /// Whether the last connection attempt failed.
    is_unreachable: Arc<AtomicBool>,
    counters: Arc<ConnectionCounters>,
}

/// A response, with the phases of its connection attempt.
#[derive(Debug)]
pub struct PoolResponse {
    /// The head of the response.
    pub head: ResponseHead,
    /// The body of the response.
    pub body: ResponseBody,
    /// The time of each phase of the connection attempt; [`None`] if an open connection was used.
    pub phases: Option<ConnectPhases>,
}

enum NewLease {
    Http1(<Http1Transport as Transport>::Lease),
    Http2(<Http2Transport as Transport>::Lease),
}

impl Pool {
    /// Creates a pool without connections.
    #[must_use]
    pub fn new(
        connector: Connector,
        config: ConnectConfig,
        counters: Arc<ConnectionCounters>,
    ) -> Self {
        let protocol = match config.protocol {
            // Only TLS negotiates.
            Protocol::Auto if !connector.origin().tls => Protocol::Http1,
            protocol @ (Protocol::Auto | Protocol::Http1 | Protocol::Http2) => protocol,
        };
        Self {
            http1: Arc::new(Http1Transport::new(&config)),
            http2: Arc::new(Http2Transport::new(&config, connector.origin().tls)),
            attempts: Attempts::new(protocol, &config),
            refills: Refills::default(),
            connector,
            config,
            waiting: Gauge::default(),
            is_unreachable: Arc::default(),
            counters,
        }
    }

    /// Creates a pool for the connections of one client, which count towards the limit of this one.
    fn for_client(&self, client: Option<ConnectionAddresses>) -> Self {
        let connector = self.connector.for_client(client);
        Self {
            http1: Arc::new(self.http1.with_same_limit()),
            waiting: self.waiting.clone(),
            is_unreachable: Arc::clone(&self.is_unreachable),
            ..Self::new(connector, self.config.clone(), Arc::clone(&self.counters))
        }
    }

    /// Sends `request` on a connection of the pool, or on a new one, and waits for the head of its response.
    ///
    /// `fresh` requires a new HTTP/1.1 connection, for example because an idle connection has just failed this request.
    ///
    /// # Errors
    /// [`ExchangeError`], which states whether the server can have executed the request.
    pub async fn exchange(
        self: &Arc<Self>,
        mut request: Box<OutboundRequest>,
        clock: &Clock,
        fresh: bool,
    ) -> Result<PoolResponse, ExchangeError> {
        if !request.has(Known::Host) {
            // A client of HTTP/1.0 may name no host.
            request.set(Known::Host, self.connector.origin().authority().as_bytes());
        }
        self.admit_body(&mut request.body).await?;
        if request.has(Known::Upgrade) {
            match Box::pin(self.exchange_upgrade(request, clock)).await? {
                UpgradeAttempt::Response(response) => return Ok(response),
                UpgradeAttempt::Unsent(unsent) => request = unsent,
            }
        }
        let now = clock.now();
        if let Some(lease) = self.lease_http2(now, clock) {
            return Box::pin(self.exchange_http2((lease, None), request, clock)).await;
        }
        let idle = if fresh { None } else { self.http1.lease(now) };
        if let Some(lease) = idle {
            return self.exchange_http1((lease, None), request, clock).await;
        }
        // Rare and large: it would make the future of every attempt larger.
        let (lease, phases) = Box::pin(self.connect(clock, fresh)).await?;
        match lease {
            NewLease::Http1(lease) => self.exchange_http1((lease, phases), request, clock).await,
            NewLease::Http2(lease) => {
                Box::pin(self.exchange_http2((lease, phases), request, clock)).await
            }
        }
    }

    /// Counts a request whose body is incomplete. Beyond the limit, a request waits until the replay buffer has its whole
    /// body.
    async fn admit_body(&self, body: &mut OutboundBody) -> Result<(), ExchangeError> {
        let OutboundBody::Replay(body) = body else { return Ok(()) };
        if body.has_arrived() {
            return Ok(());
        }
        let counted = if self.attempts.is_http2() {
            self.http2.count_upload()
        } else {
            self.http1.count_upload(self.config.connections_max.div_ceil(2))
        };
        let max = match counted {
            Ok(counted) => {
                body.count_until_end(counted);
                return Ok(());
            }
            Err(max) => max,
        };
        if !poll_fn(|cx| body.poll_arrived(cx)).await {
            let error = ExchangeError::FullUploads { server: self.server(), max };
            let is_fault = body.has_fault();
            let full = &self.counters.connections_full;
            return Err(if is_fault { error } else { self.log_full(full, error) });
        }
        Ok(())
    }

    /// Leases a stream of an open HTTP/2 connection, and opens a further one if they are crowded.
    fn lease_http2(self: &Arc<Self>, now: Instant, clock: &Clock) -> Option<Http2Lease> {
        let lease = self.http2.lease(now)?;
        if lease.is_crowded
            && let Some(attempt) = self.attempts.grow(&*self.http2)
        {
            self.open_ahead(attempt, clock);
        }
        Some(lease)
    }

    async fn exchange_http1(
        &self,
        (lease, phases): (Http1Lease, Option<ConnectPhases>),
        request: Box<OutboundRequest>,
        clock: &Clock,
    ) -> Result<PoolResponse, ExchangeError> {
        let response = self.http1.exchange(lease, request, clock).await;
        let (head, body) = response.map_err(|error| self.failed(error))?;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(ExchangeError::SwitchedProtocols { server: self.server() });
        }
        Ok(PoolResponse { head, body, phases })
    }

    /// Closes connections that have been idle for too long, and removes connections that the server has closed.
    pub fn sweep(&self, now: Instant) {
        self.http1.sweep(now);
        self.http2.sweep(now);
        self.attempts.resume_growth();
    }

    fn failed(&self, source: ResponseError) -> ExchangeError {
        if matches!(source, ResponseError::Http2(crate::http2::Error::NoStream)) {
            return self.full_http2();
        }
        if let ResponseError::Http2(source) = &source
            && source.is_refused()
        {
            self.counters.streams_refused.add(1);
            return ExchangeError::Unprocessed { server: self.server(), source: source.clone() };
        }
        if source.is_not_sent() { self.not_sent() } else { self.broken(source) }
    }

    /// Returns the error of a response that broke off while it was read.
    #[must_use]
    pub fn broken(&self, source: impl Into<ResponseError>) -> ExchangeError {
        ExchangeError::Broken { server: self.server(), source: source.into() }
    }

    fn not_sent(&self) -> ExchangeError {
        ExchangeError::NotSent { server: self.server() }
    }

    fn server(&self) -> String {
        self.connector.server()
    }

    /// Whether no connection is open that a request could use, or return here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let is_in_use = Arc::strong_count(&self.http1) > 1;
        !is_in_use && self.idle_len() == 0 && self.http2.connection_count() == 0
    }

    /// Returns the number of idle HTTP/1.1 connections.
    #[must_use]
    pub fn idle_len(&self) -> usize {
        self.http1.idle_count()
    }

    /// Returns the number of requests that wait for a connection.
    #[must_use]
    pub fn waiting_len(&self) -> u64 {
        self.waiting.get()
    }

    /// Counts a request that waits for a connection, until the guard is dropped.
    fn count_waiting(&self) -> Result<GaugeGuard, ExchangeError> {
        let max = self.config.waiting_max.unwrap_or(usize::MAX);
        self.waiting.enter_below(max).ok_or_else(|| {
            let error = ExchangeError::FullWaiting { server: self.server(), max };
            self.log_full(&self.counters.waiting_full, error)
        })
    }

    /// Waits for a lease, for a request that found no connection with capacity.
    async fn connect(
        self: &Arc<Self>,
        clock: &Clock,
        fresh: bool,
    ) -> Result<(NewLease, Option<ConnectPhases>), ExchangeError> {
        let _waiting = self.count_waiting()?;
        match self.attempts.wait(&*self.http2, clock).await {
            Ok(Turn::Use(lease)) => Ok((NewLease::Http2(lease), None)),
            Ok(Turn::OpenAlone(attempt)) => {
                // A connection may have become idle while this request waited for the first handshake.
                let idle = if fresh { None } else { self.http1.lease(clock.now()) };
                match idle {
                    Some(lease) => Ok((NewLease::Http1(lease), None)),
                    None => self.open_lease(attempt, clock).await,
                }
            }
            Ok(Turn::OpenForAll(attempt)) => self.open_for_all(attempt, clock).await,
            Err(WaitError::AttemptFailed) => {
                Err(ExchangeError::AttemptFailed { server: self.server() })
            }
            Err(WaitError::Full) => Err(self.full_http2()),
        }
    }

    fn full_http2(&self) -> ExchangeError {
        let error = ExchangeError::FullHttp2 {
            server: self.server(),
            connections: self.config.http2_connections_max,
            streams: self.http2.exchanges_max(),
        };
        self.log_full(&self.counters.connections_full, error)
    }

    /// Opens a connection that stays, even if the request is cancelled meanwhile.
    async fn open_for_all(
        self: &Arc<Self>,
        attempt: Attempt,
        clock: &Clock,
    ) -> Result<(NewLease, Option<ConnectPhases>), ExchangeError> {
        let (pool, clock) = (Arc::clone(self), *clock);
        let opened = tokio::spawn(async move { pool.open_lease(attempt, &clock).await });
        // The task is cancelled only with its worker.
        let failed = |_| Err(ExchangeError::AttemptFailed { server: self.server() });
        opened.await.unwrap_or_else(failed)
    }

    fn open_ahead(self: &Arc<Self>, attempt: Attempt, clock: &Clock) {
        let (pool, clock) = (Arc::clone(self), *clock);
        tokio::spawn(async move {
            if let Err(error) = pool.open_lease(attempt, &clock).await {
                tracing::debug!(%error, "failed to open another HTTP/2 connection ahead of need");
            }
        });
    }

    async fn open_lease(
        &self,
        attempt: Attempt,
        clock: &Clock,
    ) -> Result<(NewLease, Option<ConnectPhases>), ExchangeError> {
        let (connected, counted) = match self.open(clock, Offer::All).await {
            Ok(opened) => opened,
            Err(error) => {
                if error.kind() == ExchangeErrorKind::Limit {
                    attempt.reject();
                }
                return Err(error);
            }
        };
        let OpenedConnection { stream, phases, is_http2 } = connected;
        let lease = if is_http2 {
            let lease = self.http2.start(stream, counted, clock.now()).await;
            let lease = NewLease::Http2(lease.map_err(|_| self.not_sent())?);
            attempt.succeed(Protocol::Http2);
            lease
        } else {
            attempt.succeed(Protocol::Http1);
            let lease = self.http1.start(stream, counted, clock.now()).await;
            NewLease::Http1(lease.map_err(|_| self.not_sent())?)
        };
        Ok((lease, Some(phases)))
    }

    /// Opens a connection and counts it. Only the first failure in a row is logged as a warning: an unreachable server
    /// would otherwise fill the log with every request.
    async fn open(
        &self,
        clock: &Clock,
        offer: Offer,
    ) -> Result<(OpenedConnection, CountedConnection), ExchangeError> {
        let max = self.config.connections_max;
        let open_count = self.http1.count_connection(max).ok_or_else(|| {
            let error = ExchangeError::Full { server: self.server(), max };
            self.log_full(&self.counters.connections_full, error)
        })?;
        match self.connector.connect(clock, offer).await {
            Ok(connected) => {
                if self.is_unreachable.swap(false, Ordering::Relaxed) {
                    let (upstream, replica) = self.names();
                    tracing::info!(upstream, replica, "connected to the replica again");
                }
                self.counters.connected(&connected.phases);
                let counters = Arc::clone(&self.counters);
                let counted = CountedConnection { counters, open_count: Some(open_count) };
                Ok((connected, counted))
            }
            Err(error) => {
                self.counters.failed.add(1);
                if offer == Offer::Http1 && matches!(error, ConnectError::NoVersion { .. }) {
                    // The server is reachable over HTTP/2.
                    return Err(error.into());
                }
                let (upstream, replica) = self.names();
                if self.is_unreachable.swap(true, Ordering::Relaxed) {
                    tracing::debug!(upstream, replica, %error, "cannot connect to the replica");
                } else {
                    tracing::warn!(upstream, replica, %error, "cannot connect to the replica; further failures are counted, and logged at level debug");
                }
                Err(error.into())
            }
        }
    }

    /// Counts a request that a limit of the pool rejects, and logs the first one since the limit was last quiet.
    fn log_full(&self, breaker: &LimitBreaker, error: ExchangeError) -> ExchangeError {
        if breaker.reject() {
            let (upstream, replica) = self.names();
            tracing::warn!(upstream, replica, %error, "limit of connections reached; further rejections are counted");
        }
        error
    }

    /// The upstream and the replica, in logs.
    fn names(&self) -> (Option<&str>, String) {
        (self.connector.upstream(), self.connector.address())
    }
}
