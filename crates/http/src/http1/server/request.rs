//! The head of a client's request, and the framing of its body.

use super::super::chunked::Decoder;
use super::super::fields::{FIELDS_MAX, complaint, end_of_strict_lines};
use super::super::framing::Framing;
use crate::head::{Fault, Fields, Known, RequestHead, TARGET_BYTES_MAX, Target};
use bytes::{Buf, BytesMut};
use http::{Method, Version};
use std::mem::MaybeUninit;

impl From<httparse::Error> for Fault {
    fn from(error: httparse::Error) -> Self {
        if error == httparse::Error::TooManyHeaders {
            return Self::HEAD_TOO_LONG;
        }
        Self::bad(complaint(error))
    }
}

/// The conditions that a request sets for its response and the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Whether the request is `HEAD`, so that the response has no body.
    pub(super) is_head: bool,
    pub(super) version: Version,
    pub(super) takes_trailers: bool,
    /// Whether another request may follow.
    pub(super) keeps: bool,
}

#[derive(Debug)]
pub(super) struct ParsedRequest {
    pub(super) head: RequestHead,
    pub(super) framing: Framing,
    pub(super) terms: Terms,
    /// Whether the client waits for `100 Continue` before it sends its body.
    pub(super) is_continue_expected: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestHeadReader {
    /// The number of bytes at the start of the buffer that contain no end of a head.
    searched: usize,
}

impl RequestHeadReader {
    /// Takes the complete head of a request, which has at most `bytes_max` bytes.
    pub(super) fn take(
        &mut self,
        read: &mut BytesMut,
        bytes_max: usize,
    ) -> Result<Option<ParsedRequest>, Fault> {
        if self.searched == 0 {
            // Some clients of old send an empty line after a body (RFC 9112, section 2.2).
            while read.starts_with(b"\r\n") {
                read.advance(2);
            }
            if *read == b"\r"[..] {
                return Ok(None);
            }
        }
        let end = end_of_strict_lines(read, self.searched)?;
        if end.unwrap_or(read.len()) > bytes_max {
            let is_target = memchr::memchr(b'\n', &read[..bytes_max]).is_none();
            return Err(if is_target { Fault::TARGET_TOO_LONG } else { Fault::HEAD_TOO_LONG });
        }
        self.searched = if end.is_some() { 0 } else { read.len() };
        let Some(end) = end else { return Ok(None) };
        let request = parse(&read[..end]).or_else(|fault| match as_version_1_1(&read[..end]) {
            Some(bytes) => parse(&bytes),
            None => Err(fault),
        })?;
        read.advance(end);
        Ok(Some(request))
    }
}

/// Returns the head with version HTTP/1.1 if its minor version is higher. The parser does not support such a version,
/// but clients with this version understand HTTP/1.1 (RFC 9110, section 2.5).
fn as_version_1_1(bytes: &[u8]) -> Option<Vec<u8>> {
    let line = &bytes[..memchr::memchr(b'\n', bytes)?];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (b'2'..=b'9', before) = line.split_last()? else { return None };
    let mut bytes = before.ends_with(b" HTTP/1.").then(|| bytes.to_vec())?;
    bytes[before.len()] = b'1';
    Some(bytes)
}

fn parse(bytes: &[u8]) -> Result<ParsedRequest, Fault> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let done = parsed.parse_with_uninit_headers(bytes, &mut fields)?;
    let (httparse::Status::Complete(_), Some(method), Some(target), Some(minor)) =
        (done, parsed.method, parsed.path, parsed.version)
    else {
        return Err(Fault::bad("its head has an empty line within"));
    };
    if target.len() > TARGET_BYTES_MAX {
        return Err(Fault::TARGET_TOO_LONG);
    }
    let method = Method::from_bytes(method.as_bytes());
    let method = method.map_err(|_| Fault::bad("the request method is not valid"))?;
    let (target, authority) = Target::parse(&method, target)?;
    let version = if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    let fields = Fields::parsed(bytes, parsed.headers);
    let mut head = RequestHead { method, target, authority, version, fields };
    let (framing, is_confused) = framing(&mut head)?;
    let fields = &head.fields;
    // RFC 9112, section 9.3: `close` takes precedence.
    let keeps = !fields.lists(Known::Connection, "close")
        && (version != Version::HTTP_10 || fields.lists(Known::Connection, "keep-alive"));
    let terms = Terms {
        is_head: head.method == Method::HEAD,
        version,
        takes_trailers: fields.lists(Known::Te, "trailers"),
        keeps: keeps && !is_confused,
    };
    let expects = fields.get(Known::Expect);
    let is_continue_expected = version != Version::HTTP_10
        && !framing.is_end()
        && expects.is_some_and(|expects| expects.eq_ignore_ascii_case(b"100-continue"));
    Ok(ParsedRequest { head, framing, terms, is_continue_expected })
}

/// Returns the framing of a request body (RFC 9112, section 6.3), and whether both framing fields were present: a
/// client that is a proxy may then see another end of the body. Removes redundant framing fields.
fn framing(head: &mut RequestHead) -> Result<(Framing, bool), Fault> {
    let RequestHead { version, fields, .. } = head;
    let framing_fields = [Known::TransferEncoding, Known::ContentLength];
    if framing_fields.iter().any(|field| fields.lists(Known::Connection, field.name())) {
        return Err(Fault::bad("`connection` names a framing field"));
    }
    if fields.has(Known::FramingAlias) {
        return Err(Fault::FRAMING_ALIAS);
    }
    let is_chunked = fields.has(Known::TransferEncoding);
    let length = fields.settle_length(is_chunked).map_err(Fault::bad)?;
    if !is_chunked {
        let framing = length.filter(|bytes| *bytes > 0).map_or(Framing::Ended, Framing::Length);
        return Ok((framing, false));
    }
    if *version == Version::HTTP_10 {
        return Err(Fault::bad("HTTP/1.0 knows no transfer coding"));
    }
    let last = fields.words(Known::TransferEncoding).last();
    if !last.is_some_and(|last| last.eq_ignore_ascii_case(b"chunked")) {
        return Err(Fault::bad("its last transfer coding is not `chunked`"));
    }
    // RFC 9112, section 6.1: a proxy cannot forward another coding unchanged.
    if fields.words(Known::TransferEncoding).nth(1).is_some() {
        return Err(Fault::TRANSFER_CODING);
    }
    Ok((Framing::Chunked(Decoder::Size), length.is_some()))
}

#[cfg(test)]
mod tests;
