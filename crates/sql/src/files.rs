//! The files of a table with the statistics in its Delta log: row counts, minima and maxima of numbers.
//!
//! The plan of a query uses only these statistics, and opens no file.

use crate::columns::DAY;
use chrono::{Datelike as _, NaiveDate};
use curtail_store::delta::{Add, Snapshot};
use datafusion::arrow::array::{ArrayRef, BooleanArray, Date32Array, Int64Array, UInt64Array};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::stats::Precision;
use datafusion::common::{Column, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use object_store::path::Path;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// All files of a table, in the order of their paths.
#[derive(Debug, Default)]
pub(crate) struct Files {
    files: Vec<PartitionedFile>,
    /// The number of rows of each file.
    rows: Vec<Option<u64>>,
    /// The day of each file, in days since 1970.
    days: Vec<Option<i32>>,
    /// The minimum and maximum of each file, by column.
    extremes: HashMap<String, Vec<Option<(i64, i64)>>>,
}

/// The statistics of a file in the Delta log; only those of whole numbers are used.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FileStatistics {
    num_records: Option<u64>,
    min_values: HashMap<String, serde_json::Value>,
    max_values: HashMap<String, serde_json::Value>,
}

impl Files {
    /// Returns the files of the table at `root`.
    pub(crate) fn of(snapshot: &Snapshot, root: &Path, columns: &SchemaRef) -> Self {
        let mut files = Self::default();
        let numbers = columns.fields().iter().filter(|field| *field.data_type() == DataType::Int64);
        let mut extremes: BTreeMap<_, Vec<_>> =
            numbers.map(|field| (field.name().as_str(), Vec::new())).collect();
        for add in snapshot.files() {
            let statistics = add.stats.as_deref().and_then(|json| serde_json::from_str(json).ok());
            let statistics: FileStatistics = statistics.unwrap_or_default();
            for (name, each) in &mut extremes {
                let number = |of: &HashMap<String, serde_json::Value>| of.get(*name)?.as_i64();
                each.push(number(&statistics.min_values).zip(number(&statistics.max_values)));
            }
            let day = day(add);
            let path = format!("{root}/{}", add.path);
            let mut file = PartitionedFile::new(path, add.size);
            file.partition_values = vec![ScalarValue::Date32(day)];
            files.files.push(file);
            files.rows.push(statistics.num_records);
            files.days.push(day);
        }
        extremes.retain(|_, each| each.iter().any(Option::is_some));
        files.extremes = extremes.into_iter().map(|(name, each)| (name.to_owned(), each)).collect();
        files
    }

    pub(crate) fn kept(&self, is_kept: &[bool]) -> Vec<PartitionedFile> {
        let kept = self.files.iter().zip(is_kept).filter(|(_, is_kept)| **is_kept);
        kept.map(|(file, _)| file.clone()).collect()
    }

    /// Returns the statistics of the files that `is_kept` selects, for a table with these columns.
    pub(crate) fn statistics(&self, is_kept: &[bool], columns: &SchemaRef) -> Statistics {
        let mut statistics = Statistics::new_unknown(columns);
        let rows = only(&self.rows, is_kept).try_fold(0_u64, |sum, rows| Some(sum + (*rows)?));
        if let Some(rows) = rows.and_then(|rows| usize::try_from(rows).ok()) {
            statistics.num_rows = Precision::Exact(rows);
        }
        for (field, of) in columns.fields().iter().zip(&mut statistics.column_statistics) {
            let Some(extremes) = self.extremes.get(field.name()) else { continue };
            let all = only(extremes, is_kept).copied().reduce(|all, each| {
                let ((least, greatest), each) = (all?, each?);
                Some((least.min(each.0), greatest.max(each.1)))
            });
            if let Some((least, greatest)) = all.flatten() {
                of.min_value = Precision::Exact(ScalarValue::Int64(Some(least)));
                of.max_value = Precision::Exact(ScalarValue::Int64(Some(greatest)));
            }
        }
        statistics
    }

    fn each(&self, column: &Column, of: fn((i64, i64)) -> i64) -> Option<ArrayRef> {
        if column.name() == DAY {
            return Some(Arc::new(Date32Array::from(self.days.clone())));
        }
        let extremes = self.extremes.get(column.name())?;
        let numbers: Int64Array = extremes.iter().map(|each| each.map(of)).collect();
        Some(Arc::new(numbers))
    }
}

impl PruningStatistics for Files {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.each(column, |(least, _)| least)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.each(column, |(_, greatest)| greatest)
    }

    fn num_containers(&self) -> usize {
        self.files.len()
    }

    fn null_counts(&self, _: &Column) -> Option<ArrayRef> {
        None
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(UInt64Array::from(self.rows.clone())))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

fn only<'a, T>(all: &'a [T], is_kept: &'a [bool]) -> impl Iterator<Item = &'a T> {
    all.iter().zip(is_kept).filter(|(_, is_kept)| **is_kept).map(|(each, _)| each)
}

/// Returns the day of a file's rows, in days since 1970.
fn day(add: &Add) -> Option<i32> {
    let day = add.partition_values.get(DAY)?.as_deref()?;
    let day: NaiveDate = day.parse().ok()?;
    Some(day.num_days_from_ce() - NaiveDate::default().num_days_from_ce())
}
