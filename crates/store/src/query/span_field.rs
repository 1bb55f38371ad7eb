//! The fields of spans, and the distinct values of a field in some rows.

use super::value::{Test, Value};
use crate::columns::{Coded, Column, Columns, Lists, Values};
use crate::schema::Kind;
use crate::schema::envelope::{
    ATTRIBUTES_JSON, MAPS, RESOURCE, SCOPE, SCOPE_NAME, SCOPE_VERSION, SERVICE, of_resource,
};
use crate::schema::spans::{EVENTS, LINKS, NAME, SPANS, STATUS_MESSAGE};
use hashbrown::HashMap;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::ops::Range;

/// A field of a span, its resource, its scope, its events or its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanField {
    /// A column, as [`crate::schema::spans::NAME`].
    Column(usize),
    /// An attribute of the span, whatever the kind of its value.
    Attribute(String),
    /// An attribute of its resource.
    Resource(String),
    /// An attribute of the span, or else of its resource.
    Either(String),
    /// An attribute of its scope, the library that made it.
    Scope(String),
    /// A field of its events or links.
    Entry(Entry),
}

/// A field of an event or a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The name of an event.
    EventName,
    /// An attribute of an event.
    Event(String),
    /// The ID of the linked trace.
    LinkTrace,
    /// The ID of the linked span.
    LinkSpan,
    /// An attribute of a link.
    Link(String),
}

/// Texts that every span has: null is an empty text.
const ALWAYS: [usize; 4] = [NAME, STATUS_MESSAGE, SCOPE_NAME, SCOPE_VERSION];

/// A dictionary of values, and the code of each row or list entry.
#[derive(Debug, Default)]
pub(super) struct Coding<'a> {
    /// Zero means null; rows beyond the end are null too.
    codes: Cow<'a, [u32]>,
    /// The value of code one is first.
    pub(super) values: Vec<Value<'a>>,
}

impl Coding<'_> {
    /// The same coding with an empty text for null.
    fn or_empty(mut self, len: usize) -> Self {
        if self.codes.len() < len || self.codes.contains(&0) {
            let empty = add(&mut self.values, Value::Text(Cow::Borrowed("")));
            let codes = self.codes.to_mut();
            codes.resize(len, 0);
            codes.iter_mut().filter(|code| **code == 0).for_each(|code| *code = empty);
        }
        self
    }

    /// The code of a row's value; zero means null.
    pub(super) fn code(&self, row: usize) -> u32 {
        self.codes.get(row).copied().unwrap_or(0)
    }

    /// The distinct codes of consecutive rows or entries.
    pub(super) fn codes_in(&self, rows: Range<usize>) -> Vec<u32> {
        let mut codes = Vec::new();
        for code in rows.map(|row| self.code(row)) {
            if code != 0 && !codes.contains(&code) {
                codes.push(code);
            }
        }
        codes
    }

    /// The codes of some rows, which are in order.
    pub(super) fn codes_of(&self, rows: &[usize]) -> Cow<'_, [u32]> {
        match rows.last() {
            // Rows beyond the end are null.
            Some(last) if *last >= self.codes.len() => {
                Cow::Owned(rows.iter().map(|row| self.code(*row)).collect())
            }
            _ => of_rows(&self.codes, rows),
        }
    }

    /// Whether each value passes a test, by code; null never does.
    pub(super) fn accepted(&self, test: &Test) -> Vec<bool> {
        let each = self.values.iter().map(|value| test.accepts(value));
        std::iter::once(false).chain(each).collect()
    }

    /// The value of a code, which is not zero.
    pub(super) fn value(&self, code: u32) -> &Value<'_> {
        &self.values[code as usize - 1]
    }
}

impl SpanField {
    /// Adds the columns that the field needs.
    pub fn read(&self, fields: &mut BTreeSet<usize>) {
        match self {
            Self::Column(field) => drop(fields.insert(*field)),
            Self::Resource(key) => drop(fields.insert(of_resource(key).unwrap_or(RESOURCE))),
            Self::Scope(_) => drop(fields.insert(SCOPE)),
            Self::Attribute(key) => {
                fields.extend(SPANS.schema().own.get(key.as_str()).map(|(field, _)| *field));
                fields.extend(MAPS.map(|(field, _)| field));
            }
            Self::Either(key) => {
                Self::Attribute(key.clone()).read(fields);
                Self::Resource(key.clone()).read(fields);
            }
            Self::Entry(entry) => drop(fields.insert(entry.field())),
        }
    }

