//! Received frames.

use super::super::error::{ConnectionError, Error, ErrorCode};
use super::super::frame::{
    FRAME_HEAD_LEN, FrameHead, PAYLOAD_LEN_MAX, PREFACE, flag, kind, put_ping, put_settings_ack,
    setting,
};
use super::super::hpack::{InvalidBlock, TABLE_BYTES_MAX};
use super::flood::Flooded;
use super::{ALIVE_PING, Arrival, ConnectionState, Role, SHUTDOWN_PING, StreamState};
use crate::turn::TURN_REQUEST_FRAMES;
use bytes::{Buf, BytesMut};
use tokio::time::Instant;

/// A violation that ends the connection.
#[derive(Debug)]
pub(super) struct Violation(pub(super) ErrorCode, pub(super) &'static str);

pub(super) const FLOW_CONTROL: Violation =
    Violation(ErrorCode::FLOW_CONTROL_ERROR, "more data than the window of the connection");
const WINDOW_TOO_LARGE: Violation =
    Violation(ErrorCode::FLOW_CONTROL_ERROR, "a window of more than 2^31 - 1 bytes");
pub(super) const FRAME_SIZE: Violation =
    Violation(ErrorCode::FRAME_SIZE_ERROR, "a frame whose length is not that of its type");
const PADDING: Violation =
    Violation(ErrorCode::PROTOCOL_ERROR, "padding that is longer than its frame");
pub(super) const BAD_STREAM: Violation =
    Violation(ErrorCode::PROTOCOL_ERROR, "a frame on a stream that it must not be on");
pub(super) const IDLE_STREAM: Violation =
    Violation(ErrorCode::PROTOCOL_ERROR, "a frame on a stream that is not open yet");
pub(super) const CLOSED_STREAM: Violation =
    Violation(ErrorCode::STREAM_CLOSED, "a frame on a stream that the sender has closed");
const SELF_DEPENDENCY: Violation =
    Violation(ErrorCode::PROTOCOL_ERROR, "a stream that depends on itself");

const FLOODED: Violation =
    Violation(ErrorCode::ENHANCE_YOUR_CALM, "too many resets, or frames without data");

impl From<Flooded> for Violation {
    fn from(_: Flooded) -> Self {
        FLOODED
    }
}

impl From<InvalidBlock> for Violation {
    fn from(invalid: InvalidBlock) -> Self {
        let is_excessive = invalid == InvalidBlock::EXCESSIVE;
        let code =
            if is_excessive { ErrorCode::ENHANCE_YOUR_CALM } else { ErrorCode::COMPRESSION_ERROR };
        Self(code, invalid.0)
    }
}

/// A stream's identifier in the state: open, closed, or not opened yet.
pub(super) enum StreamLookup {
    Open(usize),
    /// Closed by a reset of this side: late frames are expected.
    LocallyReset,
    Closed,
    Idle,
}

impl ConnectionState {
    /// Takes the complete frames of `read`, at most `frames_left`; a request counts as several. Takes none while too many
    /// frames wait to be written.
    pub(in super::super) fn receive(
        &mut self,
        read: &mut BytesMut,
        now: Instant,
        frames_left: &mut usize,
    ) {
        self.flood.refill(now);
        if let Err(Violation(code, why)) = self.receive_frames(read, frames_left) {
            self.fail(ConnectionError::Violation { code, why });
        }
    }

    fn receive_frames(
        &mut self,
        read: &mut BytesMut,
        frames_left: &mut usize,
    ) -> Result<(), Violation> {
        if self.needs_preface {
            let len = read.len().min(PREFACE.len());
            if read[..len] != PREFACE[..len] {
                return Err(Violation(
                    ErrorCode::PROTOCOL_ERROR,
                    "the preface is not that of HTTP/2",
                ));
            }
            if len < PREFACE.len() {
                return Ok(());
            }
            read.advance(len);
            self.needs_preface = false;
        }
        while *frames_left > 0
            && !self.is_output_full()
            && let Some(head) = read.first_chunk()
        {
            let head = FrameHead::parse(head);
            self.check_frame(head)?;
            if read.len() < FRAME_HEAD_LEN + head.len {
                break;
            }
            let arrivals = self.arrivals.len();
            read.advance(FRAME_HEAD_LEN);
            if head.kind == kind::DATA {
                self.receive_data(head, read)?;
            } else {
                self.receive_control(head, &read[..head.len])?;
                read.advance(head.len);
            }
            let is_request = self.arrivals.len() > arrivals;
            let cost = if is_request { TURN_REQUEST_FRAMES } else { 1 };
            *frames_left = frames_left.saturating_sub(cost);
        }
        Ok(())
    }

    /// Checks what the header of a frame tells.
    fn check_frame(&mut self, head: FrameHead) -> Result<(), Violation> {
        if head.len > PAYLOAD_LEN_MAX {
            return Err(Violation(ErrorCode::FRAME_SIZE_ERROR, "a frame of more than 16384 bytes"));
        }
        if !self.has_settings {
            let is_settings = head.kind == kind::SETTINGS && !head.has(flag::ACK);
            self.has_settings = is_settings;
            if !is_settings {
                return Err(Violation(
                    ErrorCode::PROTOCOL_ERROR,
                    "the first frame is not SETTINGS",
                ));
            }
        }
        let is_expected = match &self.block {
            Some(block) => head.kind == kind::CONTINUATION && head.stream == block.stream,
            None => head.kind != kind::CONTINUATION,
        };
        if is_expected {
            Ok(())
        } else {
            Err(Violation(ErrorCode::PROTOCOL_ERROR, "a header block is not followed by its rest"))
        }
    }

    fn receive_control(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
        if head.kind != kind::HEADERS {
            self.flood.spend(1)?;
        }
        match head.kind {
            kind::HEADERS => self.receive_headers(head, payload),
            kind::CONTINUATION => self.receive_continuation(head, payload),
            kind::RST_STREAM => self.receive_reset(head, payload),
            kind::WINDOW_UPDATE => self.receive_window_update(head, payload),
            kind::SETTINGS => self.receive_settings(head, payload),
            kind::PING => self.receive_ping(head, payload),
            kind::GOAWAY => self.receive_goaway(head, payload),
            kind::PRIORITY => check_priority(head, payload),
            kind::PUSH_PROMISE => {
                Err(Violation(ErrorCode::PROTOCOL_ERROR, "PUSH_PROMISE, which is not enabled"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn find(&self, id: u32) -> StreamLookup {
        if let Some(key) = self.open.get(&id) {
            return StreamLookup::Open(*key);
        }
        let is_of_client = id % 2 == 1;
        let is_idle = match self.role {
            Role::Client => !is_of_client || id >= self.next_own,
            Role::Server => !is_of_client || id > self.last_peer,
        };
        if is_idle {
            StreamLookup::Idle
        } else if self.locally_reset.known.contains(&id) || self.role == Role::Client {
            StreamLookup::LocallyReset
        } else {
            StreamLookup::Closed
        }
    }

    pub(super) fn reset_malformed(
        &mut self,
        key: usize,
        code: ErrorCode,
        why: &'static str,
    ) -> Result<(), Violation> {
        let mut arrivals = self.arrivals.iter_mut();
        if code == ErrorCode::PROTOCOL_ERROR
            && let Some(untaken) = arrivals.find(|arrival| arrival.is_request(key))
        {
            *untaken = Arrival::Note(why);
        }
        self.reset_for(key, code, Error::Malformed(why))
    }

    /// Resets a stream for what the other side did; that costs as much as a reset of its own (CVE-2025-8671).
    pub(super) fn reset_for(
        &mut self,
        key: usize,
        code: ErrorCode,
        error: Error,
    ) -> Result<(), Violation> {
        self.arrivals.retain(|arrival| !arrival.is_request(key));
        self.reset(key, code, error);
        self.remove_unaccepted(key);
        Ok(self.flood.spend_for_reset()?)
    }

    /// Removes a stream whose request nobody has taken yet.
    fn remove_unaccepted(&mut self, key: usize) {
        let is_unaccepted = |stream: &StreamState| !stream.is_taken;
        if self.role == Role::Server && self.streams.get(key).is_some_and(is_unaccepted) {
            self.streams.remove(key);
        }
    }

    fn receive_reset(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
        let code = ErrorCode(u32::from_be_bytes(payload.try_into().map_err(|_| FRAME_SIZE)?));
        match self.find(head.stream) {
            StreamLookup::Open(key) => {
                let stream = &mut self.streams[key];
                let is_premature = self.role == Role::Server && !stream.has_response;
                stream.fail(Error::Reset(code));
                self.close(head.stream);
                self.arrivals.retain(|arrival| !arrival.is_request(key));
                self.remove_unaccepted(key);
                if is_premature {
                    self.flood.spend_for_reset()?;
                }
                Ok(())
            }
            StreamLookup::Idle => Err(IDLE_STREAM),
            StreamLookup::LocallyReset | StreamLookup::Closed => Ok(()),
        }
    }

    fn receive_window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
        let bytes = u32::from_be_bytes(payload.try_into().map_err(|_| FRAME_SIZE)?) & 0x7fff_ffff;
        let zero = "a window update of zero bytes";
        if head.stream == 0 {
            if bytes == 0 {
                return Err(Violation(ErrorCode::PROTOCOL_ERROR, zero));
            }
            self.send_window += i64::from(bytes);
            if self.send_window > super::STREAM_MAX.into() {
                return Err(WINDOW_TOO_LARGE);
            }
            self.wake_waiting();
            return Ok(());
        }
        match self.find(head.stream) {
            StreamLookup::Open(key) if bytes == 0 => {
                self.reset_malformed(key, ErrorCode::PROTOCOL_ERROR, zero)
            }
            StreamLookup::Open(key) => {
                let stream = &mut self.streams[key];
                stream.send_window += i64::from(bytes);
                if stream.send_window > super::STREAM_MAX.into() {
                    let Violation(code, why) = WINDOW_TOO_LARGE;
                    return self.reset_malformed(key, code, why);
                }
                stream.wake_sender();
                Ok(())
            }
            StreamLookup::Idle => Err(IDLE_STREAM),
            StreamLookup::LocallyReset | StreamLookup::Closed => Ok(()),
        }
    }

    fn receive_settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
        if head.stream != 0 {
            return Err(BAD_STREAM);
        }
        if head.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(FRAME_SIZE);
            }
            self.receive_settings_ack();
            return Ok(());
        }
        if !payload.len().is_multiple_of(6) {
            return Err(FRAME_SIZE);
        }
        if !std::mem::replace(&mut self.has_peer_settings, true) {
            // Without this setting there is no limit.
            self.peer.streams_max = usize::MAX;
            self.opening.drain(..).for_each(std::task::Waker::wake);
        }
        // Each entry may change all streams.
        self.flood.spend(u32::try_from(payload.len() / 6).unwrap_or(u32::MAX))?;
        for entry in payload.chunks_exact(6) {
            let name = u16::from_be_bytes([entry[0], entry[1]]);
            let value = u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]);
            self.apply_setting(name, value)?;
        }
        put_settings_ack(&mut self.out);
        Ok(())
    }

    /// Streams that were opened before have a window of the default size (RFC 9113, section 6.9.2).
    fn receive_settings_ack(&mut self) {
        let unused = self.stream_receive_window() - i64::from(self.limits.stream_window);
        self.is_own_settings_acknowledged = true;
        for (_, stream) in &mut self.streams {
            stream.receive_window -= unused;
        }
    }

    fn apply_setting(&mut self, name: u16, value: u32) -> Result<(), Violation> {
        let invalid = |why| Err(Violation(ErrorCode::PROTOCOL_ERROR, why));
        match name {
            // This side's encoder uses no table.
            setting::HEADER_TABLE_SIZE => {
                self.needs_table_size |= (value as usize) < TABLE_BYTES_MAX;
            }
            setting::ENABLE_PUSH => {
                let is_valid = value == 0 || (value == 1 && self.role == Role::Server);
                if !is_valid {
                    return invalid("SETTINGS_ENABLE_PUSH is not valid");
                }
            }
            setting::MAX_CONCURRENT_STREAMS => {
                self.peer.streams_max = value as usize;
                self.opening.drain(..).for_each(std::task::Waker::wake);
            }
            setting::INITIAL_WINDOW_SIZE => {
                if value > super::STREAM_MAX {
                    return Err(WINDOW_TOO_LARGE);
                }
                return self.resize_windows(value);
            }
            setting::ENABLE_CONNECT_PROTOCOL => {
                if value > 1 {
                    return invalid("SETTINGS_ENABLE_CONNECT_PROTOCOL is not valid");
                }
                self.peer.accepts_connect = value == 1;
            }
            // Larger frames are not used: they would only let one stream delay the others.
            setting::MAX_FRAME_SIZE if !(PAYLOAD_LEN_MAX..1 << 24).contains(&(value as usize)) => {
                return invalid("SETTINGS_MAX_FRAME_SIZE is not valid");
            }
            _ => {}
        }
        Ok(())
    }

    fn resize_windows(&mut self, window: u32) -> Result<(), Violation> {
        let change = i64::from(window) - i64::from(self.peer.stream_window);
        self.peer.stream_window = window;
        for (_, stream) in &mut self.streams {
            stream.send_window += change;
            if stream.send_window > super::STREAM_MAX.into() {
                return Err(WINDOW_TOO_LARGE);
            }
            stream.wake_sender();
        }
        Ok(())
    }

    fn receive_ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
        let data: [u8; 8] = payload.try_into().map_err(|_| FRAME_SIZE)?;
        if head.stream != 0 {
            return Err(BAD_STREAM);
        }
        match (head.has(flag::ACK), data) {
            (false, _) => put_ping(&mut self.out, flag::ACK, data),
            (true, ALIVE_PING) => self.is_ping_unanswered = false,
            (true, SHUTDOWN_PING) => {
                self.ending.is_acknowledged = self.ending.last_accepted.is_some();
            }
            (true, _) => {}
        }
        Ok(())
    }

    fn receive_goaway(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
        if head.stream != 0 {
            return Err(BAD_STREAM);
        }
        let (last, rest) = payload.split_first_chunk().ok_or(FRAME_SIZE)?;
        let (code, _) = rest.split_first_chunk().ok_or(FRAME_SIZE)?;
        let last = u32::from_be_bytes(*last) & 0x7fff_ffff;
        let code = ErrorCode(u32::from_be_bytes(*code));
        self.ending.received = Some(code);
        if self.role == Role::Client {
            let excluded: Vec<_> = self.open.iter().filter(|(id, _)| **id > last).collect();
            let excluded: Vec<_> = excluded.into_iter().map(|(id, key)| (*id, *key)).collect();
            for (id, key) in excluded {
                self.streams[key].fail(Error::Unprocessed(code));
                self.close(id);
            }
        }
        self.opening.drain(..).for_each(std::task::Waker::wake);
        Ok(())
    }
}

pub(super) fn without_padding(head: FrameHead, payload: &[u8]) -> Result<&[u8], Violation> {
    if !head.has(flag::PADDED) {
        return Ok(payload);
    }
    let (padding, rest) = payload.split_first().ok_or(FRAME_SIZE)?;
    let len = rest.len().checked_sub(usize::from(*padding)).ok_or(PADDING)?;
    Ok(&rest[..len])
}

/// Priorities are ignored (RFC 9113, section 5.3.2), except what no version of the protocol allows.
fn check_priority(head: FrameHead, payload: &[u8]) -> Result<(), Violation> {
    if head.stream == 0 {
        return Err(BAD_STREAM);
    }
    check_dependency(head.stream, payload.try_into().map_err(|_| FRAME_SIZE)?)
}

pub(super) const fn check_dependency(
    stream: u32,
    [id0, id1, id2, id3, _]: [u8; 5],
) -> Result<(), Violation> {
    let on = u32::from_be_bytes([id0 & 0x7f, id1, id2, id3]);
    if on == stream { Err(SELF_DEPENDENCY) } else { Ok(()) }
}
