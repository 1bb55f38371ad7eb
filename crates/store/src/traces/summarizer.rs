//! Writes summaries, and keeps their table in step with the table of spans.

use super::{SETTLED_AFTER_MS, Summaries};
use crate::columns::Columns;
use crate::delta::{Add, Change, CommitError, Remove};
use crate::store::CompactorError;
use crate::tree::{CompactError, RunSet, StoredRun, TableWriter, Uploader};
use std::collections::{BTreeMap, HashSet};
use std::mem;
use std::sync::Arc;

/// Writes summaries and commits them.
#[derive(Debug)]
pub(crate) struct Summarizer {
    pub(crate) writer: TableWriter,
}

/// Summarizes the runs of a day, one after another.
#[derive(Debug)]
pub(crate) struct NewSummaries {
    uploader: Uploader,
    /// The path of the current run below the root of spans, and of its summaries below the root of traces.
    below: String,
    summaries: Summaries,
    failed: Option<CompactError>,
}

/// Uploaded summaries of runs, before their commit.
#[derive(Debug)]
pub(crate) struct Summarized(Vec<StoredRun>);

impl Summarizer {
    /// The size in bytes of the summaries of each run, by its path.
    pub(crate) fn bytes(&self) -> BTreeMap<&str, u64> {
        self.writer.files().map(|add| (&*add.path, add.size)).collect()
    }

    /// Begins the summaries of runs of a day.
    pub(crate) fn begin(&self, day: &str) -> NewSummaries {
        NewSummaries {
            uploader: Uploader::new(self.writer.runs(), day),
            below: String::new(),
            summaries: Summaries::default(),
            failed: None,
        }
    }

    /// Removes the summaries of removed runs, and summarizes one run that was not merged for a while. Returns whether there
    /// was anything to do.
    pub(crate) async fn update(
        &mut self,
        spans: &mut TableWriter,
        now_ms: i64,
    ) -> Result<bool, CompactorError> {
        let missing = self.missing(spans, now_ms);
        if missing.is_none() && self.orphans(spans).next().is_none() {
            return Ok(false);
        }
        let new = match missing {
            Some(run) => Some(self.summaries_of(&run, spans.runs()).await?),
            None => None,
        };
        self.commit(new, spans, now_ms).await?;
        Ok(true)
    }

    async fn summaries_of(
        &self,
        run: &StoredRun,
        runs: &RunSet,
    ) -> Result<Summarized, CompactError> {
        let fields: Vec<_> = Summaries::fields().into_iter().collect();
        let mut new = self.begin(run.day());
        for group in 0..run.run().groups() {
            match run.row_group(runs.objects(), group, &fields).await {
                Ok(rows) => new.take(&run.add().path, &rows).await,
                Err(failed) => {
                    new.abort().await;
                    return Err(failed);
                }
            }
        }
        new.finish().await
    }

    /// A run of spans that is old enough and has no summaries.
    fn missing(&self, spans: &TableWriter, now_ms: i64) -> Option<Arc<StoredRun>> {
        let there = paths(&self.writer);
        let is_missing = |run: &Arc<StoredRun>| {
            let age_ms = now_ms.saturating_sub(run.add().modification_time);
            age_ms >= SETTLED_AFTER_MS && !run.is_damaged() && !there.contains(&*run.add().path)
        };
        spans.runs().runs().into_iter().find(is_missing)
    }

    /// Commits the summaries of runs, if there are any, and removes those of removed runs at
    /// `now_ms`, milliseconds since 1970.
    pub(crate) async fn commit(
        &mut self,
        new: Option<Summarized>,
        spans: &mut TableWriter,
        now_ms: i64,
    ) -> Result<(), CommitError> {
        // A run is committed before its summaries. So summaries without a run after the refresh are of a removed run.
        self.writer.table.refresh().await?;
        spans.refresh().await?;
        let (runs, known) = (paths(spans), paths(&self.writer));
        let is_new = |add: &&Add| runs.contains(&*add.path) && !known.contains(&*add.path);
        let new = new.iter().flat_map(|Summarized(all)| all).map(StoredRun::add).filter(is_new);
        let add: Vec<_> = new.map(|add| Add { modification_time: now_ms, ..add.clone() }).collect();
        let remove: Vec<_> = self.orphans(spans).map(|add| Remove::of(add, now_ms, true)).collect();
        let mut committed = Ok(());
        if !add.is_empty() || !remove.is_empty() {
            let id = format!("{}-summarizes-{now_ms}", self.writer.source);
            let change = Change { operation: "WRITE", add, remove, ..Change::default() };
            committed = match self.writer.table.commit(&change, now_ms, &id).await {
                // Another writer has committed some of the change. The next call does the rest.
                Ok(_) | Err(CommitError::Refused(_)) => Ok(()),
                Err(error) => Err(error),
            };
        }
        self.writer.publish(None).await;
        committed
    }

    /// The summaries of removed runs.
    fn orphans<'a>(&'a self, spans: &'a TableWriter) -> impl Iterator<Item = &'a Add> {
        let there = paths(spans);
        self.writer.files().filter(move |add| !there.contains(&*add.path))
    }
}

/// The paths of the files of a table.
fn paths(table: &TableWriter) -> HashSet<&str> {
    table.files().map(|add| &*add.path).collect()
}

impl NewSummaries {
    /// Adds the next rows of the run with this path below the root of its table. The rows of
    /// one run precede those of the next.
    pub(crate) async fn take(&mut self, below: &str, rows: &Columns) {
        if self.failed.is_none() {
            self.failed = self.try_take(below, rows).await.err();
        }
    }

    /// Ends the last run; returns all summaries.
    pub(crate) async fn finish(mut self) -> Result<Summarized, CompactError> {
        let ended = match self.failed.take() {
            None => self.end_run().await,
            Some(failed) => Err(failed),
        };
        match ended {
            Ok(()) => Ok(Summarized(self.uploader.finish().await?)),
            Err(failed) => {
                self.abort().await;
                Err(failed)
            }
        }
    }

    /// Abandons the summaries, because their runs are not committed.
    pub(crate) async fn abort(self) {
        self.uploader.abort().await;
    }

    async fn try_take(&mut self, below: &str, rows: &Columns) -> Result<(), CompactError> {
        if self.below != below {
            self.end_run().await?;
            below.clone_into(&mut self.below);
        }
        let full = self.summaries.take(rows);
        self.push(full).await
    }

    async fn end_run(&mut self) -> Result<(), CompactError> {
        let rest = mem::take(&mut self.summaries).finish();
        self.push(rest).await
    }

    async fn push(&mut self, groups: Vec<Columns>) -> Result<(), CompactError> {
        for group in groups {
            self.uploader.push(&self.below, &group).await?;
        }
        Ok(())
    }
}
