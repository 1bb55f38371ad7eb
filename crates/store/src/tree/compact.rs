//! Compaction: several runs become one, or a few with disjoint ranges of IDs.
//!
//! | runs of one day | become |
//! |---|---|
//! | eight of similar size | one, so a row is rewritten once for each factor of eight |
//! | eight of more than [`FINAL_ROWS`] | at most eight of about equal rows, [cut](super::cut) where the ID changes |
//! | eight ranges | nothing: each has all rows of the eight before for its IDs |
//!
//! So a query for an ID reads one of eight large runs: the footers of the others, in memory, exclude it.
//!
//! Merging needs no lock. One commit of the [`TableWriter`] then replaces the old runs, so no row is seen twice. A failed
//! compaction changes nothing and removes the files that it wrote.
//!
//! **When it hurts**: eight large runs of a day are rewritten at once, and smaller runs wait meanwhile. If no row has an ID,
//! that gains nothing.
//!
//! **Source**: O'Neil et al., "The Log-Structured Merge-Tree", Acta Informatica 33, 1996; size tiers as in Lakshman and Malik,
//! "Cassandra", 2010.

use super::making::Making;
use super::run_set::RunSet;
use super::stored::{RANGE, ReadError, StoredRun, TAIL};
use super::table_writer::TableWriter;
use crate::columns::Columns;
use crate::delta::{Change, CommitError, Remove};
use object_store::path::Path;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many runs are merged.
pub(crate) const FAN_IN: usize = 8;

/// A run of more rows is not merged into a larger one, so one that was merged has sixteen million at most.
pub const FINAL_ROWS: u64 = (1 << 24) / FAN_IN as u64;

/// That of runs of more rows, whatever their size.
const LAST_TIER: u32 = u32::MAX;

/// Runs of one day that should become others.
#[derive(Clone, Debug)]
pub struct Compaction {
    runs: Vec<Arc<StoredRun>>,
    kind: CompactionKind,
}

/// The result of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompactionKind {
    /// One larger run.
    One,
    /// At most as many runs, each with a range of the IDs.
    Ranges,
    /// One run with the tail of their rows.
    Tail,
}

/// The new runs of a compaction, before the commit.
#[derive(Debug)]
pub struct Merged {
    /// None, if there are no rows.
    made: Vec<StoredRun>,
    /// Where the first of them is.
    pub path: Path,
    /// How many rows they have.
    pub rows: u64,
    /// The number of rows that were dropped as copies.
    pub copies: u64,
    replaces: Compaction,
}

/// Why runs were not merged.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// One of them cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// Which one.
        path: Path,
        /// Why.
        #[source]
        source: ReadError,
    },
    /// What they would become cannot be written.
    #[error("{path} cannot be written")]
    Write {
        /// Where it would be.
        path: Path,
        /// What the store says.
        #[source]
        source: object_store::Error,
    },
    /// That would lose rows that should stay, or add some.
    #[error("{path} would have {rows} rows in place of {before}")]
    Rows {
        /// Where it would be.
        path: Path,
        /// How many it would have.
        rows: u64,
        /// How many those have of which it is made.
        before: u64,
    },
}

impl Compaction {
    /// Reduces the runs of one day to their tail. Some of them may be ranges of IDs. The result is one run, because it
    /// is small.
    pub(crate) const fn of_tail(runs: Vec<Arc<StoredRun>>) -> Self {
        Self { runs, kind: CompactionKind::Tail }
    }

    /// The runs, the oldest first.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.runs.iter().map(|run| run.path())
    }

    /// The day that they are of.
    #[must_use]
    pub fn day(&self) -> &str {
        self.runs[0].day()
    }

    /// How many rows they have.
    fn rows(&self) -> u64 {
        self.runs.iter().map(|run| run.row_count()).sum()
    }

    /// The number of rows after which a new run may end.
    pub(super) fn share(&self) -> u64 {
        match self.kind {
            CompactionKind::Ranges => self.rows().div_ceil(self.runs.len() as u64),
            CompactionKind::One | CompactionKind::Tail => u64::MAX,
        }
    }

    /// Whether there are other rows in the table when it is done.
    pub(super) fn is_change(&self) -> bool {
        self.kind == CompactionKind::Tail
    }

    /// The tags of the new runs, beside those of every run.
    pub(super) fn tags(&self) -> impl Iterator<Item = (String, Option<String>)> {
        let is_tail = self.is_change() || self.runs[0].is_tail();
        let tags = [(TAIL, is_tail), (RANGE, self.kind == CompactionKind::Ranges)];
        let tags = tags.into_iter().filter(|(_, is_so)| *is_so);
        tags.map(|(tag, _)| (tag.to_owned(), Some("true".to_owned())))
    }

    /// The path of the nth new file below the table's root, counted from zero.
    pub(super) fn below(&self, name: &str, nth: usize) -> String {
        let range =
            if self.kind == CompactionKind::Ranges { format!("-{nth}") } else { String::new() };
        format!("day={}/{name}{range}.parquet", self.day())
    }
}

