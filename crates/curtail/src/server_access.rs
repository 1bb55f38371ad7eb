//! Access to a server, for the commands that are its clients: tenant, token and certificate authorities.

use crate::server_url::ServerUrl;
use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use curtail_http::access::TENANT;
use curtail_http::client::{Client, ClientLimits};
use curtail_http::connect::{ConnectConfig, Connector};
use curtail_http::tls::Trust;
use curtail_units::Duration;
use http::{HeaderMap, HeaderValue, header};
use http_body_util::Full;
use std::io;
use std::path::PathBuf;

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServerAccessArgs {
    /// Tenant of the data (X-Scope-OrgID) [default: the token's tenant, or the
    /// server's default tenant].
    #[arg(long, global = true, value_name = "NAME")]
    tenant: Option<String>,
    /// File with the token to send, as authorization: Bearer.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Trusted certificate authorities (PEM) of an https URL
    /// [default: the system's].
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Accept any certificate.
    #[arg(long, global = true, conflicts_with = "ca_file")]
    insecure: bool,
}

impl ServerAccessArgs {
    pub(crate) fn headers(&self) -> anyhow::Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        let value = |text: String| HeaderValue::try_from(text).map_err(io::Error::other);
        if let Some(tenant) = &self.tenant {
            headers.insert(TENANT, value(tenant.clone()).context("--tenant")?);
        }
        if let Some(file) = &self.token_file {
            let name = || format!("--token-file {}", file.display());
            let text = std::fs::read_to_string(file).with_context(name)?;
            let token = Some(text.trim()).filter(|token| !token.is_empty());
            let token = token.ok_or_else(|| io::Error::other("expected a token, found nothing"));
            let token =
                value(format!("Bearer {}", token.with_context(name)?)).with_context(name)?;
            headers.insert(header::AUTHORIZATION, token);
        }
        Ok(headers)
    }

    /// A client of the server; a connection attempt may take `timeout`.
    pub(crate) fn client(
        &self,
        url: &ServerUrl,
        timeout: Duration,
        limits: ClientLimits,
    ) -> anyhow::Result<Client<Full<Bytes>>> {
        let trust = if self.insecure {
            Trust::AnyCertificate
        } else {
            Trust::load(self.ca_file.as_deref(), url.origin.tls)?
        };
        let connect = ConnectConfig { timeout, ..ConnectConfig::default() };
        Ok(Client::new(Connector::new(&url.origin, &connect, &trust)?, limits))
    }
}
