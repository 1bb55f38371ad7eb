//! Flushes memtables as runs.

use super::end::End;
use super::new_run::NewRun;
use super::stored::StoredRun;
use super::table_writer::TableWriter;
use super::{DAY_NS, LogRange, Tree};
use crate::columns::Columns;
use crate::delta::{Add, Change, CommitError, Refused, SourceRange};
use crate::memtable::Rows;
use crate::run::{Run, RunError};
use bytes::Bytes;
use chrono::DateTime;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The sealed memtables of a table, whatever its rows are.
pub(crate) trait SealedMemtables: Debug + Send + Sync {
    /// Gives the row groups of the oldest one to `each`, in the order of a run; [`None`] when none is sealed.
    fn oldest(&self, each: &mut dyn FnMut(&Columns)) -> Option<SealedRows>;

    /// Drops those whose rows are in runs that queries see.
    fn forget_committed(&self);

    /// The first segment of the log with rows that are in no run.
    fn first_unwritten(&self) -> Option<u64>;
}

/// The rows of a sealed memtable.
#[derive(Debug)]
pub(crate) struct SealedRows {
    rows: usize,
    /// Days since 1970.
    day: u64,
    range: LogRange,
}

impl<R: Rows> SealedMemtables for Tree<R> {
    fn oldest(&self, each: &mut dyn FnMut(&Columns)) -> Option<SealedRows> {
        let sealed = self.read().sealed.first().cloned()?;
        let memtable = sealed.memtable.read();
        memtable.sorted().for_each(|group| each(&group));
        Some(SealedRows { rows: memtable.len(), day: sealed.day, range: sealed.range })
    }

    fn forget_committed(&self) {
        let committed = self.runs.read().committed;
        self.write().sealed.retain(|sealed| !sealed.range.is_in_run(committed));
    }

    fn first_unwritten(&self) -> Option<u64> {
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

impl TableWriter {
    /// Writes the oldest sealed memtable as a run and commits it; [`None`] when there is none. It is `now_ms`,
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// When the store fails. Nothing is lost then, and nothing is there twice when it is tried again.
    pub(crate) async fn flush(
        &mut self,
        memtables: &dyn SealedMemtables,
        now_ms: i64,
    ) -> Result<Option<FlushOutcome>, FlushError> {
        let mut new = NewRun::new(self.runs.table().schema());
        let Some(SealedRows { rows, day: since_1970, range }) =
            memtables.oldest(&mut |group| new.push(group))
        else {
            return Ok(None);
        };
        let day = day(since_1970);
        // With both ends: a process that was replaced must not put another file in the place of its successor's.
        let (first, last) = (range.after + 1, range.to);
        let below = format!("day={day}/{}-{first:012}-{last:012}.parquet", self.source);
        let path = self.opener.path(&below);
        let (file, stats) = new.finish();
        let bytes = file.len();
        let file = Bytes::from(file);
        let run = Run::open(self.runs.table().schema(), &file, bytes as u64)
            .map_err(|source| FlushError::Run { path: path.clone(), source })?;
        let end = End::of(&run, &file, bytes as u64);
        let put = self.runs.objects().put(&path, file.into()).await;
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
        self.commit(range, add.clone(), now_ms).await?;
        self.publish(Some(StoredRun::new(path.clone(), add, run))).await;
        memtables.forget_committed();
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
            // It was committed before, and the response was lost.
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
