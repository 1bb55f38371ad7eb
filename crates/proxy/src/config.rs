//! The proxy's configuration: what the YAML file says, as typed values.
//!
//! The keys, their meanings and their defaults are named here once; `curtail_config` makes the messages,
//! the reference page and the JSON Schema of them.

use curtail_config::{Mistakes, Section, Value, Wrong, policy};
use curtail_policy::{LeafConfig, UpstreamConfig};
use curtail_units::{Bytes, Duration};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// What a proxy is told to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Threads that serve; each has its own connections to the replicas.
    pub workers: usize,
    /// Where clients connect.
    pub listeners: Vec<ListenerConfig>,
    /// Which upstream answers which requests.
    pub routes: Vec<RouteConfig>,
    /// The upstreams by name.
    pub upstreams: Vec<NamedUpstream>,
    /// Leaves: queues in front of one server each.
    pub leaves: Vec<LeafListener>,
    /// Where metrics, health and state are served; absent: nowhere.
    pub admin: Option<SocketAddr>,
    /// Where spans are sent; absent: nowhere.
    pub spans: Option<SpansConfig>,
    /// What clients may ask of us.
    pub limits: Limits,
}

/// A port on which clients connect.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerConfig {
    /// Its name in metrics and messages.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// Its certificate; absent: clear text.
    pub tls: Option<ServerTls>,
}

/// The certificate of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerTls {
    /// The chain, PEM, the server's own certificate first.
    pub certificate_file: PathBuf,
    /// The private key, PEM.
    pub key_file: PathBuf,
}

/// Requests that go to one upstream.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteConfig {
    /// The host that requests name; absent: any.
    pub host: Option<String>,
    /// What their path begins with.
    pub path_prefix: String,
    /// Where they go.
    pub upstream: String,
    /// Whether they may be sent twice whatever their method.
    pub idempotent: bool,
}

/// An upstream and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedUpstream {
    /// Its name.
    pub name: String,
    /// The replicas that can answer the same requests.
    pub replicas: Vec<ReplicaUrl>,
    /// How connections to them are made.
    pub connect: ConnectConfig,
    /// How requests to it are treated.
    pub policy: UpstreamConfig,
}

/// How connections to replicas are made and kept.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectConfig {
    /// The version of HTTP.
    pub protocol: Protocol,
    /// A connection that takes longer, name lookup and TLS included, is given up.
    pub timeout: Duration,
    /// An unused connection is closed after this.
    pub idle_timeout: Duration,
    /// Unused HTTP/1.1 connections that are kept, for each replica and worker.
    pub idle_max: usize,
    /// HTTP/1.1 connections for each replica and worker; an attempt that would need one more is not sent.
    pub connections_max: usize,
    /// HTTP/2 connections for each replica and worker.
    pub http2_connections_max: usize,
    /// Certificate authorities to trust, PEM; absent: those of the system.
    pub ca_file: Option<PathBuf>,
}

impl Default for ConnectConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::Auto,
            timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            idle_max: 128,
            connections_max: 1_024,
            http2_connections_max: 4,
            ca_file: None,
        }
    }
}

/// The version of HTTP that is spoken with replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// What TLS negotiates; HTTP/1.1 in clear text.
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; in clear text with prior knowledge.
    Http2,
}

/// A leaf: the queue in front of one server.
#[derive(Clone, Debug, PartialEq)]
pub struct LeafListener {
    /// Its name.
    pub name: String,
    /// Where roots connect.
    pub address: SocketAddr,
    /// The server behind it.
    pub server: ReplicaUrl,
    /// How it queues.
    pub queue: LeafConfig,
    /// How connections to the server are made.
    pub connect: ConnectConfig,
}

/// Where spans are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct SpansConfig {
    /// An OTLP receiver.
    pub endpoint: ReplicaUrl,
    /// How it is spoken to.
    pub protocol: SpansProtocol,
    /// `service.name` of our own spans.
    pub service_name: String,
}

/// The transport of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpansProtocol {
    /// Protobuf in a POST to `/v1/traces`.
    Http,
    /// gRPC.
    Grpc,
}

