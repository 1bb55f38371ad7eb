//! A proxy that runs: its threads, its reloads, its end.

use crate::admin;
use crate::config::{self, Config, ListenerConfig, SpansConfig};
use crate::journal::Journal;
use crate::listen::{self, Inbox, Listener};
use crate::metrics::{ListenerMetrics, ProcessMetrics};
use crate::snapshot::{ConfigSnapshot, ProcessState};
use crate::spans::SpanSink;
use crate::spans::export::Exporter;
use crate::worker::{REST_CALLS_MAX, Shared, Worker};
use crate::{StartError, check, probe, serve};
use arc_swap::ArcSwap;
use curtail_http::clock::Clock;
use curtail_http::tls::ListenerCertificate;
use curtail_units::Rng;
use rustls::sign::CertifiedKey;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Barrier, mpsc};

/// Spans that are left over when the proxy stops may take this long to be sent.
const FLUSH: Duration = Duration::from_secs(2);

/// How often idle connections are looked through.
const TICK: Duration = Duration::from_secs(1);

/// Options of a proxy that are not in its configuration.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Record all events and decisions of the policies in this file.
    pub journal: Option<PathBuf>,
    /// The seed of all the policies' randomness.
    pub seed: u64,
}

/// A proxy that runs.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    reloading: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
    exporter: Option<ExporterThread>,
    listeners: Vec<(String, SocketAddr)>,
    /// The certificates of the listeners, in the order of the configuration.
    certificates: Vec<Option<Arc<ListenerCertificate>>>,
    admin: Option<SocketAddr>,
    /// Dropped when the workers are to stop at once.
    stop: tokio::sync::watch::Sender<bool>,
}

/// Why a new configuration was not taken; the old one goes on.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// A key that is read only at the start has changed.
    #[error("{key} has changed: that takes a restart")]
    NeedsRestart {
        /// The key.
        key: &'static str,
    },
    /// It cannot be used.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Starts a proxy on threads of its own; when this returns, it listens.
///
/// # Errors
/// When an address cannot be listened on, a file cannot be used, or the system gives no thread.
pub fn start(config: Config, options: &Options) -> Result<Running, StartError> {
    let journal = match &options.journal {
        None => None,
        Some(file) => Some(Arc::new(
            Journal::create(file)
                .map_err(|source| StartError::Journal { file: file.clone(), source })?,
        )),
    };
    let named = config.listeners.iter().map(|listener| &listener.name);
    let named = named.chain(config.leaves.iter().map(|leaf| &leaf.name));
    let process_state = ProcessState {
        clock: Clock::start(),
        rng: Rng::new(options.seed),
        journal,
        spans: config.spans.as_ref().map(|_| Arc::new(SpanSink::new())),
        listeners: named.map(|name| (name.clone(), Arc::default())).collect(),
        process: Arc::new(ProcessMetrics::default()),
    };
    let (snapshot, _) = ConfigSnapshot::new(config, &process_state, None)?;
    let keys = certified_keys(&snapshot.config.listeners)?.into_iter();
    let certificates: Vec<_> = keys.map(|key| key.map(ListenerCertificate::new)).collect();
    let sockets = open_listeners(&snapshot, &process_state, &certificates)?;
    let admin_socket = match snapshot.config.admin {
        None => None,
        Some(address) => Some(listen::bind("admin", address)?),
    };
    let admin = admin_socket.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
    let listeners = sockets
        .iter()
        .map(|(socket, listener)| Ok((listener.name.clone(), socket.local_addr()?)))
        .collect::<std::io::Result<Vec<_>>>()?;
    let worker_count = snapshot.config.workers;
    let shared = Arc::new(Shared {
        snapshot: ArcSwap::from_pointee(snapshot),
        process_state,
        drain: Arc::default(),
    });
    let (stop, _) = tokio::sync::watch::channel(false);
    let exporter = match (&shared.snapshot.load().config.spans, &shared.process_state.spans) {
        (Some(config), Some(sink)) => {
            Some(ExporterThread::start(config.clone(), Arc::clone(sink))?)
        }
        (None, _) | (_, None) => None,
    };
    let workers = Vec::new();
    let reloading = Mutex::default();
    let mut running =
        Running { shared, reloading, workers, exporter, listeners, certificates, admin, stop };
    running.start_workers(worker_count, sockets, admin_socket)?;
    Ok(running)
}

