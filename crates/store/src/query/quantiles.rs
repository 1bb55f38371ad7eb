//! Quantiles of durations.
//!
//! All durations of a group are kept, and the quantile is one of them. When they are more than
//! [`EXACT_MAX`] in all, they are counted in a histogram for each group instead, and quantiles have its
//! error.
//!
//! **Source**: the rule of ranks is in [`curtail_sketch::rank()`].

use super::filter::{Filter, told};
use super::scan::{Bounds, pages, together};
use crate::columns::Columns;
use crate::memtable::SpanRows;
use crate::schema::spans::{DURATION, START};
use crate::tree::{Tree, Unread};
use curtail_sketch::{Histogram, Precision, rank};
use curtail_units::{Duration, Quantile};
use std::collections::BTreeMap;

/// So many durations are kept: 128 MB.
pub(super) const EXACT_MAX: usize = 16 << 20;

/// A table of more rows is read by nobody.
const GROUPS_MAX: usize = 100_000;

/// More columns than this make no groups.
const COLUMNS_MAX: usize = 4;

/// The question has more groups than are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are more than {GROUPS_MAX} groups: ask for longer steps or for fewer values")]
pub struct TooManyGroups;

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantilesOf {
    /// Of which spans.
    pub filter: Filter,
    /// Which quantiles.
    pub quantiles: Vec<Quantile>,
    /// Columns with a dictionary whose values make groups.
    pub by: Vec<usize>,
    /// Groups are also made by start, in steps of so many nanoseconds since 1970.
    pub step_ns: Option<u64>,
}

/// What is answered.
#[derive(Debug, Default)]
pub struct Quantiles {
    /// By their time, then by their values.
    pub groups: Vec<Group>,
    /// The largest error of a quantile, as a share of it: zero when all are exact.
    pub error: f64,
    /// Runs that may have more.
    pub unread: Vec<Unread>,
}

/// Spans that have the same values in the same step of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// When the step begins, in nanoseconds since 1970; zero without steps.
    pub start_ns: i64,
    /// In the order of [`QuantilesOf::by`]; none where a span has none.
    pub values: Vec<Option<String>>,
    /// How many spans there are.
    pub count: u64,
    /// In the order of [`QuantilesOf::quantiles`], in nanoseconds.
    pub quantiles: Vec<i64>,
}

pub(super) type Name = (i64, Vec<Option<String>>);

/// Durations of all groups.
#[derive(Default)]
pub(super) struct Gathered {
    /// Numbers of the groups.
    names: BTreeMap<Name, usize>,
    exact: Vec<Vec<i64>>,
    count: usize,
    /// In place of `exact`, once there are too many.
    counted: Option<Vec<Histogram>>,
}

impl Tree<SpanRows> {
    /// Quantiles of the durations of spans.
    ///
    /// # Errors
    /// When there are too many groups.
    ///
    /// # Panics
    /// When more than four columns make groups, or one of them has no dictionary.
    pub async fn quantiles(&self, of: &QuantilesOf) -> Result<Quantiles, TooManyGroups> {
        assert!(of.by.len() <= COLUMNS_MAX, "at most {COLUMNS_MAX} columns make groups");
        let fields = |bounds: &Bounds| {
            let mut fields = of.filter.fields(bounds);
            fields.extend(&of.by);
            fields.insert(DURATION);
            fields.extend(of.step_ns.map(|_| START));
            fields
        };
        let (memory, runs) = self.moment(&fields(&Bounds::NONE));
        let mut gathered = Gathered::default();
        for rows in &memory {
            gathered.take(of, rows, &Bounds::NONE)?;
        }
        let mut unread = Vec::new();
        for part in together(runs.iter().flat_map(|run| pages(run, &of.filter))) {
            match part.read(self, &fields(&part.bounds)).await {
                Ok(rows) => gathered.take(of, &rows, &part.bounds)?,
                Err(error) => unread.push(part.unread(error)),
            }
        }
        Ok(gathered.answer(&of.quantiles, unread))
    }
}

