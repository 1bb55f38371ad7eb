//! Writes summaries, and keeps their table in step with the table of spans.

use super::{SETTLED_AFTER_MS, Summaries};
use crate::columns::Columns;
use crate::delta::{Add, Change, CommitError, Remove, Table};
use crate::schema::traces::TRACES;
use crate::tree::{
    CompactError, OpenError, RunSet, Settings, StoredRun, TableWriter, Unread, Upload,
};
use object_store::ObjectStoreExt as _;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Writes summaries: there is one of it.
#[derive(Debug)]
pub(crate) struct Summariser {
    pub(crate) writer: TableWriter,
}

/// The summaries of runs of a day that are being written, or read, one after another.
#[derive(Debug)]
pub(crate) struct NewSummaries {
    runs: Arc<RunSet>,
    day: String,
    /// Those of the run at hand.
    at_hand: Option<OfRun>,
    done: Vec<Add>,
    /// What has gone wrong.
    failed: Option<CompactError>,
}

/// The summaries of one run.
#[derive(Debug)]
struct OfRun {
    /// Below the root of their table, as the run below that of spans.
    below: String,
    summaries: Summaries,
    upload: Upload,
}

/// Summaries of runs, which their table does not know yet.
#[derive(Debug)]
pub(crate) struct Summarised(Vec<Add>);

impl Summariser {
    /// Opens the table, or makes it.
    pub(crate) async fn open(
        settings: &Settings,
        now_ms: i64,
        id: &str,
    ) -> Result<(Self, Vec<Unread>), OpenError> {
        let mut writer = TableWriter::open(settings, &TRACES, now_ms, id).await?;
        let unread = writer.publish(None).await;
        Ok((Self { writer }, unread))
    }

    /// How many bytes the summaries of each run take, by its path.
    pub(crate) fn bytes(&self) -> BTreeMap<&str, u64> {
        self.writer.table.snapshot().files().map(|add| (&*add.path, add.size)).collect()
    }

    /// Begins the summaries of runs of a day.
    pub(crate) fn begin(&self, day: &str) -> NewSummaries {
        NewSummaries {
            runs: Arc::clone(self.writer.runs()),
            day: day.to_owned(),
            at_hand: None,
            done: Vec::new(),
            failed: None,
        }
    }

    /// A run of spans that is old enough and has no summaries.
    pub(crate) fn missing(&self, spans: &TableWriter, now_ms: i64) -> Option<Arc<StoredRun>> {
        let there: HashSet<_> =
            self.writer.table.snapshot().files().map(|add| &*add.path).collect();
        let is_missing = |run: &Arc<StoredRun>| {
            let age_ms = now_ms.saturating_sub(run.add().modification_time);
            age_ms >= SETTLED_AFTER_MS && !run.is_damaged() && !there.contains(&*run.add().path)
        };
        spans.runs().runs().into_iter().find(is_missing)
    }

    /// Whether there are summaries of runs that are not there any more.
    pub(crate) fn is_behind(&self, spans: &TableWriter) -> bool {
        self.gone(spans).next().is_some()
    }

    /// Adds the summaries of runs, if there are any, and removes those of runs that are not there any more. It is
    /// `now_ms`, milliseconds since 1970.
    pub(crate) async fn commit(
        &mut self,
        new: Option<Summarised>,
        spans: &mut TableWriter,
        now_ms: i64,
    ) -> Result<(), CommitError> {
        // A run is committed before its summaries: of what is there now, whose run is not there later has none.
        self.writer.table.refresh().await?;
        spans.refresh().await?;
        let is_there =
            |table: &Table, path: &str| table.snapshot().files().any(|add| add.path == path);
        let is_new = |add: &Add| {
            spans.files().any(|run| run.path == add.path)
                && !is_there(&self.writer.table, &add.path)
        };
        let new = new.into_iter().flat_map(|Summarised(all)| all).filter(is_new);
        let add: Vec<_> = new.map(|add| Add { modification_time: now_ms, ..add }).collect();
        let remove: Vec<_> = self.gone(spans).map(|add| Remove::of(add, now_ms, true)).collect();
        let mut committed = Ok(());
        if !add.is_empty() || !remove.is_empty() {
            let id = format!("{}-summarises-{now_ms}", self.writer.source);
            let change = Change { operation: "WRITE", add, remove, ..Change::default() };
            committed = match self.writer.table.commit(&change, now_ms, &id).await {
                // Somebody else has done some of it: what is left is seen at the next look.
                Ok(_) | Err(CommitError::Refused(_)) => Ok(()),
                Err(error) => Err(error),
            };
        }
        self.writer.publish(None).await;
        committed
    }

    /// Summaries of runs that are not there any more.
    fn gone<'a>(&'a self, spans: &'a TableWriter) -> impl Iterator<Item = &'a Add> {
        let there: HashSet<_> = spans.files().map(|add| &*add.path).collect();
        self.writer.table.snapshot().files().filter(move |add| !there.contains(&*add.path))
    }
}

impl NewSummaries {
    /// Takes rows of the run with this path below the root of its table, which follow those before. Those of
    /// one run come before those of the next.
    pub(crate) async fn take(&mut self, below: &str, rows: &Columns) {
        if self.failed.is_none() {
            self.failed = self.try_take(below, rows).await.err();
        }
    }

    /// All rows have been taken.
    pub(crate) async fn finish(mut self) -> Result<Summarised, CompactError> {
        let ended = match self.failed.take() {
            None => self.end_run().await,
            Some(failed) => Err(failed),
        };
        match ended {
            Ok(()) => Ok(Summarised(self.done)),
            Err(failed) => {
                self.abort().await;
                Err(failed)
            }
        }
    }

    /// The runs do not come to be. What cannot be removed of their summaries goes with a later vacuum.
    pub(crate) async fn abort(self) {
        if let Some(at_hand) = self.at_hand {
            at_hand.upload.abort().await;
        }
        for add in &self.done {
            self.runs.objects().delete(&self.runs.path(&add.path)).await.ok();
        }
    }

    async fn try_take(&mut self, below: &str, rows: &Columns) -> Result<(), CompactError> {
        if self.at_hand.as_ref().is_none_or(|at_hand| at_hand.below != below) {
            self.end_run().await?;
            let (objects, path) = (self.runs.objects(), self.runs.path(below));
            let upload = Upload::begin(objects, TRACES.schema(), path).await?;
            let (below, summaries) = (below.to_owned(), Summaries::default());
            self.at_hand = Some(OfRun { below, summaries, upload });
        }
        let at_hand = self.at_hand.as_mut().expect("it has just begun, if not before");
        let full = at_hand.summaries.take(rows);
        at_hand.push(full).await
    }

    async fn end_run(&mut self) -> Result<(), CompactError> {
        let Some(at_hand) = &mut self.at_hand else { return Ok(()) };
        let rest = std::mem::take(&mut at_hand.summaries).finish();
        at_hand.push(rest).await?;
        if let Some(OfRun { below, upload, .. }) = self.at_hand.take() {
            let uploaded = upload.finish().await?;
            self.done.push(uploaded.add(below, &self.day, 0));
        }
        Ok(())
    }
}

impl OfRun {
    async fn push(&mut self, groups: Vec<Columns>) -> Result<(), CompactError> {
        for group in groups {
            self.upload.push(&group).await?;
        }
        Ok(())
    }
}
