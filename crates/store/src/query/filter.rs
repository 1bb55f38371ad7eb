//! The filter of a query, which selects spans.

use super::scan::Bounds;
use super::span_field::SpanField;
use super::value::{Test, Value};
use crate::columns::{Column, Columns, Values};
use crate::schema::envelope::TENANT;
use crate::schema::spans::{DURATION, START};
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

/// Selects the spans of a tenant that meet every condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The tenant.
    pub tenant: String,
    /// The range of start times, in nanoseconds since 1970. An end of [`i64::MAX`] means no end.
    pub starts: Range<i64>,
    /// Durations in nanoseconds. A span that ends before it starts has duration 0.
    pub durations: RangeInclusive<i64>,
    /// All of these conditions.
    pub conditions: Vec<Condition>,
}

/// A condition on a span.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// A field passes a test. If a field has several values, at least one passes.
    Is(SpanField, Test),
    /// All of these conditions.
    All(Vec<Self>),
    /// At least one of these conditions.
    Any(Vec<Self>),
    /// The opposite of this condition.
    Not(Box<Self>),
}

impl Filter {
    /// All spans of a tenant.
    #[must_use]
    pub fn of(tenant: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            starts: i64::MIN..i64::MAX,
            durations: i64::MIN..=i64::MAX,
            conditions: Vec::new(),
        }
    }

    /// The service that all matching spans must have, if the filter names one.
    pub(super) fn service(&self) -> Option<&str> {
        self.conditions.iter().find_map(Condition::service)
    }

    /// Whether spans within these bounds may match.
    pub(super) const fn may_have(&self, bounds: &Bounds) -> bool {
        is_before(*bounds.starts.start(), self.starts.end)
            && *bounds.starts.end() >= self.starts.start
            && *bounds.durations.start() <= *self.durations.end()
            && *bounds.durations.end() >= *self.durations.start()
    }

    /// Whether the starts, and whether the durations, of all spans within these bounds match.
    const fn has_all(&self, bounds: &Bounds) -> (bool, bool) {
        let starts = *bounds.starts.start() >= self.starts.start
            && is_before(*bounds.starts.end(), self.starts.end);
        let durations = *bounds.durations.start() >= *self.durations.start()
            && *bounds.durations.end() <= *self.durations.end();
        (starts, durations)
    }

    /// The columns that are needed to select among spans within these bounds.
    pub(super) fn fields(&self, bounds: &Bounds) -> BTreeSet<usize> {
        let (has_starts, has_durations) = self.has_all(bounds);
        let mut fields = BTreeSet::from([TENANT]);
        fields.extend((!has_starts).then_some(START));
        fields.extend((!has_durations).then_some(DURATION));
        self.conditions.iter().for_each(|condition| condition.read(&mut fields));
        fields
    }

    /// Adds the columns that the filter needs.
    pub fn read(&self, fields: &mut BTreeSet<usize>) {
        fields.extend(self.fields(&Bounds::NONE));
    }

    /// The keys of attributes in its conditions.
    pub(super) fn keys(&self) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        self.conditions.iter().for_each(|condition| condition.add_keys(&mut keys));
        keys
    }

    /// The rows of the matching spans.
    #[must_use]
    pub fn rows(&self, rows: &Columns) -> Vec<usize> {
        self.select(rows, &Bounds::NONE)
    }

    /// The rows of the matching spans, all of which are within these bounds.
    pub(super) fn select(&self, rows: &Columns, bounds: &Bounds) -> Vec<usize> {
        self.retain(rows, bounds, Selected { len: rows.len(), rows: None })
    }

    /// The rows of the matching spans among some rows.
    pub(super) fn among(&self, rows: &Columns, bounds: &Bounds, among: Vec<usize>) -> Vec<usize> {
        self.retain(rows, bounds, Selected { len: rows.len(), rows: Some(among) })
    }

    fn retain(&self, rows: &Columns, bounds: &Bounds, mut selected: Selected) -> Vec<usize> {
        let (has_starts, has_durations) = self.has_all(bounds);
        let tenants = rows.coded(TENANT);
        let is_tenant: Vec<_> = std::iter::once(false)
            .chain(tenants.dictionary.iter().map(|tenant| tenant == self.tenant.as_bytes()))
            .collect();
        let is_of_one = is_tenant == [false, true]
            && tenants.codes.len() == rows.len()
            && !tenants.codes.contains(&0);
        if !is_of_one {
            selected.retain(|row| is_tenant[tenants.code(row) as usize]);
        }
        if !has_starts {
            let starts = rows.longs(START);
            let Range { start, end } = self.starts;
            selected.retain(|row| starts[row] >= start && is_before(starts[row], end));
        }
        if !has_durations {
            let durations = rows.longs(DURATION);
            selected.retain(|row| self.durations.contains(&took(durations[row])));
        }
        self.conditions.iter().for_each(|condition| condition.retain(rows, &mut selected));
        selected.rows.unwrap_or_else(|| (0..rows.len()).collect())
    }
}