impl Gathered {
    fn take(
        &mut self,
        of: &QuantilesOf,
        rows: &Columns,
        bounds: &Bounds,
    ) -> Result<(), TooManyGroups> {
        let (starts, durations) = (rows.longs(START), rows.longs(DURATION));
        let by: Vec<_> = of.by.iter().map(|field| rows.coded(*field)).collect();
        let step = |row: usize| match of.step_ns.and_then(|step| i64::try_from(step).ok()) {
            Some(step) => starts[row].div_euclid(step.max(1)) * step.max(1),
            None => 0,
        };
        // Groups by the numbers of values in these rows; names are made once for each.
        let mut numbers = hashbrown::HashMap::<(i64, [u32; COLUMNS_MAX]), usize>::new();
        let mut last = None;
        for row in of.filter.select(rows, bounds) {
            let mut codes = [0; COLUMNS_MAX];
            for (code, coded) in codes.iter_mut().zip(&by) {
                *code = coded.code(row);
            }
            let key = (step(row), codes);
            let group = match last {
                Some((known, group)) if known == key => group,
                _ => *numbers.entry(key).or_insert_with(|| {
                    let values = of.by.iter().zip(&by).zip(codes).map(|((field, coded), code)| {
                        let kind = rows.schema().fields()[*field].form.parts()[0].1;
                        (code != 0).then(|| told(kind, coded.dictionary.get(code)))
                    });
                    self.group((key.0, values.collect()))
                }),
            };
            if self.names.len() > GROUPS_MAX {
                return Err(TooManyGroups);
            }
            last = Some((key, group));
            self.push(group, durations[row]);
        }
        Ok(())
    }

    pub(super) fn group(&mut self, name: Name) -> usize {
        let next = self.names.len();
        let group = *self.names.entry(name).or_insert(next);
        if group == next {
            self.exact.push(Vec::new());
            if let Some(counted) = &mut self.counted {
                counted.push(Histogram::new(Precision::FINE));
            }
        }
        group
    }

    pub(super) fn push(&mut self, group: usize, duration_ns: i64) {
        if let Some(counted) = &mut self.counted {
            counted[group].record(duration(duration_ns));
            return;
        }
        self.exact[group].push(duration_ns);
        self.count += 1;
        if self.count > EXACT_MAX {
            self.counted = Some(self.exact.iter_mut().map(counted).collect());
        }
    }

    pub(super) fn answer(mut self, quantiles: &[Quantile], unread: Vec<Unread>) -> Quantiles {
        let mut groups = Vec::new();
        for ((start_ns, values), group) in self.names {
            let (count, quantiles) = match &self.counted {
                Some(counted) => {
                    let of_group = &counted[group];
                    let each = |quantile: &Quantile| {
                        let found = of_group.quantile(*quantile).unwrap_or_default();
                        i64::try_from(found.as_ns()).unwrap_or(i64::MAX)
                    };
                    (of_group.count(), quantiles.iter().map(each).collect())
                }
                None => {
                    let all = &mut self.exact[group];
                    let each = |quantile: &Quantile| exact(all, *quantile);
                    let found = quantiles.iter().map(each).collect();
                    (all.len() as u64, found)
                }
            };
            groups.push(Group { start_ns, values, count, quantiles });
        }
        let error = if self.counted.is_some() { Precision::FINE.error() } else { 0.0 };
        Quantiles { groups, error, unread }
    }
}

/// The value of a quantile's rank.
fn exact(all: &mut [i64], quantile: Quantile) -> i64 {
    let nth = usize::try_from(rank(quantile, all.len() as u64).max(1) - 1).unwrap_or_default();
    *all.select_nth_unstable(nth).1
}

/// What took less than no time took none.
fn duration(ns: i64) -> Duration {
    Duration::from_ns(u64::try_from(ns).unwrap_or_default())
}

fn counted(all: &mut Vec<i64>) -> Histogram {
    let mut histogram = Histogram::new(Precision::FINE);
    std::mem::take(all).into_iter().for_each(|ns| histogram.record(duration(ns)));
    histogram
}
