//! Selects the runs that expire, by age and by size.
//!
//! **By age**, all runs of a day of arrival expire together. **By size**, the oldest runs expire until the runs of all
//! tables fit. Within a day, larger runs are older, because merging makes runs grow. Runs with a range of IDs come from
//! the last merge of their rows, so they expire first.
//!
//! An expired run leaves its table. Its file remains for current readers and is removed a day later.
//!
//! **When it hurts**: the maximum size applies to the tables. The log, and the runs that were replaced within the last
//! day, need space besides. A run whose day cannot be parsed is kept.

use crate::delta::Add;
use crate::tree::{FAN_IN, RANGE};
use chrono::{DateTime, Days, NaiveDate};
use std::cmp::Reverse;

/// The limits by age and by size; by default, rows are kept for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Maximum age in whole days after the day of arrival.
    pub days: Option<u32>,
    /// Maximum size in bytes of the runs of all tables together.
    pub bytes: Option<u64>,
}

/// A run that may expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The number of the table.
    pub(crate) table: usize,
    /// The path, as in [`Add`].
    pub(crate) path: String,
    day: NaiveDate,
    is_range: bool,
    bytes: u64,
    modified_ms: i64,
}

/// The expired runs of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The name of the table.
    pub table: &'static str,
    /// The number of runs.
    pub runs: usize,
    /// The size in bytes.
    pub bytes: u64,
    /// The day of the oldest of these runs.
    pub first: NaiveDate,
    /// The day of the newest of these runs.
    pub last: NaiveDate,
}

impl Retention {
    /// The runs that expire at `now_ms`, milliseconds since 1970.
    pub(crate) fn due(&self, mut kept: Vec<Kept>, now_ms: i64) -> Vec<Kept> {
        let size = |run: &Kept| run.bytes.max(1).ilog(FAN_IN as u64);
        kept.sort_by_key(|run| {
            (run.day, Reverse(run.is_range), Reverse(size(run)), run.modified_ms)
        });
        let first_day = self.days.and_then(|days| first_day(days, now_ms));
        let mut bytes: u64 = kept.iter().map(|run| run.bytes).sum();
        let is_due = |run: &Kept| {
            let is_old = first_day.is_some_and(|first_day| run.day < first_day);
            let goes = is_old || self.bytes.is_some_and(|bytes_max| bytes > bytes_max);
            bytes -= if goes { run.bytes } else { 0 };
            goes
        };
        kept.into_iter().take_while(is_due).collect()
    }
}

impl Kept {
    /// A run, which takes `bytes` with the rows derived from it; [`None`] if its day is unknown.
    pub(crate) fn new(table: usize, add: &Add, bytes: u64) -> Option<Self> {
        let day = day_of(add)?;
        let (path, modified_ms) = (add.path.clone(), add.modification_time);
        Some(Self { table, path, day, is_range: add.has_tag(RANGE), bytes, modified_ms })
    }
}

impl Expired {
    /// The expired runs of a table, if any.
    pub(crate) fn of(table: &'static str, removed: &[Add]) -> Option<Self> {
        let days = removed.iter().filter_map(day_of);
        let (first, last) = (days.clone().min()?, days.max()?);
        let bytes = removed.iter().map(|add| add.size).sum();
        Some(Self { table, runs: removed.len(), bytes, first, last })
    }
}

/// The day on which the rows of a run arrived.
pub(crate) fn day_of(add: &Add) -> Option<NaiveDate> {
    add.partition_values.get("day")?.as_deref()?.parse().ok()
}

/// The first of the last `days` days before today.
pub(crate) fn first_day(days: u32, now_ms: i64) -> Option<NaiveDate> {
    let today = DateTime::from_timestamp_millis(now_ms)?.date_naive();
    today.checked_sub_days(Days::new(days.into()))
}

#[cfg(test)]
mod tests;
