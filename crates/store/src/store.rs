//! The store: the log, and a tree for each table.
//!
//! | part | task |
//! |---|---|
//! | the thread that writes the log | [`Store::insert`]s durable batches; ends the segment when a memtable [is full](Store::is_full), and [seals](Store::seal) |
//! | queries | read the [trees](Store::spans) |
//! | the [`Flusher`] | writes sealed memtables as runs, and removes their segments of the log |
//! | the [`Compactor`] | merges runs, summarizes traces, and removes expired rows |
//!
//! **A batch that is sent again is stored once**: the log's thread and the flusher share the [batches](RecentBatches) of the
//! last ten minutes, which a start restores from the log and the flush records.
//!
//! **Invariant**: no row is lost or stored twice. A segment is removed when every table has committed its rows, and committed
//! rows are not inserted again when the store is [opened](Store::open).
//!
//! **Limits**: memtables take [`Settings::memtable_bytes`] together and one group of the log more. The caller bounds the sealed
//! ones ([`Store::waiting_bytes`]).

mod compactor;
mod flush_record;
mod flusher;
mod keep_tail;

pub use compactor::{Compactor, CompactorError};
pub use flusher::Flusher;
pub use keep_tail::TailKept;

use crate::files::Files;
use crate::log::{self, Damage, Record};
use crate::recent::{BatchKey, RecentBatches};
use crate::schema::{logs::LOGS, points::POINTS, spans::SPANS};
use crate::traces::Summariser;
use crate::tree::{self, RunSet, Tree, Unread};
use curtail_otlp::{Decoded, Limits};
use flush_record::FlushRecords;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The settings of a store.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the log.
    pub files: Arc<dyn Files>,
    /// The settings of the tables.
    pub tables: tree::Settings,
    /// Memtables of this many bytes are full.
    pub memtable_bytes: usize,
    /// The key of batch IDs: random, and kept with the folder.
    pub batch_key: BatchKey,
}

/// All tables.
#[derive(Debug)]
pub struct Store {
    spans: Arc<Tree>,
    logs: Arc<Tree>,
    points: Arc<Tree>,
    traces: Arc<RunSet>,
    recent: Arc<RecentBatches>,
    memtable_bytes: usize,
    /// Segments up to this one get no more batches.
    sealed: AtomicU64,
}

/// An open store and its roles.
#[derive(Debug)]
pub struct StoreParts {
    /// The memtables and runs.
    pub store: Arc<Store>,
    /// Writes sealed memtables as runs.
    pub flusher: Flusher,
    /// Merges and removes runs.
    pub compactor: Compactor,
    /// The last segment of the log: the log continues after it.
    pub last_segment: u64,
}

