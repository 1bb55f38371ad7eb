//! Making batches durable, many at once.
//!
//! One thread writes the log. While it waits for the disk batches gather, and the next group is all of them:
//! the slower the disk, the more share a sync. Where they are more than a group has room for, tenants take [turns](Turns).
//!
//! **Limits**: [`GROUP_BYTES_MAX`] a group; what waits is bounded by what may be received at once. While the sink
//! takes nothing, nothing is written, and who waits for too long gives up: what nobody waits for is not written.

use crate::turns::Turns;
use curtail_otlp::Decoded;
use curtail_store::log::{Log, Record};
use std::io;
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

fn push(turns: &mut Turns<Box<Waiting>>, waiting: Box<Waiting>) {
    let Record { tenant, batch, .. } = &waiting.taken.record;
    let (tenant, bytes) = (Arc::clone(tenant), batch.len());
    turns.push(&tenant, bytes, waiting);
}

/// What the thread is told.
#[derive(Debug)]
enum Message {
    Commit(Box<Waiting>),
    EndSegment,
}

#[derive(Debug)]
struct Waiting {
    taken: Taken,
    told: oneshot::Sender<Result<(), NotWritten>>,
}

/// Batches that are written together.
#[derive(Debug, Default)]
struct Group {
    waiting: Vec<Waiting>,
    bytes: usize,
}

impl Group {
    /// Adds a batch, unless its sender has given it up, who sends it again.
    fn add(&mut self, waiting: Waiting) {
        if !waiting.told.is_closed() {
            self.bytes += waiting.taken.record.batch.len();
            self.waiting.push(waiting);
        }
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
    /// Starts the thread. It ends when the last committer is dropped, and ends its segment with that.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(log: Log, sink: impl Sink) -> io::Result<(Self, JoinHandle<()>)> {
        let (waiting, receiver) = mpsc::channel(WAITING_MAX);
        let full = Arc::<Full>::default();
        let failures = Failures::default();
        let committing = Committing { log, sink, full: Arc::clone(&full), failures };
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || committing.run(receiver))?;
        Ok((Self { waiting, full }, thread))
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
    pub(crate) async fn commit(&self, taken: Taken, full_for: Duration) -> Result<(), NotWritten> {
        let (told, mut tells) = oneshot::channel();
        let message = Message::Commit(Box::new(Waiting { taken, told }));
        self.waiting.send(message).await.map_err(|_| NotWritten::Stopping)?;
        loop {
            match timeout(LOOK_EVERY, &mut tells).await {
                Ok(told) => return told.unwrap_or(Err(NotWritten::Stopping)),
                Err(_) => self.check_room(full_for)?,
            }
        }
    }
}

/// Says what has failed, once a second at most: senders come again soon.
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
    full: Arc<Full>,
    failures: Failures,
}

impl<S: Sink> Committing<S> {
    fn run(mut self, mut receiver: mpsc::Receiver<Message>) {
        let mut turns = Turns::default();
        loop {
            if turns.is_empty() {
                match receiver.blocking_recv() {
                    Some(Message::Commit(first)) => push(&mut turns, first),
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
                && turns.len() < WAITING_MAX
                && let Ok(next) = receiver.try_recv()
            {
                match next {
                    Message::Commit(next) => push(&mut turns, next),
                    Message::EndSegment => ends = true,
                }
            }
            let mut group = Group::default();
            while group.bytes < GROUP_BYTES_MAX
                && let Some(next) = turns.pop()
            {
                group.add(*next);
            }
            let is_full = !group.waiting.is_empty() && self.write(group);
            if is_full || ends {
                self.end_segment();
            }
        }
        self.end_segment();
    }

    /// Writes a group, and tells its senders; returns whether the segment should end.
    fn write(&mut self, Group { waiting: group, bytes }: Group) -> bool {
        let records: Vec<_> = group.iter().map(|waiting| waiting.taken.record.clone()).collect();
        let written = self.log.append(&records).map_err(|error| {
            self.failures.add(&error, group.len(), bytes);
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            if is_full { NotWritten::Full } else { NotWritten::Failed }
        });
        let (taken, told): (Vec<_>, Vec<_>) =
            group.into_iter().map(|waiting| (waiting.taken, waiting.told)).unzip();
        let ends = written.is_ok_and(|segment| self.sink.take(segment, taken));
        for told in told {
            // A sender that has gone does not want to know.
            told.send(written.map(drop)).ok();
        }
        ends
    }

    fn end_segment(&mut self) {
        self.log.end_segment();
        self.sink.ended(self.log.last_segment());
    }
}
