//! The proxies of the demo: one root for each arm, and leaves in front of the servers.
//!
//! Each proxy runs as if `curtail proxy --config FILE` had started it. A root has one route, which fans out to all
//! shards. Each shard is an upstream. This module writes the configurations, because the system chooses the ports.

use super::arm::Arm;
use anyhow::Context as _;
use curtail_proxy::{Config, Options, Running};
use curtail_testbed::Running as Testbed;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum time for requests in progress to end when the demo ends.
const GRACE: Duration = Duration::from_millis(100);

/// The keys of each arm's upstreams; all other keys have their defaults. The hedged arm has only defaults, but its
/// shards form a group: one shard gets some twenty requests a second, too few for a latency estimate and for a budget
/// that pays for a stalled replica. Tied and prequal have other values than the defaults because of the small scale:
///
/// - A read is a burst of 100 requests through one thread, so messages between root and leaf take some milliseconds. The
///   second copy of a tie must start later than the message that the first has started.
/// - A shard has three replicas. One probe per request says as much as three would among a hundred.
const fn upstream_keys(arm: Arm) -> &'static str {
    match arm {
        Arm::Direct => "balance: random, hedge: false, retry: false",
        Arm::Hedged => "group: bigtable",
        Arm::Tied => "tie: {delay: 10ms}, hedge: false, retry: false",
        Arm::Prequal => {
            "balance: {policy: prequal, probes_per_request: 1}, hedge: false, retry: false"
        }
    }
}

/// The running proxies.
#[derive(Debug)]
pub(crate) struct Proxies {
    leaves: Running,
    /// In the order of [`Arm::ALL`].
    roots: Vec<Running>,
}

impl Proxies {
    /// Starts the leaves in front of the servers of `testbed`, and a root for each arm. The roots with a remedy send
    /// their spans to the OTLP receiver at `spans_to`.
    pub(crate) fn start(
        testbed: &Testbed,
        spans_to: SocketAddr,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let config = testbed.config();
        let servers: Vec<SocketAddr> = (0..config.servers())
            .map(|nth| testbed.address(nth / config.replicas, nth % config.replicas))
            .collect();
        let leaves = start("leaves", &leaves_yaml(testbed, &servers), seed)?;
        let leaf_addresses: Vec<SocketAddr> =
            leaves.listeners().iter().map(|(_, address)| *address).collect();
        let root = |arm: Arm| {
            let replicas = match arm {
                Arm::Direct | Arm::Hedged => &servers,
                Arm::Tied | Arm::Prequal => &leaf_addresses,
            };
            let mut yaml = root_yaml(arm, replicas.chunks(config.replicas));
            if arm != Arm::Direct {
                let name = arm.name();
                yaml.push_str(&format!(
                    "spans: {{endpoint: \"http://{spans_to}\", service_name: {name}}}\n"
                ));
            }
            start(arm.name(), &yaml, seed)
        };
        let roots = Arm::ALL.into_iter().map(root).collect::<anyhow::Result<_>>()?;
        Ok(Self { leaves, roots })
    }

    /// The address of an arm's root.
    pub(crate) fn address(&self, arm: Arm) -> SocketAddr {
        self.roots[arm.index()].listeners()[0].1
    }

    /// The address of the metrics and the state of an arm's root.
    pub(crate) fn admin(&self, arm: Arm) -> Option<SocketAddr> {
        self.roots[arm.index()].admin()
    }

    /// Stops all proxies, roots first.
    pub(crate) fn stop(self) {
        for proxy in self.roots.into_iter().chain([self.leaves]) {
            proxy.stop(GRACE);
        }
    }
}

fn start(name: &str, yaml: &str, seed: u64) -> anyhow::Result<Running> {
    // Errors here are ours, not the user's, so they must not look like a configuration error.
    let config = Config::from_yaml(&format!("{name}.yaml"), yaml)
        .map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let options = Options { journal: None, seed };
    curtail_proxy::start(config, &options).with_context(|| format!("the proxy of {name}"))
}

fn leaves_yaml(testbed: &Testbed, servers: &[SocketAddr]) -> String {
    let leaf = &testbed.config().server.leaf;
    let (concurrency, queue_len_max) = (leaf.concurrency, leaf.queue_len_max);
    let mut yaml = "workers: 1\nleaves:\n".to_owned();
    for (nth, server) in servers.iter().enumerate() {
        writeln!(
            yaml,
            "  - {{name: leaf-{nth}, address: \"127.0.0.1:0\", server: \"http://{server}\", \
             concurrency: {concurrency}, queue_len_max: {queue_len_max}}}"
        )
        .expect("a String takes everything");
    }
    yaml
}

fn root_yaml<'a>(arm: Arm, shards: impl Iterator<Item = &'a [SocketAddr]>) -> String {
    let (name, keys) = (arm.name(), upstream_keys(arm));
    let mut yaml = format!(
        "workers: 1\n\
         listeners: [{{name: {name}, address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         routes: [{{path_prefix: /keys, upstream: \"shard-*\", fan_out: {{}}}}]\n\
         upstreams:\n"
    );
    for (shard, replicas) in shards.enumerate() {
        let urls: Vec<String> = replicas.iter().map(|a| format!("\"http://{a}\"")).collect();
        let urls = urls.join(", ");
        writeln!(yaml, "  shard-{shard}: {{replicas: [{urls}], {keys}}}")
            .expect("a String takes everything");
    }
    yaml
}
