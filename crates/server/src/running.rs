//! A running server: its threads, their start, and their end.

use crate::backpressure::FlushBacklog;
use crate::data_folder::{DataFolder, entropy, now_ms, uuid};
use crate::listener_security::ListenerSecurity;
use crate::maintenance::MaintenanceThread;
use crate::metrics::{MaintenanceMetrics, ServerCounters, ServerMetrics};
use crate::reload::{ReloadError, ReloadableParts};
use crate::{Config, ServerPanicked, StartError};
use arc_swap::ArcSwap;
use curtail_api::{Api, QueryMetrics, Sql, SqlProgram};
use curtail_http::clock::unix_time;
use curtail_ingest::{Committer, DurableBatch, IngestMetrics, Sink, StallReason};
use curtail_metrics::ReloadResult;
use curtail_store::log::{self, Damage, Log};
use curtail_store::recent::RecentBatches;
use curtail_store::tree::Unread;
use curtail_store::{Recovery, Store, StoreParts};
use curtail_text::describe_error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Maximum time for batches in flight, and for queries, to end after a stop.
const GRACE: Duration = Duration::from_secs(5);

/// The interval of checks whether all threads are alive, and whether the log segment is old enough for a flush.
const WATCH_EVERY: Duration = Duration::from_millis(250);

/// Maximum number of full memtables that wait for a flush.
const WAITING_MEMTABLES_MAX: usize = 4;

/// A running server. Without [`stop`](Self::stop), it stops in the background when it is dropped.
#[derive(Debug)]
pub struct Running {
    /// The addresses of the receivers, in the order of the configuration, and of the query API.
    addresses: (Vec<SocketAddr>, SocketAddr),
    reloadable: ReloadableParts,
    stop: oneshot::Sender<()>,
    /// Closed when the server has ended.
    ended: oneshot::Receiver<()>,
    thread: JoinHandle<Result<(), ServerPanicked>>,
}

/// Starts a server on its own threads; returns when the server listens.
///
/// # Errors
/// When the data cannot be opened, an address cannot be bound, or the system refuses a thread.
pub fn start(config: Config) -> Result<Running, StartError> {
    let reloadable = ReloadableParts::new(config)?;
    let parts = reloadable.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let (started, starting) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("server".to_owned()).spawn(move || {
        let _end: oneshot::Sender<()> = end;
        runtime.block_on(async {
            match Parts::start(parts).await {
                Ok(parts) => {
                    // A caller that is gone has dropped `stop` as well.
                    let otlp = parts.receivers.addresses().to_vec();
                    started.send(Ok((otlp, parts.api.address()))).ok();
                    parts.run(stopped).await
                }
                Err(error) => {
                    started.send(Err(error)).ok();
                    Ok(())
                }
            }
        })
    })?;
    match starting.recv() {
        Ok(addresses) => Ok(Running { addresses: addresses?, reloadable, stop, ended, thread }),
        Err(_) => Err(ServerPanicked.into()),
    }
}

impl Running {
    /// The addresses of the receivers, in the order of the configuration.
    #[must_use]
    pub fn otlp(&self) -> &[SocketAddr] {
        &self.addresses.0
    }

    /// The address of the query API.
    #[must_use]
    pub const fn api(&self) -> SocketAddr {
        self.addresses.1
    }

    /// Whether the receivers and the query API are under TLS.
    #[must_use]
    pub fn has_tls(&self) -> [bool; 2] {
        self.reloadable.security.each_ref().map(|security| security.tls.is_some())
    }

    /// Applies a new configuration, completely or not at all. Also reads certificates and tokens again.
    ///
    /// # Errors
    /// When `config` changes a key that needs a restart, or names an unusable file; the old configuration stays.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let applied = self.reloadable.apply(config);
        self.reloadable.counters.add(&ReloadResult::of(&applied), 1);
        applied
    }

    /// Counts a configuration with errors, which was not applied.
    pub fn reload_failed(&self) {
        self.reloadable.counters.add(&ReloadResult::Failed, 1);
    }

    /// Waits until the server fails; [`stop`](Self::stop) then returns the error.
    pub async fn failed(&mut self) {
        if !self.ended.is_terminated() {
            // Nothing is ever sent.
            let _closed = (&mut self.ended).await;
        }
    }

    /// Stops the receivers, flushes all acknowledged rows, and waits for the end. Unflushed rows stay in the log.
    ///
    /// # Errors
    /// When a thread has panicked.
    pub fn stop(self) -> Result<(), ServerPanicked> {
        drop(self.stop);
        self.thread.join().unwrap_or(Err(ServerPanicked))
    }
}

/// The parts of a server that listens.
struct Parts {
    receivers: curtail_ingest::Running,
    api: curtail_api::Running,
    counts: BatchCounts,
    storage: Storage,
    config: Arc<ArcSwap<Config>>,
}

