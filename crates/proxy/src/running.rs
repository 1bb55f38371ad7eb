//! A running proxy: its threads, its reloads and its stop.

use crate::access_log::buffers::LineBuffers;
use crate::access_log::writer::AccessLogWriter;
use crate::config::{Config, ListenAddress};
use crate::discovery::{self, Discoveries};
use crate::effects::EffectSender;
use crate::finished::FinishedRequests;
use crate::health::{self, HealthChecks};
use crate::journal::Journal;
use crate::listen::{self, Inbox};
use crate::listeners::Listeners;
use crate::metrics::ProcessMetrics;
use crate::restart::inherited::InheritedSockets;
use crate::restart::old_process::{NewProcess, lock};
use crate::restart::{RestartThread, Takeover, systemd};
use crate::snapshot::{ConfigSnapshot, ProcessState};
use crate::spans::export::Exporter;
use crate::worker::{REST_CALLS_MAX, Shared, Worker};
use crate::{StartError, check, finished, probe, remedy, serve};
use arc_swap::ArcSwap;
use curtail_http::clock::Clock;
use curtail_http::precise_timer::PreciseTimer;
use curtail_http::runtime_thread::RuntimeThread;
use curtail_metrics::ReloadResult;
use curtail_units::Rng;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Barrier, mpsc, watch};

/// Maximum time for sending the remaining spans when the proxy stops.
const FLUSH: Duration = Duration::from_secs(2);

/// The interval of checks whether the last connection has ended, after a new process has taken over.
const DRAIN_CHECK: Duration = Duration::from_millis(50);

/// The interval of checks for idle connections.
const TICK: Duration = Duration::from_secs(1);

/// Options of a proxy that are not in its configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Record all events and decisions of the policies in this file.
    pub journal: Option<PathBuf>,
    /// The seed of all the policies' randomness.
    pub seed: u64,
    /// Whether systemd is to know when the proxy is ready (`sd_notify(3)`).
    pub notifies_systemd: bool,
}

/// A running proxy.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    reloaded: Mutex<Reloaded>,
    workers: Vec<JoinHandle<()>>,
    /// Set, or dropped, when the workers must stop at once.
    stop: watch::Sender<bool>,
    restart: Option<RestartThread>,
}

/// The parts that a reload changes, besides the snapshot.
#[derive(Debug)]
struct Reloaded {
    listeners: Arc<Mutex<Listeners>>,
    exporter: Option<ExporterThread>,
    access_log: Option<AccessLogWriter>,
    /// The thread of [`discovery::run`], from the first configuration on that needs it.
    discovery: Option<RuntimeThread>,
    /// The thread of [`health::run`], likewise.
    health_checks: Option<RuntimeThread>,
}

/// The error of a new configuration that was not applied. The old one stays in effect.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A key that is read only at the start has changed.
    #[error("{key} has changed: that needs a restart")]
    NeedsRestart {
        /// The key.
        key: &'static str,
    },
    /// The new configuration cannot be used.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Starts a proxy on threads of its own. When this function returns, the proxy listens. With `restart`, it has then replaced
