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
use super::stored::{ReadError, StoredRun};
use super::upload::Upload;
use crate::columns::Columns;
use crate::delta::{Add, Change, CommitError, Remove};
use crate::memtable::Rows;
use crate::merge::{Merge, Step};
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
}

/// Runs that have become one, which the table does not know yet.
#[derive(Debug)]
pub struct Merged {
    add: Add,
    /// Where it is.
    pub path: Path,
    /// How many rows it has.
    pub rows: u64,
    replaces: Vec<Arc<StoredRun>>,
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
    /// That would lose rows, or add some.
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
    /// The runs, the oldest first.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = &Path> {
        self.runs.iter().map(|run| run.path())
    }

    /// The day that they are of.
    #[must_use]
    pub fn day(&self) -> &str {
        self.runs[0].day()
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
                tiers.entry((tier, run.day().to_owned())).or_default().push(Arc::clone(run));
            }
        }
        let mut runs = tiers.into_values().find(|runs| runs.len() >= FAN_IN)?;
        runs.sort_by_key(|run| run.add().modification_time);
        runs.truncate(FAN_IN);
        Some(Compaction { runs })
    }

    /// Merges runs into a file called `name`, which must be another one each time. Each row group of it is told to
    /// `each`, which is waited for.
    ///
    /// # Errors
    /// When a run cannot be read, or the file cannot be written. Nothing has changed then.
    pub async fn merge(
        &self,
        root: &Path,
        compaction: Compaction,
        name: &str,
        each: impl AsyncFnMut(&Columns),
    ) -> Result<Merged, CompactError> {
        let below = compaction.below(name);
        let path = Path::from(format!("{root}/{below}"));
        let failed = |source| CompactError::Write { path: path.clone(), source };
        let upload = Upload::begin(&*self.objects, R::schema(), path.clone()).await;
        let mut upload = upload.map_err(failed)?;
        if let Err(error) = self.write_merged(&compaction, &mut upload, each).await {
            upload.abort().await;
            return Err(error);
        }
        let rows = upload.rows();
        let uploaded = upload.finish().await.map_err(failed)?;
        let add = Add { data_change: false, ..uploaded.add(below, compaction.day(), 0) };
        Ok(Merged { add, path, rows, replaces: compaction.runs })
    }

    async fn write_merged(
        &self,
        compaction: &Compaction,
        upload: &mut Upload,
        mut each: impl AsyncFnMut(&Columns),
    ) -> Result<(), CompactError> {
        let path = upload.path().clone();
        let mut merge = Merge::<R>::new(compaction.runs.len());
        let mut next = vec![0; compaction.runs.len()];
        loop {
            match merge.step() {
                Step::Needs(nth) => {
                    let run = &compaction.runs[nth];
                    if next[nth] == run.run().groups() {
                        merge.end(nth);
                        continue;
                    }
                    let group = run.group(&*self.objects, next[nth]).await;
                    let path = || run.path().clone();
                    let group =
                        group.map_err(|source| CompactError::Read { path: path(), source })?;
                    next[nth] += 1;
                    merge.give(nth, group);
                }
                Step::Made(group) => {
                    let pushed = upload.push(&group).await;
                    pushed.map_err(|source| CompactError::Write { path: path.clone(), source })?;
                    each(&group).await;
                }
                Step::Done => break,
            }
        }
        let (rows, before) =
            (upload.rows(), compaction.runs.iter().map(|run| run.row_count()).sum());
        if rows == before { Ok(()) } else { Err(CompactError::Rows { path, rows, before }) }
    }
}

impl<R: Rows> Flusher<R> {
    /// Where the table is.
    #[must_use]
    pub const fn root(&self) -> &Path {
        &self.opener.root
    }

    /// Tells the table that runs have become one. It is `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// When somebody else has replaced one of them, or the store fails. The merged file is then no part of the
    /// table, and goes with the next vacuum.
    pub async fn replace(&mut self, merged: Merged, now_ms: i64) -> Result<(), CommitError> {
        let Merged { mut add, replaces, .. } = merged;
        add.modification_time = now_ms;
        let remove = replaces.iter().map(|run| Remove {
            path: run.add().path.clone(),
            deletion_timestamp: Some(now_ms),
            data_change: false,
        });
        let id = add.path.clone();
        let change = Change {
            operation: "OPTIMIZE",
            add: vec![add],
            remove: remove.collect(),
            transaction: None,
        };
        let committed = self.table.commit(&change, now_ms, &id).await;
        // The table has been looked at either way.
        self.look(None, None).await;
        committed.map(drop)
    }
}
