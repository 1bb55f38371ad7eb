//! Finished requests, until their spans and their lines of the access log are written.
//!
//! A worker writes its requests in batches, [`DELAY`] after the first one ([`run`]). So a client need not wait until its
//! request is encoded, also where client, proxy and replica share a core, and a batch fetches the encoders' code into the
//! caches once. Each request is written as the configuration wanted it when the request ended.
//! **Limits**: [`WAITING_BYTES_MAX`] for each worker. A worker with more writes batches at once, so no request is lost.
//! **Hurts when** a request arrives while a batch is written: it waits for that.

use crate::snapshot::ConfigSnapshot;
use crate::trail::Trail;
use crate::worker::{Shared, Worker};
use curtail_http::precise_timer::PreciseTimer;
use curtail_units::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The time from the first finished request to the first batch. With a longer one, the requests would be in no cache any
/// more.
const DELAY: Duration = Duration::from_ms(10);

/// Maximum memory of the requests of one worker; it may be exceeded by one request.
const WAITING_BYTES_MAX: usize = 512 << 10;

/// The worker does not wait for [`DELAY`] when this many requests have finished: they would not stay in its caches.
const MANY: usize = 48;

/// Maximum number of requests in a batch. Between two batches, the other tasks of the worker run.
const BATCH_MAX: usize = 16;

/// The finished requests, by worker.
#[derive(Debug)]
pub(crate) struct FinishedRequests {
    by_worker: Box<[WorkerQueue]>,
}

/// The requests of one worker; aligned, so that no two workers write to one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WorkerQueue {
    queue: Mutex<Queue>,
    /// Notifies [`run`] of the first request, and of [`MANY`].
    waiting: Notify,
}

/// Requests in the order in which they ended.
#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<FinishedRequest>,
    /// Their memory.
    bytes: usize,
}

#[derive(Debug)]
struct FinishedRequest {
    trail: Box<Trail>,
    /// The memory of the trail, computed once: the queue adds it and later subtracts it.
    bytes: usize,
    /// The configuration at its end.
    snapshot: Arc<ConfigSnapshot>,
}

impl FinishedRequests {
    pub(crate) fn new(workers: usize) -> Self {
        Self { by_worker: (0..workers).map(|_| WorkerQueue::default()).collect() }
    }

    /// Returns whether the worker now has too many requests.
    fn push(&self, worker: usize, request: FinishedRequest) -> bool {
        let mut queue = self.lock(worker);
        queue.bytes += request.bytes;
        queue.requests.push_back(request);
        let (is_due, is_full) = (matches!(queue.requests.len(), 1 | MANY), queue.is_full());
        drop(queue);
        if is_due {
            self.by_worker[worker].waiting.notify_one();
        }
        is_full
    }

    /// Takes the first requests of a worker, and whether it still has too many.
    fn take_batch(&self, worker: usize) -> (Vec<FinishedRequest>, bool) {
        let mut queue = self.lock(worker);
        let count = queue.requests.len().min(BATCH_MAX);
        let batch: Vec<_> = queue.requests.drain(..count).collect();
        queue.bytes -= batch.iter().map(|request| request.bytes).sum::<usize>();
        (batch, queue.is_full())
    }

    /// Nothing panics while it holds one of these locks; should it ever, recording goes on.
    fn lock(&self, worker: usize) -> MutexGuard<'_, Queue> {
        self.by_worker[worker].queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    const fn is_full(&self) -> bool {
        self.bytes >= WAITING_BYTES_MAX
    }
}

/// Keeps a finished request until its spans and its line are written, if these are wanted.
pub(crate) fn record(
    shared: &Shared,
    snapshot: &Arc<ConfigSnapshot>,
    worker: usize,
    mut trail: Box<Trail>,
) {
    let has_spans = snapshot.spans.is_some() && trail.context.sampled;
    let has_line = snapshot.access_log.is_some() && !trail.is_call;
    if !has_spans && !has_line {
        return;
    }
    // It no longer counts as in flight.
    (trail.limit_permit, trail.upstream_permit) = (None, None);
    let bytes = trail.memory();
    let request = FinishedRequest { trail, bytes, snapshot: Arc::clone(snapshot) };
    let mut is_full = shared.process_state.finished.push(worker, request);
    while is_full {
        is_full = write_batch(shared, worker).1;
    }
}

/// Writes the finished requests of a worker, as long as it runs.
pub(crate) async fn run(worker: Arc<Worker>, mut timer: PreciseTimer) {
    let (shared, index) = (&worker.shared, worker.index);
    loop {
        let waiting = &shared.process_state.finished.by_worker[index].waiting;
        waiting.notified().await;
        let delay = async {
            if timer.wait(DELAY).await.is_err() {
                tokio::time::sleep(DELAY.into()).await;
            }
        };
        tokio::select! {
            () = waiting.notified() => {}
            () = delay => {}
        }
        while write_batch(shared, index).0 > 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Writes all requests that have finished so far.
pub(crate) fn write_all(shared: &Shared) {
    for worker in 0..shared.process_state.finished.by_worker.len() {
        while write_batch(shared, worker).0 > 0 {}
    }
}

/// Writes the first requests of a worker. Returns their number, and whether the worker still has too many.
fn write_batch(shared: &Shared, worker: usize) -> (usize, bool) {
    let (batch, is_full) = shared.process_state.finished.take_batch(worker);
    let clock = &shared.process_state.clock;
    for FinishedRequest { trail, snapshot, .. } in &batch {
        if let Some(sink) = &snapshot.spans {
            sink.record(trail, clock);
        }
        if let Some(log) = &snapshot.access_log {
            log.record_request(worker, trail, clock);
        }
    }
    (batch.len(), is_full)
}

#[cfg(test)]
mod tests;
