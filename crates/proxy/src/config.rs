//! The proxy's configuration: the YAML file as typed values.
//!
//! The keys, their meanings and their defaults are named here once; `curtail_config` derives the messages, the
//! reference page and the JSON Schema from them.

mod access_log;
mod connect;
mod consistency;
mod discovery;
mod fan_out;
mod header_changes;
mod health_check;
mod limits;
mod listen_address;
mod listener;
mod network;
mod replica;
mod restart;
mod route_changes;
mod route_limits;
mod route_overrides;
mod tenants;

pub use access_log::AccessLogConfig;
pub use discovery::{
    AddressFamilies, ControlPlaneAccess, DiscoveryConfig, DiscoverySource, DnsConfig, DnsRecords,
    DnsSource, EdsSource, FileSource, HttpSource, KubernetesSource, PortSelector,
};
pub use fan_out::{FanOutConfig, FanOutTo, Merge};
pub use header_changes::HeaderChanges;
pub(crate) use header_changes::{HeaderValue, ValueField, ValuePart};
pub use health_check::{HealthCheckConfig, HealthCheckKind};
pub use limits::Limits;
pub use listen_address::ListenAddress;
pub use listener::{FileMode, ListenerConfig, PrecedingProxies};
pub use network::{ClientRange, Network};
pub use replica::{Placement, ReplicaConfig, ReplicaUrl};
pub(crate) use replica::{ZoneSide, parse_weight};
pub use restart::RestartConfig;
pub use route_changes::{RedirectConfig, RouteChanges, Scheme};
pub use route_limits::{ClientLimit, RouteLimitsConfig, TenantLimit};
pub(crate) use route_overrides::FAILED_STATUSES;
pub use route_overrides::RouteOverrides;
pub use tenants::TenantsConfig;

pub use curtail_config::ServerTls;
use curtail_config::{ConfigErrors, Section, policy};
use curtail_http::access::is_tenant;
pub use curtail_http::connect::{ConnectConfig, Protocol};
use curtail_http::tls::{self, ServerConfig, TlsError, Trust};
use curtail_policy::{LeafConfig, RemedyMode, UpstreamConfig};
use curtail_units::{Duration, Ratio};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// The configuration of a proxy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Number of worker threads; each has its own connections to the replicas.
    pub workers: usize,
    /// The zone of the proxy, if it is known.
    pub zone: Option<String>,
    /// Listeners for clients.
    pub listeners: Vec<ListenerConfig>,
    /// Proxies in front of this one; their `X-Forwarded-*` headers are kept.
    pub trusted_proxies: Arc<[ClientRange]>,
    /// The rules that select the upstream of a request.
    pub routes: Vec<RouteConfig>,
    /// The upstreams by name.
    pub upstreams: Vec<NamedUpstream>,
    /// Leaves: queues, each in front of one server.
    pub leaves: Vec<LeafListener>,
    /// The address of the admin port, for metrics, health and state; absent: none.
    pub admin: Option<SocketAddr>,
    /// The export of spans; absent: none.
    pub spans: Option<SpansConfig>,
    /// The lookup of names for `discovery`.
    pub dns: DnsConfig,
    /// Latencies by tenant; absent: none.
    pub tenants: Option<TenantsConfig>,
    /// The access log; absent: none.
    pub access_log: Option<AccessLogConfig>,
    /// Limits for clients.
    pub limits: Limits,
    /// The restart without interruption; absent: the next process opens the addresses itself.
    pub restart: Option<RestartConfig>,
}

pub(crate) fn load_listener_tls(tls: &ServerTls) -> Result<Arc<ServerConfig>, TlsError> {
    tls::listener_config(&tls.certificates, tls.client_ca_file.as_deref())
}

/// The certificates of connections to `replicas`.
pub(crate) fn load_trust<'u>(
    connect: &ConnectConfig,
    mut replicas: impl Iterator<Item = &'u ReplicaUrl>,
) -> Result<Trust, TlsError> {
    connect.load_trust(replicas.any(|replica| replica.tls))
}

/// A rule that sends requests to one upstream, or to many at once.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteConfig {
    /// The host that requests name; absent: any.
    pub host: Option<String>,
    /// The prefix of the request path, which ends at a segment.
    pub path_prefix: String,
    /// The upstream that serves the requests; with a fan-out, every upstream that this name or pattern selects. Absent:
    /// the route redirects all requests.
    pub upstream: Option<String>,
    /// The fan-out of the requests; absent: each request goes to one upstream.
    pub fan_out: Option<FanOutConfig>,
    /// Whether servers may execute the requests twice, whatever their method.
    pub idempotent: bool,
    /// The maximum time from a request to its response; absent: that of the upstream.
    pub timeout: Option<Duration>,
    /// The settings that override the upstream and `limits`.
    pub overrides: RouteOverrides,
    /// The changes of the requests and responses.
    pub changes: RouteChanges,
    /// The limits on its requests; absent: none.
    pub limits: Option<RouteLimitsConfig>,
}

