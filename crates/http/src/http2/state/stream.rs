//! The state of one stream.

use super::super::error::Error;
use crate::head::ResponseHead;
use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use std::collections::VecDeque;
use std::task::{Context, Waker};

/// Shorter pieces of a body are copied together, so that they do not keep larger buffers alive. The read buffer has at
/// most four times this size.
const SHARED_BYTES_MIN: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) id: u32,
    /// The handles that use the stream.
    pub(super) users: u8,
    /// Whether the request has left the state.
    pub(super) is_taken: bool,
    /// Whether the reader of the body has begun.
    pub(super) is_read: bool,
    /// Whether the other side has sent the end of the stream.
    pub(super) is_received: bool,
    /// Whether this side has sent the end of the stream.
    pub(super) is_sent: bool,
    /// Whether the body has a reader; without one it is discarded.
    pub(super) has_reader: bool,
    /// Whether the request is `HEAD`: the response has no body, whatever its length.
    pub(super) is_head: bool,
    /// Whether the request is extended CONNECT: its success has no content, whatever its length.
    pub(super) is_connect: bool,
    /// Whether a server waits for "100 Continue" before it sends the body.
    pub(super) is_continue_expected: bool,
    /// Whether the head of the response, other than interim ones, has been sent or received.
    pub(super) has_response: bool,
    pub(super) interim: VecDeque<ResponseHead>,
    pub(super) response: Option<ResponseHead>,
    /// The size of the response's heads so far.
    pub(super) head_bytes: usize,
    pub(super) received: ReceivedBody,
    /// The number of bytes of the body that have not arrived, if announced.
    pub(super) unreceived: Option<u64>,
    pub(super) receive_window: i64,
    /// Bytes that were read, and whose credit has not returned.
    pub(super) unreturned: u32,
    pub(super) send_window: i64,
    /// Whether the stream waits for the window of the connection, or for room.
    pub(super) is_waiting: bool,
    /// The position of the head among all bytes of this side.
    pub(super) head_at: u64,
    pub(super) failure: Option<Error>,
    pub(super) reader: Option<Waker>,
    pub(super) sender: Option<Waker>,
}

impl StreamState {
    pub(super) fn new(id: u32, receive_window: i64, send_window: i64) -> Self {
        Self {
            id,
            users: 1,
            is_taken: false,
            is_read: false,
            is_received: false,
            is_sent: false,
            has_reader: true,
            is_head: false,
            is_connect: false,
            is_continue_expected: false,
            has_response: false,
            interim: VecDeque::new(),
            response: None,
            head_bytes: 0,
            received: ReceivedBody::default(),
            unreceived: None,
            receive_window,
            unreturned: 0,
            send_window,
            is_waiting: false,
            head_at: 0,
            failure: None,
            reader: None,
            sender: None,
        }
    }

    /// Ends the stream. What has arrived completely can still be read.
    pub(super) fn fail(&mut self, error: Error) {
        if !self.is_received {
            self.received = ReceivedBody::default();
        }
        if self.failure.is_none() && !(self.is_received && self.is_sent) {
            self.failure = Some(error);
        }
        self.wake_reader();
        self.wake_sender();
    }

    pub(super) fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    pub(super) fn wake_sender(&mut self) {
        if let Some(sender) = self.sender.take() {
            sender.wake();
        }
    }

    pub(super) fn set_reader(&mut self, cx: &Context<'_>) {
        set(&mut self.reader, cx);
    }

    pub(super) fn set_sender(&mut self, cx: &Context<'_>) {
        set(&mut self.sender, cx);
    }
}

fn set(waker: &mut Option<Waker>, cx: &Context<'_>) {
    match waker {
        Some(known) => known.clone_from(cx.waker()),
        None => *waker = Some(cx.waker().clone()),
    }
}

/// The part of a body that has arrived and was not read.
#[derive(Debug, Default)]
pub(super) struct ReceivedBody {
    pieces: VecDeque<Bytes>,
    /// Short pieces after `pieces`, as one.
    short: BytesMut,
    pub(super) trailers: Option<HeaderMap>,
}

impl ReceivedBody {
    /// Takes the first `len` bytes of `read`.
    pub(super) fn push(&mut self, read: &mut BytesMut, len: usize) {
        if len < SHARED_BYTES_MIN {
            self.short.extend_from_slice(&read[..len]);
            read.advance(len);
            return;
        }
        if !self.short.is_empty() {
            self.pieces.push_back(std::mem::take(&mut self.short).freeze());
        }
        self.pieces.push_back(read.split_to(len).freeze());
    }

    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop_front();
        piece.or_else(|| (!self.short.is_empty()).then(|| std::mem::take(&mut self.short).freeze()))
    }

    pub(super) fn len(&self) -> u64 {
        (self.pieces.iter().map(Bytes::len).sum::<usize>() + self.short.len()) as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.short.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_in_order_and_short_ones_together() {
        let mut body = ReceivedBody::default();
        let mut read = BytesMut::new();
        for (byte, len) in [(b'a', 1), (b'b', 2), (b'c', SHARED_BYTES_MIN), (b'd', 3), (b'e', 0)] {
            read.extend_from_slice(&vec![byte; len]);
            body.push(&mut read, len);
        }
        assert_eq!(body.pop().as_deref(), Some(&b"abb"[..]));
        assert_eq!(body.pop().as_deref(), Some(&[b'c'; SHARED_BYTES_MIN][..]));
        assert_eq!(body.pop().as_deref(), Some(&b"ddd"[..]));
        assert_eq!((body.pop(), body.is_empty()), (None, true));
    }
}
