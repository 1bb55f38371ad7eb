//! Writing memtables as runs.

use super::stored::StoredRun;
use super::{DAY_NS, Sealed, Tree};
use crate::delta::{Add, Change, CommitError, Refused, Table, Transaction};
use crate::files::Files;
use crate::log;
use crate::run::{Run, RunError, RunWriter};
use crate::schema::spans::{DURATION, SPANS, START};
use bytes::Bytes;
use chrono::DateTime;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Writes sealed memtables: there is one of it, and it alone commits.
#[derive(Debug)]
pub struct Flusher {
    pub(super) tree: Arc<Tree>,
    pub(super) files: Arc<dyn Files>,
    pub(super) table: Table,
    pub(super) root: Path,
    /// Which writer of the table this is.
    pub(super) writer: String,
    /// Segments of the log that are not removed.
    pub(super) damaged: BTreeSet<u64>,
    /// The last segment that there was when the tree was opened.
    pub(super) last: u64,
}

/// A run that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Where it is.
    pub path: Path,
    /// How many spans it has.
    pub spans: usize,
    /// How many bytes.
    pub bytes: usize,
    /// Segments of the log that are not needed any more and could not be removed: they are passed over when
    /// the tree is opened, and tried again.
    pub left: Vec<u64>,
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

impl Flusher {
    /// The tree.
    #[must_use]
    pub const fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// The last segment of the log that there was when the tree was opened: the log goes on after it.
    #[must_use]
    pub const fn last_segment(&self) -> u64 {
        self.last
    }

    /// Writes the oldest sealed memtable as a run and commits it; [`None`] when there is none. It is `now_ms`,
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// When the store fails. Nothing is lost then, and nothing is there twice when it is tried again.
    pub async fn flush(&mut self, now_ms: i64) -> Result<Option<Flushed>, FlushError> {
        let Some(sealed) = self.tree.read().sealed.first().cloned() else { return Ok(None) };
        let day = day(sealed.day);
        let name = format!("{}-{:012}.parquet", self.writer, sealed.segment);
        let below = Path::from(format!("day={day}/{name}"));
        let path = Path::from(format!("{}/{below}", self.root));
        let (file, stats) = encode(&sealed);
        let run = Run::open(SPANS.schema(), &file, file.len() as u64)
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
        let spans = sealed.memtable.len();
        {
            let state = &mut *self.tree.write();
            state.sealed.retain(|each| !Arc::ptr_eq(each, &sealed));
            state.runs.push(Arc::new(StoredRun::new(path.clone(), run)));
        }
        let left = self.remove_segments(sealed.segment);
        Ok(Some(Flushed { path, spans, bytes, left }))
    }

    async fn commit(&mut self, sealed: &Sealed, add: Add, now_ms: i64) -> Result<(), CommitError> {
        let version = i64::try_from(sealed.segment).expect("segments are few");
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

    /// Removes the segments up to `last`, all of which is in the table; returns those that cannot be removed.
    fn remove_segments(&self, last: u64) -> Vec<u64> {
        let retire = |segment: &u64| {
            if self.damaged.contains(segment) {
                log::set_aside(&*self.files, *segment)
            } else {
                log::remove(&*self.files, *segment)
            }
        };
        let segments = log::segments(&*self.files).unwrap_or_default();
        let done = segments.into_iter().filter(|segment| *segment <= last);
        done.filter(|segment| retire(segment).is_err()).collect()
    }
}

/// The file of a memtable, and what Delta says about its rows.
fn encode(sealed: &Sealed) -> (Bytes, String) {
    let mut writer = RunWriter::new(SPANS.schema(), Vec::new()).expect(IN_MEMORY);
    let fields = [START, DURATION];
    let mut extremes = [(i64::MAX, i64::MIN); 2];
    for group in sealed.memtable.sorted() {
        for (field, (least, greatest)) in fields.iter().zip(&mut extremes) {
            for number in group.longs(*field) {
                (*least, *greatest) = ((*least).min(*number), (*greatest).max(*number));
            }
        }
        writer.write(&group).expect(IN_MEMORY);
    }
    let rows = writer.rows();
    let file: io::Result<Vec<u8>> = writer.finish();
    let [start, duration] = extremes;
    let stats = serde_json::json!({
        "numRecords": rows,
        "minValues": {"start_ns": start.0, "duration_ns": duration.0},
        "maxValues": {"start_ns": start.1, "duration_ns": duration.1},
        "nullCount": {"start_ns": 0, "duration_ns": 0},
    });
    (file.expect(IN_MEMORY).into(), stats.to_string())
}

const IN_MEMORY: &str = "memory can be written to";

/// As in 2026-11-22.
fn day(since_1970: u64) -> String {
    let ns = i64::try_from(since_1970 * DAY_NS).unwrap_or_default();
    DateTime::from_timestamp_nanos(ns).date_naive().to_string()
}