    /// Adds the key by which the field is looked up in maps of attributes.
    pub(super) fn add_key(&self, keys: &mut BTreeSet<String>) {
        match self {
            Self::Attribute(key) | Self::Either(key) => drop(keys.insert(key.clone())),
            Self::Column(_) | Self::Resource(_) | Self::Scope(_) | Self::Entry(_) => {}
        }
    }

    /// Whether it is the column of services.
    pub(super) fn is_service(&self) -> bool {
        match self {
            Self::Column(field) => *field == SERVICE,
            Self::Resource(key) => of_resource(key) == Some(SERVICE),
            Self::Attribute(_) | Self::Either(_) | Self::Scope(_) | Self::Entry(_) => false,
        }
    }

    /// Whether each row has at most one value, and many rows share a value.
    #[must_use]
    pub fn is_coded(&self) -> bool {
        match self {
            Self::Column(field) => match SPANS.schema().fields()[*field].form.parts()[0].1 {
                Kind::Wide | Kind::Narrow | Kind::Long => false,
                Kind::Text | Kind::Int | Kind::Double | Kind::Bool => true,
            },
            Self::Attribute(_) | Self::Resource(_) | Self::Either(_) | Self::Scope(_) => true,
            Self::Entry(_) => false,
        }
    }

    /// The distinct values of each wanted row: at most one, or several for list entries.
    #[must_use]
    pub fn of_rows(&self, rows: &Columns, wanted: &[usize]) -> Vec<Vec<Value<'static>>> {
        let (coding, lists) = self.coding_and_lists(rows);
        let codes = |row: usize| match lists {
            Some(lists) => coding.codes_in(lists.entries(row)),
            None => coding.codes_in(row..row + 1),
        };
        let value = |code: u32| coding.value(code).clone().into_owned();
        wanted.iter().map(|row| codes(*row).into_iter().map(value).collect()).collect()
    }

    /// The coding of the rows; or, for a list entry, the coding of the entries and their lists.
    pub(super) fn coding_and_lists<'a>(
        &self,
        rows: &'a Columns,
    ) -> (Coding<'a>, Option<&'a Lists>) {
        if let Self::Entry(entry) = self {
            return (entry.coding(rows), Some(rows.lists(entry.field())));
        }
        (self.coding(rows), None)
    }

    /// The coding of the rows. If the field is not [coded](Self::is_coded), most rows have different values.
    ///
    /// # Panics
    /// For a list entry, which has a [coding](Entry::coding) of its own.
    pub(super) fn coding<'a>(&self, rows: &'a Columns) -> Coding<'a> {
        match self {
            Self::Column(field) => column(rows, *field),
            Self::Resource(key) => resource(rows, key),
            Self::Scope(key) => members(rows.coded(SCOPE), key),
            Self::Attribute(key) => attribute(rows, key),
            Self::Either(key) => either(attribute(rows, key), resource(rows, key), rows.len()),
            Self::Entry(_) => unreachable!("a span may have several of {self:?}"),
        }
    }
}

/// The values of some rows, which are in order. If these are all rows, nothing is copied.
pub(super) fn of_rows<'a, T: Copy>(values: &'a [T], rows: &[usize]) -> Cow<'a, [T]> {
    if rows.len() == values.len() {
        return Cow::Borrowed(values);
    }
    Cow::Owned(rows.iter().map(|row| values[*row]).collect())
}

fn resource<'a>(rows: &'a Columns, key: &str) -> Coding<'a> {
    match of_resource(key) {
        Some(field) => column(rows, field),
        None => members(rows.coded(RESOURCE), key),
    }
}

/// The value of `one` in rows that have it, else the value of `other`.
fn either<'a>(one: Coding<'a>, other: Coding<'a>, len: usize) -> Coding<'a> {
    if one.values.is_empty() {
        return other;
    }
    let before = u32::try_from(one.values.len()).expect("there are no more values than rows");
    let code = |row| match (one.code(row), other.code(row)) {
        (0, 0) => 0,
        (0, code) => before + code,
        (code, _) => code,
    };
    let codes = Cow::Owned((0..len).map(code).collect());
    let mut values = one.values;
    values.extend(other.values);
    Coding { codes, values }
}

fn column(rows: &Columns, field: usize) -> Coding<'_> {
    match rows.column(field) {
        Column::One(Values::Coded(coded)) => {
            let coding = dictionary(coded, rows.schema().fields()[field].form.parts()[0].1);
            if ALWAYS.contains(&field) { coding.or_empty(rows.len()) } else { coding }
        }
        Column::One(values) => numbered(values),
        Column::Many(_) => unreachable!("lists and maps are not queried as columns"),
    }
}

