//! The certificate of a listener: the keys of a `tls` section.

use crate::Section;
use std::path::PathBuf;

/// The certificate of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// File of the certificate chain (PEM), the server's own certificate first.
    pub certificate_file: PathBuf,
    /// File of the private key (PEM).
    pub key_file: PathBuf,
}

impl ServerTls {
    /// Reads the section `tls`; [`None`] without it.
    pub fn read(s: &mut Section<'_>) -> Option<Self> {
        s.optional_section("tls", "Certificate for TLS; absent: clear text.", |s| Self {
            certificate_file: s
                .field(
                    "certificate_file",
                    "File of the certificate chain (PEM), the server's own certificate first.",
                )
                .required(),
            key_file: s.field("key_file", "File of the private key (PEM).").required(),
        })
    }
}
