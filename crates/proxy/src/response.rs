//! Responses on their way from the replica to the client.
//!
//! A response whose known length is at most `limits.response_buffer` is buffered before it is forwarded: its latency
//! includes the body, and if it breaks off, another attempt can replace it. Any other response is streamed: when it
//! breaks off, the client's response breaks off too.

use crate::driver::{Driver, Effects};
use crate::grpc_call;
use crate::leaf::LeafPermit;
use crate::metrics::{ClientTimeout, ListenerMetrics, ResponseClass};
use crate::root;
use crate::trail::{AttemptEnd, CancelReason, Trail};
use crate::tunnel::Tunnel;
use crate::worker::Worker;
use bytes::{Bytes, BytesMut};
use curtail_http::forwarding;
use curtail_http::head::{Known, RequestHead, ResponseHead};
use curtail_http::pool::{self, ResponseBody};
use curtail_http::progress::ProgressTimer;
use curtail_http::replay::{BodyError, ClientFault, Replay};
use curtail_http::{http1, trailers};
use curtail_policy::{AttemptId, Event, Failure};
use curtail_units::Instant;
use http::{HeaderMap, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The response to an attempt, which the driver keeps until the policies have decided.
#[derive(Debug)]
pub(crate) struct BufferedResponse {
    pub(crate) head: ResponseHead,
    pub(crate) body: BufferedBody,
}

#[derive(Debug)]
pub(crate) enum BufferedBody {
    Whole(Bytes, Option<HeaderMap>),
    Open(ResponseBody),
}

/// Reads the body of a response if its length is known and at most `bytes_max`.
///
/// # Errors
/// When it breaks off.
pub(crate) async fn take_small(
    head: ResponseHead,
    mut body: ResponseBody,
    bytes_max: u64,
) -> Result<BufferedResponse, pool::ResponseError> {
    let is_small = body.size_hint().exact().is_some_and(|bytes| bytes <= bytes_max);
    if !is_small || head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(BufferedResponse { head, body: BufferedBody::Open(body) });
    }
    let (mut data, mut trailers) = (Bytes::new(), None);
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(piece) => data = append(data, piece),
            Err(frame) => trailers = Some(trailers_of(frame)),
        }
    }
    Ok(BufferedResponse { head, body: BufferedBody::Whole(data, trailers) })
}

/// The trailers of a frame without data, without fields that must not be trailers.
fn trailers_of(frame: Frame<Bytes>) -> HeaderMap {
    let mut trailers = frame.into_trailers().unwrap_or_default();
    trailers::remove_others(&mut trailers);
    trailers
}

/// Appends a piece of a small body. Nearly every small body has one piece, which is not copied.
fn append(data: Bytes, piece: Bytes) -> Bytes {
    if data.is_empty() {
        return piece;
    }
    let mut all = BytesMut::from(data);
    all.extend_from_slice(&piece);
    all.freeze()
}

#[derive(Debug)]
pub(crate) struct WinningResponse {
    pub(crate) response: Box<BufferedResponse>,
    pub(crate) completion: Completion,
}

/// The end of a forwarded response: reports it to the machine and writes the spans.
#[derive(Debug)]
pub(crate) struct Completion {
    driver: Box<Driver>,
    /// Absent: the request is over.
    trail: Option<Box<Trail>>,
    attempt: AttemptId,
    worker: Arc<Worker>,
    /// Whether trailers of the proxy reach the client, which over HTTP/1.1 is not certain.
    takes_trailers: bool,
}

impl WinningResponse {
    pub(crate) fn new(
        driver: Box<Driver>,
        mut trail: Box<Trail>,
        attempt: AttemptId,
        response: Box<BufferedResponse>,
        worker: &Arc<Worker>,
    ) -> Self {
        trail.response_begun = trail.end.map(|end| end.at);
        let status = response.head.fields.get(Known::GrpcStatus);
        trail.grpc_status = status.and_then(grpc_call::parse_status);
        let worker = Arc::clone(worker);
        let takes_trailers = trail.request_head.version == Version::HTTP_2;
        let trail = Some(trail);
        let completion = Completion { driver, trail, attempt, worker, takes_trailers };
        Self { response, completion }
    }

