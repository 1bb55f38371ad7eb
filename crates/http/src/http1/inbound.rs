//! The reading side of a connection: bytes that are read but not consumed, and the framing of the current body.
//!
//! **Limits**: at most [`READ_BYTES_MAX`] are read ahead of the consumer.

use super::Error;
use super::chunked::Piece;
use super::framing::Framing;
use crate::stream::Stream;
use bytes::{Bytes, BytesMut};
use http_body::Frame;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncReadExt;

const READ_BYTES: usize = 8 << 10;

/// Maximum size of the read buffer, which grows while a body keeps filling it.
pub(super) const READ_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) stream: Stream,
    /// Bytes that are read but not consumed.
    pub(super) read: BytesMut,
    pub(super) framing: Framing,
    read_bytes: usize,
}

impl Inbound {
    pub(super) const fn new(stream: Stream, read: BytesMut) -> Self {
        Self { stream, read, framing: Framing::Ended, read_bytes: READ_BYTES }
    }

    pub(super) const fn begin_body(&mut self, framing: Framing) {
        self.framing = framing;
        self.read_bytes = READ_BYTES;
    }

    /// Reads the bytes that have arrived; returns zero if the other side has closed.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read.capacity() - self.read.len() < READ_BYTES / 4 {
            self.read.reserve(self.read_bytes);
        }
        let read = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx));
        if self.read.len() == self.read.capacity() {
            self.read_bytes = (2 * self.read_bytes).min(READ_BYTES_MAX);
        }
        Poll::Ready(read)
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        loop {
            match self.framing.take(&mut self.read)? {
                Piece::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Piece::Trailers(trailers) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Piece::End => return Poll::Ready(None),
                Piece::None => {}
            }
            match ready!(self.poll_read(cx)) {
                Ok(1..) => {}
                Ok(0) if self.framing.ends_with_connection() => self.framing = Framing::Ended,
                read => return Poll::Ready(Some(Err(Error::Incomplete(read.err())))),
            }
        }
    }
}
