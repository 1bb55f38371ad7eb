//! The thread that writes runs, merges them, and looks after the tables.
//!
//! One thread does all of it, so that compaction never takes more than a core from those who are served.
//! Between the row groups of a merge memtables are written that have filled meanwhile.

use super::place::{now_ms, uuid};
use curtail_store::Keeper;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So often it looks whether there is something to do.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After a failure it waits, at first so long, then twice as long each time, up to the most.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);

/// So often what no table needs any more is removed.
const CLEAN_EVERY: Duration = Duration::from_secs(3_600);

/// What may wait to be written, and who waits for that.
#[derive(Debug)]
pub(super) struct Room {
    bytes_max: usize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Room {
    pub(super) const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, lock: Mutex::new(()), changed: Condvar::new() }
    }

    /// Waits until less than the most waits to be written.
    pub(super) fn wait(&self, waiting_bytes: impl Fn() -> usize) {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |(): &mut ()| waiting_bytes() >= self.bytes_max;
        drop(self.changed.wait_while(lock, is_full).unwrap_or_else(PoisonError::into_inner));
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
    pub(super) fn start(keeper: Keeper, room: Arc<Room>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stops = Arc::new(AtomicBool::new(false));
        let keep = Keep { keeper, room, stops: Arc::clone(&stops) };
        let thread = std::thread::Builder::new()
            .name("keeper".to_owned())
            .spawn(move || runtime.block_on(keep.run()))?;
        Ok(Self { stops, thread })
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
    room: Arc<Room>,
    stops: Arc<AtomicBool>,
}

impl Keep {
    async fn run(mut self) {
        let (mut again_after, mut cleaned) = (AGAIN_AFTER, Instant::now());
        loop {
            let stops = self.stops.load(Ordering::Acquire);
            match self.work(&mut cleaned).await {
                Ok(is_done) if is_done && stops => return,
                Ok(is_done) => {
                    again_after = AGAIN_AFTER;
                    if is_done {
                        tokio::time::sleep(LOOK_EVERY).await;
                    }
                }
                Err(error) => {
                    let again = again_after.as_secs();
                    tracing::error!(
                        error = format!("{error:#}"),
                        again_after_s = again,
                        "not written"
                    );
                    if stops {
                        tracing::warn!(
                            "what is not written is in the log, and taken in from there"
                        );
                        return;
                    }
                    tokio::time::sleep(again_after).await;
                    again_after = (2 * again_after).min(AGAIN_AFTER_MAX);
                }
            }
        }
    }

    /// Does what is most urgent; returns whether there was nothing.
    async fn work(&mut self, cleaned: &mut Instant) -> anyhow::Result<bool> {
        let flushed = self.keeper.flush(now_ms()).await?;
        if !flushed.is_empty() {
            self.room.changed();
            for run in &flushed {
                tracing::info!(path = %run.path, rows = run.rows, bytes = run.bytes, "written");
            }
            self.keeper.checkpoint(now_ms()).await?;
            return Ok(false);
        }
        if self.stops.load(Ordering::Acquire) {
            return Ok(true);
        }
        let name = format!("merged-{}", uuid());
        if self.keeper.compact(now_ms(), &name).await? {
            self.room.changed();
            tracing::info!(name, "runs merged");
            return Ok(false);
        }
        if cleaned.elapsed() >= CLEAN_EVERY {
            *cleaned = Instant::now();
            self.keeper.clean(now_ms()).await?;
        }
        Ok(true)
    }
}
