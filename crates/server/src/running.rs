//! A running server: its threads, their start, and their end.

use crate::backpressure::FlushBacklog;
use crate::data_folder::{DataFolder, entropy, now_ms, uuid};
use crate::maintenance::MaintenanceThread;
use crate::{Config, ServerPanicked, StartError, describe_error};
use curtail_api::{Sql, SqlProgram};
use curtail_ingest::{Committer, Counts, Sink, Taken, Why};
use curtail_store::log::{self, Damage, Log};
use curtail_store::recent::RecentBatches;
use curtail_store::tree::Unread;
use curtail_store::{Found, Store};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// The time that senders have to end their batches after the stop.
const GRACE: Duration = Duration::from_secs(5);

/// The interval of looking whether all threads are alive.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of full memtables that wait for a flush.
const WAITING_MEMTABLES_MAX: usize = 4;

/// A running server. Without [`stop`](Self::stop), it stops in the background when it is dropped.
#[derive(Debug)]
pub struct Running {
    addresses: Addresses,
    stop: oneshot::Sender<()>,
    /// Closed when the server has ended.
    ended: oneshot::Receiver<()>,
    thread: JoinHandle<Result<(), ServerPanicked>>,
}

#[derive(Clone, Debug)]
struct Addresses {
    otlp: Vec<SocketAddr>,
    api: SocketAddr,
}

/// Starts a server on threads of its own; when this returns, it listens.
///
/// # Errors
/// When the data cannot be opened, an address cannot be bound, or the system refuses a thread.
pub fn start(config: Config) -> Result<Running, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let (started, starting) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("server".to_owned()).spawn(move || {
        let _end: oneshot::Sender<()> = end;
        runtime.block_on(async {
            match Parts::start(&config).await {
                Ok(parts) => {
                    // A caller that is gone has dropped `stop` as well.
                    started.send(Ok(parts.addresses())).ok();
                    parts.run(&config, stopped).await
                }
                Err(error) => {
                    started.send(Err(error)).ok();
                    Ok(())
                }
            }
        })
    })?;
    match starting.recv() {
        Ok(addresses) => Ok(Running { addresses: addresses?, stop, ended, thread }),
        Err(_) => Err(std::io::Error::other(ServerPanicked).into()),
    }
}

impl Running {
    /// The addresses of the receivers, in the order of the configuration.
    #[must_use]
    pub fn otlp(&self) -> &[SocketAddr] {
        &self.addresses.otlp
    }

    /// The address of the query API.
    #[must_use]
    pub const fn api(&self) -> SocketAddr {
        self.addresses.api
    }

    /// Waits until the server fails; [`stop`](Self::stop) returns the error then.
    pub async fn failed(&mut self) {
        // Nothing is ever sent.
        let _closed = (&mut self.ended).await;
    }

    /// Stops the receivers, flushes all acknowledged rows, and waits for the end.
    ///
    /// # Errors
    /// When a thread has panicked.
    pub fn stop(self) -> Result<(), ServerPanicked> {
        drop(self.stop);
        self.thread.join().unwrap_or(Err(ServerPanicked))
    }
}

/// The parts of a server, each on its own threads.
struct Parts {
    receivers: curtail_ingest::Running,
    committer: Committer,
    log: JoinHandle<()>,
    backlog: Arc<FlushBacklog>,
    maintenance: MaintenanceThread,
    api: curtail_api::Running,
    counts: BatchCounts,
}

