//! A tree: the rows of one table, in memtables and in runs.
//!
//! A query reads the memtables and the runs of one [`ReadView`], so it misses no row and sees no row twice while a
//! [`TableWriter`] flushes a memtable as a run.
//!
//! **Invariant**: no row is stored twice. Rows come from sources. The write-ahead log is a source with a position for
//! each segment. The commit of a run succeeds only if its first position follows the last committed position of the
//! source. So a process cannot commit after its successor has, and committed segments are not replayed. The name of a
//! run has its source and positions, so a retry of a flush writes the same file.

mod compact;
mod cut;
mod end;
mod flush;
mod new_run;
mod open;
mod rows_with_id;
mod run_set;
mod stored;
mod table_writer;
mod upload;

pub use compact::{CompactError, FINAL_ROWS};
pub(crate) use compact::{Compaction, FAN_IN};
pub use flush::{FlushError, FlushOutcome};
pub use open::{OpenError, Settings};
pub use rows_with_id::{RowsWithId, Window};
pub use run_set::RunSet;
pub(crate) use stored::RANGE;
pub use stored::{ReadError, StoredRun, Unread};
pub(crate) use table_writer::TableWriter;
pub(crate) use upload::Uploader;

use crate::columns::Columns;
use crate::log::Record;
use crate::memtable::SharedMemtable;
use crate::schema::Table;
use curtail_otlp::Decoded;
use object_store::ObjectStore;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The rows of a table, in memory and in runs.
#[derive(Debug)]
pub struct Tree {
    runs: Arc<RunSet>,
    /// The last segment of the log whose rows were in runs when the tree was opened.
    written: u64,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    active: Option<LoggedMemtable>,
    /// The sealed memtables, the oldest first.
    sealed: Vec<Arc<LoggedMemtable>>,
    /// The last segment of a sealed memtable.
    sealed_to: u64,
}

/// A memtable, and the part of the log that has its rows.
#[derive(Debug)]
struct LoggedMemtable {
    memtable: Arc<SharedMemtable>,
    /// The day of its first row, in days since 1970.
    day: u64,
    has_several_days: bool,
    /// The first segment with its rows.
    first: u64,
    range: LogRange,
}

/// A part of the log: the segments after `after`, up to `to`.
#[derive(Clone, Copy, Debug)]
struct LogRange {
    after: u64,
    to: u64,
}

impl LogRange {
    /// Whether its rows are in runs, if runs have all rows up to segment `committed`.
    const fn is_in_run(self, committed: u64) -> bool {
        self.after < self.to && self.to <= committed
    }
}

/// The number of runs read at once: a remote store returns many as fast as one.
const AT_ONCE: usize = 16;

const DAY_NS: u64 = 86_400_000_000_000;

/// The memtables and the runs of a tree at one moment. Taking a view copies no rows.
#[derive(Debug)]
pub(crate) struct ReadView {
    memtables: Vec<Arc<SharedMemtable>>,
    pub(crate) runs: Arc<[Arc<StoredRun>]>,
    /// Runs of the table that cannot be read.
    pub(crate) unopened: Vec<Unread>,
}

impl ReadView {
    /// Some columns of each memtable, or all. Rows that arrived after the view was taken may be included.
    pub(crate) fn memory(&self, fields: &BTreeSet<usize>) -> Vec<Arc<Columns>> {
        self.memtables.iter().map(|memtable| memtable.columns(fields)).collect()
    }
}

impl Tree {
    /// Adds the rows of a batch that is durable in a segment of the log, which is later than [`Self::written`].
    pub fn insert(&self, segment: u64, record: &Record, rows: Decoded) {
        let memtable = {
            let state = &mut *self.write();
            let day = record.received_ns / DAY_NS;
            let after = state.sealed_to;
            let active = state.active.get_or_insert_with(|| LoggedMemtable {
                memtable: Arc::new(SharedMemtable::new(self.table())),
                day,
                has_several_days: false,
                first: segment,
                range: LogRange { after, to: segment },
            });
            active.has_several_days |= active.day != day;
            active.range.to = segment;
            Arc::clone(&active.memtable)
        };
        memtable.insert(record, rows);
    }

    /// The size of the active memtable.
    #[must_use]
    pub fn active_bytes(&self) -> usize {
        self.read().active.as_ref().map_or(0, |active| active.memtable.bytes())
    }

    /// Whether the active memtable has rows of more than one day.
    #[must_use]
    pub fn has_several_days(&self) -> bool {
        self.read().active.as_ref().is_some_and(|active| active.has_several_days)
    }

    /// Seals the active memtable. Batches that are inserted later must be in later segments.
    pub fn seal(&self) {
        let state = &mut *self.write();
        if let Some(active) = state.active.take() {
            active.memtable.seal();
            state.sealed_to = active.range.to;
            state.sealed.push(Arc::new(active));
        }
    }

    /// The size of the sealed memtables, which wait for their flush.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.read().sealed.iter().map(|sealed| sealed.memtable.bytes()).sum()
    }

    /// The number of rows in memory, and the number of runs.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let rows = self.read().memtables().map(|logged| logged.memtable.read().len()).sum();
        (rows, self.runs.read().runs.len())
    }

    /// Takes a read view.
    pub(crate) fn read_view(&self) -> ReadView {
        // A memtable leaves the list after its run is visible, so memtables that are also in runs are skipped here.
        let memtables: Vec<_> = {
            let state = self.read();
            let memtables = state.memtables();
            memtables.map(|logged| (logged.range, Arc::clone(&logged.memtable))).collect()
        };
        let runs = self.runs.read();
        let memtables = memtables.into_iter().filter(|(range, _)| !range.is_in_run(runs.committed));
        ReadView {
            memtables: memtables.map(|(_, memtable)| memtable).collect(),
            runs: Arc::clone(&runs.runs),
            unopened: runs.unopened.clone(),
        }
    }

    /// The runs.
    #[must_use]
    pub const fn run_set(&self) -> &Arc<RunSet> {
        &self.runs
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &'static Table {
        self.runs.table()
    }

    /// The object store of the runs.
    pub(crate) fn objects(&self) -> &Arc<dyn ObjectStore> {
        self.runs.objects()
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The sealed memtables, the oldest first, and the active one.
    fn memtables(&self) -> impl Iterator<Item = &LoggedMemtable> {
        self.sealed.iter().map(Arc::as_ref).chain(&self.active)
    }
}
