//! A tree: the rows of one table, in memtables and in the runs behind them.
//!
//! Whoever asks looks at a moment's memtables and runs together, so nothing is missed or seen twice while one
//! becomes the other. One [`Flusher`] makes it so: it writes sealed memtables as runs and commits them.
//!
//! **Nothing is there twice**: a run is committed with the number of the last segment of the log that is in
//! it, as Delta's transaction of this writer; what the log has up to that number is not taken in again. The
//! file of a run is called after the writer and that number, so that flushing once more writes it again.

mod compact;
mod cut;
mod end;
mod flush;
mod in_order;
mod making;
mod new_run;
mod open;
mod opener;
mod remove;
mod rows_with_id;
mod stored;
mod upload;
mod with_id;

pub(crate) use compact::FAN_IN;
pub use compact::{CompactError, Compaction, FINAL_ROWS, Merged};
pub use flush::{FlushError, Flushed, Flusher};
pub use open::{OpenError, Settings};
pub(crate) use opener::Opener;
pub use rows_with_id::{RowsWithId, Window};
pub(crate) use stored::RANGE;
pub use stored::{ReadError, StoredRun};
pub(crate) use upload::Upload;
pub use with_id::{Unread, WithId};

use crate::columns::Columns;
use crate::log::Record;
use crate::memtable::{Memtable, Rows};
use object_store::ObjectStore;
use object_store::path::Path;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The rows of a table, in memory and in runs.
#[derive(Debug)]
pub struct Tree<R> {
    objects: Arc<dyn ObjectStore>,
    /// Where the table is.
    root: Path,
    /// Runs of more rows are not merged into larger ones.
    final_rows: u64,
    /// What the log has up to this segment was in runs when the tree was opened.
    written: u64,
    state: RwLock<State<R>>,
}

/// All that there is at a moment.
#[derive(Debug)]
struct State<R> {
    active: Option<Filling<R>>,
    /// The oldest first.
    sealed: Vec<Arc<Filling<R>>>,
    runs: Vec<Arc<StoredRun>>,
    /// Runs of which not even the end can be read: nobody knows what they have.
    unopened: Vec<Unread>,
}

/// What whoever looks at all rows looks at.
#[derive(Debug)]
pub(crate) struct Moment {
    /// Some columns of what is in memory.
    pub(crate) memory: Vec<Columns>,
    pub(crate) runs: Vec<Arc<StoredRun>>,
    /// What the table has besides, and cannot be read.
    pub(crate) unopened: Vec<Unread>,
}

/// A memtable, and where it comes from.
#[derive(Debug)]
struct Filling<R> {
    memtable: Memtable<R>,
    /// Days since 1970: that on which its first row came.
    day: u64,
    is_of_more_days: bool,
    /// The segments of the log that it has rows of: the first and the last.
    segments: (u64, u64),
}

/// So many runs are asked at once: a store far away answers many as soon as one.
const AT_ONCE: usize = 16;

const DAY_NS: u64 = 86_400_000_000_000;

impl<R: Rows> Tree<R> {
    /// Adds the rows of a batch that is durable in a segment of the log, which is not [written](Self::written).
    pub fn insert(&self, segment: u64, record: &Record, rows: &R::Batch) {
        let state = &mut *self.write();
        let day = record.received_ns / DAY_NS;
        let active = state.active.get_or_insert_with(|| Filling {
            memtable: Memtable::default(),
            day,
            is_of_more_days: false,
            segments: (segment, segment),
        });
        active.memtable.insert(&record.tenant, &record.batch, rows);
        active.is_of_more_days |= active.day != day;
        active.segments.1 = segment;
    }

    /// How many bytes are in the memtable that is being filled, and whether it has rows of more than one day.
    #[must_use]
    pub fn filling(&self) -> (usize, bool) {
        let state = self.read();
        let active = state.active.as_ref();
        active.map_or((0, false), |active| (active.memtable.bytes(), active.is_of_more_days))
    }

    /// Begins another memtable. Nothing may be inserted after it that is of the segments before.
    pub fn seal(&self) {
        let state = &mut *self.write();
        state.sealed.extend(state.active.take().map(Arc::new));
    }

    /// How many bytes are in sealed memtables, which wait to be written.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.read().sealed.iter().map(|sealed| sealed.memtable.bytes()).sum()
    }

    /// The first segment of the log with rows that are in no run.
    #[must_use]
    pub fn first_unwritten(&self) -> Option<u64> {
        let state = self.read();
        let sealed = state.sealed.iter().map(|sealed| sealed.segments.0);
        sealed.chain(state.active.as_ref().map(|active| active.segments.0)).min()
    }

    /// How many rows are in memory, and in how many runs the others are.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let state = self.read();
        let sealed: usize = state.sealed.iter().map(|sealed| sealed.memtable.len()).sum();
        let active = state.active.as_ref().map_or(0, |active| active.memtable.len());
        (active + sealed, state.runs.len())
    }

    /// Some columns of what is in memory, and all runs, at one moment.
    pub(crate) fn moment(&self, fields: &BTreeSet<usize>) -> Moment {
        let state = self.read();
        let memtables = state.sealed.iter().map(Arc::as_ref).chain(&state.active);
        let memory = memtables.map(|filling| filling.memtable.columns().only(fields)).collect();
        Moment { memory, runs: state.runs.clone(), unopened: state.unopened.clone() }
    }

    /// The runs, at one moment.
    pub(crate) fn runs(&self) -> Vec<Arc<StoredRun>> {
        self.read().runs.clone()
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
