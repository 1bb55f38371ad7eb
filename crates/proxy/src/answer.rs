//! Answers on their way back to the client.
//!
//! A small answer is taken whole before it is given: it costs no time, because it comes in one piece with
//! its head, and one that breaks off can still be replaced by another attempt's. A large or unbounded one
//! is streamed; when it breaks off, so does the client's.

use crate::driver::{Driver, Effects};
use crate::leaf::Place;
use crate::metrics::{ClientTimeout, ListenerMetrics, ResponseClass};
use crate::spans::SpanSink;
use crate::trail::{AttemptEnd, Trail};
use crate::tunnel::Tunnel;
use bytes::{Bytes, BytesMut};
use curtail_http::head::ResponseHead;
use curtail_http::http1;
use curtail_http::pool::{self, ResponseBody};
use curtail_http::progress::ProgressTimer;
use curtail_http::replay::Replay;
use curtail_http::trailers;
use curtail_policy::{AttemptId, Event, Failure, Reason};
use curtail_units::Instant;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// An answer that the driver holds until the policies have decided.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) head: ResponseHead,
    pub(crate) body: HeldBody,
}

/// The body of an answer that is held.
#[derive(Debug)]
pub(crate) enum HeldBody {
    /// All of it.
    Whole(Bytes, Option<HeaderMap>),
    /// It is still to be read.
    Open(ResponseBody),
}

/// Takes the body of an answer if it is known to be of at most `bytes_max`.
///
/// # Errors
/// When it breaks off.
pub(crate) async fn take_small(
    head: ResponseHead,
    mut body: ResponseBody,
    bytes_max: u64,
) -> Result<Held, pool::ResponseError> {
    let is_small = body.size_hint().exact().is_some_and(|bytes| bytes <= bytes_max);
    if !is_small || head.status == http::StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Held { head, body: HeldBody::Open(body) });
    }
    let (mut data, mut trailers) = (Pieces::None, None);
    while let Some(frame) = next_frame(&mut body).await {
        match frame?.into_data() {
            Ok(piece) => data = data.and(piece),
            Err(frame) => trailers = Some(trailers_of(frame)),
        }
    }
    Ok(Held { head, body: HeldBody::Whole(data.into(), trailers) })
}

/// The trailers of a frame without data, without fields that must not be trailers.
fn trailers_of(frame: Frame<Bytes>) -> HeaderMap {
    let mut trailers = frame.into_trailers().unwrap_or_default();
    trailers::remove_others(&mut trailers);
    trailers
}

fn next_frame(
    body: &mut ResponseBody,
) -> impl Future<Output = Option<Result<Frame<Bytes>, pool::ResponseError>>> {
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx))
}

/// What has been read of a small body: nearly always one piece, which then needs no copy.
enum Pieces {
    None,
    One(Bytes),
    Many(BytesMut),
}

impl Pieces {
    fn and(self, piece: Bytes) -> Self {
        match self {
            Self::None => Self::One(piece),
            Self::One(first) => {
                let mut all = BytesMut::from(first);
                all.extend_from_slice(&piece);
                Self::Many(all)
            }
            Self::Many(mut all) => {
                all.extend_from_slice(&piece);
                Self::Many(all)
            }
        }
    }
}

impl From<Pieces> for Bytes {
    fn from(pieces: Pieces) -> Self {
        match pieces {
            Pieces::None => Self::new(),
            Pieces::One(piece) => piece,
            Pieces::Many(all) => all.freeze(),
        }
    }
}

/// The answer that was decided on.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) held: Held,
    pub(crate) ending: Ending,
}

/// What is to be done when an answer is through: tell the machine, and write the spans.
#[derive(Debug)]
pub(crate) struct Ending {
    driver: Driver,
    trail: Box<Trail>,
    attempt: AttemptId,
    sink: Option<Arc<SpanSink>>,
    is_over: bool,
}

impl Answer {
    pub(crate) fn new(driver: Driver, trail: Box<Trail>, attempt: AttemptId, held: Held) -> Self {
        let ending = Ending { driver, trail, attempt, sink: None, is_over: false };
        Self { held, ending }
    }
}

impl Ending {
    /// Where the spans go.
    pub(crate) fn spans_to(&mut self, sink: Option<Arc<SpanSink>>) {
        self.sink = sink;
    }

