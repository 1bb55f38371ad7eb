//! HTTP/2 with a server: one connection, which carries many exchanges ([`StreamLease::send`]).
//!
//! Until the response begins, the attempt's own task sends the request body and reads the interim responses. A separate
//! task then sends the rest of the body, because a client that does not read the response may still send.
//!
//! **Cancelling**: dropping the response of an exchange resets its stream.
//! **Limits**: [`HEAD_BYTES_MAX`] for the headers of a response with its interim responses, and for its trailers; sizes
//! of fields are those of HPACK.

use super::driver::{Driver, KeepAlive};
use super::duplex::DuplexStream;
use super::error::{ConnectionError, Error, ErrorCode};
use super::flow_control_window;
use super::handle::{BodySender, Http2Body, ReadHandle, SendError, SendHandle};
use super::state::{
    ConnectionState, ProtocolLimits, RequestToSend, ResponseEvent, Role, Shared, lock,
};
use crate::connect::ConnectConfig;
use crate::head::ResponseHead;
use crate::http1::HEAD_BYTES_MAX;
use crate::outbound_request::OutboundRequest;
use crate::replay::OutboundBody;
use crate::service::InterimSink;
use crate::stream::Stream;
use bytes::{Bytes, BytesMut};
use http::Method;
use http_body::{Body, Frame, SizeHint};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Maximum streams on a connection before the server's settings arrive (RFC 9113, section 6.5.2).
const STREAMS_BEFORE_SETTINGS: usize = 100;

/// Maximum time until a server responds to a ping; a slower server has failed.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum time for which a server reads nothing of a request to which it has responded completely.
const UPLOAD_STALL_MAX: Duration = Duration::from_secs(60);

/// An open connection, which closes when this and all leases are dropped.
#[derive(Debug)]
pub(crate) struct Http2Connection {
    shared: Shared,
}

impl Http2Connection {
    /// Starts HTTP/2 on a new connection. The caller drives the returned future, which ends with the connection.
    /// `streams_known` is the limit of streams on earlier connections, [`usize::MAX`] if none is known.
    pub(crate) fn start(
        stream: Stream,
        config: &ConnectConfig,
        streams_known: usize,
    ) -> (Self, impl Future<Output = Option<ConnectionError>> + use<>) {
        let limits = ProtocolLimits {
            stream_window: flow_control_window(config.http2_stream_window),
            connection_window: flow_control_window(config.http2_connection_window()),
            streams_max: 0,
            list_bytes_max: HEAD_BYTES_MAX,
            // A server that resets requests costs no more than one that fails them.
            resets_max: u32::MAX,
        };
        let streams = streams_known.min(STREAMS_BEFORE_SETTINGS);
        let state = ConnectionState::new(Role::Client, limits, streams);
        let shared = Arc::new(Mutex::new(state));
        let driven = Arc::clone(&shared);
        let mut keep_alive = KeepAlive::new(config.http2_ping_interval.into(), PING_TIMEOUT, true);
        let mut driver = Driver::new(stream, BytesMut::new());
        let driving = async move {
            poll_fn(|cx| {
                let silent = keep_alive.poll(cx, &driven, driver.last_read());
                if silent.is_ready() {
                    let mut state = lock(&driven);
                    driver.note_written(&mut state);
                    state.fail(ConnectionError::Silent);
                    return Poll::Ready(());
                }
                let polled = driver.poll(cx, &driven, &mut |_| {});
                // A server that reads nothing does not delay the end.
                if lock(&driven).failure().is_some() { Poll::Ready(()) } else { polled }
            })
            .await;
            let failure = lock(&driven).failure().cloned();
            lock(&driven).fail(ConnectionError::Unneeded);
            if let Some(ConnectionError::Violation { .. } | ConnectionError::Silent) = failure {
                // The requests have ended; the server may still get the reason.
                driver.close(&driven).await;
            }
            failure
        };
        (Self { shared }, driving)
    }

    pub(crate) fn lease(&self) -> StreamLease {
        lock(&self.shared).add_lease();
        StreamLease { shared: Arc::clone(&self.shared), is_first: false }
    }

    /// Leases the first stream of a new connection.
    pub(crate) fn lease_first(&self) -> StreamLease {
        lock(&self.shared).reserve_first();
        let mut lease = self.lease();
        lease.is_first = true;
        lease
    }