/// the earlier process, if there was one.
///
/// # Errors
/// When an address cannot be listened on, a file cannot be used, or the system gives no thread.
pub fn start(config: Config, options: &Options) -> Result<Running, StartError> {
    let mut inherited = InheritedSockets::from_systemd();
    let restart = config.restart.as_ref();
    let mut restart = restart.map(|config| Takeover::begin(config, &mut inherited)).transpose()?;
    let journal = options.journal.as_ref().map(|_| Journal::new().map(Arc::new)).transpose()?;
    let process_state = ProcessState {
        clock: Clock::start(),
        rng: Rng::new(options.seed),
        journal,
        process: Arc::new(ProcessMetrics::default()),
        access_lines: Arc::new(LineBuffers::new(config.workers)),
        finished: FinishedRequests::new(config.workers),
    };
    let (snapshot, _) = ConfigSnapshot::new(config, &process_state, None)?;
    let snapshot = Arc::new(snapshot);
    let shared = Arc::new(Shared {
        snapshot: ArcSwap::new(Arc::clone(&snapshot)),
        process_state,
        discoveries: Discoveries::default(),
        health_checks: HealthChecks::default(),
        drain: Arc::default(),
    });
    let access_log = open_access_log(&snapshot, &shared)?;
    let discovery = start_discovery(&snapshot, &shared)?;
    discovery::wait_for_responses(&snapshot.upstreams);
    let health_checks = start_health_checks(&snapshot, &shared)?;
    let old_process = restart.as_ref().and_then(Takeover::old_pid);
    if old_process.is_some() {
        discovery::check_responses(&snapshot.upstreams)?;
        health::wait_for_results(&snapshot.upstreams);
    }
    let exporter = ExporterThread::start(&snapshot, &shared)?;
    let (stop, _) = watch::channel(false);
    let (workers, mut listeners) = start_workers(&shared, &stop)?;
    let prepared = listeners.prepare(&snapshot, &mut inherited)?;
    if let Some(restart) = &mut restart {
        restart.ready(&inherited)?;
    }
    // From here on, this process takes over what the old one has.
    begin_journal(&shared, options, old_process)?;
    inherited.close_rest();
    listeners.apply(prepared);
    access_log.iter().for_each(AccessLogWriter::begin);
    if options.notifies_systemd {
        systemd::notify_ready();
    }
    let listeners = Arc::new(Mutex::new(listeners));
    let restart = restart.map(|restart| restart.finish(&listeners)).transpose()?;
    let reloaded =
        Mutex::new(Reloaded { listeners, exporter, access_log, discovery, health_checks });
    Ok(Running { shared, reloaded, workers, stop, restart })
}

impl Running {
    /// The addresses of TCP that are listened on, leaves included, by name.
    #[must_use]
    pub fn listeners(&self) -> Vec<(String, SocketAddr)> {
        let tcp = |(name, address)| match address {
            ListenAddress::Tcp(address) => Some((name, address)),
            ListenAddress::Unix(_) => None,
        };
        self.all_listeners().into_iter().filter_map(tcp).collect()
    }

    /// The addresses that are listened on, with Unix sockets.
    pub(crate) fn all_listeners(&self) -> Vec<(String, ListenAddress)> {
        lock(&self.reloaded().listeners).addresses()
    }

