//! How the body of a message is framed (RFC 9112, section 6), and what of it is still to come.

use super::Error;
use super::chunked::{Decoder, Piece, take_up_to};
use bytes::BytesMut;
use http::HeaderMap;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http_body::SizeHint;

/// How a body is framed, and what of it is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes.
    Length(u64),
    Chunked(Decoder),
    /// All that comes until the other side closes the connection.
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
            Self::UntilClosed => take_up_to(read, u64::MAX),
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

/// Whether the body comes in chunks.
pub(super) fn is_chunked(headers: &HeaderMap) -> Result<bool, Error> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(false),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(true),
        // Passed on without its name it would be taken for the content itself.
        _ => Err(Error::Malformed("its transfer coding is not `chunked`")),
    }
}

/// The one length. What says it twice, even alike, would be read by the next one on the way as it likes.
pub(super) fn content_length(headers: &HeaderMap) -> Result<Option<u64>, Error> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let length = match (lengths.next(), lengths.next()) {
        (None, _) => return Ok(None),
        (Some(length), None) => length.to_str().ok(),
        (Some(_), Some(_)) => return Err(Error::Malformed("it has two lengths")),
    };
    // `parse` would take a sign.
    let digits = length.filter(|length| length.bytes().all(|byte| byte.is_ascii_digit()));
    let length = digits.and_then(|digits| digits.parse().ok());
    length.map(Some).ok_or(Error::Malformed("its content-length is no length"))
}

/// Whether `connection` has that word.
pub(super) fn says(headers: &HeaderMap, word: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|said| said.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests;
