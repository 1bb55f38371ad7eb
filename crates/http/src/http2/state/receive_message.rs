//! Received messages: data and header blocks.

use super::super::error::{Error, ErrorCode};
use super::super::frame::{FrameHead, PAYLOAD_LEN_MAX, flag, put_reset, put_window_update};
use super::super::message::{HeaderBlock, Rejection};
use super::receive::{
    BAD_STREAM, CLOSED_STREAM, FLOW_CONTROL, FRAME_SIZE, IDLE_STREAM, StreamLookup, Violation,
    check_dependency, without_padding,
};
use super::{AcceptedRequest, Arrival, ConnectionState, DEFAULT_WINDOW, Role, StreamState};
use crate::head::{Fields, Known};
use bytes::{Buf, BytesMut};
use http::StatusCode;

/// Maximum number of CONTINUATION frames of a header block.
const CONTINUATIONS_MAX: usize = 128;

const LESS_DATA: &str = "less data than the content-length";

/// A header block whose end has not arrived.
#[derive(Debug)]
pub(super) struct PartialBlock {
    pub(super) stream: u32,
    is_end: bool,
    block: Vec<u8>,
    continuations: usize,
}

impl ConnectionState {
    pub(super) fn receive_data(
        &mut self,
        head: FrameHead,
        read: &mut BytesMut,
    ) -> Result<(), Violation> {
        let (padding, len) = data_len(head, read)?;
        if padding > 0 {
            read.advance(1);
        }
        let payload_len = u32::try_from(head.len).unwrap_or(u32::MAX);
        self.receive_window -= i64::from(payload_len);
        if self.receive_window < 0 {
            return Err(FLOW_CONTROL);
        }
        self.return_connection_credit(payload_len);
        let is_end = head.has(flag::END_STREAM);
        if len == 0 && !is_end {
            self.flood.spend(1)?;
        }
        let rest = (head.len - len).saturating_sub(usize::from(padding > 0));
        match self.find(head.stream) {
            StreamLookup::Open(key) => {
                self.flood.give(u32::from(len > 0));
                let before = read.len();
                if let Err((code, why)) = self.take_data(key, read, (head.len, len), is_end) {
                    self.reset_malformed(key, code, why)?;
                }
                read.advance(len - (before - read.len()));
            }
            StreamLookup::LocallyReset => read.advance(len),
            StreamLookup::Idle => return Err(IDLE_STREAM),
            StreamLookup::Closed => return Err(CLOSED_STREAM),
        }
        read.advance(rest);
        Ok(())
    }

    /// Takes the data of a frame into its stream.
    fn take_data(
        &mut self,
        key: usize,
        read: &mut BytesMut,
        (payload_len, len): (usize, usize),
        is_end: bool,
    ) -> Result<(), (ErrorCode, &'static str)> {
        let malformed = |why| (ErrorCode::PROTOCOL_ERROR, why);
        let stream = &mut self.streams[key];
        if stream.is_received {
            return Err((ErrorCode::STREAM_CLOSED, "data after the end of the stream"));
        }
        if self.role == Role::Client && !stream.has_response {
            return Err(malformed("data before the headers of the response"));
        }
        stream.receive_window -= i64::try_from(payload_len).unwrap_or(i64::MAX);
        if stream.receive_window < 0 {
            return Err((ErrorCode::FLOW_CONTROL_ERROR, "more data than the window of the stream"));
        }
        if let Some(left) = &mut stream.unreceived {
            let more = "more data than the content-length";
            *left = left.checked_sub(len as u64).ok_or_else(|| malformed(more))?;
            if is_end && *left > 0 {
                return Err(malformed(LESS_DATA));
            }
        }
        stream.is_received = is_end;
        if stream.has_reader {
            stream.received.push(read, len);
        }
        if len > 0 || is_end {
            stream.wake_reader();
        }
        self.return_stream_credit(key, payload_len - len);
        self.close_if_complete(key);
        Ok(())
    }

    /// Returns credit of the connection, when there is enough of it for a frame.
    fn return_connection_credit(&mut self, bytes: u32) {
        self.unreturned += bytes;
        if self.unreturned >= self.limits.connection_window.max(DEFAULT_WINDOW) / 2 {
            put_window_update(&mut self.out, 0, self.unreturned);
            self.receive_window += i64::from(self.unreturned);
            self.unreturned = 0;
        }
    }

