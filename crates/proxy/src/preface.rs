//! Which version of HTTP a client speaks in clear text.
//!
//! HTTP/2 with prior knowledge begins with a preface (RFC 9113, section 3.4) whose first three bytes no
//! HTTP/1.1 request has. Nearly always they come together, and a look at them without taking them is enough;
//! a client that sends them one by one has them read, and kept for whoever speaks with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The bytes that tell.
const PREFACE: &[u8; 3] = b"PRI";

/// A connection whose first bytes may have been read already.
#[derive(Debug)]
pub(crate) struct Begun {
    stream: TcpStream,
    read: [u8; PREFACE.len()],
    /// Those of `read` that are still to be handed out.
    left: std::ops::Range<usize>,
}

/// Waits for the first bytes and tells whether they are those of HTTP/2.
///
/// # Errors
/// When the connection breaks.
pub(crate) async fn begin(stream: TcpStream) -> io::Result<(Begun, bool)> {
    let mut begun = Begun { stream, read: [0; PREFACE.len()], left: 0..0 };
    let seen = begun.stream.peek(&mut begun.read).await?;
    if begun.read[..seen] != PREFACE[..seen] || seen == 0 {
        return Ok((begun, false));
    }
    while begun.left.len() < PREFACE.len() && seen < PREFACE.len() {
        let end = begun.left.end;
        let read = begun.stream.read(&mut begun.read[end..]).await?;
        begun.left.end += read;
        let so_far = &begun.read[..begun.left.end];
        if read == 0 || so_far != &PREFACE[..so_far.len()] {
            return Ok((begun, false));
        }
    }
    Ok((begun, true))
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let len = self.left.len().min(buf.remaining());
        let from = self.left.start;
        buf.put_slice(&self.read[from..from + len]);
        self.left.start += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Begun {
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
        bufs: &[io::IoSlice<'_>],
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
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
