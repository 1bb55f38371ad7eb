//! Closing a connection without taking away its last response.
//!
//! Who closes a connection while bytes of its client are unread or on their way resets it, and a reset may
//! overtake a response: a client that is refused in the middle of its upload would see a broken connection
//! instead of the reason. So the closing side says that it has nothing more to say, and goes on reading,
//! without keeping anything, until the client has closed as well (RFC 9112, section 9.6).
//!
//! **Limits**: [`LINGER`] and [`UNREAD_BYTES_MAX`] for each connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a client may take to read its last response and to close.
const LINGER: Duration = Duration::from_secs(1);

/// How much a client may send meanwhile.
const UNREAD_BYTES_MAX: usize = 16 << 20;

/// A connection that is being closed.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    /// From when on we have nothing more to say, until when we listen.
    until: Option<Pin<Box<Sleep>>>,
    /// Whether the write side is shut down.
    is_shut: bool,
    /// What has been read since and thrown away.
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
