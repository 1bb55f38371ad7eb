//! Group commit: one thread writes many batches to the log with one sync.
//!
//! Batches queue while the thread waits for the disk, and all queued batches form the next group. The slower the disk
//! is, the more batches share a sync. If the queue exceeds one group, tenants take turns by bytes ([`FairQueue`]).
//!
//! A duplicate of a recent batch is not written. If the batch is durable, the duplicate is acknowledged at once; if the
//! batch is still queued, all its senders get the same outcome.
//!
//! **Limits**: a group has [`GROUP_BYTES_MAX`], and [`MemoryLimit`](crate::memory_limit::MemoryLimit) bounds the queue.
//! While the [`Sink`], the consumer of durable batches, accepts none, queued batches wait and are not written. A batch
//! whose senders have all given up is not written.

use crate::memory_limit::MemoryReservation;
use crate::metrics::LogMetrics;
use curtail_otlp::Decoded;
use curtail_policy::FairQueue;
use curtail_store::log::{Log, Record};
use curtail_store::recent::{BatchId, RecentBatches};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Maximum bytes of a group, so that a small batch does not wait for many large ones.
const GROUP_BYTES_MAX: usize = 16 << 20;

/// The interval at which a sender checks whether the sink is stalled.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// The interval between log messages about failures.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// The size of a tenant's turn: about two usual batches.
const TURN_BYTES: NonZeroUsize = NonZeroUsize::new(512 << 10).expect("above 0");

/// Maximum number of queued batches; a memory limit bounds their bytes.
const QUEUED_MAX: usize = 4_096;

/// A durable batch.
#[derive(Debug)]
pub struct DurableBatch {
    /// The record in the log.
    pub record: Record,
    /// The decoded rows.
    pub rows: Decoded,
}

/// The consumer of durable batches. The log thread calls it, and does nothing else meanwhile.
pub trait Sink: Send + 'static {
    /// Waits until the sink accepts batches; calls `report` with the reason at the start and at each further check.
    /// Queued batches wait as well.
    fn wait(&mut self, report: &mut dyn FnMut(StallReason));

    /// Takes the batches of a segment, in the order of the log and before any acknowledgement. Returns whether the
    /// segment should end.
    fn take(&mut self, segment: u64, batches: Vec<DurableBatch>) -> bool;

    /// Notes that a segment has ended: the log writes no more batches to it.
    fn ended(&mut self, segment: u64);
}

/// Why a sink accepts no batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallReason {
    /// The sink is slower than the senders, or its storage does not respond.
    Slow,
    /// The disk of the sink is full.
    DiskFull,
}

/// Sends batches to the log thread.
#[derive(Clone, Debug)]
pub struct Committer {
    queue: mpsc::Sender<LogMessage>,
    stall: Arc<Stall>,
    pub(crate) recent: Arc<RecentBatches>,
    metrics: Arc<LogMetrics>,
}

/// The start and the reason of a wait of the log thread, for the sink or for the disk of the log.
#[derive(Debug, Default)]
struct Stall(Mutex<Option<(Instant, CommitError)>>);

impl Stall {
    fn set(&self, stall: Option<(Instant, CommitError)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stall;
    }

    fn get(&self) -> Option<(Instant, CommitError)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
enum LogMessage {
    Commit(Box<QueuedBatch>),
    EndSegment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// This commit made the batch durable.
    Written,
    /// The batch was durable before, or another sender's commit made it durable.
    Duplicate,
}

type Reply = oneshot::Sender<Result<Outcome, CommitError>>;

#[derive(Debug)]
struct QueuedBatch {
    /// The batch, which is durable once it is written.
    batch: DurableBatch,
    /// The ID of the batch, if it must not be stored twice.
    id: Option<BatchId>,
    /// The memory of the batch, which stays reserved when the sender gives up.
    reservation: MemoryReservation,
    reply: Reply,
}

#[derive(Debug, Default)]
struct BatchGroup {
    batches: Vec<QueuedBatch>,
    bytes: usize,
}

impl BatchGroup {
    fn add(&mut self, queued: QueuedBatch) {
        self.bytes += queued.batch.record.batch.len();
        self.batches.push(queued);
    }
}

/// Why a batch is not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommitError {
    #[error("too many rows in memory wait to be flushed to the tables")]
    BacklogFull,
    #[error("too many rows in memory wait to be flushed to the tables: the disk is full")]
    BacklogFullDiskFull,
    #[error("the disk is full")]
    DiskFull,
    #[error("the log cannot be written")]
    Failed,
    #[error("the log cannot be written: its disk does not respond")]
    LogStalled,
    #[error("the receiver is stopping")]
    Stopping,
}

