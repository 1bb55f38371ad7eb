//! Commits to a table, and makes the committed runs visible.
//!
//! The flusher and the compactor each have a writer for each table, like two servers, and neither waits for the other.
//! A reader sees the runs of the newest known version, and the memtables beyond the committed position of that version.

use super::AT_ONCE;
use super::run_set::{RunSet, RunVersion};
use super::stored::{ReadError, StoredRun, Unread};
use crate::delta::{
    Add, Change, CommitError, OpenError, Refused, Remove, Table, TableVersion, UpkeepError,
};
use futures_util::stream::{self, StreamExt as _};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Commits to one table.
#[derive(Clone, Debug)]
pub(crate) struct TableWriter {
    pub(super) runs: Arc<RunSet>,
    pub(crate) table: Table,
    /// Damaged runs, which are not opened again.
    pub(super) damaged: HashMap<String, Arc<ReadError>>,
    /// The name of our log, which is the source of our rows.
    pub(crate) source: String,
}

impl TableWriter {
    /// The table's name, and its ID and last known version.
    pub(crate) fn committed(&self) -> (String, TableVersion) {
        (self.runs.table().name.to_owned(), self.table.committed())
    }

    /// The runs of the table.
    pub(crate) const fn runs(&self) -> &Arc<RunSet> {
        &self.runs
    }

    /// Writes a checkpoint of the table if one is due.
    pub(crate) async fn checkpoint(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        if self.table.is_checkpoint_due()? {
            self.table.checkpoint(now_ms).await?;
        }
        Ok(())
    }

    /// Removes old commits that are in a checkpoint, and files that left the table long ago.
    pub(crate) async fn clean(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        self.table.clean_log(now_ms).await?;
        self.table.vacuum(now_ms).await.map(drop)
    }

    /// Reads what others have committed; returns runs that cannot be read, which every query result names.
    pub(crate) async fn refresh(&mut self) -> Result<Vec<Unread>, OpenError> {
        self.table.refresh().await?;
        Ok(self.publish(None).await)
    }

    /// Makes the runs of the table visible, `new` included, and hides the memtables whose rows are in these runs.
    pub(crate) async fn publish(
        &mut self,
        new: impl IntoIterator<Item = StoredRun>,
    ) -> Vec<Unread> {
        let known = self.runs.runs().into_iter().chain(new.into_iter().map(Arc::new));
        let (runs, unread) = self.open_runs(known).await;
        self.runs.publish(RunVersion {
            version: self.table.version(),
            committed: self.table.snapshot().position(&self.source),
            runs: runs.into(),
            unopened: unread.clone(),
        });
        unread
    }
    /// Opens the runs of the table that are not known; returns also the unreadable runs. If the store fails at a run,
    /// each call retries the run.
    async fn open_runs(
        &mut self,
        known: impl Iterator<Item = Arc<StoredRun>>,
    ) -> (Vec<Arc<StoredRun>>, Vec<Unread>) {
        let known: HashMap<_, _> = known.map(|run| (run.add().path.clone(), run)).collect();
        let (mut runs, mut added, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        for add in self.table.snapshot().files() {
            if let Some(run) = known.get(&add.path) {
                runs.push(Arc::clone(run));
            } else if let Some(error) = self.damaged.get(&add.path) {
                unread.push(Unread { path: self.runs.path(&add.path), error: Arc::clone(error) });
            } else {
                added.push(add.clone());
            }
        }
        let (objects, table) = (self.runs.objects(), self.runs.table());
        let opened = stream::iter(added).map(|add| async {
            let path = self.runs.path(&add.path);
            (StoredRun::open(&**objects, table, path, &add).await, add)
        });
        let opened: Vec<_> = opened.buffered(AT_ONCE).collect().await;
        for (opened, add) in opened {
            match opened {
                Ok(run) => runs.push(Arc::new(run)),
                Err(error) => {
                    let (path, error) = (self.runs.path(&add.path), Arc::new(error));
                    if matches!(*error, ReadError::Run(_)) {
                        self.damaged.insert(add.path, Arc::clone(&error));
                    }
                    unread.push(Unread { path, error });
                }
            }
        }
        // In the order of the table's files.
        runs.sort_unstable_by(|one, other| one.add().path.cmp(&other.add().path));
        (runs, unread)
    }

    /// The runs of the table in its last known version, also unreadable ones.
    pub(crate) fn files(&self) -> impl ExactSizeIterator<Item = &Add> {
        self.table.snapshot().files()
    }

    /// Removes runs, with their rows, in one commit at `now_ms`, milliseconds since 1970; returns the removed ones.
    ///
    /// If another writer has removed or merged one of them meanwhile, only the rest is removed.
    pub(crate) async fn remove(
        &mut self,
        paths: &BTreeSet<String>,
        now_ms: i64,
    ) -> Result<Vec<Add>, CommitError> {
        let id = format!("{}-removes-{now_ms}", self.source);
        let removed = loop {
            let there = self.files().filter(|add| paths.contains(&add.path));
            let there: Vec<_> = there.cloned().collect();
            if there.is_empty() {
                break Ok(there);
            }
            let remove = there.iter().map(|add| Remove::of(add, now_ms, true)).collect();
            let change = Change { operation: "DELETE", remove, ..Change::default() };
            match self.table.commit(&change, now_ms, &id).await {
                Ok(_) => break Ok(there),
                // Another writer has removed one: try the rest.
                Err(CommitError::Refused(Refused::Gone(_))) => {}
                Err(error) => break Err(error),
            }
        };
        // The table has been read, even if the commit failed.
        self.publish(None).await;
        removed
    }
}
