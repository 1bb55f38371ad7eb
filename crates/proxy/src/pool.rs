//! The connections of one worker to one replica, and one exchange over them.
//!
//! An HTTP/1.1 connection serves one request at a time and is driven by its task ([`crate::http1`]); an
//! HTTP/2 connection is shared by many and has a task of its own ([`crate::http2`]).
//!
//! **Limits**: `connections_max` HTTP/1.1 connections, `idle_max` of them unused;
//! `http2_connections_max` HTTP/2 connections with `http2_streams_max` requests each.

use crate::attempt::AttemptRequest;
use crate::clock::Clock;
use crate::config::{ConnectConfig, Protocol};
use crate::connect::{ConnectError, Connected, Connector, Offer};
use crate::counted::{CountedConnection, OpenCount};
use crate::head::{AnswerHead, Known};
use crate::http1::{self, Http1};
use crate::http2::{
    self, Http2Body, Http2Connections, LeaseError, LentHttp2, Making, Spoken, Turn,
};
use crate::metrics::ReplicaMetrics;
use crate::trail::ConnectPhases;
use bytes::Bytes;
use curtail_policy::Failure;
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

/// An attempt that ended without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{replica}: all {max} connections are in use")]
    Full { replica: String, max: usize },
    #[error("{replica}: all {connections} HTTP/2 connections carry {streams} requests each")]
    FullHttp2 { replica: String, connections: usize, streams: usize },
    #[error("{replica}: the connection was closed before the replica processed the request")]
    NotSent { replica: String },
    #[error("{replica}: the connection that was being made came to nothing")]
    NotMade { replica: String },
    #[error("{replica}: no answer: {source}")]
    Broken { replica: String, source: BrokenOff },
    #[error("{replica}: changed the protocol without being asked to")]
    ChangedProtocol { replica: String },
}

impl ExchangeError {
    pub(crate) const fn failure(&self) -> Failure {
        match self {
            Self::Connect(_)
            | Self::Full { .. }
            | Self::FullHttp2 { .. }
            | Self::NotSent { .. }
            | Self::NotMade { .. } => Failure::NotSent,
            Self::Broken { .. } | Self::ChangedProtocol { .. } => Failure::Broken,
        }
    }
}