/// The rows and the damage that were found when a store was opened.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The number of spans that were only in the log.
    pub spans: usize,
    /// The number of log records that were only in the log.
    pub logs: usize,
    /// The number of points that were only in the log.
    pub points: usize,
    /// Damage of the log, by segment. A damaged segment is kept as `damaged-…` once its valid records are in runs. The
    /// [torn](Damage::is_torn) end of the newest segment is not kept.
    pub damaged: Vec<(u64, Damage)>,
    /// The number of valid records that are not a batch; their segments are kept in the same way.
    pub undecoded: usize,
    /// The number of duplicate batches in the log, which were inserted once.
    pub duplicates: usize,
    /// Flush records that cannot be read. Batches that are sent again may count twice for ten minutes.
    pub unread_records: Vec<String>,
    /// Runs that cannot be read. They are part of their table, and queries skip them.
    pub unread: Vec<Unread>,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log's folder.
    #[error("the log cannot be read")]
    Log(#[from] io::Error),
    /// A table.
    #[error(transparent)]
    Table(#[from] tree::OpenError),
}

/// Records in the log were within the limits on arrival.
const TAKEN: Limits = Limits {
    batch_bytes: u32::MAX,
    attributes: u32::MAX,
    events: u32::MAX,
    parts: u32::MAX,
    depth: 62,
};

impl Store {
    /// Opens or creates a store. Rows that are only in the log are in sealed memtables afterwards, so that
    /// it is written soon. It is `now_ms`, milliseconds since 1970; `id` is a UUID, for tables that are made.
    ///
    /// # Errors
    /// When the log or a table cannot be read. Runs that cannot be read are in [`Recovery::unread`].
    pub async fn open(
        settings: &Settings,
        now_ms: i64,
        id: &str,
    ) -> Result<(StoreParts, Recovery), OpenError> {
        let recent = Arc::new(RecentBatches::new(settings.batch_key));
        let (records, unread_records) = FlushRecords::open(&*settings.files, &recent)?;
        let known = records.versions().clone();
        let tables = &tree::Settings { known, ..settings.tables.clone() };
        let last = log::segments(&*settings.files)?.last().copied().unwrap_or_default();
        let (spans, of_spans, mut unread) = Tree::open(tables, &SPANS, last, now_ms, id).await?;
        let (logs, of_logs, unread_logs) = Tree::open(tables, &LOGS, last, now_ms, id).await?;
        let (points, of_points, unread_points) =
            Tree::open(tables, &POINTS, last, now_ms, id).await?;
        let (traces, unread_traces) = Summariser::open(tables, now_ms, id).await?;
        unread.extend(unread_logs.into_iter().chain(unread_points).chain(unread_traces));
        let mut recovery = Recovery { unread, unread_records, ..Recovery::default() };
        let written = [&spans, &logs, &points].map(|tree| tree.written()).into_iter().max();
        let sealed = AtomicU64::new(written.unwrap_or_default().max(records.last_segment()));
        let store = Arc::new(Self {
            spans,
            logs,
            points,
            traces: Arc::clone(traces.writer.runs()),
            recent,
            memtable_bytes: settings.memtable_bytes,
            // A segment that one table has committed is complete.
            sealed,
        });
        let files = Arc::clone(&settings.files);
        let (last_segment, damaged) = store.replay(&*files, &mut recovery)?;
        let writers = [of_spans.clone(), of_logs.clone(), of_points.clone()];
        let tables = store.trees().into_iter().cloned().zip(writers).collect();
        let flusher = Flusher { store: Arc::clone(&store), files, tables, damaged, records };
        let others = vec![of_logs, of_points];
        let compactor = Compactor { spans: of_spans, others, traces, left_whole: BTreeSet::new() };
        Ok((StoreParts { store, flusher, compactor, last_segment }, recovery))
    }

    /// Inserts the records of the log. Returns the last segment and the damaged segments.
    fn replay(
        &self,
        files: &dyn Files,
        recovery: &mut Recovery,
    ) -> io::Result<(u64, BTreeSet<u64>)> {
        let (mut last, mut damaged) = (self.sealed.load(Ordering::Acquire), BTreeSet::new());
        let segments = log::segments(files)?;
        for &segment in &segments {
            last = last.max(segment);
            let log::Segment { records, mut damage } = log::read(files, segment)?;
            let is_newest = segments.last() == Some(&segment);
            // Older segments were complete when the process ended: their lost records were acknowledged.
            damage.iter_mut().for_each(|damage| damage.is_torn &= is_newest);
            if damage.iter().any(|damage| !damage.is_torn) {
                damaged.insert(segment);
            }
            recovery.damaged.extend(damage.into_iter().map(|damage| (segment, damage)));
            for record in &records {
                let Ok((rows, _)) = Decoded::of(record.signal, &record.batch, &TAKEN) else {
                    recovery.undecoded += 1;
                    damaged.insert(segment);
                    continue;
                };
                let id = self.recent.key().id_of(record);
                if id.is_some_and(|id| !self.recent.insert(id, record.received_ns, segment)) {
                    recovery.duplicates += 1;
                    continue;
                }
                let count = match rows {
                    Decoded::Spans(_) => &mut recovery.spans,
                    Decoded::Logs(_) => &mut recovery.logs,
                    Decoded::Points(_) => &mut recovery.points,
                };
                if segment > self.tree(&rows).written() {
                    *count += rows.len();
                    self.insert(segment, record, rows);
                }
            }
            if self.is_full() {
                self.seal(segment);
            }
        }
        self.seal(last);
        Ok((last, damaged))
    }

    /// Adds the rows of a record that is durable in a segment of the log.
    pub fn insert(&self, segment: u64, record: &Record, rows: Decoded) {
        self.tree(&rows).insert(segment, record, rows);
    }

    /// The table of the rows of a batch.
    const fn tree(&self, rows: &Decoded) -> &Arc<Tree> {
        match rows {
            Decoded::Spans(_) => &self.spans,
            Decoded::Logs(_) => &self.logs,
            Decoded::Points(_) => &self.points,
        }
    }

    /// The tables of ingested rows.
    const fn trees(&self) -> [&Arc<Tree>; 3] {
        [&self.spans, &self.logs, &self.points]
    }

    /// Whether the memtables have their maximum size, or rows of more than one day. Then the segment of the log should
    /// end, and the memtables be sealed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let bytes: usize = self.trees().map(|tree| tree.active_bytes()).iter().sum();
        bytes >= self.memtable_bytes || self.trees().iter().any(|tree| tree.has_several_days())
    }

    /// Begins other memtables. The log must have ended its `segment`: no later batch is in it.
    pub fn seal(&self, segment: u64) {
        self.trees().into_iter().for_each(|tree| tree.seal());
        self.sealed.store(segment, Ordering::Release);
    }

    /// The batches of the last ten minutes.
    #[must_use]
    pub const fn recent(&self) -> &Arc<RecentBatches> {
        &self.recent
    }

    /// The size of the sealed memtables, which wait for their flush.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.trees().map(|tree| tree.waiting_bytes()).iter().sum()
    }

    /// The table of spans.
    #[must_use]
    pub const fn spans(&self) -> &Arc<Tree> {
        &self.spans
    }

    /// The table of logs.
    #[must_use]
    pub const fn logs(&self) -> &Arc<Tree> {
        &self.logs
    }

    /// The table of points of metrics.
    #[must_use]
    pub const fn points(&self) -> &Arc<Tree> {
        &self.points
    }

    /// The table of traces: summaries of what runs of spans have of them.
    #[must_use]
    pub const fn traces(&self) -> &Arc<RunSet> {
        &self.traces
    }
}

#[cfg(test)]
mod tests;