    /// The address of metrics, health and state.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        lock(&self.reloaded().listeners).admin()
    }

    /// The zone of the proxy, if it is known.
    pub(crate) fn zone(&self) -> Option<String> {
        self.shared.snapshot.load().config.zone.clone()
    }

    /// Whether a new process can take over the listeners.
    pub(crate) const fn can_be_replaced(&self) -> bool {
        self.restart.is_some()
    }

    /// Waits until a new process has taken over the listeners (`restart`).
    pub async fn replaced(&self) -> NewProcess {
        let mut replaced = match &self.restart {
            Some(restart) => restart.replaced.clone(),
            None => return std::future::pending().await,
        };
        match replaced.wait_for(Option::is_some).await.map(|new| *new) {
            Ok(Some(new)) => new,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Waits until all connections have ended after [`Self::replaced`], at most for `restart.drain`.
    pub async fn drained(&self) {
        let config = self.shared.snapshot.load().config.restart.clone();
        let deadline = tokio::time::Instant::now()
            + config.map_or(Duration::ZERO, |restart| restart.drain.into());
        while self.workers.iter().any(|worker| !worker.is_finished())
            && tokio::time::Instant::now() < deadline
        {
            tokio::time::sleep(DRAIN_CHECK).await;
        }
    }

    /// Maximum time for requests in progress to end when the proxy stops.
    #[must_use]
    pub fn drain(&self) -> Duration {
        self.shared.snapshot.load().config.limits.drain.into()
    }

    /// Applies a new configuration, whole or not at all. Also reads certificates and authorities again, even if the
    /// configuration has not changed. Returns the changed keys, such as `limits` or `upstreams.api`.
    ///
    /// # Errors
    /// When the configuration changes a key that needs a restart, or cannot be used. The old one stays in effect.
    pub fn reload(&self, config: Config) -> Result<Vec<String>, ReloadError> {
        let mut reloaded = self.reloaded();
        let _membership = self.shared.discoveries.lock_membership();
        let before = self.shared.snapshot.load_full();
        if config.workers != before.config.workers {
            return Err(ReloadError::NeedsRestart { key: "workers" });
        }
        let restart_socket = |config: &Config| config.restart.as_ref().map(|r| r.socket.clone());
        if restart_socket(&config) != restart_socket(&before.config) {
            return Err(ReloadError::NeedsRestart { key: "restart.socket" });
        }
        let (snapshot, changes) =
            ConfigSnapshot::new(config, &self.shared.process_state, Some(&before))?;
        let listeners = Arc::clone(&reloaded.listeners);
        let mut listeners = lock(&listeners);
        let prepared = listeners.prepare(&snapshot, &mut InheritedSockets::default())?;
        let access_log = open_access_log(&snapshot, &self.shared)?;
        if reloaded.discovery.is_none() {
            reloaded.discovery = start_discovery(&snapshot, &self.shared)?;
        }
        if reloaded.health_checks.is_none() {
            reloaded.health_checks = start_health_checks(&snapshot, &self.shared)?;
        }
        let sink = |snapshot: &ConfigSnapshot| snapshot.spans.as_ref().map(Arc::as_ptr);
        let mut earlier_exporter = None;
        if sink(&snapshot) != sink(&before) {
            let exporter = ExporterThread::start(&snapshot, &self.shared)?;
            earlier_exporter = std::mem::replace(&mut reloaded.exporter, exporter);
        }
        let changed = before.config.changed_keys(&snapshot.config);
        for (upstream, membership) in changes {
            upstream.apply(membership);
        }
        let now = self.shared.process_state.clock.now();
        let discoveries = snapshot.upstreams.iter().filter_map(|upstream| upstream.discovery());
        discoveries.for_each(|discovery| discovery.make_due(now));
        self.shared.snapshot.store(Arc::new(snapshot));
        finished::write_all(&self.shared);
        // The earlier exporter sends what it has, and ends.
        drop(earlier_exporter);
        self.shared.discoveries.wake();
        self.shared.health_checks.wake();
        listeners.apply(prepared);
        access_log.iter().for_each(AccessLogWriter::begin);
        reloaded.access_log = access_log;
        self.shared.process_state.process.reloads.add(&ReloadResult::Ok, 1);
        Ok(changed)
    }

    fn reloaded(&self) -> MutexGuard<'_, Reloaded> {
        self.reloaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a configuration that was not applied.
    pub(crate) fn reload_failed(&self) {
        self.shared.process_state.process.reloads.add(&ReloadResult::Failed, 1);
    }

    /// Stops accepting, lets requests in progress end for up to `grace`, then stops.
    pub fn stop(mut self, grace: Duration) {
        let reloaded = self.reloaded.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Reloaded { listeners, exporter, access_log, discovery, health_checks } = reloaded;
        drop(self.restart);
        self.shared.drain.begin();
        lock(&listeners).close();
        let deadline = std::time::Instant::now() + grace;
        while self.workers.iter().any(|worker| !worker.is_finished())
            && std::time::Instant::now() < deadline
        {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        if self.workers.iter().any(|worker| !worker.is_finished()) {
            let snapshot = self.shared.snapshot.load();
            let counts = snapshot.listeners.iter().map(|(_, metrics)| metrics.read());
            let connections: u64 = counts.map(|c| c.accepted - c.closed).sum();
            tracing::warn!(connections, drain = ?grace, "drain timeout: requests are aborted");
        }
        drop((discovery, health_checks));
        self.shared.drain.begin_abort();
        self.stop.send_replace(true);
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        finished::write_all(&self.shared);
        if let Some(exporter) = exporter {
            exporter.stop();
        }
        if let Some(access_log) = access_log {
            access_log.finish();
            self.shared.process_state.access_lines.warn_at_once();
        }
        if let Some(journal) = &self.shared.process_state.journal {
            journal.close();
        }
    }
}

fn begin_journal(
    shared: &Shared,
    options: &Options,
    old_process: Option<i32>,
) -> Result<(), StartError> {
    if let (Some(journal), Some(file)) = (&shared.process_state.journal, &options.journal) {
        let failed = |source| StartError::Journal { file: file.clone(), source };
        journal.begin(file, old_process).map_err(failed)?;
    }
    Ok(())
}

/// Opens the file of the access log, if one is configured.
fn open_access_log(
    snapshot: &ConfigSnapshot,
    shared: &Shared,
) -> Result<Option<AccessLogWriter>, StartError> {
    let open = |config| AccessLogWriter::open(config, &shared.process_state.access_lines);
    snapshot.config.access_log.as_ref().map(open).transpose()
}

/// Starts the workers. The first one accepts the connections of the listeners, none of which is open yet.
fn start_workers(
    shared: &Arc<Shared>,
    stop: &watch::Sender<bool>,
) -> Result<(Vec<JoinHandle<()>>, Listeners), StartError> {
    let count = shared.snapshot.load().config.workers;
    let (mut inboxes, mut threads, mut first) = (Vec::new(), Vec::new(), None);
    let drained = Arc::new(Barrier::new(count));
    for index in 0..count {
        let (inbox, handed) = Inbox::new();
        inboxes.push(inbox);
        let worker = Arc::new(Worker::new(index, Arc::clone(shared)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let timers = {
            let _entered = runtime.enter();
            (PreciseTimer::new()?, PreciseTimer::new()?)
        };
        first.get_or_insert_with(|| (Arc::clone(&worker), runtime.handle().clone()));
        let (mut stop, drained) = (stop.subscribe(), Arc::clone(&drained));
        let thread = std::thread::Builder::new().name(format!("worker-{index}"));
        threads.push(thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = run(worker, timers, handed, drained) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            });
        })?);
    }
    let (worker, runtime) = first.expect("the configuration has at least one worker");
    Ok((threads, Listeners::new(worker, runtime, inboxes)))
}

