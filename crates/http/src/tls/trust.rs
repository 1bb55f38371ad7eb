//! Certificates of connections to servers: the trusted ones, of the system's authorities, of authorities in a file, or any;
//! and the one that is presented to a server that requests it.

use super::{TlsError, authorities, certified_key, provider};
use crate::connect::Protocol;
use crate::origin::ServerOrigin;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::sign::SingleCertAndKey;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, InvalidMessage,
    RootCertStore, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Maximum number of names with resumable sessions; a name with its tickets takes some hundred bytes.
const SESSIONS_MAX: usize = 1_024;

/// The certificates of connections to servers.
#[derive(Clone, Debug)]
pub struct Trust {
    trusted: Trusted,
    /// The certificate for servers that request one.
    presented: Option<Arc<SingleCertAndKey>>,
}

#[derive(Clone, Debug)]
enum Trusted {
    SignedBy(Arc<RootCertStore>),
    AnyCertificate,
}

impl Trust {
    /// Trusts the authorities in `ca_file`, or without it the system's. The system's are read only if `has_tls`.
    ///
    /// # Errors
    /// When the file cannot be read or has no authority, or the system has no authorities.
    pub fn load(ca_file: Option<&Path>, has_tls: bool) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = ca_file {
            roots = authorities(path)?;
        } else if has_tls {
            // A system store may hold certificates that are too old to be understood; the others count.
            let system = rustls_native_certs::load_native_certs().certs;
            if roots.add_parsable_certificates(system).0 == 0 {
                return Err(TlsError::NoAuthorities);
            }
        }
        Ok(Self { trusted: Trusted::SignedBy(Arc::new(roots)), presented: None })
    }

    /// Trusts any certificate, without proof of the server's identity.
    #[must_use]
    pub const fn any_certificate() -> Self {
        Self { trusted: Trusted::AnyCertificate, presented: None }
    }

    /// Presents the certificate in these files, of its chain and of its key, to servers that request one.
    ///
    /// # Errors
    /// When a file cannot be read, or the key does not match the certificate.
    pub fn with_certificate(self, (chain, key): &(PathBuf, PathBuf)) -> Result<Self, TlsError> {
        let presented = Some(Arc::new(certified_key(chain, key)?.into()));
        Ok(Self { presented, ..self })
    }

    fn client_config(&self) -> ClientConfig {
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider has the suites of its own versions");
        let builder = match &self.trusted {
            Trusted::SignedBy(roots) => builder.with_root_certificates(Arc::clone(roots)),
            Trusted::AnyCertificate => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
            }
        };
        let mut config = match &self.presented {
            None => builder.with_no_client_auth(),
            Some(certificate) => {
                builder.with_client_cert_resolver(Arc::<SingleCertAndKey>::clone(certificate))
            }
        };
        config.resumption = rustls::client::Resumption::in_memory_sessions(SESSIONS_MAX);
        config
    }
}

#[derive(Clone)]
pub(crate) struct TlsTo {
    pub(crate) name: ServerName<'static>,
    pub(crate) all: TlsConnector,
    pub(crate) http1: TlsConnector,
}

impl TlsTo {
    pub(crate) fn new(
        origin: &ServerOrigin,
        protocol: Protocol,
        trust: &Trust,
    ) -> Result<Self, TlsError> {
        let name = ServerName::try_from(origin.host.clone()).map_err(|error| TlsError::Name {
            server: origin.to_string(),
            why: error.to_string(),
        })?;
        let config = trust.client_config();
        let offering = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            TlsConnector::from(Arc::new(config))
        };
        let all = match protocol {
            Protocol::Auto => offering(&[b"h2", b"http/1.1"]),
            Protocol::Http1 => offering(&[b"http/1.1"]),
            Protocol::Http2 => offering(&[b"h2"]),
        };
        Ok(Self { name, all, http1: offering(&[b"http/1.1"]) })
    }
}

/// Whether a handshake failed because the server speaks none of the offered protocols (RFC 7301, section 3.2).
pub(crate) fn is_version_refused(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    error == Some(&Error::AlertReceived(AlertDescription::NoApplicationProtocol))
}

/// Returns advice for a handshake that failed because of the server; empty for other errors.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    if let Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) = error {
        return ", because the server does not respond with TLS (in clear text, its URL is http://)";
    }
    let Some(Error::InvalidCertificate(cause)) = error else { return "" };
    if *cause == CertificateError::UnknownIssuer {
        return ", because no trusted authority has signed the certificate; name its authority (--ca-file, ca_file)";
    }
    // This error has no type of its own.
    if cause.to_string().contains("CaUsedAsEndEntity") {
        return ", because the server uses the certificate of an authority (`openssl req -x509` makes such); make it \
                with `-addext basicConstraints=critical,CA:FALSE`";
    }
    ""
}

/// Accepts every certificate, but still checks the handshake's signature with the certificate's key.
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
