//! The store: the log, and a tree for each table.
//!
//! | who | does |
//! |---|---|
//! | the thread that writes the log | [`Store::insert`]s what is durable; ends the segment when a memtable [is full](Store::is_full), and [seals](Store::seal) |
//! | whoever asks | asks the [trees](Store::spans) |
//! | the [`Keeper`], one of them | writes sealed memtables as runs, and removes what the log has of them |
//!
//! **Nothing is lost, nothing is there twice**: a segment is removed when every table has committed what it has
//! of it, and what a table has committed is not taken in again when the store is [opened](Store::open).
//!
//! **Limits**: memtables take as much as [`Settings::memtable_bytes`] together, and one group of the log more;
//! how many sealed ones wait is for the caller to bound ([`Store::waiting_bytes`]).

use crate::delta::{self, CommitError, UpkeepError};
use crate::files::Files;
use crate::log::{self, Damage, Record};
use crate::memtable::{LogRows, PointRows, Rows, SpanRows};
use crate::retention::{Expired, Kept, Retention};
use crate::tree::{self, CompactError, FlushError, Flushed, Flusher, Tree, Unread};
use curtail_otlp::{Decoded, Limits};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a store is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the log.
    pub files: Arc<dyn Files>,
    /// Where the tables are.
    pub tables: tree::Settings,
    /// Memtables of this many bytes are full.
    pub memtable_bytes: usize,
}

/// All tables.
#[derive(Debug)]
pub struct Store {
    spans: Arc<Tree<SpanRows>>,
    logs: Arc<Tree<LogRows>>,
    points: Arc<Tree<PointRows>>,
    memtable_bytes: usize,
    /// No later batch is of a segment up to this one.
    sealed: AtomicU64,
}

/// Writes what is sealed, and removes what is not needed any more.
#[derive(Debug)]
pub struct Keeper {
    store: Arc<Store>,
    files: Arc<dyn Files>,
    spans: Flusher<SpanRows>,
    logs: Flusher<LogRows>,
    points: Flusher<PointRows>,
    /// Segments of the log that are set aside where others are removed.
    damaged: BTreeSet<u64>,
    /// The last segment that there was when the store was opened.
    last_segment: u64,
}

/// What was found when a store was opened.
#[derive(Debug, Default)]
pub struct Found {
    /// How many spans the log had that are in no run.
    pub spans: usize,
    /// The same of log records.
    pub logs: usize,
    /// The same of points of metrics.
    pub points: usize,
    /// Segments with bytes that are no record. The end of the last one was being written, mostly; another is
    /// kept, as `damaged-…`, when what is whole in it is in runs.
    pub damaged: Vec<(u64, Damage)>,
    /// How many records are whole and no batch.
    pub undecoded: usize,
    /// Runs that cannot be read. They are part of their table, and are not asked.
    pub unread: Vec<Unread>,
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log's folder.
    #[error("the log cannot be read")]
    Log(#[from] io::Error),
    /// A table.
    #[error(transparent)]
    Table(#[from] tree::OpenError),
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
}

/// What is in the log was within the limits when it came.
const TAKEN: Limits =
    Limits { batch_bytes: u32::MAX, attributes: u32::MAX, events: u32::MAX, depth: 62 };

impl Store {
    /// Opens a store, or makes it. What the log has and no run is in sealed memtables after it, so that
    /// it is written soon. It is `now_ms`, milliseconds since 1970; `id` is a UUID, for tables that are made.
    ///
    /// # Errors
    /// When the log or a table cannot be read. A run that cannot be is [`Found`].
    pub async fn open(
        settings: &Settings,
        now_ms: i64,
        id: &str,
    ) -> Result<(Keeper, Found), OpenError> {
        let (spans, mut unread) = Tree::<SpanRows>::open(&settings.tables, now_ms, id).await?;
        let (logs, of_logs) = Tree::<LogRows>::open(&settings.tables, now_ms, id).await?;
        let (points, of_points) = Tree::<PointRows>::open(&settings.tables, now_ms, id).await?;
        unread.extend(of_logs.into_iter().chain(of_points));
        let mut found = Found { unread, ..Found::default() };
        let written = [spans.tree().written(), logs.tree().written(), points.tree().written()];
        let store = Arc::new(Self {
            spans: Arc::clone(spans.tree()),
            logs: Arc::clone(logs.tree()),
            points: Arc::clone(points.tree()),
            memtable_bytes: settings.memtable_bytes,
            // What one table has written was whole.
            sealed: AtomicU64::new(written.into_iter().max().unwrap_or_default()),
        });
        let files = Arc::clone(&settings.files);
        let last_segment = store.replay(&*files, &mut found)?;
        let damaged = found.damaged.iter().map(|(segment, _)| *segment);
        // The end of the last one was being written.
        let damaged = damaged.filter(|segment| *segment != last_segment).collect();
        Ok((Keeper { store, files, spans, logs, points, damaged, last_segment }, found))
    }

    /// Takes in what the log has. Returns the last segment that there was.
    fn replay(&self, files: &dyn Files, found: &mut Found) -> io::Result<u64> {
        let mut last = self.sealed.load(Ordering::Acquire);
        for segment in log::segments(files)? {
            last = last.max(segment);
            let log::Segment { records, damage } = log::read(files, segment)?;
            found.damaged.extend(damage.map(|damage| (segment, damage)));
            for record in &records {
                let Ok((rows, _)) = Decoded::of(record.signal, &record.batch, &TAKEN) else {
                    found.undecoded += 1;
                    continue;
                };
                let (written, count) = match rows {
                    Decoded::Spans(_) => (self.spans.written(), &mut found.spans),
                    Decoded::Logs(_) => (self.logs.written(), &mut found.logs),
                    Decoded::Points(_) => (self.points.written(), &mut found.points),
                };
                if segment > written {
                    *count += rows.len();
                    self.insert(segment, record, &rows);
                }
            }
            if self.is_full() {
                self.seal(segment);
            }
        }
        self.seal(last);
        Ok(last)
    }

    /// Adds what a record says, which is durable in a segment of the log.
    pub fn insert(&self, segment: u64, record: &Record, rows: &Decoded) {
        match rows {
            Decoded::Spans(spans) => self.spans.insert(segment, record, spans),
            Decoded::Logs(logs) => self.logs.insert(segment, record, logs),
            Decoded::Points(points) => self.points.insert(segment, record, points),
        }
    }

    /// Whether memtables have as much as they may, or rows of more than one day: then the log's segment
    /// should end, and they be sealed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let all = [self.spans.filling(), self.logs.filling(), self.points.filling()];
        let bytes: usize = all.iter().map(|(bytes, _)| bytes).sum();
        bytes >= self.memtable_bytes || all.iter().any(|(_, is_of_more_days)| *is_of_more_days)
    }

    /// Begins other memtables. The log must have ended its `segment`: no later batch is in it.
    pub fn seal(&self, segment: u64) {
        self.spans.seal();
        self.logs.seal();
        self.points.seal();
        self.sealed.store(segment, Ordering::Release);
    }

    /// How many bytes are in sealed memtables, which wait to be written.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.spans.waiting_bytes() + self.logs.waiting_bytes() + self.points.waiting_bytes()
    }