/// Starts the thread that asks the sources of replicas, if an upstream has one.
fn start_discovery(
    snapshot: &ConfigSnapshot,
    shared: &Arc<Shared>,
) -> Result<Option<RuntimeThread>, StartError> {
    if snapshot.config.upstreams.iter().all(|upstream| upstream.discovery.is_none()) {
        return Ok(None);
    }
    let thread = RuntimeThread::start("discovery")?;
    thread.runtime().spawn(discovery::run(Arc::clone(shared)));
    Ok(Some(thread))
}

/// Starts the thread that checks replicas, if an upstream has health checks.
fn start_health_checks(
    snapshot: &ConfigSnapshot,
    shared: &Arc<Shared>,
) -> Result<Option<RuntimeThread>, StartError> {
    if snapshot.config.upstreams.iter().all(|upstream| upstream.health_check.is_none()) {
        return Ok(None);
    }
    let thread = RuntimeThread::start("health")?;
    thread.runtime().spawn(health::run(Arc::clone(shared)));
    Ok(Some(thread))
}

/// The thread that sends spans; it outlives the workers, whose last requests have spans too.
#[derive(Debug)]
struct ExporterThread {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl ExporterThread {
    /// Starts to send the spans of a snapshot, if it has a receiver for them, and the effects of remedies.
    fn start(snapshot: &ConfigSnapshot, shared: &Arc<Shared>) -> Result<Option<Self>, StartError> {
        let (Some(config), Some(sink)) = (&snapshot.config.spans, &snapshot.spans) else {
            return Ok(None);
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let exporter = Exporter::start(config, Arc::clone(sink));
        drop(entered);
        let exporter = exporter.map_err(check::spans_error)?;
        let mut effects = EffectSender::new(config, shared).map_err(check::spans_error)?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new().name("spans".to_owned()).spawn(move || {
            runtime.block_on(async {
                // A stop and a dropped owner both end the thread.
                tokio::select! {
                    _ = stopped => {}
                    () = effects.run() => {}
                }
                let deadline = tokio::time::Instant::now() + FLUSH;
                let last = effects.send(curtail_units::Duration::ZERO);
                let last = tokio::time::timeout_at(deadline, last);
                let (_, ()) = tokio::join!(last, exporter.flush(deadline));
            });
        })?;
        Ok(Some(Self { stop, thread }))
    }

    fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the thread that sends spans panicked");
        }
    }
}

