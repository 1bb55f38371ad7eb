//! The store: the log, and a tree for each table.
//!
//! | part | task |
//! |---|---|
//! | the thread that writes the log | [`Store::insert`]s durable batches; ends the segment when a memtable [is full](Store::is_full), and [seals](Store::seal) |
//! | queries | read the [trees](Store::trees) |
//! | the [`Flusher`] | writes sealed memtables as runs, and removes their segments of the log |
//! | the [`Compactor`] | merges runs, summarizes traces, and removes expired rows |
//!
//! **A batch that is sent again is stored once**: the log's thread and the flusher share the [batches](RecentBatches) of the
//! last ten minutes, which a start restores from the log and the flush records.
//!
//! **Invariant**: no row is lost or stored twice. A segment is removed when every table has committed its rows, and committed
//! rows are not inserted again when the store is [opened](Store::open).
//!
//! **Limits**: the active memtables take at most [`Settings::memtable_bytes`], and one group of the log more. The
//! caller bounds the sealed memtables ([`Store::waiting_bytes`]).

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
use crate::schema::{self, Origin, Table, logs::LOGS, spans::SPANS};
use crate::tree::{self, Tree, Unread};
use curtail_otlp::{Decoded, Limits, Signal};
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
    /// The size at which the active memtables, taken together, are full.
    pub memtable_bytes: usize,
    /// The key of batch IDs, which is random and kept in the data folder.
    pub batch_key: BatchKey,
}

/// The trees of all tables.
#[derive(Debug)]
pub struct Store {
    trees: Vec<Arc<Tree>>,
    recent: Arc<RecentBatches>,
    memtable_bytes: usize,
    /// Segments up to this one get no more batches.
    sealed: AtomicU64,
}

/// An open store, and the parts that write and maintain it.
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
    /// The tables with rows that were only in the log, and the number of these rows.
    pub rows: Vec<(&'static str, usize)>,
    /// Damage of the log, by segment. A damaged segment is kept as `damaged-…` once its valid records are in runs. The
    /// [torn](Damage::is_torn) end of the newest segment is not kept.
    pub damaged: Vec<(u64, Damage)>,
    /// The number of valid records that cannot be decoded. Their segments are kept like damaged segments.
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
    /// The log's folder cannot be read.
    #[error("the log cannot be read")]
    Log(#[from] io::Error),
    /// A table cannot be opened.
    #[error(transparent)]
    Table(#[from] tree::OpenError),
}

/// No limits: records in the log were within the limits on arrival.
const TAKEN: Limits = Limits {
    batch_bytes: u32::MAX,
    attributes: u32::MAX,
    events: u32::MAX,
    parts: u32::MAX,
    depth: 62,
};

impl Store {
    /// Opens or creates a store. Rows that are only in the log are in sealed memtables afterwards, so that they are
    /// flushed soon. `now_ms` is the time, in milliseconds since 1970; `id` is the UUID of new tables.
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
        let known = records.versions.clone();
        let tables = &tree::Settings { known, ..settings.tables.clone() };
        let last = log::segments(&*settings.files)?.last().copied().unwrap_or_default();
        let mut recovery = Recovery { unread_records, ..Recovery::default() };
        let (mut trees, mut flushed, mut compactor) =
            (Vec::new(), Vec::new(), Compactor::default());
        for table in schema::tables() {
            let (tree, writer, unread) = Tree::open(tables, table, last, now_ms, id).await?;
            recovery.unread.extend(unread);
            if table.is_logged() {
                flushed.push((Arc::clone(&tree), writer.clone()));
            }
            compactor.add(writer);
            trees.push(tree);
        }
        let written = trees.iter().map(|tree| tree.written()).max().unwrap_or_default();
        let store = Arc::new(Self {
            trees,
            recent,
            memtable_bytes: settings.memtable_bytes,
            // A segment that one table has committed is complete.
            sealed: written.max(records.last_segment()).into(),
        });
        let files = Arc::clone(&settings.files);
        let (last_segment, damaged) = store.replay(&*files, &mut recovery)?;
        let (of_flusher, tables) = (Arc::clone(&store), flushed);
        let flusher = Flusher { store: of_flusher, files, tables, damaged, records };
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
                if segment > self.tree_of(record.signal).written() {
                    self.insert(segment, record, rows);
                }
            }
            if self.is_full() {
                self.seal(segment);
            }
        }
        self.seal(last);
        let rows = self.trees.iter().map(|tree| (tree.table().name, tree.size().0));
        recovery.rows = rows.filter(|(_, rows)| *rows > 0).collect();
        Ok((last, damaged))
    }

    /// Adds the rows of a record that is durable in a segment of the log.
    pub fn insert(&self, segment: u64, record: &Record, rows: Decoded) {
        self.tree_of(record.signal).insert(segment, record, rows);
    }

    /// The table of the batches of a signal.
    fn tree_of(&self, signal: Signal) -> &Tree {
        let is_of =
            |tree: &&Arc<Tree>| matches!(tree.table().origin, Origin::Ingested(of) if of == signal);
        self.trees.iter().find(is_of).expect("every signal has a table")
    }

    /// The trees of all tables.
    #[must_use]
    pub fn trees(&self) -> &[Arc<Tree>] {
        &self.trees
    }

    /// The tree of a table.
    ///
    /// # Panics
    /// When [`schema::tables`] has no such table.
    #[must_use]
    pub fn tree(&self, table: &'static Table) -> &Arc<Tree> {
        let mut trees = self.trees.iter();
        trees.find(|tree| std::ptr::eq(tree.table(), table)).expect("every table is open")
    }

    /// Whether the active memtables have their maximum size, or rows of more than one day. If so, the caller should end
    /// the segment of the log and seal the memtables.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let bytes: usize = self.trees.iter().map(|tree| tree.active_bytes()).sum();
        bytes >= self.memtable_bytes || self.trees.iter().any(|tree| tree.has_several_days())
    }

    /// Seals the active memtables. The log must have ended `segment`, so that no later batch is in that segment.
    pub fn seal(&self, segment: u64) {
        self.trees.iter().for_each(|tree| tree.seal());
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
        self.trees.iter().map(|tree| tree.waiting_bytes()).sum()
    }

    /// The table of spans.
    #[must_use]
    pub fn spans(&self) -> &Arc<Tree> {
        self.tree(&SPANS)
    }

    /// The table of logs.
    #[must_use]
    pub fn logs(&self) -> &Arc<Tree> {
        self.tree(&LOGS)
    }
}

#[cfg(test)]
mod tests;
