//! The thread that writes runs, merges them, and looks after the tables.
//!
//! One thread does all of it, so that compaction never takes more than a core from those who are served.
//! Between the row groups of a merge memtables are written that have filled meanwhile.

use super::place::{now_ms, uuid};
use crate::exit::describe_error;
use curtail_ingest::Why;
use curtail_objects::Objects;
use curtail_store::tail::Tail;
use curtail_store::{Expired, Keeper, Retention, TailKept};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// So often it looks whether there is something to do.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After a failure it waits, at first so long, then twice as long each time, up to the most.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);

/// So often what no table needs any more is removed.
const CLEAN_EVERY: Duration = Duration::from_secs(3_600);

/// So often it is looked what other servers have done with the same tables.
const REFRESH_EVERY: Duration = Duration::from_secs(10);

/// So often it is looked whether something is not kept any longer.
const EXPIRE_EVERY: Duration = Duration::from_secs(60);

/// What may wait to be written, and who waits for that.
#[derive(Debug)]
pub(super) struct Room {
    bytes_max: usize,
    /// Whether there is no limit any more.
    lock: Mutex<bool>,
    changed: Condvar,
    /// Whether what was to be written last was not, since the disk is full.
    is_disk_full: AtomicBool,
}

impl Room {
    pub(super) const fn new(bytes_max: usize) -> Self {
        let (lock, changed) = (Mutex::new(false), Condvar::new());
        Self { bytes_max, lock, changed, is_disk_full: AtomicBool::new(false) }
    }

