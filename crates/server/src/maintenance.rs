//! The maintenance thread: flushes memtables, compacts runs, expires old rows, and cleans the tables.
//!
//! Maintenance has only one thread, so it never takes more than one core from receivers and queries. The flusher and
//! the compactor are two independent tasks on this thread. The compactor yields after each row group, and the flusher
//! then flushes the memtables that were sealed in the meantime.
//!
//! **Decides** the order of the compactor's steps, one at a time: refresh and checkpoint, cleaning, expiry, tail
//! retention, compaction, summaries. The first four run at intervals, so they never wait until all runs are compacted.
//! If one of them fails, it runs again only after its interval, so it does not hold up compaction. After any failure,
//! the whole task (flusher or compactor) first waits 1 s; each further failure in a row doubles the wait, up to 30 s.

use crate::Config;
use crate::backpressure::FlushBacklog;
use crate::data_folder::{now_ms, uuid};
use crate::error::ServerPanicked;
use crate::metrics::{MaintenanceMetrics, MaintenanceTask};
use arc_swap::ArcSwap;
use curtail_objects::Objects;
use curtail_store::{Compactor, Expired, Flusher, TailKept};
use curtail_text::describe_error;
use std::error::Error;
use std::io;
use std::iter::successors;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

type Failure = Box<dyn Error + Send + Sync>;

/// The wait when there is nothing to do.
const IDLE_WAIT: Duration = Duration::from_millis(100);
/// The wait after the first failure, and the maximum wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);
/// The interval between removals of old commits and replaced files.
const CLEAN_EVERY: Duration = Duration::from_secs(3_600);
/// The interval between readings of the commits of other servers.
const REFRESH_EVERY: Duration = Duration::from_secs(10);
/// The interval of retention.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct MaintenanceThread {
    stop: Arc<AtomicBool>,
    /// [`None`] after the thread was joined.
    thread: Option<JoinHandle<((), ())>>,
}

