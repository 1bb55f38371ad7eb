//! HTTP/2 with a client: one connection, whose streams have a task each.
//!
//! **Limits**: a client must read a frame of each response, or the rest of it, within [`Http2Limits::write_timeout`];
//! its first SETTINGS, and the rest of each header block, must arrive within [`Http2Limits::header_timeout`].
//! [`ProtocolLimits`] has the limits of streams and bytes.

use super::driver::{Driver, KeepAlive};
use super::duplex::DuplexStream;
use super::error::{ConnectionError, Error, ErrorCode};
use super::handle::{BodySender, Http2Body, ReadHandle, SendError, SendHandle};
use super::state::{
    AcceptedRequest, Arrival, ConnectionState, ProtocolLimits, ResponseToSend, Role, Shared, lock,
};
use crate::clock::Clock;
use crate::drain::Drain;
use crate::forwarding::remove_hop_by_hop;
use crate::head::{Fault, Known, RequestHead, ResponseHead};
use crate::http1::with_date;
use crate::progress::ProgressTimer;
use crate::replay::ClientBody;
use crate::service::{self, Service};
use crate::timers::Timers;
use bytes::BytesMut;
use curtail_units::Duration;
use http::StatusCode;
use http_body::Body;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Sleep;

/// Time for requests after a client has acknowledged a graceful end. Clients that run several threads, such as those of
/// Go, may acknowledge it before they send a request that has already chosen the connection.
const SHUTDOWN_GRACE: std::time::Duration = std::time::Duration::from_secs(1);

/// Limits on a client.
#[derive(Clone, Copy, Debug)]
pub struct Http2Limits {
    /// Maximum size of a request's head, as the size of a header list (RFC 9113, section 6.5.2).
    pub head_bytes_max: usize,
    /// Maximum number of concurrent requests.
    pub streams_max: u32,
    /// Maximum number of bytes of a request's body that wait to be read.
    pub stream_window: u32,
    /// The flow-control window of the connection.
    pub connection_window: u32,
    /// Maximum number of requests that a client may reset in a burst before it has their responses.
    pub resets_max: u32,
    /// Maximum time to the end of the first SETTINGS, and from the start of a header block to its end.
    pub header_timeout: Duration,
    /// A client that is silent for half of this time, and does not respond to a PING for the other half, has gone.
    pub idle_timeout: Duration,
    /// Maximum time for which a client reads nothing of a response.
    pub write_timeout: Duration,
}

/// Serves a connection, whose first bytes, `prefix`, have already been read, until it closes. Returns why it closed;
/// [`None`] if it drained.
pub async fn serve<S: Service + 'static>(
    (stream, prefix): (impl AsyncRead + AsyncWrite + Unpin, BytesMut),
    limits: Http2Limits,
    drain: Drain,
    (timers, clock): (&Arc<Timers>, Clock),
    service: Arc<S>,
) -> Option<ConnectionError> {
    let protocol_limits = ProtocolLimits {
        stream_window: limits.stream_window,
        connection_window: limits.connection_window,
        streams_max: limits.streams_max,
        list_bytes_max: limits.head_bytes_max,
        resets_max: limits.resets_max,
    };
    let state = ConnectionState::new(Role::Server, protocol_limits, 0);
    let half = std::time::Duration::from(limits.idle_timeout) / 2;
    let timer = || ProgressTimer::new(timers, clock, limits.write_timeout);
    let mut connection = ServerConnection {
        driver: Driver::new(stream, prefix),
        shared: Arc::new(Mutex::new(state)),
        drain,
        is_draining: false,
        grace: None,
        keep_alive: KeepAlive::new(half, half, false),
        header_timer: timer(),
        header_timeout: limits.header_timeout,
    };
    let shared = Arc::clone(&connection.shared);
    let mut accept = |arrival| match arrival {
        Arrival::Respond(request) => {
            let stream = SendHandle { shared: Arc::clone(&shared), key: request.key };
            let service = Arc::clone(&service);
            let exchange = Exchange { service, stream, timer: timer(), clock };
            tokio::spawn(exchange.respond(request));
        }
        // Its client sees the reset in place of the response.
        Arrival::Note(why) => drop(service.reject(Fault::bad(why))),
    };
    poll_fn(|cx| connection.poll(cx, &mut accept)).await;
    connection.close().await
}

