//! A replica's answer, as it comes: its head, and how its body is framed.

use super::super::Error;
use super::super::chunked::Decoder;
use super::super::fields::{
    FIELDS_MAX, HEAD_BYTES_MAX, TOO_LONG, bad, end_of_fields, header_map, take_head,
};
use super::super::framing::{Framing, content_length, is_chunked, says};
use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode, Version};
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
            let response = parse(&take_head(read, end))?;
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
        return Err(Error::Malformed("its head has an empty line within"));
    };
    let mut response = Response::new(());
    *response.status_mut() =
        StatusCode::from_u16(code).map_err(|_| Error::Malformed("its status is no status"))?;
    *response.version_mut() = if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    *response.headers_mut() = header_map(head, parsed.headers, 0)?;
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

#[cfg(test)]
mod tests;
