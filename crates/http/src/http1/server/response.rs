//! The head of a response to a client.

use super::super::fields::write_length;
use super::super::outbound::Length;
use super::request::Terms;
use crate::clock::Clock;
use crate::head::{Known, ResponseHead, write_field};
use http::{StatusCode, Version};
use http_body::SizeHint;
use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

/// Returns the framing of a response body (RFC 9112, section 6.3); [`None`] if the response has no body.
pub(super) fn framing(status: StatusCode, body: &SizeHint, terms: Terms) -> Option<Length> {
    let has_none = terms.is_head
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    (!has_none).then(|| match body.exact() {
        Some(bytes) => Length::Known(bytes),
        None if terms.version == Version::HTTP_10 => Length::UntilClosed,
        None => Length::Chunked,
    })
}

/// Writes the head of a response, with the framing and the connection fields of this connection.
pub(super) fn write_head(
    buffer: &mut Vec<u8>,
    head: &ResponseHead,
    length: Option<Length>,
    terms: Terms,
    clock: &Clock,
) {
    let version = if terms.version == Version::HTTP_10 { "HTTP/1.0 " } else { "HTTP/1.1 " };
    write_status(buffer, version, head.status);
    // Without a body, a length is that of the body which there would be (RFC 9110, section 8.6).
    let our_own = if length.is_none() { 0 } else { Known::ContentLength.bit() };
    head.fields.write(buffer, Known::TransferEncoding.bit() | our_own);
    match length {
        Some(Length::Known(bytes)) => write_length(buffer, bytes),
        Some(Length::Chunked) => write_field(buffer, b"transfer-encoding", b"chunked"),
        Some(Length::UntilClosed | Length::Ended) | None => {}
    }
    if !head.fields.has(Known::Date) {
        write_date(buffer, clock);
    }
    if head.status != StatusCode::SWITCHING_PROTOCOLS {
        match (terms.version, terms.keeps) {
            (Version::HTTP_10, true) => write_field(buffer, b"connection", b"keep-alive"),
            (Version::HTTP_10, false) | (_, true) => {}
            (_, false) => write_field(buffer, b"connection", b"close"),
        }
    }
    buffer.extend_from_slice(b"\r\n");
}

fn write_status(buffer: &mut Vec<u8>, version: &str, status: StatusCode) {
    let reason = status.canonical_reason().unwrap_or_default();
    for part in [version, status.as_str(), " ", reason, "\r\n"] {
        buffer.extend_from_slice(part.as_bytes());
    }
}

/// Writes an interim response, which never has a body.
pub(super) fn write_interim(buffer: &mut Vec<u8>, head: &ResponseHead) {
    write_status(buffer, "HTTP/1.1 ", head.status);
    head.fields.write(buffer, Known::ContentLength.bit() | Known::TransferEncoding.bit());
    buffer.extend_from_slice(b"\r\n");
}

fn write_date(buffer: &mut Vec<u8>, clock: &Clock) {
    with_date(clock, |date| write_field(buffer, b"date", date));
}

/// Passes on the date (RFC 9110, section 6.6.1), whose text is formatted once a second.
pub(crate) fn with_date(clock: &Clock, pass_on: impl FnOnce(&[u8])) {
    thread_local!(static LAST: RefCell<(u64, String)> = RefCell::default());
    let second = clock.unix_ns(clock.now()) / 1_000_000_000;
    LAST.with_borrow_mut(|(written, text)| {
        if *written != second {
            *written = second;
            *text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
        pass_on(text.as_bytes());
    });
}

#[cfg(test)]
mod tests;
