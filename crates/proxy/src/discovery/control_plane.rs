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

/// Maximum length of a server's message in the log and in `/state`.
const MESSAGE_CHARS_MAX: usize = 300;

/// Prepares connections to a server.
///
/// # Errors
/// When a certificate cannot be used, with its file.
pub(super) fn client<B>(
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
    let connector = Connector::load(server, &connect).map_err(|error| error.to_string())?;
    Ok(Arc::new(Client::new(connector, ClientLimits { body_bytes_max, idle_max: 1 })))
}

/// The headers of every request: the program and its token.
///
/// # Errors
/// When the token cannot be read, with its file.
pub(super) fn headers(token_file: Option<&Path>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    if let Some(file) = token_file {
        let token =
            read_token(file).map_err(|error| format!("token_file {}: {error}", file.display()))?;
        headers.insert(header::AUTHORIZATION, token);
    }
    Ok(headers)
}

/// A text of a server, cut to a length that a log line can have, and without line ends.
pub(super) fn cut(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().take(MESSAGE_CHARS_MAX).map(printable).collect()
}