/// Opens the sockets of the listeners, then those of the leaves.
fn open_listeners(
    snapshot: &ConfigSnapshot,
    process_state: &ProcessState,
    certificates: &[Option<Arc<ListenerCertificate>>],
) -> Result<Vec<(std::net::TcpListener, Listener)>, StartError> {
    let clear = |leaf| (None, Some(Arc::clone(leaf)));
    let mut sides = Vec::new();
    for (listener, certificate) in snapshot.config.listeners.iter().zip(certificates) {
        let acceptor = certificate.as_ref().map(ListenerCertificate::acceptor);
        sides.push((listener.address, (acceptor, None)));
    }
    sides.extend(snapshot.leaves.iter().map(|leaf| (leaf.config.address, clear(leaf))));
    let named = process_state.listeners.iter();
    let open = |((address, (tls, leaf)), (name, metrics)): (_, &(String, Arc<ListenerMetrics>))| {
        let listener = Listener {
            name: name.clone(),
            tls,
            leaf,
            connections_max: snapshot.config.limits.connections_max,
            metrics: Arc::clone(metrics),
        };
        Ok((listen::bind(name, address)?, listener))
    };
    sides.into_iter().zip(named).map(open).collect()
}

/// Reads the certificates of the listeners with TLS.
fn certified_keys(listeners: &[ListenerConfig]) -> Result<Vec<Option<CertifiedKey>>, StartError> {
    let read = |(index, listener): (usize, &ListenerConfig)| {
        let key = listener.tls.as_ref().map(config::certified_key).transpose();
        key.map_err(|error| StartError::from(error).within(check::listener_section(index)))
    };
    listeners.iter().enumerate().map(read).collect()
}

/// Whether listeners differ at most in their certificate files.
fn are_same_listeners(some: &[ListenerConfig], others: &[ListenerConfig]) -> bool {
    let kept = |listener: &ListenerConfig| {
        (listener.name.clone(), listener.address, listener.tls.is_some())
    };
    some.iter().map(kept).eq(others.iter().map(kept))
}

impl Running {
    /// The addresses that are listened on, leaves included, by name.
    #[must_use]
    pub fn listeners(&self) -> &[(String, SocketAddr)] {
        &self.listeners
    }

    /// The address of metrics, health and state.
    #[must_use]
    pub const fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The time that requests in progress have when the proxy stops.
    #[must_use]
    pub fn drain(&self) -> Duration {
        self.shared.snapshot.load().config.limits.drain.into()
    }

    /// Applies a new configuration, whole or not at all. Also reads certificates and authorities again, even if the
    /// configuration has not changed.
    ///
    /// # Errors
    /// When it changes what is read only at the start, or cannot be used; the old one goes on.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let _one_at_a_time = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.shared.snapshot.load_full();
        let current = &before.config;
        let changed = [
            ("workers", config.workers != current.workers),
            ("listeners", !are_same_listeners(&config.listeners, &current.listeners)),
            ("leaves", config.leaves != current.leaves),
            ("admin", config.admin != current.admin),
            ("spans", config.spans != current.spans),
            (
                "limits.connections_max",
                config.limits.connections_max != current.limits.connections_max,
            ),
        ];
        if let Some((key, _)) = changed.into_iter().find(|(_, changed)| *changed) {
            return Err(ReloadError::NeedsRestart { key });
        }
        let keys = certified_keys(&config.listeners)?;
        let (snapshot, changes) =
            ConfigSnapshot::new(config, &self.shared.process_state, Some(&before))?;
        for (certificate, key) in self.certificates.iter().zip(keys) {
            if let (Some(certificate), Some(key)) = (certificate, key) {
                certificate.replace(key);
            }
        }
        for (upstream, membership) in changes {
            upstream.apply(membership);
        }
        self.shared.snapshot.store(Arc::new(snapshot));
        self.shared.process_state.process.reloads.count(true);
        Ok(())
    }

    /// Counts a configuration that was not taken.
    pub(crate) fn reload_failed(&self) {
        self.shared.process_state.process.reloads.count(false);
    }

    /// Stops accepting, lets requests in progress end for up to `grace`, then stops.
    pub fn stop(mut self, grace: Duration) {
        self.shared.drain.begin();
        let deadline = std::time::Instant::now() + grace;
        while self.workers.iter().any(|worker| !worker.is_finished())
            && std::time::Instant::now() < deadline
        {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        self.stop.send_replace(true);
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        if let Some(exporter) = self.exporter {
            exporter.stop();
        }
        if let Some(journal) = &self.shared.process_state.journal {
            journal.close();
        }
    }

    fn start_workers(
        &mut self,
        count: usize,
        sockets: Vec<(std::net::TcpListener, Listener)>,
        admin_socket: Option<std::net::TcpListener>,
    ) -> Result<(), StartError> {
        let mut inboxes = Vec::new();
        let mut workers = Vec::new();
        for index in 0..count {
            let (inbox, handed) = Inbox::new();
            inboxes.push(inbox);
            workers.push((Arc::new(Worker::new(index, Arc::clone(&self.shared))), handed));
        }
        let drained = Arc::new(Barrier::new(count));
        let mut first = Some((sockets, admin_socket, inboxes));
        for (worker, handed) in workers {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let mut stop = self.stop.subscribe();
            let (first, drained) = (first.take(), Arc::clone(&drained));
            let thread = std::thread::Builder::new()
                .name(format!("worker-{}", worker.index))
                .spawn(move || {
                    runtime.block_on(async {
                        let work = run(worker, handed, first, drained);
                        tokio::select! {
                            () = work => {}
                            _ = stop.wait_for(|stop| *stop) => {}
                        }
                    });
                })?;
            self.workers.push(thread);
        }
        Ok(())
    }
}

