//! Connections to servers: DNS lookup, TCP handshake and TLS handshake, with the time of each phase.

use crate::clock::Clock;
use crate::connection_counts::ConnectPhases;
use crate::origin::ServerOrigin;
use crate::proxy_protocol::{ConnectionAddresses, ProxyProtocol};
use crate::stream::{self, Stream};
use crate::tls::{self, TlsError, TlsTo, Trust};
use arc_swap::ArcSwap;
use curtail_units::{Bytes, Duration};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

/// The configuration of connections to servers.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectConfig {
    /// The version of HTTP.
    pub protocol: Protocol,
    /// Maximum time of a connection attempt, including DNS lookup and TLS handshake.
    pub timeout: Duration,
    /// Idle time after which a connection is closed.
    pub idle_timeout: Duration,
    /// Number of idle HTTP/1.1 connections in one pool that are opened ahead of requests, or one HTTP/2 connection.
    pub idle_min: usize,
    /// Maximum number of idle HTTP/1.1 connections in one pool.
    pub idle_max: usize,
    /// Maximum number of HTTP/1.1 connections in one pool; at the limit, requests fail without being sent.
    pub connections_max: usize,
    /// Maximum number of requests that wait for a connection of one pool; at the limit, requests fail without being sent.
    /// Absent: no limit.
    pub waiting_max: Option<usize>,
    /// Maximum number of HTTP/2 connections in one pool.
    pub http2_connections_max: usize,
    /// Maximum number of concurrent requests on one HTTP/2 connection.
    pub http2_streams_max: usize,
    /// HTTP/2 flow-control window of a stream: maximum bytes of a response body in transit or unread.
    pub http2_stream_window: Bytes,
    /// Idle time after which the proxy pings an HTTP/2 connection with requests in progress.
    pub http2_ping_interval: Duration,
    /// Idle time after which TCP probes a connection.
    pub tcp_keepalive: Duration,
    /// The version of the PROXY header of each connection; absent: none.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Trusted certificate authorities (PEM); absent: the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificate chain and private key (PEM) for servers that request a client certificate.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

impl ConnectConfig {
    /// Reads the files of certificates. The system's authorities are read only if `has_tls`.
    ///
    /// # Errors
    /// When a file cannot be read, or the system has no authorities.
    pub fn load_trust(&self, has_tls: bool) -> Result<Trust, TlsError> {
        let trust = Trust::load(self.ca_file.as_deref(), has_tls)?;
        match &self.client_certificate {
            None => Ok(trust),
            Some(files) => trust.with_certificate(files),
        }
    }

    /// The flow-control window of one HTTP/2 connection: the sum of its stream windows, so that it holds up no stream.
    #[must_use]
    pub const fn http2_connection_window(&self) -> Bytes {
        Bytes::new(self.http2_stream_window.get().saturating_mul(self.http2_streams_max as u64))
    }
}

impl Default for ConnectConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::Auto,
            timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            idle_min: 0,
            idle_max: 128,
            connections_max: 1_024,
            waiting_max: None,
            // As many requests as `connections_max`, on connections that few requests share.
            http2_connections_max: 16,
            http2_streams_max: 64,
            http2_stream_window: Bytes::from_kib(1_024),
            // gRPC servers close a connection that is pinged more often than every five minutes.
            http2_ping_interval: Duration::from_secs(360),
            tcp_keepalive: Duration::from_secs(60),
            proxy_protocol: None,
            ca_file: None,
            client_certificate: None,
        }
    }
}

/// The version of HTTP in connections to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// As TLS negotiates; HTTP/1.1 in clear text.
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; in clear text with prior knowledge.
    Http2,
}

/// A failed connection attempt, with its phase.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum ConnectError {
    /// The name was not resolved.
    #[error("{server}: the name {host:?} was not resolved: {source}")]
    Lookup { server: String, host: String, source: io::Error },
    /// No address accepted the connection.
    #[error("{server}: not connected: {source}")]
    Connect { server: String, source: io::Error },
    /// The TLS handshake failed.
    #[error("{server}: TLS failed{}: {source}", tls::advice(source))]
    Tls { server: String, source: io::Error },
    /// The server refuses all offered versions of HTTP.
    #[error(
        "{server}: TLS failed, because the server speaks no version of HTTP that was offered (ALPN)"
    )]
    NoVersion { server: String },
    /// The connection attempt took too long.
    #[error("{server}: {phase} took longer than {timeout}")]
    TimedOut { server: String, phase: &'static str, timeout: Duration },
}

