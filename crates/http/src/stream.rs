//! The byte stream of a connection with a client or a server, in clear text or under TLS.

use crate::tls::ListenerTls;
use curtail_units::Duration;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// The idle times that [`keep_alive`] accepts: the kernel takes whole seconds; Linux takes at most 32,767.
pub const TCP_KEEPALIVE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(9 * 3_600);

/// Maximum number of probes without a reply.
const PROBES: u32 = 6;

/// Makes the kernel probe a connection that is silent for `idle`, and close it if no byte is acknowledged for twice as
/// long. Without probes, no timeout would detect a peer that fails silently on a stream without an idle timeout.
pub fn keep_alive(tcp: &TcpStream, idle: Duration) {
    let idle = std::time::Duration::from(idle);
    let every = (idle / PROBES).max(std::time::Duration::from_secs(1));
    let probes = TcpKeepalive::new().with_time(idle).with_interval(every).with_retries(PROBES);
    let socket = SockRef::from(tcp);
    let set = socket.set_tcp_keepalive(&probes);
    #[cfg(target_os = "linux")]
    let set = set.and_then(|()| socket.set_tcp_user_timeout(Some(2 * idle)));
    if let Err(error) = set {
        tracing::debug!(%error, "failed to enable TCP keepalive on a connection");
    }
}

/// Returns the connection of a Unix socket as one of TCP, so that all code serves both alike: reads, writes and peeks
/// are the same system calls on both. Only its addresses and the options of TCP are errors.
///
/// # Errors
/// When the runtime cannot register the socket.
pub fn of_unix(stream: UnixStream) -> io::Result<TcpStream> {
    TcpStream::from_std(OwnedFd::from(stream.into_std()?).into())
}

/// A connection in clear text or under TLS.
#[derive(Debug)]
pub enum Stream {
    /// Clear text.
    Plain(TcpStream),
    /// TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A byte stream of a client, which the proxy may have to break off.
pub trait ClientStream {
    /// Makes the drop of the stream reset it, so that the other side detects an incomplete message.
    fn reset_at_drop(&self);

    /// Whether the client is known to have gone. After the end of its direction, no read finds that out.
    fn is_gone(&self) -> bool;
}

/// A byte stream in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

impl Stream {
    /// Begins a client's connection; under TLS, with the handshake, which may take at most `timeout`.
    ///
    /// # Errors
    /// When the handshake fails or takes too long.
    pub async fn begin(
        tcp: TcpStream,
        tls: Option<&ListenerTls>,
        timeout: std::time::Duration,
    ) -> io::Result<Self> {
        let Some(tls) = tls else { return Ok(Self::Plain(tcp)) };
        let handshake = tokio::time::timeout(timeout, tls.acceptor().accept(tcp)).await;
        Ok(Self::Tls(Box::new(handshake.map_err(|_| io::ErrorKind::TimedOut)??.into())))
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl ClientStream for Stream {
    fn reset_at_drop(&self) {
        // One that is broken already needs no reset.
        self.tcp().set_zero_linger().ok();
    }

    /// The client has reset the connection, or did not respond to the probes of [`keep_alive`].
    fn is_gone(&self) -> bool {
        SockRef::from(self.tcp()).take_error().is_ok_and(|error| error.is_some())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(tcp) => tcp.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_accepts_every_keepalive_that_the_configuration_accepts() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        for idle in [*TCP_KEEPALIVE.start(), *TCP_KEEPALIVE.end()] {
            let tcp = TcpStream::connect(address).await.expect("loopback");
            keep_alive(&tcp, idle);
            let socket = SockRef::from(&tcp);
            assert_eq!(socket.tcp_keepalive_time().expect("it is set"), idle.into());
            let given_up = socket.tcp_user_timeout().expect("it is set");
            assert_eq!(given_up, Some(2 * std::time::Duration::from(idle)));
        }
    }
}
