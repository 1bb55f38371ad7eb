//! Compaction: several runs become one, and the table is told so.
//!
//! Runs of one day and about one size are merged, eight at a time, so each row is written once more each
//! time its run grows by that factor. Merging takes long and needs nobody's leave; only the commit goes through
//! the [`Flusher`]. Until then the old runs answer, and after it no longer: rows are never seen twice.
//!
//! **Source**: O'Neil et al., "The Log-Structured Merge-Tree", Acta Informatica 33, 1996; size tiers as in
//! Lakshman and Malik, "Cassandra", 2010.

use super::Tree;
use super::flush::Flusher;
use super::stored::{ReadError, StoredRun, TAIL};
use super::upload::Upload;
use crate::columns::Columns;
use crate::delta::{Add, Change, CommitError, Remove};
use crate::memtable::Rows;
use crate::run::Run;
use object_store::path::Path;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many runs become one.
pub(crate) const FAN_IN: usize = 8;

/// A run with more rows is not merged any more.
const ROWS_MAX: u64 = 1 << 24;

/// Runs that should become one.
#[derive(Clone, Debug)]
pub struct Compaction {
    runs: Vec<Arc<StoredRun>>,
    /// Some of their rows go, and others stand for them.
    keeps_tail: bool,
}

/// Runs that have become one, which the table does not know yet.
#[derive(Debug)]
pub struct Merged {
    /// What the table is told of it, and what its end says; nothing, if it has no rows.
    made: Option<(Add, Run)>,
    /// Where it is.
    pub path: Path,
    /// How many rows it has.
    pub rows: u64,
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
    /// Of runs of one day, of which only the tail stays.
    pub(crate) const fn of_tail(runs: Vec<Arc<StoredRun>>) -> Self {
        Self { runs, keeps_tail: true }
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

    /// What the table is told of the run that they become.
    fn tags(&self) -> Option<BTreeMap<String, Option<String>>> {
        let is_tail = self.keeps_tail || self.runs[0].is_tail();
        is_tail.then(|| BTreeMap::from([(TAIL.to_owned(), Some("true".to_owned()))]))
    }

    /// Where below the table's root the file called `name` is that they become.
    pub(crate) fn below(&self, name: &str) -> String {
        format!("day={}/{name}.parquet", self.day())
    }
}

impl<R: Rows> Tree<R> {
    /// Runs that should become one now, if there are any. One that is damaged stays as it is.
    #[must_use]
    pub fn due(&self) -> Option<Compaction> {
        let mut tiers = BTreeMap::<_, Vec<_>>::new();
        for run in &self.read().runs {
            let rows = run.row_count();
            let tier = rows.max(1).ilog(FAN_IN as u64);
            if rows <= ROWS_MAX / FAN_IN as u64 && !run.is_damaged() {
                // Small ones first: they are many, and quickly merged.
                // What is left of a day is not mixed with what came for it since.
                let of = (tier, run.day().to_owned(), run.is_tail());
                tiers.entry(of).or_default().push(Arc::clone(run));
            }
        }
        let mut runs = tiers.into_values().find(|runs| runs.len() >= FAN_IN)?;
        runs.sort_by_key(|run| run.add().modification_time);
        runs.truncate(FAN_IN);
        Some(Compaction { runs, keeps_tail: false })
    }

    /// Merges runs into a file called `name`, which must be another one each time. Each row group of it is told to
    /// `each`, which is waited for.
    ///
    /// # Errors
    /// When a run cannot be read, or the file cannot be written. Nothing has changed then.
    pub async fn merge(
        &self,
        compaction: Compaction,
        name: &str,
        each: impl AsyncFnMut(&Columns),
    ) -> Result<Merged, CompactError> {
        let before = compaction.runs.iter().map(|run| run.row_count()).sum();
        let merged = self.rewrite(compaction, name, |_, rows| rows, each).await?;
        if merged.rows != before {
            let Merged { path, rows, .. } = merged;
            return Err(CompactError::Rows { path, rows, before });
        }
        Ok(merged)
    }

    /// The same with what `pick` leaves of each row group, which is told the number of its run, counted from zero.
    pub(crate) async fn rewrite(
        &self,
        compaction: Compaction,
        name: &str,
        pick: impl FnMut(usize, Columns) -> Columns,
        mut each: impl AsyncFnMut(&Columns),
    ) -> Result<Merged, CompactError> {
        let below = compaction.below(name);
        let path = Path::from(format!("{}/{below}", self.root));
        let failed = |source| CompactError::Write { path: path.clone(), source };
        let upload = Upload::begin(&*self.objects, R::schema(), path.clone()).await;
        let mut upload = upload.map_err(failed)?;
        let all: Vec<_> = (0..R::schema().fields().len()).collect();
        let made = async |rows: Columns| {
            upload.push(&rows).await.map_err(failed)?;
            each(&rows).await;
            Ok(())
        };
        let is_made: Result<_, CompactError> =
            self.in_order(&compaction.runs, &all, pick, made).await;
        let rows = upload.rows();
        if is_made.is_err() || rows == 0 {
            upload.abort().await;
            is_made?;
            return Ok(Merged { made: None, path, rows, replaces: compaction });
        }
        let uploaded = upload.finish().await.map_err(failed)?;
        let add = uploaded.add(below, compaction.day(), 0);
        let (data_change, tags) = (compaction.keeps_tail, compaction.tags());
        let made = Some((Add { data_change, tags, ..add }, uploaded.run));
        Ok(Merged { made, path, rows, replaces: compaction })
    }
}

impl<R: Rows> Flusher<R> {
    /// Tells the table that runs have become one. It is `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// When somebody else has replaced one of them, or the store fails. The merged file is then no part of the
    /// table, and goes with the next vacuum.
    pub async fn replace(&mut self, merged: Merged, now_ms: i64) -> Result<(), CommitError> {
        let Merged { made, path, replaces: Compaction { runs, keeps_tail }, .. } = merged;
        let remove = runs.iter().map(|run| Remove {
            path: run.add().path.clone(),
            deletion_timestamp: Some(now_ms),
            data_change: keeps_tail,
        });
        let made = made.map(|(add, run)| (Add { modification_time: now_ms, ..add }, run));
        let change = Change {
            operation: if keeps_tail { "DELETE" } else { "OPTIMIZE" },
            add: made.iter().map(|(add, _)| add.clone()).collect(),
            remove: remove.collect(),
            ..Change::default()
        };
        let id = path.to_string();
        let committed = self.table.commit(&change, now_ms, &id).await;
        // The table has been looked at either way.
        self.look(made.map(|(add, run)| StoredRun::new(path, add, run)), None).await;
        committed.map(drop)
    }
}