/// What clients may ask of us; beyond it they get an error.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The head of one request: over HTTP/1.1 with its first line, over HTTP/2 names and values.
    pub headers: Bytes,
    /// A request whose head takes longer to arrive is refused.
    pub header_timeout: Duration,
    /// An HTTP/1.1 connection is kept for so long without a request, one of HTTP/2 without an answer to a ping.
    pub idle_timeout: Duration,
    /// A body that pauses for longer is refused; who takes nothing of its answer for so long has gone.
    pub body_timeout: Duration,
    /// A request body up to this size is kept so that it can be sent again.
    pub replay: Bytes,
    /// An answer up to this size is taken whole before it is given, so that one that breaks off can
    /// still be replaced by another.
    pub answer_held: Bytes,
    /// Client connections at once, for each listener.
    pub connections_max: usize,
    /// Requests in progress are given this long when the proxy is told to stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            headers: Bytes::from_kib(64),
            header_timeout: Duration::from_secs(10),
            // Longer than most clients keep it: they close first, and no request meets a closing connection.
            idle_timeout: Duration::from_secs(120),
            body_timeout: Duration::from_secs(30),
            replay: Bytes::from_kib(64),
            answer_held: Bytes::from_kib(64),
            connections_max: 16_384,
            drain: Duration::from_secs(10),
        }
    }
}

/// `http://host:port` or `https://host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaUrl {
    /// Whether TLS is spoken.
    pub tls: bool,
    /// The name or address to connect to, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl ReplicaUrl {
    /// Parses `http://host[:port]` or `https://host[:port]`, with no path.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let uri: http::Uri = text.parse().ok()?;
        let tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let bare = uri.path_and_query().is_none_or(|p| p.as_str() == "/");
        let authority = uri.authority().filter(|a| !a.as_str().contains('@'))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let host_only = authority.as_str().len() == authority.host().len();
        let port_said = authority.port().is_some();
        (bare && !host.is_empty() && (port_said || host_only)).then(|| Self {
            tls,
            host: host.to_owned(),
            port,
        })
    }

    /// `host:port`, with brackets around an IPv6 address.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl std::fmt::Display for ReplicaUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
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

impl Value for ReplicaUrl {
    const NOUN: &'static str = "the address of a server";
    const DETAIL: &'static str = "such as http://127.0.0.1:8080, without a path";

    fn read(scalar: &curtail_config::Scalar) -> Result<Self, Wrong> {
        let text = scalar.text().ok_or(Wrong::Kind)?;
        Self::parse(text).ok_or(Wrong::Kind)
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn placeholder() -> Self {
        Self { tls: false, host: "localhost".to_owned(), port: 80 }
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "string", "pattern": "^https?://[^/]+/?$" })
    }
}

impl Config {
    /// Reads the text of a configuration file; `file` names it in messages.
    ///
    /// # Errors
    /// All mistakes of the text.
    pub fn from_yaml(file: &str, text: &str) -> Result<Self, Mistakes> {
        curtail_config::read(file, text, Self::read)
    }

    /// One listener before some replicas, everything else by default.
    #[must_use]
    pub fn pass_through(listen: SocketAddr, replicas: Vec<ReplicaUrl>, admin: SocketAddr) -> Self {
        Self {
            workers: default_workers(),
            listeners: vec![ListenerConfig { name: "in".to_owned(), address: listen, tls: None }],
            routes: vec![RouteConfig {
                host: None,
                path_prefix: "/".to_owned(),
                upstream: "service".to_owned(),
                idempotent: false,
            }],
            upstreams: vec![NamedUpstream {
                name: "service".to_owned(),
                replicas,
                connect: ConnectConfig::default(),
                policy: UpstreamConfig::default(),
            }],
            leaves: Vec::new(),
            admin: Some(admin),
            spans: None,
            limits: Limits::default(),
        }
    }

