//! The testbed's configuration: what the YAML file says, as typed values.
//!
//! **Limits**: [`SERVERS_MAX`] servers; each needs a listener, and a process may have only so many files.

use crate::distribution::Distribution;
use crate::fault::Fault;
use curtail_config::{Mistakes, Section};
use std::net::{Ipv4Addr, SocketAddr};

/// The most servers of one testbed.
pub(crate) const SERVERS_MAX: usize = 4_096;

/// What a testbed consists of, and what is wrong with it.
#[derive(Clone, Debug, PartialEq)]
pub struct TestbedConfig {
    /// Its name, for people.
    pub name: String,
    /// Parts of the data.
    pub shards: usize,
    /// Servers for each shard.
    pub replicas: usize,
    /// Where the first server listens; the others follow on the next ports. Port 0: each gets a free one.
    pub listen: SocketAddr,
    /// What each server is like.
    pub server: ServerConfig,
    /// What is wrong with them.
    pub faults: Vec<Fault>,
}

/// What each server is like.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Requests that it works on at once.
    pub slots: u32,
    /// Requests that wait for a slot; one more is answered with 503.
    pub queue_len_max: u32,
    /// How long it works on one when nothing is wrong.
    pub service: Distribution,
}

impl TestbedConfig {
    /// The testbed that `text` describes, which was written in the file `name`.
    ///
    /// # Errors
    /// All mistakes of the text.
    pub fn from_yaml(name: &str, text: &str) -> Result<Self, Mistakes> {
        curtail_config::read(name, text, Self::read)
    }

    /// Reads each key of the file; the reference page and the JSON Schema come from here too.
    pub fn read(s: &mut Section<'_>) -> Self {
        let name = s.field("name", "What this testbed is called.").required();
        let shards = s.field("shards", "Parts of the data.").range(1..=SERVERS_MAX).default(1);
        let replicas =
            s.field("replicas", "Servers for each shard.").range(1..=SERVERS_MAX).default(3);
        let listen = s
            .field("listen", "Where the first server listens, the others on the next ports; with port 0 each on a free port.")
            .default(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        check_servers(s, shards * replicas, listen);
        let server = s.section("server", "What each server is like.", ServerConfig::read);
        let faults = s.list("faults", "What is wrong with the servers.", Fault::read);
        Self { name, shards, replicas, listen, server, faults }
    }

    /// How many servers there are.
    #[must_use]
    pub const fn servers(&self) -> usize {
        self.shards * self.replicas
    }
}

impl ServerConfig {
    fn read(s: &mut Section<'_>) -> Self {
        Self {
            slots: s
                .field("slots", "Requests that it works on at once.")
                .range(1..=100_000)
                .default(8),
            queue_len_max: s
                .field("queue_len_max", "Requests that wait; one more is answered with 503.")
                .at_most(1_000_000)
                .default(1_024),
            service: s.section(
                "service",
                "How long it works on one request when nothing is wrong.",
                Distribution::read,
            ),
        }
    }
}

fn check_servers(s: &mut Section<'_>, servers: usize, listen: SocketAddr) {
    if servers > SERVERS_MAX {
        let text = format!("this makes {servers} servers: expected at most {SERVERS_MAX}");
        s.mistake("replicas", text);
    }
    let first = usize::from(listen.port());
    if first > 0 && first + servers > usize::from(u16::MAX) + 1 {
        let text = format!("{servers} ports from {first} on are not there: expected a lower port");
        s.mistake("listen", text);
    }
}
