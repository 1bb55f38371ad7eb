//! HTTP/2: a connection carries many exchanges. A pool opens further connections long before a connection is full.

use super::refill::{KEPT_MIN, succession_after};
use super::{ResponseBody, ResponseError, Transport};
use crate::connect::ConnectConfig;
use crate::connection_counts::CountedConnection;
use crate::head::ResponseHead;
use crate::http2::{self, ConnectBody, Http2Connection, StreamLease};
use crate::outbound_request::OutboundRequest;
use crate::stream::Stream;
use curtail_metrics::{Gauge, GaugeGuard};
use curtail_units::Instant;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Another connection is opened when each open connection carries one in this number of its maximum of requests.
const SPREAD: usize = 4;

#[derive(Debug)]
pub(super) struct Http2Transport {
    config: ConnectConfig,
    tls: bool,
    open: Mutex<Vec<Http2>>,
    /// The requests without a response whose bodies are incomplete.
    uploads: Gauge,
    /// Whether the server has closed a new connection before a request.
    has_early_close: AtomicBool,
    /// The limit of streams that the server announced last; a new connection begins with it.
    streams_announced: AtomicUsize,
}

#[derive(Debug)]
struct Http2 {
    connection: Http2Connection,
    opened: Instant,
    leases: u64,
    /// The number of leases at the last sweep that found the connection in use, and the time of this sweep.
    used: Option<(u64, Instant)>,
}

impl Http2 {
    /// Whether the connection carries requests, or has carried one since the last sweep.
    fn is_in_use(&self) -> bool {
        self.connection.streams() > 0 || self.used.is_none_or(|(leases, _)| leases != self.leases)
    }
}

#[derive(Debug)]
pub(super) struct Http2Lease {
    stream: StreamLease,
    /// Whether even the least loaded connection carries more than its share.
    pub(super) is_crowded: bool,
}

impl Http2Transport {
    pub(super) fn new(config: &ConnectConfig, tls: bool) -> Self {
        Self {
            config: config.clone(),
            tls,
            open: Mutex::default(),
            uploads: Gauge::default(),
            has_early_close: AtomicBool::default(),
            streams_announced: AtomicUsize::new(usize::MAX),
        }
    }

    /// Counts a request whose body is incomplete; an error with the maximum if there are already as many.
    pub(super) fn count_upload(&self) -> Result<GaugeGuard, usize> {
        let streams = self.config.http2_connections_max * self.exchanges_max();
        let max = streams.div_ceil(2);
        self.uploads.enter_below(max).ok_or(max)
    }

    /// Whether a connection does not soon reach its idle timeout.
    pub(super) fn has_lasting(&self, now: Instant) -> bool {
        let needs_successor = succession_after(self.config.idle_timeout);
        let idle_since = |open: &Http2| open.used.filter(|_| !open.is_in_use()).map(|(_, at)| at);
        let is_lasting = |open| idle_since(open).is_none_or(|at| now.since(at) < needs_successor);
        self.open().iter().any(is_lasting)
    }

    /// Whether, since the last call, the server has closed a new connection before a request.
    pub(super) fn take_early_close(&self) -> bool {
        self.has_early_close.swap(false, Ordering::Relaxed)
    }

    /// Whether the server has kept a connection open.
    fn is_kept(&self, open: &Http2, now: Instant) -> bool {
        let is_kept = !open.connection.is_closed();
        if !is_kept {
            self.note_announced(open);
            // A busy server may close a connection after a number of requests.
            if now.since(open.opened) < KEPT_MIN && !open.connection.has_carried_request() {
                self.has_early_close.store(true, Ordering::Relaxed);
            }
        }
        is_kept
    }

    /// Remembers the limit of streams that the server has announced on a connection. A server that allows none, for
    /// example because it is about to stop, says nothing about later connections.
    fn note_announced(&self, open: &Http2) {
        let announced = open.connection.streams_announced();
        if let Some(streams) = announced.filter(|streams| *streams > 0) {
            self.streams_announced.store(streams, Ordering::Relaxed);
        }
    }

    /// The limit of streams that the server announced last, also on open connections; [`usize::MAX`] if none is known.
    fn last_announced(&self) -> usize {
        self.open().iter().for_each(|open| self.note_announced(open));
        self.streams_announced.load(Ordering::Relaxed)
    }

    fn open(&self) -> MutexGuard<'_, Vec<Http2>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes connections that accept no further request.
    pub(super) fn remove_closed(&self) {
        self.open().retain(|open| !open.connection.is_closed());
    }

    /// Sends a request and waits for the head of its response. The body keeps the stream until its end.
    pub(super) async fn exchange(
        &self,
        lease: Http2Lease,
        request: &mut OutboundRequest,
    ) -> Result<(ResponseHead, ResponseBody), http2::Error> {
        let (head, body) = lease.stream.send(request, self.tls).await?;
        Ok((head, body.into()))
    }

