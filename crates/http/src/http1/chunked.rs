//! The chunked coding: pieces with their lengths, then trailers (RFC 9112, section 7.1).
//!
//! **Limits**: the line before a chunk has at most [`SIZE_LINE_BYTES_MAX`], including its end. Extensions are ignored.

use super::Error;
use super::fields::take_trailers;
use crate::head::write_field;
use crate::trailers;
use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use std::io::Write as _;

/// The text after the data of a chunk.
pub(super) const CHUNK_END: &[u8] = b"\r\n";

const SIZE_LINE_BYTES_MAX: usize = 1 << 10;

/// Maximum size of data that is copied, which frees the read buffer.
const COPIED_BYTES_MAX: usize = 2 << 10;

pub(super) fn begin_chunk(buffer: &mut Vec<u8>, bytes: usize) {
    write!(buffer, "{bytes:x}\r\n").expect("a vector takes everything");
}

/// Writes the end of a body, with the fields that are allowed as trailers.
pub(super) fn end(buffer: &mut Vec<u8>, fields: Option<&HeaderMap>) {
    buffer.extend_from_slice(b"0\r\n");
    for (name, value) in fields.into_iter().flatten() {
        if trailers::may_be_trailer(name) {
            write_field(buffer, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    buffer.extend_from_slice(b"\r\n");
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
    /// More bytes must be read.
    None,
    /// The body has ended.
    End,
}

/// Takes the bytes that have arrived, at most `bytes`.
pub(super) fn take_up_to(read: &mut BytesMut, bytes: u64) -> Bytes {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX).min(read.len());
    if len <= COPIED_BYTES_MAX {
        let data = Bytes::copy_from_slice(&read[..len]);
        read.advance(len);
        return data;
    }
    read.split_to(len).freeze()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoder {
    /// Before the size of a chunk.
    Size,
    /// Within the data of a chunk, of which this number of bytes remains.
    Data(u64),
    /// After the data of a chunk.
    DataEnd,
    /// After the last chunk.
    Trailers,
    Ended,
}

impl Decoder {
    /// Takes the available part of the next piece.
    pub(super) fn take(&mut self, read: &mut BytesMut) -> Result<Piece, Error> {
        loop {
            match *self {
                Self::Size => {
                    let Some(size) = take_size(read)? else { return Ok(Piece::None) };
                    *self = if size == 0 { Self::Trailers } else { Self::Data(size) };
                }
                Self::Data(left) => {
                    let data = take_up_to(read, left);
                    if data.is_empty() {
                        return Ok(Piece::None);
                    }
                    let left = left - data.len() as u64;
                    *self = if left == 0 { Self::DataEnd } else { Self::Data(left) };
                    return Ok(Piece::Data(data));
                }
                Self::DataEnd => {
                    if read.len() < CHUNK_END.len() {
                        return Ok(Piece::None);
                    }
                    if read.split_to(CHUNK_END.len()) != CHUNK_END {
                        return Err(Error::Malformed("a chunk is longer than its size"));
                    }
                    *self = Self::Size;
                }
                Self::Trailers => {
                    let Some(trailers) = take_trailers(read)? else {
                        return Ok(Piece::None);
                    };
                    *self = Self::Ended;
                    if !trailers.is_empty() {
                        return Ok(Piece::Trailers(trailers));
                    }
                }
                Self::Ended => return Ok(Piece::End),
            }
        }
    }
}

/// Takes the size of the next chunk; [`None`] until its line is complete.
fn take_size(read: &mut BytesMut) -> Result<Option<u64>, Error> {
    const BAD: Error = Error::Malformed("a chunk has no valid size");
    let searched = &read[..read.len().min(SIZE_LINE_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', searched) else {
        return if searched.len() == SIZE_LINE_BYTES_MAX { Err(BAD) } else { Ok(None) };
    };
    let line = read.split_to(end + 1);
    // A carriage return alone ends a line for some.
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    let line = line.strip_suffix(b"\r\n").filter(|line| !line.iter().any(is_control)).ok_or(BAD)?;
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let is_number = !size.is_empty() && size.iter().all(u8::is_ascii_hexdigit);
    let size = std::str::from_utf8(size).ok().filter(|_| is_number).ok_or(BAD)?;
    u64::from_str_radix(size, 16).map(Some).map_err(|_| BAD)
}

#[cfg(test)]
mod tests;