    /// The head of the request, if the response is an error of a leaf or of another proxy.
    pub(crate) fn request_of_leaf_error(&self) -> Option<Arc<RequestHead>> {
        let BufferedResponse { head, .. } = &*self.response;
        let is_error = head.fields.has(Known::CurtailError) && !head.status.is_success();
        let trail = self.completion.trail.as_ref().filter(|_| is_error)?;
        Some(Arc::clone(&trail.request_head))
    }

    /// The response for the client, without the fields that concern the replica's connection.
    pub(crate) fn forward(
        self,
        is_at_leaf: bool,
        (permit, idle): (Option<LeafPermit>, Option<IdleTimeout>),
    ) -> (ResponseHead, RelayedBody) {
        let Self { response, completion } = self;
        let BufferedResponse { mut head, body } = *response;
        if !is_at_leaf {
            // Headers of our leaves are not for clients: another root would take them for its own leaf's.
            head.fields.remove(Known::CurtailLeaf.bit());
        }
        if head.status.is_informational() || head.status == StatusCode::NO_CONTENT {
            // RFC 9110, section 8.6. HTTP/2 clients reset the stream of a response with a length that has no content.
            head.fields.remove(Known::ContentLength.bit());
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS
            && let Some(protocol) = forwarding::upgrade(&head.fields)
            && let BufferedBody::Open(body) = body
        {
            forwarding::remove_hop_by_hop(&mut head.fields);
            forwarding::ask_upgrade(&mut head.fields, &protocol);
            let body = match body.into_upgrade() {
                Some(replica) => {
                    let idle = idle.map(|idle| idle.timer);
                    RelayedBody::Tunnel(Box::new(Tunnel::new(replica, completion, permit, idle)))
                }
                None => RelayedBody::Whole(Bytes::new()),
            };
            return (head, body);
        }
        forwarding::remove_hop_by_hop(&mut head.fields);
        (head, RelayedBody::new(body, completion, (permit, idle)))
    }
}

impl Completion {
    const fn is_over(&self) -> bool {
        self.trail.is_none()
    }

    /// Counts further bytes of the response body.
    pub(crate) fn body(&mut self, bytes: usize) {
        if let Some(trail) = &mut self.trail {
            trail.response_body(bytes);
        }
    }

    /// Notes the status of a gRPC call in the trailers.
    fn note_trailers(&mut self, trailers: &HeaderMap) {
        if let Some(trail) = &mut self.trail
            && let Some(status) = trailers.get("grpc-status")
        {
            trail.grpc_status = grpc_call::parse_status(status.as_bytes());
        }
    }

    /// Whether the replica has ended the call at the deadline of its client.
    fn is_at_deadline(&self, error: &pool::ResponseError) -> bool {
        let now = self.driver.upstream.clock.now();
        self.trail.as_ref().is_some_and(|trail| {
            let age = now.since(trail.started);
            grpc_call::is_at_deadline(&trail.request_head, age, error)
        })
    }

    /// Sets the bytes that an upgraded connection has carried.
    pub(crate) fn tunneled(&mut self, from_client: u64, to_client: u64) {
        if let Some(trail) = &mut self.trail {
            trail.request_body_bytes = Some(from_client);
            trail.response_body_bytes = Some(to_client);
        }
    }

    /// The response is complete.
    pub(crate) fn complete(&mut self) {
        self.end_whole(None);
    }

    /// The response has broken off. Returns the error of the request body that is the cause; without one, the replica has
    /// failed.
    pub(crate) fn fail(&mut self, error: &pool::ResponseError) -> Option<BodyError> {
        let body_error = error.body_error();
        match body_error {
            Some(BodyError::Client(ClientFault::Gone)) => self.lose_client(),
            Some(BodyError::Client(fault)) => self.abandon(root::fault_name(fault)),
            Some(BodyError::NotKept) => self.abandon(Failure::BodyNotKept.name()),
            None => self.break_off(error),
        }
        body_error
    }

    /// The replica has broken off its response, with this error.
    pub(crate) fn break_off(&mut self, error: &dyn Display) {
        let Some(trail) = &self.trail else { return };
        let attempt = self.attempt;
        let now = self.driver.handle(Event::Ended { attempt, whole: false }, &mut Effects::new());
        let sent = trail.attempts.get(attempt.index());
        let replica = sent.map(|sent| sent.replica.address.as_str());
        self.driver.upstream.log_broken_response(now, replica, error);
        let broken = Failure::Broken;
        let response = ResponseClass::Incomplete;
        self.finish(now, AttemptEnd::Failed(broken), Some(broken.name()), response);
    }

