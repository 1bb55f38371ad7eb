//! Which spans are asked for.

use super::scan::Bounds;
use crate::columns::{Coded, Columns, Values, int, text};
use crate::schema::Kind;
use crate::schema::envelope::{
    ATTRIBUTES_BOOL, ATTRIBUTES_DOUBLE, ATTRIBUTES_INT, ATTRIBUTES_TEXT, RESOURCE, TENANT,
};
use crate::schema::spans::{DURATION, SPANS, START};
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

/// Which spans are asked for: those of a tenant that meet every condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// Whose.
    pub tenant: String,
    /// When they began, in nanoseconds since 1970.
    pub starts: Range<i64>,
    /// How long they took, in nanoseconds.
    pub durations: RangeInclusive<i64>,
    /// All of these.
    pub conditions: Vec<Condition>,
}

/// What a span must have.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Of what.
    pub of: Of,
    /// What about it.
    pub test: Test,
}

/// What a condition is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Of {
    /// A column of texts or of numbers that are the same for many, as [`crate::schema::spans::NAME`].
    Column(usize),
    /// An attribute of the span, whatever the kind of its value.
    Attribute(String),
    /// An attribute of its resource.
    Resource(String),
}

/// What a value must be. One that is not there is nothing of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// It is there.
    Exists,
    /// It is this.
    Is(Literal),
    /// It is something else.
    IsNot(Literal),
    /// It is a number in this range.
    Within(RangeInclusive<f64>),
}

/// A value to compare with.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// A text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Double(f64),
    /// True or false.
    Bool(bool),
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

    /// Whether there may be some among spans within these bounds.
    pub(super) const fn may_have(&self, bounds: &Bounds) -> bool {
        *bounds.starts.start() < self.starts.end
            && *bounds.starts.end() >= self.starts.start
            && *bounds.durations.start() <= *self.durations.end()
            && *bounds.durations.end() >= *self.durations.start()
    }

    /// Whether all spans within these bounds began, and took, as is asked for.
    const fn has_all(&self, bounds: &Bounds) -> (bool, bool) {
        let starts =
            *bounds.starts.start() >= self.starts.start && *bounds.starts.end() < self.starts.end;
        let durations = *bounds.durations.start() >= *self.durations.start()
            && *bounds.durations.end() <= *self.durations.end();
        (starts, durations)
    }

    /// The columns that must be read to know which of the spans within these bounds are asked for.
    pub(super) fn fields(&self, bounds: &Bounds) -> BTreeSet<usize> {
        let (has_starts, has_durations) = self.has_all(bounds);
        let mut fields = BTreeSet::from([TENANT]);
        fields.extend((!has_starts).then_some(START));
        fields.extend((!has_durations).then_some(DURATION));
        for condition in &self.conditions {
            match &condition.of {
                Of::Column(field) => drop(fields.insert(*field)),
                Of::Resource(_) => drop(fields.insert(RESOURCE)),
                Of::Attribute(key) => {
                    fields.extend(SPANS.own().get(key.as_str()).map(|(field, _)| *field));
                    fields.extend(MAPS.map(|(field, _)| field));
                }
            }
        }
        fields
    }

    /// Which rows these are, of some within these bounds.
    pub(super) fn select(&self, rows: &Columns, bounds: &Bounds) -> Vec<usize> {
        let (has_starts, has_durations) = self.has_all(bounds);
        let tenants = rows.coded(TENANT);
        let is_tenant = accepted(tenants, |tenant| tenant == self.tenant.as_bytes());
        let mut selected = Selected { len: rows.len(), rows: None };
        let is_of_one = is_tenant == [false, true]
            && tenants.codes.len() == rows.len()
            && !tenants.codes.contains(&0);
        if !is_of_one {
            selected.retain(|row| is_tenant[tenants.code(row) as usize]);
        }
        if !has_starts {
            let starts = rows.longs(START);
            selected.retain(|row| self.starts.contains(&starts[row]));
        }
        if !has_durations {
            let durations = rows.longs(DURATION);
            selected.retain(|row| self.durations.contains(&durations[row]));
        }
        for condition in &self.conditions {
            condition.retain(rows, &mut selected);
        }
        selected.rows.unwrap_or_else(|| (0..rows.len()).collect())
    }
}

/// Rows that have met all conditions so far.
struct Selected {
    /// How many there are in all.
    len: usize,
    /// Before the first condition, all.
    rows: Option<Vec<usize>>,
}

impl Selected {
    fn retain(&mut self, mut meets: impl FnMut(usize) -> bool) {
        match &mut self.rows {
            Some(rows) => rows.retain(|row| meets(*row)),
            None => self.rows = Some((0..self.len).filter(|row| meets(*row)).collect()),
        }
    }
}

/// Maps of attributes, and the kinds of their values.
const MAPS: [(usize, Kind); 4] = [
    (ATTRIBUTES_TEXT, Kind::Text),
    (ATTRIBUTES_INT, Kind::Int),
    (ATTRIBUTES_DOUBLE, Kind::Double),
    (ATTRIBUTES_BOOL, Kind::Bool),
];

