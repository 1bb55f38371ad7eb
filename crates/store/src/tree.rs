//! A tree: the rows of one table, in memtables and in the runs behind them.
//!
//! A query reads the memtables and the runs of one [`ReadView`], so nothing is missed or seen twice while a memtable
//! becomes a run. A [`TableWriter`] makes it so: it writes sealed memtables as runs and commits them.
//!
//! **Nothing is there twice**: the log is a source of rows, and its segments are positions. A run is committed with the
//! positions that it has, and only if they begin at the committed one, so a process that was replaced commits nothing
//! over its successor. Segments up to the committed position are not replayed. The name of a run's file is made of
//! the source and its positions, so another attempt at a flush writes the same file, and no other flush does.

mod compact;
mod cut;
mod end;
mod in_order;
mod making;
mod new_run;
mod open;
mod opener;
mod read_view;
mod remove;
mod rows_with_id;
mod stored;
mod table_writer;
mod upload;
mod with_id;

pub(crate) use compact::FAN_IN;
pub use compact::{CompactError, Compaction, FINAL_ROWS, Merged};
pub use open::{OpenError, Settings};
pub(crate) use opener::Opener;
pub(crate) use read_view::ReadView;
pub use rows_with_id::{RowsWithId, Window};
pub(crate) use stored::RANGE;
pub use stored::{ReadError, StoredRun};
pub use table_writer::{FlushError, FlushOutcome, TableWriter};
pub(crate) use upload::Upload;
pub use with_id::{Unread, WithId};

use crate::log::Record;
use crate::memtable::{Rows, SharedMemtable};
use object_store::ObjectStore;
use object_store::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The rows of a table, in memory and in runs.
#[derive(Debug)]
pub struct Tree<R: Rows> {
    objects: Arc<dyn ObjectStore>,
    /// Where the table is.
    root: Path,
    /// Runs of more rows are not merged into larger ones.
    final_rows: u64,
    /// What the log has up to this segment was in runs when the tree was opened.
    written: u64,
    state: RwLock<State<R>>,
}

#[derive(Debug)]
struct State<R: Rows> {
    active: Option<LoggedMemtable<R>>,
    /// The oldest first.
    sealed: Vec<Arc<LoggedMemtable<R>>>,
    runs: Arc<[Arc<StoredRun>]>,
    /// Runs of which not even the end can be read: nobody knows what they have.
    unopened: Vec<Unread>,
    /// The version of the table that has these runs.
    version: u64,
    /// The last segment of the log that is in these runs.
    committed: u64,
    /// The last segment of a sealed memtable.
    sealed_to: u64,
}

/// A memtable, and the part of the log that has its rows.
#[derive(Debug)]
struct LoggedMemtable<R: Rows> {
    memtable: Arc<SharedMemtable<R>>,
    /// The day of its first row, in days since 1970.
    day: u64,
    has_several_days: bool,
    /// The first and the last segment.
    segments: (u64, u64),
    /// The last segment of the memtable before.
    after: u64,
}

/// So many runs are asked at once: a store far away answers many as soon as one.
const AT_ONCE: usize = 16;

const DAY_NS: u64 = 86_400_000_000_000;

impl<R: Rows> Tree<R> {
    /// Adds the rows of a batch that is durable in a segment of the log, which is not [written](Self::written).
    pub fn insert(&self, segment: u64, record: &Record, rows: R::Batch) {
        let memtable = {
            let state = &mut *self.write();
            let day = record.received_ns / DAY_NS;
            let after = state.sealed_to;
            let active = state.active.get_or_insert_with(|| LoggedMemtable {
                memtable: Arc::default(),
                day,
                has_several_days: false,
                segments: (segment, segment),
                after,
            });
            active.has_several_days |= active.day != day;
            active.segments.1 = segment;
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

    /// Begins another memtable. Nothing may be inserted after it that is of the segments before.
    pub fn seal(&self) {
        let state = &mut *self.write();
        if let Some(active) = state.active.take() {
            active.memtable.seal();
            state.sealed_to = active.segments.1;
            state.sealed.push(Arc::new(active));
        }
    }

    /// The size of the sealed memtables, which wait for their flush.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.read().sealed.iter().map(|sealed| sealed.memtable.bytes()).sum()
    }

    /// The first segment of the log with rows that are in no run.
    #[must_use]
    pub fn first_unwritten(&self) -> Option<u64> {
        self.read().memtables().map(|logged| logged.segments.0).min()
    }

    /// How many rows are in memory, and in how many runs the others are.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let state = self.read();
        let rows = state.memtables().map(|logged| logged.memtable.read().len()).sum();
        (rows, state.runs.len())
    }

    /// The memtables and the runs, at one moment.
    pub(crate) fn read_view(&self) -> ReadView<R> {
        let state = self.read();
        ReadView {
            memtables: state.memtables().map(|logged| Arc::clone(&logged.memtable)).collect(),
            runs: Arc::clone(&state.runs),
            unopened: state.unopened.clone(),
        }
    }

    /// The runs, at one moment.
    pub(crate) fn runs(&self) -> Vec<Arc<StoredRun>> {
        let runs = Arc::clone(&self.read().runs);
        runs.to_vec()
    }

    /// Where the runs are.
    pub(crate) const fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// Where a file of the table is.
    fn path(&self, below: &str) -> Path {
        Path::from(format!("{}/{below}", self.root))
    }

    fn read(&self) -> RwLockReadGuard<'_, State<R>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<R>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Rows> State<R> {
    /// The sealed memtables, the oldest first, and the active one.
    fn memtables(&self) -> impl Iterator<Item = &LoggedMemtable<R>> {
        self.sealed.iter().map(Arc::as_ref).chain(&self.active)
    }
}
