//! Writes the attributes of rows into columns.

use crate::columns::{Columns, is_same};
use crate::schema::envelope::{
    ATTRIBUTES_BOOL, ATTRIBUTES_DOUBLE, ATTRIBUTES_INT, ATTRIBUTES_JSON, ATTRIBUTES_TEXT,
};
use crate::schema::{Kind, OwnColumns};
use curtail_otlp::{Attribute, Slice, Value, plain};

/// The column of an attribute and the kind of its values; [`None`] if the attribute has no column of its own.
type OwnColumn = Option<(usize, Kind)>;

/// Assigns attributes to columns.
///
/// Rows of one source mostly have the same attributes in the same order, so each key is first compared with the last
/// row's. Values with a column of their own are collected for many rows and added column by column, so that the cache
/// misses of large dictionaries overlap.
#[derive(Debug)]
pub(super) struct Attributes {
    own: &'static OwnColumns,
    /// The keys of the last row, and their columns.
    last: Vec<(Vec<u8>, OwnColumn)>,
    /// The collected rows and values of each column.
    waiting: Vec<Vec<(usize, Own)>>,
    json: Vec<u8>,
}

/// A value for a column of its own.
#[derive(Clone, Copy, Debug)]
enum Own {
    Text(Slice),
    Int(i64),
}

impl Attributes {
    pub(super) const fn new(own: &'static OwnColumns) -> Self {
        Self { own, last: Vec::new(), waiting: Vec::new(), json: Vec::new() }
    }

    /// Collects the attributes of the row that is being added. [`Self::put`] adds those of several rows at once.
    pub(super) fn take(&mut self, columns: &mut Columns, attributes: &[Attribute], batch: &[u8]) {
        for (nth, attribute) in attributes.iter().enumerate() {
            let key = attribute.key.of(batch);
            let is_taken = match (self.column(nth, key), attribute.value) {
                (Some((field, Kind::Text)), Value::Text(text)) => {
                    self.waits(field, columns.len(), Own::Text(text))
                }
                (Some((field, Kind::Int)), Value::Int(number)) => {
                    self.waits(field, columns.len(), Own::Int(number))
                }
                _ => false,
            };
            if !is_taken {
                self.insert_other(columns, key, &attribute.value, batch);
            }
        }
    }

    /// Collects a value. Returns false if the row has one already: the second attribute with the same key goes into a
    /// map.
    fn waits(&mut self, field: usize, row: usize, value: Own) -> bool {
        if self.waiting.len() <= field {
            self.waiting.resize_with(field + 1, Vec::new);
        }
        let waiting = &mut self.waiting[field];
        let is_first = waiting.last().is_none_or(|(last, _)| *last != row);
        if is_first {
            waiting.push((row, value));
        }
        is_first
    }

    /// Adds the collected values to their rows, which are in the columns now.
    pub(super) fn put(&mut self, columns: &mut Columns, batch: &[u8]) {
        for (field, waiting) in self.waiting.iter_mut().enumerate() {
            if !waiting.is_empty() {
                columns.set_each(field, waiting.drain(..), |dictionary, value| match value {
                    Own::Text(text) => dictionary.intern(text.of(batch)),
                    Own::Int(number) => dictionary.intern(&number.to_le_bytes()),
                });
            }
        }
    }

    fn column(&mut self, nth: usize, key: &[u8]) -> OwnColumn {
        if let Some((last, column)) = self.last.get(nth)
            && is_same(last, key)
        {
            return *column;
        }
        let column = std::str::from_utf8(key).ok().and_then(|key| self.own.get(key).copied());
        if nth < self.last.len() {
            self.last[nth] = (key.to_vec(), column);
        } else {
            self.last.push((key.to_vec(), column));
        }
        column
    }

    /// Adds an attribute to the map of its kind.
    fn insert_other(&mut self, columns: &mut Columns, key: &[u8], value: &Value, batch: &[u8]) {
        match value {
            Value::Text(text) => entry(columns, ATTRIBUTES_TEXT, key, text.of(batch)),
            Value::Int(number) => entry(columns, ATTRIBUTES_INT, key, &number.to_le_bytes()),
            Value::Double(number) => entry(columns, ATTRIBUTES_DOUBLE, key, &number.to_le_bytes()),
            Value::Bool(is) => entry(columns, ATTRIBUTES_BOOL, key, &[u8::from(*is)]),
            Value::Empty | Value::List(_) | Value::Map(_) | Value::Bytes(_) => {
                self.json.clear();
                plain::value(&mut self.json, value, batch);
                entry(columns, ATTRIBUTES_JSON, key, &self.json);
            }
        }
    }
}

/// Sets the texts that are not empty in the row that is being added.
pub(super) fn set_texts<const N: usize>(
    columns: &mut Columns,
    texts: [(usize, Slice); N],
    batch: &[u8],
) {
    for (field, text) in texts {
        if !text.is_empty() {
            columns.set_value(field, text.of(batch));
        }
    }
}

/// Sets the numbers that are not zero in the row that is being added.
pub(super) fn set_numbers<const N: usize>(columns: &mut Columns, numbers: [(usize, i64); N]) {
    for (field, number) in numbers {
        if number != 0 {
            columns.set_value(field, &number.to_le_bytes());
        }
    }
}

fn entry(columns: &mut Columns, field: usize, key: &[u8], value: &[u8]) {
    columns.push_entry(field).coded(key).coded(value);
}