    /// Ends the request with a response of the proxy in place of the replica's, which is discarded.
    pub(crate) fn replace(&mut self, status: StatusCode, error: &'static str) {
        if let Some(trail) = &mut self.trail {
            trail.response_begun = None;
            if let Some(end) = &mut trail.end {
                end.status = Some(status);
            }
        }
        self.end_with_error(error);
    }

    /// Ends the request with an error of the proxy, which cannot use the complete response of the replica.
    pub(crate) fn end_with_error(&mut self, error: &'static str) {
        if let Some(trail) = &mut self.trail {
            trail.grpc_status = None;
        }
        self.end_whole(Some(error));
    }

    fn end_whole(&mut self, error: Option<&'static str>) {
        if self.is_over() {
            return;
        }
        let attempt = self.attempt;
        let now = self.driver.handle(Event::Ended { attempt, whole: true }, &mut Effects::new());
        self.finish(now, AttemptEnd::Responded, error, self.status());
    }

    fn status(&self) -> ResponseClass {
        if self.trail.as_ref().is_some_and(|trail| trail.grpc_failure().is_some()) {
            return ResponseClass::GrpcFailure;
        }
        let end = self.trail.as_ref().and_then(|trail| trail.end);
        let status = end.and_then(|end| end.status);
        status.map_or(ResponseClass::None, ResponseClass::Status)
    }

    fn finish(
        &mut self,
        now: Instant,
        end: AttemptEnd,
        error: Option<&'static str>,
        response: ResponseClass,
    ) {
        let Some(mut trail) = self.trail.take() else { return };
        trail.attempt_ended(self.attempt, now, end);
        if let Some(end) = &mut trail.end {
            end.at = now;
            // Without an error of its own, the end has that of the response.
            end.error = error.or(end.error);
        }
        self.driver.upstream.record_end(&trail, response, now);
        self.worker.record(trail);
    }
}

impl Completion {
    /// Abandons the request: the client no longer reads the response, or the fan-out cancels the call.
    pub(crate) fn abandon(&mut self, error: &'static str) {
        let by_fan_out = self.trail.as_ref().and_then(|trail| trail.cancelled_by_fan_out());
        let response = by_fan_out.map_or_else(|| self.status(), |_| ResponseClass::Cancelled);
        self.stop(error, response);
    }

    /// Ends the request after `stream_idle_timeout`: the client does not get the rest of the response.
    pub(crate) fn time_out(&mut self) {
        self.stop("stream_idle", ResponseClass::Incomplete);
    }

    /// Ends a gRPC call whose replica has ended it at the deadline of its client.
    fn end_at_deadline(&mut self) {
        if let Some(trail) = &mut self.trail {
            trail.grpc_status = Some(grpc_call::DEADLINE_EXCEEDED);
        }
        self.stop(root::TIMED_OUT, self.status());
    }

    /// Abandons the request: the connection or stream of the client has ended.
    pub(crate) fn lose_client(&mut self) {
        if let Some(trail) = &self.trail {
            self.abandon(trail.client.end_error());
        }
    }

    fn stop(&mut self, error: &'static str, response: ResponseClass) {
        if !self.is_over() {
            let now = self.driver.handle(Event::Abandoned, &mut Effects::new());
            let end = AttemptEnd::Cancelled(CancelReason::of_error(error));
            self.finish(now, end, Some(error), response);
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.lose_client();
    }
}

#[derive(Debug)]
pub(crate) enum RelayedBody {
    Whole(Bytes),
    WithTrailers(Option<Bytes>, Option<Box<HeaderMap>>),
    Stream(Box<Streamed>),
    /// No body: the connection is upgraded.
    Tunnel(Box<Tunnel>),
}

#[derive(Debug)]
pub(crate) struct Streamed {
    body: ResponseBody,
    completion: Completion,
    /// The permit at a leaf, where the request is in service until the response has ended.
    permit: Option<LeafPermit>,
    idle: Option<IdleTimeout>,
    frames: u64,
}

/// The idle timeout of a stream, over both directions.
#[derive(Debug)]
pub(crate) struct IdleTimeout {
    pub(crate) timer: ProgressTimer,
    /// The request body, if the client may still send one.
    pub(crate) body: Option<Arc<Replay>>,
    pub(crate) metrics: Arc<ListenerMetrics>,
}

/// A response body that ends before it is complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RelayError {
    #[error("the response of the replica broke off: {0}")]
    Replica(#[from] pool::ResponseError),
    #[error("no byte passed in either direction for stream_idle_timeout")]
    Idle,
}

impl From<RelayError> for http1::Error {
    fn from(error: RelayError) -> Self {
        Self::Response(Box::new(error))
    }
}

impl RelayedBody {
    /// Ends the request before its response is complete, if it has not ended.
    pub(crate) fn abandon(&mut self, error: &'static str) {
        if let Self::Stream(streamed) = self {
            streamed.completion.abandon(error);
        }
    }