    /// Returns credit of a stream, when there is enough of it for a frame and more data may come.
    pub(super) fn return_stream_credit(&mut self, key: usize, bytes: usize) {
        let stream = &mut self.streams[key];
        stream.unreturned += u32::try_from(bytes).unwrap_or(u32::MAX);
        let is_enough = stream.unreturned > 0 && stream.unreturned >= self.limits.stream_window / 2;
        if is_enough && !stream.is_received && stream.failure.is_none() {
            put_window_update(&mut self.out, stream.id, stream.unreturned);
            stream.receive_window += i64::from(stream.unreturned);
            stream.unreturned = 0;
            self.wake_driver();
        }
    }

    pub(super) fn receive_headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let mut block = without_padding(head, payload)?;
        if head.has(flag::PRIORITY) {
            let (priority, rest) = block.split_first_chunk().ok_or(FRAME_SIZE)?;
            check_dependency(head.stream, *priority)?;
            block = rest;
        }
        if head.stream == 0 {
            return Err(BAD_STREAM);
        }
        let is_end = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.receive_block(head.stream, is_end, block);
        }
        let (stream, block) = (head.stream, block.to_vec());
        self.block = Some(PartialBlock { stream, is_end, block, continuations: 0 });
        Ok(())
    }

    pub(super) fn receive_continuation(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<(), Violation> {
        let bytes_max = 2 * self.limits.list_bytes_max + PAYLOAD_LEN_MAX;
        let Some(partial) = &mut self.block else { return Ok(()) };
        partial.continuations += 1;
        if partial.continuations > CONTINUATIONS_MAX
            || partial.block.len() + payload.len() > bytes_max
        {
            return Err(Violation(ErrorCode::ENHANCE_YOUR_CALM, "a header block without end"));
        }
        partial.block.extend_from_slice(payload);
        if head.has(flag::END_HEADERS)
            && let Some(PartialBlock { stream, is_end, block, .. }) = self.block.take()
        {
            self.receive_block(stream, is_end, &block)?;
        }
        Ok(())
    }

    /// Takes a complete header block. Blocks that nobody needs are decoded, too, because they change the table.
    fn receive_block(&mut self, id: u32, is_end: bool, block: &[u8]) -> Result<(), Violation> {
        let limits = (self.limits.list_bytes_max, self.role == Role::Client);
        let block = HeaderBlock::decode(&mut self.decoder, block, limits)?;
        self.blocks += 1;
        match (self.find(id), self.role) {
            (StreamLookup::Open(key), role) => {
                let taken = match role {
                    Role::Client if !self.streams[key].has_response => {
                        self.take_response(key, is_end, block)
                    }
                    Role::Client | Role::Server => self.take_trailers(key, is_end, block),
                };
                if let Err((code, error)) = taken {
                    self.reset_for(key, code, error)?;
                }
                self.close_if_complete(key);
                Ok(())
            }
            (StreamLookup::Idle, Role::Server) if id % 2 == 1 => self.accept(id, is_end, block),
            (StreamLookup::Idle, _) => Err(BAD_STREAM),
            (StreamLookup::LocallyReset, _) => Ok(self.flood.spend(1)?),
            (StreamLookup::Closed, _) if self.skipped.contains(&id) => Err(BAD_STREAM),
            (StreamLookup::Closed, _) => Err(CLOSED_STREAM),
        }
    }

    /// Opens the stream of a request.
    fn accept(&mut self, id: u32, is_end: bool, block: HeaderBlock) -> Result<(), Violation> {
        if id > self.last_peer + 2 {
            self.skipped = self.last_peer + 1..id;
        }
        self.last_peer = id;
        // RFC 9113, section 6.8: a request after the GOAWAY is ignored; the client sends it elsewhere.
        if self.ending.last_accepted.is_some_and(|last| id > last) {
            self.locally_reset.add(id);
            return Ok(());
        }
        let streams_max = self.limits.streams_max as usize;
        // Streams that have ended may still have users.
        if self.open.len() >= streams_max || self.streams.len() >= 2 * streams_max {
            return self.refuse(id, is_end, ErrorCode::REFUSED_STREAM);
        }
        let head = match block.into_request() {
            Ok(head) => Ok(head),
            Err(Rejection::Response(fault)) => Err(fault),
            Err(Rejection::Malformed(why)) => {
                return self.refuse_malformed(id, is_end, why);
            }
        };
        let left = head.as_ref().ok().and_then(|head| announced_length(&head.fields));
        if is_end && left.is_some_and(|left| left > 0) {
            return self.refuse_malformed(id, is_end, LESS_DATA);
        }
        let mut stream =
            StreamState::new(id, self.stream_receive_window(), self.peer.stream_window.into());
        stream.is_received = is_end;
        stream.unreceived = left;
        stream.is_continue_expected = head.as_ref().is_ok_and(|head| {
            let expected = head.fields.get(Known::Expect);
            expected.is_some_and(|text| text.eq_ignore_ascii_case(b"100-continue"))
        });
        let key = self.streams.insert(stream);
        self.open.insert(id, key);
        self.arrivals.push(Arrival::Respond(AcceptedRequest { key, head, has_body: !is_end }));
        Ok(())
    }

    fn refuse_malformed(
        &mut self,
        id: u32,
        is_end: bool,
        why: &'static str,
    ) -> Result<(), Violation> {
        self.arrivals.push(Arrival::Note(why));
        self.refuse(id, is_end, ErrorCode::PROTOCOL_ERROR)
    }

    fn refuse(&mut self, id: u32, is_end: bool, code: ErrorCode) -> Result<(), Violation> {
        put_reset(&mut self.out, id, code);
        if !is_end {
            self.locally_reset.add(id);
        }
        // RFC 9113, section 5.1.2: a client that does not know the limit yet opens as many streams as it wants.
        if code == ErrorCode::REFUSED_STREAM && !self.is_own_settings_acknowledged {
            return Ok(self.flood.spend(1)?);
        }
        Ok(self.flood.spend_for_reset()?)
    }

    /// The window of a new stream. Until the other side has acknowledged the settings, it may use the default.
    pub(super) fn stream_receive_window(&self) -> i64 {
        let window = self.limits.stream_window;
        let is_known = self.is_own_settings_acknowledged;
        (if is_known { window } else { window.max(DEFAULT_WINDOW) }).into()
    }

    fn take_response(
        &mut self,
        key: usize,
        is_end: bool,
        block: HeaderBlock,
    ) -> Result<(), (ErrorCode, Error)> {
        let malformed = |why| (ErrorCode::PROTOCOL_ERROR, Error::Malformed(why));
        let stream = &mut self.streams[key];
        stream.head_bytes += block.list_bytes();
        if stream.head_bytes > self.limits.list_bytes_max {
            return Err((ErrorCode::ENHANCE_YOUR_CALM, Error::HeadTooLong));
        }
        let head = block.into_response().map_err(malformed)?;
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            // RFC 9113, section 8.6.
            return Err((ErrorCode::PROTOCOL_ERROR, Error::SwitchedProtocols));
        }
        if head.status.is_informational() {
            if is_end {
                return Err(malformed("an interim response that ends the stream"));
            }
            // "100 Continue" concerns only this connection.
            if head.status != StatusCode::CONTINUE {
                stream.interim.push_back(head);
                stream.wake_reader();
            }
            return Ok(());
        }
        let is_bodiless = stream.is_head
            || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let is_tunnel = stream.is_connect && head.status.is_success();
        stream.unreceived = match (is_tunnel, is_bodiless) {
            // RFC 9110, section 9.3.6: a length has no meaning here.
            (true, _) => None,
            (false, true) => Some(0),
            (false, false) => announced_length(&head.fields),
        };
        if is_end && stream.unreceived.is_some_and(|left| left > 0) {
            return Err(malformed(LESS_DATA));
        }
        stream.has_response = true;
        stream.is_received = is_end;
        stream.response = Some(head);
        stream.wake_reader();
        Ok(())
    }

    fn take_trailers(
        &mut self,
        key: usize,
        is_end: bool,
        block: HeaderBlock,
    ) -> Result<(), (ErrorCode, Error)> {
        let malformed = |why| (ErrorCode::PROTOCOL_ERROR, Error::Malformed(why));
        let stream = &mut self.streams[key];
        if stream.is_received {
            let why = Error::Malformed("headers after the end of the stream");
            return Err((ErrorCode::STREAM_CLOSED, why));
        }
        if !is_end {
            return Err(malformed("trailers that do not end the stream"));
        }
        if stream.unreceived.is_some_and(|left| left > 0) {
            return Err(malformed(LESS_DATA));
        }
        if block.is_too_large() {
            return Err((ErrorCode::ENHANCE_YOUR_CALM, Error::HeadTooLong));
        }
        let trailers = block.into_trailers(self.role == Role::Server).map_err(malformed)?;
        stream.is_received = true;
        if stream.has_reader {
            stream.received.trailers = Some(trailers);
        }
        stream.wake_reader();
        Ok(())
    }
}

/// Returns the length of a DATA frame's padding with its length byte, and of its data.
fn data_len(head: FrameHead, payload: &[u8]) -> Result<(usize, usize), Violation> {
    if head.stream == 0 {
        return Err(BAD_STREAM);
    }
    if !head.has(flag::PADDED) {
        return Ok((0, head.len));
    }
    let len = without_padding(head, &payload[..head.len])?.len();
    Ok((head.len - len, len))
}

fn announced_length(fields: &Fields) -> Option<u64> {
    fields.get_text(Known::ContentLength)?.parse().ok()
}
