//! A stream as bytes in both directions, after CONNECT (RFC 9113, section 8.5; RFC 8441, section 5).
//!
//! Each direction ends by itself, with `END_STREAM`. Dropping the stream before this side has ended it resets it, as a
//! TCP connection is reset.

use super::error::{Error, ErrorCode};
use super::handle::{ReadHandle, SendHandle};
use super::state::lock;
use crate::stream::ClientStream;
use bytes::Bytes;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that carries another protocol.
#[derive(Debug)]
pub struct DuplexStream {
    sender: SendHandle,
    reader: ReadHandle,
    /// The rest of the last piece that has arrived.
    piece: Bytes,
}

impl DuplexStream {
    /// Takes both sides of a stream, after the heads of its request and response.
    pub(super) const fn new(sender: SendHandle, reader: ReadHandle) -> Self {
        Self { sender, reader, piece: Bytes::new() }
    }
}

impl ClientStream for DuplexStream {
    /// The drop itself resets the stream.
    fn reset_at_drop(&self) {}

    /// The client has reset the stream, or its connection has closed.
    fn is_gone(&self) -> bool {
        let SendHandle { shared, key } = &self.sender;
        lock(shared).has_failed(*key)
    }
}

impl AsyncRead for DuplexStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.piece.is_empty() {
            let ReadHandle { shared, key } = &self.reader;
            let frame = ready!(lock(shared).poll_frame(cx, *key));
            let Some(frame) = frame.transpose().map_err(io::Error::other)? else {
                return Poll::Ready(Ok(()));
            };
            let Ok(data) = frame.into_data() else {
                let error = Error::Malformed("headers on a stream of CONNECT");
                lock(shared).reset(*key, ErrorCode::PROTOCOL_ERROR, error.clone());
                return Poll::Ready(Err(io::Error::other(error)));
            };
            self.piece = data;
        }
        let len = self.piece.len().min(buf.remaining());
        buf.put_slice(&self.piece.split_to(len));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for DuplexStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let SendHandle { shared, key } = &self.sender;
        let mut rest = buf;
        let sent = lock(shared).poll_send_data(cx, *key, &mut rest, false);
        match sent.map_err(io::Error::other)? {
            Poll::Pending if rest.len() == buf.len() => Poll::Pending,
            Poll::Pending | Poll::Ready(()) => Poll::Ready(Ok(buf.len() - rest.len())),
        }
    }

    /// The task of the connection writes what waits.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let SendHandle { shared, key } = &self.sender;
        let mut state = lock(shared);
        if state.is_sent(*key) {
            return Poll::Ready(Ok(()));
        }
        state.poll_send_data(cx, *key, &mut &[][..], true).map_err(io::Error::other)
    }
}