    /// Whether the connection accepts no further request.
    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.shared).is_closed()
    }

    /// Whether the connection carries a request, or has carried one.
    pub(crate) fn has_carried_request(&self) -> bool {
        lock(&self.shared).has_opened_stream()
    }

    pub(crate) fn streams(&self) -> usize {
        lock(&self.shared).stream_count()
    }

    /// Returns the server's `SETTINGS_MAX_CONCURRENT_STREAMS`.
    pub(crate) fn streams_allowed(&self) -> usize {
        lock(&self.shared).streams_allowed()
    }

    /// The same limit; [`None`] before the server's settings arrive.
    pub(crate) fn streams_announced(&self) -> Option<usize> {
        let state = lock(&self.shared);
        state.has_peer_settings().then(|| state.streams_allowed())
    }
}

impl Drop for Http2Connection {
    fn drop(&mut self) {
        lock(&self.shared).end_after_streams();
    }
}

/// The right to one exchange.
#[derive(Debug)]
pub(crate) struct StreamLease {
    shared: Shared,
    /// Whether the first stream is reserved for this lease.
    is_first: bool,
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        self.end_first_reservation();
        lock(&self.shared).end_lease();
    }
}

impl StreamLease {
    /// Sends a request and waits for the head of its response; interim responses go to `request.interim`. Dropping the future
    /// resets the stream. After an error, the request can be sent again, as far as its body is kept.
    pub(crate) async fn send(
        self,
        request: &mut OutboundRequest,
        is_https: bool,
    ) -> Result<(ResponseHead, ResponseBody), Error> {
        let is_end = request.body.is_end_stream();
        let length = announced_length(&request.head.method, &request.body);
        let to_send = RequestToSend { request, is_https, length, is_end, is_connect: false };
        let (stream, body_reader) = self.open(to_send).await?;
        let mut exchange = Exchange {
            sending: BodySender::new(stream, request.body.take_to_send(), is_end),
            body: body_reader,
            interim: request.interim.clone(),
        };
        match poll_fn(|cx| exchange.poll_head(cx)).await {
            Ok((head, left)) => Ok((head, exchange.into_body(left))),
            Err(error) => {
                request.body.put_back(exchange.sending.body);
                Err(error)
            }
        }
    }

    /// Opens a stream by the head of a request.
    async fn open(mut self, request: RequestToSend<'_>) -> Result<(SendHandle, Http2Body), Error> {
        let key = poll_fn(|cx| {
            let mut state = lock(&self.shared);
            // The others wake, and look again after this poll.
            if std::mem::take(&mut self.is_first) {
                state.end_first_reservation();
            }
            state.poll_send_request(cx, request)
        })
        .await?;
        let stream = SendHandle { shared: Arc::clone(&self.shared), key };
        let reader = ReadHandle::of(&stream);
        // The stream counts instead of the lease.
        Ok((stream, Http2Body(reader)))
    }

    /// Waits for the server's settings; whether it accepts WebSockets. The other requests do not wait for them.
    pub(crate) async fn accepts_connect(&mut self) -> Result<bool, Error> {
        self.end_first_reservation();
        poll_fn(|cx| lock(&self.shared).poll_accepts_connect(cx)).await
    }

    fn end_first_reservation(&mut self) {
        if std::mem::take(&mut self.is_first) {
            lock(&self.shared).end_first_reservation();
        }
    }

    /// Sends a WebSocket handshake over HTTP/1.1 as extended CONNECT (RFC 8441), and waits for the head of its response.
    /// Dropping the future resets the stream.
    pub(crate) async fn connect(
        self,
        request: &mut OutboundRequest,
        is_https: bool,
    ) -> Result<(ResponseHead, ConnectBody), Error> {
        let request_head =
            RequestToSend { request, is_https, length: None, is_end: false, is_connect: true };
        let (stream, body) = self.open(request_head).await?;
        // Nothing is sent until the server has accepted.
        let sending = BodySender::new(stream, OutboundBody::Empty, true);
        let mut exchange = Exchange { sending, body, interim: request.interim.take() };
        let (head, left) = poll_fn(|cx| exchange.poll_head(cx)).await?;
        let Exchange { sending, body, .. } = exchange;
        if head.status.is_success() {
            let stream = DuplexStream::new(sending.stream, body.0);
            return Ok((head, ConnectBody::Accepted(stream)));
        }
        let sending = BodySender::new(sending.stream, OutboundBody::Empty, false);
        let sending = Some(tokio::spawn(send_rest(sending)));
        Ok((head, ConnectBody::Refused(ResponseBody { body, left, sending })))
    }
}