/// The versions of HTTP that are offered in the TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// All versions that the configuration allows.
    All,
    /// Only HTTP/1.1, for a request that requests an upgrade.
    Http1,
}

/// Makes connections to one server.
#[derive(Clone)]
pub struct Connector {
    origin: ServerOrigin,
    /// The address to connect to; absent: the host of `origin` is looked up.
    address: Option<SocketAddr>,
    /// The TLS configuration, which all clones share and a reload replaces.
    tls: Option<Arc<ArcSwap<TlsTo>>>,
    protocol: Protocol,
    timeout: Duration,
    idle_timeout: Duration,
    http2_ping_interval: Duration,
    keepalive: Duration,
    proxy_protocol: Option<ProxyProtocol>,
    /// The name of the upstream of the server, in logs.
    upstream: Option<Arc<str>>,
    /// The client in the PROXY header, which has no address on a Unix socket; absent: the connections are the proxy's own.
    client: Option<Option<ConnectionAddresses>>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// A connection that is ready for HTTP.
#[derive(Debug)]
pub struct OpenedConnection {
    /// The stream of the connection.
    pub stream: Stream,
    /// The time of each phase.
    pub phases: ConnectPhases,
    /// Whether the connection uses HTTP/2.
    pub is_http2: bool,
}

impl Connector {
    /// The server.
    #[must_use]
    pub const fn origin(&self) -> &ServerOrigin {
        &self.origin
    }

    pub(crate) const fn idle_timeout(&self) -> Duration {
        self.idle_timeout
    }

    pub(crate) const fn http2_ping_interval(&self) -> Duration {
        self.http2_ping_interval
    }

    /// The server as messages name it.
    #[must_use]
    pub fn server(&self) -> String {
        match self.address {
            Some(address) => format!("{} at {address}", self.origin),
            None => self.origin.to_string(),
        }
    }

    /// The server as metrics and logs name it: `host:port` or `unix:/path`.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.map_or_else(|| self.origin.address(), |address| address.to_string())
    }

    /// The name of the upstream of the server, in logs.
    pub(crate) fn upstream(&self) -> Option<&str> {
        self.upstream.as_deref()
    }

    /// Names the upstream of the server in logs.
    #[must_use]
    pub fn of_upstream(self, name: &str) -> Self {
        Self { upstream: Some(name.into()), ..self }
    }

    /// Connects to `address`, if there is one, instead of looking up the host. TLS still checks its name.
    #[must_use]
    pub fn at(self, address: Option<SocketAddr>) -> Self {
        Self { address, ..self }
    }

    /// The same server, for the connections of one client.
    #[must_use]
    pub fn for_client(&self, client: Option<ConnectionAddresses>) -> Self {
        Self { client: Some(client), ..self.clone() }
    }

    /// Prepares connections to a server, without opening one.
    ///
    /// # Errors
    /// When the host name is not a valid TLS server name.
    pub fn new(
        origin: &ServerOrigin,
        config: &ConnectConfig,
        trust: &Trust,
    ) -> Result<Self, TlsError> {
        let tls = origin.tls.then(|| TlsTo::new(origin, config.protocol, trust)).transpose()?;
        Ok(Self {
            origin: origin.clone(),
            address: None,
            tls: tls.map(ArcSwap::from_pointee).map(Arc::new),
            protocol: config.protocol,
            timeout: config.timeout,
            idle_timeout: config.idle_timeout,
            http2_ping_interval: config.http2_ping_interval,
            keepalive: config.tcp_keepalive,
            proxy_protocol: config.proxy_protocol,
            upstream: None,
            client: None,
        })
    }

    /// Prepares connections to a server, and reads the certificates of `config`.
    ///
    /// # Errors
    /// When the authorities cannot be read, or the host name is not a valid TLS server name.
    pub fn load(origin: &ServerOrigin, config: &ConnectConfig) -> Result<Self, TlsError> {
        Self::new(origin, config, &config.load_trust(origin.tls)?)
    }

