//! The certificate and the tokens of a listener, whose files are read at the start and at each reload.

use crate::StartError;
use curtail_config::ServerTls;
use curtail_http::access::{Access, Tokens};
use curtail_http::small_file::read_small_text;
use curtail_http::tls::{CertifiedKey, ListenerCertificate, certified_key};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The contents of the files of a certificate and of tokens.
#[derive(Debug)]
pub(crate) struct SecurityFiles {
    certificate: Option<CertifiedKey>,
    tokens: Tokens,
}

/// The certificate and the tokens that a listener uses now.
#[derive(Clone, Debug)]
pub(crate) struct ListenerSecurity {
    /// Absent: clear text.
    pub(crate) certificate: Option<Arc<ListenerCertificate>>,
    pub(crate) access: Arc<Access>,
}

impl SecurityFiles {
    /// Reads the files; without a file of tokens, clients need no token.
    pub(crate) fn read(
        tls: Option<&ServerTls>,
        tokens_file: Option<&Path>,
    ) -> Result<Self, StartError> {
        let read = |tls: &ServerTls| certified_key(&tls.certificate_file, &tls.key_file);
        let certificate = tls.map(read).transpose()?;
        let tokens = tokens_file.map(read_tokens).transpose()?.unwrap_or_default();
        Ok(Self { certificate, tokens })
    }
}

fn read_tokens(file: &Path) -> Result<Tokens, StartError> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let tokens = read_small_text(file).and_then(|text| Tokens::parse(&text).map_err(invalid));
    tokens.map_err(|source| StartError::File { path: file.to_owned(), source })
}

impl ListenerSecurity {
    pub(crate) fn new(files: SecurityFiles) -> Self {
        Self {
            certificate: files.certificate.map(ListenerCertificate::new),
            access: Arc::new(Access::new(files.tokens)),
        }
    }

    /// Replaces the certificate for later handshakes, and the tokens for later requests.
    pub(crate) fn replace(&self, files: SecurityFiles) {
        if let (Some(certificate), Some(new)) = (&self.certificate, files.certificate) {
            certificate.replace(new);
        }
        self.access.replace(files.tokens);
    }
}