impl RouteConfig {
    /// The route in metrics and logs: its host, if it has one, and its path prefix.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}{}", self.host.as_deref().unwrap_or_default(), self.path_prefix)
    }
}

/// An upstream and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedUpstream {
    /// Its name.
    pub name: String,
    /// The replicas that can serve the same requests, without those of `discovery`.
    pub replicas: Vec<ReplicaConfig>,
    /// The source of further replicas; absent: none.
    pub discovery: Option<DiscoveryConfig>,
    /// The group with which it shares budget and recent latencies, if any.
    pub group: Option<String>,
    /// The zone of the proxy, if it is known.
    pub zone: Option<String>,
    /// The share of requests that go without hedges and ties; absent: none.
    pub holdout: Option<Ratio>,
    /// The share of time blocks in which no request gets hedges and ties; absent: none.
    pub switchback: Option<Ratio>,
    /// The maximum number of requests in flight; absent: no limit.
    pub in_flight_max: Option<usize>,
    /// The configuration of connections to the replicas.
    pub connect: ConnectConfig,
    /// The health checks of the replicas; absent: none.
    pub health_check: Option<HealthCheckConfig>,
    /// The policies for the requests.
    pub policy: UpstreamConfig,
}

impl NamedUpstream {
    /// The URLs of the replicas in the file, and of those that are discovered.
    pub(crate) fn urls(&self) -> Vec<ReplicaUrl> {
        let replicas = self.replicas.iter().map(|replica| replica.url.clone());
        replicas.chain(self.discovery.as_ref().map(DiscoveryConfig::server_url)).collect()
    }
}

/// A leaf: the queue in front of one server.
#[derive(Clone, Debug, PartialEq)]
pub struct LeafListener {
    /// Its name.
    pub name: String,
    /// The address for roots.
    pub address: SocketAddr,
    /// The server behind it.
    pub server: ReplicaUrl,
    /// The limits of the queue.
    pub queue: LeafConfig,
    /// The configuration of connections to the server.
    pub connect: ConnectConfig,
}

/// The receiver of spans.
#[derive(Clone, Debug, PartialEq)]
pub struct SpansConfig {
    /// The address of the OTLP receiver.
    pub endpoint: ReplicaUrl,
    /// The transport of spans to the receiver.
    pub protocol: SpansProtocol,
    /// The `service.name` of the proxy's own spans.
    pub service_name: String,
    /// Trusted certificate authorities (PEM); absent: the system's.
    pub ca_file: Option<PathBuf>,
    /// The file of the bearer token that is sent.
    pub token_file: Option<PathBuf>,
    /// The tenant of the spans; absent: the receiver's choice.
    pub tenant: Option<String>,
}

/// The transport of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpansProtocol {
    /// Protobuf in a POST to `/v1/traces`.
    Http,
    /// gRPC.
    Grpc,
}

impl Config {
    /// Reads the text of a configuration file; `file` names it in messages.
    ///
    /// # Errors
    /// All errors of the text.
    pub fn from_yaml(file: &str, text: &str) -> Result<Self, ConfigErrors> {
        curtail_config::read(file, text, Self::read)
    }

    /// Sets the zone of the proxy to the value of the environment variable `CURTAIL_ZONE`, if the file has none. Platforms
    /// set environment variables more easily than files.
    ///
    /// # Errors
    /// The value is not a name.
    pub(crate) fn or_environment_zone(mut self, value: Option<&OsStr>) -> Result<Self, String> {
        if let Some(value) = value.filter(|value| self.zone.is_none() && !value.is_empty()) {
            let zone = value.to_string_lossy().into_owned();
            replica::check_name(&zone)
                .map_err(|error| format!("environment variable CURTAIL_ZONE: {error}"))?;
            self.zone = Some(zone);
        }
        Ok(self.with_zone_in_upstreams())
    }

    fn with_zone_in_upstreams(mut self) -> Self {
        self.upstreams.iter_mut().for_each(|upstream| upstream.zone.clone_from(&self.zone));
        self
    }

