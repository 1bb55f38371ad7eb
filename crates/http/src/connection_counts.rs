//! Counts of connections to servers, from their opening until they are dropped.

use crate::limit_breaker::LimitBreaker;
use crate::stream::Stream;
use curtail_metrics::{Counter, GaugeGuard};
use curtail_units::Duration;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The time of each phase of a connection attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectPhases {
    /// The DNS lookup; zero for an address.
    pub lookup: Duration,
    /// The TCP handshake.
    pub tcp: Duration,
    /// The TLS handshake; zero in clear text.
    pub tls: Duration,
}

curtail_metrics::counters! {
    /// The counters of the connections to one server. Times are sums over the opened connections.
    pub ConnectionCounters, ConnectionCounts {
        /// Closed connections. Read first: a connection that opens and closes meanwhile must not close before it opened.
        closed: Counter,
        /// Opened connections.
        opened: Counter,
        /// Connection attempts that failed.
        failed: Counter,
        /// Name lookups.
        lookup_ns: Counter,
        /// TCP handshakes.
        tcp_ns: Counter,
        /// TLS handshakes.
        tls_ns: Counter,
        /// Requests that found all connections or streams in use, or half of them by uploads.
        connections_full: LimitBreaker,
        /// Requests over HTTP/2 that the server refused, by `REFUSED_STREAM` or GOAWAY; every refusal counts.
        streams_refused: Counter,
        /// Requests that found too many others waiting for a connection.
        waiting_full: LimitBreaker,
    }
}

impl ConnectionCounters {
    /// Counts an opened connection.
    pub fn connected(&self, phases: &ConnectPhases) {
        self.opened.add(1);
        self.lookup_ns.add(phases.lookup.as_ns());
        self.tcp_ns.add(phases.tcp.as_ns());
        self.tls_ns.add(phases.tls.as_ns());
    }
}

/// A connection to a server; counted as open until dropped.
#[derive(Debug)]
pub struct CountedConnection {
    pub(crate) counters: Arc<ConnectionCounters>,
    /// The count as an HTTP/1.1 connection.
    pub(crate) open_count: Option<GaugeGuard>,
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.counters.closed.add(1);
    }
}

/// The stream of a connection that counts until the stream is dropped, whatever carries it then.
#[derive(Debug)]
pub(crate) struct CountedStream {
    pub(crate) stream: Stream,
    pub(crate) _counted: CountedConnection,
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
