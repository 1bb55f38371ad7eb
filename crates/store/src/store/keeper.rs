//! What is done behind those who send and ask: writing runs, merging them, summarising their traces, and removing
//! what is not kept.

use super::Store;
use super::flush_record::{FlushRecords, Versions};
use crate::columns::Columns;
use crate::delta::{self, Add, CommitError, UpkeepError};
use crate::files::Files;
use crate::log;
use crate::memtable::{LogRows, PointRows, Rows, SpanRows};
use crate::retention::{Expired, Kept, Retention};
use crate::tail::TooMany;
use crate::traces::{NewSummaries, Summaries, Summarised, Summariser};
use crate::tree::{CompactError, FlushError, Flushed, Flusher, Merged, StoredRun, Unread};
use chrono::NaiveDate;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Writes what is sealed, and removes what is not needed any more.
#[derive(Debug)]
pub struct Keeper {
    pub(super) store: Arc<Store>,
    pub(super) files: Arc<dyn Files>,
    pub(super) spans: Flusher<SpanRows>,
    pub(super) logs: Flusher<LogRows>,
    pub(super) points: Flusher<PointRows>,
    pub(super) traces: Summariser,
    /// Segments of the log that are set aside where others are removed.
    pub(super) damaged: BTreeSet<u64>,
    pub(super) records: FlushRecords,
    /// The last segment that there was when the store was opened.
    pub(super) last_segment: u64,
    /// Days that are left as they are, though of others the tail is kept.
    pub(super) left_whole: BTreeSet<NaiveDate>,
}