    /// The keys whose values differ from those of `other`.
    pub(crate) fn changed_keys(&self, other: &Self) -> Vec<String> {
        let sections = [
            ("zone", self.zone != other.zone),
            ("trusted_proxies", self.trusted_proxies != other.trusted_proxies),
            ("routes", self.routes != other.routes),
            ("admin", self.admin != other.admin),
            ("dns", self.dns != other.dns),
            ("spans", self.spans != other.spans),
            ("tenants", self.tenants != other.tenants),
            ("access_log", self.access_log != other.access_log),
            ("limits", self.limits != other.limits),
            ("restart", self.restart != other.restart),
        ];
        let sections = sections.iter().filter(|(_, is_changed)| *is_changed);
        let listeners =
            changed("listeners", (&self.listeners, &other.listeners), |listener| &listener.name);
        let leaves = changed("leaves", (&self.leaves, &other.leaves), |leaf| &leaf.name);
        let upstreams =
            changed("upstreams", (&self.upstreams, &other.upstreams), |upstream| &upstream.name);
        let sections = sections.map(|(key, _)| (*key).to_owned());
        listeners.into_iter().chain(leaves).chain(sections).chain(upstreams).collect()
    }

    /// The configuration of a command line: one listener in front of the replicas of the upstream `service`, with
    /// defaults for all other keys, changed by `sets`.
    ///
    /// # Errors
    /// All errors of the arguments.
    pub fn from_arguments(
        listen: SocketAddr,
        replicas: &[ReplicaUrl],
        admin: SocketAddr,
        sets: &[String],
    ) -> Result<Self, ConfigErrors> {
        let replicas: Vec<String> = replicas.iter().map(ToString::to_string).collect();
        // JSON is YAML: arguments get the same checks as a file.
        let text = serde_json::json!({
            "listeners": [{ "address": listen }],
            "routes": [{ "upstream": "service" }],
            "upstreams": { "service": { "replicas": replicas } },
            "admin": { "address": admin },
        });
        curtail_config::read_with_sets("", &text.to_string(), sets, Self::read)
    }

    /// Reads a configuration section by section.
    pub fn read(s: &mut Section<'_>) -> Self {
        let config = Self {
            workers: s
                .field(
                    "workers",
                    "Number of worker threads; by default one for each core, at most 4.",
                )
                .range(1..=256)
                .optional()
                .unwrap_or_else(default_workers),
            zone: s
                .field("zone", "Zone of the proxy. First attempts go to replicas in this zone while these carry them; absent: the environment variable CURTAIL_ZONE, or all zones are alike.")
                .optional(),
            listeners: s.list("listeners", "Addresses on which the proxy accepts requests; absent: none.", listener::read),
            trusted_proxies: s.values::<ClientRange>(
                "trusted_proxies",
                "Addresses of clients that are proxies themselves, or `unix:` for those of Unix sockets. The proxy keeps the X-Forwarded-* headers of these clients, and replaces those of all other clients.",
            )
            .into(),
            routes: s.list("routes", "Rules that select the upstream of a request.", route),
            upstreams: s.map(
                "upstreams",
                "Sets of replicas that serve the same requests.",
                upstream,
            ),
            dns: s.section("dns", "Lookup of the names of `upstreams.<name>.discovery`.", discovery::read_dns),
            leaves: s.list("leaves", "Leaves: queues, each in front of one server.", leaf),
            admin: s.optional_section("admin", "Server of metrics, health and state; absent: none. `admin: {}` opens its default address.", |s| {
                s.field("address", "Address to listen on; not the address of a listener or leaf.")
                    .default(SocketAddr::from((Ipv4Addr::LOCALHOST, 7301)))
            }),
            spans: s.optional_section("spans", "Receiver of the proxy's spans (OTLP).", spans),
            tenants: s.optional_section(
                "tenants",
                "Percentiles by tenant, in /tenants, and by the decade of a tenant's size, in /metrics. The tenant of a request is its owner.",
                tenants::read,
            ),
            access_log: s.optional_section(
                "access_log",
                "Log of the requests of clients: one line for each. Failed requests are always logged.",
                access_log::read,
            ),
            limits: s.section(
                "limits",
                "Limits on clients: sizes, timeouts and connections.",
                limits::read,
            ),
            restart: s.optional_section(
                "restart",
                "Restart without interruption: a new process takes over the listeners of the old one.",
                restart::read,
            ),
        };
        consistency::check(&config, s);
        config.with_zone_in_upstreams()
    }
}

