//! Flushes memtables as runs.

use super::new_run::NewRun;
use super::stored::StoredRun;
use super::table_writer::TableWriter;
use super::{DAY_NS, LogRange, Tree};
use crate::delta::{Add, Change, CommitError, Refused, SourceRange, WriteError};
use crate::run::RunError;
use chrono::DateTime;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;

impl Tree {
    /// Drops the sealed memtables whose rows are in runs that queries see.
    fn forget_committed(&self) {
        let committed = self.runs.read().committed;
        self.write().sealed.retain(|sealed| !sealed.range.is_in_run(committed));
    }

    /// The first segment of the log with rows that are in no run.
    pub(crate) fn first_unwritten(&self) -> Option<u64> {
        self.read().memtables().map(|logged| logged.first).min()
    }
}

/// A memtable that was flushed as a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushOutcome {
    /// The path of the run.
    pub path: Path,
    /// The number of rows.
    pub rows: usize,
    /// The size in bytes.
    pub bytes: usize,
}

/// Why a flush failed. The rows are still in memory and in the log, and a retry is safe.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The written file is no run.
    #[error("{path} was not written well")]
    Run {
        /// The path of the run.
        path: Path,
        /// The error of the file.
        #[source]
        source: RunError,
    },
    /// The commit failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The table is committed, but the log's segments cannot be removed.
    #[error("cannot write to the log's folder")]
    Log(#[source] std::io::Error),
}

impl TableWriter {
    /// Writes the oldest sealed memtable as a run and commits it; [`None`] when no memtable is sealed. `now_ms` is the
    /// time, in milliseconds since 1970.
    ///
    /// # Errors
    /// When the store fails. No row is lost then, and a retry stores no row twice.
    pub(crate) async fn flush(
        &mut self,
        tree: &Tree,
        now_ms: i64,
    ) -> Result<Option<FlushOutcome>, FlushError> {
        let Some(sealed) = tree.read().sealed.first().cloned() else { return Ok(None) };
        let mut new = NewRun::new(self.runs.table());
        let rows = {
            let memtable = sealed.memtable.read();
            memtable.sorted().for_each(|group| new.push(&group));
            memtable.len()
        };
        let (day, range) = (day(sealed.day), sealed.range);
        // The name has the first and last segment, so that a replaced process overwrites no file of its successor.
        let (first, last) = (range.after + 1, range.to);
        let below = format!("day={day}/{}-{first:012}-{last:012}.parquet", self.source);
        let path = self.runs.path(&below);
        let (file, run, mut add) = new
            .finish(Vec::new(), 0, (below, &day))
            .map_err(|source| FlushError::Run { path: path.clone(), source })?;
        let bytes = file.len();
        add.modification_time = now_ms;
        let put = self.runs.objects().put(&path, file.into()).await;
        put.map_err(|source| WriteError { path: path.clone(), source })?;
        self.commit(range, add.clone(), now_ms).await?;
        self.publish(Some(StoredRun::new(path.clone(), add, run))).await;
        tree.forget_committed();
        Ok(Some(FlushOutcome { path, rows, bytes }))
    }

    async fn commit(
        &mut self,
        LogRange { after, to }: LogRange,
        add: Add,
        now_ms: i64,
    ) -> Result<(), CommitError> {
        let source = self.source.clone();
        let id = format!("{source}-{to}");
        let range = SourceRange { source, from: after, to };
        let (add, sources) = (vec![add], vec![range]);
        let change = Change { operation: "WRITE", add, sources, ..Change::default() };
        match self.table.commit(&change, now_ms, &id).await {
            Ok(_) => Ok(()),
            // An earlier commit succeeded, and its response was lost.
            Err(CommitError::Refused(Refused::Done { .. })) if self.knows(&change.add) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether all files are in the table, or were until they were replaced.
    fn knows(&self, files: &[Add]) -> bool {
        let snapshot = self.table.snapshot();
        files.iter().all(|add| {
            snapshot.files().any(|file| file.path == add.path)
                || snapshot.removed().any(|file| file.path == add.path)
        })
    }
}

/// Formats a day as in 2026-11-22.
fn day(since_1970: u64) -> String {
    let ns = i64::try_from(since_1970 * DAY_NS).unwrap_or_default();
    DateTime::from_timestamp_nanos(ns).date_naive().to_string()
}
