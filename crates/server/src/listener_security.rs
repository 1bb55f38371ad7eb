//! The certificates and the tokens of a listener, whose files are read at the start and at each reload.

use crate::StartError;
use curtail_config::ServerTls;
use curtail_http::access::{Access, Tokens};
use curtail_http::small_file::read_small_text;
use curtail_http::tls::{ListenerTls, ServerConfig, listener_config};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The contents of the files of certificates and of tokens.
#[derive(Debug)]
pub(crate) struct SecurityFiles {
    tls: Option<Arc<ServerConfig>>,
    tokens: Tokens,
}

/// The certificates and the tokens that a listener uses now.
#[derive(Clone, Debug)]
pub(crate) struct ListenerSecurity {
    /// Absent: clear text.
    pub(crate) tls: Option<Arc<ListenerTls>>,
    pub(crate) access: Arc<Access>,
}

impl SecurityFiles {
    /// Reads the files; without a file of tokens, clients need no token.
    pub(crate) fn read(
        tls: Option<&ServerTls>,
        tokens_file: Option<&Path>,
    ) -> Result<Self, StartError> {
        let read =
            |tls: &ServerTls| listener_config(&tls.certificates, tls.client_ca_file.as_deref());
        let tls = tls.map(read).transpose()?;
        let tokens = tokens_file.map(read_tokens).transpose()?.unwrap_or_default();
        Ok(Self { tls, tokens })
    }
}

fn read_tokens(file: &Path) -> Result<Tokens, StartError> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let tokens = read_small_text(file).and_then(|text| Tokens::parse(&text).map_err(invalid));
    tokens.map_err(|source| StartError::File { path: file.to_owned(), source })
}

impl ListenerSecurity {
    pub(crate) fn new(files: SecurityFiles) -> Self {
        Self { tls: files.tls.map(ListenerTls::new), access: Arc::new(Access::new(files.tokens)) }
    }

    /// Replaces the certificates for later handshakes, and the tokens for later requests.
    pub(crate) fn replace(&self, files: SecurityFiles) {
        if let (Some(tls), Some(new)) = (&self.tls, files.tls) {
            tls.replace(new);
        }
        self.access.replace(files.tokens);
    }
}
