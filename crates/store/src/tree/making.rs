//! The runs that others become, written one after another as their rows come.
//!
//! **Limits**: of each run that is made its end is in memory, and of one what is not uploaded yet.

use super::compact::{CompactError, Compaction};
use super::cut::Cut;
use super::run_set::RunSet;
use super::stored::StoredRun;
use super::upload::Upload;
use crate::columns::Columns;
use object_store::ObjectStoreExt as _;
use std::borrow::Cow;

/// Runs that are being made.
#[derive(Debug)]
pub(super) struct Making<'a> {
    runs: &'a RunSet,
    compaction: &'a Compaction,
    name: &'a str,
    cut: Cut,
    /// The run at hand, and where below the table's root it will be.
    at_hand: Option<(String, Upload)>,
    made: Vec<StoredRun>,
}

impl<'a> Making<'a> {
    /// None so far.
    pub(super) fn new(runs: &'a RunSet, compaction: &'a Compaction, name: &'a str) -> Self {
        let cut = Cut::new(compaction.share());
        Self { runs, compaction, name, cut, at_hand: None, made: Vec::new() }
    }

    /// Adds rows, which follow those before in the order of a run. Those of each run are told to `each` with where
    /// below the table's root it will be.
    pub(super) async fn push(
        &mut self,
        rows: &Columns,
        each: &mut impl AsyncFnMut(&str, &Columns),
    ) -> Result<(), CompactError> {
        let parts = self.cut.parts(rows.wide(self.runs.table().order().0), rows.len());
        for (nth, part) in parts.into_iter().enumerate() {
            if nth > 0 {
                self.end_run().await?;
            }
            if !part.is_empty() {
                let is_all = part.len() == rows.len();
                let part = if is_all { Cow::Borrowed(rows) } else { Cow::Owned(rows.part(part)) };
                let below = self.push_part(&part).await?;
                each(below, &part).await;
            }
        }
        Ok(())
    }

    /// Ends the last run; returns all.
    pub(super) async fn finish(mut self) -> Result<Vec<StoredRun>, CompactError> {
        if let Err(failed) = self.end_run().await {
            self.abort().await;
            return Err(failed);
        }
        Ok(self.made)
    }

    /// Leaves the run at hand, and removes those before, of which nobody knows: a disk may be full of them. What cannot
    /// be removed goes with a later vacuum.
    pub(super) async fn abort(self) {
        if let Some((_, upload)) = self.at_hand {
            upload.abort().await;
        }
        for run in &self.made {
            self.runs.objects().delete(run.path()).await.ok();
        }
    }

    /// Adds rows to the run at hand, or to another one; returns where below the table's root it will be.
    async fn push_part(&mut self, rows: &Columns) -> Result<&str, CompactError> {
        if self.at_hand.is_none() {
            let below = self.compaction.below(self.name, self.made.len());
            let path = self.runs.path(&below);
            let begun =
                Upload::begin(self.runs.objects(), self.runs.table().schema(), path.clone()).await;
            let upload = begun.map_err(|source| CompactError::Write { path, source })?;
            self.at_hand = Some((below, upload));
        }
        let (below, upload) = self.at_hand.as_mut().expect("it has just begun, if not before");
        let pushed = upload.push(rows).await;
        pushed.map_err(|source| CompactError::Write { path: upload.path().clone(), source })?;
        Ok(below)
    }

    async fn end_run(&mut self) -> Result<(), CompactError> {
        let Some((below, upload)) = self.at_hand.take() else { return Ok(()) };
        let path = upload.path().clone();
        let finished = upload.finish().await;
        let uploaded =
            finished.map_err(|source| CompactError::Write { path: path.clone(), source })?;
        let mut add = uploaded.add(below, self.compaction.day(), 0);
        add.data_change = self.compaction.is_change();
        add.tags.get_or_insert_default().extend(self.compaction.tags());
        self.made.push(StoredRun::new(path, add, uploaded.run));
        Ok(())
    }
}