/// The parts of a server that store rows: the log, the memtables and the tables.
struct Storage {
    store: Arc<Store>,
    committer: Committer,
    log: JoinHandle<()>,
    backlog: Arc<FlushBacklog>,
    maintenance: MaintenanceThread,
    maintenance_metrics: Arc<MaintenanceMetrics>,
    /// The folder of the tables, unless they are in an object store.
    tables_folder: Option<PathBuf>,
}

impl Storage {
    async fn start(live_config: &Arc<ArcSwap<Config>>) -> Result<Self, StartError> {
        let config = live_config.load();
        let folder = DataFolder::open(&config.data, config.tables.as_deref()).await?;
        let memtable_bytes = config.memtable.as_len();
        let settings = folder.settings(memtable_bytes);
        let (parts, recovery) =
            Store::open(&settings, now_ms(), &uuid()).await.map_err(|source| {
                let tables = folder.tables.url().to_owned();
                StartError::Store { tables, source: Box::new(source) }
            })?;
        log_recovery(&recovery);
        let StoreParts { store, flusher, compactor, last_segment } = parts;
        let backlog = Arc::new(FlushBacklog::new(memtable_bytes * WAITING_MEMTABLES_MAX));
        let log = Log::open(Arc::clone(&settings.files), last_segment, entropy())
            .map_err(|source| StartError::File { path: config.data.join("log"), source })?;
        let maintenance_metrics = Arc::<MaintenanceMetrics>::default();
        let maintenance = MaintenanceThread::start(
            flusher,
            (compactor, folder.tables.clone()),
            (Arc::clone(&backlog), Arc::clone(&maintenance_metrics)),
            Arc::clone(live_config),
        )?;
        let sink = MemtableSink { store: Arc::clone(&store), backlog: Arc::clone(&backlog) };
        let (committer, log) = Committer::start(log, Arc::clone(store.recent()), sink)?;
        let tables_folder = folder.tables_folder;
        Ok(Self { store, committer, log, backlog, maintenance, maintenance_metrics, tables_folder })
    }

    fn has_panicked(&self) -> bool {
        self.log.is_finished() || self.maintenance.is_finished()
    }

    /// Ends the log thread after it has written all accepted batches; then flushes all rows.
    fn stop(self) -> Result<(), ServerPanicked> {
        drop(self.committer);
        self.backlog.lift();
        let log = self.log.join().map_err(|_| ServerPanicked);
        self.maintenance.stop().and(log)
    }
}

impl Parts {
    async fn start(parts: ReloadableParts) -> Result<Self, StartError> {
        let storage = Storage::start(&parts.config).await?;
        match listen(&parts, &storage).await {
            Ok((receivers, api)) => {
                let counts = BatchCounts {
                    metrics: Arc::clone(receivers.metrics()),
                    recent: Arc::clone(storage.store.recent()),
                    logged: (0, 0, 0),
                };
                Ok(Self { receivers, api, counts, storage, config: parts.config })
            }
            Err(error) => {
                // The error of the address is the one to mend first.
                storage.stop().ok();
                Err(error)
            }
        }
    }

    /// Runs until `stopped` or a panic; then stops, in this order: receivers, query API, log, maintenance.
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) -> Result<(), ServerPanicked> {
        let mut flushed = Instant::now();
        let mut watch = tokio::time::interval(WATCH_EVERY);
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                _ = watch.tick() => {}
            }
            if self.storage.has_panicked() {
                break;
            }
            if flushed.elapsed() >= self.config.load().flush_every.into() {
                flushed = Instant::now();
                self.storage.committer.end_segment();
                self.counts.log();
            }
        }
        tracing::info!("stopping: batches in flight are stored, and all rows flushed");
        self.api.begin_drain();
        let receivers = self.receivers;
        // Health, metrics and queries are served meanwhile.
        let stopped = tokio::task::spawn_blocking(move || receivers.stop(GRACE)).await;
        self.api.stop(GRACE).await;
        self.counts.log();
        self.storage.stop().and(stopped.map_err(|_| ServerPanicked))
    }
}

async fn listen(
    parts: &ReloadableParts,
    storage: &Storage,
) -> Result<(curtail_ingest::Running, curtail_api::Running), StartError> {
    let config = parts.config.load();
    let [otlp, query] = &parts.security;
    let receivers = start_receivers(&config, otlp, &storage.committer)?;
    let program = PathBuf::from("/proc/self/exe");
    let program = std::env::current_exe()
        .map(|program| SqlProgram::in_folder_of(&program))
        .map_err(|source| StartError::File { path: program, source })?;
    let sql = Sql::new(program, storage.tables_folder.clone());
    let address = config.api.address;
    let queries = Arc::<QueryMetrics>::default();
    let counters = ServerCounters {
        ingest: Arc::clone(receivers.metrics()),
        log: Arc::clone(storage.committer.metrics()),
        queries: Arc::clone(&queries),
        maintenance: Arc::clone(&storage.maintenance_metrics),
        reloads: Arc::clone(&parts.counters),
        started: unix_time(),
    };
    let page = ServerMetrics { store: Arc::clone(&storage.store), counters };
    let api = Api {
        tls: query.tls.clone(),
        access: Arc::clone(&query.access),
        store: Arc::clone(&storage.store),
        sql,
        limits: Arc::clone(&parts.limits),
        query_threads: config.api.query_threads,
        metrics: queries,
        page: Arc::new(page),
    };
    let api = curtail_api::start(address, api).await;
    let failed = |source| StartError::Listen { key: "api.address (--api)", address, source };
    Ok((receivers, api.map_err(failed)?))
}