/// Why runs were not merged.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// They were not put together.
    #[error(transparent)]
    Compact(#[from] CompactError),
    /// The table was not told.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A day stays as it is, and its tail is not looked for again before the next start.
    #[error(transparent)]
    Tail(#[from] TooMany),
}

impl KeepError {
    /// Whether another writer of the table has done it, or something else with these runs, first: the table has been
    /// looked at again, and nothing is amiss.
    #[must_use]
    pub const fn is_outrun(&self) -> bool {
        matches!(self, Self::Commit(CommitError::Refused(_)))
    }
}

impl Keeper {
    /// The store.
    #[must_use]
    pub const fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The last segment of the log that there was when the store was opened: the log goes on after it.
    #[must_use]
    pub const fn last_segment(&self) -> u64 {
        self.last_segment
    }

    /// Writes the oldest sealed memtable of each table, and removes what the log has of it. It is `now_ms`,
    /// milliseconds since 1970. Returns what was written; nothing when nothing was sealed.
    ///
    /// # Errors
    /// The first error of a table's object store, after all other tables are written, or an error of the log's folder.
    /// Nothing is lost then, and a retry writes nothing twice.
    pub async fn flush(&mut self, now_ms: i64) -> Result<Vec<Flushed>, FlushError> {
        let all = [
            self.spans.flush(now_ms).await,
            self.logs.flush(now_ms).await,
            self.points.flush(now_ms).await,
        ];
        let removed = self.remove_segments(now_ms);
        let flushed = all.into_iter().filter_map(Result::transpose).collect();
        removed.map_err(FlushError::Log).and(flushed)
    }

    /// Looks at what other writers have committed; returns runs that cannot be read, which are not asked.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub async fn refresh(&mut self) -> Result<Vec<Unread>, delta::OpenError> {
        let mut unread = self.spans.refresh().await?;
        unread.extend(self.logs.refresh().await?);
        unread.extend(self.points.refresh().await?);
        unread.extend(self.traces.refresh().await?);
        Ok(unread)
    }

    /// Merges runs of each table that should be; returns whether there were any. Memtables that are
    /// sealed meanwhile are written in between. It is `now_ms`, milliseconds since 1970; `name` is another one
    /// each time.
    ///
    /// # Errors
    /// When a run cannot be read or the object store fails. Nothing is lost then, and nothing is there twice.
    pub async fn compact(&mut self, now_ms: i64, name: &str) -> Result<bool, KeepError> {
        let spans = self.compact_spans(now_ms, name).await;
        let logs = self.compact_table(|keeper| &mut keeper.logs, now_ms, name).await;
        let points = self.compact_table(|keeper| &mut keeper.points, now_ms, name).await;
        Ok(spans? | logs? | points?)
    }

    async fn compact_table<R: Rows>(
        &mut self,
        table: fn(&mut Self) -> &mut Flusher<R>,
        now_ms: i64,
        name: &str,
    ) -> Result<bool, KeepError> {
        let tree = Arc::clone(table(self).tree());
        let Some(compaction) = tree.due() else { return Ok(false) };
        let each = async |_: &str, _: &Columns| {
            // What fails is tried again when somebody hears of it.
            self.flush(now_ms).await.ok();
        };
        let merged = tree.merge(compaction, name, each).await?;
        table(self).replace(merged, now_ms).await?;
        Ok(true)
    }

    /// The same of spans, whose traces are summarised in passing.
    async fn compact_spans(&mut self, now_ms: i64, name: &str) -> Result<bool, KeepError> {
        let tree = Arc::clone(self.spans.tree());
        let Some(compaction) = tree.due() else { return Ok(false) };
        let mut new = self.traces.begin(compaction.day());
        let each = async |below: &str, rows: &Columns| {
            new.take(below, rows).await;
            self.flush(now_ms).await.ok();
        };
        let merged = tree.merge(compaction, name, each).await;
        self.replace_spans(merged, new, now_ms).await?;
        Ok(true)
    }

    /// Tells the tables of runs that take the place of others, and of the summaries of their traces. Returns how many
    /// rows they have.
    pub(super) async fn replace_spans(
        &mut self,
        merged: Result<Merged, CompactError>,
        new: NewSummaries,
        now_ms: i64,
    ) -> Result<u64, KeepError> {
        let replaced = match merged {
            Ok(merged) => {
                let rows = merged.rows;
                let replaced = self.spans.replace(merged, now_ms).await;
                replaced.map(|()| rows).map_err(KeepError::from)
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

    /// Brings the summaries of traces in step with the runs of spans, a run at a time: those of runs that have gone
    /// go, and a run that was not merged for a while gets its own. Returns whether there was anything to do. It is
    /// `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// When a run cannot be read or the object store fails: what is not done is tried again.
    pub async fn summarise(&mut self, now_ms: i64) -> Result<bool, KeepError> {
        let missing = self.traces.missing(&self.spans, now_ms);
        if missing.is_none() && !self.traces.is_behind(&self.spans) {
            return Ok(false);
        }
        let new = match missing {
            Some(run) => Some(self.summaries_of(&run, now_ms).await?),
            None => None,
        };
        self.traces.commit(new, &mut self.spans, now_ms).await?;
        Ok(true)
    }

    async fn summaries_of(
        &mut self,
        run: &StoredRun,
        now_ms: i64,
    ) -> Result<Summarised, CompactError> {
        let fields: Vec<_> = Summaries::fields().into_iter().collect();
        let tree = Arc::clone(self.spans.tree());
        let mut new = self.traces.begin(run.day());
        for group in 0..run.run().groups() {
            let rows = 0..run.run().rows(group);
            match run.rows(tree.objects(), group, &fields, rows).await {
                Ok(rows) => new.take(&run.add().path, &rows).await,
                Err(source) => {
                    new.abort().await;
                    return Err(CompactError::Read { path: run.path().clone(), source });
                }
            }
            self.flush(now_ms).await.ok();
        }
        new.finish().await
    }

    /// Writes a checkpoint of each table that is due for one. It is `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// When the object store fails: nothing is lost, and it is tried again.
    pub async fn checkpoint(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        self.spans.checkpoint(now_ms).await?;
        self.logs.checkpoint(now_ms).await?;
        self.points.checkpoint(now_ms).await?;
        self.traces.checkpoint(now_ms).await
    }

    /// Removes what no table needs any more: old commits, and files that were replaced a day ago.
    ///
    /// # Errors
    /// When the object store fails: nothing that is needed is removed, and it is tried again.
    pub async fn clean(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        self.spans.clean(now_ms).await?;
        self.logs.clean(now_ms).await?;
        self.points.clean(now_ms).await?;
        self.traces.clean(now_ms).await
    }

    /// Removes the runs of all tables that are not kept any longer, in one commit a table; returns what went. It
    /// is `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// When the object store fails for a table: the first one; the others lose what they should all the same.
    pub async fn expire(
        &mut self,
        retention: &Retention,
        now_ms: i64,
    ) -> Result<Vec<Expired>, CommitError> {
        // The summaries of a run go with it.
        let summaries = self.traces.bytes();
        let spans = self.spans.files().filter_map(|add| {
            let of_traces = summaries.get(&*add.path).copied().unwrap_or_default();
            Kept::new(0, &Add { size: add.size + of_traces, ..add.clone() })
        });
        let logs = self.logs.files().filter_map(|add| Kept::new(1, add));
        let points = self.points.files().filter_map(|add| Kept::new(2, add));
        let mut due: [BTreeSet<String>; 3] = Default::default();
        for Kept { table, path, .. } in
            retention.due(spans.chain(logs).chain(points).collect(), now_ms)
        {
            due[table].insert(path);
        }
        let removed = [
            (SpanRows::NAME, self.spans.remove(&due[0], now_ms).await),
            (LogRows::NAME, self.logs.remove(&due[1], now_ms).await),
            (PointRows::NAME, self.points.remove(&due[2], now_ms).await),
        ];
        let expired = removed.into_iter().map(|(name, of)| Ok(Expired::of(name, &of?)));
        expired.filter_map(Result::transpose).collect()
    }

    /// Removes the segments whose rows are all in runs, after it writes their flush record. Failed removals are retried
    /// with the next ones.
    fn remove_segments(&mut self, now_ms: i64) -> io::Result<()> {
        let sealed = self.store.sealed.load(Ordering::Acquire);
        let first_unwritten = self.store.first_unwritten().unwrap_or(u64::MAX);
        let is_done = |segment: &u64| *segment <= sealed && *segment < first_unwritten;
        let done: Vec<_> = log::segments(&*self.files)?.into_iter().filter(is_done).collect();
        let Some(last) = done.last() else { return Ok(()) };
        let versions = Versions::from([
            (SpanRows::NAME.to_owned(), self.spans.committed()),
            (LogRows::NAME.to_owned(), self.logs.committed()),
            (PointRows::NAME.to_owned(), self.points.committed()),
        ]);
        let (files, recent) = (Arc::clone(&self.files), Arc::clone(&self.store.recent));
        let mut left = done.iter();
        while let Err(error) = self.records.write(&*files, *last, versions.clone(), &recent) {
            // The disk may be too full for the record. If the process ends before it is written, the batches of the
            // removed segment are forgotten; but if the segment stays, there will never be room for the record.
            let is_full = error.kind() == io::ErrorKind::StorageFull;
            let Some(segment) = left.next().filter(|_| is_full) else { return Err(error) };
            self.remove_segment(*segment)?;
        }
        let now_ns = u64::try_from(now_ms).unwrap_or_default().saturating_mul(1_000_000);
        self.records.remove_expired(&*files, now_ns);
        for segment in left {
            self.remove_segment(*segment).ok();
        }
        Ok(())
    }

    fn remove_segment(&self, segment: u64) -> io::Result<()> {
        if self.damaged.contains(&segment) {
            log::set_aside(&*self.files, segment)
        } else {
            log::remove(&*self.files, segment)
        }
    }
}
