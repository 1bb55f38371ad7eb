//! A request body for several attempts, which is read once from the client and sent as often as needed.
//!
//! **Limits**: the replay buffer has a maximum size. Only the attempt that first reads beyond this size can continue; all
//! others fail then, also attempts that have not begun. Until the response begins, the client may pause for at most the
//! body timeout. A server limits the readers that wait for the rest of a body ([`ReplayReader::count_until_end`]).

use crate::{http1, http2, trailers};
use bytes::Bytes;
use curtail_metrics::GaugeGuard;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};
use tokio::time::Sleep;

/// A client's failure to send its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientFault {
    /// The client paused for too long.
    #[error("the request body paused for too long")]
    Slow,
    /// The client closed its connection, or reset its stream.
    #[error("the client has gone before the end of the request body")]
    Gone,
    /// The body is malformed.
    #[error("the request body is malformed")]
    Broken,
}

impl ClientFault {
    fn new(error: &dyn std::error::Error, is_gone: bool) -> Self {
        tracing::debug!(%error, "a request body broke off");
        if is_gone { Self::Gone } else { Self::Broken }
    }
}

/// Why an attempt cannot continue with the body.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum BodyError {
    /// The client did not send the body.
    #[error(transparent)]
    Client(ClientFault),
    /// The part that this attempt needs was not kept, because another attempt has already read further.
    #[error("the request body was too long to be kept for a second attempt")]
    NotKept,
}

/// The body of a request, received from the client.
#[derive(Debug)]
pub enum ClientBody {
    /// A body over HTTP/1.1.
    Http1(http1::RequestBody),
    /// A body over HTTP/2.
    Http2(http2::RequestBody),
}

/// The body of a request to a server.
#[derive(Debug)]
pub enum OutboundBody {
    /// There is no body.
    Empty,
    /// The body is in memory.
    Full(Bytes),
    /// The body is read through a replay buffer.
    Replay(ReplayReader),
}

/// A request body that several attempts may read.
#[derive(Debug)]
pub struct Replay {
    state: Mutex<ReplayState>,
}

#[derive(Debug)]
struct ReplayState {
    source: ClientBody,
    kept: Vec<Bytes>,
    kept_bytes: usize,
    kept_bytes_max: usize,
    trailers: Option<HeaderMap>,
    ended: bool,
    fault: Option<ClientFault>,
    /// The reader that continued beyond the maximum size; no other reader can continue.
    sole_reader: Option<u32>,
    readers: u32,
    /// The number of frames read so far, with the end or the fault.
    frames: u64,
    /// The number of bytes read so far.
    bytes: u64,
    /// The body timeout; absent once the response has begun.
    pause_max: Option<std::time::Duration>,
    pause: Option<Pin<Box<Sleep>>>,
    /// The number of readers that wait for the source.
    awaiting: u32,
    waiting: Arc<Waiting>,
}

