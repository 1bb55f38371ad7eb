//! The keys of the app's file.

use curtail_config::Section;
use curtail_model::Distribution;
use curtail_units::{Bytes, Duration, Ratio};
use std::net::{Ipv4Addr, SocketAddr};

/// The app as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Its name, for people.
    pub name: String,
    /// What makes its tail.
    pub causes: Causes,
    /// The client.
    pub client: ClientConfig,
    /// The storage.
    pub storage: StorageConfig,
    /// The server.
    pub server: ServerConfig,
}

/// What makes its tail; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// The payload that is called large is large.
    pub large_payloads: bool,
    /// The client waits for the server only `timeout_short`.
    pub short_timeouts: bool,
    /// The server refuses some requests, which are sent again.
    pub retries: bool,
    /// Somebody else works on the thread of this role.
    pub cpu_load: Option<Role>,
}

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The app whose latency is looked at.
    Client,
    /// Where payloads come from.
    Storage,
    /// Who works on payloads.
    Server,
}

/// The client as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// How long it waits for a connection.
    pub connect_timeout: Duration,
    /// How long it waits for a payload, each time.
    pub storage_timeout: Duration,
    /// How long it waits for the server, each time.
    pub server_timeout: Duration,
    /// The same with the cause `short_timeouts`.
    pub server_timeout_short: Duration,
    /// How often it sends a request at most, the first time included.
    pub attempts_max: u32,
    /// How long it waits before it sends a request again the first time; twice as long each further time.
    pub backoff: Duration,
}

/// The storage as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// How long it takes to find a payload.
    pub service: Distribution,
    /// How many bytes of it come in a second.
    pub bytes_per_second: Bytes,
}

/// The server as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// How long it takes beside the work on the payload.
    pub service: Distribution,
    /// Which share of requests it refuses with the cause `retries`.
    pub refused: Ratio,
}

/// The longest timeout and the longest backoff: the connections and timers of a request are gone by then.
const WAIT_MAX: Duration = Duration::from_secs(60);

impl Role {
    /// All three, in the order in which they are started.
    pub const ALL: [Self; 3] = [Self::Storage, Self::Server, Self::Client];

    /// Its name.
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
    /// Reads the keys, for a process that has these roles.
    pub fn read(s: &mut Section<'_>, roles: &[Role]) -> Self {
        let config = Self {
            name: s.field("name", "What this app is called.").required(),
            causes: Causes::read(s),
            client: s.section("client", "The app whose latency is looked at.", ClientConfig::read),
            storage: s.section("storage", "Where payloads come from.", StorageConfig::read),
            server: s.section("server", "Who works on payloads.", ServerConfig::read),
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

    /// Where a role listens, as it is written.
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
                .field("large_payloads", "Whether /payload/large has 100,000 numbers; otherwise it has 500, as the small one.")
                .default(false),
            short_timeouts: s
                .field("short_timeouts", "Whether the client waits for the server only server_timeout_short.")
                .default(false),
            retries: s
                .field("retries", "Whether the server refuses some requests, which the client then sends again after a backoff.")
                .default(false),
            cpu_load: s
                .choice("cpu_load", "In whose thread somebody else works all the time, in slices of 10 ms.", &whose)
                .default(None),
        }
    }
}

fn listen(s: &mut Section<'_>) -> SocketAddr {
    s.field("listen", "Where it listens; with port 0 on a free port.")
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
                "How long it waits for a payload, each time.",
                400,
            ),
            server_timeout: wait(
                "server_timeout",
                "How long it waits for the server, each time.",
                5_000,
            ),
            server_timeout_short: wait(
                "server_timeout_short",
                "The same with the cause `short_timeouts`.",
                20,
            ),
            backoff: wait(
                "backoff",
                "How long it waits before it sends a request again, ±50 %; twice as long each further time.",
                500,
            ),
            attempts_max: s
                .field(
                    "attempts_max",
                    "How often it sends a request at most, the first time included.",
                )
                .range(1..=16)
                .default(6),
        }
    }
}

impl StorageConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let doc = "How long it takes to find a payload; lognormal, 3 ms in the median with sigma 0.3, when absent.";
        Self {
            listen: listen(s),
            service: service(s, doc, Duration::from_ms(3), 0.3),
            bytes_per_second: s
                .field("bytes_per_second", "How many bytes of a payload come in a second.")
                .at_least(Bytes::from_kib(1))
                .default(Bytes::from_kib(8 << 10)),
        }
    }
}

impl ServerConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let doc = "How long it takes beside the work on the payload; lognormal, 5 ms in the median with sigma 0.8, when absent.";
        Self {
            listen: listen(s),
            service: service(s, doc, Duration::from_ms(5), 0.8),
            refused: s
                .field("refused", "Which share of requests it refuses with the cause `retries`.")
                .default(Ratio::new(0.05).expect("0.05 is a ratio")),
        }
    }
}