/// The stream or the body that follows the head of a response to extended CONNECT.
#[derive(Debug)]
pub(crate) enum ConnectBody {
    Accepted(DuplexStream),
    Refused(ResponseBody),
}

/// Returns the length to announce, if it is known and means something.
fn announced_length(method: &Method, body: &OutboundBody) -> Option<u64> {
    let has_meaning =
        !matches!(*method, Method::GET | Method::HEAD | Method::DELETE | Method::CONNECT);
    body.size_hint().exact().filter(|bytes| *bytes > 0 || has_meaning)
}

struct Exchange {
    sending: BodySender<OutboundBody>,
    body: Http2Body,
    interim: Option<InterimSink>,
}

impl Exchange {
    /// The response has begun; a task sends the rest of the request.
    fn into_body(mut self, left: Option<u64>) -> ResponseBody {
        // A stream in both directions is no upload whose server waits for its end.
        self.sending.body.end_count();
        let sending = (!self.sending.is_done()).then(|| tokio::spawn(send_rest(self.sending)));
        ResponseBody { body: self.body, left, sending }
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(ResponseHead, Option<u64>), Error>> {
        // The response may begin before the request is complete.
        let _ = poll_sending(&mut self.sending, cx);
        loop {
            let Http2Body(ReadHandle { shared, key }) = &self.body;
            let event = lock(shared).poll_response(cx, *key);
            match ready!(event)? {
                ResponseEvent::Final(head, left) => return Poll::Ready(Ok((head, left))),
                ResponseEvent::Interim(head) => {
                    if let Some(sink) = &self.interim {
                        sink.send(head);
                    }
                }
            }
        }
    }
}

/// Sends the body of a request; ready when no more of it is sent. A failed stream reports its error to the reader of the
/// response.
fn poll_sending(sending: &mut BodySender<OutboundBody>, cx: &mut Context<'_>) -> Poll<()> {
    match ready!(sending.poll(cx)) {
        Ok(()) | Err(SendError::Stream(_)) => {}
        Err(SendError::Body(error)) => {
            tracing::debug!(%error, "failed to send the whole request body");
            sending.reset(ErrorCode::INTERNAL_ERROR, Error::Body(error));
        }
    }
    Poll::Ready(())
}

/// Sends the rest of a body, after the response has begun. A server that has responded completely, and reads no more of
/// the request without saying so, gets a reset.
async fn send_rest(mut sending: BodySender<OutboundBody>) {
    let mut stalled = pin!(tokio::time::sleep(UPLOAD_STALL_MAX));
    let mut progress = 0;
    poll_fn(|cx| {
        if poll_sending(&mut sending, cx).is_ready() {
            return Poll::Ready(());
        }
        let SendHandle { shared, key } = &sending.stream;
        let is_useless = sending.is_blocked() && lock(shared).is_received(*key);
        if !is_useless || progress != sending.progress() {
            progress = sending.progress();
            stalled.as_mut().reset(Instant::now() + UPLOAD_STALL_MAX);
        }
        if is_useless && stalled.as_mut().poll(cx).is_ready() {
            tracing::debug!("a server responded, and then read no more of the request");
            sending.reset(ErrorCode::CANCEL, Error::Cancelled);
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// The body of a response. Dropping it before its end resets the stream.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    body: Http2Body,
    /// The number of remaining bytes, if known.
    left: Option<u64>,
    sending: Option<JoinHandle<()>>,
}

impl ResponseBody {
    /// Reads the next frame. Each piece returns its flow-control credit to the server.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.left = self.left.map(|left| left.saturating_sub(bytes));
        }
        Poll::Ready(frame)
    }

    pub(crate) fn is_end(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Returns the number of remaining bytes, if known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let Http2Body(ReadHandle { shared, key }) = &self.body;
        let mut state = lock(shared);
        // A complete response does not end its request.
        if !state.is_received(*key) {
            state.reset(*key, ErrorCode::CANCEL, Error::Cancelled);
            drop(state);
            if let Some(sending) = self.sending.take() {
                sending.abort();
            }
        } else if self.sending.is_some() {
            // The rest of the request now has a time limit.
            state.wake_sender(*key);
        }
    }
}