/// The readers that wait for the client.
///
/// All readers wake when the client has sent bytes. It would not suffice to wake only the last reader: it may be
/// cancelled, or wait for a server that does not read, and all other readers would continue to wait.
#[derive(Debug, Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut waiting = self.lock();
        if !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
    }

    fn wake_others(&self, knows: &Waker) {
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_iter().filter(|waker| !waker.will_wake(knows)).for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let waiting = std::mem::take(&mut *self.lock());
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Replay {
    /// Creates a replay buffer of at most `kept_bytes_max`; the client may pause for at most `pause_max`.
    pub fn new(
        source: ClientBody,
        kept_bytes_max: usize,
        pause_max: std::time::Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(ReplayState {
                ended: source.is_end_stream(),
                source,
                kept: Vec::new(),
                kept_bytes: 0,
                kept_bytes_max,
                trailers: None,
                fault: None,
                sole_reader: None,
                readers: 0,
                frames: 0,
                bytes: 0,
                pause_max: Some(pause_max),
                pause: None,
                awaiting: 0,
                waiting: Arc::default(),
            }),
        })
    }

    /// Creates a reader from the start of the body.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> ReplayReader {
        let replay = Arc::clone(self);
        let id = self.lock().new_reader_id();
        ReplayReader { id, replay, next: 0, done: false, awaits: None, unfinished: None }
    }

    /// Waits until the whole body is in the replay buffer; false if it does not fit, or the client has failed to send it.
    pub async fn wait_until_kept(self: &Arc<Self>) -> bool {
        let mut reader = self.reader();
        std::future::poll_fn(|cx| reader.poll_kept(cx, 0)).await
    }

    /// Ends the body, because the client takes too long to send it.
    pub fn time_out(&self) {
        self.lock().fault.get_or_insert(ClientFault::Slow);
    }

    /// Ends the body timeout, because the response has begun.
    pub fn response_begun(&self) {
        let mut state = self.lock();
        state.pause_max = None;
        state.pause = None;
    }

    /// Returns the number of frames read so far.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.lock().frames
    }

    /// Returns the number of bytes read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Whether the body has become too long to be sent again.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lock().sole_reader.is_some()
    }

    /// Whether the rest of the body has not arrived, and an attempt waits for it.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let state = self.lock();
        !state.ended && state.awaiting > 0
    }

    /// Returns the fault of the client, if any.
    #[must_use]
    pub fn fault(&self) -> Option<ClientFault> {
        self.lock().fault
    }

    fn lock(&self) -> MutexGuard<'_, ReplayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplayState {
    /// The bytes that have been read from the client, but not by this reader. Bytes that were not kept count too: otherwise
    /// a server takes the kept part for the whole body.
    fn bytes_to_repeat(&self, reader: &ReplayReader) -> u64 {
        let kept = self.kept.iter().skip(reader.next).map(Bytes::len).sum::<usize>() as u64;
        match self.sole_reader {
            Some(id) if id != reader.id => kept + self.bytes - self.kept_bytes as u64,
            Some(_) | None => kept,
        }
    }

    const fn new_reader_id(&mut self) -> u32 {
        self.readers += 1;
        self.readers
    }

    /// The bytes that can still be kept.
    const fn room_bytes(&self) -> u64 {
        (self.kept_bytes_max - self.kept_bytes) as u64
    }

    /// Whether the rest of the body is known to fit.
    fn can_keep_rest(&self) -> bool {
        self.source.size_hint().upper().is_some_and(|rest| rest <= self.room_bytes())
    }

    /// Reads the next frame from the client, and keeps the frame if there is room.
    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
        (reader, awaits): (u32, &mut Option<u64>),
    ) -> Poll<Option<Result<Bytes, ClientFault>>> {
        // Before the source is asked: it may have something to tell while we put ourselves down.
        self.waiting.add(cx.waker());
        let all = Waker::from(Arc::clone(&self.waiting));
        let frame = match Pin::new(&mut self.source).poll_frame(&mut Context::from_waker(&all)) {
            Poll::Pending => {
                if awaits.replace(self.frames) != Some(self.frames) {
                    self.awaiting += 1;
                }
                return self.poll_pause(&mut Context::from_waker(&all));
            }
            Poll::Ready(frame) => frame,
        };
        (self.pause, self.awaiting) = (None, 0);
        self.frames += 1;
        self.waiting.wake_others(cx.waker());
        let frame = match frame {
            None => {
                self.ended = true;
                return Poll::Ready(None);
            }
            Some(Err(fault)) => {
                self.fault = Some(fault);
                return Poll::Ready(Some(Err(fault)));
            }
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(data) => {
                self.bytes += data.len() as u64;
                if self.sole_reader.is_none() && self.kept_bytes + data.len() <= self.kept_bytes_max
                {
                    self.kept_bytes += data.len();
                    self.kept.push(data.clone());
                } else {
                    self.sole_reader = Some(reader);
                }
                Poll::Ready(Some(Ok(data)))
            }
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                self.trailers.iter_mut().for_each(trailers::remove_others);
                self.ended = true;
                Poll::Ready(None)
            }
        }
    }

    /// Waits for the client, at most for the body timeout.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ClientFault>>> {
        let Some(pause_max) = self.pause_max else { return Poll::Pending };
        let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause_max)));
        if pause.as_mut().poll(cx).is_ready() {
            self.fault = Some(ClientFault::Slow);
            return Poll::Ready(Some(Err(ClientFault::Slow)));
        }
        Poll::Pending
    }
}

/// The reader of one attempt, with its position in the body.
#[derive(Debug)]
pub struct ReplayReader {
    replay: Arc<Replay>,
    id: u32,
    next: usize,
    done: bool,
    /// The number of the frame that the reader waits for, until this frame has arrived.
    awaits: Option<u64>,
    /// Counts the attempt while it waits for the rest of its body.
    unfinished: Option<GaugeGuard>,
}

impl ReplayReader {
    /// Whether the end of the body has arrived.
    pub(crate) fn has_arrived(&self) -> bool {
        self.replay.lock().ended
    }

    /// Counts the attempt until it has read the end of the body.
    pub(crate) fn count_until_end(&mut self, counted: GaugeGuard) {
        self.unfinished = Some(counted);
    }

    /// Whether the client has failed to send the rest of the body.
    pub(crate) fn has_fault(&self) -> bool {
        self.replay.lock().fault.is_some()
    }

