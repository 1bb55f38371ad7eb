//! Making batches durable, many at once.
//!
//! One thread writes the log. While it waits for the disk batches gather, and the next group is all of them:
//! the slower the disk, the more share a sync. Where they are more than a group has room for, tenants take
//! turns by bytes ([`FairQueue`]).
//!
//! A batch that is sent again is not written again. If it is durable, it is acknowledged at once; if it still waits,
//! its sender waits for the same outcome.
//!
//! **Limits**: [`GROUP_BYTES_MAX`] a group; what waits is bounded by what may be received at once. While the sink
//! takes nothing, nothing is written, and who waits for too long gives up: what nobody waits for is not written.

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

/// More is not written at once, so that nobody waits for much more than its own.
const GROUP_BYTES_MAX: usize = 16 << 20;

/// Who waits looks so often whether it should.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What fails again and again is said so often.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// The turn of a tenant: about two batches of the usual length.
const TURN_BYTES: NonZeroUsize = NonZeroUsize::new(512 << 10).expect("above 0");

/// Batches that wait; their bytes are bounded before.
const WAITING_MAX: usize = 4_096;

/// A batch that is durable.
#[derive(Debug)]
pub struct Taken {
    /// As it was written.
    pub record: Record,
    /// What was read of it.
    pub rows: Decoded,
}

/// Where batches go that are durable. It is called by the thread that writes the log, which does nothing else
/// meanwhile.
pub trait Sink: Send + 'static {
    /// Waits until it can take more. What waits for the log waits with it, and senders are told when that is
    /// too much; also why, which `tell` is told as often as it is looked.
    fn wait(&mut self, tell: &mut dyn FnMut(Why));

    /// Takes what is durable in a segment, in the order of the log and before any sender is told. Returns
    /// whether the segment should end.
    fn take(&mut self, segment: u64, taken: Vec<Taken>) -> bool;

    /// A segment has ended: nothing is written to it any more.
    fn ended(&mut self, segment: u64);
}

/// Why a sink takes nothing for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is slower than senders are, or what it writes to does not answer.
    Slow,
    /// What it writes to is full.
    DiskFull,
}

/// The way to the log.
#[derive(Clone, Debug)]
pub struct Committer {
    waiting: mpsc::Sender<Message>,
    full: Arc<Full>,
    recent: Arc<RecentBatches>,
    metrics: Arc<LogMetrics>,
}

/// Since when the sink takes nothing, and why, if it does not.
#[derive(Debug, Default)]
struct Full(Mutex<Option<(Instant, Why)>>);

impl Full {
    fn set(&self, full: Option<(Instant, Why)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = full;
    }

    fn get(&self) -> Option<(Instant, Why)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread is told.
#[derive(Debug)]
enum Message {
    Commit(Box<Waiting>),
    EndSegment,
}

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// This commit made the batch durable.
    Written,
    /// The batch was durable before, or another sender's commit made it durable.
    Duplicate,
}

type Reply = oneshot::Sender<Result<Outcome, NotWritten>>;

#[derive(Debug)]
struct Waiting {
    taken: Taken,
    /// Its ID, if it must not be stored twice.
    id: Option<BatchId>,
    reply: Reply,
}

/// Batches that are written together.
#[derive(Debug, Default)]
struct Group {
    waiting: Vec<Waiting>,
    bytes: usize,
}

impl Group {
    fn add(&mut self, waiting: Waiting) {
        self.bytes += waiting.taken.record.batch.len();
        self.waiting.push(waiting);
    }
}

/// The log could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotWritten {
    #[error("memory is full of what waits to be written to the tables")]
    NoRoom,
    #[error("memory is full of what waits to be written to the tables: the disk is full")]
    NoRoomNorDisk,
    #[error("the disk is full")]
    Full,
    #[error("the log cannot be written")]
    Failed,
    #[error("the receiver is stopping")]
    Stopping,
}

impl Committer {
    /// Starts the thread. When the last committer is dropped, it ends its segment and stops. It adds durable batches to
    /// `recent`.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        log: Log,
        recent: Arc<RecentBatches>,
        sink: impl Sink,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (waiting, receiver) = mpsc::channel(WAITING_MAX);
        let full = Arc::<Full>::default();
        let metrics = Arc::<LogMetrics>::default();
        let committing = Committing {
            log,
            sink,
            recent: Arc::clone(&recent),
            turns: FairQueue::new(TURN_BYTES),
            joined: HashMap::new(),
            full: Arc::clone(&full),
            failures: Failures::default(),
            metrics: Arc::clone(&metrics),
        };
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || committing.run(receiver))?;
        Ok((Self { waiting, full, recent, metrics }, thread))
    }

    /// The counters of the log.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<LogMetrics> {
        &self.metrics
    }

    /// The recent durable batches.
    pub(crate) const fn recent(&self) -> &Arc<RecentBatches> {
        &self.recent
    }

    /// Says why nothing is taken, if the sink has taken nothing for so long.
    pub(crate) fn check_room(&self, time: Duration) -> Result<(), NotWritten> {
        match self.full.get() {
            Some((since, why)) if since.elapsed() >= time => Err(match why {
                Why::Slow => NotWritten::NoRoom,
                Why::DiskFull => NotWritten::NoRoomNorDisk,
            }),
            _ => Ok(()),
        }
    }

    /// Ends the segment that is being written, soon. Where there is too much else to do it will end by itself.
    pub fn end_segment(&self) {
        self.waiting.try_send(Message::EndSegment).ok();
    }

    /// Waits until a batch is durable; not when the sink has taken nothing for so long.
    /// `id` is the batch's ID, if it must not be stored twice.
    pub(crate) async fn commit(
        &self,
        taken: Taken,
        id: Option<BatchId>,
        full_for: Duration,
    ) -> Result<Outcome, NotWritten> {
        let (reply, mut outcome) = oneshot::channel();
        let message = Message::Commit(Box::new(Waiting { taken, id, reply }));
        self.waiting.send(message).await.map_err(|_| NotWritten::Stopping)?;
        loop {
            match timeout(LOOK_EVERY, &mut outcome).await {
                Ok(outcome) => return outcome.unwrap_or(Err(NotWritten::Stopping)),
                Err(_) => self.check_room(full_for)?,
            }
        }
    }
}

