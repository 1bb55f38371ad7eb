//! Commits to a table, and what they make visible.
//!
//! The flusher and the compactor each have their own for a table, like two servers, and neither waits for the other. What a
//! reader sees follows from the newest known version: its runs, and the memtables beyond its committed position.

use super::open::{OpenError as OpenTableError, Settings};
use super::opener::Opener;
use super::run_set::{RunSet, RunVersion};
use super::stored::{StoredRun, Unread};
use crate::delta::{OpenError, Table, TableVersion, UpkeepError};
use crate::schema;
use std::sync::Arc;

/// Commits to one table.
#[derive(Clone, Debug)]
pub struct TableWriter {
    pub(super) runs: Arc<RunSet>,
    pub(crate) table: Table,
    pub(super) opener: Opener,
    /// The name of our log, which is the source of our rows.
    pub(crate) source: String,
}

impl TableWriter {
    /// Opens a table, or makes it. Nothing of it is visible yet.
    pub(crate) async fn open(
        settings: &Settings,
        table: &'static schema::Table,
        now_ms: i64,
        id: &str,
    ) -> Result<Self, OpenTableError> {
        let Settings { objects, writer, final_rows, .. } = settings.clone();
        let (delta, opener) = settings.open(table.name(), table.schema(), now_ms, id).await?;
        let runs = Arc::new(RunSet::new(table, objects, opener.root.clone(), final_rows));
        Ok(Self { runs, table: delta, opener, source: writer })
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &'static str {
        self.runs.table().name()
    }

    /// The table's ID and last known version.
    pub(crate) fn committed(&self) -> TableVersion {
        self.table.committed()
    }

    /// The runs of the table.
    #[must_use]
    pub const fn runs(&self) -> &Arc<RunSet> {
        &self.runs
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

    /// Makes the runs of the table visible, `new` included, and hides the memtables that they contain.
    pub(crate) async fn publish(
        &mut self,
        new: impl IntoIterator<Item = StoredRun>,
    ) -> Vec<Unread> {
        let known = self.runs.runs().into_iter().chain(new.into_iter().map(Arc::new));
        let (runs, unread) = self.opener.open(self.table.snapshot().files(), known).await;
        self.runs.publish(RunVersion {
            version: self.table.version(),
            committed: self.table.snapshot().position(&self.source),
            runs: runs.into(),
            unopened: unread.clone(),
        });
        unread
    }
}
