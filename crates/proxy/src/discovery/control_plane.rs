//! Connections to the servers of endpoints: certificates, tokens, and the texts of their errors.
//!
//! Certificates are read again with each session, and tokens with each request, because both are replaced while the proxy
//! runs.

use crate::USER_AGENT;
use crate::config::{ConnectConfig, ControlPlaneAccess, Protocol, ReplicaUrl};
use curtail_http::access::read_token;
use curtail_http::client::{Client, ClientLimits};
use curtail_http::connect::Connector;
use http::{HeaderMap, HeaderValue, header};
use http_body::Body;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum length of a server's message in the log and in `/state`.
const MESSAGE_CHARS_MAX: usize = 300;

/// Maximum time to read files, which may be on a network.
const READ_MAX: Duration = Duration::from_secs(10);

/// Reads the files of one source beside the thread of discovery, so that a file that hangs delays no other source.
/// **Limits**: one read at a time; one that hangs keeps its thread.
#[derive(Clone, Debug)]
pub(super) struct FileReader(Arc<Semaphore>);

impl Default for FileReader {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl FileReader {
    /// Runs `read` on a thread that may block.
    ///
    /// # Errors
    /// That of `read`, or that it takes too long.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let permit = Arc::clone(&self.0).try_acquire_owned();
        let permit = permit.map_err(|_| "an earlier read of a file still hangs".to_owned())?;
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read()
        });
        match timeout(READ_MAX, reading).await {
            Ok(read) => read.map_err(|error| error.to_string())?,
            Err(_) => Err(format!("a file was not read within {} s", READ_MAX.as_secs())),
        }
    }
}

/// Prepares connections to a server.
///
/// # Errors
/// When a certificate cannot be used, with its file.
pub(super) async fn client<B>(
    files: &FileReader,
    server: &ReplicaUrl,
    access: &ControlPlaneAccess,
    (protocol, body_bytes_max): (Protocol, usize),
) -> Result<Arc<Client<B>>, String>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static,
{
    let connect = ConnectConfig {
        protocol,
        ca_file: access.ca_file.clone(),
        client_certificate: access.client_certificate.clone(),
        ..ConnectConfig::default()
    };
    let server = server.clone();
    let load = move || Connector::load(&server, &connect).map_err(|error| error.to_string());
    let connector = files.read(load).await?;
    Ok(Arc::new(Client::new(connector, ClientLimits { body_bytes_max, idle_max: 1 })))
}

/// The headers of every request: the program and its token.
///
/// # Errors
/// When the token cannot be read, with its file.
pub(super) async fn headers(
    files: &FileReader,
    token_file: Option<&Path>,
) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    if let Some(file) = token_file {
        let name = |error| format!("token_file {}: {error}", file.display());
        let file = file.to_owned();
        let token = files.read(move || read_token(&file).map_err(|error| error.to_string())).await;
        headers.insert(header::AUTHORIZATION, token.map_err(name)?);
    }
    Ok(headers)
}

/// A text of a server, cut to a length that a log line can have, and without line ends.
pub(super) fn cut(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().take(MESSAGE_CHARS_MAX).map(printable).collect()
}
