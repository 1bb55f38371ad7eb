//! Requests that are over, until their spans and their lines of the access log are written.
//!
//! A worker writes its requests together, [`DELAY`] after the first one ([`run`]). So no client waits for an encoder, also
//! where client, proxy and replica share a core, and the encoder's code is fetched into the caches once for all of them.
//! **Limits**: [`WAITING_BYTES_MAX`] for each worker. One that has more writes them at once, so none is lost.
//! **Hurts when** a request arrives meanwhile: it waits for up to [`TURN`] others.

use crate::trail::Trail;
use crate::worker::{Shared, Worker};
use curtail_http::precise_timer::PreciseTimer;
use curtail_units::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The time from the first request that is over until all are written. A fraction of it is the time of waking for that.
const DELAY: Duration = Duration::from_ms(10);

/// Maximum memory of the requests of one worker; it may be exceeded by one request.
const WAITING_BYTES_MAX: usize = 512 << 10;

/// The number of requests that are written before the other tasks of the worker run.
const TURN: usize = 16;

/// The requests that are over, by worker.
#[derive(Debug)]
pub(crate) struct FinishedRequests {
    by_worker: Box<[WorkerQueue]>,
}

/// The requests of one worker; aligned, so that no two workers write to one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WorkerQueue {
    queue: Mutex<Queue>,
    /// Notifies [`run`] of a request in an empty queue.
    waiting: Notify,
}

/// Requests in the order in which they ended.
#[derive(Debug, Default)]
struct Queue {
    trails: VecDeque<Box<Trail>>,
    /// Their memory.
    bytes: usize,
}

impl FinishedRequests {
    pub(crate) fn new(workers: usize) -> Self {
        Self { by_worker: (0..workers).map(|_| WorkerQueue::default()).collect() }
    }

    /// Keeps a request that is over. Returns whether its worker has too many.
    fn push(&self, worker: usize, trail: Box<Trail>) -> bool {
        let mut queue = self.lock(worker);
        queue.bytes += trail.memory();
        queue.trails.push_back(trail);
        let (is_first, is_full) = (queue.trails.len() == 1, queue.bytes >= WAITING_BYTES_MAX);
        drop(queue);
        if is_first {
            self.by_worker[worker].waiting.notify_one();
        }
        is_full
    }

    /// Takes the first requests of a worker, at most [`TURN`].
    fn take_some(&self, worker: usize) -> Vec<Box<Trail>> {
        let mut queue = self.lock(worker);
        let count = queue.trails.len().min(TURN);
        let taken: Vec<_> = queue.trails.drain(..count).collect();
        queue.bytes -= taken.iter().map(|trail| trail.memory()).sum::<usize>();
        taken
    }

    /// Nothing panics while it holds one of these locks; should it ever, recording goes on.
    fn lock(&self, worker: usize) -> MutexGuard<'_, Queue> {
        self.by_worker[worker].queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a request that is over until its spans and its line are written, if these are wanted.
pub(crate) fn record(shared: &Shared, worker: usize, mut trail: Box<Trail>) {
    let snapshot = shared.snapshot.load();
    let has_spans = snapshot.spans.is_some() && trail.context.sampled;
    if !has_spans && snapshot.access_log.is_none() {
        return;
    }
    // It no longer counts as in flight.
    (trail.limit_permit, trail.upstream_permit) = (None, None);
    if shared.process_state.finished.push(worker, trail) {
        write_some(shared, worker);
    }
}

/// Writes the requests of a worker that are over, as long as it runs.
pub(crate) async fn run(worker: Arc<Worker>, mut timer: PreciseTimer) {
    let (shared, index) = (&worker.shared, worker.index);
    loop {
        shared.process_state.finished.by_worker[index].waiting.notified().await;
        if timer.wait(DELAY).await.is_err() {
            tokio::time::sleep(DELAY.into()).await;
        }
        while write_some(shared, index) {
            tokio::task::yield_now().await;
        }
    }
}

/// Writes all requests that are over so far.
pub(crate) fn write_all(shared: &Shared) {
    for worker in 0..shared.process_state.finished.by_worker.len() {
        while write_some(shared, worker) {}
    }
}

/// Writes the first requests of a worker. Returns whether there were any.
fn write_some(shared: &Shared, worker: usize) -> bool {
    // First the configuration: a reload must not change how requests of before are written.
    let (snapshot, clock) = (shared.snapshot.load(), &shared.process_state.clock);
    let trails = shared.process_state.finished.take_some(worker);
    if let Some(sink) = &snapshot.spans {
        trails.iter().for_each(|trail| sink.record(trail, clock));
    }
    if let Some(log) = &snapshot.access_log {
        trails.iter().for_each(|trail| log.record_request(worker, trail, clock));
    }
    !trails.is_empty()
}

#[cfg(test)]
mod tests;
