//! The flusher: writes sealed memtables as runs and removes their segments of the log.

use super::Store;
use super::flush_record::{FlushRecords, Versions};
use crate::files::Files;
use crate::log;
use crate::tree::{FlushError, FlushOutcome, TableWriter, Tree};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Writes sealed memtables as runs, and removes their segments of the log.
#[derive(Debug)]
pub struct Flusher {
    pub(super) store: Arc<Store>,
    pub(super) files: Arc<dyn Files>,
    /// The logged tables.
    pub(super) tables: Vec<(Arc<Tree>, TableWriter)>,
    /// Damaged segments of the log, which are renamed instead of removed.
    pub(super) damaged: BTreeSet<u64>,
    pub(super) records: FlushRecords,
}

impl Flusher {
    /// Writes the oldest sealed memtable of each table as a run, and removes segments whose rows are all in runs.
    /// `now_ms` is the time, in milliseconds since 1970. Returns the written runs.
    ///
    /// # Errors
    /// The first error of a table's object store, after all other tables are written, or an error of the log's folder.
    /// Nothing is lost then, and a retry writes nothing twice.
    pub async fn flush(&mut self, now_ms: i64) -> Result<Vec<FlushOutcome>, FlushError> {
        let mut all = Vec::new();
        for (tree, table) in &mut self.tables {
            all.push(table.flush(tree, now_ms).await);
        }
        let removed = self.remove_segments(now_ms);
        let flushed = all.into_iter().filter_map(Result::transpose).collect();
        removed.map_err(FlushError::Log).and(flushed)
    }

    /// Removes the segments whose rows are all in runs, after it writes their flush record. Failed removals are retried
    /// with the next ones.
    fn remove_segments(&mut self, now_ms: i64) -> io::Result<()> {
        let sealed = self.store.sealed.load(Ordering::Acquire);
        let first_unwritten = self.tables.iter().filter_map(|(tree, _)| tree.first_unwritten());
        let first_unwritten = first_unwritten.min().unwrap_or(u64::MAX);
        let is_done = |segment: &u64| *segment <= sealed && *segment < first_unwritten;
        let done: Vec<_> = log::segments(&*self.files)?.into_iter().filter(is_done).collect();
        let Some(last) = done.last() else { return Ok(()) };
        let versions: Versions = self.tables.iter().map(|(_, table)| table.committed()).collect();
        let (files, recent) = (Arc::clone(&self.files), Arc::clone(&self.store.recent));
        let mut left = done.iter();
        while let Err(error) = self.records.write(&*files, *last, versions.clone(), &recent) {
            // The disk may be too full for the record. If the process ends before the record is written, the hashes of
            // a removed segment are lost. But while the segment exists, there is no room for the record.
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
