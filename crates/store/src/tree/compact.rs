//! Compaction: merges several runs into one, or into a few with disjoint ranges of IDs.
//!
//! | runs of one day | become |
//! |---|---|
//! | eight of similar size | one, so a row is rewritten each time its run grows by a factor of eight |
//! | eight with more than [`FINAL_ROWS`] | at most eight with about equal numbers of rows, [cut](super::cut) where the ID changes |
//! | runs from such a cut | unchanged: each already has all rows of the replaced runs for its range of IDs |
//!
//! So a query for an ID reads one of eight large runs. The footers of the other runs, in memory, exclude the ID.
//!
//! Merging needs no lock. One commit of the [`TableWriter`] then replaces the old runs, so no row is seen twice. A failed
//! compaction changes nothing and removes the files that it wrote.
//!
//! **When it hurts**: eight large runs of a day are rewritten at once, and smaller runs wait meanwhile. If no row has
//! an ID, the rewrite gains nothing.
//!
//! **Source**: O'Neil et al., "The Log-Structured Merge-Tree", Acta Informatica 33, 1996; size tiers as in Lakshman and Malik,
//! "Cassandra", 2010.

use super::cut::Cut;
use super::run_set::RunSet;
use super::stored::{RANGE, ReadError, StoredRun, TAIL};
use super::table_writer::TableWriter;
use super::upload::Uploader;
use crate::columns::Columns;
use crate::delta::{Change, CommitError, Remove, WriteError};
use object_store::path::Path;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The number of runs in a merge.
pub(crate) const FAN_IN: usize = 8;

/// Maximum number of rows of a run that is merged into a larger one. So a merged run has at most sixteen million rows.
pub const FINAL_ROWS: u64 = (1 << 24) / FAN_IN as u64;

/// The tier of runs with more than [`FINAL_ROWS`] rows.
const LAST_TIER: u32 = u32::MAX;

/// Runs of one day that should be replaced.
#[derive(Clone, Debug)]
pub(crate) struct Compaction {
    runs: Vec<Arc<StoredRun>>,
    kind: CompactionKind,
}

/// The result of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompactionKind {
    /// One larger run.
    One,
    /// At most as many runs as before, each with a range of the IDs.
    Ranges,
    /// One run with the tail of the rows, which has this many.
    Tail { rows: u64 },
}

/// The new runs of a compaction, before the commit.
#[derive(Debug)]
pub(crate) struct Merged {
    /// The new runs: none, if there are no rows.
    made: Vec<StoredRun>,
    /// The path of the first new run.
    pub path: Path,
    /// The number of rows of all new runs.
    pub rows: u64,
    replaces: Compaction,
}

/// Why runs were not merged.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum CompactError {
    /// A run cannot be read.
    #[error("{path} cannot be read")]
    Read {
        path: Path,
        #[source]
        source: ReadError,
    },
    /// A new run cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The new runs would have lost or duplicated rows.
    #[error("{path} would have {rows} rows in place of {before}")]
    Rows { path: Path, rows: u64, before: u64 },
}

impl Compaction {
    /// The compaction that reduces the runs of one day, ranges of IDs too, to their tail of `rows` rows. The result is
    /// one run, because it is small.
    pub(crate) const fn of_tail(runs: Vec<Arc<StoredRun>>, rows: u64) -> Self {
        Self { runs, kind: CompactionKind::Tail { rows } }
    }

    /// The day of the runs.
    pub(crate) fn day(&self) -> &str {
        self.runs[0].day()
    }

    /// The number of rows of all runs.
    fn rows(&self) -> u64 {
        self.runs.iter().map(|run| run.row_count()).sum()
    }

    /// The number of rows after which a new run may end.
    fn share(&self) -> u64 {
        match self.kind {
            CompactionKind::Ranges => self.rows().div_ceil(self.runs.len() as u64),
            CompactionKind::One | CompactionKind::Tail { .. } => u64::MAX,
        }
    }

    /// Whether the compaction changes the rows of the table.
    fn is_change(&self) -> bool {
        matches!(self.kind, CompactionKind::Tail { .. })
    }

    /// The tags of the new runs, besides those of every run.
    fn tags(&self) -> impl Iterator<Item = (String, Option<String>)> {
        let is_tail = self.is_change() || self.runs[0].is_tail();
        let tags = [(TAIL, is_tail), (RANGE, self.kind == CompactionKind::Ranges)];
        let tags = tags.into_iter().filter(|(_, is_so)| *is_so);
        tags.map(|(tag, _)| (tag.to_owned(), Some("true".to_owned())))
    }

