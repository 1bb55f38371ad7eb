//! Aggregates of spans: counts, and quantiles, extremes, sums and buckets of a numeric field, by time and by values.
//!
//! A span counts as often as its weight says.
//!
//! **Limits**: [`GROUPS_MAX`] groups; quantiles of a field other than the duration fail beyond [`EXACT_MAX`] numbers.

use super::filter::Filter;
use super::grouping::Grouping;
pub use super::partial::{Group, Numbers};
use super::partial::{GroupKey, Partial};
use super::scan::Projection;
use super::span_field::{Coding, SpanField, of_rows};
use crate::columns::{Coded, Columns};
use crate::schema::spans::{DURATION, START, WEIGHT};
use crate::tree::{Tree, Unread};
use curtail_units::Quantile;
use std::borrow::Cow;

/// Maximum number of numbers in memory: 128 MB. Beyond that, durations are counted in histograms.
pub(super) const EXACT_MAX: usize = 16 << 20;

/// Maximum number of groups.
pub(super) const GROUPS_MAX: usize = 100_000;

/// Maximum number of values to group by.
pub(super) const BY_MAX: usize = 4;

/// An aggregate query.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateQuery {
    /// The spans.
    pub filter: Filter,
    /// The aggregate.
    pub what: Aggregate,
    /// The fields to group by: spans with the same values are a group. Each field must be [coded](SpanField::is_coded).
    pub by: Vec<SpanField>,
    /// The length in nanoseconds of the time steps, aligned to 1970, by which spans are also grouped.
    pub step_ns: Option<u64>,
}

/// An aggregate. Spans without its number are skipped.
#[derive(Clone, Debug, PartialEq)]
pub enum Aggregate {
    /// The number of spans.
    Count,
    /// Quantiles of a number.
    Quantiles(SpanField, Vec<Quantile>),
    /// The least, the greatest and the sum of a number.
    Extremes(SpanField),
    /// The count of numbers in each bucket, by powers of two.
    Buckets(SpanField),
}

/// The result of an aggregate query.
#[derive(Debug, Default)]
pub struct AggregateResult {
    /// The groups in order of time, then of values.
    pub groups: Vec<Group>,
    /// The largest relative error of a quantile; zero if all quantiles are exact.
    pub error: f64,
    /// Runs that could not be read and may have more spans.
    pub unread: Vec<Unread>,
}

/// Why an aggregate query fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AggregateError {
    /// There are too many groups.
    #[error("there are more than {GROUPS_MAX} groups: ask for longer steps or for fewer values")]
    Groups,
    /// There are too many numbers.
    #[error(
        "there are more than {EXACT_MAX} numbers, which are no durations: ask for a shorter time"
    )]
    Numbers,
    /// Too many values make groups.
    #[error("expected at most {BY_MAX} values to group by")]
    By,
    /// A field has several values in a span, or differs in nearly every span.
    #[error("a span's number and what it is grouped by must be a column or an attribute of it")]
    Field,
}

impl Tree {
    /// Aggregates spans.
    ///
    /// # Errors
    /// When there are too many groups or numbers, or a field cannot be aggregated.
    pub async fn measure(&self, of: &AggregateQuery) -> Result<AggregateResult, AggregateError> {
        if of.by.len() > BY_MAX {
            return Err(AggregateError::By);
        }
        let number = of.what.number();
        let is_number = |of: &SpanField| *of == SpanField::Column(DURATION) || of.is_coded();
        if !of.by.iter().all(SpanField::is_coded) || !number.is_none_or(is_number) {
            return Err(AggregateError::Field);
        }
        let fields = [WEIGHT].into_iter().chain(of.step_ns.map(|_| START));
        let projection = Projection::of(fields, of.by.iter().chain(number));
        let mut whole = Partial::new(&of.what);
        let query = of.clone();
        let partial = move |rows: &Columns, selected| query.partial(rows, selected);
        let scanned = self.scan(&of.filter, projection, partial, |partial| whole.merge(partial?));
        let (unread, ended) = scanned.await;
        ended?;
        let (groups, error) = whole.finish(of);
        Ok(AggregateResult { groups, error, unread })
    }
}

impl Aggregate {
    pub(super) const fn number(&self) -> Option<&SpanField> {
        match self {
            Self::Count => None,
            Self::Quantiles(of, _) | Self::Extremes(of) | Self::Buckets(of) => Some(of),
        }
    }
}