impl RunSet {
    /// Runs that should be merged now, if there are any. One that is damaged stays as it is.
    #[must_use]
    pub fn due(&self) -> Option<Compaction> {
        let mut tiers = BTreeMap::<_, Vec<_>>::new();
        for run in self.runs() {
            let rows = run.row_count();
            let is_final = rows > self.final_rows();
            // Small ones first: they are many, and quickly merged.
            let tier = if is_final { LAST_TIER } else { rows.max(1).ilog(FAN_IN as u64) };
            if !run.is_range() && !run.is_damaged() {
                // What is left of a day is not mixed with what came for it since.
                let of = (tier, run.day().to_owned(), run.is_tail());
                tiers.entry(of).or_default().push(run);
            }
        }
        let ((tier, ..), mut runs) = tiers.into_iter().find(|(_, runs)| runs.len() >= FAN_IN)?;
        runs.sort_by_key(|run| run.add().modification_time);
        runs.truncate(FAN_IN);
        let kind = if tier == LAST_TIER { CompactionKind::Ranges } else { CompactionKind::One };
        Some(Compaction { runs, kind })
    }

    /// Merges runs into files named after `name`, which must be unique. `each` gets the row groups of each new run and its
    /// path below the table's root.
    ///
    /// # Errors
    /// When a run cannot be read, or a file cannot be written. Nothing has changed then.
    pub async fn merge(
        &self,
        compaction: Compaction,
        name: &str,
        each: impl AsyncFnMut(&str, &Columns),
    ) -> Result<Merged, CompactError> {
        let before = compaction.rows();
        let merged = self.rewrite(compaction, name, |_, rows| rows, each).await?;
        if merged.rows + merged.copies != before {
            let Merged { path, rows, .. } = merged;
            return Err(CompactError::Rows { path, rows, before });
        }
        Ok(merged)
    }

    /// The same with the rows that `pick` keeps of each row group; it gets the number of the run, counted from zero.
    pub(crate) async fn rewrite(
        &self,
        compaction: Compaction,
        name: &str,
        pick: impl FnMut(usize, Columns) -> Columns,
        mut each: impl AsyncFnMut(&str, &Columns),
    ) -> Result<Merged, CompactError> {
        let all: Vec<_> = (0..self.table().schema().fields().len()).collect();
        let mut making = Making::new(self, &compaction, name);
        let push = async |rows: Columns| making.push(&rows, &mut each).await;
        let pushed: Result<_, CompactError> =
            self.in_order(&compaction.runs, &all, pick, push).await;
        let copies = match pushed {
            Ok(copies) => copies,
            Err(failed) => {
                making.abort().await;
                return Err(failed);
            }
        };
        let made = making.finish().await?;
        let path = self.path(&compaction.below(name, 0));
        let rows = made.iter().map(StoredRun::row_count).sum();
        Ok(Merged { made, path, rows, copies, replaces: compaction })
    }
}

impl TableWriter {
    /// Commits merged runs in place of their sources at `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// When somebody else has replaced one of them, or the store fails. The merged files are then no part of the
    /// table, and go with the next vacuum.
    pub async fn replace(&mut self, merged: Merged, now_ms: i64) -> Result<(), CommitError> {
        let Merged { made, path, replaces, .. } = merged;
        let data_change = replaces.is_change();
        let remove = replaces.runs.iter().map(|run| Remove::of(run.add(), now_ms, data_change));
        let made: Vec<_> = made.into_iter().map(|run| run.modified(now_ms)).collect();
        let change = Change {
            operation: if data_change { "DELETE" } else { "OPTIMIZE" },
            add: made.iter().map(|run| run.add().clone()).collect(),
            remove: remove.collect(),
            ..Change::default()
        };
        let id = path.to_string();
        // The flusher commits by itself: the merged runs may be newer than what was read of the table.
        self.table.refresh().await?;
        let committed = self.table.commit(&change, now_ms, &id).await;
        // The table has been looked at either way.
        self.publish(made).await;
        committed.map(drop)
    }
}