/// Whether each value of a dictionary meets a condition, by its number. None does not.
fn accepted(coded: &Coded, test: impl Fn(&[u8]) -> bool) -> Vec<bool> {
    std::iter::once(false).chain(coded.dictionary.iter().map(test)).collect()
}

impl Condition {
    fn retain(&self, rows: &Columns, selected: &mut Selected) {
        match &self.of {
            Of::Column(field) => {
                let kind = rows.schema().fields()[*field].form.parts()[0].1;
                let coded = rows.coded(*field);
                let accepted = accepted(coded, |value| self.test.accepts(kind, value));
                selected.retain(|row| accepted[coded.code(row) as usize]);
            }
            Of::Resource(key) => {
                let coded = rows.coded(RESOURCE);
                let accepted = accepted(coded, |json| self.test.accepts_member(key, json));
                selected.retain(|row| accepted[coded.code(row) as usize]);
            }
            Of::Attribute(key) => {
                let own = SPANS.own().get(key.as_str()).map(|(field, kind)| {
                    let coded = rows.coded(*field);
                    (coded, accepted(coded, |value| self.test.accepts(*kind, value)))
                });
                let maps = MAPS.map(|(field, kind)| self.entries(rows, field, kind, key));
                selected.retain(|row| {
                    let is_own = own
                        .as_ref()
                        .is_some_and(|(coded, accepted)| accepted[coded.code(row) as usize]);
                    is_own || maps.iter().any(|map| map.contains(&row))
                });
            }
        }
    }

    /// The rows with an entry in a map that is accepted.
    fn entries(&self, rows: &Columns, field: usize, kind: Kind, key: &str) -> BTreeSet<usize> {
        let lists = rows.lists(field);
        let [Values::Coded(keys), Values::Coded(values)] = lists.parts() else {
            return BTreeSet::new();
        };
        let is_key = accepted(keys, |each| each == key.as_bytes());
        if !is_key.contains(&true) {
            return BTreeSet::new();
        }
        let accepted = accepted(values, |value| self.test.accepts(kind, value));
        let has = |row: &usize| {
            let mut entries = lists.entries(*row);
            entries.any(|entry| {
                is_key[keys.code(entry) as usize] && accepted[values.code(entry) as usize]
            })
        };
        (0..rows.len()).filter(has).collect()
    }
}

impl Test {
    /// Whether a value of a dictionary meets it.
    fn accepts(&self, kind: Kind, value: &[u8]) -> bool {
        match kind {
            Kind::Int | Kind::Long => self.accepts_literal(&Literal::Int(int(value))),
            Kind::Double => {
                let double = f64::from_bits(int(value).cast_unsigned());
                self.accepts_literal(&Literal::Double(double))
            }
            Kind::Bool => self.accepts_literal(&Literal::Bool(value != [0])),
            Kind::Text | Kind::Wide | Kind::Narrow => match self {
                Self::Exists => true,
                Self::Is(Literal::Text(is)) => is.as_bytes() == value,
                Self::IsNot(Literal::Text(is)) => is.as_bytes() != value,
                Self::IsNot(_) => true,
                Self::Is(_) | Self::Within(_) => false,
            },
        }
    }

    fn accepts_literal(&self, value: &Literal) -> bool {
        match self {
            Self::Exists => true,
            Self::Is(is) => is.equals(value),
            Self::IsNot(is) => !is.equals(value),
            Self::Within(range) => value.number().is_some_and(|number| range.contains(&number)),
        }
    }

    /// Whether a member of an object in plain JSON meets it.
    fn accepts_member(&self, key: &str, json: &[u8]) -> bool {
        let object: serde_json::Value = serde_json::from_slice(json).unwrap_or_default();
        let literal = match &object[key] {
            serde_json::Value::Null => return false,
            serde_json::Value::String(text) => Literal::Text(text.clone()),
            serde_json::Value::Bool(is) => Literal::Bool(*is),
            serde_json::Value::Number(number) => number
                .as_i64()
                .map_or_else(|| Literal::Double(number.as_f64().unwrap_or(f64::NAN)), Literal::Int),
            list @ (serde_json::Value::Array(_) | serde_json::Value::Object(_)) => {
                Literal::Text(list.to_string())
            }
        };
        self.accepts_literal(&literal)
    }
}

impl Literal {
    /// Whole numbers and others are compared as numbers.
    fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one == other,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Int(one), Self::Int(other)) => one == other,
            _ => self.number().is_some_and(|number| Some(number) == other.number()),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "as they are compared")]
            Self::Int(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            Self::Text(_) | Self::Bool(_) => None,
        }
    }
}

/// The value of a column as text, for those who group by it.
pub(super) fn told(kind: Kind, value: &[u8]) -> String {
    match kind {
        Kind::Int | Kind::Long => int(value).to_string(),
        Kind::Double => f64::from_bits(int(value).cast_unsigned()).to_string(),
        Kind::Bool => (value != [0]).to_string(),
        Kind::Text | Kind::Wide | Kind::Narrow => text(value).to_owned(),
    }
}