struct ServerConnection<S> {
    driver: Driver<S>,
    shared: Shared,
    drain: Drain,
    is_draining: bool,
    /// The timer of [`SHUTDOWN_GRACE`].
    grace: Option<Pin<Box<Sleep>>>,
    keep_alive: KeepAlive,
    /// Waits for the first SETTINGS, and for complete header blocks.
    header_timer: ProgressTimer,
    header_timeout: Duration,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ServerConnection<S> {
    fn poll(&mut self, cx: &mut Context<'_>, accept: &mut dyn FnMut(Arrival)) -> Poll<()> {
        if !self.is_draining && self.drain.poll(cx).is_ready() {
            self.is_draining = true;
            lock(&self.shared).begin_shutdown();
        }
        let last_read = self.driver.last_read();
        if self.keep_alive.poll(cx, &self.shared, last_read).is_ready() {
            lock(&self.shared).fail(ConnectionError::Silent);
            return Poll::Ready(());
        }
        if self.driver.poll(cx, &self.shared, accept).is_ready() {
            return Poll::Ready(());
        }
        if self.is_draining {
            self.poll_grace(cx);
        }
        self.poll_headers(cx)
    }

    /// Accepts no further request once the grace of a graceful end is over.
    fn poll_grace(&mut self, cx: &mut Context<'_>) {
        if !lock(&self.shared).is_shutdown_acknowledged() {
            return;
        }
        let new = || Box::pin(tokio::time::sleep(SHUTDOWN_GRACE));
        if self.grace.get_or_insert_with(new).as_mut().poll(cx).is_ready() {
            lock(&self.shared).finish_shutdown();
        }
    }

    /// Ready when a header block, or the first SETTINGS, does not arrive in time.
    fn poll_headers(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = lock(&self.shared);
        let has_begun = state.has_peer_settings();
        let progress = state.block_count() + u64::from(has_begun);
        let is_waiting =
            !has_begun || state.has_partial_block() || self.driver.has_partial_headers();
        if !is_waiting {
            self.header_timer.rest();
            return Poll::Pending;
        }
        let late = self.header_timer.poll_within(cx, progress, self.header_timeout);
        if late.is_ready() {
            state.fail(ConnectionError::HeaderTimeout);
        }
        late
    }

    /// Closes the connection so that its last frames are not lost.
    async fn close(self) -> Option<ConnectionError> {
        let failure = lock(&self.shared).failure().cloned();
        // The tasks of streams that were abandoned end.
        lock(&self.shared).fail(ConnectionError::Unneeded);
        match &failure {
            None
            | Some(
                ConnectionError::Violation { .. }
                | ConnectionError::Silent
                | ConnectionError::HeaderTimeout,
            ) => self.driver.close(&self.shared).await,
            Some(
                ConnectionError::Closed
                | ConnectionError::Io(_)
                | ConnectionError::GoneAway(_)
                | ConnectionError::Unneeded,
            ) => {}
        }
        failure
    }
}

/// One request and its response.
struct Exchange<S> {
    service: Arc<S>,
    stream: SendHandle,
    /// Waits for the client to read.
    timer: ProgressTimer,
    clock: Clock,
}

impl<S: Service> Exchange<S> {
    async fn respond(mut self, request: AcceptedRequest) {
        let (head, body) = match request.head {
            // Only WebSocket handshakes have this field. Boxed, because they are rare, and carry their bytes.
            Ok(head) if head.fields.has(Known::Upgrade) => {
                let Some((refused, head, body)) = Box::pin(self.connect(head)).await else {
                    return;
                };
                self = refused;
                (head, body)
            }
            Ok(head) => {
                let stream = &self.stream;
                let body = request.has_body.then(|| Http2Body(ReadHandle::of(stream)));
                let interim = service::InterimSink::Http2(InterimSink::of(stream));
                let body = body.map(ClientBody::Http2);
                let response = pin!(self.service.respond(head, body, Some(interim)));
                match unless_reset(stream, response).await {
                    Some(response) => response,
                    None => return,
                }
            }
            Err(fault) => {
                lock(&self.stream.shared).end_reading(self.stream.key);
                self.service.reject(fault)
            }
        };
        let Self { service, stream, mut timer, clock } = self;
        let is_end = body.is_end_stream();
        let length = if is_end { None } else { body.size_hint().exact() };
        send_head(&stream, &head, (length, is_end), &clock);
        let mut sender = BodySender::new(stream, body, is_end);
        match poll_fn(|cx| poll_in_time(&mut sender, &mut timer, cx)).await {
            Some(Ok(())) => {}
            Some(Err(SendError::Stream(error))) => {
                tracing::debug!(%error, "a response was not sent completely");
            }
            Some(Err(SendError::Body(error))) => {
                tracing::debug!(%error, "a response broke off");
                sender.reset(ErrorCode::INTERNAL_ERROR, Error::Cancelled);
            }
            None => {
                service.write_timed_out(&mut sender.body);
                tracing::debug!(
                    "stream reset: the client did not read the response within limits.write_timeout"
                );
                sender.reset(ErrorCode::CANCEL, Error::Cancelled);
            }
        }
    }

