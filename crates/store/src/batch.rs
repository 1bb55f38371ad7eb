//! Rows of a table as a batch of OTLP.

mod logs;
mod points;
mod spans;

pub use logs::write_log;
pub use points::write_point;
pub use spans::{with_span, write_span};

use crate::columns::{Columns, Values, int, text};
use crate::schema::envelope::{
    ATTRIBUTES_BOOL, ATTRIBUTES_DOUBLE, ATTRIBUTES_INT, ATTRIBUTES_JSON, ATTRIBUTES_TEXT, RESOURCE,
    RESOURCE_DROPPED, RESOURCE_SCHEMA_URL, SCOPE, SCOPE_DROPPED, SCOPE_NAME, SCOPE_SCHEMA_URL,
    SCOPE_VERSION,
};
use crate::schema::{Kind, Table};
use curtail_otlp::{PlainValue, ResourceText, ScopeText};

/// The resource of a row.
fn resource(rows: &Columns, row: usize) -> ResourceText<'_> {
    let text = |field: usize| rows.coded(field).text(row);
    ResourceText {
        attributes: text(RESOURCE),
        dropped_attributes: count(rows, RESOURCE_DROPPED, row),
        schema_url: text(RESOURCE_SCHEMA_URL),
    }
}

/// The scope of a row.
fn scope(rows: &Columns, row: usize) -> ScopeText<'_> {
    let text = |field: usize| rows.coded(field).text(row);
    ScopeText {
        name: text(SCOPE_NAME),
        version: text(SCOPE_VERSION),
        attributes: text(SCOPE),
        dropped_attributes: count(rows, SCOPE_DROPPED, row),
        schema_url: text(SCOPE_SCHEMA_URL),
    }
}

/// A count of 32 bits.
fn count(rows: &Columns, field: usize, row: usize) -> u32 {
    rows.coded(field).int(row).map_or(0, short)
}

fn short(number: i64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

/// The attributes in the order of their columns, then those in maps.
fn attributes<'a>(rows: &'a Columns, row: usize, table: &Table) -> Vec<(&'a str, PlainValue<'a>)> {
    let mut attributes = Vec::new();
    for (field, key, kind) in table.keys() {
        if let Some(value) = rows.coded(*field).get(row) {
            attributes.push((*key, plain(*kind, value)));
        }
    }
    let maps = [
        (ATTRIBUTES_TEXT, Kind::Text),
        (ATTRIBUTES_INT, Kind::Int),
        (ATTRIBUTES_DOUBLE, Kind::Double),
        (ATTRIBUTES_BOOL, Kind::Bool),
    ];
    for (field, kind) in maps {
        entries(rows, field, row, |key, value| attributes.push((key, plain(kind, value))));
    }
    entries(rows, ATTRIBUTES_JSON, row, |key, value| {
        attributes.push((key, PlainValue::Json(text(value))));
    });
    attributes
}

fn plain(kind: Kind, value: &[u8]) -> PlainValue<'_> {
    match kind {
        Kind::Int | Kind::Long => PlainValue::Int(int(value)),
        Kind::Double => PlainValue::Double(f64::from_bits(int(value).cast_unsigned())),
        Kind::Bool => PlainValue::Bool(value != [0]),
        Kind::Text | Kind::Wide | Kind::Narrow => PlainValue::Text(text(value)),
    }
}

/// Keys and values of a row's map.
fn entries<'a>(
    rows: &'a Columns,
    field: usize,
    row: usize,
    mut take: impl FnMut(&'a str, &'a [u8]),
) {
    let lists = rows.lists(field);
    if let [keys, values] = lists.parts() {
        for entry in lists.entries(row) {
            take(text(value(keys, entry)), value(values, entry));
        }
    }
}

/// A part of an entry that has a dictionary.
fn value(part: &Values, entry: usize) -> &[u8] {
    match part {
        Values::Coded(coded) => coded.get(entry).unwrap_or_default(),
        Values::Wide(_) | Values::Narrow(_) | Values::Longs(_) => &[],
    }
}