    /// Reads a configuration section by section.
    pub fn read(s: &mut Section<'_>) -> Self {
        let config = Self {
            workers: s
                .field("workers", "Threads that serve; by default one for each core, at most 4.")
                .range(1..=256)
                .optional()
                .unwrap_or_else(default_workers),
            listeners: s.list("listeners", "Where clients connect.", listener),
            routes: s.list("routes", "Which upstream answers which requests.", route),
            upstreams: s.map(
                "upstreams",
                "Sets of replicas that can answer the same requests.",
                upstream,
            ),
            leaves: s.list("leaves", "Queues in front of one server each.", leaf),
            admin: s.optional_section("admin", "Metrics, health and state.", |s| {
                s.field("address", "Where they are served; never the address of traffic.")
                    .default(SocketAddr::from((Ipv4Addr::LOCALHOST, 7301)))
            }),
            spans: s.optional_section("spans", "Where spans are sent (OTLP).", spans),
            limits: s.section("limits", "What clients may ask of the proxy.", limits),
        };
        config.check(s);
        config
    }

    /// What only a look at several keys can tell.
    fn check(&self, s: &mut Section<'_>) {
        if self.listeners.is_empty() && self.leaves.is_empty() {
            s.mistake("listeners", "nothing to listen on: expected a listener or a leaf");
        }
        for (index, route) in self.routes.iter().enumerate() {
            if !self.upstreams.iter().any(|upstream| upstream.name == route.upstream) {
                let names: Vec<_> = self.upstreams.iter().map(|u| u.name.as_str()).collect();
                s.mistake(
                    "routes",
                    format!(
                        "routes[{index}].upstream: {:?} is not defined: expected one of upstreams ({})",
                        route.upstream,
                        names.join(", ")
                    ),
                );
            }
        }
        if !self.listeners.is_empty() && self.routes.is_empty() {
            s.mistake("routes", "clients have nowhere to go: expected at least one route");
        }
        for (index, upstream) in self.upstreams.iter().enumerate() {
            if self.upstreams[..index].iter().any(|other| other.name == upstream.name) {
                s.mistake("upstreams", format!("{:?} is defined twice", upstream.name));
            }
        }
        let traffic = self.listeners.iter().map(|l| l.address);
        let traffic = traffic.chain(self.leaves.iter().map(|l| l.address));
        if self.admin.is_some_and(|admin| admin.port() != 0 && traffic.clone().any(|t| t == admin))
        {
            s.mistake("admin", "the same address carries traffic: expected an address of its own");
        }
    }
}

/// More workers than this share the policies' locks without gain on most machines; `workers` overrides.
const WORKERS_DEFAULT_MAX: usize = 4;

fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_DEFAULT_MAX)
}

fn listener(s: &mut Section<'_>) -> ListenerConfig {
    ListenerConfig {
        name: s.field("name", "Its name in metrics and messages.").default("in".to_owned()),
        address: s.field("address", "The address to listen on.").required(),
        tls: s.optional_section("tls", "Its certificate; absent: clear text.", |s| ServerTls {
            certificate_file: s
                .field("certificate_file", "The certificate chain, PEM, the server's own first.")
                .required(),
            key_file: s.field("key_file", "The private key, PEM.").required(),
        }),
    }
}

fn route(s: &mut Section<'_>) -> RouteConfig {
    let route = RouteConfig {
        host: s.field("host", "The host that requests name; absent: any.").optional(),
        path_prefix: s.field("path_prefix", "What their path begins with.").default("/".to_owned()),
        upstream: s.field("upstream", "The name of the upstream that answers.").required(),
        idempotent: s
            .field("idempotent", "Whether they may be sent twice whatever their method.")
            .default(false),
    };
    if !route.path_prefix.starts_with('/') {
        s.mistake("path_prefix", format!("{:?} does not begin with /", route.path_prefix));
    }
    route
}

fn upstream(name: &str, s: &mut Section<'_>) -> NamedUpstream {
    let replicas: Vec<ReplicaUrl> =
        s.values("replicas", "The servers that can answer the same requests.");
    if replicas.is_empty() {
        s.mistake("replicas", "an upstream needs at least one: expected a list of addresses");
    }
    if replicas.len() > curtail_policy::REPLICAS_MAX {
        let max = curtail_policy::REPLICAS_MAX;
        s.mistake("replicas", format!("{} are too many: expected at most {max}", replicas.len()));
    }
    NamedUpstream {
        name: name.to_owned(),
        replicas,
        connect: s.section("connect", "How connections are made and kept.", connect),
        policy: policy::upstream(s),
    }
}

