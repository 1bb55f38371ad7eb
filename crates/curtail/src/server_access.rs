//! Access to a server, for the commands that are its clients: tenant, token and certificate authorities.

use crate::exit::usage_error;
use crate::server_url::ServerUrl;
use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use curtail_http::access::{self, TENANT};
use curtail_http::client::{Client, ClientLimits};
use curtail_http::connect::{ConnectConfig, Connector};
use curtail_http::tls::Trust;
use curtail_units::Duration;
use http::{HeaderMap, HeaderValue, header};
use http_body_util::Full;
use std::path::PathBuf;

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServerAccessArgs {
    /// Tenant of the data (X-Scope-OrgID) [default: the token's tenant, or the
    /// server's default tenant].
    #[arg(long, global = true, value_name = "NAME")]
    tenant: Option<String>,
    /// File with the bearer token to send.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File of trusted certificate authorities (PEM) for an https URL
    /// [default: the system's].
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Accept any certificate of the server; for tests only.
    #[arg(long, global = true, conflicts_with = "ca_file")]
    insecure: bool,
}

impl ServerAccessArgs {
    pub(crate) fn headers(&self) -> anyhow::Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        if let Some(tenant) = &self.tenant {
            let value = HeaderValue::try_from(tenant).ok().filter(|_| access::is_tenant(tenant));
            let expected = "--tenant: expected 1 to 255 characters of ASCII";
            headers.insert(TENANT, value.ok_or_else(|| usage_error(expected))?);
        }
        if let Some(file) = &self.token_file {
            let token = access::read_token(file);
            let token = token.with_context(|| format!("--token-file {}", file.display()))?;
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
            Trust::any_certificate()
        } else {
            let trust = Trust::load(self.ca_file.as_deref(), url.origin.tls);
            if self.ca_file.is_some() { trust.context("--ca-file")? } else { trust? }
        };
        let connect = ConnectConfig { timeout, ..ConnectConfig::default() };
        Ok(Client::new(Connector::new(&url.origin, &connect, &trust)?, limits))
    }
}