    /// Waits for the response to a WebSocket handshake, and carries the bytes of the WebSocket. Data that the client sends
    /// before the response waits. Returns a response that opens no WebSocket.
    async fn connect(self, head: RequestHead) -> Option<(Self, ResponseHead, S::Body)> {
        let reader = ReadHandle::of(&self.stream);
        let response = {
            let interim = service::InterimSink::Http2(InterimSink::of(&self.stream));
            let response = pin!(self.service.respond(head, None, Some(interim)));
            unless_reset(&self.stream, response).await
        };
        let (mut head, body) = response?;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            head.status = StatusCode::OK;
            head.fields.remove(Known::SecWebsocketAccept.bit());
            send_head(&self.stream, &head, (None, false), &self.clock);
            let stream = DuplexStream::new(self.stream, reader);
            self.service.carry(stream, body).await;
            return None;
        }
        drop(reader);
        if head.status.is_success() {
            // The client would take it for the other end of its WebSocket.
            tracing::debug!(status = %head.status, "reset the stream of a WebSocket that was not opened");
            let SendHandle { shared, key } = &self.stream;
            lock(shared).reset(*key, ErrorCode::INTERNAL_ERROR, Error::Cancelled);
            return None;
        }
        Some((self, head, body))
    }
}

/// Waits for a response while the client wants it.
async fn unless_reset<T>(
    stream: &SendHandle,
    mut response: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|cx| match response.as_mut().poll(cx) {
        Poll::Ready(response) => Poll::Ready(Some(response)),
        Poll::Pending => lock(&stream.shared).poll_reset(cx, stream.key).map(|_: Error| None),
    })
    .await
}

fn send_head(
    stream: &SendHandle,
    head: &ResponseHead,
    (length, is_end): (Option<u64>, bool),
    clock: &Clock,
) {
    let length = length.filter(|_| !head.fields.has(Known::ContentLength));
    with_date(clock, |date| {
        let date = (!head.fields.has(Known::Date)).then_some(date);
        let response = ResponseToSend { head, length, date, is_end };
        lock(&stream.shared).send_response(stream.key, response);
    });
}

/// Sends the body; [`None`] if the client reads nothing of it for too long.
fn poll_in_time<B: Body<Data = bytes::Bytes> + Unpin>(
    sender: &mut BodySender<B>,
    timer: &mut ProgressTimer,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<(), SendError<B::Error>>>> {
    if let Poll::Ready(sent) = sender.poll(cx) {
        return Poll::Ready(Some(sent));
    }
    if sender.is_blocked() {
        return timer.poll(cx, sender.progress()).map(|()| None);
    }
    timer.rest();
    Poll::Pending
}

/// Receives the interim responses to a request over HTTP/2.
#[derive(Clone, Debug)]
pub struct InterimSink {
    shared: Shared,
    key: usize,
    /// Another stream may have the same key later.
    id: u32,
}

impl InterimSink {
    fn of(stream: &SendHandle) -> Self {
        let id = lock(&stream.shared).stream_id(stream.key);
        Self { shared: Arc::clone(&stream.shared), key: stream.key, id }
    }

    pub(crate) fn send(&self, mut head: ResponseHead) {
        remove_hop_by_hop(&mut head.fields);
        lock(&self.shared).send_interim((self.key, self.id), &head);
    }
}
