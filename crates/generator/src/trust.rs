//! The trusted certificates of a target: those of the system, those of a file, or any.

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::client::WantsClientCert;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

/// Which certificates are trusted.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Those that the system's authorities signed.
    #[default]
    System,
    /// Those that these authorities signed, and these certificates themselves.
    Authorities(Arc<RootCertStore>),
    /// Any certificate, without proof of the target's identity.
    Anyone,
}

/// A file without certificates.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {problem}: expected certificates in PEM (`-----BEGIN CERTIFICATE-----`)")]
pub struct TrustError {
    file: String,
    problem: String,
}

impl Trust {
    /// The certificates of `ca_file`, any when `is_insecure`, else the system's.
    ///
    /// # Errors
    /// When `ca_file` cannot be read or has no certificate.
    pub fn new(ca_file: Option<&Path>, is_insecure: bool) -> Result<Self, TrustError> {
        let Some(path) = ca_file else {
            return Ok(if is_insecure { Self::Anyone } else { Self::System });
        };
        let wrong = |problem: String| TrustError { file: path.display().to_string(), problem };
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(path);
        for certificate in certificates.map_err(|error| wrong(error.to_string()))? {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(wrong("no certificate found".to_owned()));
        }
        Ok(Self::Authorities(Arc::new(roots)))
    }

    /// A TLS configuration that trusts these certificates.
    ///
    /// # Errors
    /// When the system's certificates are needed and there are none.
    pub(crate) fn client_config(&self) -> io::Result<ClientConfig> {
        let builder = ClientConfig::builder();
        let builder: ConfigBuilder<ClientConfig, WantsClientCert> = match self {
            Self::System => builder.with_root_certificates(system_roots()?),
            Self::Authorities(roots) => builder.with_root_certificates(Arc::clone(roots)),
            Self::Anyone => {
                let provider = Arc::clone(builder.crypto_provider());
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
            }
        };
        Ok(builder.with_no_client_auth())
    }
}

fn system_roots() -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _ignored) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no trusted certificates are installed: install the package ca-certificates, or pass --ca-file",
        ));
    }
    Ok(roots)
}

/// The advice after a handshake that failed because of the target's certificate; [`None`] for other errors.
pub(crate) fn advice(error: &io::Error) -> Option<&'static str> {
    let Error::InvalidCertificate(cause) = error.get_ref()?.downcast_ref::<Error>()? else {
        return None;
    };
    if *cause == CertificateError::UnknownIssuer {
        return Some(
            "no trusted authority signed the certificate: pass --ca-file with that authority's, or --insecure",
        );
    }
    // This error has no type of its own.
    cause.to_string().contains("CaUsedAsEndEntity").then_some(
        "the server uses the certificate of an authority (`openssl req -x509` creates such): make it \
         with `-addext basicConstraints=critical,CA:FALSE`, or pass --insecure",
    )
}

/// Accepts every certificate, but still checks that the handshake's signature belongs to its key.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let supported = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, supported)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let supported = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, supported)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
