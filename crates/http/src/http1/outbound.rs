//! The unwritten part of an outbound message.
//!
//! The head and small pieces of a body are gathered in a buffer. A large piece is written without a copy.

use super::{Error, chunked};
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Maximum size of a piece of a body that is copied, and written together with adjacent pieces.
pub(super) const COPIED_BYTES_MAX: usize = 4 << 10;

/// The remaining length of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Length {
    /// This number of bytes remains.
    Known(u64),
    /// The body has chunks, until the last chunk.
    Chunked,
    /// The body ends when this side closes the connection.
    UntilClosed,
    /// The body has ended.
    #[default]
    Ended,
}

#[derive(Debug, Default)]
pub(super) struct Outbound {
    /// Gathered bytes. The buffer is reused as long as the connection exists.
    buffer: Vec<u8>,
    written: usize,
    piece: Bytes,
    after_piece: &'static [u8],
    length: Length,
    has_trailers: bool,
    /// The number of bytes of this message that the connection has accepted.
    taken_bytes: u64,
}

impl Outbound {
    /// Begins a message with a body of this length; the caller writes its head.
    pub(super) fn begin(&mut self, length: Length, has_trailers: bool) -> &mut Vec<u8> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        *self = Self { buffer, length, has_trailers, ..Self::default() };
        &mut self.buffer
    }

    /// Whether the connection has accepted no byte of the message.
    pub(super) const fn is_unwritten(&self) -> bool {
        self.taken_bytes == 0
    }

    /// The number of bytes of the message that the connection has accepted.
    pub(super) const fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Whether the body has ended, although bytes may remain to be written.
    pub(super) const fn is_end(&self) -> bool {
        matches!(self.length, Length::Ended)
    }

    /// Gathers the available part of the body, until there is enough for a write or the body has ended.
    pub(super) fn gather<B>(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut B,
    ) -> Poll<Result<(), Error>>
    where
        B: Body<Data = Bytes, Error: Into<Error>> + Unpin,
    {
        while !self.is_end() && self.piece.is_empty() && self.buffer.len() < COPIED_BYTES_MAX {
            let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
            match frame.transpose().map_err(Into::into)?.map(Frame::into_data) {
                Some(Ok(data)) => self.put(data)?,
                Some(Err(frame)) => self.end(frame.into_trailers().ok().as_ref())?,
                None => self.end(None)?,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn put(&mut self, data: Bytes) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        self.after_piece = match &mut self.length {
            Length::Known(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(Error::BodyLength)?;
                b""
            }
            Length::Chunked => {
                chunked::begin_chunk(&mut self.buffer, data.len());
                chunked::CHUNK_END
            }
            Length::UntilClosed => b"",
            Length::Ended => return Err(Error::BodyLength),
        };
        if data.len() > COPIED_BYTES_MAX {
            self.piece = data;
        } else {
            self.buffer.extend_from_slice(&data);
            self.buffer.extend_from_slice(self.after_piece);
            self.after_piece = b"";
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Error> {
        match std::mem::replace(&mut self.length, Length::Ended) {
            Length::Known(1..) => return Err(Error::BodyLength),
            Length::Chunked => {
                chunked::end(&mut self.buffer, trailers.filter(|_| self.has_trailers));
            }
            Length::Known(0) | Length::UntilClosed | Length::Ended => {}
        }
        Ok(())
    }

    /// Writes the gathered bytes, until the connection has accepted them.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        loop {
            let rest = &self.buffer[self.written..];
            let written = if self.piece.is_empty() {
                if rest.is_empty() {
                    break;
                }
                stream.as_mut().poll_write(cx, rest)
            } else {
                let parts = [rest, &self.piece, self.after_piece].map(IoSlice::new);
                stream.as_mut().poll_write_vectored(cx, &parts)
            };
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.taken_bytes += written as u64;
            self.advance(written);
        }
        self.buffer.clear();
        self.written = 0;
        stream.poll_flush(cx)
    }

    /// Notes that this number of bytes is written, of the buffer, then of the piece, then of the text after the piece.
    fn advance(&mut self, written: usize) {
        let of_buffer = written.min(self.buffer.len() - self.written);
        self.written += of_buffer;
        let of_piece = (written - of_buffer).min(self.piece.len());
        self.piece.advance(of_piece);
        if self.piece.is_empty() && !self.after_piece.is_empty() {
            // The rest is written together with the next piece.
            let of_end = written - of_buffer - of_piece;
            self.buffer.clear();
            self.written = 0;
            self.buffer.extend_from_slice(&self.after_piece[of_end..]);
            self.after_piece = b"";
        }
    }
}

#[cfg(test)]
mod tests;
