//! Replicas that a source has: they join and leave with what it says, and stay while it fails.
//!
//! [`changes`], [`failures`] and [`sources`] have a name server as their source. The other sources have a module each, and
//! [`api_server`] and [`ads_server`] are their servers.

mod ads_server;
mod api_server;
mod changes;
mod eds;
mod failures;
mod kubernetes;
mod sources;
mod targets;

use crate::proxy::{Proxy, Setup};
use crate::raw_replica::{RawReplica, serve};
use curtail_testbed::{NameRecord, NameServer};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// A name server, and servers that have one port at several addresses, as those of a headless service.
struct Fleet {
    names: NameServer,
    /// The name of the service; no other test has it.
    name: &'static str,
    replicas: Vec<RawReplica>,
    port: u16,
}

impl Fleet {
    /// Servers at `127.0.x.1`, `127.0.x.2` and so on; the name has the first `known` of them.
    async fn start(name: &'static str, x: u8, count: u8, known: usize) -> Self {
        let (mut replicas, mut port) = (Vec::new(), 0);
        for nth in 1..=count {
            let address = SocketAddr::from(([127, 0, x, nth], port));
            let script = |wire, record, _| serve(wire, record, "good");
            let replica = RawReplica::start_at(address, script).await;
            port = replica.address().port();
            replicas.push(replica);
        }
        let names = NameServer::start().expect("loopback and a thread");
        let fleet = Self { names, name, replicas, port };
        fleet.set(0, &(0..known).collect::<Vec<_>>());
        fleet
    }

    /// Gives the name the addresses of these servers.
    fn set(&self, ttl_seconds: u32, servers: &[usize]) {
        let address = |nth: &usize| NameRecord::Address(self.ip(*nth));
        self.names.set(self.name, ttl_seconds, &servers.iter().map(address).collect::<Vec<_>>());
    }

    fn ip(&self, nth: usize) -> IpAddr {
        self.replicas[nth].address().ip()
    }

    /// A proxy that discovers the servers, and looks up a name ten times a second if its TTL is 0.
    fn setup(&self) -> Setup {
        let Self { name, port, .. } = self;
        Setup::before_urls([])
            .upstream(&format!("discovery: {{dns: \"http://{name}:{port}\"}}"))
            .top(&self.dns(""))
    }

    /// The section `dns`, with further keys.
    fn dns(&self, keys: &str) -> String {
        let servers = self.names.address();
        format!("dns: {{servers: [\"{servers}\"], refresh_min: 100ms, timeout: 100ms{keys}}}")
    }

    /// Waits until this server has got further requests.
    async fn until_asked(&self, nth: usize) {
        let record = self.replicas[nth].record();
        let before = record.requests().len();
        record.until(|record| record.requests().len() > before).await;
    }

    /// The URLs of these servers, as `/state` has them.
    fn urls(&self, servers: &[usize]) -> Vec<String> {
        servers.iter().map(|nth| format!("http://{}", self.replicas[*nth].address())).collect()
    }
}

/// Starts a proxy on another thread: it waits for its source, which is a task of this one.
async fn start(setup: Setup) -> Proxy {
    tokio::task::spawn_blocking(move || setup.start()).await.expect("it starts")
}

/// Waits until the replicas have these URLs, in any order.
async fn until_urls(proxy: &Proxy, expected: &[String]) {
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    loop {
        let replicas = replicas(proxy).await;
        if replicas.iter().map(|(_, url)| &**url).collect::<BTreeSet<_>>() == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until the last error of the discovery says this.
async fn until_error(proxy: &Proxy, says: &str) {
    loop {
        let discovery = state(proxy).await["discovery"].clone();
        if discovery["error"].as_str().is_some_and(|error| error.contains(says)) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Waits until the discovery has no error.
async fn until_no_error(proxy: &Proxy) {
    while !state(proxy).await["discovery"]["error"].is_null() {
        tokio::task::yield_now().await;
    }
}

/// The state of the upstream.
async fn state(proxy: &Proxy) -> Value {
    let state = proxy.admin("/state").await;
    let state: Value = serde_json::from_slice(&state.body).expect("JSON");
    state["upstreams"][0].clone()
}

/// The number and the URL of each replica.
async fn replicas(proxy: &Proxy) -> Vec<(u64, String)> {
    let state = state(proxy).await;
    let replicas = state["replicas"].as_array().expect("a list").iter();
    let text = |url: &Value| url.as_str().expect("text").to_owned();
    replicas.map(|one| (one["id"].as_u64().expect("a number"), text(&one["url"]))).collect()
}

/// Waits until the upstream has this number of replicas.
async fn until_replicas(proxy: &Proxy, count: usize) {
    while replicas(proxy).await.len() != count {
        tokio::task::yield_now().await;
    }
}

/// Waits for further lookups with this result.
async fn until_lookups(proxy: &Proxy, result: &str, count: u64) {
    let lookups = |metrics: &crate::metrics::Metrics| {
        metrics.sum("curtail_discovery_lookups_total", &[("result", result)])
    };
    let before = lookups(&proxy.metrics().await);
    proxy.until(|metrics| lookups(metrics) >= before + count).await;
}
