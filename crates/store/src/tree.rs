//! The tree: memtables in front of runs, and how a trace is found in them.
//!
//! | who | does |
//! |---|---|
//! | the thread that writes the log | [`Tree::insert`]s what is durable, and ends the segment when the memtable [is full](Tree::is_full) and [sealed](Tree::seal) |
//! | whoever asks | looks at a moment's memtables and runs together: nothing is missed or seen twice while one becomes the other |
//! | the [`Flusher`], one of them | writes sealed memtables as runs, commits them, and removes the log's segments that they were in |
//!
//! **Nothing is lost, nothing is there twice**: a run is committed with the number of the last segment that is
//! in it, as Delta's transaction of this writer, and only then are the segments removed. What a segment holds
//! up to that number is in the table, all else is read from the log when the tree is [opened](Tree::open).
//! The file of a run is called after the writer and that number, so that flushing once more writes it again.
//!
//! **Limits**: a memtable takes as much as [`Tree::is_full`] allows and one group of the log more; how many
//! sealed ones wait is for the caller to bound ([`Tree::waiting_bytes`]).

mod flush;
mod open;
mod stored;
mod trace;

pub use flush::{FlushError, Flushed, Flusher};
pub use open::{Found, OpenError, Settings};
pub use stored::{ReadError, StoredRun};
pub use trace::{Trace, Unread};

use crate::log::Record;
use crate::memtable::Memtable;
use curtail_otlp::Spans;
use object_store::ObjectStore;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Spans, in memory and in runs.
#[derive(Debug)]
pub struct Tree {
    objects: Arc<dyn ObjectStore>,
    /// More than this is not in one memtable.
    memtable_bytes: usize,
    state: RwLock<State>,
}

/// All that there is at a moment.
#[derive(Debug, Default)]
struct State {
    active: Filling,
    /// The oldest first.
    sealed: Vec<Arc<Sealed>>,
    runs: Vec<Arc<StoredRun>>,
}

/// The memtable that is being filled.
#[derive(Debug, Default)]
struct Filling {
    memtable: Memtable,
    /// Days since 1970 on which its first span came.
    day: Option<u64>,
    /// The last segment of which it has something.
    segment: u64,
    is_of_more_days: bool,
}

/// A memtable that is not filled any more.
#[derive(Debug)]
struct Sealed {
    memtable: Memtable,
    /// Days since 1970.
    day: u64,
    /// It has all that its segments have, up to this one.
    segment: u64,
    bytes: usize,
}

const DAY_NS: u64 = 86_400_000_000_000;

impl Tree {
    /// Adds the spans of a batch that is durable in a segment of the log.
    pub fn insert(&self, segment: u64, record: &Record, rows: &Spans) {
        let active = &mut self.write().active;
        active.memtable.insert(&record.tenant, &record.batch, rows);
        active.segment = segment;
        let day = record.received_ns / DAY_NS;
        active.is_of_more_days |= *active.day.get_or_insert(day) != day;
    }

    /// Whether the memtable has as much as it may, or spans of more than one day: then the log's segment
    /// should end, and the memtable be sealed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let active = &self.read().active;
        active.is_of_more_days || active.memtable.bytes() >= self.memtable_bytes
    }

    /// Begins another memtable. The log must have ended its segment: no later batch is in it.
    pub fn seal(&self) {
        let state = &mut *self.write();
        let Filling { memtable, day, segment, .. } = std::mem::take(&mut state.active);
        if !memtable.is_empty() {
            let (day, bytes) = (day.unwrap_or_default(), memtable.bytes());
            state.sealed.push(Arc::new(Sealed { memtable, day, segment, bytes }));
        }
    }

    /// How many bytes are in sealed memtables, which wait to be written.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.read().sealed.iter().map(|sealed| sealed.bytes).sum()
    }

    /// How many spans are in memory, and in how many runs the others are.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let state = self.read();
        let sealed: usize = state.sealed.iter().map(|sealed| sealed.memtable.len()).sum();
        (state.active.memtable.len() + sealed, state.runs.len())
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
