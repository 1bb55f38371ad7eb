//! What the streams send and read.

use super::super::error::Error;
use super::super::frame::{PAYLOAD_LEN_MAX, begin_frame, end_headers, flag, kind, put_frame_head};
use super::super::hpack::{
    encode_authority, encode_field, encode_method, encode_path, encode_scheme, encode_status,
    encode_table_size_zero,
};
use super::super::message::CONNECTION_SPECIFIC;
use super::{ConnectionState, OUT_BYTES_MAX, StreamState};
use crate::head::{Known, ResponseHead, is_host};
use crate::outbound_request::OutboundRequest;
use crate::websocket;
use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, StatusCode};
use http_body::Frame;
use std::ops::Deref;
use std::task::{Context, Poll, ready};

/// A response, as far as it has arrived.
#[derive(Debug)]
pub(in super::super) enum ResponseEvent {
    Interim(ResponseHead),
    /// The final response, with the length of its body if that is known.
    Final(ResponseHead, Option<u64>),
}

/// A request whose head is to send, and what this side adds to it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct RequestToSend<'a> {
    pub(in super::super) request: &'a OutboundRequest,
    pub(in super::super) is_https: bool,
    /// The length of the body, if the head should announce it.
    pub(in super::super) length: Option<u64>,
    pub(in super::super) is_end: bool,
    /// Whether the request is a WebSocket handshake to send as extended CONNECT (RFC 8441).
    pub(in super::super) is_connect: bool,
}

/// A head to send, and what this side adds to it.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct ResponseToSend<'a> {
    pub(in super::super) head: &'a ResponseHead,
    /// The length of the body, if the head should announce it.
    pub(in super::super) length: Option<u64>,
    pub(in super::super) date: Option<&'a [u8]>,
    pub(in super::super) is_end: bool,
}

impl ConnectionState {
    /// Opens a stream and sends the head of a request, if the server allows another stream.
    pub(in super::super) fn poll_send_request(
        &mut self,
        cx: &Context<'_>,
        to_send: RequestToSend<'_>,
    ) -> Poll<Result<usize, Error>> {
        ready!(self.poll_can_open(cx))?;
        let RequestToSend { request, is_https, length, is_end, is_connect } = to_send;
        let id = self.next_own;
        self.next_own += 2;
        let window = self.peer.stream_window.into();
        let mut stream = StreamState::new(id, self.stream_receive_window(), window);
        stream.head_at = self.taken_bytes + self.out.len() as u64;
        stream.is_sent = is_end;
        stream.is_head = request.head.method == Method::HEAD;
        stream.is_connect = is_connect;
        let key = self.streams.insert(stream);
        self.open.insert(id, key);
        let at = self.begin_head(id, is_end);
        let block = &mut self.out;
        let mut excluded = CONNECTION_SPECIFIC;
        if is_connect {
            encode_method(block, &Method::CONNECT);
            encode_field(block, b":protocol", websocket::PROTOCOL);
            excluded |= Known::SecWebsocketKey.bit();
        } else {
            encode_method(block, &request.head.method);
        }
        encode_scheme(block, is_https);
        let host = request.fields().find(|(known, ..)| *known == Known::Host);
        // Many servers reject a request without `:authority`. Otherwise the server gets `host` as the client wrote it.
        let authority = host.map(|(.., host)| host).filter(|host| is_host(host));
        if let Some(authority) = authority {
            encode_authority(block, authority);
            excluded |= Known::Host.bit();
        }
        encode_path(block, request.head.target.to_uri_form().as_str().as_bytes());
        for (known, name, value) in request.fields() {
            if known.bit() & excluded == 0 {
                encode_field(block, name, value);
            }
        }
        if let Some(length) = length.filter(|_| !request.has(Known::ContentLength)) {
            let mut digits = itoa::Buffer::new();
            encode_field(block, b"content-length", digits.format(length).as_bytes());
        }
        end_headers(block, at, PAYLOAD_LEN_MAX);
        self.flood.give(2);
        self.wake_driver();
        Poll::Ready(Ok(key))
    }