    /// Waits until less than the most waits to be written; `tell` is told why, as long as it is so.
    pub(super) fn wait(&self, waiting_bytes: impl Fn() -> usize, tell: &mut dyn FnMut(Why)) {
        let is_full = |is_unlimited: &mut bool| !*is_unlimited && waiting_bytes() >= self.bytes_max;
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while is_full(&mut lock) {
            let is_disk_full = self.is_disk_full.load(Ordering::Relaxed);
            tell(if is_disk_full { Why::DiskFull } else { Why::Slow });
            // Whoever writes between the parts of a merge does not tell.
            let waited = self.changed.wait_timeout_while(lock, LOOK_EVERY, is_full);
            lock = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Nobody waits any more: what was sent before the end is in the log, whether or not it can be written.
    pub(super) fn end(&self) {
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Something was written.
    fn changed(&self) {
        // Whoever looks and is about to wait has the lock.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// The thread.
pub(super) struct Keeping {
    stops: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Keeping {
    /// Starts it.
    pub(super) fn start(
        (keeper, objects): (Keeper, Objects),
        room: Arc<Room>,
        retention: Retention,
        tail: Option<Tail>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stops = Arc::new(AtomicBool::new(false));
        let keep = Keep {
            keeper,
            objects,
            retention,
            tail,
            room,
            stops: Arc::clone(&stops),
            refreshed: Instant::now(),
            expired: None,
            cleaned: Instant::now(),
            is_merged: false,
        };
        let thread = std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || runtime.block_on(keep.run()))?;
        Ok(Self { stops, thread })
    }

    /// Whether it has ended, which it should not before it is told.
    pub(super) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Has it write what is in memory, and waits for its end.
    pub(super) fn stop(self) {
        self.stops.store(true, Ordering::Release);
        if self.thread.join().is_err() {
            tracing::error!("the keeper has panicked");
        }
    }
}

struct Keep {
    keeper: Keeper,
    /// Where the tables are.
    objects: Objects,
    retention: Retention,
    tail: Option<Tail>,
    room: Arc<Room>,
    stops: Arc<AtomicBool>,
    /// When it was last looked what others have done.
    refreshed: Instant,
    /// When it was last looked whether something is not kept any longer.
    expired: Option<Instant>,
    /// When what no table needs any more was last removed.
    cleaned: Instant,
    /// Whether it was said that there is nothing to merge.
    is_merged: bool,
}

/// Whether it comes of a full disk.
fn is_disk_full(error: &anyhow::Error) -> bool {
    let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(is_full))
}

/// How long to wait after failures.
struct Patience {
    after: Duration,
    not_before: Instant,
}

impl Patience {
    fn new() -> Self {
        Self { after: AGAIN_AFTER, not_before: Instant::now() }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.not_before
    }

    /// Says what failed, and waits twice as long as the last time.
    fn failed(&mut self, what: &str, error: &anyhow::Error) {
        let again = self.after.as_secs();
        tracing::error!(error = describe_error(error), again_after_s = again, "{what}");
        self.not_before = Instant::now() + self.after;
        self.after = (2 * self.after).min(AGAIN_AFTER_MAX);
    }
}

impl Keep {
    async fn run(mut self) {
        let (mut writing, mut upkeep) = (Patience::new(), Patience::new());
        loop {
            let stops = self.stops.load(Ordering::Acquire);
            let mut is_idle = true;
            if stops || writing.is_over() {
                match self.write().await {
                    Ok(is_done) => (is_idle, writing) = (is_done, Patience::new()),
                    Err(error) => {
                        writing.failed("what came is not written, but in the log", &error)
                    }
                }
            }
            if stops && is_idle {
                return;
            }
            if !stops && is_idle && upkeep.is_over() {
                match self.upkeep().await {
                    Ok(is_done) => (is_idle, upkeep) = (is_done, Patience::new()),
                    Err(error) => upkeep.failed("the tables are not kept small", &error),
                }
            }
            if is_idle {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }

    /// Writes what is sealed; returns whether there was nothing.
    async fn write(&mut self) -> anyhow::Result<bool> {
        let flushed = self.keeper.flush(now_ms()).await.map_err(anyhow::Error::from);
        let is_disk_full = flushed.as_ref().is_err_and(is_disk_full);
        self.room.is_disk_full.store(is_disk_full, Ordering::Relaxed);
        // Of several tables some may have been written all the same.
        self.room.changed();
        let flushed = flushed?;
        for run in &flushed {
            tracing::info!(path = %run.path, rows = run.rows, bytes = run.bytes, "written");
        }
        Ok(flushed.is_empty())
    }

    /// Does what is most urgent besides; returns whether there was nothing.
    async fn upkeep(&mut self) -> anyhow::Result<bool> {
        self.keeper.checkpoint(now_ms()).await?;
        if self.refreshed.elapsed() >= REFRESH_EVERY {
            self.refreshed = Instant::now();
            // Those that cannot be read are said by every answer.
            self.keeper.refresh().await?;
        }
        if self.expired.is_none_or(|at| at.elapsed() >= EXPIRE_EVERY) {
            self.expired = Some(Instant::now());
            for Expired { table, runs, bytes, first, last } in
                self.keeper.expire(&self.retention, now_ms()).await?
            {
                tracing::info!(table, runs, bytes, %first, %last, "not kept any longer");
            }
            if self.keep_tail().await? {
                return Ok(false);
            }
        }
        let (name, began) = (format!("merged-{}", uuid()), Instant::now());
        match self.keeper.compact(now_ms(), &name).await {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(name, took_s = began.elapsed().as_secs_f64(), "runs merged");
                self.is_merged = false;
                return Ok(false);
            }
            Err(error) if error.is_outrun() => {
                tracing::info!(name, %error, "not merged: another server was first");
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        if self.keeper.summarise(now_ms()).await? {
            return Ok(false);
        }
        if !std::mem::replace(&mut self.is_merged, true) {
            tracing::info!("no runs are left to merge");
        }
        if self.cleaned.elapsed() >= CLEAN_EVERY {
            self.cleaned = Instant::now();
            self.keeper.clean(now_ms()).await?;
            let abandoned = self.objects.remove_abandoned(SystemTime::now())?;
            if abandoned > 0 {
                tracing::info!(files = abandoned, "removed what was not written to its end");
            }
        }
        Ok(true)
    }

    /// Keeps the tail of a day; returns whether there was one of which it is to be kept.
    async fn keep_tail(&mut self) -> anyhow::Result<bool> {
        let Some(tail) = self.tail else { return Ok(false) };
        let name = format!("tail-{}", uuid());
        let kept = self.keeper.keep_tail(&tail, now_ms(), &name).await?;
        if let Some(TailKept { day, before, after }) = kept {
            tracing::info!(%day, before, after, "of the spans of a day only the tail is kept");
        }
        Ok(kept.is_some())
    }
}