    /// Sends a WebSocket handshake, and waits for the head of its response.
    pub(super) async fn connect(
        &self,
        lease: Http2Lease,
        request: &mut OutboundRequest,
    ) -> Result<(ResponseHead, ConnectBody), ResponseError> {
        Ok(lease.stream.connect(request, self.tls).await?)
    }
}

impl Http2Lease {
    /// Whether the server accepts WebSockets.
    pub(super) async fn accepts_connect(&mut self) -> Result<bool, ResponseError> {
        Ok(self.stream.accepts_connect().await?)
    }
}

impl Transport for Http2Transport {
    type Lease = Http2Lease;

    /// Leases a stream on the least loaded connection, within the server's own limit of streams.
    fn lease(&self, now: Instant) -> Option<Http2Lease> {
        let mut open = self.open();
        open.retain(|open| self.is_kept(open, now));
        // A connection at the server's own limit comes last. Of equal ones, the newest is used: the oldest first reaches
        // its idle timeout.
        let freest = open.iter_mut().rev().min_by_key(|open| {
            let streams = open.connection.streams();
            (streams >= open.connection.streams_allowed(), streams)
        })?;
        let streams = freest.connection.streams();
        let allowed = freest.connection.streams_allowed().min(self.config.http2_streams_max);
        if streams >= allowed {
            return None;
        }
        freest.leases += 1;
        let is_crowded = streams * SPREAD >= allowed;
        Some(Http2Lease { stream: freest.connection.lease(), is_crowded })
    }

    async fn start(
        &self,
        stream: Stream,
        mut counted: CountedConnection,
        now: Instant,
    ) -> Result<Http2Lease, ResponseError> {
        counted.open_count = None;
        let (connection, driver) =
            Http2Connection::start(stream, &self.config, self.last_announced());
        tokio::spawn(async move {
            if let Some(error) = driver.await {
                tracing::debug!(%error, "HTTP/2 connection to a replica ended");
            }
            drop(counted);
        });
        let stream = connection.lease_first();
        self.open().push(Http2 { connection, opened: now, leases: 1, used: None });
        Ok(Http2Lease { stream, is_crowded: false })
    }

    /// Removes idle connections. An idle connection closes with its last handle.
    fn sweep(&self, now: Instant) {
        let timeout = self.config.idle_timeout;
        self.open().retain_mut(|open| {
            if !self.is_kept(open, now) {
                return false;
            }
            match open.used {
                Some((_, at)) if !open.is_in_use() => {
                    self.note_announced(open);
                    now.since(at) <= timeout
                }
                _ => {
                    open.used = Some((open.leases, now));
                    true
                }
            }
        });
    }

    fn connection_count(&self) -> usize {
        self.open().len()
    }