    /// Replaces the trusted certificates for later connection attempts.
    ///
    /// # Errors
    /// When the host name is not a valid TLS server name, which `new` has already rejected.
    pub fn replace_trust(&self, trust: &Trust) -> Result<(), TlsError> {
        if let Some(current) = &self.tls {
            current.store(Arc::new(TlsTo::new(&self.origin, self.protocol, trust)?));
        }
        Ok(())
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// [`ConnectError`] with the phase that failed; nothing of a request was sent.
    pub async fn connect(
        &self,
        clock: &Clock,
        offer: Offer,
    ) -> Result<OpenedConnection, ConnectError> {
        let mut phase = "name lookup";
        let connecting = async {
            let start = clock.now();
            let addresses = self.look_up().await.map_err(|source| ConnectError::Lookup {
                server: self.server(),
                host: self.origin.host.clone(),
                source,
            })?;
            let lookup = clock.now().since(start);
            let mut connected =
                self.connect_by_phases(&addresses, clock, offer, &mut phase).await?;
            connected.phases.lookup = lookup;
            Ok(connected)
        };
        match tokio::time::timeout(self.timeout.into(), connecting).await {
            Ok(result) => result,
            Err(_) => {
                Err(ConnectError::TimedOut { server: self.server(), phase, timeout: self.timeout })
            }
        }
    }

    /// Opens a connection to the first of these addresses that accepts one. The caller limits the time.
    ///
    /// # Errors
    /// [`ConnectError`] with the phase that failed; nothing of a request was sent.
    pub async fn connect_to(
        &self,
        addresses: &[SocketAddr],
        clock: &Clock,
    ) -> Result<OpenedConnection, ConnectError> {
        self.connect_by_phases(addresses, clock, Offer::All, &mut "").await
    }

    async fn connect_by_phases(
        &self,
        addresses: &[SocketAddr],
        clock: &Clock,
        offer: Offer,
        phase: &mut &'static str,
    ) -> Result<OpenedConnection, ConnectError> {
        let server = || self.server();
        let start = clock.now();
        *phase = "the TCP handshake";
        let not_connected = |source| ConnectError::Connect { server: server(), source };
        let mut tcp = self.open_socket(addresses).await.map_err(not_connected)?;
        if let Some(version) = self.proxy_protocol {
            let header = self.proxy_header(version, &tcp).map_err(not_connected)?;
            tcp.write_all(&header).await.map_err(not_connected)?;
        }
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
                let tls = connector.connect(to.name.clone(), tcp).await.map_err(|source| {
                    match tls::is_version_refused(&source) {
                        true => ConnectError::NoVersion { server: server() },
                        false => ConnectError::Tls { server: server(), source },
                    }
                })?;
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
            lookup: Duration::ZERO,
            tcp: connected.since(start),
            tls: if self.tls.is_some() { clock.now().since(connected) } else { Duration::ZERO },
        };
        Ok(OpenedConnection { stream, phases, is_http2 })
    }

    fn proxy_header(&self, version: ProxyProtocol, tcp: &TcpStream) -> io::Result<Vec<u8>> {
        if let Some(client) = self.client {
            return Ok(version.header(client));
        }
        if self.origin.unix_path().is_some() {
            return Ok(version.own_header(None));
        }
        let (client, server) = (tcp.local_addr()?, tcp.peer_addr()?);
        Ok(version.own_header(Some(ConnectionAddresses { client, server })))
    }

    async fn open_socket(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        if let Some(path) = self.origin.unix_path() {
            return stream::of_unix(UnixStream::connect(path).await?);
        }
        let tcp = connect_to_any(addresses).await?;
        stream::keep_alive(&tcp, self.keepalive);
        Ok(tcp)
    }

    async fn look_up(&self) -> io::Result<Vec<SocketAddr>> {
        if self.origin.unix_path().is_some() {
            return Ok(Vec::new());
        }
        if let Some(address) = self.address {
            return Ok(vec![address]);
        }
        let ServerOrigin { host, port, .. } = &self.origin;
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
