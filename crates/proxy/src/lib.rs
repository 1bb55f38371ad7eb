//! The proxy: the driver of the policies over HTTP, for the root side and the leaf side of a service.
//!
//! [`start`] starts a proxy on threads of its own, and returns when the proxy listens; [`Running`] is the handle to it.
//! The command line ([`cli`]) adds signals, reloading and logs.
//!
//! The path of a request: [`listen`] accepts its connection, [`serve`] reads the request, [`request`] routes and
//! classifies it, [`leaf`] admits it, [`root`] sends its attempts as the machines decide ([`driver`]), and [`response`]
//! passes the response on. Its [`trail`] waits in [`finished`], and becomes [`spans`] and a line of the [`access_log`]. Counts go to
//! [`metrics`], which [`admin`] shows.

mod access_log;
mod admin;
mod check;
pub mod cli;
mod client;
mod config;
mod discovery;
mod driver;
mod effects;
mod fan_out;
mod finished;
mod group;
mod grpc_call;
mod guard;
mod health;
mod holdout;
mod journal;
mod leaf;
mod leaf_headers;
mod listen;
mod listeners;
pub mod log;
mod metrics;
mod probe;
mod remedy;
mod replica;
mod request;
mod response;
mod restart;
mod root;
mod route;
mod route_limits;
mod running;
mod serve;
pub mod signals;
mod snapshot;
mod spans;
mod switchback;
mod template;
mod tenants;
mod trace_context;
mod trail;
mod tunnel;
mod watch;
mod worker;

pub use check::check;
pub use config::{
    AccessLogConfig, AddressFamilies, ClientLimit, ClientRange, Config, ConnectConfig,
    ControlPlaneAccess, DiscoveryConfig, DiscoverySource, DnsConfig, DnsRecords, DnsSource,
    EdsSource, FanOutConfig, FanOutTo, FileMode, FileSource, HeaderChanges, HealthCheckConfig,
    HealthCheckKind, HttpSource, KubernetesSource, LeafListener, Limits, ListenAddress,
    ListenerConfig, Merge, NamedUpstream, Network, Placement, PortSelector, PrecedingProxies,
    Protocol, RedirectConfig, ReplicaConfig, ReplicaUrl, RestartConfig, RouteChanges, RouteConfig,
    RouteLimitsConfig, RouteOverrides, Scheme, ServerTls, SpansConfig, SpansProtocol, TenantLimit,
    TenantsConfig,
};
pub use metrics::reference as metrics_reference;
pub use restart::old_process::NewProcess;
pub use running::{Options, ReloadError, Running, start};

use curtail_config::KeyError;
use std::path::PathBuf;

/// The user agent of the proxy's own requests.
pub(crate) const USER_AGENT: &str = concat!("curtail-proxy/", env!("CARGO_PKG_VERSION"));

/// The error of a proxy that does not start, or does not apply a new configuration.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("listener {name:?}: cannot listen on {address}: {source}")]
    Listen { name: String, address: ListenAddress, source: std::io::Error },
    /// A certificate, key, authority or name cannot be used.
    #[error(transparent)]
    Tls(#[from] curtail_http::tls::TlsError),
    /// The file of a token cannot be used.
    #[error("{}: {source}", file.display())]
    Token { file: PathBuf, source: std::io::Error },
    /// The file of the access log cannot be opened.
    #[error("{}: {source}", file.display())]
    AccessLog { file: PathBuf, source: std::io::Error },
    /// There are no name servers.
    #[error(
        "the name servers of /etc/resolv.conf cannot be used, and dns.servers has none: {source}"
    )]
    NameServers { source: hickory_resolver::net::NetError },
    /// The journal cannot be written.
    #[error("{}: the journal cannot be written: {source}", file.display())]
    Journal { file: PathBuf, source: std::io::Error },
    /// The socket of the restart cannot be used.
    #[error("restart.socket {}: {source}", socket.display())]
    Restart { socket: PathBuf, source: std::io::Error },
    /// A source of replicas has not responded, and the old process has its replicas.
    #[error("{origin}: {error}: the old process, which may have replicas, serves on")]
    Discovery { origin: String, error: String },
    /// A new process has taken over the listeners.
    #[error("a new process has taken over the listeners: reload that one")]
    Replaced,
    /// A key of the configuration, or a section, is not usable.
    #[error("{key}: {error}")]
    Key { key: String, error: Box<Self> },
    /// The system gives no thread or no runtime.
    #[error("a worker cannot be started: {0}")]
    Worker(#[from] std::io::Error),
}

impl StartError {
    /// The same error, with its key of the configuration.
    fn within(self, key: String) -> Self {
        Self::Key { key, error: Box::new(self) }
    }

    /// The error as one about a key, if it is.
    #[must_use]
    pub fn key_error(&self) -> Option<KeyError> {
        let Self::Key { key, error } = self else { return None };
        Some(KeyError::new(key, error.to_string()))
    }
}
