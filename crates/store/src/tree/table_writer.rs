//! Commits to the table of a tree, and what they make visible in it.
//!
//! The flusher and the compactor have one each, as two servers do, and neither waits for the other. What a reader
//! sees follows from the table's newest known version: its runs, and the memtables beyond its committed position.

use super::end::End;
use super::new_run::NewRun;
use super::opener::Opener;
use super::stored::StoredRun;
use super::with_id::Unread;
use super::{DAY_NS, LoggedMemtable, Tree};
use crate::delta::{
    Add, Change, CommitError, OpenError, Refused, SourceRange, Table, TableVersion, UpkeepError,
};
use crate::memtable::Rows;
use crate::run::{Run, RunError};
use bytes::Bytes;
use chrono::DateTime;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Commits to the table of a tree.
#[derive(Debug)]
pub struct TableWriter<R: Rows> {
    pub(super) tree: Arc<Tree<R>>,
    pub(super) table: Table,
    pub(super) opener: Opener,
    /// The name of our log, which is the source of our rows.
    pub(super) source: String,
}

/// A memtable that was flushed as a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushOutcome {
    /// Where it is.
    pub path: Path,
    /// How many rows it has.
    pub rows: usize,
    /// How many bytes.
    pub bytes: usize,
}

/// Why a memtable is still in memory, and in the log. Flushing may be tried again.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// The file cannot be written.
    #[error("{path} cannot be written")]
    Write {
        /// Where it would be.
        path: Path,
        /// What the store says.
        #[source]
        source: object_store::Error,
    },
    /// What was written is no run.
    #[error("{path} was not written well")]
    Run {
        /// What was written.
        path: Path,
        /// What is wrong with it.
        #[source]
        source: RunError,
    },
    /// It was not committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The table is committed, but the log's segments cannot be removed.
    #[error("cannot write to the log's folder")]
    Log(#[source] std::io::Error),
}

impl<R: Rows> Clone for TableWriter<R> {
    fn clone(&self) -> Self {
        let Self { tree, table, opener, source } = self;
        let (tree, table) = (Arc::clone(tree), table.clone());
        Self { tree, table, opener: opener.clone(), source: source.clone() }
    }
}

impl<R: Rows> TableWriter<R> {
    /// The table's ID and last known version.
    pub(crate) fn committed(&self) -> TableVersion {
        self.table.committed()
    }

    /// The tree.
    #[must_use]
    pub const fn tree(&self) -> &Arc<Tree<R>> {
        &self.tree
    }

    /// Writes the oldest sealed memtable as a run and commits it; [`None`] when there is none. It is `now_ms`,
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// When the store fails. Nothing is lost then, and nothing is there twice when it is tried again.
    pub async fn flush(&mut self, now_ms: i64) -> Result<Option<FlushOutcome>, FlushError> {
        let Some(sealed) = self.tree.read().sealed.first().cloned() else { return Ok(None) };
        let day = day(sealed.day);
        // With both ends: a process that was replaced must not put another file in the place of its successor's.
        let (first, last) = (sealed.after + 1, sealed.segments.1);
        let below = format!("day={day}/{}-{first:012}-{last:012}.parquet", self.source);
        let path = self.opener.path(&below);
        let mut new = NewRun::new(R::schema());
        let rows = {
            let memtable = sealed.memtable.read();
            memtable.sorted().for_each(|group| new.push(&group));
            memtable.len()
        };
        let (file, stats) = new.finish();
        let bytes = file.len();
        let file = Bytes::from(file);
        let run = Run::open(R::schema(), &file, bytes as u64)
            .map_err(|source| FlushError::Run { path: path.clone(), source })?;
        let end = End::of(&run, &file, bytes as u64);
        let put = self.tree.objects.put(&path, file.into()).await;
        put.map_err(|source| FlushError::Write { path: path.clone(), source })?;
        let add = Add {
            path: below,
            partition_values: BTreeMap::from([("day".to_owned(), Some(day))]),
            size: bytes as u64,
            modification_time: now_ms,
            data_change: true,
            stats: Some(stats),
            tags: Some(end.tags()),
        };
        self.commit(&sealed, add.clone(), now_ms).await?;
        self.publish(Some(StoredRun::new(path.clone(), add, run))).await;
        Ok(Some(FlushOutcome { path, rows, bytes }))
    }

    /// Writes a checkpoint of the table if one is due.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn checkpoint(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        if self.table.is_checkpoint_due()? {
            self.table.checkpoint(now_ms).await?;
        }
        Ok(())
    }

    /// Removes what the table does not need any more: commits that are in a checkpoint, and files that were
    /// replaced long ago.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn clean(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        self.table.clean_log(now_ms).await?;
        self.table.vacuum(now_ms).await.map(drop)
    }

    /// Reads what others have committed; returns runs that cannot be read, which every query result names.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub async fn refresh(&mut self) -> Result<Vec<Unread>, OpenError> {
        self.table.refresh().await?;
        Ok(self.publish(None).await)
    }

    /// Makes the table's runs, of which `new` may be some, visible in the tree. Memtables that are committed go.
    pub(crate) async fn publish(
        &mut self,
        new: impl IntoIterator<Item = StoredRun>,
    ) -> Vec<Unread> {
        let known = self.tree.runs().into_iter().chain(new.into_iter().map(Arc::new));
        let (runs, unread) = self.opener.open(self.table.snapshot().files(), known).await;
        let state = &mut *self.tree.write();
        // The other writer of this process may have published a later version meanwhile.
        if self.table.version() >= state.version {
            let (before, committed) =
                (state.committed, self.table.snapshot().position(&self.source));
            let is_new = |position| before < position && position <= committed;
            state.sealed.retain(|sealed| !is_new(sealed.segments.1));
            (state.version, state.committed) = (self.table.version(), committed);
            state.runs = runs.into();
            state.unopened.clone_from(&unread);
        }
        unread
    }

    async fn commit(
        &mut self,
        sealed: &LoggedMemtable<R>,
        add: Add,
        now_ms: i64,
    ) -> Result<(), CommitError> {
        let (source, to) = (self.source.clone(), sealed.segments.1);
        let id = format!("{source}-{to}");
        let range = SourceRange { source, from: sealed.after, to };
        let (add, sources) = (vec![add], vec![range]);
        let change = Change { operation: "WRITE", add, sources, ..Change::default() };
        match self.table.commit(&change, now_ms, &id).await {
            Ok(_) => Ok(()),
            // It was committed before, and we were not told.
            Err(CommitError::Refused(Refused::Done { .. })) if self.knows(&change.add) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether files are part of the table, or were and have been replaced.
    fn knows(&self, files: &[Add]) -> bool {
        let snapshot = self.table.snapshot();
        files.iter().all(|add| {
            snapshot.files().any(|file| file.path == add.path)
                || snapshot.removed().any(|file| file.path == add.path)
        })
    }
}

/// As in 2026-11-22.
fn day(since_1970: u64) -> String {
    let ns = i64::try_from(since_1970 * DAY_NS).unwrap_or_default();
    DateTime::from_timestamp_nanos(ns).date_naive().to_string()
}
