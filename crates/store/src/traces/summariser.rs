//! Writes summaries, and keeps their table in step with that of spans.

use super::{SETTLED_AFTER_MS, Summaries, Traces};
use crate::columns::Columns;
use crate::delta::{self, Add, Change, CommitError, Remove, Table, UpkeepError};
use crate::memtable::SpanRows;
use crate::schema::traces::TRACES;
use crate::tree::{
    CompactError, OpenError, Opener, Settings, StoredRun, TableWriter, Unread, Upload,
};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

/// What the table is called.
const NAME: &str = "traces";

/// Writes summaries: there is one of it.
#[derive(Debug)]
pub(crate) struct Summariser {
    traces: Arc<Traces>,
    table: Table,
    opener: Opener,
    writer: String,
}

/// The summaries of runs of a day that are being written, or read, one after another.
#[derive(Debug)]
pub(crate) struct NewSummaries {
    objects: Arc<dyn ObjectStore>,
    /// Where their table is.
    root: Path,
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
        let (table, opener) = settings.open(NAME, &TRACES, now_ms, id).await?;
        let objects = Arc::clone(&settings.objects);
        let traces = Arc::new(Traces { objects, runs: RwLock::default() });
        let mut summariser = Self { traces, table, opener, writer: settings.writer.clone() };
        let unread = summariser.look().await;
        Ok((summariser, unread))
    }

    /// The summaries.
    pub(crate) const fn traces(&self) -> &Arc<Traces> {
        &self.traces
    }

    /// How many bytes the summaries of each run take, by its path.
    pub(crate) fn bytes(&self) -> BTreeMap<&str, u64> {
        self.table.snapshot().files().map(|add| (&*add.path, add.size)).collect()
    }

    /// Begins the summaries of runs of a day.
    pub(crate) fn begin(&self, day: &str) -> NewSummaries {
        NewSummaries {
            objects: Arc::clone(&self.opener.objects),
            root: self.opener.root.clone(),
            day: day.to_owned(),
            at_hand: None,
            done: Vec::new(),
            failed: None,
        }
    }

    /// A run of spans that is old enough and has no summaries.
    pub(crate) fn missing(
        &self,
        spans: &TableWriter<SpanRows>,
        now_ms: i64,
    ) -> Option<Arc<StoredRun>> {
        let there: HashSet<_> = self.table.snapshot().files().map(|add| &*add.path).collect();
        let is_missing = |run: &Arc<StoredRun>| {
            let age_ms = now_ms.saturating_sub(run.add().modification_time);
            age_ms >= SETTLED_AFTER_MS && !run.is_damaged() && !there.contains(&*run.add().path)
        };
        spans.tree().runs().into_iter().find(is_missing)
    }

    /// Whether there are summaries of runs that are not there any more.
    pub(crate) fn is_behind(&self, spans: &TableWriter<SpanRows>) -> bool {
        self.gone(spans).next().is_some()
    }

    /// Adds the summaries of runs, if there are any, and removes those of runs that are not there any more. It is
    /// `now_ms`, milliseconds since 1970.
    pub(crate) async fn commit(
        &mut self,
        new: Option<Summarised>,
        spans: &mut TableWriter<SpanRows>,
        now_ms: i64,
    ) -> Result<(), CommitError> {
        // A run is committed before its summaries: of what is there now, whose run is not there later has none.
        self.table.refresh().await?;
        spans.refresh().await?;
        let is_there =
            |table: &Table, path: &str| table.snapshot().files().any(|add| add.path == path);
        let is_new = |add: &Add| {
            spans.files().any(|run| run.path == add.path) && !is_there(&self.table, &add.path)
        };
        let new = new.into_iter().flat_map(|Summarised(all)| all).filter(is_new);
        let add: Vec<_> = new.map(|add| Add { modification_time: now_ms, ..add }).collect();
        let remove = self.gone(spans).map(|add| Remove {
            path: add.path.clone(),
            deletion_timestamp: Some(now_ms),
            data_change: true,
        });
        let remove: Vec<_> = remove.collect();
        let mut committed = Ok(());
        if !add.is_empty() || !remove.is_empty() {
            let id = format!("{}-summarises-{now_ms}", self.writer);
            let change = Change { operation: "WRITE", add, remove, ..Change::default() };
            committed = match self.table.commit(&change, now_ms, &id).await {
                // Somebody else has done some of it: what is left is seen at the next look.
                Ok(_) | Err(CommitError::Refused(_)) => Ok(()),
                Err(error) => Err(error),
            };
        }
        self.look().await;
        committed
    }

    /// Looks at what others have committed; returns runs of summaries that cannot be read.
    pub(crate) async fn refresh(&mut self) -> Result<Vec<Unread>, delta::OpenError> {
        self.table.refresh().await?;
        Ok(self.look().await)
    }

    /// Writes a checkpoint of the table if one is due.
    pub(crate) async fn checkpoint(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        if self.table.is_checkpoint_due()? {
            self.table.checkpoint(now_ms).await?;
        }
        Ok(())
    }

    /// Removes what the table does not need any more.
    pub(crate) async fn clean(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        self.table.clean_log(now_ms).await?;
        self.table.vacuum(now_ms).await.map(drop)
    }

    /// Summaries of runs that are not there any more.
    fn gone<'a>(&'a self, spans: &'a TableWriter<SpanRows>) -> impl Iterator<Item = &'a Add> {
        let there: HashSet<_> = spans.files().map(|add| &*add.path).collect();
        self.table.snapshot().files().filter(move |add| !there.contains(&*add.path))
    }

    /// Makes the runs of summaries those of the table.
    async fn look(&mut self) -> Vec<Unread> {
        let (runs, unread) =
            self.opener.open(self.table.snapshot().files(), self.traces.runs().into_iter()).await;
        *self.traces.runs.write().unwrap_or_else(PoisonError::into_inner) = runs;
        unread
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
            self.objects.delete(&path(&self.root, &add.path)).await.ok();
        }
    }

    async fn try_take(&mut self, below: &str, rows: &Columns) -> Result<(), CompactError> {
        if self.at_hand.as_ref().is_none_or(|at_hand| at_hand.below != below) {
            self.end_run().await?;
            let path = path(&self.root, below);
            let upload = Upload::begin(&*self.objects, &TRACES, path.clone()).await;
            let upload = upload.map_err(|source| CompactError::Write { path, source })?;
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
            let path = upload.path().clone();
            let uploaded = upload.finish().await;
            let uploaded = uploaded.map_err(|source| CompactError::Write { path, source })?;
            self.done.push(uploaded.add(below, &self.day, 0));
        }
        Ok(())
    }
}

/// Where a file of a table is.
fn path(root: &Path, below: &str) -> Path {
    Path::from(format!("{root}/{below}"))
}

impl OfRun {
    async fn push(&mut self, groups: Vec<Columns>) -> Result<(), CompactError> {
        for group in groups {
            let pushed = self.upload.push(&group).await;
            let path = || self.upload.path().clone();
            pushed.map_err(|source| CompactError::Write { path: path(), source })?;
        }
        Ok(())
    }
}
