//! A client's request, as it comes: its head, and how its body is framed.

use super::super::chunked::Decoder;
use super::super::fields::{FIELDS_MAX, complaint, end_of_fields};
use super::super::framing::{Framing, length};
use crate::head::{Fields, Known, RequestHead};
use bytes::{Buf, BytesMut};
use http::{Method, StatusCode, Uri, Version};
use std::mem::MaybeUninit;

/// The longest target that can be kept.
const TARGET_BYTES_MAX: usize = u16::MAX as usize - 1;

/// Why a client is sent away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    /// The constant name of what is wrong.
    pub(crate) error: &'static str,
    /// What exactly.
    pub(crate) why: &'static str,
}

impl Fault {
    /// The client did not send its head in time.
    pub(super) const SLOW: Self = Self {
        status: StatusCode::REQUEST_TIMEOUT,
        error: "client_slow",
        why: "its head did not come in time",
    };

    const HEAD_TOO_LONG: Self = Self {
        status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        error: "head_too_long",
        why: "its head is longer than `limits.headers`, or has more than 128 fields",
    };

    const TARGET_TOO_LONG: Self = Self {
        status: StatusCode::URI_TOO_LONG,
        error: "target_too_long",
        why: "its target is longer than 65534 bytes, or than `limits.headers`",
    };

    const fn bad(why: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: "bad_request", why }
    }
}

impl From<httparse::Error> for Fault {
    fn from(error: httparse::Error) -> Self {
        if error == httparse::Error::TooManyHeaders {
            return Self::HEAD_TOO_LONG;
        }
        Self::bad(complaint(error))
    }
}

/// What a request says of the answer to it, and of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// The answer has no body, whatever it says.
    pub(super) is_head: bool,
    pub(super) version: Version,
    /// Trailers are understood.
    pub(super) takes_trailers: bool,
    /// Another request may follow.
    pub(super) keeps: bool,
}

/// A request without its body.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) head: RequestHead,
    pub(super) framing: Framing,
    pub(super) terms: Terms,
    /// The client sends its body when it is told to go on.
    pub(super) waits_to_go_on: bool,
}

/// What has been seen of a request's head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadReader {
    /// So many bytes of what was read have no end of a head.
    searched: usize,
}

impl HeadReader {
    /// Takes the head of a request of at most so many bytes, once it is there whole.
    pub(super) fn take(
        &mut self,
        read: &mut BytesMut,
        bytes_max: usize,
    ) -> Result<Option<Asked>, Fault> {
        if self.searched == 0 {
            // Some clients of old send an empty line after a body (RFC 9112, section 2.2).
            while read.starts_with(b"\r\n") || read.starts_with(b"\n") {
                read.advance(if read[0] == b'\r' { 2 } else { 1 });
            }
            if *read == b"\r"[..] {
                return Ok(None);
            }
        }
        let end = end_of_fields(read, self.searched);
        if end.unwrap_or(read.len()) > bytes_max {
            let is_target = memchr::memchr(b'\n', &read[..bytes_max]).is_none();
            return Err(if is_target { Fault::TARGET_TOO_LONG } else { Fault::HEAD_TOO_LONG });
        }
        self.searched = if end.is_some() { 0 } else { read.len() };
        let Some(end) = end else { return Ok(None) };
        let asked = parse(&read[..end])?;
        read.advance(end);
        Ok(Some(asked))
    }
}

fn parse(bytes: &[u8]) -> Result<Asked, Fault> {
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
    let head = RequestHead {
        method: method.map_err(|_| Fault::bad("its method is no method"))?,
        uri: Uri::try_from(target).map_err(|_| Fault::bad("its target is no target"))?,
        version: if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 },
        fields: Fields::parsed(bytes, parsed.headers),
    };
    let (framing, is_confused) = framing(&head)?;
    let RequestHead { version, ref fields, .. } = head;
    let keeps = match version {
        Version::HTTP_10 => fields.lists(Known::Connection, "keep-alive"),
        _ => !fields.lists(Known::Connection, "close"),
    };
    let terms = Terms {
        is_head: head.method == Method::HEAD,
        version,
        takes_trailers: fields.lists(Known::Te, "trailers"),
        keeps: keeps && !is_confused,
    };
    let expects = fields.get(Known::Expect);
    let waits_to_go_on = version != Version::HTTP_10
        && !framing.is_end()
        && expects.is_some_and(|expects| expects.eq_ignore_ascii_case(b"100-continue"));
    Ok(Asked { head, framing, terms, waits_to_go_on })
}

/// How the body of a request is framed (RFC 9112, section 6.3), and whether that was said in two ways: what
/// follows may then be a body to somebody before us.
fn framing(head: &RequestHead) -> Result<(Framing, bool), Fault> {
    let length = content_length(&head.fields)?;
    if !head.fields.has(Known::TransferEncoding) {
        let framing = length.filter(|bytes| *bytes > 0).map_or(Framing::Ended, Framing::Length);
        return Ok((framing, false));
    }
    if head.version == Version::HTTP_10 {
        return Err(Fault::bad("HTTP/1.0 knows no transfer coding"));
    }
    // Codings before the last one are the business of whoever routes it.
    let last = head.fields.words(Known::TransferEncoding).last();
    if !last.is_some_and(|last| last.eq_ignore_ascii_case(b"chunked")) {
        return Err(Fault::bad("its last transfer coding is not `chunked`"));
    }
    Ok((Framing::Chunked(Decoder::Size), length.is_some()))
}

/// The length that was announced. Some say it twice; if it is the same, only one will be passed on.
fn content_length(fields: &Fields) -> Result<Option<u64>, Fault> {
    let mut said = None;
    for value in fields.all(Known::ContentLength) {
        let length = length(value).ok_or(Fault::bad("its content-length is no length"))?;
        if said.is_some_and(|said| said != length) {
            return Err(Fault::bad("it has two lengths"));
        }
        said = Some(length);
    }
    Ok(said)
}

#[cfg(test)]
mod tests;