    fn begin_head(&mut self, id: u32, is_end: bool) -> usize {
        let flags = if is_end { flag::END_STREAM } else { 0 };
        let at = begin_frame(&mut self.out, kind::HEADERS, flags, id);
        if std::mem::take(&mut self.needs_table_size) {
            encode_table_size_zero(&mut self.out);
        }
        at
    }

    /// Sends the head of a response, unless the stream has ended.
    pub(in super::super) fn send_response(&mut self, key: usize, response: ResponseToSend<'_>) {
        let ResponseToSend { head, length, date, is_end } = response;
        let stream = &mut self.streams[key];
        if stream.failure.is_some() {
            return;
        }
        stream.has_response = true;
        stream.is_sent = is_end;
        let id = stream.id;
        let at = self.begin_head(id, is_end);
        let block = &mut self.out;
        encode_status(block, head.status);
        for (known, name, value) in head.fields.iter() {
            if known.bit() & CONNECTION_SPECIFIC == 0 {
                encode_field(block, name, value);
            }
        }
        if let Some(length) = length {
            let mut digits = itoa::Buffer::new();
            encode_field(block, b"content-length", digits.format(length).as_bytes());
        }
        if let Some(date) = date {
            encode_field(block, b"date", date);
        }
        end_headers(block, at, PAYLOAD_LEN_MAX);
        self.after_frame(key);
    }

    /// Sends an interim response. It is dropped if the client does not read those before it.
    pub(in super::super) fn send_interim(&mut self, (key, id): (usize, u32), head: &ResponseHead) {
        let Some(stream) = self.streams.get(key).filter(|stream| stream.id == id) else { return };
        // A client that waits for "100 Continue" gets it once; the others may be many.
        let is_too_much = self.out.len() >= OUT_BYTES_MAX && head.status != StatusCode::CONTINUE;
        if stream.has_response || stream.failure.is_some() || is_too_much {
            tracing::debug!("dropped an interim response: it is late, or the client does not read");
            return;
        }
        let at = self.begin_head(id, false);
        encode_status(&mut self.out, head.status);
        let excluded = CONNECTION_SPECIFIC | Known::ContentLength.bit();
        for (known, name, value) in head.fields.iter() {
            if known.bit() & excluded == 0 {
                encode_field(&mut self.out, name, value);
            }
        }
        end_headers(&mut self.out, at, PAYLOAD_LEN_MAX);
        self.wake_driver();
    }

