//! The configuration of the testbed: the YAML file as typed values.
//!
//! **Limits**: [`SERVERS_MAX`] servers; each needs a listener, and the open files of a process are limited.

use crate::app::{self, Role};
use curtail_config::{ConfigErrors, Section, ValueFiles};
use curtail_model::{Cores, Distribution, Fault, Recipe};
use curtail_policy::LeafConfig;
use curtail_units::Duration;
use std::net::{Ipv4Addr, SocketAddr};

pub(crate) const SERVERS_MAX: usize = 4_096;

/// The content of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum File {
    /// Shards of equal servers.
    Servers(TestbedConfig),
    /// An app of three roles.
    App(app::Config),
}

impl File {
    /// Reads `text` of the file `name` and applies `sets` (`section.key=value`). `roles` are the roles of an app that
    /// this process has.
    ///
    /// # Errors
    /// All errors of the text and of the sets.
    pub fn from_yaml(
        name: &str,
        text: &str,
        sets: &[String],
        roles: Option<&[Role]>,
    ) -> Result<Self, ConfigErrors> {
        curtail_config::read_with_sets(name, text, sets, |s| Self::read(s, roles))
    }

    /// Reads a file as [`from_yaml`](Self::from_yaml) does; its keys may name `files` of recorded values.
    ///
    /// # Errors
    /// All errors of the text, of the sets and of the files.
    pub fn from_yaml_with_files(
        name: &str,
        text: &str,
        sets: &[String],
        roles: Option<&[Role]>,
        files: &dyn ValueFiles,
    ) -> Result<Self, ConfigErrors> {
        curtail_config::read_with_files(name, text, sets, files, |s| Self::read(s, roles))
    }

    fn read(s: &mut Section<'_>, roles: Option<&[Role]>) -> Self {
        let apps = [("google", ())];
        match s.choice("app", "The app to start; absent: servers of shards.", &apps).optional() {
            Some(()) => Self::App(app::Config::read(s, roles.unwrap_or(&Role::ALL))),
            None => {
                if roles.is_some() {
                    s.error("app", "there is none: only an app has roles");
                }
                Self::Servers(TestbedConfig::read(s))
            }
        }
    }
}

/// The servers of a testbed, and their faults.
#[derive(Clone, Debug, PartialEq)]
pub struct TestbedConfig {
    /// The name of the testbed, for people.
    pub name: String,
    /// The number of parts of the data.
    pub shards: usize,
    /// The number of servers for each shard.
    pub replicas: usize,
    pub(crate) listen: SocketAddr,
    /// The properties of each server.
    pub server: ServerConfig,
    /// The faults of the servers.
    pub faults: Vec<Fault>,
}

/// The properties of each server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// The queue; a rejected request gets a 503.
    pub leaf: LeafConfig,
    /// The cores that requests in service share; absent: no sharing.
    pub cores: Option<Cores>,
    pub(crate) service: Distribution,
}

impl TestbedConfig {
    /// Reads the testbed in `text` of the file `name`.
    ///
    /// # Errors
    /// All errors of the text.
    pub fn from_yaml(name: &str, text: &str) -> Result<Self, ConfigErrors> {
        curtail_config::read(name, text, Self::read)
    }

    /// Reads the keys of the file; the reference page and the JSON Schema come from here too.
    pub fn read(s: &mut Section<'_>) -> Self {
        let name = s.field("name", "Name of the testbed.").required();
        let shards = s.field("shards", "Parts of the data.").range(1..=SERVERS_MAX).default(1);
        let replicas =
            s.field("replicas", "Servers for each shard.").range(1..=SERVERS_MAX).default(3);
        let listen = s
            .field(
                "listen",
                "Address of the first server; the others use the next ports. Port 0: free ports.",
            )
            .default(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        check_servers(s, shards * replicas, listen);
        let server = s.section("server", "Properties of each server.", ServerConfig::read);
        let faults = s.list("faults", "Faults of the servers.", |s| {
            let fault = Fault::read(s);
            check_recipe(s, &fault.recipe, server.cores);
            fault
        });
        Self { name, shards, replicas, listen, server, faults }
    }

    /// The number of servers.
    #[must_use]
    pub const fn servers(&self) -> usize {
        self.shards * self.replicas
    }
}

impl ServerConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let leaf = LeafConfig {
            concurrency: s
                .field("concurrency", "Maximum number of requests that a server executes at once.")
                .range(1..=100_000)
                .default(8),
            queue_len_max: s
                .field(
                    "queue_len_max",
                    "Maximum number of queued requests; the server rejects more with 503.",
                )
                .at_most(1_000_000)
                .default(1_024),
        };
        Self {
            leaf,
            cores: s.optional_section(
                "cores",
                "Cores that the requests in service share; absent: one core for each request.",
                Cores::read,
            ),
            service: s.section(
                "service",
                "Service time of a request on a healthy server.",
                Distribution::read,
            ),
        }
    }
}

/// Minimum mean time between two changes of a fault.
const PERIOD_MIN: Duration = Duration::from_us(100);

/// Rejects a fault that real servers cannot have.
fn check_recipe(s: &mut Section<'_>, recipe: &Recipe, cores: Option<Cores>) {
    let name = recipe.name();
    let (key, period_ns) = match recipe {
        Recipe::Crash { .. } => {
            let text = "crash: the servers of a testbed share a process, and none crashes alone";
            s.error("recipe", format!("{text}: expected errors with a broken_ratio, or a stall"));
            return;
        }
        Recipe::Stall { every, lasts } => ("every", every.mean_ns() + lasts.mean_ns()),
        Recipe::BackgroundJob { every, .. } => ("every", every.as_ns_f64()),
        Recipe::Antagonist { every, .. } => ("every", every.mean_ns()),
        Recipe::NoisyNeighbor { per_second, .. } => ("requests_per_second", 1e9 / per_second),
        Recipe::GarbageCollection { .. } | Recipe::SlowReplica { .. } | Recipe::Errors { .. } => {
            return;
        }
    };
    if period_ns < PERIOD_MIN.as_ns_f64() {
        let period = Duration::from_ns_f64(period_ns);
        let text =
            format!("{name} would act every {period}, too often for the timers of a real server");
        s.error(key, format!("{text}: expected at least {PERIOD_MIN} on average"));
    }
    if recipe.needs_cores() && cores.is_none() {
        let text = format!("{name} takes cores, but the servers share none: expected server.cores");
        s.error("recipe", text);
    }
}

fn check_servers(s: &mut Section<'_>, servers: usize, listen: SocketAddr) {
    if servers > SERVERS_MAX {
        let text = format!("this makes {servers} servers: expected at most {SERVERS_MAX}");
        s.error("replicas", text);
    }
    let first = usize::from(listen.port());
    if first > 0 && first + servers > usize::from(u16::MAX) + 1 {
        let text = format!("{servers} ports from {first} on are not there: expected a lower port");
        s.error("listen", text);
    }
}
