//! The handles of a stream: one that sends and one that reads.
//!
//! The stream ends when both are dropped. Dropping the sender before its end resets the stream.

use super::error::{Error, ErrorCode};
use super::frame::PAYLOAD_LEN_MAX;
use super::state::{Shared, lock};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The side of a stream that sends.
#[derive(Debug)]
pub(super) struct SendHandle {
    pub(super) shared: Shared,
    pub(super) key: usize,
}

impl Drop for SendHandle {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        if !state.is_sent(self.key) {
            state.reset(self.key, ErrorCode::CANCEL, Error::Cancelled);
        }
        state.release(self.key);
    }
}

/// The side of a stream that reads.
#[derive(Debug)]
pub(super) struct ReadHandle {
    pub(super) shared: Shared,
    pub(super) key: usize,
}

impl ReadHandle {
    /// Adds a reader to the stream of `sender`.
    pub(super) fn of(sender: &SendHandle) -> Self {
        lock(&sender.shared).share(sender.key);
        Self { shared: sender.shared.clone(), key: sender.key }
    }
}

impl Drop for ReadHandle {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.end_reading(self.key);
        state.release(self.key);
    }
}

/// Sends a body over a stream.
#[derive(Debug)]
pub(super) struct BodySender<B> {
    pub(super) stream: SendHandle,
    pub(super) body: B,
    /// A piece that waits for room.
    piece: Bytes,
    /// Whether the stream ends with the piece.
    is_last: bool,
    is_done: bool,
    /// The number of frames, or shorter pieces, that the stream has accepted completely.
    progress: u64,
    /// The number of bytes of the frame in progress that the stream has accepted.
    frame_bytes: usize,
}

/// Why a body was not sent completely.
#[derive(Debug)]
pub(super) enum SendError<E> {
    /// The stream ended.
    Stream(Error),
    /// The body broke off.
    Body(E),
}

impl<B: Body<Data = Bytes> + Unpin> BodySender<B> {
    /// Begins after the head; `is_done` if the head has ended the stream.
    pub(super) const fn new(stream: SendHandle, body: B, is_done: bool) -> Self {
        Self {
            stream,
            body,
            piece: Bytes::new(),
            is_last: false,
            is_done,
            progress: 0,
            frame_bytes: 0,
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Whether a part of the body waits for the other side to read.
    pub(super) fn is_blocked(&self) -> bool {
        !self.piece.is_empty() || self.is_last
    }

    /// A count that changes with each frame that the other side reads, or with the rest of a piece. A client that reads
    /// byte by byte makes no progress until then.
    pub(super) const fn progress(&self) -> u64 {
        self.progress
    }

    pub(super) fn reset(&mut self, code: ErrorCode, error: Error) {
        lock(&self.stream.shared).reset(self.stream.key, code, error);
        self.is_done = true;
    }

    /// Sends as much of the body as the other side accepts; ready at its end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError<B::Error>>> {
        while !self.is_done {
            if self.is_blocked() {
                ready!(self.poll_piece(cx))?;
                continue;
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
                // The other side may want no more of it.
                let reset = lock(&self.stream.shared).poll_reset(cx, self.stream.key);
                return reset.map(|error| Err(SendError::Stream(error)));
            };
            match frame.transpose().map_err(SendError::Body)?.map(Frame::into_data) {
                Some(Ok(data)) => {
                    self.is_last = self.body.is_end_stream();
                    self.piece = data;
                }
                Some(Err(trailers)) => {
                    let trailers = trailers.into_trailers().unwrap_or_default();
                    lock(&self.stream.shared).send_trailers(self.stream.key, &trailers);
                    self.is_done = true;
                }
                None => self.is_last = true,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_piece(&mut self, cx: &Context<'_>) -> Poll<Result<(), SendError<B::Error>>> {
        let before = self.piece.len();
        let (key, is_last) = (self.stream.key, self.is_last);
        let sent = lock(&self.stream.shared).poll_send_data(cx, key, &mut self.piece, is_last);
        self.frame_bytes += before - self.piece.len();
        if self.piece.is_empty() || self.frame_bytes >= PAYLOAD_LEN_MAX {
            self.progress += 1;
            self.frame_bytes = 0;
        }
        ready!(sent).map_err(SendError::Stream)?;
        self.is_done = is_last;
        Poll::Ready(Ok(()))
    }
}

/// A body that arrives over a stream.
#[derive(Debug)]
pub struct Http2Body(pub(super) ReadHandle);

impl Body for Http2Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        lock(&self.0.shared).poll_frame(cx, self.0.key)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0.shared).is_end(self.0.key)
    }

    fn size_hint(&self) -> SizeHint {
        let len = lock(&self.0.shared).unread_len(self.0.key);
        len.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
