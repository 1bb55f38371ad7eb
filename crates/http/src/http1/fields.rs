//! The fields of heads and trailers: a line for each field, then an empty line.

use super::Error;
use crate::head::write_field;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Maximum size of the headers of a response, also over HTTP/2, including its interim responses; and maximum size of
/// the trailers of any message.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;

pub(super) const FIELDS_MAX: usize = 128;

pub(super) const TOO_LONG: Error = Error::Malformed("its head is too long");

pub(super) fn write_length(buffer: &mut Vec<u8>, bytes: u64) {
    write_field(buffer, b"content-length", itoa::Buffer::new().format(bytes).as_bytes());
}

/// Finds the position after the empty line that ends the lines of a client's head or of trailers, which is not in the
/// first `searched` bytes.
///
/// # Errors
/// When a line ends with LF alone. RFC 9112, section 2.2, allows this, but a proxy on the way may have read the LF as a
/// part of a value, and then it has seen other fields.
pub(super) fn end_of_strict_lines(
    read: &[u8],
    searched: usize,
) -> Result<Option<usize>, httparse::Error> {
    // The empty line may have begun in the bytes that were searched.
    let from = searched.saturating_sub(3);
    for at in memchr::memchr_iter(b'\n', read.get(from..).unwrap_or_default()) {
        let end = from + at + 1;
        let lines = &read[..end];
        if !lines.ends_with(b"\r\n") {
            return Err(httparse::Error::NewLine);
        }
        if lines.ends_with(b"\r\n\r\n") {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

/// Finds the position after the empty line that ends a server's head, which is not in the first `searched` bytes.
pub(super) fn end_of_fields(read: &[u8], searched: usize) -> Option<usize> {
    // The empty line may have begun in the bytes that were searched.
    let from = searched.saturating_sub(3);
    memchr::memchr_iter(b'\n', read.get(from..)?).map(|at| from + at + 1).find(|&line| {
        let before = &read[..line];
        before.ends_with(b"\n\r\n") || before.ends_with(b"\n\n")
    })
}

pub(super) const fn complaint(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "the name of a header is not valid",
        httparse::Error::HeaderValue => "the value of a header has a control character",
        httparse::Error::NewLine => "a line does not end with CRLF",
        httparse::Error::Status => "the status line is not valid",
        httparse::Error::Token => "the request line or status line is not valid",
        httparse::Error::TooManyHeaders => "it has too many fields",
        httparse::Error::Version => "the version is not HTTP/1.0 or HTTP/1.1",
    }
}

pub(super) const fn bad(error: httparse::Error) -> Error {
    Error::Malformed(complaint(error))
}

/// Takes the fields after the last chunk; [`None`] until they are complete.
pub(super) fn take_trailers(read: &mut BytesMut) -> Result<Option<HeaderMap>, Error> {
    if read.starts_with(b"\r\n") {
        drop(read.split_to(2));
        return Ok(Some(HeaderMap::new()));
    }
    // A reader that takes an LF alone for the end of the message takes the rest for the next message.
    let end = end_of_strict_lines(read, 0).map_err(bad)?;
    if end.unwrap_or(read.len()) > HEAD_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let Some(end) = end else { return Ok(None) };
    let trailers = read.split_to(end).freeze();
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    match httparse::parse_headers(&trailers, &mut fields).map_err(bad)? {
        httparse::Status::Complete((_, fields)) => header_map(&trailers, fields).map(Some),
        httparse::Status::Partial => Err(Error::Malformed("its trailers do not end")),
    }
}

/// Converts fields to a map, which shares the memory of `trailers`.
fn header_map(trailers: &Bytes, fields: &[httparse::Header<'_>]) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes())
            .map_err(|_| bad(httparse::Error::HeaderName))?;
        let value = HeaderValue::from_maybe_shared(trailers.slice_ref(field.value))
            .map_err(|_| bad(httparse::Error::HeaderValue))?;
        headers.append(name, value);
    }
    Ok(headers)
}