/// The number of each row.
enum RowNumbers<'a> {
    Nothing,
    Longs(&'a [i64]),
    Coded(Coding<'a>, Vec<Option<f64>>),
}

impl<'a> RowNumbers<'a> {
    fn of(number: Option<&SpanField>, rows: &'a Columns) -> Self {
        match number {
            None => Self::Nothing,
            Some(SpanField::Column(DURATION)) => Self::Longs(rows.longs(DURATION)),
            Some(of) => {
                let coding = of.coding(rows);
                let numbers = coding
                    .values
                    .iter()
                    .map(|value| value.number().filter(|number| !number.is_nan()));
                let numbers = std::iter::once(None).chain(numbers).collect();
                Self::Coded(coding, numbers)
            }
        }
    }
}

impl AggregateQuery {
    /// The aggregate of some rows.
    fn partial(&self, rows: &Columns, mut selected: Vec<usize>) -> Result<Partial, AggregateError> {
        let weights = rows.coded(WEIGHT);
        let numbers = RowNumbers::of(self.what.number(), rows);
        if let RowNumbers::Coded(coding, of_code) = &numbers {
            selected.retain(|row| of_code[coding.code(*row) as usize].is_some());
        }
        let mut partial = Partial::new(&self.what);
        let groups = self.groups(&mut partial, rows, &selected);
        let numbers = match &numbers {
            RowNumbers::Nothing => Cow::Owned(vec![0; selected.len()]),
            RowNumbers::Longs(numbers) => of_rows(numbers, &selected),
            RowNumbers::Coded(coding, of_code) => {
                let number = |row: &usize| of_code[coding.code(*row) as usize].map_or(0, ordered);
                Cow::Owned(selected.iter().map(number).collect())
            }
        };
        if weights.dictionary.is_empty() {
            partial.push_all(&groups, &numbers)?;
        } else {
            for ((row, group), number) in selected.into_iter().zip(groups).zip(&*numbers) {
                partial.push(group, *number, weight(weights, row))?;
            }
        }
        Ok(partial)
    }

    /// The number of each row's group.
    fn groups(&self, partial: &mut Partial, rows: &Columns, selected: &[usize]) -> Vec<u32> {
        let by: Vec<_> = self.by.iter().map(|of| of.coding(rows)).collect();
        let mut grouping = Grouping::of_one(selected.len());
        by.iter().for_each(|coding| grouping.by(coding.values.len(), &coding.codes_of(selected)));
        let starts = rows.longs(START);
        let step = self.step_ns.map(|step| i64::try_from(step).unwrap_or(i64::MAX).max(1));
        if let Some(step) = step {
            grouping.by_step(step, &of_rows(starts, selected));
        }
        // The code in the partial of each value; zero before it is known.
        let mut known: Vec<_> = by.iter().map(|coding| vec![0; coding.values.len() + 1]).collect();
        grouping.groups(|nth| {
            let row = selected[nth];
            let begin = |step: i64| starts[row].div_euclid(step).saturating_mul(step);
            let mut key = GroupKey { start_ns: step.map_or(0, begin), ..GroupKey::default() };
            for ((value, coding), known) in key.values.iter_mut().zip(&by).zip(&mut known) {
                let code = coding.code(row);
                let known = &mut known[code as usize];
                if code != 0 && *known == 0 {
                    *known = partial.intern(&coding.value(code).to_string());
                }
                *value = *known;
            }
            partial.group(key)
        })
    }
}

/// The number of spans that a row stands for.
pub(super) fn weight(weights: &Coded, row: usize) -> u64 {
    weights.int(row).and_then(|weight| u64::try_from(weight).ok()).unwrap_or(1)
}

/// Converts a number to an integer. The integers have the same order as the numbers.
pub(super) fn ordered(number: f64) -> i64 {
    let bits = number.to_bits().cast_signed();
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

/// Converts an [ordered] integer back to the number.
pub(super) fn read_ordered(ordered: i64) -> f64 {
    let bits = if ordered < 0 { ordered ^ i64::MAX } else { ordered };
    f64::from_bits(bits.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::{ordered, read_ordered};

    #[test]
    fn numbers_keep_their_order_as_whole_ones() {
        let all = [f64::NEG_INFINITY, -1e300, -1.5, -1e-300, 0.0, 1e-300, 1.0, 2.5, f64::INFINITY];
        assert!(all.is_sorted_by_key(|number| ordered(*number)));
        for each in all {
            assert_eq!(read_ordered(ordered(each)).to_bits(), each.to_bits());
        }
    }
}
