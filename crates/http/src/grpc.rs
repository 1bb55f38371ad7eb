//! gRPC over HTTP/2: the frame of a message, and the status of a response.
//!
//! **Source**: "gRPC over HTTP2", in the repository of gRPC.

use bytes::{Buf as _, Bytes};
use curtail_units::Duration;
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};

/// The size of the prefix of a message: a flag for compression, and the length.
pub const PREFIX_BYTES: usize = 5;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Printable ASCII characters stand for themselves, except the percent sign.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Returns the prefix of an uncompressed message; [`None`] if the message is longer than 4 GiB.
#[must_use]
pub fn prefix(message_len: usize) -> Option<[u8; PREFIX_BYTES]> {
    let [a, b, c, d] = u32::try_from(message_len).ok()?.to_be_bytes();
    Some([0, a, b, c, d])
}

/// Returns the length of the first message of a body, and whether it is compressed.
///
/// # Errors
/// When the body does not begin with a prefix.
pub fn read_prefix(body: &[u8]) -> Result<(u32, bool), &'static str> {
    let Some(&[compressed, a, b, c, d]) = body.first_chunk::<PREFIX_BYTES>() else {
        return Err("the body ends within the 5 bytes before a gRPC message");
    };
    if compressed > 1 {
        return Err("the compressed flag of the gRPC message is neither 0 nor 1");
    }
    Ok((u32::from_be_bytes([a, b, c, d]), compressed == 1))
}

/// Removes the prefix of a body's only message; returns the message, and whether it is compressed.
///
/// # Errors
/// When the body is not one message.
pub fn unframe(mut body: Bytes) -> Result<(Bytes, bool), &'static str> {
    let (len, is_compressed) = read_prefix(&body)?;
    body.advance(PREFIX_BYTES);
    if u64::from(len) != body.len() as u64 {
        return Err(
            "the length before the gRPC message differs from the body's: expected one message",
        );
    }
    Ok((body, is_compressed))
}

/// Returns the code and the message of a status, which is in the trailers, or in the headers of a response without a
/// message.
#[must_use]
pub fn status(trailers: Option<&HeaderMap>, headers: &HeaderMap) -> Option<(u16, String)> {
    let fields =
        trailers.into_iter().chain([headers]).find(|fields| fields.contains_key(STATUS))?;
    let code = fields.get(STATUS)?.to_str().ok()?.parse().ok()?;
    let message = fields.get(MESSAGE).map_or(&[][..], HeaderValue::as_bytes);
    Some((code, percent_decode(message).decode_utf8_lossy().into_owned()))
}

/// Parses a timeout: 1 to 8 digits and a unit.
#[must_use]
pub fn parse_timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    let unit_ns: u64 = match unit {
        b'H' => 3_600_000_000_000,
        b'M' => 60_000_000_000,
        b'S' => 1_000_000_000,
        b'm' => 1_000_000,
        b'u' => 1_000,
        b'n' => 1,
        _ => return None,
    };
    if !(1..=8).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |count, digit| count * 10 + u64::from(digit - b'0'));
    Some(Duration::from_ns(count.saturating_mul(unit_ns)))
}

/// Writes a status.
///
/// # Panics
/// Never: the encoded message is printable.
pub fn set_status(fields: &mut HeaderMap, code: u8, message: &str) {
    fields.insert(STATUS, u16::from(code).into());
    if !message.is_empty() {
        let message = encode_message(message);
        fields.insert(MESSAGE, message.try_into().expect("it is printable ASCII"));
    }
}

/// Encodes the message of a status: the result is printable ASCII.
#[must_use]
pub fn encode_message(message: &str) -> String {
    utf8_percent_encode(message, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_out_of_its_frame() {
        let framed = |bytes: &'static [u8]| unframe(Bytes::from_static(bytes));
        assert_eq!(framed(b"\0\0\0\0\x02ab").expect("framed"), (Bytes::from_static(b"ab"), false));
        assert_eq!(framed(b"\x01\0\0\0\x02ab").expect("framed"), (Bytes::from_static(b"ab"), true));
        assert_eq!(framed(b"\0\0\0\0\0").expect("framed"), (Bytes::new(), false));
        for bad in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x03ab",
            b"\0\0\0\0\x01ab",
            b"\x02\0\0\0\x02ab",
            b"\0\xff\xff\xff\xffab",
        ] {
            assert!(framed(bad).is_err(), "{bad:?}");
        }
        assert_eq!(prefix(0x0102), Some(*b"\0\0\0\x01\x02"));
        assert_eq!(prefix(usize::MAX), None);
    }

    #[test]
    fn the_message_of_a_status_is_printable_and_read_back() {
        let (mut fields, none) = (HeaderMap::new(), HeaderMap::new());
        set_status(&mut fields, 8, "100 %: größer\n~");
        assert_eq!(fields[MESSAGE], "100 %25: gr%C3%B6%C3%9Fer%0A~");
        let expected = Some((8, "100 %: größer\n~".to_owned()));
        assert_eq!(status(Some(&fields), &none), expected);
        assert_eq!(status(Some(&none), &fields), expected, "a response without a message");
        assert_eq!(status(None, &none), None);
        // Text that is not encoded is taken as it is.
        fields.insert(MESSAGE, HeaderValue::from_static("100 %"));
        assert_eq!(status(None, &fields), Some((8, "100 %".to_owned())));
    }

    #[test]
    fn a_timeout_has_up_to_eight_digits_and_a_unit() {
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("30S", Some(Duration::from_secs(30))),
            ("00000100m", Some(Duration::from_ms(100))),
            ("99999999u", Some(Duration::from_us(99_999_999))),
            ("0n", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_ns(u64::MAX))),
            ("100000000n", None),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("1h", None),
            ("1 S", None),
            ("+1S", None),
            ("-1S", None),
            ("1.5S", None),
            ("1SS", None),
            ("1S ", None),
        ] {
            assert_eq!(parse_timeout(text.as_bytes()), expected, "{text:?}");
        }
    }
}
