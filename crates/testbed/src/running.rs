//! The running testbed: the listeners, and the thread that serves them.
//!
//! **Limits**: one thread for all servers; every connection is accepted. The start fails when the process may not open
//! enough files.

use crate::config::TestbedConfig;
use crate::executions::Executions;
use crate::listener;
use crate::machine::ServerMachine;
use crate::server::{Server, ServerId};
use curtail_http::accept::bind;
use curtail_http::clock::Clock;
use curtail_http::precise_timer::PreciseTimer;
use curtail_http::runtime_thread::RuntimeThread;
use curtail_model::{FaultTimeline, Faults, PaceChange};
use curtail_units::{Instant, Rng};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// A testbed that runs; it ends when it is dropped.
#[derive(Debug)]
pub struct Running {
    config: TestbedConfig,
    seed: u64,
    addresses: Vec<SocketAddr>,
    timelines: Vec<FaultTimeline>,
    executions: Arc<Executions>,
    clock: Clock,
    _thread: RuntimeThread,
}

/// The reason why a testbed did not start: the system denied a resource.
#[derive(Debug, thiserror::Error)]
#[error("the testbed cannot start: {what}")]
pub struct StartError {
    what: String,
    source: io::Error,
}

impl StartError {
    pub(crate) fn of(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self { what, source }
    }
}

impl Running {
    /// Starts the servers that `config` describes, with their faults and service times drawn from `seed`. The servers
    /// listen when this returns.
    ///
    /// # Errors
    /// When an address cannot be listened on, or the system gives no thread.
    ///
    /// # Panics
    /// When `config` has more servers than a file may describe.
    pub fn start(config: &TestbedConfig, seed: u64) -> Result<Self, StartError> {
        let listeners = listeners(config)?;
        let addresses: Vec<SocketAddr> = listeners.iter().map(|(address, _)| *address).collect();
        let clock = Clock::start();
        let executions = Arc::new(Executions::new(config.servers()));
        let root = Rng::new(seed);
        let count = u32::try_from(config.servers()).expect("at most SERVERS_MAX");
        let faults = Faults::new(&config.faults, count, config.server.cores, &root);
        let timelines: Vec<_> = (0..count).map(|nth| FaultTimeline::new(&faults, nth)).collect();
        let server = |(number, timeline): (usize, &FaultTimeline)| {
            let (shard, replica) = (number / config.replicas, number % config.replicas);
            let rng = root.split("server").split_index(number as u64);
            let machine = ServerMachine::new(&config.server, timeline.clone(), &rng);
            let id = ServerId { number, shard, replica };
            Arc::new(Server::new(id, machine, clock, Arc::clone(&executions)))
        };
        let thread = RuntimeThread::start("testbed").map_err(StartError::of("no thread"))?;
        // Timers and tasks are of this runtime.
        let _entered = thread.runtime().enter();
        let servers: Vec<_> = timelines.iter().enumerate().map(server).collect();
        for (server, (_, listener)) in servers.iter().zip(listeners) {
            let timer = PreciseTimer::new().map_err(StartError::of("no timer"))?;
            run(server, listener, timer);
        }
        tracing::info!(servers = addresses.len(), seed, "testbed started");
        Ok(Self {
            config: config.clone(),
            seed,
            addresses,
            timelines,
            executions,
            clock,
            _thread: thread,
        })
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &TestbedConfig {
        &self.config
    }

    /// The seed.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The address of a replica of a shard.
    ///
    /// # Panics
    /// When there is no such replica.
    #[must_use]
    pub fn address(&self, shard: usize, replica: usize) -> SocketAddr {
        self.addresses[self.number(shard, replica)]
    }

    /// The number of executions that all servers have begun.
    #[must_use]
    pub fn executions(&self) -> u64 {
        (0..self.addresses.len()).map(|server| self.executions.of_server(server)).sum()
    }

    /// The number of executions that one server has begun.
    ///
    /// # Panics
    /// When there is no such replica.
    #[must_use]
    pub fn executions_of_server(&self, shard: usize, replica: usize) -> u64 {
        self.executions.of_server(self.number(shard, replica))
    }

    /// The number of executions that all servers have begun for one tenant.
    #[must_use]
    pub fn executions_of_tenant(&self, tenant: &str) -> u64 {
        self.executions.of_tenant(tenant)
    }

    /// The changes of a replica's pace, except those that follow from its executions.
    ///
    /// # Panics
    /// When there is no such replica.
    pub fn pace_changes(
        &self,
        shard: usize,
        replica: usize,
    ) -> impl Iterator<Item = PaceChange> + use<> {
        self.timelines[self.number(shard, replica)].clone().pace_changes()
    }

    /// The time on the testbed's clock, which also has the instants of [`Self::pace_changes`].
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    fn number(&self, shard: usize, replica: usize) -> usize {
        let TestbedConfig { shards, replicas, .. } = self.config;
        assert!(shard < shards && replica < replicas, "no replica {replica} of shard {shard}");
        shard * replicas + replica
    }
}

fn listeners(config: &TestbedConfig) -> Result<Vec<(SocketAddr, TcpListener)>, StartError> {
    let first = config.listen;
    let listen = |nth: usize| {
        let offset = if first.port() == 0 { 0 } else { u16::try_from(nth).unwrap_or(u16::MAX) };
        let address = SocketAddr::new(first.ip(), first.port().saturating_add(offset));
        let listener = bind(address)?;
        Ok((listener.local_addr()?, listener))
    };
    let what =
        |nth| format!("server {} of {} cannot listen (first: {first})", nth + 1, config.servers());
    (0..config.servers())
        .map(|nth| listen(nth).map_err(|error: io::Error| StartError::of(what(nth))(error)))
        .collect()
}

fn run(server: &Arc<Server>, listener: TcpListener, timer: PreciseTimer) {
    tokio::spawn(listener::accept(listener, Arc::clone(server)));
    let server = Arc::clone(server);
    tokio::spawn(async move { server.run(timer).await });
}
