//! Certificates of all kinds, good and bad, made for one test and written where the proxy can read them.

use crate::directory::Directory;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Who signs certificates.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: Directory,
}

/// A certificate and its key.
pub(crate) struct Issued {
    chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
    pub(crate) certificate_file: PathBuf,
    pub(crate) key_file: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Each has a name of its own, so that one is not taken for another with a wrong signature.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {nth}"));
        let issuer = CertifiedIssuer::self_signed(params, key()).expect("its own key signs");
        Self { issuer, directory: Directory::new() }
    }

    /// Where the authority's own certificate is.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.write("authority.pem", &self.issuer.pem())
    }

    /// A certificate for `name` that is valid now.
    pub(crate) fn issue(&self, name: &str) -> Issued {
        self.issue_from(&CertificateParams::new(vec![name.to_owned()]).expect("a name"))
    }

    /// A certificate for `name` that was valid long ago.
    pub(crate) fn issue_expired(&self, name: &str) -> Issued {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
        self.issue_from(&params)
    }

    fn issue_from(&self, params: &CertificateParams) -> Issued {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let key = key();
        let certificate: Certificate = params.signed_by(&key, &self.issuer).expect("a good key");
        let write = |what: &str, text: &str| self.directory.write(&format!("{nth}.{what}"), text);
        Issued {
            certificate_file: write("certificate.pem", &certificate.pem()),
            key_file: write("key.pem", &key.serialize_pem()),
            chain: vec![certificate.der().clone()],
            key,
        }
    }

    /// A client that trusts this authority and speaks `protocols`, the preferred one first.
    pub(crate) fn client(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut config = self.trusting().with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A client that trusts this authority and presents a certificate.
    pub(crate) fn client_with(&self, issued: &Issued) -> Arc<ClientConfig> {
        let (chain, key) = (issued.chain.clone(), issued.private_key());
        Arc::new(self.trusting().with_client_auth_cert(chain, key).expect("its own key"))
    }

    fn trusting(&self) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider's own versions")
            .with_root_certificates(self.roots())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a certificate of our own");
        roots
    }
}

impl Issued {
    /// A server that shows this certificate and speaks `protocols`.
    pub(crate) fn server(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider's own versions");
        let mut config = builder
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.private_key())
            .expect("the key of the certificate");
        config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A server that shows this certificate to clients of `authority` only.
    pub(crate) fn server_for_clients_of(&self, authority: &Authority) -> Arc<ServerConfig> {
        let roots = Arc::new(authority.roots());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider's own versions")
            .with_client_cert_verifier(verifier.expect("an authority"));
        let config = builder.with_single_cert(self.chain.clone(), self.private_key());
        Arc::new(config.expect("the key of the certificate"))
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.chain[0]
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key of our own")
    }

    /// The keys of a listener that shows this certificate.
    pub(crate) fn listener_keys(&self) -> String {
        format!("tls: {{{}}}", self.files())
    }

    /// The keys of the files.
    pub(crate) fn files(&self) -> String {
        let show = |path: &Path| path.display().to_string();
        let (certificate, key) = (show(&self.certificate_file), show(&self.key_file));
        format!("certificate_file: {certificate}, key_file: {key}")
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("the system gives randomness")
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