    /// The table of spans.
    #[must_use]
    pub const fn spans(&self) -> &Arc<Tree<SpanRows>> {
        &self.spans
    }

    /// The table of logs.
    #[must_use]
    pub const fn logs(&self) -> &Arc<Tree<LogRows>> {
        &self.logs
    }

    /// The table of points of metrics.
    #[must_use]
    pub const fn points(&self) -> &Arc<Tree<PointRows>> {
        &self.points
    }

    /// The first segment of the log with rows that are in no run.
    fn first_unwritten(&self) -> Option<u64> {
        let all = [
            self.spans.first_unwritten(),
            self.logs.first_unwritten(),
            self.points.first_unwritten(),
        ];
        all.into_iter().flatten().min()
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
    /// When the object store fails for a table: the first one; the others are written all the same. Nothing is
    /// lost then, and nothing is there twice when it is tried again.
    pub async fn flush(&mut self, now_ms: i64) -> Result<Vec<Flushed>, FlushError> {
        let all = [
            self.spans.flush(now_ms).await,
            self.logs.flush(now_ms).await,
            self.points.flush(now_ms).await,
        ];
        self.remove_segments();
        all.into_iter().filter_map(Result::transpose).collect()
    }

    /// Looks at what other writers have committed; returns runs that cannot be read, which are not asked.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub async fn refresh(&mut self) -> Result<Vec<Unread>, delta::OpenError> {
        let mut unread = self.spans.refresh().await?;
        unread.extend(self.logs.refresh().await?);
        unread.extend(self.points.refresh().await?);
        Ok(unread)
    }

    /// Merges runs of each table that should become one; returns whether there were any. Memtables that are
    /// sealed meanwhile are written in between. It is `now_ms`, milliseconds since 1970; `name` is another one
    /// each time.
    ///
    /// # Errors
    /// When a run cannot be read or the object store fails. Nothing is lost then, and nothing is there twice.
    pub async fn compact(&mut self, now_ms: i64, name: &str) -> Result<bool, KeepError> {
        let spans = self.compact_table(|keeper| &mut keeper.spans, now_ms, name).await;
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
        let (tree, root) = (Arc::clone(table(self).tree()), table(self).root().clone());
        let Some(compaction) = tree.due() else { return Ok(false) };
        let pace = async |_| {
            // What fails is tried again when somebody hears of it.
            self.flush(now_ms).await.ok();
        };
        let merged = tree.merge(&root, compaction, name, pace).await?;
        table(self).replace(merged, now_ms).await?;
        Ok(true)
    }

    /// Writes a checkpoint of each table that is due for one. It is `now_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// When the object store fails: nothing is lost, and it is tried again.
    pub async fn checkpoint(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        self.spans.checkpoint(now_ms).await?;
        self.logs.checkpoint(now_ms).await?;
        self.points.checkpoint(now_ms).await
    }

    /// Removes what no table needs any more: old commits, and files that were replaced a day ago.
    ///
    /// # Errors
    /// When the object store fails: nothing that is needed is removed, and it is tried again.
    pub async fn clean(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        self.spans.clean(now_ms).await?;
        self.logs.clean(now_ms).await?;
        self.points.clean(now_ms).await
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
        let spans = self.spans.files().filter_map(|add| Kept::new(0, add));
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

    /// Removes the segments of which all is in runs. Those that cannot be are tried again with the next ones.
    fn remove_segments(&self) {
        let sealed = self.store.sealed.load(Ordering::Acquire);
        let first_unwritten = self.store.first_unwritten().unwrap_or(u64::MAX);
        let is_done = |segment: &u64| *segment <= sealed && *segment < first_unwritten;
        for segment in log::segments(&*self.files).unwrap_or_default().into_iter().filter(is_done) {
            if self.damaged.contains(&segment) {
                log::set_aside(&*self.files, segment).ok();
            } else {
                log::remove(&*self.files, segment).ok();
            }
        }
    }
}

#[cfg(test)]
mod tests;
