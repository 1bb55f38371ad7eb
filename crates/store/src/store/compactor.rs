//! The compactor: merges runs, summarizes their traces, removes expired rows, and maintains the tables.
//!
//! The compactor and the [`Flusher`](super::Flusher) do not call each other. They may run on one thread, on two threads or in
//! two processes, because their commits resolve conflicts.

use crate::columns::Columns;
use crate::delta::{self, Add, CommitError, UpkeepError};
use crate::retention::{Expired, Kept, Retention};
use crate::tail::TooMany;
use crate::traces::{NewSummaries, Summaries, Summarised, Summariser};
use crate::tree::{CompactError, Merged, StoredRun, TableWriter, Unread};
use chrono::NaiveDate;
use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;

/// Merges, summarizes and removes runs.
#[derive(Debug)]
pub struct Compactor {
    pub(super) spans: TableWriter,
    /// The other tables of ingested rows: those without summaries.
    pub(super) others: Vec<TableWriter>,
    pub(super) traces: Summariser,
    /// Days that are not reduced to their tail.
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
    /// Whether another writer has replaced these runs first. The table was
    /// read again, and nothing is wrong.
    #[must_use]
    pub const fn is_outrun(&self) -> bool {
        matches!(self, Self::Commit(CommitError::Refused(_)))
    }
}

