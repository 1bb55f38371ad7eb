//! Writes the runs of a compaction, one after the other.
//!
//! **Limits**: memory holds the footer and indexes of each new run, and the part of one run that is not uploaded yet.

use super::compact::{CompactError, Compaction};
use super::cut::Cut;
use super::run_set::RunSet;
use super::stored::StoredRun;
use super::upload::Upload;
use crate::columns::Columns;
use object_store::ObjectStoreExt as _;
use std::borrow::Cow;

/// The new runs of a compaction.
#[derive(Debug)]
pub(super) struct Making<'a> {
    runs: &'a RunSet,
    compaction: &'a Compaction,
    name: &'a str,
    cut: Cut,
    /// The current run, and its path below the table's root.
    at_hand: Option<(String, Upload)>,
    made: Vec<StoredRun>,
}

impl<'a> Making<'a> {
    /// No runs yet.
    pub(super) fn new(runs: &'a RunSet, compaction: &'a Compaction, name: &'a str) -> Self {
        let cut = Cut::new(compaction.share());
        Self { runs, compaction, name, cut, at_hand: None, made: Vec::new() }
    }

    /// Adds the next rows in the order of a run. `each` gets the rows of each new run and its path below the table's root.
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

    /// Abandons the current run and removes those before, so that they do not fill a disk. A later vacuum removes the
    /// rest.
    pub(super) async fn abort(self) {
        if let Some((_, upload)) = self.at_hand {
            upload.abort().await;
        }
        for run in &self.made {
            self.runs.objects().delete(run.path()).await.ok();
        }
    }

    /// Adds rows to the current run, or begins one; returns its path below the table's root.
    async fn push_part(&mut self, rows: &Columns) -> Result<&str, CompactError> {
        if self.at_hand.is_none() {
            let below = self.compaction.below(self.name, self.made.len());
            let (objects, schema) = (self.runs.objects(), self.runs.table().schema());
            let upload = Upload::begin(objects, schema, self.runs.path(&below)).await?;
            self.at_hand = Some((below, upload));
        }
        let (below, upload) = self.at_hand.as_mut().expect("it has just begun, if not before");
        upload.push(rows).await?;
        Ok(below)
    }

    async fn end_run(&mut self) -> Result<(), CompactError> {
        let Some((below, upload)) = self.at_hand.take() else { return Ok(()) };
        let uploaded = upload.finish().await?;
        let mut add = uploaded.add(below, self.compaction.day(), 0);
        add.data_change = self.compaction.is_change();
        add.tags.get_or_insert_default().extend(self.compaction.tags());
        self.made.push(StoredRun::new(uploaded.path, add, uploaded.run));
        Ok(())
    }
}