impl Parts {
    async fn start(config: &Config) -> Result<Self, StartError> {
        let tokens = config.tokens()?;
        let folder = DataFolder::open(&config.data, config.tables.as_deref()).await?;
        let memtable_bytes = config.memtable.as_len();
        let settings = folder.settings(memtable_bytes);
        let (keeper, found) =
            Store::open(&settings, now_ms(), &uuid()).await.map_err(|source| {
                StartError::Store {
                    tables: folder.objects().url().to_owned(),
                    source: Box::new(source),
                }
            })?;
        log_recovery(&found);
        let store = Arc::clone(keeper.store());
        let backlog = Arc::new(FlushBacklog::new(memtable_bytes * WAITING_MEMTABLES_MAX));
        let log = Log::open(Arc::clone(&settings.files), keeper.last_segment(), entropy())
            .map_err(|source| StartError::File { path: config.data.join("log"), source })?;
        let maintenance = MaintenanceThread::start(
            (keeper, folder.objects().clone()),
            Arc::clone(&backlog),
            (config.retention, config.tail),
        )?;
        let sink = MemtableSink { store: Arc::clone(&store), backlog: Arc::clone(&backlog) };
        let recent = Arc::clone(store.recent());
        let (committer, log) = Committer::start(log, Arc::clone(&recent), sink)?;
        let receivers = start_receivers(config, tokens, &committer)?;
        let counts =
            BatchCounts { counts: Arc::clone(receivers.counts()), recent, logged: (0, 0, 0) };
        let program = SqlProgram::beside(&std::env::current_exe()?);
        let sql = Sql::new(program, folder.tables_folder().map(Path::to_path_buf));
        let address = config.api.address;
        let api = curtail_api::start(address, store, sql, config.api.limits).await;
        let api = api.map_err(|source| StartError::Listen {
            key: "api.address (--api)",
            address,
            source,
        })?;
        Ok(Self { receivers, committer, log, backlog, maintenance, api, counts })
    }

    fn addresses(&self) -> Addresses {
        Addresses { otlp: self.receivers.addresses().to_vec(), api: self.api.address() }
    }

    /// Runs until `stopped`, then ends all parts in the order of the data's way.
    async fn run(
        mut self,
        config: &Config,
        mut stopped: oneshot::Receiver<()>,
    ) -> Result<(), ServerPanicked> {
        let mut flush = tokio::time::interval(config.flush_every.into());
        let mut watch = tokio::time::interval(WATCH_EVERY);
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                _ = flush.tick() => {
                    self.committer.end_segment();
                    self.counts.log();
                }
                _ = watch.tick() => if self.log.is_finished() || self.maintenance.is_finished() {
                    return Err(ServerPanicked);
                },
            }
        }
        tracing::info!("stopping: batches in flight are stored, and all rows flushed");
        self.api.stop().await;
        self.receivers.stop(GRACE);
        self.counts.log();
        drop(self.committer);
        self.backlog.lift();
        let joined = self.log.join();
        self.maintenance.stop();
        joined.map_err(|_| ServerPanicked)
    }
}

fn start_receivers(
    config: &Config,
    tokens: Vec<String>,
    committer: &Committer,
) -> Result<curtail_ingest::Running, StartError> {
    use curtail_ingest::StartError::{Listen, Thread};
    let receivers = curtail_ingest::Config {
        addresses: config.otlp.addresses.clone(),
        tokens,
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

/// Inserts durable batches into the memtables.
struct MemtableSink {
    store: Arc<Store>,
    backlog: Arc<FlushBacklog>,
}

impl Sink for MemtableSink {
    fn wait(&mut self, tell: &mut dyn FnMut(Why)) {
        self.backlog.wait(|| self.store.waiting_bytes(), tell);
    }

    fn take(&mut self, segment: u64, taken: Vec<Taken>) -> bool {
        for Taken { record, rows } in &taken {
            self.store.insert(segment, record, rows);
        }
        self.store.is_full()
    }

    fn ended(&mut self, segment: u64) {
        self.store.seal(segment);
    }
}

/// The batch counts of the log messages.
struct BatchCounts {
    counts: Arc<Counts>,
    recent: Arc<RecentBatches>,
    logged: (u64, u64, u64),
}

impl BatchCounts {
    /// Logs the batches since the start if they have changed: stored ones, duplicates, and those that were evicted
    /// before ten minutes were over.
    fn log(&mut self) {
        let (batches, duplicates) = (self.counts.batches(), self.counts.duplicate_batches());
        let forgotten_early = self.recent.forgotten_early();
        let now = (batches, duplicates, forgotten_early);
        if std::mem::replace(&mut self.logged, now) != now {
            tracing::info!(batches, duplicates, forgotten_early, "batches since the start");
        }
    }
}

/// Logs what was replayed from the log, and what is damaged.
fn log_recovery(found: &Found) {
    let Found { spans, logs, points, damaged, undecoded, duplicates, unread_records, unread } =
        found;
    if spans + logs + points > 0 {
        tracing::info!(spans, logs, points, duplicates, "replayed the log");
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
