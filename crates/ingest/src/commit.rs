//! Making batches durable, many at once.
//!
//! One thread writes the log. While it waits for the disk batches gather, and the next group is all of them:
//! the slower the disk, the more share a sync.
//!
//! **Limits**: [`GROUP_BYTES_MAX`] a group; what waits is bounded by what may be received at once.

use curtail_otlp::Decoded;
use curtail_store::log::{Log, Record};
use std::io;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// More is not written at once, so that nobody waits for much more than its own.
const GROUP_BYTES_MAX: usize = 16 << 20;

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

/// The way to the log.
#[derive(Clone, Debug)]
pub struct Committer {
    waiting: mpsc::Sender<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    taken: Taken,
    told: oneshot::Sender<Result<(), NotWritten>>,
}

/// The log could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotWritten {
    #[error("the disk is full")]
    Full,
    #[error("the log cannot be written")]
    Failed,
    #[error("the receiver is stopping")]
    Stopping,
}

impl Committer {
    /// Starts the thread. It hands on what is durable, in the order of the log, with the segment that it is
    /// in, before any sender is told; it ends when the last committer is dropped.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        log: Log,
        hand_on: impl FnMut(u64, Vec<Taken>) + Send + 'static,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let (waiting, receiver) = mpsc::channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || run(log, receiver, hand_on))?;
        Ok((Self { waiting }, thread))
    }

    /// Waits until a batch is durable.
    pub(crate) async fn commit(&self, taken: Taken) -> Result<(), NotWritten> {
        let (told, tells) = oneshot::channel();
        let waiting = Waiting { taken, told };
        self.waiting.send(waiting).await.map_err(|_| NotWritten::Stopping)?;
        tells.await.unwrap_or(Err(NotWritten::Stopping))
    }
}

fn run(
    mut log: Log,
    mut receiver: mpsc::Receiver<Waiting>,
    mut hand_on: impl FnMut(u64, Vec<Taken>),
) {
    while let Some(first) = receiver.blocking_recv() {
        let mut bytes = first.taken.record.batch.len();
        let mut group = vec![first];
        while bytes < GROUP_BYTES_MAX
            && let Ok(next) = receiver.try_recv()
        {
            bytes += next.taken.record.batch.len();
            group.push(next);
        }
        let records: Vec<_> = group.iter().map(|waiting| waiting.taken.record.clone()).collect();
        let written = log.append(&records).map_err(|error| {
            tracing::error!(%error, batches = group.len(), bytes, "the log cannot be written");
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            if is_full { NotWritten::Full } else { NotWritten::Failed }
        });
        let (taken, told): (Vec<_>, Vec<_>) =
            group.into_iter().map(|waiting| (waiting.taken, waiting.told)).unzip();
        if let Ok(segment) = written {
            hand_on(segment, taken);
        }
        for told in told {
            // A sender that has gone does not want to know.
            told.send(written.map(drop)).ok();
        }
    }
}