/// The thread that sends spans; it outlives the workers, whose last requests have spans too.
#[derive(Debug)]
struct ExporterThread {
    stop: tokio::sync::oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl ExporterThread {
    fn start(config: SpansConfig, sink: Arc<SpanSink>) -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let exporter = runtime.block_on(async { Exporter::start(&config, sink) });
        let exporter = exporter.map_err(|error| error.within(check::SPANS_SECTION.to_owned()))?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::Builder::new().name("spans".to_owned()).spawn(move || {
            runtime.block_on(async {
                // Stopped, or its owner is gone: both end it.
                stopped.await.ok();
                exporter.flush(tokio::time::Instant::now() + FLUSH).await;
            });
        })?;
        Ok(Self { stop, thread })
    }

    fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the thread that sends spans panicked");
        }
    }
}

type Front = (Vec<(std::net::TcpListener, Listener)>, Option<std::net::TcpListener>, Vec<Inbox>);

/// Serves what is handed to a worker until the proxy is drained; the first worker also accepts.
async fn run(
    worker: Arc<Worker>,
    mut handed: mpsc::Receiver<listen::Handed>,
    front: Option<Front>,
    drained: Arc<Barrier>,
) {
    let timers = Arc::clone(&worker.timers);
    let clock = worker.shared.process_state.clock;
    tokio::spawn(async move { timers.run(clock).await });
    tokio::spawn(tick(Arc::clone(&worker)));
    if let Some((sockets, admin_socket, inboxes)) = front {
        for (socket, listener) in sockets {
            let (listener, drain) = (Arc::new(listener), Arc::clone(&worker.shared.drain));
            tokio::spawn(listen::accept(socket, listener, drain, inboxes.clone()));
        }
        if let Some(socket) = admin_socket {
            tokio::spawn(admin::serve(socket, Arc::clone(&worker)));
        }
        tokio::spawn(wake_upstreams(Arc::clone(&worker)));
    }
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            biased;
            // Nothing more comes when the listeners have ended; what was accepted is served.
            Some(handed) = handed.recv() => {
                connections.spawn(serve::serve(Arc::clone(&worker), handed));
            }
            Some(_) = connections.join_next() => {}
            else => break,
        }
    }
    // Calls may be open after their requests.
    drop(worker.rest_calls.acquire_many(REST_CALLS_MAX).await);
    // The first worker has the admin port, which tells about the others to the end.
    drained.wait().await;
}

/// Closes connections that are idle for too long.
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
    }
}

/// Wakes the upstreams that want to be woken: those that probe while no requests come.
async fn wake_upstreams(worker: Arc<Worker>) {
    let clock = worker.shared.process_state.clock;
    loop {
        let snapshot = worker.shared.snapshot.load_full();
        let now = clock.now();
        let mut next = now + TICK.into();
        for upstream in &snapshot.upstreams {
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
        // The runtime's timers are a millisecond coarse; sooner than that would be a busy loop.
        let floor = now + curtail_units::Duration::from_ms(1);
        if let Some(deadline) = clock.deadline(next.max(floor)) {
            tokio::time::sleep_until(deadline).await;
        }
    }
}