/// The parts of a section that only one of two configurations has, by name.
fn changed<T: PartialEq>(
    section: &str,
    (one, other): (&[T], &[T]),
    name: impl Fn(&T) -> &String,
) -> Vec<String> {
    let is_in_both = |part: &&T| one.contains(part) && other.contains(part);
    let parts = one.iter().chain(other).filter(|part| !is_in_both(part));
    let names: BTreeSet<_> = parts.map(name).collect();
    names.into_iter().map(|name| format!("{section}.{name}")).collect()
}

/// The default is at most this number: on most machines, more workers only share the policies' locks without gain.
const WORKERS_DEFAULT_MAX: usize = 4;

fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_DEFAULT_MAX)
}

fn route(s: &mut Section<'_>) -> RouteConfig {
    let route = RouteConfig {
        host: s.field("host", "Host of the request; absent: any host.").optional(),
        path_prefix: s
            .field(
                "path_prefix",
                "Path prefix that ends at a segment: /api matches /api and /api/x, not /apix; /api/ \
                 matches /api/x, not /api.",
            )
            .default("/".to_owned()),
        upstream: s
            .field(
                "upstream",
                "Name of the upstream for these requests. With `fan_out`, `shard-*` selects all upstreams whose names begin with `shard-`. Required without `redirect`.",
            )
            .optional(),
        fan_out: s.optional_section(
            "fan_out",
            "Sends each request to all upstreams that the key `upstream` selects (the shards), or to all replicas of one upstream, and merges their responses in the order of the file.",
            fan_out::read,
        ),
        idempotent: s
            .field("idempotent", "Whether servers may execute these requests twice, whatever their method.")
            .default(false),
        timeout: s
            .field("timeout", "Maximum time from the headers of a request to its response, the upload included. Then the request fails. With `fan_out`, that of each call. Absent: the `timeout` of the upstream.")
            .at_least(Duration::from_ms(1))
            .optional(),
        overrides: route_overrides::read(s),
        changes: route_changes::read(s),
        limits: s.optional_section(
            "limits",
            "Limits on the requests of the route. The proxy rejects requests beyond them, with 429 (rate) or 503 (in flight) and `retry-after`; no replica gets them.",
            route_limits::read,
        ),
    };
    check_route(s, &route);
    route
}

fn check_route(s: &mut Section<'_>, route: &RouteConfig) {
    check_prefix(s, "path_prefix", &route.path_prefix);
    route_changes::check(route, s);
    route_overrides::check(route, s);
    if let Some(host) = route.host.as_deref().filter(|host| !is_host(host)) {
        let text = "expected a name or an address without a port, such as search.example.org";
        s.value_error("host", format!("{host:?} matches no request: {text}"));
    }
}

/// Maximum length of a path prefix: many servers accept no longer request line.
const PREFIX_BYTES_MAX: usize = 8_192;

/// Reports an error if `prefix`, the value of `key`, is not a path that every server reads in the same way.
fn check_prefix(s: &mut Section<'_>, key: &str, prefix: &str) {
    if prefix.len() > PREFIX_BYTES_MAX {
        let text = format!("has {} bytes: expected at most {PREFIX_BYTES_MAX}", prefix.len());
        s.value_error(key, text);
    } else if !prefix.starts_with('/') {
        s.value_error(key, format!("{prefix:?} does not begin with /"));
    } else if !prefix.bytes().all(is_path_byte) {
        let text = "contains a character that is not valid in a request path: expected a path such as /search or /a%20b";
        s.value_error(key, format!("{prefix:?} {text}"));
    } else if !is_percent_encoding(prefix) {
        let text = "has a % without two hexadecimal digits: expected a path such as /search or /a%20b; %25 stands for %";
        s.value_error(key, format!("{prefix:?} {text}"));
    } else if prefix.split('/').any(|segment| matches!(segment, "*" | "**")) {
        let text =
            "has a wildcard: expected a prefix without one, which matches all paths below it";
        s.value_error(key, format!("{prefix:?} {text}"));
    } else if !crate::route::path::is_prefix(prefix) {
        let text = "is not normalized: expected a path without //, . or .. segments, ;, \\ and NUL, in any encoding";
        s.value_error(key, format!("{prefix:?} {text}"));
    }
}

/// Whether a path can contain this byte: visible ASCII, except the start of a query or a fragment.
const fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#')
}