    /// Ready with true when the whole body is in the replay buffer, and with false if it has not arrived and may not fit.
    pub(crate) fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let kept = self.poll_kept(cx, 1);
        if kept.is_ready() || self.replay.lock().can_keep_rest() {
            kept
        } else {
            Poll::Ready(false)
        }
    }

    /// Ready with true when the whole body is in the replay buffer, and with false when it does not fit or the client has
    /// failed. Does not read a body of an unknown length when there is room for less than `room_min` bytes.
    fn poll_kept(&mut self, cx: &mut Context<'_>, room_min: u64) -> Poll<bool> {
        let mut state = self.replay.lock();
        while !state.ended {
            // A body that is known to be too long is left for an attempt that can send it.
            let is_end = state.source.is_end_stream();
            let rest = if is_end { 0 } else { state.source.size_hint().lower().max(room_min) };
            let is_over = state.room_bytes() < rest || state.fault.is_some();
            if is_over || state.sole_reader.is_some() {
                return Poll::Ready(false);
            }
            drop(ready!(state.poll_source(cx, (self.id, &mut self.awaits))));
        }
        Poll::Ready(true)
    }

    /// The reader no longer waits for the client.
    fn stop_waiting(&mut self) {
        if let Some(frame) = self.awaits.take() {
            let mut state = self.replay.lock();
            if state.frames == frame {
                state.awaiting -= 1;
            }
        }
    }
}

impl Drop for ReplayReader {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}

impl OutboundBody {
    /// Takes the body to send it, until it is [put back](Self::put_back).
    pub(crate) fn take_to_send(&mut self) -> Self {
        match self {
            Self::Empty => Self::Empty,
            Self::Full(data) => Self::Full(data.clone()),
            Self::Replay(_) => std::mem::replace(self, Self::Empty),
        }
    }

    /// Puts the body of a failed attempt back, to be sent again from its start.
    pub(crate) fn put_back(&mut self, sent: Self) {
        if let Self::Replay(mut reader) = sent {
            reader.stop_waiting();
            (reader.next, reader.done) = (0, false);
            let mut state = reader.replay.lock();
            if state.sole_reader == Some(reader.id) {
                // It has read what was not kept, and could not repeat it.
                reader.id = state.new_reader_id();
            }
            drop(state);
            *self = Self::Replay(reader);
        }
    }

    /// Ends the count of an attempt that waits for the rest of its body.
    pub(crate) fn end_count(&mut self) {
        if let Self::Replay(reader) = self {
            reader.unfinished = None;
        }
    }

    /// Whether the body has become too long to be sent again.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Replay(reader) if reader.replay.is_lost())
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientFault>>> {
        match &mut *self {
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(|error| {
                ClientFault::new(&error, matches!(error, http1::Error::Incomplete(_)))
            }),
            Self::Http2(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|error| ClientFault::new(&error, error.is_gone())),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

impl Body for OutboundBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let reader = match &mut *self {
            Self::Empty => return Poll::Ready(None),
            Self::Full(data) => {
                let data = std::mem::take(data);
                *self = Self::Empty;
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            Self::Replay(reader) => reader,
        };
        if reader.done {
            return Poll::Ready(None);
        }
        let mut state = reader.replay.lock();
        // Before the kept part: a request that cannot be sent to its end is not begun.
        if state.sole_reader.is_some_and(|id| id != reader.id) {
            return Poll::Ready(Some(Err(BodyError::NotKept)));
        }
        if let Some(fault) = state.fault {
            return Poll::Ready(Some(Err(BodyError::Client(fault))));
        }
        if let Some(data) = state.kept.get(reader.next) {
            let data = data.clone();
            reader.next += 1;
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if !state.ended {
            match state.poll_source(cx, (reader.id, &mut reader.awaits)) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(data))) => {
                    reader.next += 1;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Poll::Ready(Some(Err(fault))) => {
                    return Poll::Ready(Some(Err(BodyError::Client(fault))));
                }
                Poll::Ready(None) => {}
            }
        }
        reader.done = true;
        reader.unfinished = None;
        Poll::Ready(state.trailers.clone().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(_) => false,
            Self::Replay(reader) => reader.done,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(data) => SizeHint::with_exact(data.len() as u64),
            Self::Replay(reader) => {
                let state = reader.replay.lock();
                // The rest of the client's body, and the part that this reader has still to repeat.
                let to_repeat = state.bytes_to_repeat(reader);
                let rest =
                    if state.ended { SizeHint::with_exact(0) } else { state.source.size_hint() };
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower() + to_repeat);
                // Over HTTP/1.1 there are no trailers after a body whose length was announced.
                if let Some(upper) = rest.upper().filter(|_| state.trailers.is_none()) {
                    hint.set_upper(upper + to_repeat);
                }
                hint
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod from_client;

#[cfg(test)]
mod tests;
