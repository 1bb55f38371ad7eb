//! HTTP/2 with a server: one connection, which carries many exchanges ([`StreamLease::send`]).
//!
//! **Flow control**: h2 returns the credit of a stream and of its connection together, when the body is read. The
//! connection window is the sum of all stream windows, so no stream waits for a stalled stream. This sum bounds the
//! memory.
//! **Cancelling**: dropping the response of an exchange resets its stream. By default, h2 remembers few reset streams,
//! and closes a connection after many late frames of forgotten streams. Hedging often resets streams, so here h2
//! remembers [`RESETS_REMEMBERED`] streams, and does not close the connection for such frames.
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
use curtail_units::Bytes as ByteSize;
pub(crate) use exchange::Http2Body;
pub use exchange::{Error, is_unprocessed};
use h2::client::SendRequest;
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Uri, header};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The largest flow-control window (RFC 9113, section 6.9.1).
pub const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// Converts a size to an HTTP/2 flow-control window; a larger size becomes the largest window.
#[must_use]
pub fn flow_control_window(bytes: ByteSize) -> u32 {
    u32::try_from(bytes.get()).unwrap_or(u32::MAX).min(WINDOW_BYTES_MAX)
}

/// Maximum number of reset streams of a connection whose late frames are still expected. Beyond it, h2 forgets the
/// oldest streams, and counts their late frames as errors of the server.
const RESETS_REMEMBERED: usize = 10_000;

/// Maximum size of headers that h2 accepts; h2 may close the connection if headers are far larger.
/// [`HEAD_BYTES_MAX`](crate::http1::HEAD_BYTES_MAX) is lower, and ends only the stream.
const HEADERS_BYTES_MAX: u32 = 256 << 10;

/// Maximum streams on a connection before the server's settings arrive (RFC 9113, section 6.5.2).
const STREAMS_BEFORE_SETTINGS: usize = 100;

/// Maximum number of bytes of a stream that h2 buffers because the server has not accepted them.
const SENDING_BYTES_MAX: usize = 1 << 20;

/// An open connection, which closes when this and all leases are dropped.
#[derive(Debug)]
pub(crate) struct Http2Connection {
    sender: SendRequest<Bytes>,
    activity: Arc<Activity>,
}

impl Http2Connection {
    /// Starts HTTP/2 on a new connection. The caller drives the returned future.
    pub(crate) async fn start(
        stream: Stream,
        config: &ConnectConfig,
    ) -> Result<(Self, impl Future<Output = Result<(), h2::Error>> + use<>), h2::Error> {
        let (sender, mut connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
            .initial_window_size(flow_control_window(config.http2_stream_window))
            .initial_connection_window_size(flow_control_window(config.http2_connection_window()))
            .max_header_list_size(HEADERS_BYTES_MAX)
            .max_send_buffer_size(SENDING_BYTES_MAX)
            .max_concurrent_reset_streams(RESETS_REMEMBERED)
            .max_local_error_reset_streams(None)
            .handshake(stream)
            .await?;
        let pings = connection.ping_pong().expect("they are taken once");
        let started = Self { sender, activity: Activity::new() };
        let activity = Arc::clone(&started.activity);
        let ping_interval = config.http2_ping_interval.into();
        let driver = async move {
            let mut silent = pin!(activity.wait_until_silent(pings, ping_interval));
            poll_fn(|cx| match silent.as_mut().poll(cx) {
                // Waiting requests wake when the connection is dropped.
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => Pin::new(&mut connection).poll(cx),
            })
            .await
        };
        Ok((started, driver))
    }

    pub(crate) fn lease(&self) -> StreamLease {
        StreamLease { sender: self.sender.clone(), stream: StreamCount::new(&self.activity) }
    }

    /// Whether the connection accepts no further request.
    pub(crate) fn is_closed(&mut self) -> bool {
        // This handle has no request of its own that could be pending.
        let polled = self.sender.poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(Err(_)))
    }

    pub(crate) fn streams(&self) -> usize {
        self.activity.streams()
    }

    /// Returns the server's `SETTINGS_MAX_CONCURRENT_STREAMS`; h2 queues further requests.
    pub(crate) fn streams_allowed(&self) -> usize {
        self.sender.current_max_send_streams()
    }
}

#[derive(Debug)]
pub(crate) struct StreamLease {
    sender: SendRequest<Bytes>,
    stream: StreamCount,
}

/// Replaces `host` by `:scheme` and `:authority` (RFC 9113, section 8.3.1), without which many servers reject a
/// request. Removes a request for an upgrade, which HTTP/2 does not have (section 8.6).
pub(crate) fn set_pseudo_headers(request: &mut Request<OutboundBody>, tls: bool) {
    let headers = request.headers_mut();
    headers.remove(header::UPGRADE);
    headers.remove(header::CONNECTION);
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let Some(authority) = host.and_then(|host| Authority::try_from(host).ok()) else {
        // Not a valid authority: the server gets `host` as the client wrote it.
        return;
    };
    headers.remove(header::HOST);
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(authority);
    *request.uri_mut() = Uri::from_parts(parts).expect("scheme, authority and path are all there");
}