impl Compactor {
    /// Reads the commits of other writers; returns runs that cannot be read, which queries skip.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub async fn refresh(&mut self) -> Result<Vec<Unread>, delta::OpenError> {
        let mut unread = Vec::new();
        for table in self.tables() {
            unread.extend(table.refresh().await?);
        }
        Ok(unread)
    }

    fn tables(&mut self) -> impl Iterator<Item = &mut TableWriter> {
        let ingested = iter::once(&mut self.spans).chain(&mut self.others);
        ingested.chain(iter::once(&mut self.traces.writer))
    }

    /// Merges runs of each table that should be; returns whether there were any. It yields after each row group. It is
    /// `now_ms`, milliseconds since 1970; `name` is another one each time.
    ///
    /// # Errors
    /// When a run cannot be read or the object store fails. Nothing is lost then, and nothing is there twice.
    pub async fn compact(&mut self, now_ms: i64, name: &str) -> Result<bool, CompactorError> {
        let mut compacted = vec![self.compact_spans(now_ms, name).await];
        for table in &mut self.others {
            compacted.push(compact_table(table, now_ms, name).await);
        }
        compacted.into_iter().try_fold(false, |is_any, is_one| Ok(is_any | is_one?))
    }

    /// Merges runs of spans, and summarizes their traces meanwhile.
    async fn compact_spans(&mut self, now_ms: i64, name: &str) -> Result<bool, CompactorError> {
        let runs = Arc::clone(self.spans.runs());
        let Some(compaction) = runs.due() else { return Ok(false) };
        let mut new = self.traces.begin(compaction.day());
        let each = async |below: &str, rows: &Columns| new.take(below, rows).await;
        let merged = runs.merge(compaction, name, each).await;
        self.replace_spans(merged, new, now_ms).await?;
        Ok(true)
    }

    /// Commits new runs in place of others, and the summaries of their traces. Returns the number of their rows.
    pub(super) async fn replace_spans(
        &mut self,
        merged: Result<Merged, CompactError>,
        new: NewSummaries,
        now_ms: i64,
    ) -> Result<u64, CompactorError> {
        let replaced = match merged {
            Ok(merged) => {
                let rows = merged.rows;
                let replaced = self.spans.replace(merged, now_ms).await;
                replaced.map(|()| rows).map_err(CompactorError::from)
            }
            Err(error) => Err(error.into()),
        };
        let summarised = match replaced {
            Ok(1..) => Some(new.finish().await?),
            Ok(0) | Err(_) => {
                new.abort().await;
                None
            }
        };
        let rows = replaced?;
        self.traces.commit(summarised, &mut self.spans, now_ms).await?;
        Ok(rows)
    }

    /// Updates the summaries of traces to the runs of spans, one run at a time: deletes those of removed runs, and
    /// summarizes a run that was not merged for a while. Returns whether there was anything to do. `now_ms` is the
    /// time, in milliseconds since 1970.
    ///
    /// # Errors
    /// When a run cannot be read or the object store fails; the next call retries the rest.
    pub async fn summarise(&mut self, now_ms: i64) -> Result<bool, CompactorError> {
        let missing = self.traces.missing(&self.spans, now_ms);
        if missing.is_none() && !self.traces.is_behind(&self.spans) {
            return Ok(false);
        }
        let new = match missing {
            Some(run) => Some(self.summaries_of(&run).await?),
            None => None,
        };
        self.traces.commit(new, &mut self.spans, now_ms).await?;
        Ok(true)
    }

    async fn summaries_of(&self, run: &StoredRun) -> Result<Summarised, CompactError> {
        let fields: Vec<_> = Summaries::fields().into_iter().collect();
        let runs = Arc::clone(self.spans.runs());
        let mut new = self.traces.begin(run.day());
        for group in 0..run.run().groups() {
            let rows = 0..run.run().rows(group);
            match run.rows(runs.objects(), group, &fields, rows).await {
                Ok(rows) => new.take(&run.add().path, &rows).await,
                Err(source) => {
                    new.abort().await;
                    return Err(CompactError::Read { path: run.path().clone(), source });
                }
            }
        }
        new.finish().await
    }

    /// Writes a checkpoint of each table that is due for one. It is `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// When the object store fails: nothing is lost, and it is tried again.
    pub async fn checkpoint(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        for table in self.tables() {
            table.checkpoint(now_ms).await?;
        }
        Ok(())
    }

    /// Removes what no table needs any more: old commits, and files that were replaced a day ago.
    ///
    /// # Errors
    /// When the object store fails: nothing that is needed is removed, and it is tried again.
    pub async fn clean(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        for table in self.tables() {
            table.clean(now_ms).await?;
        }
        Ok(())
    }

    /// Removes the runs of all tables that are not kept any longer, in one commit a table; returns what went. It
    /// is `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// When a table cannot be read, or the object store fails for one: the others lose what they should all the same.
    pub async fn expire(
        &mut self,
        retention: &Retention,
        now_ms: i64,
    ) -> Result<Vec<Expired>, CommitError> {
        self.refresh().await?;
        // The summaries of a run go with it.
        let summaries = self.traces.bytes();
        let spans = self.spans.files().filter_map(|add| {
            let of_traces = summaries.get(&*add.path).copied().unwrap_or_default();
            Kept::new(0, &Add { size: add.size + of_traces, ..add.clone() })
        });
        let others = (1..).zip(&self.others);
        let others = others
            .flat_map(|(nth, table)| table.files().filter_map(move |add| Kept::new(nth, add)));
        let mut due = vec![BTreeSet::new(); 1 + self.others.len()];
        for Kept { table, path, .. } in retention.due(spans.chain(others).collect(), now_ms) {
            due[table].insert(path);
        }
        let mut removed = Vec::new();
        for (table, due) in iter::once(&mut self.spans).chain(&mut self.others).zip(due) {
            removed.push((table.name(), table.remove(&due, now_ms).await));
        }
        let expired = removed.into_iter().map(|(name, of)| Ok(Expired::of(name, &of?)));
        expired.filter_map(Result::transpose).collect()
    }
}

async fn compact_table(
    table: &mut TableWriter,
    now_ms: i64,
    name: &str,
) -> Result<bool, CompactorError> {
    let runs = Arc::clone(table.runs());
    let Some(compaction) = runs.due() else { return Ok(false) };
    let merged = runs.merge(compaction, name, async |_, _| {}).await?;
    table.replace(merged, now_ms).await?;
    Ok(true)
}