/// Rows that have met all conditions so far.
#[derive(Clone)]
struct Selected {
    /// The number of all rows.
    len: usize,
    /// The rows in order; [`None`] for all rows, before the first condition.
    rows: Option<Vec<usize>>,
}

impl Selected {
    fn retain(&mut self, mut meets: impl FnMut(usize) -> bool) {
        match &mut self.rows {
            Some(rows) => rows.retain(|row| meets(*row)),
            None => self.rows = Some((0..self.len).filter(|row| meets(*row)).collect()),
        }
    }

    fn all(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match &self.rows {
            Some(rows) => Box::new(rows.iter().copied()),
            None => Box::new(0..self.len),
        }
    }
}

impl Condition {
    fn service(&self) -> Option<&str> {
        match self {
            Self::Is(of, Test::Is(Value::Text(service))) if of.is_service() => Some(service),
            Self::All(all) => all.iter().find_map(Self::service),
            Self::Is(..) | Self::Any(_) | Self::Not(_) => None,
        }
    }

    /// Adds the columns that the condition needs.
    fn read(&self, fields: &mut BTreeSet<usize>) {
        match self {
            Self::Is(of, _) => of.read(fields),
            Self::All(each) | Self::Any(each) => {
                each.iter().for_each(|condition| condition.read(fields));
            }
            Self::Not(condition) => condition.read(fields),
        }
    }

    fn add_keys(&self, keys: &mut BTreeSet<String>) {
        match self {
            Self::Is(of, _) => of.add_key(keys),
            Self::All(each) | Self::Any(each) => {
                each.iter().for_each(|condition| condition.add_keys(keys));
            }
            Self::Not(condition) => condition.add_keys(keys),
        }
    }

    fn retain(&self, rows: &Columns, selected: &mut Selected) {
        match self {
            Self::Is(of, test) => is(of, test, rows, selected),
            Self::All(all) => all.iter().for_each(|condition| condition.retain(rows, selected)),
            Self::Any(any) => {
                let mut met = BTreeSet::new();
                for condition in any {
                    let mut meeting = selected.clone();
                    condition.retain(rows, &mut meeting);
                    met.extend(meeting.all());
                }
                selected.rows = Some(met.into_iter().collect());
            }
            Self::Not(condition) => {
                let mut meeting = selected.clone();
                condition.retain(rows, &mut meeting);
                let mut met = meeting.all().peekable();
                // Both are in the order of the rows.
                selected.retain(|row| met.next_if_eq(&row).is_none());
            }
        }
    }
}

/// Keeps the rows with a value of the field that passes the test.
fn is(of: &SpanField, test: &Test, rows: &Columns, selected: &mut Selected) {
    let column = if let SpanField::Column(field) = of { Some(rows.column(*field)) } else { None };
    match (of, column) {
        (SpanField::Entry(entry), _) => {
            let coding = entry.coding(rows);
            let (accepted, lists) = (coding.accepted(test), rows.lists(entry.field()));
            let meets = |entry: usize| accepted[coding.code(entry) as usize];
            selected.retain(|row| lists.entries(row).any(meets));
        }
        (SpanField::Column(DURATION), _) => {
            let durations = rows.longs(DURATION);
            selected.retain(|row| test.accepts(&Value::Int(took(durations[row]))));
        }
        (_, Some(Column::One(Values::Longs(numbers)))) => {
            selected.retain(|row| test.accepts(&Value::Int(numbers[row])));
        }
        (_, Some(Column::One(Values::Wide(ids)))) => {
            selected.retain(|row| is_id(test, ids.get(row).copied()));
        }
        (_, Some(Column::One(Values::Narrow(ids)))) => {
            selected.retain(|row| is_id(test, ids.get(row).map(|id| u128::from(*id))));
        }
        _ => {
            let coding = of.coding(rows);
            let accepted = coding.accepted(test);
            selected.retain(|row| accepted[coding.code(row) as usize]);
        }
    }
}

const fn is_before(start_ns: i64, end_ns: i64) -> bool {
    start_ns < end_ns || end_ns == i64::MAX
}

/// The duration of a span; the column is negative if the span ends before it starts.
pub(super) fn took(duration_ns: i64) -> i64 {
    duration_ns.max(0)
}

/// Whether an ID passes a test. An ID of zero is null.
fn is_id(test: &Test, id: Option<u128>) -> bool {
    id.is_some_and(|id| id != 0 && test.accepts(&Value::Id(id)))
}
