//! The keys of the app's file.

use curtail_config::Section;
use curtail_model::Distribution;
use curtail_units::{Bytes, Duration, Ratio};
use std::net::{Ipv4Addr, SocketAddr};

/// The configuration of the app.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The name of the app, for people.
    pub name: String,
    pub(crate) causes: Causes,
    pub(crate) client: ClientConfig,
    /// The storage.
    pub storage: StorageConfig,
    /// The server.
    pub server: ServerConfig,
}

/// The causes of the app's tail; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Causes {
    pub(crate) large_payloads: bool,
    pub(crate) short_timeouts: bool,
    pub(crate) retries: bool,
    /// The role on whose thread another job runs.
    pub(crate) cpu_load: Option<Role>,
}

/// A role of the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The app whose latency is measured.
    Client,
    /// The storage of payloads.
    Storage,
    /// The server that processes payloads.
    Server,
}

/// The configuration of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) connect_timeout: Duration,
    pub(crate) storage_timeout: Duration,
    pub(crate) server_timeout: Duration,
    pub(crate) server_timeout_short: Duration,
    pub(crate) attempts_max: u32,
    pub(crate) backoff: Duration,
}

/// The configuration of the storage.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    pub(crate) service: Distribution,
    pub(crate) bytes_per_second: Bytes,
}

/// The configuration of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    pub(crate) service: Distribution,
    pub(crate) refused: Ratio,
}

/// Maximum of all timeouts and of the backoff.
const WAIT_MAX: Duration = Duration::from_secs(60);

impl Role {
    /// All roles, in the order in which they are started.
    pub const ALL: [Self; 3] = [Self::Storage, Self::Server, Self::Client];

    /// The name in configurations and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Storage => "storage",
            Self::Server => "server",
        }
    }
}

impl Config {
    /// Reads the keys, for a process that runs `roles`.
    pub fn read(s: &mut Section<'_>, roles: &[Role]) -> Self {
        let config = Self {
            name: s.field("name", "Name of the app.").required(),
            causes: Causes::read(s),
            client: s.section(
                "client",
                "The client, whose latency is measured.",
                ClientConfig::read,
            ),
            storage: s.section("storage", "The storage of payloads.", StorageConfig::read),
            server: s.section("server", "The server that processes payloads.", ServerConfig::read),
        };
        for role in [Role::Storage, Role::Server] {
            let is_elsewhere = roles.contains(&Role::Client) && !roles.contains(&role);
            if is_elsewhere && config.address(role).port() == 0 {
                let text = "port 0 is any: expected the port on which the client finds it";
                s.error(role.name(), text);
            }
        }
        config
    }

    /// The configured address of a role.
    #[must_use]
    pub const fn address(&self, role: Role) -> SocketAddr {
        match role {
            Role::Client => self.client.listen,
            Role::Storage => self.storage.listen,
            Role::Server => self.server.listen,
        }
    }
}

impl Causes {
    fn read(s: &mut Section<'_>) -> Self {
        let whose = [
            ("none", None),
            ("client", Some(Role::Client)),
            ("storage", Some(Role::Storage)),
            ("server", Some(Role::Server)),
        ];
        Self {
            large_payloads: s
                .field(
                    "large_payloads",
                    "Whether /payload/large has 100,000 numbers instead of 500.",
                )
                .default(false),
            short_timeouts: s
                .field(
                    "short_timeouts",
                    "Whether the client waits only server_timeout_short for the server.",
                )
                .default(false),
            retries: s
                .field(
                    "retries",
                    "Whether the server rejects some requests, which the client retries after \
                    a backoff.",
                )
                .default(false),
            cpu_load: s
                .choice(
                    "cpu_load",
                    "Role whose thread also runs another computation, in slices of 10 ms.",
                    &whose,
                )
                .default(None),
        }
    }
}

fn listen(s: &mut Section<'_>) -> SocketAddr {
    s.field("listen", "Address to listen on; port 0: a free port.")
        .default(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

fn service(s: &mut Section<'_>, doc: &'static str, median: Duration, sigma: f64) -> Distribution {
    s.optional_section("service", doc, Distribution::read)
        .unwrap_or(Distribution::Lognormal { median, sigma })
}

impl ClientConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let listen = listen(s);
        let mut wait = |key, doc, ms| {
            s.field(key, doc).range(Duration::from_ms(1)..=WAIT_MAX).default(Duration::from_ms(ms))
        };
        Self {
            listen,
            connect_timeout: wait("connect_timeout", "How long it waits for a connection.", 200),
            storage_timeout: wait(
                "storage_timeout",
                "Timeout of an attempt to get a payload.",
                400,
            ),
            server_timeout: wait("server_timeout", "Timeout of an attempt at the server.", 5_000),
            server_timeout_short: wait(
                "server_timeout_short",
                "The same timeout with `short_timeouts`.",
                20,
            ),
            backoff: wait("backoff", "Wait before the first retry, ±50 %; doubles with each.", 500),
            attempts_max: s
                .field("attempts_max", "Maximum number of attempts, including the first.")
                .range(1..=16)
                .default(6),
        }
    }
}

impl StorageConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let doc = "Time to find a payload; absent: lognormal, median 3 ms, sigma 0.3.";
        Self {
            listen: listen(s),
            service: service(s, doc, Duration::from_ms(3), 0.3),
            bytes_per_second: s
                .field("bytes_per_second", "Bytes of a payload per second.")
                .at_least(Bytes::from_kib(1))
                .default(Bytes::from_kib(8 << 10)),
        }
    }
}

impl ServerConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let doc = "Time of a request besides the work on the payload; absent: lognormal, median 5 \
            ms, sigma 0.8.";
        Self {
            listen: listen(s),
            service: service(s, doc, Duration::from_ms(5), 0.8),
            refused: s
                .field("refused", "Share of rejected requests with `retries`.")
                .default(Ratio::new(0.05).expect("0.05 is a ratio")),
        }
    }
}
