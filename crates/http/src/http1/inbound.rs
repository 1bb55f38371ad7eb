//! The reading side of a connection: bytes that are read but not consumed, and the framing of the current body.
//!
//! **Limits**: at most [`READ_BYTES_MAX`] are read ahead of the consumer.

use super::Error;
use super::chunked::Piece;
use super::framing::Framing;
use crate::forwarding::named_by_connection;
use crate::head::Fields;
use crate::stream::Stream;
use crate::turn::{self, BodyTurns};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
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
    /// Whether the other side has closed, or the connection broke.
    pub(super) is_closed: bool,
    pub(super) framing: Framing,
    /// The names that `connection` names: these trailers are removed, too (RFC 9110, section 7.6.1).
    hop_by_hop: Vec<Vec<u8>>,
    read_bytes: usize,
    turns: BodyTurns,
}

impl Inbound {
    pub(super) fn new(stream: Stream, read: BytesMut) -> Self {
        let hop_by_hop = Vec::new();
        let framing = Framing::Ended;
        let turns = BodyTurns::default();
        Self { stream, read, is_closed: false, framing, hop_by_hop, read_bytes: READ_BYTES, turns }
    }

    /// Begins the body of the message with these headers.
    pub(super) fn begin_body(&mut self, framing: Framing, fields: &Fields) {
        self.framing = framing;
        self.hop_by_hop = match framing {
            Framing::Chunked(_) => named_by_connection(fields),
            Framing::Length(_) | Framing::UntilClosed | Framing::Ended | Framing::Malformed => {
                Vec::new()
            }
        };
        self.read_bytes = READ_BYTES;
        self.turns = BodyTurns::default();
    }

    /// Reads the bytes that have arrived; returns zero if the other side has closed.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let read = ready!(self.poll_read_uncounted(cx));
        turn::count_bytes(cx, *read.as_ref().unwrap_or(&0));
        Poll::Ready(read)
    }

    /// The same for a body, whose turns [`BodyTurns`] counts.
    fn poll_read_uncounted(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read.capacity() - self.read.len() < READ_BYTES / 4 {
            self.read.reserve(self.read_bytes);
        }
        let read = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx));
        if self.read.len() == self.read.capacity() {
            self.read_bytes = (2 * self.read_bytes).min(READ_BYTES_MAX);
        }
        self.is_closed = !matches!(read, Ok(1..));
        Poll::Ready(read)
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        ready!(turn::count_piece(cx));
        loop {
            match self.framing.take(&mut self.read)? {
                Piece::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Piece::Trailers(mut trailers) => {
                    remove_named(&mut trailers, &self.hop_by_hop);
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Piece::End => return Poll::Ready(None),
                Piece::None => {}
            }
            ready!(self.turns.poll(cx));
            match ready!(self.poll_read_uncounted(cx)) {
                Ok(bytes @ 1..) => self.turns.count(bytes),
                Ok(0) if self.framing.ends_with_connection() => self.framing = Framing::Ended,
                read => return Poll::Ready(Some(Err(Error::Incomplete(read.err())))),
            }
        }
    }
}

fn remove_named(trailers: &mut HeaderMap, names: &[Vec<u8>]) {
    for name in names.iter().filter_map(|name| std::str::from_utf8(name).ok()) {
        trailers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunked::Decoder;
    use super::*;
    use std::future::poll_fn;

    #[test]
    fn a_turn_has_at_most_128_chunks() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
            let address = listener.as_ref().expect("loopback").local_addr().expect("it is bound");
            let stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
            let chunks = "1\r\nx\r\n".repeat(1_000);
            let mut inbound = Inbound::new(Stream::Plain(stream), BytesMut::from(&*chunks));
            inbound.framing = Framing::Chunked(Decoder::Size);
            // A new turn begins.
            tokio::task::yield_now().await;
            let chunks = poll_fn(|cx| {
                let chunks = std::iter::from_fn(|| inbound.poll_frame(cx).is_ready().then_some(()));
                Poll::Ready(chunks.count())
            });
            assert_eq!(chunks.await, 128);
        });
    }
}
