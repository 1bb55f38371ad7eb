//! Closing a connection without taking away its last answer.
//!
//! Who closes a connection while bytes of its client are unread or on their way resets it, and a reset may
//! overtake an answer: a client that is refused in the middle of its upload would see a broken connection
//! instead of the reason. So the closing side says that it has nothing more to say, and goes on reading,
//! without keeping anything, until the client has closed as well (RFC 9112, section 9.6).
//!
//! **Limits**: [`LINGER`] and [`UNREAD_BYTES_MAX`] for each connection.

use crate::request::Client;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a client may take to read its last answer and to close.
const LINGER: Duration = Duration::from_secs(1);

/// How much a client may send meanwhile.
const UNREAD_BYTES_MAX: usize = 16 << 20;

/// A connection with a client, in clear text or under TLS.
pub(crate) struct Lingering<S> {
    stream: S,
    client: Arc<Client>,
    /// From when on we have nothing more to say, until when we listen.
    until: Option<Pin<Box<Sleep>>>,
    /// What has been read since and thrown away.
    unread_bytes: usize,
}

impl<S> Lingering<S> {
    pub(crate) const fn new(stream: S, client: Arc<Client>) -> Self {
        Self { stream, client, until: None, unread_bytes: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
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
        let this = &mut *self;
        if this.client.is_tunnel.load(Ordering::Relaxed) {
            // One direction has ended; what the other carries is not ours to throw away.
            return Pin::new(&mut this.stream).poll_shutdown(cx);
        }
        if this.until.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        let until = this.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        let mut unread = [0; 4096];
        while this.unread_bytes < UNREAD_BYTES_MAX && until.as_mut().poll(cx).is_pending() {
            let mut unread = ReadBuf::new(&mut unread);
            let read = ready!(Pin::new(&mut this.stream).poll_read(cx, &mut unread));
            if read.is_err() || unread.filled().is_empty() {
                break;
            }
            this.unread_bytes += unread.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}