    /// The path of the nth new file below the table's root, counted from zero.
    fn below(&self, name: &str, nth: usize) -> String {
        let range =
            if self.kind == CompactionKind::Ranges { format!("-{nth}") } else { String::new() };
        format!("day={}/{name}{range}.parquet", self.day())
    }
}

impl RunSet {
    /// The runs that should be merged now, if any. Damaged runs are left as they are.
    pub(crate) fn due(&self) -> Option<Compaction> {
        let mut tiers = BTreeMap::<_, Vec<_>>::new();
        for run in self.runs() {
            let rows = run.row_count();
            let is_final = rows > self.final_rows;
            // Small runs first: they are many, and quickly merged.
            let tier = if is_final { LAST_TIER } else { rows.max(1).ilog(FAN_IN as u64) };
            if !run.is_range() && !run.is_damaged() {
                // The tail of a day is not merged with rows that arrived since.
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

    /// Merges runs into files named after `name`, which must be unique. `pick` gets the number of a run, from zero, and
    /// a row group, and selects rows. `each` gets the row groups of each new run, and its path below the table's root.
    pub(crate) async fn rewrite(
        self: &Arc<Self>,
        compaction: Compaction,
        name: &str,
        pick: impl FnMut(usize, Columns) -> Columns,
        mut each: impl AsyncFnMut(&str, &Columns),
    ) -> Result<Merged, CompactError> {
        let all: Vec<_> = (0..self.table().schema().fields().len()).collect();
        let mut uploader = Uploader::new(self, compaction.day());
        let (mut cut, mut run) = (Cut::new(compaction.share()), 0);
        let push = async |rows: Columns| {
            let parts = cut.parts(rows.wide(self.table().order.0), rows.len());
            for (nth, part) in parts.into_iter().enumerate() {
                run += usize::from(nth > 0);
                if !part.is_empty() {
                    let below = compaction.below(name, run);
                    let is_all = part.len() == rows.len();
                    let part =
                        if is_all { Cow::Borrowed(&rows) } else { Cow::Owned(rows.part(part)) };
                    uploader.push(&below, &part).await?;
                    each(&below, &part).await;
                }
            }
            Ok(())
        };
        let pushed: Result<_, CompactError> =
            self.in_order(&compaction.runs, &all, pick, push).await;
        let copies = match pushed {
            Ok(copies) => copies,
            Err(failed) => {
                uploader.abort().await;
                return Err(failed);
            }
        };
        let mut made = uploader.finish().await?;
        for run in &mut made {
            run.add.data_change = compaction.is_change();
            run.add.tags.get_or_insert_default().extend(compaction.tags());
        }
        let path = self.path(&compaction.below(name, 0));
        let rows = made.iter().map(StoredRun::row_count).sum();
        let before = match compaction.kind {
            CompactionKind::Tail { rows } => rows,
            CompactionKind::One | CompactionKind::Ranges => {
                compaction.rows().saturating_sub(copies)
            }
        };
        if rows != before {
            return Err(CompactError::Rows { path, rows, before });
        }
        Ok(Merged { made, path, rows, replaces: compaction })
    }
}

impl TableWriter {
    /// Commits merged runs in place of their sources at `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// When another writer has replaced one of the sources, or the store fails. Then the merged files are not part of
    /// the table, and a later vacuum deletes them.
    pub(crate) async fn replace(&mut self, merged: Merged, now_ms: i64) -> Result<(), CommitError> {
        let Merged { mut made, path, replaces, .. } = merged;
        let data_change = replaces.is_change();
        let remove = replaces.runs.iter().map(|run| Remove::of(run.add(), now_ms, data_change));
        made.iter_mut().for_each(|run| run.add.modification_time = now_ms);
        let change = Change {
            operation: if data_change { "DELETE" } else { "OPTIMIZE" },
            add: made.iter().map(|run| run.add().clone()).collect(),
            remove: remove.collect(),
            ..Change::default()
        };
        let id = path.to_string();
        // The flusher commits too, so the merged runs may be newer than the known version of the table.
        self.table.refresh().await?;
        let committed = self.table.commit(&change, now_ms, &id).await;
        // The table has been read, even if the commit failed.
        self.publish(made).await;
        committed.map(drop)
    }
}