/// The coding of values of a kind that have a dictionary.
fn dictionary(coded: &Coded, kind: Kind) -> Coding<'_> {
    let values = coded.dictionary.iter().map(|value| Value::of(kind, value)).collect();
    Coding { codes: Cow::Borrowed(&coded.codes), values }
}

/// Makes the coding of values that are mostly different. A zero ID is null.
fn numbered(values: &Values) -> Coding<'static> {
    fn number<T: Copy + Eq + Hash>(
        all: &[T],
        value: impl Fn(T) -> Value<'static>,
    ) -> Coding<'static> {
        let (mut known, mut values) = (HashMap::new(), Vec::new());
        let code = |each: &T| *known.entry(*each).or_insert_with(|| add(&mut values, value(*each)));
        let codes = all.iter().map(code).collect();
        Coding { codes: Cow::Owned(codes), values }
    }
    let mut coding = match values {
        Values::Wide(ids) => number(ids, Value::Id),
        Values::Narrow(ids) => number(ids, |id| Value::Id(id.into())),
        Values::Longs(longs) => return number(longs, Value::Int),
        Values::Coded(_) => unreachable!("the column has a dictionary"),
    };
    if let Some(none) = coding.values.iter().position(|id| *id == Value::Id(0)) {
        let none = u32::try_from(none + 1).expect("at most one value per row");
        coding.codes.to_mut().iter_mut().filter(|code| **code == none).for_each(|code| *code = 0);
    }
    coding
}

/// The coding of a member of objects in plain JSON.
fn members(objects: &Coded, key: &str) -> Coding<'static> {
    let mut values = Vec::new();
    let mut numbers = vec![0];
    for json in objects.dictionary.iter() {
        let value = Value::member(json, key);
        numbers.push(value.map_or(0, |value| add(&mut values, value)));
    }
    let codes = objects.codes.iter().map(|code| numbers[*code as usize]).collect();
    Coding { codes: Cow::Owned(codes), values }
}

/// The coding of an attribute, whose values are in its own column, or in the maps for their kinds.
fn attribute<'a>(rows: &'a Columns, key: &str) -> Coding<'a> {
    let own = SPANS.schema().own.get(key).map(|(field, _)| column(rows, *field));
    let mut coding = own.unwrap_or_default();
    for (field, kind) in MAPS {
        let lists = rows.lists(field);
        let [Values::Coded(keys), Values::Coded(of_keys)] = lists.parts() else { continue };
        let Some(wanted) = keys.dictionary.iter().position(|each| each == key.as_bytes()) else {
            continue;
        };
        let codes = coding.codes.to_mut();
        codes.resize(rows.len(), 0);
        let mut numbers = vec![0; of_keys.dictionary.len() as usize + 1];
        for (row, of_row) in codes.iter_mut().enumerate() {
            let mut entries = lists.entries(row);
            let Some(entry) = entries.find(|entry| keys.code(*entry) as usize == wanted + 1) else {
                continue;
            };
            let code = of_keys.code(entry);
            let number = &mut numbers[code as usize];
            if *number == 0
                && code != 0
                && let Some(value) = in_map(field, kind, of_keys.dictionary.get(code))
            {
                *number = add(&mut coding.values, value);
            }
            *of_row = *number;
        }
    }
    coding
}

fn in_map(field: usize, kind: Kind, value: &[u8]) -> Option<Value<'_>> {
    if field == ATTRIBUTES_JSON {
        return Value::of_json(serde_json::from_slice(value).ok()?);
    }
    Some(Value::of(kind, value))
}

/// Adds a value; returns its code.
fn add<'a>(values: &mut Vec<Value<'a>>, value: Value<'a>) -> u32 {
    values.push(value);
    u32::try_from(values.len()).expect("there are no more values than rows")
}

impl Entry {
    pub(super) const fn field(&self) -> usize {
        match self {
            Self::EventName | Self::Event(_) => EVENTS,
            Self::LinkTrace | Self::LinkSpan | Self::Link(_) => LINKS,
        }
    }

    /// The coding of the entries of all rows.
    pub(super) fn coding<'a>(&self, rows: &'a Columns) -> Coding<'a> {
        let parts = rows.lists(self.field()).parts();
        let coded = |part: usize| match parts.get(part) {
            Some(Values::Coded(coded)) => Some(coded),
            _ => None,
        };
        let coding = match self {
            Self::EventName => coded(1).map(|names| dictionary(names, Kind::Text)),
            Self::Event(key) => coded(2).map(|objects| members(objects, key)),
            Self::Link(key) => coded(3).map(|objects| members(objects, key)),
            Self::LinkTrace => parts.first().map(numbered),
            Self::LinkSpan => parts.get(1).map(numbered),
        };
        coding.unwrap_or_default()
    }
}