impl From<StallReason> for CommitError {
    fn from(reason: StallReason) -> Self {
        match reason {
            StallReason::Slow => Self::BacklogFull,
            StallReason::DiskFull => Self::BacklogFullDiskFull,
        }
    }
}

impl Committer {
    /// Starts the log thread, which adds durable batches to `recent`. When the last committer is dropped, the thread
    /// ends its segment and stops.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        log: Log,
        recent: Arc<RecentBatches>,
        sink: impl Sink,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (queue, receiver) = mpsc::channel(QUEUED_MAX);
        let stall = Arc::<Stall>::default();
        let metrics = Arc::<LogMetrics>::default();
        let writer = LogWriter {
            log,
            sink,
            recent: Arc::clone(&recent),
            turns: FairQueue::new(TURN_BYTES),
            joined: HashMap::new(),
            stall: Arc::clone(&stall),
            failures: FailureLog::default(),
            metrics: Arc::clone(&metrics),
        };
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.run(receiver))?;
        Ok((Self { queue, stall, recent, metrics }, thread))
    }

    /// The counters of the log.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<LogMetrics> {
        &self.metrics
    }

    /// Fails if the log thread has waited for the sink or for the disk for `stall_max`.
    pub(crate) fn check_stall(&self, stall_max: Duration) -> Result<(), CommitError> {
        match self.stall.get() {
            Some((since, error)) if since.elapsed() >= stall_max => Err(error),
            _ => Ok(()),
        }
    }

    /// Requests the end of the current segment. No effect if the queue is full: the segment then ends by its size.
    pub fn end_segment(&self) {
        self.queue.try_send(LogMessage::EndSegment).ok();
    }

    /// Waits until a batch is durable; fails if the log thread has waited for `stall_max`. `id` is the ID of the batch,
    /// if it must not be stored twice.
    pub(crate) async fn commit(
        &self,
        batch: DurableBatch,
        (id, reservation): (Option<BatchId>, MemoryReservation),
        stall_max: Duration,
    ) -> Result<Outcome, CommitError> {
        let (reply, mut outcome) = oneshot::channel();
        let queued = Box::new(QueuedBatch { batch, id, reservation, reply });
        let permit = loop {
            match timeout(CHECK_EVERY, self.queue.reserve()).await {
                Ok(permit) => break permit.map_err(|_| CommitError::Stopping)?,
                Err(_) => self.check_stall(stall_max)?,
            }
        };
        permit.send(LogMessage::Commit(queued));
        loop {
            match timeout(CHECK_EVERY, &mut outcome).await {
                Ok(outcome) => return outcome.unwrap_or(Err(CommitError::Stopping)),
                Err(_) => self.check_stall(stall_max)?,
            }
        }
    }
}

/// Logs failed writes, at most once a second, because senders soon retry.
#[derive(Debug, Default)]
struct FailureLog {
    logged: Option<Instant>,
    /// The number and the bytes of batches since the last message.
    batches: usize,
    bytes: usize,
}

impl FailureLog {
    fn add(&mut self, error: &io::Error, batches: usize, bytes: usize) {
        (self.batches, self.bytes) = (self.batches + batches, self.bytes + bytes);
        if self.logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            let Self { batches, bytes, .. } = *self;
            tracing::error!(%error, batches, bytes, "the log cannot be written");
            *self = Self { logged: Some(Instant::now()), ..Self::default() };
        }
    }
}

struct LogWriter<S> {
    log: Log,
    sink: S,
    recent: Arc<RecentBatches>,
    turns: FairQueue<Arc<str>, Box<QueuedBatch>>,
    /// The other senders of each waiting batch with an ID.
    joined: HashMap<BatchId, Vec<Reply>>,
    stall: Arc<Stall>,
    failures: FailureLog,
    metrics: Arc<LogMetrics>,
}

