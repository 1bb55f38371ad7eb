//! TLS: who we are to clients, and whom we trust among replicas.

use crate::StartError;
use crate::config::{ConnectConfig, Protocol, ReplicaUrl, ServerTls};
use crate::connect::TlsTo;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Sessions that can be resumed with replicas; a name and its tickets take some hundred bytes each.
const SESSIONS_MAX: usize = 1_024;

fn unusable(path: &Path, why: impl std::fmt::Display) -> StartError {
    StartError::Tls { file: path.to_owned(), why: why.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, error))?;
    let chain: Vec<_> = read.collect::<Result<_, _>>().map_err(|error| unusable(path, error))?;
    if chain.is_empty() {
        return Err(unusable(path, "no certificate in it: expected PEM"));
    }
    Ok(chain)
}

/// What a listener shows to its clients: HTTP/2 and HTTP/1.1 are offered.
pub(crate) fn acceptor(tls: &ServerTls) -> Result<TlsAcceptor, StartError> {
    let chain = certificates(&tls.certificate_file)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key_file)
        .map_err(|error| unusable(&tls.key_file, error))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| unusable(&tls.certificate_file, error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// How a replica is spoken to under TLS.
pub(crate) fn connector(replica: &ReplicaUrl, config: &ConnectConfig) -> Result<TlsTo, StartError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &config.ca_file {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| unusable(path, error))?;
        }
    } else {
        for certificate in rustls_native_certs::load_native_certs().certs {
            // A system store may hold certificates that are too old to be understood; the others count.
            if let Err(error) = roots.add(certificate) {
                tracing::debug!(%error, "system certificate left out");
            }
        }
    }
    let mut tls = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| StartError::Name { replica: replica.to_string(), why: error.to_string() })?
        .with_root_certificates(roots)
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
