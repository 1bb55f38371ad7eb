//! Reduces a day to its [`tail`](crate::tail).
//!
//! The runs of the day are read twice, for the durations of the traces and to select traces. Then they are rewritten as
//! one run. One commit replaces them, so a reader sees the whole day or its tail, and an interruption changes nothing.
//!
//! **Limits**: memory holds the selection, and the summary columns of a row group of each run.

use super::compactor::{CompactedTable, Compactor, CompactorError};
use crate::columns::Columns;
use crate::retention::{day_of, first_day};
use crate::tail::{Durations, KeptTraces, Tail, TooMany};
use crate::traces::Summaries;
use crate::tree::{Compaction, StoredRun};
use chrono::NaiveDate;
use std::sync::Arc;

/// A day that was reduced to its tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailKept {
    /// The day on which its spans arrived.
    pub day: NaiveDate,
    /// The number of spans before.
    pub before: u64,
    /// The number of kept spans.
    pub after: u64,
}

impl Compactor {
    /// Reduces the oldest due day to its tail; [`None`] when no day is due. `now_ms` is the time, in milliseconds since
    /// 1970; `name` must be unique.
    ///
    /// # Errors
    /// When a run cannot be read, the object store fails, or too many traces would be kept. Nothing has changed then.
    pub async fn keep_tail(
        &mut self,
        tail: &Tail,
        now_ms: i64,
        name: &str,
    ) -> Result<Option<TailKept>, CompactorError> {
        // Summaries decide which rows are the tail.
        let source = self.tables.iter_mut().find(|table| table.derived.is_some());
        let Some(table) = source else { return Ok(None) };
        let Some((day, runs)) = table.tail_due(tail, now_ms) else { return Ok(None) };
        let mut durations = Durations::default();
        let take = |rows: &Columns| {
            durations.take(rows);
            Ok(())
        };
        table.each_summary(&runs, take).await?;
        let mut kept = KeptTraces::new(durations.bars(tail.slowest), tail.sample);
        let decided = table.each_summary(&runs, |rows| kept.take(rows)).await;
        if let Err(CompactorError::Tail(_)) = decided {
            table.left_whole.insert(day);
        }
        decided?;
        let before = runs.iter().map(|run| run.row_count()).sum();
        let mut at = vec![0; runs.len()];
        let pick = |run: usize, rows: Columns| kept.of(&rows, &mut at[run]);
        let compaction = Compaction::of_tail(runs, kept.spans());
        let after = table.rewrite(compaction, name, now_ms, pick).await?;
        Ok(Some(TailKept { day, before, after }))
    }
}

impl CompactedTable {
    /// The oldest day that is due, and its runs.
    fn tail_due(&self, tail: &Tail, now_ms: i64) -> Option<(NaiveDate, Vec<Arc<StoredRun>>)> {
        let first_day = first_day(tail.after_days, now_ms)?;
        let of_day = |run: Arc<StoredRun>| Some((day_of(run.add())?, run));
        let runs = self.writer.runs().runs().into_iter();
        let runs = runs.filter(|run| !run.is_tail() && !run.is_damaged()).filter_map(of_day);
        let is_due = |(day, _): &(NaiveDate, _)| *day < first_day && !self.left_whole.contains(day);
        let due: Vec<_> = runs.filter(is_due).collect();
        let day = due.iter().map(|(day, _)| *day).min()?;
        let runs = due.into_iter().filter(|(of, _)| *of == day).map(|(_, run)| run);
        Some((day, runs.collect()))
    }

    /// Summarizes the traces of some runs, each trace as a whole, in the order of trace IDs.
    async fn each_summary(
        &self,
        runs: &[Arc<StoredRun>],
        mut take: impl FnMut(&Columns) -> Result<(), TooMany>,
    ) -> Result<(), CompactorError> {
        let fields: Vec<_> = Summaries::fields().into_iter().collect();
        let set = Arc::clone(self.writer.runs());
        let mut summaries = Summaries::default();
        let each = async |rows: Columns| {
            Ok::<_, CompactorError>(summaries.take(&rows).iter().try_for_each(&mut take)?)
        };
        set.in_order(runs, &fields, |_, rows| rows, each).await?;
        Ok(summaries.finish().iter().try_for_each(take)?)
    }
}
