//! Connections to replicas: name lookup, connect, TLS, each timed.
//!
//! The phases are steps of one function, so that a resolver that looks names up ahead of need, or a
//! connection that is kept alive by pings, takes the place of a step and leaves the rest alone.

use crate::clock::Clock;
use crate::config::{ConnectConfig, Protocol, ReplicaUrl};
use crate::stream::{self, Stream};
use crate::trail::ConnectPhases;
use arc_swap::ArcSwap;
use curtail_units::Duration;
use rustls::RootCertStore;
use rustls_pki_types::ServerName;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Which phase failed, and how.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{replica}: the name {host:?} was not resolved: {source}")]
    Lookup { replica: String, host: String, source: io::Error },
    #[error("{replica}: not connected: {source}")]
    Connect { replica: String, source: io::Error },
    #[error("{replica}: TLS failed: {source}")]
    Tls { replica: String, source: io::Error },
    #[error("{replica}: {phase} took longer than {timeout}")]
    TimedOut { replica: String, phase: &'static str, timeout: Duration },
}

/// The versions of HTTP that are offered in the TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// Those that the configuration allows.
    All,
    /// HTTP/1.1 alone, for a request that asks to change the protocol.
    Http1,
}

/// Makes connections to one replica.
#[derive(Clone)]
pub(crate) struct Connector {
    replica: ReplicaUrl,
    /// Shared by all clones; a reload replaces it.
    tls: Option<Arc<ArcSwap<TlsTo>>>,
    protocol: Protocol,
    timeout: Duration,
    keepalive: Duration,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("replica", &self.replica).finish_non_exhaustive()
    }
}

/// What TLS needs to know of a replica.
#[derive(Clone)]
pub(crate) struct TlsTo {
    /// The name that its certificate must have.
    pub(crate) name: ServerName<'static>,
    /// Offers what the configuration allows.
    pub(crate) all: TlsConnector,
    /// Offers HTTP/1.1 alone.
    pub(crate) http1: TlsConnector,
}

/// A connection that is ready for HTTP.
#[derive(Debug)]
pub(crate) struct Connected {
    pub(crate) stream: Stream,
    pub(crate) phases: ConnectPhases,
    pub(crate) is_http2: bool,
}

impl Connector {
    /// Whom it connects to.
    pub(crate) const fn replica(&self) -> &ReplicaUrl {
        &self.replica
    }

    /// # Errors
    /// When the host name is not a valid TLS server name.
    pub(crate) fn new(
        replica: &ReplicaUrl,
        config: &ConnectConfig,
        authorities: &Arc<RootCertStore>,
    ) -> Result<Self, crate::StartError> {
        let tls = replica.tls.then(|| crate::tls::connector(replica, config, authorities));
        let tls = tls.transpose()?;
        Ok(Self {
            replica: replica.clone(),
            tls: tls.map(ArcSwap::from_pointee).map(Arc::new),
            protocol: config.protocol,
            timeout: config.timeout,
            keepalive: config.tcp_keepalive,
        })
    }

    /// Trusts these authorities from the next connection attempt on.
    ///
    /// # Errors
    /// When the host name is not a valid TLS server name, which `new` has already rejected.
    pub(crate) fn trust(
        &self,
        config: &ConnectConfig,
        authorities: &Arc<RootCertStore>,
    ) -> Result<(), crate::StartError> {
        if let Some(current) = &self.tls {
            let tls = crate::tls::connector(&self.replica, config, authorities)?;
            current.store(Arc::new(tls));
        }
        Ok(())
    }

    /// Makes a connection.
    ///
    /// # Errors
    /// [`ConnectError`] with the phase that failed; nothing of a request was sent.
    pub(crate) async fn connect(
        &self,
        clock: &Clock,
        offer: Offer,
    ) -> Result<Connected, ConnectError> {
        let mut phase = "name lookup";
        let connecting = self.connect_by_phases(clock, offer, &mut phase);
        match tokio::time::timeout(self.timeout.into(), connecting).await {
            Ok(result) => result,
            Err(_) => Err(ConnectError::TimedOut {
                replica: self.replica.to_string(),
                phase,
                timeout: self.timeout,
            }),
        }
    }

    async fn connect_by_phases(
        &self,
        clock: &Clock,
        offer: Offer,
        phase: &mut &'static str,
    ) -> Result<Connected, ConnectError> {
        let replica = || self.replica.to_string();
        let begun = clock.now();
        let addresses = self.look_up().await.map_err(|source| ConnectError::Lookup {
            replica: replica(),
            host: self.replica.host.clone(),
            source,
        })?;
        let looked_up = clock.now();
        *phase = "the TCP handshake";
        let tcp = connect_to_any(&addresses)
            .await
            .map_err(|source| ConnectError::Connect { replica: replica(), source })?;
        stream::keep_alive(&tcp, self.keepalive);
        let connected = clock.now();
        *phase = "the TLS handshake";
        let (stream, negotiated_http2) = match &self.tls {
            None => (Stream::Plain(tcp), false),
            Some(to) => {
                let to = to.load_full();
                let connector = match offer {
                    Offer::All => &to.all,
                    Offer::Http1 => &to.http1,
                };
                let tls = connector
                    .connect(to.name.clone(), tcp)
                    .await
                    .map_err(|source| ConnectError::Tls { replica: replica(), source })?;
                let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
                (Stream::Tls(Box::new(tls.into())), is_http2)
            }
        };
        let is_http2 = match self.protocol {
            Protocol::Auto => negotiated_http2,
            Protocol::Http1 => false,
            Protocol::Http2 => true,
        };
        let phases = ConnectPhases {
            lookup: looked_up.since(begun),
            tcp: connected.since(looked_up),
            tls: if self.tls.is_some() { clock.now().since(connected) } else { Duration::ZERO },
        };
        Ok(Connected { stream, phases, is_http2 })
    }

    async fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        let ReplicaUrl { host, port, .. } = &self.replica;
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, *port)]);
        }
        let addresses: Vec<_> = tokio::net::lookup_host((host.as_str(), *port)).await?.collect();
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(addresses)
    }
}

async fn connect_to_any(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failure = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable)))
}
