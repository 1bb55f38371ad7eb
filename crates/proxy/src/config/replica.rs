//! Replicas as values of the configuration: an address, and a name that outlives the address.

use curtail_config::{Scalar, ScalarError, Value, displayed_value};
use curtail_http::origin::ServerOrigin;
use std::net::SocketAddr;
use std::ops::Deref;

/// The address of a replica, as a value of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaUrl(ServerOrigin);

impl ReplicaUrl {
    /// Parses `http://host[:port]`, `https://host[:port]` or `http://unix:/path`, with no path of HTTP.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        ServerOrigin::parse_with_unix(text).map(Self)
    }

    pub(crate) const fn of(origin: ServerOrigin) -> Self {
        Self(origin)
    }

    /// The same scheme and port at another host.
    pub(crate) fn with_host(&self, host: &str) -> Self {
        Self(ServerOrigin { host: host.to_owned(), ..self.0.clone() })
    }
}

impl Deref for ReplicaUrl {
    type Target = ServerOrigin;

    fn deref(&self) -> &ServerOrigin {
        &self.0
    }
}

impl std::fmt::Display for ReplicaUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for ReplicaUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| {
            format!("{text:?} is not {} {}", <Self as Value>::NOUN, <Self as Value>::DETAIL)
        })
    }
}

displayed_value!(
    ReplicaUrl,
    "the address of a server",
    "such as http://127.0.0.1:8080, without a path, or http://unix:/run/app.sock",
    |scalar: &Scalar| scalar.text().and_then(Self::parse).ok_or(ScalarError::Kind),
    Self(ServerOrigin { tls: false, host: "localhost".to_owned(), port: 80 }),
    { "type": "string", "pattern": "^(https?://[^/]+/?|http://unix:/.+)$" }
);

/// A replica of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// Its name, which identifies it across reloads; absent: its URL does.
    pub name: Option<String>,
    /// Its address. That of a discovered replica has the name that certificates are checked for.
    pub url: ReplicaUrl,
    /// The address of a discovered replica, which is its identity; absent: the host of the URL is looked up.
    pub address: Option<SocketAddr>,
}

/// A longer name is an error: the journal writes it once for each start and each reload.
const NAME_LEN_MAX: usize = 64;

impl ReplicaConfig {
    /// The replica at `url`, without a name.
    #[must_use]
    pub const fn unnamed(url: ReplicaUrl) -> Self {
        Self { name: None, url, address: None }
    }

    /// The replica that was discovered at `address`, whose certificate is checked for the host of `url`.
    #[must_use]
    pub const fn discovered(url: ReplicaUrl, address: SocketAddr) -> Self {
        Self { name: None, url, address: Some(address) }
    }

    /// The identity of the replica across reloads and lookups.
    #[must_use]
    pub fn identity(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.server().to_string())
    }

    /// The server by address, if the replica was discovered, else as the file names it.
    #[must_use]
    pub fn server(&self) -> ReplicaUrl {
        match self.address {
            Some(address) => {
                ReplicaUrl(ServerOrigin { tls: self.url.tls, ..ServerOrigin::from(address) })
            }
            None => self.url.clone(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let Some((name, url)) = text.split_once('=') else {
            return ReplicaUrl::parse(text).map(Self::unnamed);
        };
        let is_in_name =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_name = (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_in_name);
        let url = ReplicaUrl::parse(url).filter(|_| is_name)?;
        Some(Self { name: Some(name.to_owned()), ..Self::unnamed(url) })
    }
}

impl std::fmt::Display for ReplicaConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        self.server().fmt(f)
    }
}

displayed_value!(
    ReplicaConfig,
    "a replica",
    "such as http://127.0.0.1:8080 or a=http://127.0.0.1:8080, without a path, or http://unix:/run/app.sock",
    |scalar: &Scalar| scalar.text().and_then(Self::parse).ok_or(ScalarError::Kind),
    Self::unnamed(ReplicaUrl::placeholder()),
    { "type": "string", "pattern": "^([A-Za-z0-9_.-]+=)?(https?://[^/]+/?|http://unix:/.+)$" }
);
