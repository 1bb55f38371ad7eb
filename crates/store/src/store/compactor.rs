//! The compactor: merges runs, derives the rows of other tables from them, removes expired rows, and maintains the tables.
//!
//! The compactor and the [`Flusher`](super::Flusher) do not call each other. They may run on one thread, on two threads or in
//! two processes, because their commits resolve conflicts.

use crate::columns::Columns;
use crate::delta::{self, Add, CommitError, UpkeepError};
use crate::retention::{Expired, Kept, Retention};
use crate::schema::Origin;
use crate::tail::TooMany;
use crate::traces::Summarizer;
use crate::tree::{CompactError, Compaction, TableWriter, Unread};
use chrono::NaiveDate;
use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;

/// Merges, summarizes and removes runs.
#[derive(Debug, Default)]
pub struct Compactor {
    pub(super) tables: Vec<CompactedTable>,
}

/// A logged table, and the table that is derived from it.
#[derive(Debug)]
pub(super) struct CompactedTable {
    pub(super) writer: TableWriter,
    pub(super) derived: Option<Summarizer>,
    /// Days whose tail is too large, so that they are not reduced.
    pub(super) left_whole: BTreeSet<NaiveDate>,
}

/// Why runs were not merged.
#[derive(Debug, thiserror::Error)]
pub enum CompactorError {
    /// The merge failed.
    #[error(transparent)]
    Compact(#[from] CompactError),
    /// The commit failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A day has too large a tail, and is left as it is until the next start.
    #[error(transparent)]
    Tail(#[from] TooMany),
}

impl CompactorError {
    /// Whether another writer has replaced these runs first. The table was read again, and nothing is wrong.
    #[must_use]
    pub const fn is_outrun(&self) -> bool {
        matches!(self, Self::Commit(CommitError::Refused(_)))
    }
}

impl Compactor {
    /// Adds a table, after the one from which it is derived.
    pub(super) fn add(&mut self, writer: TableWriter) {
        match writer.runs().table().origin {
            Origin::Ingested(_) => {
                let (derived, left_whole) = (None, BTreeSet::new());
                self.tables.push(CompactedTable { writer, derived, left_whole });
            }
            Origin::Derived(from) => {
                let mut tables = self.tables.iter_mut();
                let source = tables.find(|table| std::ptr::eq(table.writer.runs().table(), from));
                source.expect("it is added before").derived = Some(Summarizer { writer });
            }
        }
    }

    /// Reads the commits of other writers; returns runs that cannot be read, which queries skip.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub async fn refresh(&mut self) -> Result<Vec<Unread>, delta::OpenError> {
        let mut unread = Vec::new();
        for writer in self.writers() {
            unread.extend(writer.refresh().await?);
        }
        Ok(unread)
    }

    fn writers(&mut self) -> impl Iterator<Item = &mut TableWriter> {
        self.tables.iter_mut().flat_map(|CompactedTable { writer, derived, .. }| {
            iter::once(writer).chain(derived.as_mut().map(|derived| &mut derived.writer))
        })
    }

    /// Merges the runs of each table that are due; returns whether there were any. Yields after each row group.
    /// `now_ms` is the time, in milliseconds since 1970; `name` must be unique.
    ///
    /// # Errors
    /// When a run cannot be read or the object store fails. Then no row is lost or stored twice.
    pub async fn compact(&mut self, now_ms: i64, name: &str) -> Result<bool, CompactorError> {
        let mut compacted = Vec::new();
        for table in &mut self.tables {
            compacted.push(table.compact(now_ms, name).await);
        }
        compacted.into_iter().try_fold(false, |is_any, is_one| Ok(is_any | is_one?))
    }

    /// Updates derived tables to the runs of their sources: deletes the rows of removed runs, and derives the rows of
    /// one run that was not merged for a while. Returns whether there was anything to do. `now_ms` is the time, in
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// When a run cannot be read or the object store fails; the next call retries the rest.
    pub async fn summarize(&mut self, now_ms: i64) -> Result<bool, CompactorError> {
        for CompactedTable { writer, derived, .. } in &mut self.tables {
            if let Some(derived) = derived
                && derived.update(writer, now_ms).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the checkpoints of tables that are due. `now_ms` is the time, in milliseconds since 1970.
    ///
    /// # Errors
    /// When the object store fails. Nothing is lost, and the next call tries again.
    pub async fn checkpoint(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        for writer in self.writers() {
            writer.checkpoint(now_ms).await?;
        }
        Ok(())
    }

    /// Removes old commits of all tables, and files that left a table a day ago.
    ///
    /// # Errors
    /// When the object store fails. Nothing is lost, and the next call removes the rest.
    pub async fn clean(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        for writer in self.writers() {
            writer.clean(now_ms).await?;
        }
        Ok(())
    }

    /// Removes the expired runs of all tables, in one commit for each table, and returns them. `now_ms` is the time, in
    /// milliseconds since 1970.
    ///
    /// # Errors
    /// When a table cannot be read, or a commit fails. The commits of the other tables are made nevertheless.
    pub async fn expire(
        &mut self,
        retention: &Retention,
        now_ms: i64,
    ) -> Result<Vec<Expired>, CommitError> {
        self.refresh().await?;
        let mut kept = Vec::new();
        for (nth, CompactedTable { writer, derived, .. }) in self.tables.iter().enumerate() {
            // The derived rows of a run expire with the run.
            let derived = derived.as_ref().map(Summarizer::bytes).unwrap_or_default();
            let bytes = |add: &Add| add.size + derived.get(&*add.path).copied().unwrap_or_default();
            kept.extend(writer.files().filter_map(|add| Kept::new(nth, add, bytes(add))));
        }
        let mut due = vec![BTreeSet::new(); self.tables.len()];
        for Kept { table, path, .. } in retention.due(kept, now_ms) {
            due[table].insert(path);
        }
        let mut removed = Vec::new();
        for (CompactedTable { writer, .. }, due) in self.tables.iter_mut().zip(due) {
            removed.push((writer.runs().table().name, writer.remove(&due, now_ms).await));
        }
        let expired = removed.into_iter().map(|(name, of)| Ok(Expired::of(name, &of?)));
        expired.filter_map(Result::transpose).collect()
    }
}

impl CompactedTable {
    /// Merges runs if any are due; returns whether there were any.
    async fn compact(&mut self, now_ms: i64, name: &str) -> Result<bool, CompactorError> {
        let Some(compaction) = self.writer.runs().due() else { return Ok(false) };
        self.rewrite(compaction, name, now_ms, |_, rows| rows).await?;
        Ok(true)
    }

    /// Merges the rows that `pick` selects, and derives rows from the new runs meanwhile. Then commits the new runs, and the
    /// derived rows. Returns the number of rows of the new runs.
    pub(super) async fn rewrite(
        &mut self,
        compaction: Compaction,
        name: &str,
        now_ms: i64,
        pick: impl FnMut(usize, Columns) -> Columns,
    ) -> Result<u64, CompactorError> {
        let runs = Arc::clone(self.writer.runs());
        let mut new = self.derived.as_ref().map(|derived| derived.begin(compaction.day()));
        let each = async |below: &str, rows: &Columns| {
            if let Some(new) = &mut new {
                new.take(below, rows).await;
            }
        };
        let replaced = match runs.rewrite(compaction, name, pick, each).await {
            Ok(merged) => {
                let rows = merged.rows;
                let replaced = self.writer.replace(merged, now_ms).await;
                replaced.map(|()| rows).map_err(CompactorError::from)
            }
            Err(error) => Err(error.into()),
        };
        let Some((derived, new)) = self.derived.as_mut().zip(new) else { return replaced };
        let summarized = match replaced {
            Ok(1..) => Some(new.finish().await?),
            Ok(0) | Err(_) => {
                new.abort().await;
                None
            }
        };
        let rows = replaced?;
        derived.commit(summarized, &mut self.writer, now_ms).await?;
        Ok(rows)
    }
}
