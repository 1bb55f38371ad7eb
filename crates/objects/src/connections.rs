//! Connections to stores, kept for the next request.
//!
//! A connection carries one request at a time. When its answer is read to the end it waits for another, at most
//! [`IDLE_FOR`]: servers close what nobody uses, and a request that meets that may have been taken or not.
//!
//! **Limits**: [`IDLE_MAX`] a server wait; how many there are in all is bounded by whoever asks.

use crate::address::Address;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use object_store::client::HttpRequestBody;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// So long a connection waits for its next request.
const IDLE_FOR: Duration = Duration::from_secs(15);

/// So many wait for each server.
const IDLE_MAX: usize = 32;

/// A connection that can take a request.
pub(crate) type Connection = SendRequest<HttpRequestBody>;

/// Those that wait.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    idle: Mutex<HashMap<Address, Vec<Idle>>>,
    tls: OnceLock<Arc<ClientConfig>>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{address} cannot be reached: {source}")]
    Tcp {
        address: Address,
        #[source]
        source: io::Error,
    },
    #[error("{address} speaks no TLS that we trust: {source}")]
    Tls {
        address: Address,
        #[source]
        source: io::Error,
    },
    #[error("{address} speaks no HTTP: {source}")]
    Http {
        address: Address,
        #[source]
        source: hyper::Error,
    },
}

impl Connections {
    /// The connection that has waited for the shortest time, if it is still good.
    pub(crate) fn take(&self, address: &Address) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = idle.get_mut(address)?;
        of_address.retain(Idle::is_good);
        of_address.pop().map(|idle| idle.connection)
    }

    /// Keeps one for the next request.
    pub(crate) fn keep(&self, address: Address, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = idle.entry(address).or_default();
        of_address.retain(Idle::is_good);
        if of_address.len() < IDLE_MAX {
            of_address.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Makes one. What it does is done by a task of this runtime.
    pub(crate) async fn connect(&self, address: &Address) -> Result<Connection, ConnectError> {
        let tcp = |source| ConnectError::Tcp { address: address.clone(), source };
        // All addresses that the name has, one after the other.
        let stream = TcpStream::connect((&*address.host, address.port)).await.map_err(tcp)?;
        stream.set_nodelay(true).map_err(tcp)?;
        if !address.is_tls {
            return speak(address, stream).await;
        }
        let tls = |source| ConnectError::Tls { address: address.clone(), source };
        let name = ServerName::try_from(address.host.clone());
        let name = name.map_err(|error| tls(io::Error::other(error)))?;
        let connector = self.tls().map_err(tls)?;
        speak(address, connector.connect(name, stream).await.map_err(tls)?).await
    }

    /// TLS that trusts whom this machine trusts.
    fn tls(&self) -> io::Result<TlsConnector> {
        let config = match self.tls.get() {
            Some(config) => config,
            None => {
                let config = trusting(system_roots()?)?;
                self.tls.get_or_init(|| config)
            }
        };
        Ok(TlsConnector::from(Arc::clone(config)))
    }
}

impl Idle {
    fn is_good(&self) -> bool {
        self.since.elapsed() < IDLE_FOR && self.connection.is_ready()
    }
}

async fn speak(
    address: &Address,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Connection, ConnectError> {
    let (connection, rest) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|source| ConnectError::Http { address: address.clone(), source })?;
    tokio::spawn(async move {
        // Whoever has sent a request hears of what goes wrong.
        rest.await.ok();
    });
    Ok(connection)
}

/// Those whom this machine trusts.
fn system_roots() -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // A system store may hold certificates that are too old to be understood; the others count.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let none =
            "this machine trusts nobody: expected certificates in its store, or SSL_CERT_FILE";
        return Err(io::Error::other(none));
    }
    Ok(roots)
}

fn trusting(roots: RootCertStore) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(tls))
}

#[cfg(test)]
impl Connections {
    /// With TLS that trusts whoever is told.
    pub(crate) fn trusting(roots: RootCertStore) -> Self {
        let tls = OnceLock::from(trusting(roots).expect("good roots"));
        Self { tls, ..Self::default() }
    }
}
