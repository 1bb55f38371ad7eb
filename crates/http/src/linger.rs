//! Closes connections without losing the last response (RFC 9112, section 9.6).
//!
//! A close with unread bytes of the client resets the connection, and the reset may overtake the response. A client
//! that is rejected during its upload would then see a broken connection. The server therefore shuts down its side, and
//! continues to read until the client has closed.
//!
//! **Limits**: [`LINGER`] and [`UNREAD_BYTES_MAX`] for each connection.

use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Maximum time for a client to read its last response and to close.
const LINGER: Duration = Duration::from_secs(1);

/// Maximum number of bytes that a client may send during this time.
const UNREAD_BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct Linger {
    /// The timer that ends the wait.
    until: Option<Pin<Box<Sleep>>>,
    is_shut: bool,
    /// The number of bytes that were read and discarded.
    unread_bytes: usize,
}

impl Linger {
    /// Ready when the connection may be dropped.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Poll<()> {
        let mut stream = Pin::new(stream);
        let until = self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if !self.is_shut {
            match stream.as_mut().poll_shutdown(cx) {
                Poll::Ready(Ok(())) => self.is_shut = true,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                // TLS sends a closing alert first, which a client need not read.
                Poll::Pending => return until.as_mut().poll(cx),
            }
        }
        let mut unread = [0; 4096];
        while self.unread_bytes < UNREAD_BYTES_MAX && until.as_mut().poll(cx).is_pending() {
            let mut unread = ReadBuf::new(&mut unread);
            let read = ready!(stream.as_mut().poll_read(cx, &mut unread));
            if read.is_err() || unread.filled().is_empty() {
                break;
            }
            self.unread_bytes += unread.filled().len();
        }
        Poll::Ready(())
    }
}

/// A connection with a client over HTTP/2, which lingers when hyper closes it.
#[derive(Debug)]
pub struct Lingering<S> {
    stream: S,
    /// First bytes of the connection that have already been read.
    prefix: BytesMut,
    linger: Linger,
}

impl<S> Lingering<S> {
    /// Creates a connection whose first bytes, `prefix`, have already been read.
    pub fn new(stream: S, prefix: BytesMut) -> Self {
        Self { stream, prefix, linger: Linger::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let len = self.prefix.len().min(buf.remaining());
        buf.put_slice(&self.prefix[..len]);
        self.prefix.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
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