impl<S: Sink> LogWriter<S> {
    fn run(mut self, mut receiver: mpsc::Receiver<LogMessage>) {
        loop {
            if self.turns.is_empty() {
                match receiver.blocking_recv() {
                    Some(LogMessage::Commit(first)) => self.enqueue(first),
                    Some(LogMessage::EndSegment) => {
                        self.end_segment();
                        continue;
                    }
                    None => break,
                }
            }
            let since = Instant::now();
            self.stall.set(Some((since, StallReason::Slow.into())));
            self.sink.wait(&mut |reason| self.stall.set(Some((since, reason.into()))));
            self.stall.set(Some((Instant::now(), CommitError::LogStalled)));
            let mut ends = false;
            while !ends
                && self.turns.len() < QUEUED_MAX
                && let Ok(next) = receiver.try_recv()
            {
                match next {
                    LogMessage::Commit(next) => self.enqueue(next),
                    LogMessage::EndSegment => ends = true,
                }
            }
            let group = self.next_group();
            let is_full = !group.batches.is_empty() && self.write(group);
            if is_full || ends {
                self.end_segment();
            }
            self.stall.set(None);
        }
        self.end_segment();
    }

    /// Queues a batch, unless it is already durable or queued.
    fn enqueue(&mut self, queued: Box<QueuedBatch>) {
        let Record { tenant, batch, received_ns, .. } = &queued.batch.record;
        if let Some(id) = queued.id {
            if self.recent.contains(id, *received_ns) {
                // The sender may be gone, here and below.
                queued.reply.send(Ok(Outcome::Duplicate)).ok();
                return;
            }
            match self.joined.entry(id) {
                Entry::Occupied(mut joined) => return joined.get_mut().push(queued.reply),
                Entry::Vacant(first) => _ = first.insert(Vec::new()),
            }
        }
        let (tenant, bytes) = (Arc::clone(tenant), batch.len());
        self.turns.push(&tenant, bytes, queued);
    }

    /// Takes the next batches, except those whose senders have all given up.
    fn next_group(&mut self) -> BatchGroup {
        let mut group = BatchGroup::default();
        while group.bytes < GROUP_BYTES_MAX
            && let Some(next) = self.turns.pop()
        {
            let joined = next.id.and_then(|id| self.joined.get(&id));
            let is_given_up = |replies: &Vec<Reply>| replies.iter().all(Reply::is_closed);
            if next.reply.is_closed() && joined.is_none_or(is_given_up) {
                next.id.and_then(|id| self.joined.remove(&id));
            } else {
                group.add(*next);
            }
        }
        group
    }

    /// Writes a group and replies to its senders; returns whether the segment should end.
    fn write(&mut self, BatchGroup { batches: group, bytes }: BatchGroup) -> bool {
        let records: Vec<_> = group.iter().map(|queued| queued.batch.record.clone()).collect();
        let began = Instant::now();
        let written = self.log.append(&records);
        match &written {
            Ok(_) => {
                self.metrics.bytes.add(bytes as u64);
                self.metrics.writes.record(began.elapsed().into());
            }
            Err(_) => self.metrics.failures.add(1),
        }
        let written = written.map_err(|error| {
            self.failures.add(&error, group.len(), bytes);
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            if is_full { CommitError::DiskFull } else { CommitError::Failed }
        });
        let (batches, senders): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|QueuedBatch { batch, id, reservation, reply }| {
                // The memtable counts the rows from here on.
                drop(reservation);
                let received_ns = batch.record.received_ns;
                (batch, (id, received_ns, reply))
            })
            .unzip();
        let ends = written.is_ok_and(|segment| self.sink.take(segment, batches));
        for (id, received_ns, reply) in senders {
            if let Some(id) = id {
                if let Ok(segment) = written {
                    self.recent.insert(id, received_ns, segment);
                }
                for joined in self.joined.remove(&id).into_iter().flatten() {
                    joined.send(written.map(|_| Outcome::Duplicate)).ok();
                }
            }
            reply.send(written.map(|_| Outcome::Written)).ok();
        }
        ends
    }

    /// Ends the segment. If this fails, the rows of the segment stay in memory until a later attempt.
    fn end_segment(&mut self) {
        match self.log.end_segment() {
            Ok(()) => self.sink.ended(self.log.last_segment()),
            Err(error) => self.failures.add(&error, 0, 0),
        }
    }
}
