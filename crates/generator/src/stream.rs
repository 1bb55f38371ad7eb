//! A connection's bytes, in clear text or under TLS.

use crate::target::{Protocol, Target};
use rustls_pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A connection.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Makes connections under TLS.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// The TLS client for `target`, if it uses TLS.
    ///
    /// # Errors
    /// When the target's name cannot be in a certificate, or there are no trusted certificates.
    pub(super) fn to(target: &Target, protocol: Protocol) -> io::Result<Option<Self>> {
        if !target.tls {
            return Ok(None);
        }
        let name = ServerName::try_from(target.host.clone())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let mut config = target.trust.client_config()?;
        config.alpn_protocols = match protocol {
            Protocol::Http1 => vec![b"http/1.1".to_vec()],
            Protocol::Http2 | Protocol::Grpc => vec![b"h2".to_vec()],
        };
        Ok(Some(Self { connector: Arc::new(config).into(), name }))
    }
}

impl Stream {
    /// Connects to the first of `addresses`, beginning with the `nth`, that accepts the connection.
    ///
    /// # Errors
    /// The last address that failed, and its error.
    pub(super) async fn connect(
        addresses: &[SocketAddr],
        nth: usize,
        tls: Option<&Tls>,
    ) -> Result<Self, (SocketAddr, io::Error)> {
        let (before, from_nth) = addresses.split_at(nth % addresses.len());
        let mut failed = None;
        for address in from_nth.iter().chain(before) {
            match TcpStream::connect(address).await {
                Ok(tcp) => return Self::handshake(tcp, tls).await.map_err(|e| (*address, e)),
                Err(error) => failed = Some((*address, error)),
            }
        }
        Err(failed.expect("a target has an address"))
    }

    async fn handshake(tcp: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        match tls {
            None => Ok(Self::Plain(tcp)),
            Some(Tls { connector, name }) => {
                let stream = connector.connect(name.clone(), tcp).await?;
                Ok(Self::Tls(Box::new(stream)))
            }
        }
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
            Self::Tls(tls) => Pin::new(&mut **tls).poll_read(cx, buf),
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
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}
