//! TLS: who we are to clients, and whom we trust among replicas.

use crate::StartError;
use crate::config::{ConnectConfig, Protocol, ReplicaUrl, ServerTls};
use crate::connect::TlsTo;
use arc_swap::ArcSwap;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Sessions that can be resumed with replicas; a name and its tickets take some hundred bytes each.
const SESSIONS_MAX: usize = 1_024;

fn unusable(path: &Path, why: impl std::fmt::Display) -> StartError {
    StartError::Tls { file: path.to_owned(), why: why.to_string() }
}

/// The error of a file without a readable `what`.
fn unreadable(path: &Path, what: &str, error: pem::Error) -> StartError {
    if let pem::Error::Io(error) = error {
        return unusable(path, error);
    }
    let has_none = matches!(error, pem::Error::NoItemsFound);
    let why = if has_none { "the file has no PEM section".to_owned() } else { error.to_string() };
    unusable(path, format!("no {what} found: {why}"))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let unreadable = |error| unreadable(path, "certificate", error);
    let read = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let chain: Vec<_> = read.collect::<Result<_, _>>().map_err(unreadable)?;
    if chain.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound));
    }
    Ok(chain)
}

/// Reads a certificate chain and its key.
pub(crate) fn certified_key(tls: &ServerTls) -> Result<CertifiedKey, StartError> {
    let chain = certificates(&tls.certificate_file)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key_file)
        .map_err(|error| unreadable(&tls.key_file, "private key", error))?;
    CertifiedKey::from_der(chain, key, &provider())
        .map_err(|error| unusable(&tls.certificate_file, describe_key_error(&error, &tls.key_file)))
}

/// The certificate of a listener; handshakes after a reload use the new one.
#[derive(Debug)]
pub(crate) struct ListenerCertificate(ArcSwap<CertifiedKey>);

impl ListenerCertificate {
    pub(crate) fn new(key: CertifiedKey) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(key)))
    }

    pub(crate) fn replace(&self, key: CertifiedKey) {
        self.0.store(Arc::new(key));
    }

    /// The acceptor of a listener, which offers HTTP/2 and HTTP/1.
    pub(crate) fn acceptor(self: &Arc<Self>) -> TlsAcceptor {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has the suites of its own versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::<Self>::clone(self));
        let offered = [&b"h2"[..], b"http/1.1", b"http/1.0"];
        config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

impl ResolvesServerCert for ListenerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Why a certificate and a key do not fit together.
fn describe_key_error(error: &rustls::Error, key_file: &Path) -> String {
    let key_file = key_file.display();
    if let rustls::Error::InconsistentKeys(_) = error {
        format!("the key in {key_file} belongs to another certificate")
    } else {
        format!("not usable with the key in {key_file}: {error}")
    }
}

/// The trusted certificate authorities for `replicas`: those of the configuration, or else the system's. The
/// configured file is read even if no replica uses TLS.
pub(crate) fn authorities(
    config: &ConnectConfig,
    replicas: &[ReplicaUrl],
) -> Result<Arc<RootCertStore>, StartError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &config.ca_file {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| unusable(path, error))?;
        }
    } else if replicas.iter().any(|replica| replica.tls) {
        for certificate in rustls_native_certs::load_native_certs().certs {
            // A system store may hold certificates that are too old to be understood; the others count.
            if let Err(error) = roots.add(certificate) {
                tracing::debug!(%error, "system certificate left out");
            }
        }
    }
    Ok(Arc::new(roots))
}

/// The TLS connector of a replica.
pub(crate) fn connector(
    replica: &ReplicaUrl,
    config: &ConnectConfig,
    authorities: &Arc<RootCertStore>,
) -> Result<TlsTo, StartError> {
    let mut tls = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| StartError::Name { replica: replica.to_string(), why: error.to_string() })?
        .with_root_certificates(Arc::clone(authorities))
        .with_no_client_auth();
    tls.resumption = rustls::client::Resumption::in_memory_sessions(SESSIONS_MAX);
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let http1 = TlsConnector::from(Arc::new(tls.clone()));
    tls.alpn_protocols = match config.protocol {
        Protocol::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    let name = ServerName::try_from(replica.host.clone()).map_err(|error| StartError::Name {
        replica: replica.to_string(),
        why: error.to_string(),
    })?;
    Ok(TlsTo { name, all: TlsConnector::from(Arc::new(tls)), http1 })
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