/// Whether two hexadecimal digits follow each percent sign.
fn is_percent_encoding(path: &str) -> bool {
    let is_encoded = |rest: &str| {
        let digits = rest.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    path.split('%').skip(1).all(is_encoded)
}

/// Whether a request can name this host: it has no port, no scheme and no pattern.
fn is_host(host: &str) -> bool {
    let authority = host.parse::<http::uri::Authority>();
    authority.is_ok_and(|authority| authority.host() == host && !host.contains('*'))
}

fn upstream(name: &str, s: &mut Section<'_>) -> NamedUpstream {
    let replicas: Vec<ReplicaConfig> = s.values(
        "replicas",
        "Servers that can serve the same requests. A replica written as NAME=URL keeps its learned latencies when its URL changes. With `weight=W` behind the URL, from 0 to 65535 (default 1), it gets W times the requests of a replica of weight 1; 0: no requests. With `zone=Z`, it is in this zone; absent: unknown.",
    );
    let discovery = s.optional_section(
        "discovery",
        "Source of replicas beside those of `replicas`. They join and leave as the source says, without a reload. Expected: one of `dns`, `srv`, `kubernetes`, `eds`, `file` and `http`.",
        discovery::read,
    );
    if replicas.is_empty() && discovery.is_none() {
        let text = "an upstream needs at least one replica: expected a list of addresses, or the section discovery";
        s.conflict("replicas", &["discovery"], text);
    }
    if replicas.len() > curtail_policy::REPLICAS_MAX {
        let max = curtail_policy::REPLICAS_MAX;
        s.value_error(
            "replicas",
            format!("{} are too many: expected at most {max}", replicas.len()),
        );
    }
    let (group, holdout) = (policy::group(s), policy::holdout(s));
    let upstream = NamedUpstream {
        name: name.to_owned(),
        replicas,
        discovery,
        group,
        zone: None,
        // 0 disables the holdout.
        holdout: holdout.filter(|ratio| *ratio != Ratio::ZERO),
        switchback: policy::switchback(s),
        in_flight_max: s
            .field("in_flight_max", "Maximum number of requests of clients in flight, streams included; the proxy rejects others with 503. Absent: no limit.")
            .at_least(1)
            .optional(),
        connect: s.section("connect", "Connections to the replicas.", connect::read_for_clients),
        health_check: s.optional_section(
            "health_check",
            "Health checks: requests of the proxy to each replica. An unhealthy replica gets no other requests, unless no replica is healthy.",
            health_check::read,
        ),
        policy: policy::upstream(s),
    };
    if let Some(health_check) = &upstream.health_check {
        let has_tls = upstream.urls().iter().all(|url| url.tls);
        health_check::check(s, health_check, &upstream.connect, has_tls);
    }
    if upstream.policy.remedy == RemedyMode::Auto && holdout == Some(Ratio::ZERO) {
        let text = "remedy: auto needs a holdout: expected a ratio above 0, or no key for one request in ten";
        s.conflict("holdout", &["remedy"], text);
    }
    upstream
}

/// The name of a leaf without one.
const LEAF_NAME_DEFAULT: &str = "leaf";

fn leaf(s: &mut Section<'_>) -> LeafListener {
    LeafListener {
        name: s
            .field("name", "Name in metrics and messages.")
            .default(LEAF_NAME_DEFAULT.to_owned()),
        address: s.field("address", "Address to listen on; roots connect to it.").required(),
        server: s.field("server", "Address of the server.").required(),
        queue: policy::leaf(s, LeafConfig::default()),
        connect: s.section("connect", "Connections to the server.", connect::read),
    }
}

fn spans(s: &mut Section<'_>) -> SpansConfig {
    let config = SpansConfig {
        endpoint: s
            .field("endpoint", "Address of the OTLP receiver, such as http://127.0.0.1:4318.")
            .required(),
        protocol: s
            .choice(
                "protocol",
                "Protocol. `http`: OTLP as protobuf to /v1/traces. `grpc`: OTLP over gRPC.",
                &[("http", SpansProtocol::Http), ("grpc", SpansProtocol::Grpc)],
            )
            .default(SpansProtocol::Http),
        service_name: s
            .field("service_name", "service.name of the proxy's own spans.")
            .default("curtail-proxy".to_owned()),
        ca_file: s
            .field("ca_file", "Trusted certificate authorities (PEM file); absent: the system's.")
            .optional(),
        token_file: s
            .field("token_file", "File of the bearer token for the receiver. The proxy reads it again for each batch.")
            .optional(),
        tenant: s
            .field("tenant", "Tenant of the spans (X-Scope-OrgID); absent: the tenant of the token, or the receiver's default tenant.")
            .optional(),
    };
    if config.tenant.as_ref().is_some_and(|tenant| !is_tenant(tenant)) {
        s.value_error("tenant", "expected 1 to 255 characters of ASCII");
    }
    config
}
