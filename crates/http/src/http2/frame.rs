//! The frames of HTTP/2 (RFC 9113, sections 4 and 6).

use super::ErrorCode;

/// The length of a frame's header.
pub(super) const FRAME_HEAD_LEN: usize = 9;

/// Maximum length of a frame's payload before any setting; this side never allows more.
pub(super) const PAYLOAD_LEN_MAX: usize = 16_384;

/// What a client sends first.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The types of frames.
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const PRIORITY: u8 = 2;
    pub(in super::super) const RST_STREAM: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
    pub(in super::super) const PUSH_PROMISE: u8 = 5;
    pub(in super::super) const PING: u8 = 6;
    pub(in super::super) const GOAWAY: u8 = 7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
    pub(in super::super) const CONTINUATION: u8 = 9;
}

/// The flags of frames.
pub(super) mod flag {
    pub(in super::super) const END_STREAM: u8 = 0x1;
    pub(in super::super) const ACK: u8 = 0x1;
    pub(in super::super) const END_HEADERS: u8 = 0x4;
    pub(in super::super) const PADDED: u8 = 0x8;
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

/// The settings that this side reads or sends.
pub(super) mod setting {
    pub(in super::super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(in super::super) const ENABLE_PUSH: u16 = 2;
    pub(in super::super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(in super::super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(in super::super) const MAX_FRAME_SIZE: u16 = 5;
    pub(in super::super) const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// RFC 8441, section 3.
    pub(in super::super) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// The header of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHead {
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    pub(super) const fn parse(bytes: &[u8; FRAME_HEAD_LEN]) -> Self {
        let [len0, len1, len2, kind, flags, id0, id1, id2, id3] = *bytes;
        Self {
            len: u32::from_be_bytes([0, len0, len1, len2]) as usize,
            kind,
            flags,
            // The first bit is reserved.
            stream: u32::from_be_bytes([id0 & 0x7f, id1, id2, id3]),
        }
    }

    pub(super) const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Begins a frame whose payload the caller appends; [`end_headers`] sets its length.
pub(super) fn begin_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32) -> usize {
    let at = out.len();
    put_frame_head(out, 0, (kind, flags), stream);
    at
}

/// Ends the frame that begins at this position. A header block that is too long for one frame continues in others.
pub(super) fn end_headers(out: &mut Vec<u8>, at: usize, payload_len_max: usize) {
    let payload = at + FRAME_HEAD_LEN;
    let len = out.len() - payload;
    if len <= payload_len_max {
        out[at + 4] |= flag::END_HEADERS;
        return set_len(out, at, len);
    }
    let stream = FrameHead::parse(out[at..payload].try_into().expect("nine bytes")).stream;
    let rest = out.split_off(payload + payload_len_max);
    set_len(out, at, payload_len_max);
    let mut pieces = rest.chunks(payload_len_max).peekable();
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
        put_frame_head(out, piece.len(), (kind::CONTINUATION, flags), stream);
        out.extend_from_slice(piece);
    }
}

fn set_len(out: &mut [u8], at: usize, len: usize) {
    out[at..at + 3].copy_from_slice(&len_bytes(len));
}

fn len_bytes(len: usize) -> [u8; 3] {
    let [_, bytes @ ..] = u32::try_from(len).expect("a frame has at most 16 MiB").to_be_bytes();
    bytes
}

#[inline]
pub(super) fn put_frame_head(out: &mut Vec<u8>, len: usize, (kind, flags): (u8, u8), stream: u32) {
    let [len0, len1, len2] = len_bytes(len);
    let [id0, id1, id2, id3] = stream.to_be_bytes();
    out.extend_from_slice(&[len0, len1, len2, kind, flags, id0, id1, id2, id3]);
}

pub(super) fn put_reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    put_frame_head(out, 4, (kind::RST_STREAM, 0), stream);
    out.extend_from_slice(&code.0.to_be_bytes());
}

pub(super) fn put_window_update(out: &mut Vec<u8>, stream: u32, bytes: u32) {
    put_frame_head(out, 4, (kind::WINDOW_UPDATE, 0), stream);
    out.extend_from_slice(&bytes.to_be_bytes());
}

pub(super) fn put_ping(out: &mut Vec<u8>, flags: u8, data: [u8; 8]) {
    put_frame_head(out, 8, (kind::PING, flags), 0);
    out.extend_from_slice(&data);
}

/// Writes a GOAWAY; the debug data explains an error to the people who look at the other side.
pub(super) fn put_goaway(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode, why: &str) {
    put_frame_head(out, 8 + why.len(), (kind::GOAWAY, 0), 0);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(why.as_bytes());
}

pub(super) fn put_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    put_frame_head(out, 6 * settings.len(), (kind::SETTINGS, 0), 0);
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(super) fn put_settings_ack(out: &mut Vec<u8>) {
    put_frame_head(out, 0, (kind::SETTINGS, flag::ACK), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_header_block_continues_in_frames_of_the_allowed_size() {
        for (len, frames) in [
            (0, vec![(kind::HEADERS, 0, 5)]),
            (3, vec![(kind::HEADERS, 3, 5)]),
            (4, vec![(kind::HEADERS, 3, 1), (kind::CONTINUATION, 1, 4)]),
            (6, vec![(kind::HEADERS, 3, 1), (kind::CONTINUATION, 3, 4)]),
            (
                7,
                vec![(kind::HEADERS, 3, 1), (kind::CONTINUATION, 3, 0), (kind::CONTINUATION, 1, 4)],
            ),
        ] {
            let mut out = b"before".to_vec();
            let at = begin_frame(&mut out, kind::HEADERS, flag::END_STREAM, 0x0102_0304);
            let block: Vec<u8> = (0..len).collect();
            out.extend_from_slice(&block);
            end_headers(&mut out, at, 3);
            let (mut rest, mut found, mut payload) = (&out[6..], Vec::new(), Vec::new());
            while let Some((head, after)) = rest.split_first_chunk() {
                let head = FrameHead::parse(head);
                assert_eq!(head.stream, 0x0102_0304);
                found.push((head.kind, head.len, head.flags));
                payload.extend_from_slice(&after[..head.len]);
                rest = &after[head.len..];
            }
            assert_eq!((found, payload), (frames, block), "{len}");
        }
    }
}