fn start_receivers(
    config: &Config,
    security: &ListenerSecurity,
    committer: &Committer,
) -> Result<curtail_ingest::Running, StartError> {
    use curtail_ingest::StartError::{Listen, Thread};
    let receivers = curtail_ingest::Config {
        addresses: config.otlp.addresses.clone(),
        tls: security.tls.clone(),
        access: Arc::clone(&security.access),
        origins: config
            .otlp
            .allow_origins
            .iter()
            .map(|origin| origin.as_str().to_owned())
            .collect(),
        ..curtail_ingest::Config::default()
    };
    curtail_ingest::start(&receivers, committer).map_err(|error| match error {
        Listen { address, source } => {
            StartError::Listen { key: "otlp.addresses (--otlp)", address, source }
        }
        Thread(error) => error.into(),
    })
}

struct MemtableSink {
    store: Arc<Store>,
    backlog: Arc<FlushBacklog>,
}

impl Sink for MemtableSink {
    fn wait(&mut self, report: &mut dyn FnMut(StallReason)) {
        self.backlog.wait(|| self.store.waiting_bytes(), report);
    }

    fn take(&mut self, segment: u64, batches: Vec<DurableBatch>) -> bool {
        for DurableBatch { record, rows } in batches {
            self.store.insert(segment, &record, rows);
        }
        self.store.is_full()
    }

    fn ended(&mut self, segment: u64) {
        self.store.seal(segment);
    }
}

struct BatchCounts {
    metrics: Arc<IngestMetrics>,
    recent: Arc<RecentBatches>,
    logged: (u64, u64, u64),
}

impl BatchCounts {
    /// Logs the numbers of batches since the start, if one has changed: stored batches, duplicates, and batches
    /// that were forgotten in less than ten minutes.
    fn log(&mut self) {
        let (batches, duplicates) = self.metrics.batch_counts();
        let forgotten_early = self.recent.forgotten_early();
        let now = (batches, duplicates, forgotten_early);
        if std::mem::replace(&mut self.logged, now) != now {
            tracing::info!(batches, duplicates, forgotten_early, "batches since the start");
        }
    }
}

/// Logs the replayed rows and the damage of the log.
fn log_recovery(recovery: &Recovery) {
    let Recovery { rows, damaged, undecoded, duplicates, unread_records, unread } = recovery;
    for (table, rows) in rows {
        tracing::info!(table, rows, "replayed the log");
    }
    if *duplicates > 0 {
        tracing::info!(duplicates, "skipped batches that are in the log twice");
    }
    for (segment, Damage { at, bytes, records, is_torn }) in damaged {
        if *is_torn {
            tracing::warn!(segment, at, bytes, "the log ends with an unfinished record");
            continue;
        }
        let file = log::damaged_name(*segment);
        let lost = records.map_or_else(|| "unknown".to_owned(), |records| records.to_string());
        let what = "a segment of the log is damaged; its other records were replayed, and the file is kept";
        tracing::error!(file, at, bytes, lost, "{what}");
    }
    if *undecoded > 0 {
        tracing::error!(
            records = undecoded,
            "some records of the log are not valid batches; their segments are kept"
        );
    }
    for file in unread_records {
        tracing::warn!(
            file,
            "a flush record cannot be read: batches that are sent again may count twice for ten minutes"
        );
    }
    for Unread { path, error } in unread {
        tracing::error!(%path, error = describe_error(&**error), "a run cannot be read");
    }
}

#[cfg(test)]
mod tests {
    use super::start;
    use crate::{Config, StartError};
    use std::net::TcpListener;

    #[test]
    fn a_server_that_could_not_listen_starts_again_in_the_same_process() {
        let data = std::env::temp_dir().join(format!("curtail-server-{}", std::process::id()));
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let free = Config::on_loopback(data.clone());
        let mut blocked = free.clone();
        blocked.api.address = taken.local_addr().expect("it is bound");
        let error = start(blocked).expect_err("the port is in use");
        assert!(matches!(error, StartError::Listen { key: "api.address (--api)", .. }), "{error}");
        let server = start(free).expect("the lock of the folder is released");
        assert_ne!(server.api(), taken.local_addr().expect("it is bound"));
        server.stop().expect("no thread has panicked");
        std::fs::remove_dir_all(&data).expect("it is ours");
    }
}
