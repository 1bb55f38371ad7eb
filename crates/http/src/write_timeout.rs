//! A connection, or a stream of HTTP/2, with a write timeout.
//!
//! **Limits**: a write fails if bytes wait and the other side reads nothing for the write timeout. Dropping the
//! connection then resets it; otherwise the kernel would continue to retransmit. Bytes that the kernel accepts count as
//! progress; the kernel reports room only when a third of its buffer is free.

use crate::progress::ProgressTimer;
use crate::stream::{ClientStream, Stream};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The error of a client that read nothing within the write timeout.
#[derive(Debug, thiserror::Error)]
#[error("the client read nothing within the write timeout")]
struct WriteTimeout;

/// Whether a write failed with the write timeout. The kernel's own [`io::ErrorKind::TimedOut`], which also occurs on
/// connections to servers, is a different error.
pub fn is_write_timeout(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<WriteTimeout>())
}

/// A connection or stream whose writes have a timeout.
#[derive(Debug)]
pub struct WriteTimeoutStream<F, S = Stream> {
    stream: S,
    on_timeout: F,
    timer: ProgressTimer,
    written: u64,
    /// The number of bytes read and written, for an idle timeout of both directions.
    moved: Arc<AtomicU64>,
    has_failed: bool,
}

impl<F: Fn(), S: ClientStream> WriteTimeoutStream<F, S> {
    /// Creates a connection with `timer` for its writes; a write timeout calls `on_timeout`.
    pub fn new(stream: S, timer: ProgressTimer, on_timeout: F) -> Self {
        Self { stream, on_timeout, timer, written: 0, moved: Arc::default(), has_failed: false }
    }

    /// Whether a read or a write has failed.
    pub const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether the client is known to have gone.
    pub fn is_gone(&self) -> bool {
        self.stream.is_gone()
    }

    /// Returns the number of bytes read so far, and of those written.
    pub fn bytes(&self) -> (u64, u64) {
        (self.moved.load(Ordering::Relaxed) - self.written, self.written)
    }

    /// Returns the counter of bytes read and written.
    pub fn moved(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.moved)
    }

    /// Checks the result of a write; fails at the timeout.
    fn check_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(result) = &written {
            self.has_failed |= result.is_err();
            self.timer.rest();
            return written;
        }
        if self.timer.poll(cx, self.written).is_pending() {
            return Poll::Pending;
        }
        self.has_failed = true;
        (self.on_timeout)();
        self.stream.reset_at_drop();
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, WriteTimeout)))
    }

    fn count(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.written += *bytes as u64;
            self.moved.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }
}

impl<F: Fn() + Unpin, S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<F, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.has_failed |= matches!(read, Poll::Ready(Err(_)));
        self.moved.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl<F: Fn() + Unpin, S: AsyncWrite + ClientStream + Unpin> AsyncWrite
    for WriteTimeoutStream<F, S>
{
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.count(&written);
        self.check_timeout(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.count(&written);
        self.check_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check_timeout(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check_timeout(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_the_kernel_is_not_a_write_timeout() {
        assert!(!is_write_timeout(&io::ErrorKind::TimedOut.into()));
        assert!(is_write_timeout(&io::Error::new(io::ErrorKind::TimedOut, WriteTimeout)));
    }
}
