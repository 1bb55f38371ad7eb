//! The certificates of a listener: the keys of a `tls` section.

use crate::Section;
use std::path::PathBuf;

/// The certificates of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// Each certificate: the file of its chain, its own certificate first, and the file of its private key (PEM).
    pub certificates: Vec<(PathBuf, PathBuf)>,
    /// File of the authorities of client certificates; absent: clients need no certificate.
    pub client_ca_file: Option<PathBuf>,
}

impl ServerTls {
    /// Maximum number of certificates: a handshake compares the name with each.
    const CERTIFICATES_MAX: usize = 100;

    /// Reads the section `tls`; [`None`] without it.
    pub fn read(s: &mut Section<'_>) -> Option<Self> {
        s.optional_section("tls", "Certificate for TLS; absent: clear text.", |s| {
            let mut certificates = vec![certificate_files(s)];
            certificates.extend(s.list(
                "further_certificates",
                "Certificates for other names. A client gets the first of these that is valid for the name that it requests (SNI), else that of `certificate_file`.",
                certificate_files,
            ));
            s.check_len("further_certificates", certificates.len() - 1, Self::CERTIFICATES_MAX);
            Self {
                certificates,
                client_ca_file: s
                    .field(
                        "client_ca_file",
                        "Certificate authorities of clients (PEM file): each client must present a certificate of one of these; absent: clients need no certificate.",
                    )
                    .optional(),
            }
        })
    }
}

/// Reads the files of a certificate: that of its chain, and that of its private key.
pub fn certificate_files(s: &mut Section<'_>) -> (PathBuf, PathBuf) {
    let doc = "File of the certificate with its chain (PEM), the certificate itself first.";
    let chain = s.field("certificate_file", doc).required();
    (chain, s.field("key_file", "File of the private key (PEM).").required())
}
