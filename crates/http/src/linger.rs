//! Closes connections without losing the last response (RFC 9112, section 9.6).
//!
//! A close with unread bytes of the client resets the connection, and the reset may overtake the response. A client
//! that is rejected during its upload would then see a broken connection. The server therefore shuts down its side, and
//! continues to read until the client has closed.
//!
//! **Limits**: [`LINGER`] and [`UNREAD_BYTES_MAX`] for each connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Maximum time for a peer to read the last bytes and to close.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

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
