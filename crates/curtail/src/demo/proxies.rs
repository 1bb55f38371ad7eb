//! The proxies of the demo: one root for each arm that has one, and leaves in front of the servers.
//!
//! Each is what `curtail proxy --config FILE` would start; the files are written here, because the ports
//! of the servers are only known once they listen. Each shard is an upstream of its own; the shards of the hedged arm
//! share their latencies and their budget.

use super::arm::Arm;
use anyhow::Context as _;
use curtail_proxy::{Config, Options};
use curtail_testbed::Running as Testbed;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// Requests in progress are given this long when the demo ends; then nobody waits for them any more.
const GRACE: Duration = Duration::from_millis(100);

/// The configuration of each arm's upstreams, as in a file; all other keys have their defaults. The hedged arm has only
/// defaults, and its shards form a group: a shard gets some twenty requests a second, too few for a latency estimate
/// and for a budget that pays for a stalled replica.
///
/// The other arms differ from the defaults because of the small scale:
///
/// - A read is a burst of 100 requests through one thread, so messages between root and leaf take some
///   milliseconds; the second copy of a tie must not be faster than the news that the first has started.
/// - A shard has three replicas, so one probe for a request tells as much as three would among a hundred.
const fn treatment(arm: Arm) -> &'static str {
    match arm {
        Arm::Direct => "",
        Arm::Hedged => "group: bigtable",
        Arm::Tied => "tie: {delay: 10ms}, hedge: false, retry: false",
        Arm::Prequal => {
            "balance: {policy: prequal, probes_per_request: 1}, hedge: false, retry: false"
        }
    }
}

/// The proxies that run; they are to be stopped.
#[derive(Debug)]
pub(crate) struct Proxies {
    leaves: curtail_proxy::Running,
    roots: Vec<(Arm, curtail_proxy::Running)>,
}

impl Proxies {
    /// Starts the leaves in front of the servers of `testbed`, and a root for each arm but the direct one. Roots
    /// send their spans to a receiver of OTLP.
    ///
    /// # Errors
    /// When an address cannot be listened on or a thread is not given.
    pub(crate) fn start(
        testbed: &Testbed,
        spans_to: SocketAddr,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let leaves = start("leaves.yaml", &leaves_yaml(testbed), seed)?;
        let servers: Vec<SocketAddr> =
            places(testbed).map(|(s, r)| testbed.address(s, r)).collect();
        let in_front: Vec<SocketAddr> =
            leaves.listeners().iter().map(|(_, address)| *address).collect();
        let mut roots = Vec::new();
        for (arm, replicas) in
            [(Arm::Hedged, &servers), (Arm::Tied, &in_front), (Arm::Prequal, &in_front)]
        {
            let mut yaml = root_yaml(arm, replicas, testbed.config().replicas);
            let name = arm.name();
            writeln!(yaml, "spans: {{endpoint: \"http://{spans_to}\", service_name: {name}}}")
                .expect("a String takes everything");
            roots.push((arm, start(&format!("{}.yaml", arm.name()), &yaml, seed)?));
        }
        Ok(Self { leaves, roots })
    }

    /// Where the root of `arm` listens; nowhere when it has none.
    pub(crate) fn address(&self, arm: Arm) -> Option<SocketAddr> {
        let (_, root) = self.roots.iter().find(|(of, _)| *of == arm)?;
        root.listeners().first().map(|(_, address)| *address)
    }

    /// Where the root of `arm` shows its metrics and its state.
    pub(crate) fn admin(&self, arm: Arm) -> Option<SocketAddr> {
        let (_, root) = self.roots.iter().find(|(of, _)| *of == arm)?;
        root.admin()
    }

    /// Stops all of them, roots first.
    pub(crate) fn stop(self) {
        for (_, root) in self.roots {
            root.stop(GRACE);
        }
        self.leaves.stop(GRACE);
    }
}

fn start(name: &str, yaml: &str, seed: u64) -> anyhow::Result<curtail_proxy::Running> {
    // Errors here are ours, not the user's, so they must not look like a configuration error.
    let config = Config::from_yaml(name, yaml).map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let options = Options { journal: None, seed };
    curtail_proxy::start(config, &options).with_context(|| format!("the proxy of {name}"))
}

fn places(testbed: &Testbed) -> impl Iterator<Item = (usize, usize)> + use<> {
    let replicas = testbed.config().replicas;
    (0..testbed.config().servers()).map(move |nth| (nth / replicas, nth % replicas))
}

fn leaves_yaml(testbed: &Testbed) -> String {
    let server = &testbed.config().server;
    let (concurrency, queue_len_max) = (server.leaf.concurrency, server.leaf.queue_len_max);
    let mut yaml = "workers: 1\nleaves:\n".to_owned();
    for (shard, replica) in places(testbed) {
        let address = testbed.address(shard, replica);
        writeln!(
            yaml,
            "  - {{name: leaf-{shard}-{replica}, address: \"127.0.0.1:0\", server: \"http://{address}\", \
             concurrency: {concurrency}, queue_len_max: {queue_len_max}}}"
        )
        .expect("a String takes everything");
    }
    yaml
}

fn root_yaml(arm: Arm, replicas: &[SocketAddr], per_shard: usize) -> String {
    let mut yaml = format!(
        "workers: 1\n\
         listeners: [{{name: {}, address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         routes:\n",
        arm.name()
    );
    let shards = replicas.chunks(per_shard);
    for shard in 0..shards.len() {
        let route = format!("  - {{path_prefix: /shard/{shard}/, upstream: shard-{shard}}}\n");
        yaml.push_str(&route);
    }
    yaml.push_str("upstreams:\n");
    for (shard, replicas) in shards.enumerate() {
        let urls: Vec<String> = replicas.iter().map(|a| format!("\"http://{a}\"")).collect();
        let (urls, treatment) = (urls.join(", "), treatment(arm));
        let upstream = format!("  shard-{shard}: {{replicas: [{urls}], {treatment}}}\n");
        yaml.push_str(&upstream);
    }
    yaml
}