/// Serves the connections of a worker until the proxy is drained; the first worker also wakes the upstreams.
async fn run(
    worker: Arc<Worker>,
    (timer, recording): (PreciseTimer, PreciseTimer),
    mut handed: mpsc::Receiver<listen::HandedConnection>,
    drained: Arc<Barrier>,
) {
    let timers = Arc::clone(&worker.timers);
    let clock = worker.shared.process_state.clock;
    tokio::spawn(async move { timers.run(clock, timer).await });
    tokio::spawn(finished::run(Arc::clone(&worker), recording));
    tokio::spawn(tick(Arc::clone(&worker)));
    if worker.index == 0 {
        tokio::spawn(wake_upstreams(Arc::clone(&worker)));
    }
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            biased;
            // No connection comes after the listeners have closed. Accepted connections are still served.
            Some(handed) = handed.recv() => {
                connections.spawn(serve::serve(Arc::clone(&worker), handed));
            }
            Some(_) = connections.join_next() => {}
            else => break,
        }
    }
    // Calls of fan-outs may be open after their requests are done.
    drop(worker.rest_calls.acquire_many(REST_CALLS_MAX).await);
    // The first worker has the admin port, which responds until the last worker is drained.
    drained.wait().await;
}

/// Closes connections that are idle for too long, and opens those that are to be there ahead of requests. The first worker
/// also warns of lost lines of the access log.
async fn tick(worker: Arc<Worker>) {
    let mut interval = tokio::time::interval(TICK);
    loop {
        interval.tick().await;
        let snapshot = worker.shared.snapshot.load_full();
        let now = worker.shared.process_state.clock.now();
        for upstream in snapshot.swept_upstreams() {
            upstream.sweep(worker.index, now);
        }
        snapshot.leaves.iter().for_each(|leaf| leaf.sweep(worker.index, now));
        if !worker.shared.drain.is_begun() {
            snapshot.current_upstreams().for_each(|upstream| upstream.refill(&worker, TICK));
        }
        if worker.index == 0 {
            worker.shared.process_state.access_lines.warn(now);
        }
    }
}

/// Wakes the upstreams that have asked for it: those that probe while no requests come, and those whose remedy is off for
/// some time. Hands new figures to those whose remedies are switched by their effect.
async fn wake_upstreams(worker: Arc<Worker>) {
    let clock = worker.shared.process_state.clock;
    loop {
        let snapshot = worker.shared.snapshot.load_full();
        let now = clock.now();
        let mut next = now + TICK.into();
        for upstream in &snapshot.upstreams {
            remedy::advance(&worker, upstream);
            let Some(at) = upstream.poll_timeout() else { continue };
            if at > now {
                next = next.min(at);
                continue;
            }
            let mut effects = Vec::new();
            let woke = curtail_policy::UpstreamEvent::Woke;
            let generation = upstream.handle(woke, &mut effects);
            probe::carry_out(&worker, upstream, generation, effects);
            next = next.min(upstream.poll_timeout().unwrap_or(next));
        }
        // The runtime's timers have a resolution of a millisecond. A shorter sleep would be a busy loop.
        let floor = now + curtail_units::Duration::from_ms(1);
        if let Some(deadline) = clock.deadline(next.max(floor)) {
            tokio::time::sleep_until(deadline).await;
        }
    }
}
