//! TLS: the certificates of listeners ([`ListenerTls`]), and both sides' certificates of connections to servers ([`Trust`]).

mod trust;

pub use trust::Trust;
pub(crate) use trust::{TlsTo, advice, is_version_refused};

use crate::small_file::read_small_file;
use arc_swap::ArcSwap;
use rustls::RootCertStore;
pub use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
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
pub(crate) fn certified_key(
    certificate_file: &Path,
    key_file: &Path,
) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(certificate_file)?;
    let key = read_small_file(key_file).map_err(|error| unusable(key_file, error))?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| unreadable(key_file, "private key", error))?;
    CertifiedKey::from_der(chain, key, &provider())
        .map_err(|error| unusable(certificate_file, describe_key_error(&error, key_file)))
}

/// Reads the certificates of a listener: each with the file of its chain and that of its key. With `client_ca_file`, clients
/// must present a certificate that one of its authorities has signed.
///
/// # Errors
/// [`TlsError::File`], when a file cannot be read, or a key does not match its certificate.
///
/// # Panics
/// Never: the provider has cipher suites for its own versions.
pub fn listener_config(
    certificates: &[(PathBuf, PathBuf)],
    client_ca_file: Option<&Path>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let read = |(chain, key): &(PathBuf, PathBuf)| certified_key(chain, key).map(Arc::new);
    let keys = certificates.iter().map(read).collect::<Result<_, _>>()?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has the suites of its own versions");
    let builder = match client_ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let authorities = Arc::new(authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider());
            let verifier = verifier.build().map_err(|error| unusable(path, error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(CertificatesByName(keys)));
    let offered = [&b"h2"[..], b"http/1.1", b"http/1.0"];
    config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Reads certificate authorities.
fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, error))?;
    }
    Ok(roots)
}

/// The TLS of a listener, which a reload replaces for later handshakes.
#[derive(Debug)]
pub struct ListenerTls(ArcSwap<ServerConfig>);

impl ListenerTls {
    /// Creates the TLS of a listener from its [configuration](listener_config).
    #[must_use]
    pub fn new(config: Arc<ServerConfig>) -> Arc<Self> {
        Arc::new(Self(ArcSwap::new(config)))
    }

    /// Replaces certificates and authorities for later handshakes.
    pub fn replace(&self, config: Arc<ServerConfig>) {
        self.0.store(config);
    }

    /// Returns the acceptor of the next handshake.
    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.load_full())
    }
}

/// The certificates of a listener. A client gets the first further one that is valid for the name that it requests (SNI); if
/// there is none, or it requests no name, the first one. So a wildcard certificate does not hide those of single names.
#[derive(Debug)]
struct CertificatesByName(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for CertificatesByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let (first, further) = self.0.split_first()?;
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let is_valid = |key: &&Arc<CertifiedKey>| {
            let certificate = key.end_entity_cert().and_then(ParsedCertificate::try_from);
            let name = certificate.ok().zip(name.as_ref());
            name.is_some_and(|(certificate, name)| verify_server_name(&certificate, name).is_ok())
        };
        Some(Arc::clone(further.iter().find(is_valid).unwrap_or(first)))
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
