//! TLS: the certificate that clients see, and the trusted certificates of servers ([`Trust`]).

mod trust;

pub use trust::Trust;
pub(crate) use trust::{TlsTo, advice};

use crate::small_file::read_small_file;
use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
pub use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use tokio_rustls::TlsAcceptor;

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum TlsError {
    /// A certificate, key or authority cannot be used.
    #[error("{}: {why}", file.display())]
    File { file: PathBuf, why: String },
    /// The system has no certificate authorities.
    #[error(
        "no trusted certificates are installed: install the package ca-certificates, or name a file of authorities (--ca-file, ca_file)"
    )]
    NoAuthorities,
    /// A server cannot be named in TLS.
    #[error("{server}: not a name that a certificate can have: {why}")]
    Name { server: String, why: String },
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> TlsError {
    TlsError::File { file: path.to_owned(), why: why.to_string() }
}

/// Returns the error of a file from which `what` cannot be read.
fn unreadable(path: &Path, what: &str, error: pem::Error) -> TlsError {
    let has_none = matches!(error, pem::Error::NoItemsFound);
    let why = if has_none { "found no section of that kind".to_owned() } else { error.to_string() };
    unusable(path, format!("expected a {what} in PEM: {why}"))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error| unreadable(path, "certificate", error);
    let bytes = read_small_file(path).map_err(|error| unusable(path, error))?;
    let chain = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(unreadable)?;
    if chain.is_empty() {
        return Err(unreadable(pem::Error::NoItemsFound));
    }
    Ok(chain)
}

/// Reads a certificate chain and its key.
///
/// # Errors
/// [`TlsError::File`], when a file cannot be read, or the key does not match the certificate.
pub fn certified_key(certificate_file: &Path, key_file: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate_file)?;
    let key = read_small_file(key_file).map_err(|error| unusable(key_file, error))?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| unreadable(key_file, "private key", error))?;
    CertifiedKey::from_der(chain, key, &provider())
        .map_err(|error| unusable(certificate_file, describe_key_error(&error, key_file)))
}

/// The certificate of a listener; handshakes after a reload use the new certificate.
#[derive(Debug)]
pub struct ListenerCertificate(ArcSwap<CertifiedKey>);

impl ListenerCertificate {
    /// Creates the certificate of a listener.
    #[must_use]
    pub fn new(key: CertifiedKey) -> Arc<Self> {
        Arc::new(Self(ArcSwap::from_pointee(key)))
    }

    /// Replaces the certificate for later handshakes.
    pub fn replace(&self, key: CertifiedKey) {
        self.0.store(Arc::new(key));
    }

    /// Returns the acceptor of a listener, which offers HTTP/2 and HTTP/1.
    ///
    /// # Panics
    /// Never: the provider has cipher suites for its own versions.
    #[must_use]
    pub fn acceptor(self: &Arc<Self>) -> TlsAcceptor {
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

/// Describes why a key does not match a certificate.
fn describe_key_error(error: &rustls::Error, key_file: &Path) -> String {
    let key_file = key_file.display();
    if let rustls::Error::InconsistentKeys(_) = error {
        format!("the key in {key_file} belongs to another certificate")
    } else {
        format!("not usable with the key in {key_file}: {error}")
    }
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