/// Says what has failed, once a second at most: senders retry soon.
#[derive(Debug, Default)]
struct Failures {
    said: Option<Instant>,
    /// Since it was said: batches, and their bytes.
    batches: usize,
    bytes: usize,
}

impl Failures {
    fn add(&mut self, error: &io::Error, batches: usize, bytes: usize) {
        (self.batches, self.bytes) = (self.batches + batches, self.bytes + bytes);
        if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            let Self { batches, bytes, .. } = *self;
            tracing::error!(%error, batches, bytes, "the log cannot be written");
            *self = Self { said: Some(Instant::now()), ..Self::default() };
        }
    }
}

struct Committing<S> {
    log: Log,
    sink: S,
    /// The recent durable batches.
    recent: Arc<RecentBatches>,
    turns: FairQueue<Arc<str>, Box<Waiting>>,
    /// The other senders of each waiting batch with an ID.
    joined: HashMap<BatchId, Vec<Reply>>,
    full: Arc<Full>,
    failures: Failures,
    metrics: Arc<LogMetrics>,
}

impl<S: Sink> Committing<S> {
    fn run(mut self, mut receiver: mpsc::Receiver<Message>) {
        loop {
            if self.turns.is_empty() {
                match receiver.blocking_recv() {
                    Some(Message::Commit(first)) => self.enqueue(first),
                    Some(Message::EndSegment) => {
                        self.end_segment();
                        continue;
                    }
                    None => break,
                }
            }
            let since = Instant::now();
            self.full.set(Some((since, Why::Slow)));
            self.sink.wait(&mut |why| self.full.set(Some((since, why))));
            self.full.set(None);
            let mut ends = false;
            while !ends
                && self.turns.len() < WAITING_MAX
                && let Ok(next) = receiver.try_recv()
            {
                match next {
                    Message::Commit(next) => self.enqueue(next),
                    Message::EndSegment => ends = true,
                }
            }
            let group = self.next_group();
            let is_full = !group.waiting.is_empty() && self.write(group);
            if is_full || ends {
                self.end_segment();
            }
        }
        self.end_segment();
    }

    /// Queues a batch, unless it is durable or queued already.
    fn enqueue(&mut self, waiting: Box<Waiting>) {
        let Record { tenant, batch, received_ns, .. } = &waiting.taken.record;
        if let Some(id) = waiting.id {
            if self.recent.contains(id, *received_ns) {
                // The sender may be gone, here and below.
                waiting.reply.send(Ok(Outcome::Duplicate)).ok();
                return;
            }
            match self.joined.entry(id) {
                Entry::Occupied(mut joined) => return joined.get_mut().push(waiting.reply),
                Entry::Vacant(first) => _ = first.insert(Vec::new()),
            }
        }
        let (tenant, bytes) = (Arc::clone(tenant), batch.len());
        self.turns.push(&tenant, bytes, waiting);
    }

    /// Takes the next batches, except those whose senders have all given up.
    fn next_group(&mut self) -> Group {
        let mut group = Group::default();
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
    fn write(&mut self, Group { waiting: group, bytes }: Group) -> bool {
        let records: Vec<_> = group.iter().map(|waiting| waiting.taken.record.clone()).collect();
        let began = Instant::now();
        let written = self.log.append(&records);
        match &written {
            Ok(_) => self.metrics.written(bytes, began.elapsed()),
            Err(_) => self.metrics.failed(),
        }
        let written = written.map_err(|error| {
            self.failures.add(&error, group.len(), bytes);
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            if is_full { NotWritten::Full } else { NotWritten::Failed }
        });
        let (taken, senders): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|Waiting { taken, id, reply }| {
                let received_ns = taken.record.received_ns;
                (taken, (id, received_ns, reply))
            })
            .unzip();
        let ends = written.is_ok_and(|segment| self.sink.take(segment, taken));
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

    /// Ends the segment. If that fails, its rows stay in memory until a later attempt.
    fn end_segment(&mut self) {
        match self.log.end_segment() {
            Ok(()) => self.sink.ended(self.log.last_segment()),
            Err(error) => self.failures.add(&error, 0, 0),
        }
    }
}
