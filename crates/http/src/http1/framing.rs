//! The framing of a message body (RFC 9112, section 6), and its remaining length.

use super::Error;
use super::chunked::{Decoder, Piece, take_up_to};
use bytes::BytesMut;
use http_body::SizeHint;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// This number of bytes remains.
    Length(u64),
    Chunked(Decoder),
    /// The body ends when the other side closes the connection.
    UntilClosed,
    /// The body has ended.
    Ended,
    /// The body is malformed, so no one knows where it ends: nothing after it may be read as a message.
    Malformed,
}

impl Framing {
    /// Takes the available part of the next piece.
    pub(super) fn take(&mut self, read: &mut BytesMut) -> Result<Piece, Error> {
        let data = match self {
            Self::Ended => return Ok(Piece::End),
            Self::Malformed => return Err(Error::Malformed("the body is malformed")),
            Self::Chunked(decoder) => {
                let piece = decoder.take(read);
                if piece.is_err() {
                    *self = Self::Malformed;
                } else if *decoder == Decoder::Ended {
                    *self = Self::Ended;
                }
                return piece;
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

    /// Whether the body ends with the connection.
    pub(super) const fn ends_with_connection(&self) -> bool {
        matches!(self, Self::UntilClosed)
    }

    /// Returns the remaining length, as far as it is known.
    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Ended => SizeHint::with_exact(0),
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::Chunked(_) | Self::UntilClosed | Self::Malformed => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
