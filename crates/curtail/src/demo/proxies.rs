//! The proxies of the demo: a root for each arm, and leaves in front of the servers for a remedy that needs them.
//!
//! Each proxy runs as if `curtail proxy --config FILE` had started it. A root has one route, which fans out to all
//! shards. Each shard is an upstream. This module writes the configurations, because the system chooses the ports.

use anyhow::Context as _;
use curtail_proxy::{Config, Options, Running};
use curtail_testbed::Running as Testbed;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum time for requests in progress to end when the demo ends.
const GRACE: Duration = Duration::from_millis(100);

/// An arm: a way to read, each through its own root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arm {
    /// The name in tables, of the service in its spans, and of the tenant in its requests to the servers.
    pub(crate) name: String,
    /// The keys of each of its upstreams, as YAML.
    pub(crate) keys: String,
}

impl Arm {
    /// One replica of each shard at random, and no remedy.
    pub(crate) fn direct() -> Self {
        Self {
            name: "direct".to_owned(),
            keys: "balance: random\nhedge: false\nretry: false\n".to_owned(),
        }
    }

    /// The defaults of the proxy. The shards are a group: one shard has too few requests for a latency estimate and for
    /// a budget that pays for a stalled replica.
    pub(crate) fn defaults() -> Self {
        Self { name: "defaults".to_owned(), keys: "group: shards\n".to_owned() }
    }

    /// A remedy that `curtail predict` recommends, with its keys.
    pub(crate) fn recommended(remedy: &str, keys: &str) -> Self {
        Self { name: remedy.replace(' ', "-"), keys: keys.to_owned() }
    }

    /// Whether the root calls the servers through leaves: ties queue there, and they respond to probes.
    fn needs_leaves(&self) -> bool {
        let has = |key: &str| self.keys.lines().any(|line| line.starts_with(key));
        has("tie:") && !has("tie: false") || self.keys.contains("prequal")
    }
}

/// The running proxies.
#[derive(Debug)]
pub(crate) struct Proxies<'a> {
    testbed: &'a Testbed,
    spans_to: SocketAddr,
    seed: u64,
    leaves: Option<Running>,
    roots: Vec<(Arm, Running)>,
}

impl<'a> Proxies<'a> {
    /// No proxies yet, in front of the servers of `testbed`. Roots send their spans to the OTLP receiver at `spans_to`.
    pub(crate) const fn new(testbed: &'a Testbed, spans_to: SocketAddr, seed: u64) -> Self {
        Self { testbed, spans_to, seed, leaves: None, roots: Vec::new() }
    }

    /// Starts the root of an arm, and the leaves if it is the first that needs them.
    pub(crate) fn start(&mut self, arm: Arm) -> anyhow::Result<()> {
        let config = self.testbed.config();
        let mut replicas: Vec<SocketAddr> = (0..config.servers())
            .map(|nth| self.testbed.address(nth / config.replicas, nth % config.replicas))
            .collect();
        if arm.needs_leaves() {
            let leaves = match self.leaves.take() {
                Some(leaves) => leaves,
                None => start("leaves", &leaves_yaml(self.testbed, &replicas), self.seed)?,
            };
            let leaves = self.leaves.insert(leaves);
            replicas = leaves.listeners().iter().map(|(_, address)| *address).collect();
        }
        let yaml = root_yaml(&arm, replicas.chunks(config.replicas), self.spans_to);
        let root = start(&arm.name, &yaml, self.seed)?;
        self.roots.push((arm, root));
        Ok(())
    }

    /// The arms that have roots, in order of their start.
    pub(crate) fn arms(&self) -> impl Iterator<Item = &Arm> {
        self.roots.iter().map(|(arm, _)| arm)
    }

    /// The address of the root of the nth arm.
    pub(crate) fn address(&self, nth: usize) -> SocketAddr {
        self.roots[nth].1.listeners()[0].1
    }

    /// The address of the metrics and the state of the root of the nth arm.
    pub(crate) fn admin(&self, nth: usize) -> Option<SocketAddr> {
        self.roots[nth].1.admin()
    }

    /// Stops all proxies, roots first.
    pub(crate) fn stop(self) {
        let roots = self.roots.into_iter().map(|(_, root)| root);
        for proxy in roots.chain(self.leaves) {
            proxy.stop(GRACE);
        }
    }
}

fn start(name: &str, yaml: &str, seed: u64) -> anyhow::Result<Running> {
    // Errors here are ours, not the user's, so they must not look like a configuration error.
    let config = Config::from_yaml(&format!("{name}.yaml"), yaml)
        .map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let options = Options { journal: None, seed, ..Options::default() };
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

fn root_yaml<'a>(
    arm: &Arm,
    shards: impl Iterator<Item = &'a [SocketAddr]>,
    spans_to: SocketAddr,
) -> String {
    let name = &arm.name;
    let mut yaml = format!(
        "workers: 1\n\
         listeners: [{{name: {name}, address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         spans: {{endpoint: \"http://{spans_to}\", service_name: {name}}}\n\
         routes: [{{path_prefix: /keys, upstream: \"shard-*\", fan_out: {{}}}}]\n\
         upstreams:\n"
    );
    for (shard, replicas) in shards.enumerate() {
        let urls: Vec<String> = replicas.iter().map(|a| format!("\"http://{a}\"")).collect();
        writeln!(yaml, "  shard-{shard}:\n    replicas: [{}]", urls.join(", "))
            .expect("a String takes everything");
        for line in arm.keys.lines() {
            writeln!(yaml, "    {line}").expect("a String takes everything");
        }
    }
    yaml
}

#[cfg(test)]
mod tests {
    use super::Arm;

    #[test]
    fn ties_and_probes_need_leaves() {
        let needs = |keys: &str| Arm::recommended("a remedy", keys).needs_leaves();
        assert!(needs("hedge: false\ntie: {delay: 1ms}\n"));
        assert!(needs("balance: {policy: prequal, probes_per_request: 1}\n"));
        assert!(!needs("hedge: {quantile: 0.95}\ntie: false\n"));
        assert!(!Arm::direct().needs_leaves() && !Arm::defaults().needs_leaves());
    }
}