/// How an exchange broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokenOff {
    #[error(transparent)]
    Http1(#[from] http1::Error),
    #[error(transparent)]
    Http2(#[from] http2::Error),
    /// Over a connection that was upgraded.
    #[error(transparent)]
    Hyper(#[from] hyper::Error),
}

/// Connections without an exchange; in boxes, because each changes hands twice a request.
type Idle = Vec<Box<Http1>>;

/// The connections of one worker to one replica.
#[derive(Debug)]
pub(crate) struct Pool {
    connector: Connector,
    config: ConnectConfig,
    /// The last one returned is the first one taken.
    idle: Mutex<Idle>,
    /// HTTP/1.1 connections, in use or not.
    open: Arc<AtomicUsize>,
    http2: Arc<Http2Connections>,
    /// The last connection could not be made.
    is_away: AtomicBool,
    pub(crate) metrics: Arc<ReplicaMetrics>,
}

/// An answer, and how its connection came about.
#[derive(Debug)]
pub(crate) struct Exchanged {
    pub(crate) head: AnswerHead,
    pub(crate) body: ReplicaBody,
    /// How long making the connection took; [`None`] when there was one.
    pub(crate) phases: Option<ConnectPhases>,
}

impl Pool {
    pub(crate) fn new(
        connector: Connector,
        config: ConnectConfig,
        metrics: Arc<ReplicaMetrics>,
    ) -> Self {
        let spoken = match config.protocol {
            Protocol::Auto if connector.replica().tls => Spoken::Unknown,
            Protocol::Auto | Protocol::Http1 => Spoken::Http1,
            Protocol::Http2 => Spoken::Http2,
        };
        let http2 = Http2Connections::new(spoken, http2::Limits::from(&config));
        Self {
            connector,
            config,
            idle: Mutex::default(),
            open: Arc::default(),
            http2,
            is_away: AtomicBool::new(false),
            metrics,
        }
    }

    /// Sends `request` on a connection of the pool, or on a new one, and waits for the head of its answer.
    ///
    /// `fresh` asks for a new HTTP/1.1 connection, because an idle one may have just failed this request.
    ///
    /// # Errors
    /// [`ExchangeError`], which tells whether the replica can have executed the request.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        mut request: AttemptRequest,
        clock: &Clock,
        fresh: bool,
    ) -> Result<Exchanged, ExchangeError> {
        if !request.has(Known::Host) {
            // A client of HTTP/1.0 need not say whom it asks; we must.
            request.set(Known::Host, self.connector.replica().authority().as_bytes());
        }
        // HTTP/2 knows no change of protocol; where it must be spoken, none is asked for.
        if request.has(Known::Upgrade) && self.config.protocol != Protocol::Http2 {
            return Box::pin(self.exchange_upgrade(request, clock)).await;
        }
        if let Some(lease) = self.http2.lease_shared() {
            if let Some(making) = lease.grows {
                self.grow(making, clock);
            }
            return Box::pin(self.exchange_http2(request, lease.lent, None)).await;
        }
        let idle = if fresh { None } else { self.take_idle(clock.now()) };
        if let Some(connection) = idle {
            return self.exchange_http1(request, connection, None, clock).await;
        }
        // Rare and large: it would make the future of every attempt larger.
        match Box::pin(self.connect(clock)).await? {
            (New::Http1(connection), phases) => {
                self.exchange_http1(request, connection, phases, clock).await
            }
            (New::Http2(lent), phases) => {
                Box::pin(self.exchange_http2(request, lent, phases)).await
            }
        }
    }

    async fn exchange_http1(
        self: &Arc<Self>,
        request: AttemptRequest,
        mut connection: Box<Http1>,
        phases: Option<ConnectPhases>,
        clock: &Clock,
    ) -> Result<Exchanged, ExchangeError> {
        let answered = connection.send(request).await;
        let head = answered.map_err(|error| {
            // The replica closed a reused connection after it accepted the first byte, so it may have executed the
            // request.
            let is_unwritten = matches!(error, http1::Error::Unwritten(_));
            if is_unwritten { self.not_sent() } else { self.broken(error) }
        })?;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(ExchangeError::ChangedProtocol { replica: self.replica() });
        }
        let home = Home { pool: Arc::clone(self), clock: *clock };
        Ok(Exchanged { head, body: ReplicaBody::lent(connection, home), phases })
    }

    /// Asks for another protocol, on an HTTP/1.1 connection of its own that is then not ours any more.
    async fn exchange_upgrade(
        self: &Arc<Self>,
        request: AttemptRequest,
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
        Ok(Exchanged { head: head.into(), body: ReplicaBody::Upgrade(body, upgrade), phases })
    }

    async fn exchange_http2(
        &self,
        mut request: AttemptRequest,
        lent: LentHttp2,
        phases: Option<ConnectPhases>,
    ) -> Result<Exchanged, ExchangeError> {
        let interim = request.interim.take();
        let mut request = request.into_request();
        http2::put_in_form(&mut request, self.connector.replica().tls);
        let answered = lent.send(request, interim).await;
        let (head, body) = answered.map_err(|error| {
            if error.is_unprocessed() { self.not_sent() } else { self.broken(error) }
        })?;
        Ok(Exchanged { head, body: ReplicaBody::Http2(body), phases })
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
            if connection.is_usable() {
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

    /// Closes what has been idle for too long, and what replicas have closed.
    pub(crate) fn sweep(&self, now: Instant) {
        self.idle().retain_mut(|connection| {
            now.since(connection.idle_since) <= self.config.idle_timeout && connection.is_usable()
        });
        self.http2.sweep(now);
    }

    /// An answer that broke off while it was read.
    pub(crate) fn broken(&self, source: impl Into<BrokenOff>) -> ExchangeError {
        ExchangeError::Broken { replica: self.replica(), source: source.into() }
    }

    fn not_sent(&self) -> ExchangeError {
        ExchangeError::NotSent { replica: self.replica() }
    }

    fn replica(&self) -> String {
        self.connector.replica().to_string()
    }

    /// Whether no connection is open.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0 && self.http2.is_empty()
    }

    /// Connections that are open and unused.
    pub(crate) fn idle_len(&self) -> usize {
        self.idle().len()
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for a request that found none.
    async fn connect(
        self: &Arc<Self>,
        clock: &Clock,
    ) -> Result<(New, Option<ConnectPhases>), ExchangeError> {
        match self.http2.wait_for_connection().await {
            Ok(Turn::Take(lent)) => Ok((New::Http2(lent), None)),
            Ok(Turn::MakeOwn(making)) => self.make(making, clock).await,
            Ok(Turn::MakeForAll(making)) => {
                let (pool, clock) = (Arc::clone(self), *clock);
                let made = tokio::spawn(async move { pool.make(making, &clock).await }).await;
                // A task that is not over by itself ends with its worker.
                made.unwrap_or_else(|_| Err(ExchangeError::NotMade { replica: self.replica() }))
            }
            Err(LeaseError::NotMade) => Err(ExchangeError::NotMade { replica: self.replica() }),
            Err(LeaseError::Full) => {
                let http2::Limits { connections_max, streams_max, .. } = self.http2.limits();
                let (connections, streams) = (connections_max, streams_max);
                Err(ExchangeError::FullHttp2 { replica: self.replica(), connections, streams })
            }
        }
    }

    /// Opens another HTTP/2 connection ahead of need.
    fn grow(self: &Arc<Self>, making: Making, clock: &Clock) {
        let (pool, clock) = (Arc::clone(self), *clock);
        tokio::spawn(async move {
            if let Err(error) = pool.make(making, &clock).await {
                tracing::debug!(%error, "failed to open another HTTP/2 connection ahead of need");
            }
        });
    }

    async fn make(
        &self,
        making: Making,
        clock: &Clock,
    ) -> Result<(New, Option<ConnectPhases>), ExchangeError> {
        let (connected, mut counted) = self.open(clock, Offer::All).await?;
        let phases = Some(connected.phases);
        if !connected.is_http2 {
            making.got_http1();
            let connection = Http1::new(connected.stream, clock.now(), counted);
            return Ok((New::Http1(Box::new(connection)), phases));
        }
        counted.place = None;
        let (lent, connection) =
            making.handshake(connected.stream).await.map_err(|_| self.not_sent())?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "HTTP/2 connection to a replica ended");
            }
            drop(counted);
        });
        Ok((New::Http2(lent), phases))
    }

    /// Opens a connection and counts it. What goes wrong is said once, until it goes right again: a replica
    /// that is gone would otherwise fill the log with every request.
    async fn open(
        &self,
        clock: &Clock,
        offer: Offer,
    ) -> Result<(Connected, CountedConnection), ExchangeError> {
        let max = self.config.connections_max;
        let place = OpenCount::new(&self.open, max)
            .ok_or_else(|| ExchangeError::Full { replica: self.replica(), max })?;
        match self.connector.connect(clock, offer).await {
            Ok(connected) => {
                if self.is_away.swap(false, Ordering::Relaxed) {
                    tracing::info!(replica = %self.connector.replica(), "connected again");
                }
                self.metrics.connected(&connected.phases);
                let counted =
                    CountedConnection { metrics: Arc::clone(&self.metrics), place: Some(place) };
                Ok((connected, counted))
            }
            Err(error) => {
                self.metrics.connect_failed();
                if self.is_away.swap(true, Ordering::Relaxed) {
                    tracing::debug!(%error, "connection not made");
                } else {
                    tracing::warn!(%error, "connection not made; further ones are counted, and logged for debugging");
                }
                Err(error.into())
            }
        }
    }
}