    fn exchanges_max(&self) -> usize {
        self.last_announced().min(self.config.http2_streams_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_counts::ConnectionCounters;
    use std::net::Ipv4Addr;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    /// Opens a connection, and returns its first lease and the server's side.
    async fn open(transport: &Http2Transport, listener: &TcpListener) -> (Http2Lease, TcpStream) {
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).await.expect("it listens");
        let (server, _) = listener.accept().await.expect("a connection");
        let counters = Arc::<ConnectionCounters>::default();
        let counted = CountedConnection { counters, open_count: None };
        let lease = transport.start(Stream::Plain(stream), counted, Instant::ZERO).await;
        (lease.expect("it needs no handshake"), server)
    }

    #[tokio::test]
    async fn a_new_connection_begins_with_the_last_known_limit_of_streams() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let config = ConnectConfig::default();
        let transport = Http2Transport::new(&config, false);
        let leases = |first| {
            let more = std::iter::from_fn(|| transport.lease(Instant::ZERO));
            let all: Vec<_> = std::iter::once(first).chain(more).collect();
            all.len()
        };
        let (mut first, mut server) = open(&transport, &listener).await;
        // SETTINGS_MAX_CONCURRENT_STREAMS is 3.
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3];
        server.write_all(&settings).await.expect("it is open");
        assert!(!first.accepts_connect().await.expect("settings"));
        assert_eq!((leases(first), transport.exchanges_max()), (3, 3));
        // A further connection, and one after both have closed.
        let (second, _server) = open(&transport, &listener).await;
        assert_eq!(leases(second), 3 + 3);
        let later = Instant::ZERO + config.idle_timeout + config.idle_timeout;
        transport.sweep(Instant::ZERO);
        transport.sweep(later);
        assert_eq!(transport.connection_count(), 0);
        let (third, _server) = open(&transport, &listener).await;
        assert_eq!(leases(third), 3);
    }

    /// The number of streams of each connection, the oldest first.
    fn streams(transport: &Http2Transport) -> Vec<usize> {
        transport.open().iter().map(|open| open.connection.streams()).collect()
    }

    #[tokio::test]
    async fn the_newest_of_equal_connections_is_leased_so_that_the_oldest_may_idle_out() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let transport = Http2Transport::new(&ConnectConfig::default(), false);
        let (oldest, _server) = open(&transport, &listener).await;
        let (successor, _server) = open(&transport, &listener).await;
        drop((oldest, successor));
        let _lease = transport.lease(Instant::ZERO).expect("both are free");
        assert_eq!(streams(&transport), [0, 1]);
    }

    #[tokio::test]
    async fn a_connection_that_allows_no_streams_comes_last() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let config = ConnectConfig { http2_connections_max: 2, ..ConnectConfig::default() };
        let transport = Http2Transport::new(&config, false);
        let mut opened = Vec::new();
        for allowed in [1, 0] {
            let (mut lease, mut server) = open(&transport, &listener).await;
            // SETTINGS_MAX_CONCURRENT_STREAMS.
            let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, allowed];
            server.write_all(&settings).await.expect("it is open");
            lease.accepts_connect().await.expect("settings");
            opened.push((lease, server));
        }
        opened.pop();
        assert!(transport.lease(Instant::ZERO).is_none(), "no request waits for a stream");
        opened.pop();
        let _lease = transport.lease(Instant::ZERO).expect("the first connection is free");
        assert_eq!(streams(&transport), [1, 0]);
    }

    #[tokio::test]
    async fn a_request_does_not_wait_for_a_stream_that_the_server_takes_back() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let transport = Http2Transport::new(&ConnectConfig::default(), false);
        let (mut first, mut server) = open(&transport, &listener).await;
        let second = transport.lease(Instant::ZERO).expect("the limit is not known yet");
        server.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1]).await.expect("it is open");
        first.accepts_connect().await.expect("settings");
        let mut cx = Context::from_waker(Waker::noop());
        let [mut one, mut other] = [(); 2].map(|()| OutboundRequest::get("/", "h"));
        let mut first = Box::pin(transport.exchange(first, &mut one));
        assert!(first.as_mut().poll(&mut cx).is_pending(), "it has the only stream");
        let second = Box::pin(transport.exchange(second, &mut other)).as_mut().poll(&mut cx);
        assert!(matches!(second, Poll::Ready(Err(http2::Error::NoStream))));
    }

    #[tokio::test]
    async fn incomplete_bodies_may_use_half_of_the_streams() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let config = ConnectConfig {
            http2_connections_max: 3,
            http2_streams_max: 5,
            ..ConnectConfig::default()
        };
        let transport = Http2Transport::new(&config, false);
        let uploads = || {
            let all: Vec<_> = std::iter::from_fn(|| transport.count_upload().ok()).collect();
            (all.len(), transport.count_upload().err())
        };
        assert_eq!(uploads(), (8, Some(8)));
        let (mut lease, mut server) = open(&transport, &listener).await;
        server.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3]).await.expect("it is open");
        lease.accepts_connect().await.expect("settings");
        assert_eq!(uploads(), (5, Some(5)), "the server allows three on each connection");
    }

    #[tokio::test]
    async fn the_request_that_opens_a_connection_has_its_first_stream() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
        let mut cx = Context::from_waker(Waker::noop());
        for is_cancelled in [false, true] {
            let transport = Http2Transport::new(&ConnectConfig::default(), false);
            let (first, _server) = open(&transport, &listener).await;
            let has_opened_stream = || {
                let open = transport.open();
                open.last().expect("a connection").connection.has_carried_request()
            };
            let second = transport.lease(Instant::ZERO).expect("it has room");
            let [mut one, mut other] = [(); 2].map(|()| OutboundRequest::get("/", "h"));
            let mut first = Some(Box::pin(transport.exchange(first, &mut one)));
            let mut second = Box::pin(transport.exchange(second, &mut other));
            assert!(second.as_mut().poll(&mut cx).is_pending());
            assert!(!has_opened_stream(), "it waits for the first one");
            if is_cancelled {
                first = None;
            }
            if let Some(first) = &mut first {
                assert!(first.as_mut().poll(&mut cx).is_pending());
            } else {
                assert!(second.as_mut().poll(&mut cx).is_pending());
            }
            assert!(has_opened_stream());
        }
    }

    #[tokio::test]
    async fn only_a_close_before_the_first_request_is_early() {
        for is_used in [false, true] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
            let transport = Http2Transport::new(&ConnectConfig::default(), false);
            let (lease, server) = open(&transport, &listener).await;
            drop(server);
            if is_used {
                let mut request = OutboundRequest::get("/", "h");
                transport.exchange(lease, &mut request).await.expect_err("it closes");
            } else {
                drop(lease);
            }
            while transport.connection_count() > 0 {
                tokio::task::yield_now().await;
                // As if no time had passed, however long this takes.
                transport.sweep(Instant::ZERO);
            }
            assert_eq!(transport.take_early_close(), !is_used);
        }
    }
}