impl MaintenanceThread {
    pub(crate) fn start(
        flusher: Flusher,
        (compactor, objects): (Compactor, Objects),
        (backlog, metrics): (Arc<FlushBacklog>, Arc<MaintenanceMetrics>),
        config: Arc<ArcSwap<Config>>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = Arc::new(AtomicBool::new(false));
        let flush =
            FlushTask { flusher, backlog, metrics: Arc::clone(&metrics), stop: Arc::clone(&stop) };
        let compact = CompactTask {
            compactor,
            objects,
            config,
            metrics,
            stop: Arc::clone(&stop),
            refreshed: Instant::now(),
            expired: None,
            cleaned: None,
            is_compacted: false,
        };
        let thread = std::thread::Builder::new()
            .name("maintenance".to_owned())
            .spawn(move || runtime.block_on(async { tokio::join!(flush.run(), compact.run()) }))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Whether the thread has ended without [`stop`](Self::stop), which is a bug.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Flushes all sealed memtables and ends the thread.
    pub(crate) fn stop(mut self) -> Result<(), ServerPanicked> {
        self.join()
    }

    fn join(&mut self) -> Result<(), ServerPanicked> {
        self.stop.store(true, Ordering::Release);
        self.thread
            .take()
            .map_or(Ok(()), |thread| thread.join().map(drop).map_err(|_| ServerPanicked))
    }
}

impl Drop for MaintenanceThread {
    /// Ends the thread of a server that fails to start. The thread would otherwise keep the lock of the data folder.
    fn drop(&mut self) {
        // A panic has been printed.
        self.join().ok();
    }
}

struct FlushTask {
    flusher: Flusher,
    backlog: Arc<FlushBacklog>,
    metrics: Arc<MaintenanceMetrics>,
    stop: Arc<AtomicBool>,
}

struct CompactTask {
    compactor: Compactor,
    objects: Objects,
    config: Arc<ArcSwap<Config>>,
    metrics: Arc<MaintenanceMetrics>,
    stop: Arc<AtomicBool>,
    refreshed: Instant,
    expired: Option<Instant>,
    cleaned: Option<Instant>,
    /// Whether the server has logged that nothing is left to compact.
    is_compacted: bool,
}

/// Waits for [`IDLE_WAIT`] if the task is idle; otherwise lets the other task run.
async fn wait_if(is_idle: bool) {
    if is_idle {
        tokio::time::sleep(IDLE_WAIT).await;
    } else {
        tokio::task::yield_now().await;
    }
}

/// Whether a full disk caused the error.
fn is_disk_full(error: &(dyn Error + 'static)) -> bool {
    successors(Some(error), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::StorageFull)
}

/// Exponential backoff after failures.
struct Backoff {
    after: Duration,
    not_before: Instant,
}

impl Backoff {
    fn new() -> Self {
        Self { after: RETRY_AFTER, not_before: Instant::now() }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.not_before
    }

    /// Logs the failure and doubles the wait.
    fn failed(&mut self, what: &str, error: &Failure) {
        let retry_after_s = self.after.as_secs();
        tracing::error!(error = describe_error(&**error), retry_after_s, "{what}");
        self.not_before = Instant::now() + self.after;
        self.after = (2 * self.after).min(RETRY_AFTER_MAX);
    }
}

impl FlushTask {
    /// Flushes until `stop` is set and no memtable is left, or a last flush fails.
    async fn run(mut self) {
        let mut backoff = Backoff::new();
        loop {
            let stops = self.stop.load(Ordering::Acquire);
            let mut is_idle = true;
            if stops || backoff.is_over() {
                match self.flush().await {
                    Ok(is_done) => (is_idle, backoff) = (is_done, Backoff::new()),
                    Err(error) => {
                        self.metrics.failed(MaintenanceTask::Flush);
                        backoff.failed("flush failed; the rows stay in the log", &error);
                    }
                }
            }
            if stops && is_idle {
                return;
            }
            wait_if(is_idle).await;
        }
    }

    /// Flushes the oldest sealed memtable of each table; returns whether no table had a sealed memtable.
    async fn flush(&mut self) -> Result<bool, Failure> {
        let began = Instant::now();
        let flushed = self.flusher.flush(now_ms()).await;
        self.backlog.flushed(flushed.as_ref().is_err_and(|error| is_disk_full(error)));
        let flushed = flushed?;
        if !flushed.is_empty() {
            self.metrics.flushes.record(began.elapsed().into());
        }
        for run in &flushed {
            tracing::info!(path = %run.path, rows = run.rows, bytes = run.bytes, "flushed");
        }
        Ok(flushed.is_empty())
    }
}

impl CompactTask {
    async fn run(mut self) {
        let mut backoff = Backoff::new();
        while !self.stop.load(Ordering::Acquire) {
            let mut is_idle = true;
            if backoff.is_over() {
                match self.step().await {
                    Ok(is_done) => (is_idle, backoff) = (is_done, Backoff::new()),
                    Err(error) => {
                        self.metrics.failed(MaintenanceTask::Upkeep);
                        backoff.failed("maintenance of the tables failed", &error);
                    }
                }
            }
            wait_if(is_idle).await;
        }
    }

    /// Does the next due step; returns whether no step was due.
    async fn step(&mut self) -> Result<bool, Failure> {
        if self.refreshed.elapsed() >= REFRESH_EVERY {
            self.refreshed = Instant::now();
            // Responses count the runs that cannot be read.
            self.compactor.refresh().await?;
            self.compactor.checkpoint(now_ms()).await?;
        }
        if self.cleaned.is_none_or(|at| at.elapsed() >= CLEAN_EVERY) {
            self.cleaned = Some(Instant::now());
            self.compactor.clean(now_ms()).await?;
            let abandoned = self.objects.remove_abandoned(SystemTime::now())?;
            if abandoned > 0 {
                tracing::info!(files = abandoned, "removed unfinished files");
            }
        }
        if self.expired.is_none_or(|at| at.elapsed() >= EXPIRE_EVERY) {
            self.expired = Some(Instant::now());
            let retention = self.config.load().retention;
            for Expired { table, runs, bytes, first, last } in
                self.compactor.expire(&retention, now_ms()).await?
            {
                tracing::info!(table, runs, bytes, %first, %last, "expired");
            }
            if self.keep_tail().await? {
                return Ok(false);
            }
        }
        let (name, began) = (format!("merged-{}", uuid()), Instant::now());
        match self.compactor.compact(now_ms(), &name).await {
            Ok(false) => {}
            Ok(true) => {
                self.metrics.compactions.record(began.elapsed().into());
                tracing::info!(name, took_s = began.elapsed().as_secs_f64(), "compacted");
                self.is_compacted = false;
                return Ok(false);
            }
            Err(error) if error.is_outrun() => {
                tracing::info!(name, %error, "not compacted: another server was first");
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        if self.compactor.summarize(now_ms()).await? {
            return Ok(false);
        }
        if !std::mem::replace(&mut self.is_compacted, true) {
            tracing::info!("nothing is left to compact");
        }
        Ok(true)
    }

    /// Reduces one old day to its tail; returns whether there was such a day.
    async fn keep_tail(&mut self) -> Result<bool, Failure> {
        let Some(tail) = self.config.load().tail else { return Ok(false) };
        let name = format!("tail-{}", uuid());
        let kept = self.compactor.keep_tail(&tail, now_ms(), &name).await?;
        if let Some(TailKept { day, before, after }) = kept {
            tracing::info!(%day, before, after, "reduced the spans of a day to its tail");
        }
        Ok(kept.is_some())
    }
}
