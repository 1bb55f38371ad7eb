//! The head of a server's response, and the framing of its body.

use super::super::Error;
use super::super::chunked::Decoder;
use super::super::fields::{FIELDS_MAX, HEAD_BYTES_MAX, TOO_LONG, bad, end_of_fields};
use super::super::framing::Framing;
use crate::head::{Fields, Known, ResponseHead};
use bytes::{Buf, BytesMut};
use http::{StatusCode, Version};
use std::mem::MaybeUninit;

/// The head of a response, and its version of HTTP.
type Versioned = (Version, ResponseHead);

const START: &[u8] = b"HTTP/1.";

/// The state of reading a response head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponseHeadReader {
    /// The number of bytes at the start of the buffer that contain no end of a head.
    searched: usize,
    interim_bytes: usize,
}

impl ResponseHeadReader {
    pub(super) fn is_begun(&self, read: &BytesMut) -> bool {
        self.interim_bytes > 0 || !read.is_empty()
    }

    /// Takes the complete head of the response. Interim responses go to `interim`, except "100 Continue", which
    /// concerns only this connection.
    pub(super) fn take(
        &mut self,
        read: &mut BytesMut,
        interim: impl Fn(ResponseHead),
    ) -> Result<Option<Versioned>, Error> {
        loop {
            // Nearly all heads arrive whole. Another start may be empty lines, which the parser would skip.
            let whole = self.searched == 0 && read.starts_with(START);
            let parsed = if whole { parse(read)? } else { None };
            let end = match &parsed {
                Some((end, ..)) => Some(*end),
                None => end_of_fields(read, self.searched),
            };
            // However much of it comes at once.
            if self.interim_bytes + end.unwrap_or(read.len()) > HEAD_BYTES_MAX {
                return Err(TOO_LONG);
            }
            let Some(end) = end else {
                check_start(read)?;
                self.searched = read.len();
                return Ok(None);
            };
            let parsed = if parsed.is_some() { parsed } else { parse(&read[..end])? };
            let Some((_, version, head)) = parsed else {
                return Err(Error::Malformed("its head has an empty line within"));
            };
            read.advance(end);
            if !head.status.is_informational() || head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Some((version, head)));
            }
            if head.status != StatusCode::CONTINUE {
                interim(head);
            }
            self.searched = 0;
            self.interim_bytes += end;
        }
    }
}

/// Rejects an incomplete head that is not HTTP/1, because a server of another protocol may never send an empty line.
fn check_start(read: &[u8]) -> Result<(), Error> {
    let start = read.trim_ascii_start();
    let len = start.len().min(START.len());
    if start[..len] == START[..len] {
        return Ok(());
    }
    Err(match read {
        // An alert (RFC 8446, section 5.1).
        [0x15, ..] => Error::Malformed("the server speaks TLS: its URL must be https://"),
        // The length of a frame, which is short (RFC 9113, section 4.1).
        [0, ..] => Error::Malformed("the server speaks HTTP/2: set connect.protocol to http2"),
        _ => bad(httparse::Error::Version),
    })
}

/// Parses the head at the start of `read`; returns it with its length, [`None`] if it is incomplete.
fn parse(read: &[u8]) -> Result<Option<(usize, Version, ResponseHead)>, Error> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let done = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, read, &mut fields)
        .map_err(bad)?;
    let (httparse::Status::Complete(end), Some(code), Some(minor)) =
        (done, parsed.code, parsed.version)
    else {
        return Ok(None);
    };
    let status =
        StatusCode::from_u16(code).map_err(|_| Error::Malformed("the status line is not valid"))?;
    let version = if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let fields = Fields::parsed(&read[..end], parsed.headers);
    Ok(Some((end, version, ResponseHead { status, fields })))
}

/// Returns the framing of a response body (RFC 9112, section 6.3), and whether the connection is reusable after it
/// (section 9.3). Removes redundant framing fields.
pub(super) fn framing(
    version: Version,
    head: &mut ResponseHead,
    to_head: bool,
) -> Result<(Framing, bool), Error> {
    let ResponseHead { status, fields } = head;
    let is_chunked = is_chunked(fields)?;
    let length = fields.settle_length(is_chunked).map_err(Error::Malformed)?;
    let has_none = to_head || matches!(*status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let framing = match length {
        _ if has_none => Framing::Ended,
        _ if is_chunked => Framing::Chunked(Decoder::Size),
        Some(0) => Framing::Ended,
        Some(bytes) => Framing::Length(bytes),
        None => Framing::UntilClosed,
    };
    // These come of confusion, or of somebody who wants to confuse: what follows may be a body all the same.
    let has_body = is_chunked || length.is_some_and(|bytes| bytes > 0);
    let is_confused =
        is_chunked && length.is_some() || has_body && *status == StatusCode::NO_CONTENT;
    // HTTP/1.0 knows no chunks (section 6.1), and keeps only what it says it keeps.
    let may_keep = version != Version::HTTP_10
        || (fields.lists(Known::Connection, "keep-alive") && !is_chunked);
    let is_kept = !is_confused
        && may_keep
        && *status != StatusCode::SWITCHING_PROTOCOLS
        && !fields.lists(Known::Connection, "close");
    Ok((framing, is_kept && framing != Framing::UntilClosed))
}

fn is_chunked(fields: &Fields) -> Result<bool, Error> {
    let mut codings = fields.all(Known::TransferEncoding);
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(true),
        // Passed on without its name it would be taken for the content itself.
        _ => Err(Error::Malformed("its transfer coding is not `chunked`")),
    }
}

#[cfg(test)]
mod tests;
