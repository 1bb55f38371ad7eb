//! What HTTP/2 with a client is spoken over: hyper closes it when it has nothing more to say, and then it
//! lingers.

use crate::linger::Linger;
use crate::write_timeout::WriteTimeoutStream;
use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection with a client.
pub(super) struct Lingering {
    stream: WriteTimeoutStream,
    /// Read already, and still to be handed out.
    begun: BytesMut,
    linger: Linger,
}

impl Lingering {
    pub(super) fn new(stream: WriteTimeoutStream, begun: BytesMut) -> Self {
        Self { stream, begun, linger: Linger::default() }
    }
}

impl AsyncRead for Lingering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.begun.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let len = self.begun.len().min(buf.remaining());
        buf.put_slice(&self.begun[..len]);
        self.begun.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, linger, .. } = &mut *self;
        linger.poll(cx, stream).map(Ok)
    }
}