    /// Sends as much of `piece` as the other side and the buffer accept; with `is_end`, then also the end of the stream.
    pub(in super::super) fn poll_send_data(
        &mut self,
        cx: &Context<'_>,
        key: usize,
        piece: &mut (impl Buf + Deref<Target = [u8]>),
        is_end: bool,
    ) -> Poll<Result<(), Error>> {
        loop {
            let is_contended = !self.waiting.is_empty();
            let stream = &mut self.streams[key];
            if let Some(failure) = &stream.failure {
                return Poll::Ready(Err(failure.clone()));
            }
            let window = stream.send_window.min(self.send_window);
            let allowed = usize::try_from(window).unwrap_or(0).min(PAYLOAD_LEN_MAX);
            let len = piece.len().min(allowed);
            let has_room = self.out.len() < OUT_BYTES_MAX;
            if !has_room || (len == 0 && !piece.is_empty()) {
                stream.set_sender(cx);
                // The stream's own window wakes it by itself.
                if (!has_room || self.send_window <= 0) && !stream.is_waiting {
                    stream.is_waiting = true;
                    self.waiting.push(key);
                }
                return Poll::Pending;
            }
            let is_last = len == piece.len();
            stream.is_sent = is_end && is_last;
            let flags = if stream.is_sent { flag::END_STREAM } else { 0 };
            let bytes = i64::try_from(len).unwrap_or(i64::MAX);
            stream.send_window -= bytes;
            self.send_window -= bytes;
            put_frame_head(&mut self.out, len, (kind::DATA, flags), stream.id);
            self.out.extend_from_slice(&piece[..len]);
            piece.advance(len);
            self.flood.give(2);
            self.after_frame(key);
            if is_last {
                return Poll::Ready(Ok(()));
            }
            if is_contended {
                // Other streams wait, too: one frame each.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    pub(in super::super) fn send_trailers(&mut self, key: usize, trailers: &HeaderMap) {
        let stream = &mut self.streams[key];
        if stream.failure.is_some() {
            return;
        }
        stream.is_sent = true;
        let id = stream.id;
        let at = self.begin_head(id, true);
        for (name, value) in trailers {
            encode_field(&mut self.out, name.as_str().as_bytes(), value.as_bytes());
        }
        end_headers(&mut self.out, at, PAYLOAD_LEN_MAX);
        self.after_frame(key);
    }

    /// Notes that the stream has sent a frame, which may be its last.
    fn after_frame(&mut self, key: usize) {
        if self.streams[key].is_sent {
            self.flood.give_for_response();
            self.close_if_complete(key);
        }
        self.wake_driver();
    }

    /// Whether the stream was reset, or its connection has closed.
    pub(in super::super) fn has_failed(&self, key: usize) -> bool {
        self.streams[key].failure.is_some()
    }

    /// Ready when the other side wants no more of what the stream sends.
    pub(in super::super) fn poll_reset(&mut self, cx: &Context<'_>, key: usize) -> Poll<Error> {
        let stream = &mut self.streams[key];
        if let Some(failure) = &stream.failure {
            return Poll::Ready(failure.clone());
        }
        stream.set_sender(cx);
        Poll::Pending
    }

    /// Waits for the next head of the response.
    pub(in super::super) fn poll_response(
        &mut self,
        cx: &Context<'_>,
        key: usize,
    ) -> Poll<Result<ResponseEvent, Error>> {
        let stream = &mut self.streams[key];
        if let Some(interim) = stream.interim.pop_front() {
            return Poll::Ready(Ok(ResponseEvent::Interim(interim)));
        }
        // The failure of an incomplete response has discarded its body, so its length is unknown. A tunnel has none.
        let is_lost = stream.failure.is_some() && !stream.is_received && !stream.is_connect;
        if let Some(response) = stream.response.take().filter(|_| !is_lost) {
            let has_no_body = stream.is_received && stream.received.is_empty();
            let length = stream.unreceived.map(|left| left + stream.received.len());
            let length =
                length.or((has_no_body && stream.received.trailers.is_none()).then_some(0));
            return Poll::Ready(Ok(ResponseEvent::Final(response, length)));
        }
        if let Some(failure) = &stream.failure {
            return Poll::Ready(Err(failure.clone()));
        }
        stream.set_reader(cx);
        Poll::Pending
    }

    /// Reads the next part of the body, which returns its credit to the other side.
    pub(in super::super) fn poll_frame(
        &mut self,
        cx: &Context<'_>,
        key: usize,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let stream = &mut self.streams[key];
        stream.is_read = true;
        if let Some(piece) = stream.received.pop() {
            self.return_stream_credit(key, piece.len());
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if stream.is_received {
            let trailers = stream.received.trailers.take();
            return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
        }
        if let Some(failure) = &stream.failure {
            return Poll::Ready(Some(Err(failure.clone())));
        }
        stream.set_reader(cx);
        if std::mem::take(&mut stream.is_continue_expected) {
            let id = stream.id;
            self.send_interim((key, id), &ResponseHead::new(StatusCode::CONTINUE));
        }
        Poll::Pending
    }

    /// Whether the body has been read to its end. Until it is read, nothing depends on what has arrived.
    pub(in super::super) fn is_end(&self, key: usize) -> bool {
        let stream = &self.streams[key];
        stream.is_read
            && stream.is_received
            && stream.received.is_empty()
            && stream.received.trailers.is_none()
    }

    /// The number of bytes of the body that were not read, if the length was announced. A body without an announced
    /// length that has arrived completely is not counted: what a server gets must not depend on when it arrived.
    pub(in super::super) fn unread_len(&self, key: usize) -> Option<u64> {
        let stream = &self.streams[key];
        Some(stream.unreceived? + stream.received.len())
    }

    /// Discards the body: it has no reader any more.
    pub(in super::super) fn end_reading(&mut self, key: usize) {
        let stream = &mut self.streams[key];
        stream.has_reader = false;
        stream.received = Default::default();
    }

    pub(in super::super) fn is_received(&self, key: usize) -> bool {
        self.streams[key].is_received
    }

    pub(in super::super) fn is_sent(&self, key: usize) -> bool {
        self.streams[key].is_sent
    }
}
