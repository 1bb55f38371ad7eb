//! The minimum duration of the slowest traces of each operation.

use super::EXACT_MAX;
use crate::columns::Columns;
use crate::schema::traces;
use curtail_sketch::{Histogram, Precision};
use curtail_units::{Duration, Quantile, Ratio};
use hashbrown::HashMap;

/// Maximum number of operations. All further operations count as one.
const OPERATIONS_MAX: usize = 100_000;

/// An operation: a tenant, and the service and the name of root spans.
type Operation = [String; 3];

/// The durations of the traces of each operation.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    numbers: HashMap<Operation, usize>,
    exact: Vec<Vec<i64>>,
    count: usize,
    /// Replaces `exact` when there are more than [`EXACT_MAX`] durations.
    counted: Option<Vec<Histogram>>,
}

/// The minimum duration of the slowest traces of each operation.
#[derive(Debug)]
pub(crate) struct Bars {
    numbers: HashMap<Operation, usize>,
    /// The minimum durations, by the number of the operation.
    bars_ns: Vec<i64>,
}

impl Durations {
    /// Adds the durations in rows of the table of traces.
    pub(crate) fn take(&mut self, rows: &Columns) {
        let mut known = HashMap::new();
        for row in 0..rows.len() {
            let next = self.numbers.len();
            let number = *known.entry(codes(rows, row)).or_insert_with(|| {
                let operation = operation(rows, row);
                let has_number = next < OPERATIONS_MAX || self.numbers.contains_key(&operation);
                let operation = if has_number { operation } else { Operation::default() };
                *self.numbers.entry(operation).or_insert(next)
            });
            if number == self.exact.len() {
                self.exact.push(Vec::new());
                if let Some(counted) = &mut self.counted {
                    counted.push(Histogram::new(Precision::FINE));
                }
            }
            self.push(number, duration_ns(rows, row));
        }
    }

    fn push(&mut self, number: usize, duration_ns: i64) {
        if let Some(counted) = &mut self.counted {
            counted[number].record(duration(duration_ns));
            return;
        }
        self.exact[number].push(duration_ns);
        self.count += 1;
        if self.count > EXACT_MAX {
            let counted = self.exact.iter_mut().map(|exact| {
                let mut counted = Histogram::new(Precision::FINE);
                std::mem::take(exact).into_iter().for_each(|ns| counted.record(duration(ns)));
                counted
            });
            self.counted = Some(counted.collect());
        }
    }

    /// Returns the minimum duration of the `slowest` share of the traces of each operation.
    pub(crate) fn bars(self, slowest: Ratio) -> Bars {
        let bars_ns = match self.counted {
            None => self.exact.into_iter().map(|all| exact_bar(all, slowest)).collect(),
            Some(counted) => counted.iter().map(|all| counted_bar(all, slowest)).collect(),
        };
        Bars { numbers: self.numbers, bars_ns }
    }
}

impl Bars {
    /// Whether each row of the table of traces is among the slowest of its operation.
    pub(crate) fn slowest(&self, rows: &Columns) -> Vec<bool> {
        let mut known = HashMap::new();
        let is_slow = |row: usize| {
            let bar_ns = *known.entry(codes(rows, row)).or_insert_with(|| {
                let number = self.numbers.get(&operation(rows, row));
                let number = number.or_else(|| self.numbers.get(&Operation::default()));
                number.map_or(i64::MIN, |number| self.bars_ns[*number])
            });
            duration_ns(rows, row) >= bar_ns
        };
        (0..rows.len()).map(is_slow).collect()
    }
}

fn codes(rows: &Columns, row: usize) -> [u32; 3] {
    [traces::TENANT, traces::ROOT_SERVICE, traces::ROOT_NAME]
        .map(|field| rows.coded(field).code(row))
}

fn operation(rows: &Columns, row: usize) -> Operation {
    [traces::TENANT, traces::ROOT_SERVICE, traces::ROOT_NAME]
        .map(|field| rows.coded(field).text(row).to_owned())
}

/// The duration of the root, or of the whole trace if the trace has no root.
fn duration_ns(rows: &Columns, row: usize) -> i64 {
    let of_root = rows.coded(traces::ROOT_DURATION).int(row);
    of_root.unwrap_or_else(|| rows.longs(traces::DURATION)[row])
}

/// The minimum duration of the `slowest` share of `all` durations.
fn exact_bar(mut all: Vec<i64>, slowest: Ratio) -> i64 {
    match fast(slowest, all.len() as u64) {
        Some(nth) => *all.select_nth_unstable(usize::try_from(nth).expect("they are in memory")).1,
        None => i64::MAX,
    }
}

/// As [`exact_bar`], from a histogram, less 1 %: quantiles are off by at most 0.05 %, so no slow trace is missed.
fn counted_bar(all: &Histogram, slowest: Ratio) -> i64 {
    let Some(nth) = fast(slowest, all.count()) else { return i64::MAX };
    let quantile = Quantile::new(nth as f64 / all.count() as f64).expect("it is a share");
    let bar = all.quantile(quantile).unwrap_or_default();
    let bar_ns = i64::try_from(bar.as_ns()).unwrap_or(i64::MAX);
    bar_ns - bar_ns / 100
}

/// The number of traces that are not among the slowest; [`None`] if none is among the slowest.
fn fast(slowest: Ratio, count: u64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a count, and a cast from float to integer saturates"
    )]
    let slow = (slowest.get() * count as f64 * (1.0 - f64::EPSILON)).ceil() as u64;
    count.checked_sub(slow.min(count)).filter(|fast| *fast < count)
}

/// Converts a duration; negative durations become zero.
fn duration(ns: i64) -> Duration {
    Duration::from_ns(u64::try_from(ns).unwrap_or_default())
}

#[cfg(test)]
mod tests;