    /// The answer is through: whole, or broken off by the replica.
    pub(crate) fn end(&mut self, whole: bool) {
        if self.is_over {
            return;
        }
        let attempt = self.attempt;
        let now = self.driver.handle(Event::Ended { attempt, whole }, &mut Effects::new());
        if whole {
            self.finish(now, AttemptEnd::Answered, None, self.status());
        } else {
            let (end, error) = (AttemptEnd::Failed(Failure::Broken), Failure::Broken.name());
            self.finish(now, end, Some(error), ResponseClass::Incomplete);
        }
    }

    fn status(&self) -> ResponseClass {
        let status = self.trail.end.and_then(|end| end.status);
        status.map_or(ResponseClass::None, ResponseClass::Status)
    }

    fn finish(
        &mut self,
        now: Instant,
        end: AttemptEnd,
        error: Option<&'static str>,
        response: ResponseClass,
    ) {
        self.is_over = true;
        self.trail.attempt_ended(self.attempt, now, end);
        if let Some(end) = &mut self.trail.end {
            end.at = now;
            end.error = error;
        }
        let upstream = &self.driver.upstream;
        upstream.metrics.ended(response, now.since(self.trail.started));
        if let Some(sink) = &self.sink {
            sink.record(&self.trail, &upstream.clock);
        }
    }
}

impl Ending {
    /// Abandons the request: the client no longer reads the response.
    pub(crate) fn abandon(&mut self, error: &'static str) {
        self.stop(error, self.status());
    }

    /// Ends the request after `limits.stream_idle_timeout`: the client does not get the rest of the response.
    pub(crate) fn time_out(&mut self) {
        self.stop("stream_idle", ResponseClass::Incomplete);
    }

    fn stop(&mut self, error: &'static str, response: ResponseClass) {
        if !self.is_over {
            let now = self.driver.handle(Event::Abandoned, &mut Effects::new());
            let end = AttemptEnd::Cancelled(Reason::ClientGone);
            self.finish(now, end, Some(error), response);
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.abandon("client_gone");
    }
}

/// The body that the client gets.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    /// All of it at once.
    Whole(Bytes),
    /// All of it, and trailers.
    WithTrailers(Option<Bytes>, Option<Box<HeaderMap>>),
    /// As it comes.
    Stream(Box<Streamed>),
    /// None: from here on something else is spoken.
    Tunnel(Box<Tunnel>),
}

/// An answer that is passed on as it comes.
#[derive(Debug)]
pub(crate) struct Streamed {
    body: ResponseBody,
    ending: Ending,
    /// At a leaf: in service until the answer is through.
    place: Option<Place>,
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
pub(crate) enum BrokenOff {
    #[error("the replica closed the connection in the middle of its response: {0}")]
    Replica(#[from] pool::ResponseError),
    #[error("no byte passed in either direction for limits.stream_idle_timeout")]
    Idle,
}

impl From<BrokenOff> for http1::Error {
    fn from(error: BrokenOff) -> Self {
        Self::Response(Box::new(error))
    }
}

impl AnswerBody {
    /// The body of a held answer; the ending comes when it is through, and a leaf's place is free then.
    pub(crate) fn new(
        body: HeldBody,
        mut ending: Ending,
        (place, idle): (Option<Place>, Option<IdleTimeout>),
    ) -> Self {
        match body {
            HeldBody::Whole(data, trailers) => {
                ending.end(true);
                match trailers {
                    None => Self::Whole(data),
                    Some(trailers) => Self::WithTrailers(Some(data), Some(Box::new(trailers))),
                }
            }
            HeldBody::Open(body) => {
                Self::Stream(Box::new(Streamed { body, ending, place, idle, frames: 0 }))
            }
        }
    }
}

impl Streamed {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.poll_idle(cx).map(|()| Some(Err(BrokenOff::Idle)));
        };
        self.frames += 1;
        let through = match &frame {
            None => Some(true),
            Some(Err(_)) => Some(false),
            Some(Ok(_)) => self.body.is_end_stream().then_some(true),
        };
        if let Some(whole) = through {
            self.ending.end(whole);
            self.place = None;
        }
        let frame = frame.map(|frame| match frame.map_err(BrokenOff::Replica)?.into_data() {
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
        metrics.timed_out(ClientTimeout::StreamIdle);
        self.ending.time_out();
        Poll::Ready(())
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
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
            Self::Stream(streamed) => streamed.ending.is_over,
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