fn connect(s: &mut Section<'_>) -> ConnectConfig {
    let default = ConnectConfig::default();
    ConnectConfig {
        protocol: s
            .choice(
                "protocol",
                "The version of HTTP; auto: what TLS negotiates, HTTP/1.1 in clear text.",
                &[("auto", Protocol::Auto), ("http1", Protocol::Http1), ("http2", Protocol::Http2)],
            )
            .default(default.protocol),
        timeout: s
            .field("timeout", "A connection that takes longer to make is given up.")
            .default(default.timeout),
        idle_timeout: s
            .field("idle_timeout", "An unused connection is closed after this.")
            .default(default.idle_timeout),
        idle_max: s
            .field("idle_max", "Unused HTTP/1.1 connections kept, for each replica and worker.")
            .default(default.idle_max),
        connections_max: s
            .field("connections_max", "HTTP/1.1 connections, for each replica and worker.")
            .at_least(1)
            .default(default.connections_max),
        http2_connections_max: s
            .field("http2_connections_max", "HTTP/2 connections for each replica and worker.")
            .range(1..=64)
            .default(default.http2_connections_max),
        ca_file: s
            .field("ca_file", "Certificate authorities to trust, PEM; absent: the system's.")
            .optional(),
    }
}

fn leaf(s: &mut Section<'_>) -> LeafListener {
    LeafListener {
        name: s.field("name", "Its name in metrics and messages.").default("leaf".to_owned()),
        address: s.field("address", "Where roots connect.").required(),
        server: s.field("server", "The server behind it.").required(),
        queue: policy::leaf(s),
        connect: s.section("connect", "How connections to the server are made.", connect),
    }
}

fn spans(s: &mut Section<'_>) -> SpansConfig {
    SpansConfig {
        endpoint: s
            .field("endpoint", "An OTLP receiver, such as http://127.0.0.1:4318.")
            .required(),
        protocol: s
            .choice(
                "protocol",
                "http: protobuf to /v1/traces; grpc: the OTLP service.",
                &[("http", SpansProtocol::Http), ("grpc", SpansProtocol::Grpc)],
            )
            .default(SpansProtocol::Http),
        service_name: s
            .field("service_name", "service.name of the proxy's own spans.")
            .default("curtail-proxy".to_owned()),
    }
}

fn limits(s: &mut Section<'_>) -> Limits {
    let default = Limits::default();
    Limits {
        headers: s
            .field("headers", "The head of a request, all its fields together.")
            .range(Bytes::from_kib(8)..=Bytes::from_kib(1024))
            .default(default.headers),
        header_timeout: s
            .field("header_timeout", "A request whose head takes longer to arrive is refused.")
            .default(default.header_timeout),
        idle_timeout: s
            .field(
                "idle_timeout",
                "A client's connection is kept so long without a request; HTTP/2: without a pong.",
            )
            .default(default.idle_timeout),
        body_timeout: s
            .field("body_timeout", "A client may pause so long, sending a body or taking one.")
            .default(default.body_timeout),
        replay: s
            .field("replay", "A request body up to this size is kept to be sent again.")
            .default(default.replay),
        answer_held: s
            .field("answer_held", "An answer up to this size is taken whole before it is given.")
            .default(default.answer_held),
        connections_max: s
            .field("connections_max", "Client connections at once, for each listener.")
            .at_least(1)
            .default(default.connections_max),
        drain: s
            .field("drain", "Requests in progress are given this long to end when the proxy stops.")
            .default(default.drain),
    }
}

#[cfg(test)]
mod tests {
    use super::ReplicaUrl;

    #[test]
    fn an_address_is_written_as_it_was_read() {
        for url in
            ["http://a:1", "https://b.example:443", "http://[::1]:65535", "http://1.2.3.4:80"]
        {
            assert_eq!(ReplicaUrl::parse(url).expect(url).to_string(), url);
        }
        let port = |text| ReplicaUrl::parse(text).map(|url| url.port);
        assert_eq!(port("http://a"), Some(80));
        assert_eq!(port("https://a/"), Some(443));
        for wrong in
            ["a:1", "ftp://a:1", "http://", "http://a:1/path", "http://u@a:1", "http://a:x"]
        {
            assert_eq!(port(wrong), None, "{wrong}");
        }
    }
}
