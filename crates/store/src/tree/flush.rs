//! Writing memtables as runs.

use super::stored::StoredRun;
use super::{DAY_NS, Filling, Tree};
use crate::delta::{Add, Change, CommitError, Refused, Table, Transaction};
use crate::memtable::Rows;
use crate::run::{Run, RunError, RunWriter};
use crate::schema::{Form, Kind, Presence};
use bytes::Bytes;
use chrono::DateTime;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Writes sealed memtables: there is one of it, and it alone commits.
#[derive(Debug)]
pub struct Flusher<R> {
    pub(super) tree: Arc<Tree<R>>,
    pub(super) table: Table,
    pub(super) root: Path,
    /// Which writer of the table this is.
    pub(super) writer: String,
}

/// A run that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flushed {
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
}

impl<R: Rows> Flusher<R> {
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
    pub async fn flush(&mut self, now_ms: i64) -> Result<Option<Flushed>, FlushError> {
        let Some(sealed) = self.tree.read().sealed.first().cloned() else { return Ok(None) };
        let day = day(sealed.day);
        let name = format!("{}-{:012}.parquet", self.writer, sealed.segments.1);
        let below = Path::from(format!("day={day}/{name}"));
        let path = Path::from(format!("{}/{below}", self.root));
        let (file, stats) = encode(&sealed);
        let run = Run::open(R::schema(), &file, file.len() as u64)
            .map_err(|source| FlushError::Run { path: path.clone(), source })?;
        let bytes = file.len();
        let put = self.tree.objects.put(&path, file.into()).await;
        put.map_err(|source| FlushError::Write { path: path.clone(), source })?;
        let add = Add {
            path: below.to_string(),
            partition_values: BTreeMap::from([("day".to_owned(), Some(day))]),
            size: bytes as u64,
            modification_time: now_ms,
            data_change: true,
            stats: Some(stats),
            tags: None,
        };
        self.commit(&sealed, add, now_ms).await?;
        let rows = sealed.memtable.len();
        let state = &mut *self.tree.write();
        state.sealed.retain(|each| !Arc::ptr_eq(each, &sealed));
        state.runs.push(Arc::new(StoredRun::new(path.clone(), run)));
        Ok(Some(Flushed { path, rows, bytes }))
    }

    async fn commit(
        &mut self,
        sealed: &Filling<R>,
        add: Add,
        now_ms: i64,
    ) -> Result<(), CommitError> {
        let version = i64::try_from(sealed.segments.1).expect("segments are few");
        let transaction =
            Transaction { app_id: self.writer.clone(), version, last_updated: Some(now_ms) };
        let id = format!("{}-{version}", self.writer);
        let change = Change {
            operation: "WRITE",
            add: vec![add],
            remove: Vec::new(),
            transaction: Some(transaction),
        };
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

/// The file of a memtable, and what Delta says about its rows: how many, and the extremes of numbers.
fn encode<R: Rows>(sealed: &Filling<R>) -> (Bytes, String) {
    let mut writer = RunWriter::new(R::schema(), Vec::new()).expect(IN_MEMORY);
    let fields = R::schema().fields().iter().enumerate();
    let longs = fields.filter(|(_, field)| field.form == Form::One(Kind::Long, Presence::Required));
    let mut extremes: Vec<_> =
        longs.map(|(nth, field)| (nth, field.name, i64::MAX, i64::MIN)).collect();
    for group in sealed.memtable.sorted() {
        for (field, _, least, greatest) in &mut extremes {
            for number in group.longs(*field) {
                (*least, *greatest) = ((*least).min(*number), (*greatest).max(*number));
            }
        }
        writer.write(&group).expect(IN_MEMORY);
    }
    let rows = writer.rows();
    let file = writer.finish().expect(IN_MEMORY).into();
    let each = |of: fn(i64, i64) -> i64| {
        let pairs = extremes.iter().map(|(_, name, least, greatest)| {
            ((*name).to_owned(), Value::from(of(*least, *greatest)))
        });
        Value::Object(pairs.collect())
    };
    let stats = json!({
        "numRecords": rows,
        "minValues": each(|least, _| least),
        "maxValues": each(|_, greatest| greatest),
        "nullCount": each(|_, _| 0),
    });
    (file, stats.to_string())
}

const IN_MEMORY: &str = "memory can be written to";

/// As in 2026-11-22.
fn day(since_1970: u64) -> String {
    let ns = i64::try_from(since_1970 * DAY_NS).unwrap_or_default();
    DateTime::from_timestamp_nanos(ns).date_naive().to_string()
}