    /// The body of a response. When it has ended, `ending` reports the end, and the permit of the leaf is freed.
    pub(crate) fn new(
        body: BufferedBody,
        mut completion: Completion,
        (permit, idle): (Option<LeafPermit>, Option<IdleTimeout>),
    ) -> Self {
        match body {
            BufferedBody::Whole(data, trailers) => {
                completion.body(data.len());
                trailers.iter().for_each(|trailers| completion.note_trailers(trailers));
                completion.complete();
                LeafPermit::finish(permit);
                match trailers {
                    None => Self::Whole(data),
                    Some(trailers) => Self::WithTrailers(Some(data), Some(Box::new(trailers))),
                }
            }
            BufferedBody::Open(body) => {
                Self::Stream(Box::new(Streamed { body, completion, permit, idle, frames: 0 }))
            }
        }
    }
}

impl Streamed {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.poll_idle(cx).map(|()| Some(Err(RelayError::Idle)));
        };
        self.frames += 1;
        if let Some(Err(error)) = &frame
            && self.completion.is_at_deadline(error)
        {
            // The age at which it was cut short is no latency of the leaf.
            self.permit = None;
            self.completion.end_at_deadline();
            if self.completion.takes_trailers && self.body.size_hint().exact().is_none() {
                let status = grpc_call::deadline_trailers();
                return Poll::Ready(Some(Ok(Frame::trailers(status))));
            }
        }
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
        self.completion.body(data.map_or(0, Bytes::len));
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            self.completion.note_trailers(trailers);
        }
        let is_last = match &frame {
            None => true,
            Some(Err(error)) => {
                if self.completion.fail(error).is_some() {
                    // The age at which it was cut short is no latency of the leaf.
                    self.permit = None;
                }
                true
            }
            Some(Ok(_)) => self.body.is_end_stream(),
        };
        if is_last {
            self.completion.complete();
            LeafPermit::finish(self.permit.take());
        }
        let frame = frame.map(|frame| match frame.map_err(RelayError::Replica)?.into_data() {
            Ok(data) => Ok(Frame::data(data)),
            Err(frame) => Ok(Frame::trailers(trailers_of(frame))),
        });
        Poll::Ready(frame)
    }

    /// Ready when the stream has been idle in both directions for too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(IdleTimeout { timer, body, metrics }) = &mut self.idle else {
            return Poll::Pending;
        };
        let asked = body.as_ref().map_or(0, |body| body.frames());
        ready!(timer.poll(cx, self.frames + asked));
        metrics.timed_out.add(&ClientTimeout::StreamIdle, 1);
        self.completion.time_out();
        Poll::Ready(())
    }
}

impl Body for RelayedBody {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        match &mut *self {
            Self::Whole(data) => {
                let data = std::mem::take(data);
                Poll::Ready((!data.is_empty()).then(|| Ok(Frame::data(data))))
            }
            Self::WithTrailers(data, trailers) => {
                if let Some(data) = data.take().filter(|data| !data.is_empty()) {
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(*trailers))))
            }
            Self::Stream(streamed) => streamed.poll_frame(cx),
            Self::Tunnel(_) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(data) => data.is_empty(),
            Self::WithTrailers(data, trailers) => data.is_none() && trailers.is_none(),
            Self::Stream(streamed) => streamed.completion.is_over(),
            Self::Tunnel(_) => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(data) => SizeHint::with_exact(data.len() as u64),
            Self::WithTrailers(data, _) => {
                SizeHint::with_exact(data.as_ref().map_or(0, Bytes::len) as u64)
            }
            Self::Stream(streamed) => streamed.body.size_hint(),
            Self::Tunnel(_) => SizeHint::with_exact(0),
        }
    }
}
