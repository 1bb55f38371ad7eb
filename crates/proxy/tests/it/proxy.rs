//! A proxy under test: started from YAML on ports of the system's choice, watched through its admin port.

use crate::logs;
use crate::metrics::Metrics;
use crate::wire::{Message, Wire};
use curtail_proxy::{Config, Options, ReloadError, Running, StartError};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The default seed of a proxy.
const SEED: u64 = 0x5eed;

/// The configuration of a proxy; unset keys have the proxy's own defaults.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    workers: usize,
    replicas: Vec<String>,
    upstream: String,
    route: String,
    host: &'static str,
    listener: String,
    top: String,
    options: Options,
}

impl Setup {
    /// One listener before replicas in clear text.
    pub(crate) fn before(replicas: &[SocketAddr]) -> Self {
        Self::before_urls(replicas.iter().map(|replica| format!("http://{replica}")))
    }

    pub(crate) fn before_urls(replicas: impl IntoIterator<Item = String>) -> Self {
        Self {
            workers: 2,
            replicas: replicas.into_iter().collect(),
            upstream: String::new(),
            route: String::new(),
            host: "127.0.0.1",
            listener: String::new(),
            top: String::new(),
            options: Options { journal: None, seed: SEED, ..Options::default() },
        }
    }

    pub(crate) const fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// One more replica, the first of them.
    pub(crate) fn and_replica(mut self, replica: SocketAddr) -> Self {
        self.replicas.insert(0, format!("http://{replica}"));
        self
    }

    /// Further keys of the upstream, one to a line.
    pub(crate) fn upstream(mut self, keys: &str) -> Self {
        self.upstream = keys.to_owned();
        self
    }

    /// Further keys of the route, comma-separated.
    pub(crate) fn route(mut self, keys: &str) -> Self {
        self.route = format!(", {keys}");
        self
    }

    /// Further keys of the listener, comma-separated.
    pub(crate) fn listener(mut self, keys: &str) -> Self {
        self.listener = format!(", {keys}");
        self
    }

    /// Listens on an address of its own. No other test then listens on the port when the proxy has closed it.
    pub(crate) const fn on_own_address(mut self) -> Self {
        self.host = "127.0.0.2";
        self
    }

    /// Further keys of the file, one to a line.
    pub(crate) fn top(mut self, keys: &str) -> Self {
        self.top = keys.to_owned();
        self
    }

    pub(crate) fn journal(mut self, file: PathBuf) -> Self {
        self.options.journal = Some(file);
        self
    }

    pub(crate) fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// The text of the configuration file, with the addresses at which `proxy` listens.
    pub(crate) fn yaml_at(&self, proxy: &Proxy) -> String {
        let yaml = self.yaml();
        let listener = format!("{}:0\"", self.host);
        let yaml = yaml.replacen(&listener, &format!("{}\"", proxy.address()), 1);
        yaml.replacen("127.0.0.1:0\"", &format!("{}\"", proxy.admin_address()), 1)
    }

    /// The text of the configuration file.
    pub(crate) fn yaml(&self) -> String {
        let Self { workers, replicas, upstream, route, host, listener, top, .. } = self;
        let replicas = replicas.join(", ");
        let mut yaml = format!(
            "workers: {workers}\n\
             listeners: [{{address: \"{host}:0\"{listener}}}]\n\
             admin: {{address: \"127.0.0.1:0\"}}\n\
             routes: [{{upstream: service{route}}}]\n\
             {top}\n\
             upstreams:\n  service:\n    replicas: [{replicas}]\n"
        );
        for line in upstream.lines() {
            writeln!(yaml, "    {line}").expect("a string takes everything");
        }
        yaml
    }

    pub(crate) fn start(&self) -> Proxy {
        Proxy::start(&self.yaml(), &self.options)
    }
}

/// A proxy that runs until it is dropped or stopped.
#[derive(Debug)]
pub(crate) struct Proxy {
    running: Running,
    admin: SocketAddr,
}

impl Proxy {
    /// Starts what `yaml` says.
    pub(crate) fn start(yaml: &str, options: &Options) -> Self {
        Self::try_start(yaml, options).expect("loopback and threads")
    }

    pub(crate) fn try_start(yaml: &str, options: &Options) -> Result<Self, StartError> {
        logs::keep();
        println!("seed {}", options.seed);
        let running = curtail_proxy::start(config(yaml), options)?;
        let admin = running.admin().expect("every proxy under test has an admin port");
        Ok(Self { running, admin })
    }

    /// A proxy of leaves alone; each of `leaves` is one entry of the list.
    pub(crate) fn of_leaves(leaves: &[String]) -> Self {
        let yaml = format!(
            "workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\nleaves: [{}]\n",
            leaves.join(", ")
        );
        Self::start(&yaml, &Options { journal: None, seed: SEED, ..Options::default() })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listener("in")
    }

    /// Where a listener or a leaf listens.
    pub(crate) fn listener(&self, name: &str) -> SocketAddr {
        let named = |(found, _): &(String, SocketAddr)| found == name;
        self.running.listeners().into_iter().find(named).expect("a listener with that name").1
    }

    /// Applies a new configuration; returns the changed keys.
    pub(crate) fn reload(&self, setup: &Setup) -> Result<Vec<String>, ReloadError> {
        self.reload_yaml(&setup.yaml())
    }

    pub(crate) fn reload_yaml(&self, yaml: &str) -> Result<Vec<String>, ReloadError> {
        self.running.reload(config(yaml))
    }

    /// The response of the admin port; fails when it is closed.
    pub(crate) async fn admin(&self, path: &str) -> Message {
        ask_admin(self.admin, path).await.expect("the admin port responds")
    }

    /// Where the admin port listens since the last reload.
    pub(crate) fn admin_now(&self) -> Option<SocketAddr> {
        self.running.admin()
    }

    /// Where the admin port listened at the start.
    pub(crate) const fn admin_address(&self) -> SocketAddr {
        self.admin
    }

    pub(crate) async fn metrics(&self) -> Metrics {
        let page = self.admin("/metrics").await;
        Metrics::new(String::from_utf8(page.body.to_vec()).expect("metrics are text"))
    }

    /// Waits until the metrics say so; each look is a round trip to the admin port.
    pub(crate) async fn until(&self, so: impl Fn(&Metrics) -> bool) -> Metrics {
        loop {
            let metrics = self.metrics().await;
            if so(&metrics) {
                return metrics;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until a new process has taken over.
    pub(crate) async fn replaced(&self) {
        self.running.replaced().await;
    }

    /// Waits until all connections have ended, after that.
    pub(crate) async fn drained(&self) {
        self.running.drained().await;
    }

    /// Tells the proxy to stop, on a thread of its own, for it waits; the other end says when it has stopped.
    pub(crate) fn stop(self, grace: Duration) -> tokio::task::JoinHandle<()> {
        tokio::task::spawn_blocking(move || self.running.stop(grace))
    }
}

fn config(yaml: &str) -> Config {
    Config::from_yaml("test.yaml", yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"))
}

/// Sends a request to the admin port; [`None`] when nothing listens there.
pub(crate) async fn ask_admin(admin: SocketAddr, path: &str) -> Option<Message> {
    let mut wire = Wire::new(tokio::net::TcpStream::connect(admin).await.ok()?);
    let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
    wire.write(request).await.ok()?;
    wire.read_message().await.ok()?
}
