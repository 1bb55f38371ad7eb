//! A replica's answer, as it comes: its head, and how its body is framed.
//!
//! Whoever reads a length in another way than the replica meant it takes one client's answer for another's
//! (response splitting). So what could be read in two ways is refused.

use super::Error;
use super::chunked::{Decoder, Piece, take_up_to};
use super::fields::{FIELDS_MAX, HEAD_BYTES_MAX, TOO_LONG, bad, end_of_fields, header_map};
use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Response, StatusCode, Version};
use http_body::SizeHint;
use std::mem::MaybeUninit;

/// What has been seen of an answer's head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadReader {
    /// So many bytes of what was read have no end of a head.
    searched: usize,
    /// So many bytes were interim answers.
    interim_bytes: usize,
}

impl HeadReader {
    /// Whether anything has come.
    pub(super) fn is_begun(&self, read: &BytesMut) -> bool {
        self.interim_bytes > 0 || !read.is_empty()
    }

    /// Takes the head of the answer, once it is there whole. Interim answers are passed over: what they say
    /// is for us, or will be said again.
    pub(super) fn take(&mut self, read: &mut BytesMut) -> Result<Option<Response<()>>, Error> {
        loop {
            let end = end_of_fields(read, self.searched);
            // However much of it comes at once.
            if self.interim_bytes + end.unwrap_or(read.len()) > HEAD_BYTES_MAX {
                return Err(TOO_LONG);
            }
            let Some(end) = end else {
                self.searched = read.len();
                return Ok(None);
            };
            let response = parse(&read.split_to(end).freeze())?;
            let status = response.status();
            if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Some(response));
            }
            self.searched = 0;
            self.interim_bytes += end;
        }
    }
}

fn parse(head: &Bytes) -> Result<Response<()>, Error> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Response::new(&mut []);
    let done = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, head, &mut fields)
        .map_err(bad)?;
    let (httparse::Status::Complete(_), Some(code), Some(minor)) =
        (done, parsed.code, parsed.version)
    else {
        return Err(Error::BadAnswer("its head has an empty line within"));
    };
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(code).map_err(|_| Error::BadAnswer("its status is no status"))?;
    *response.version_mut() = if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    *response.headers_mut() = header_map(head, parsed.headers)?;
    Ok(response)
}

/// How the body of an answer is framed (RFC 9112, section 6.3), and whether the connection can be used again
/// after it (section 9.3).
pub(super) fn framing(response: &Response<()>, to_head: bool) -> Result<(Framing, bool), Error> {
    let headers = response.headers();
    let is_chunked = is_chunked(headers)?;
    let length = content_length(headers)?;
    let has_none =
        to_head || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
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
        is_chunked && length.is_some() || has_body && response.status() == StatusCode::NO_CONTENT;
    // HTTP/1.0 knows no chunks (section 6.1), and keeps only what it says it keeps.
    let may_keep =
        response.version() != Version::HTTP_10 || (says(headers, "keep-alive") && !is_chunked);
    let is_kept = !is_confused
        && may_keep
        && response.status() != StatusCode::SWITCHING_PROTOCOLS
        && !says(headers, "close");
    Ok((framing, is_kept && framing != Framing::UntilClosed))
}

fn is_chunked(headers: &HeaderMap) -> Result<bool, Error> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        // Passed on without its name it would be taken for the content itself.
        _ => Err(Error::BadAnswer("its transfer coding is not `chunked`")),
    }
}

/// The one length. What says it twice, even alike, would be read by the next one on the way as it likes.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Error> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = match (lengths.next(), lengths.next()) {
        (None, _) => return Ok(None),
        (Some(length), None) => length.to_str().ok(),
        (Some(_), Some(_)) => return Err(Error::BadAnswer("it has two lengths")),
    };
    // `parse` would take a sign.
    let digits = length.filter(|length| length.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|digits| digits.parse().ok());
    length.map(Some).ok_or(Error::BadAnswer("its content-length is no length"))
}

/// Whether `connection` has that word.
fn says(headers: &HeaderMap, word: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|said| said.trim().eq_ignore_ascii_case(word))
}

/// How a body is framed, and what of it is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes.
    Length(u64),
    Chunked(Decoder),
    /// All that comes until the replica closes the connection.
    UntilClosed,
    /// Nothing.
    Ended,
}

impl Framing {
    /// Takes what is there of the next piece.
    pub(super) fn take(&mut self, read: &mut BytesMut) -> Result<Piece, Error> {
        let data = match self {
            Self::Ended => return Ok(Piece::End),
            Self::Chunked(decoder) => {
                let piece = decoder.take(read)?;
                if *decoder == Decoder::Ended {
                    *self = Self::Ended;
                }
                return Ok(piece);
            }
            Self::Length(left) => {
                let data = take_up_to(read, *left);
                *left -= data.len() as u64;
                if *left == 0 {
                    *self = Self::Ended;
                }
                data
            }
            Self::UntilClosed => read.split().freeze(),
        };
        Ok(if data.is_empty() { Piece::None } else { Piece::Data(data) })
    }

    pub(super) const fn is_end(&self) -> bool {
        matches!(self, Self::Ended)
    }

    /// Whether the connection's end is the body's.
    pub(super) const fn ends_with_connection(&self) -> bool {
        matches!(self, Self::UntilClosed)
    }

    /// What is known of the length of the rest.
    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Ended => SizeHint::with_exact(0),
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::Chunked(_) | Self::UntilClosed => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