enum New {
    Http1(Box<Http1>),
    Http2(LentHttp2),
}

/// Where a connection goes back to.
#[derive(Debug)]
pub(crate) struct Home {
    pool: Arc<Pool>,
    clock: Clock,
}

/// The body of an answer; it holds on to its connection. One that is not read to its end takes its HTTP/1.1
/// connection with it.
#[derive(Debug)]
pub(crate) enum ReplicaBody {
    /// It comes over a connection that is lent until its end.
    Http1(Box<Http1>, Home),
    /// It has come, and the connection is back, or gone.
    Ended,
    /// It comes over a stream that counts until its end.
    Http2(Http2Body),
    /// A change of protocol was asked for; the body is that of a replica that did not agree.
    Upgrade(Incoming, OnUpgrade),
}

impl ReplicaBody {
    fn lent(connection: Box<Http1>, home: Home) -> Self {
        let mut body = Self::Http1(connection, home);
        body.give_back_at_end();
        body
    }

    /// The connection itself, once both sides have agreed to change its protocol.
    pub(crate) fn into_upgrade(self) -> Option<OnUpgrade> {
        match self {
            Self::Upgrade(_, upgrade) => Some(upgrade),
            Self::Http1(..) | Self::Ended | Self::Http2(_) => None,
        }
    }

    fn give_back_at_end(&mut self) {
        let Self::Http1(connection, _) = self else { return };
        if connection.is_end()
            && let Self::Http1(connection, Home { pool, clock }) =
                std::mem::replace(self, Self::Ended)
            && connection.is_free()
        {
            pool.put_idle(connection, clock.now());
        }
    }
}

impl Body for ReplicaBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match &mut *self {
            Self::Http1(connection, _) => {
                let frame = connection.poll_frame(cx).map_err(BrokenOff::from);
                self.give_back_at_end();
                frame
            }
            Self::Http2(body) => body.poll_frame(cx).map_err(BrokenOff::from),
            Self::Upgrade(incoming, _) => {
                Pin::new(incoming).poll_frame(cx).map_err(BrokenOff::from)
            }
            Self::Ended => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(connection, _) => connection.is_end(),
            Self::Http2(body) => body.is_end(),
            Self::Upgrade(incoming, _) => incoming.is_end_stream(),
            Self::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(connection, _) => connection.size_hint(),
            Self::Http2(body) => body.size_hint(),
            Self::Upgrade(incoming, _) => incoming.size_hint(),
            Self::Ended => SizeHint::with_exact(0),
        }
    }
}
