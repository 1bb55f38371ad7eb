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
use crate::memtable::{LogRows, PointRows, SpanRows};
use crate::recent::{BatchKey, RecentBatches};
use crate::traces::Summariser;
use crate::tree::{self, RunSet, SealedMemtables, Tree, Unread};
use curtail_otlp::{Decoded, Limits};
use flush_record::FlushRecords;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a store is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the log.
    pub files: Arc<dyn Files>,
    /// Where the tables are.
    pub tables: tree::Settings,
    /// Memtables of this many bytes are full.
    pub memtable_bytes: usize,
    /// The key of batch IDs: random, and kept with the folder.
    pub batch_key: BatchKey,
}

/// All tables.
#[derive(Debug)]
pub struct Store {
    spans: Arc<Tree<SpanRows>>,
    logs: Arc<Tree<LogRows>>,
    points: Arc<Tree<PointRows>>,
    traces: Arc<RunSet>,
    recent: Arc<RecentBatches>,
    memtable_bytes: usize,
    /// No later batch is of a segment up to this one.
    sealed: AtomicU64,
}

/// An open store and its roles.
#[derive(Debug)]
pub struct StoreParts {
    /// What is filled and queried.
    pub store: Arc<Store>,
    /// Writes its memtables.
    pub flusher: Flusher,
    /// Merges and removes its runs.
    pub compactor: Compactor,
    /// The last segment of the log that there was: the log goes on after it.
    pub last_segment: u64,
}

/// What opening a store recovered from the log, and what is damaged.
#[derive(Debug, Default)]
pub struct Recovery {
    /// How many spans the log had that are in no run.
    pub spans: usize,
    /// The same of log records.
    pub logs: usize,
    /// The same of points of metrics.
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
    /// Runs that cannot be read. They are part of their table, and are not asked.
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

/// What is in the log was within the limits when it came.
const TAKEN: Limits = Limits {
    batch_bytes: u32::MAX,
    attributes: u32::MAX,
    events: u32::MAX,
    parts: u32::MAX,
    depth: 62,
};

impl Store {
    /// Opens a store, or makes it. What the log has and no run is in sealed memtables after it, so that
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
        let (spans, of_spans, mut unread) = Tree::open(tables, last, now_ms, id).await?;
        let (logs, of_logs, unread_logs) = Tree::open(tables, last, now_ms, id).await?;
        let (points, of_points, unread_points) = Tree::open(tables, last, now_ms, id).await?;
        let (traces, unread_traces) = Summariser::open(tables, now_ms, id).await?;
        unread.extend(unread_logs.into_iter().chain(unread_points).chain(unread_traces));
        let mut recovery = Recovery { unread, unread_records, ..Recovery::default() };
        let written = [spans.written(), logs.written(), points.written(), records.last_segment()];
        let store = Arc::new(Self {
            spans,
            logs,
            points,
            traces: Arc::clone(traces.writer.runs()),
            recent,
            memtable_bytes: settings.memtable_bytes,
            // What one table has written was whole.
            sealed: AtomicU64::new(written.into_iter().max().unwrap_or_default()),
        });
        let files = Arc::clone(&settings.files);
        let (last_segment, damaged) = store.replay(&*files, &mut recovery)?;
        let tables: Vec<(Arc<dyn SealedMemtables>, _)> = vec![
            (Arc::clone(&store.spans) as _, of_spans.clone()),
            (Arc::clone(&store.logs) as _, of_logs.clone()),
            (Arc::clone(&store.points) as _, of_points.clone()),
        ];
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
                let (written, count) = match rows {
                    Decoded::Spans(_) => (self.spans.written(), &mut recovery.spans),
                    Decoded::Logs(_) => (self.logs.written(), &mut recovery.logs),
                    Decoded::Points(_) => (self.points.written(), &mut recovery.points),
                };
                if segment > written {
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

    /// Adds what a record says, which is durable in a segment of the log.
    pub fn insert(&self, segment: u64, record: &Record, rows: Decoded) {
        match rows {
            Decoded::Spans(spans) => self.spans.insert(segment, record, spans),
            Decoded::Logs(logs) => self.logs.insert(segment, record, logs),
            Decoded::Points(points) => self.points.insert(segment, record, points),
        }
    }

    /// Whether memtables have as much as they may, or rows of more than one day: then the log's segment
    /// should end, and they be sealed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let bytes =
            self.spans.active_bytes() + self.logs.active_bytes() + self.points.active_bytes();
        bytes >= self.memtable_bytes
            || self.spans.has_several_days()
            || self.logs.has_several_days()
            || self.points.has_several_days()
    }

    /// Begins other memtables. The log must have ended its `segment`: no later batch is in it.
    pub fn seal(&self, segment: u64) {
        self.spans.seal();
        self.logs.seal();
        self.points.seal();
        self.sealed.store(segment, Ordering::Release);
    }

    /// The batches of the last ten minutes.
    #[must_use]
    pub const fn recent(&self) -> &Arc<RecentBatches> {
        &self.recent
    }

    /// How many bytes are in sealed memtables, which wait to be written.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.spans.waiting_bytes() + self.logs.waiting_bytes() + self.points.waiting_bytes()
    }

    /// The table of spans.
    #[must_use]
    pub const fn spans(&self) -> &Arc<Tree<SpanRows>> {
        &self.spans
    }

    /// The table of logs.
    #[must_use]
    pub const fn logs(&self) -> &Arc<Tree<LogRows>> {
        &self.logs
    }

    /// The table of points of metrics.
    #[must_use]
    pub const fn points(&self) -> &Arc<Tree<PointRows>> {
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
