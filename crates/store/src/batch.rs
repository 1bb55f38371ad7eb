//! Rows of the table of spans as a batch of OTLP again: what a trace is answered with.

use crate::columns::{Columns, Values, int, text};
use crate::schema::Kind;
use crate::schema::envelope::{
    ATTRIBUTES_BOOL, ATTRIBUTES_DOUBLE, ATTRIBUTES_INT, ATTRIBUTES_JSON, ATTRIBUTES_TEXT,
    DROPPED_ATTRIBUTES, RESOURCE, RESOURCE_DROPPED, RESOURCE_SCHEMA_URL, SCOPE, SCOPE_DROPPED,
    SCOPE_NAME, SCOPE_SCHEMA_URL, SCOPE_VERSION,
};
use crate::schema::spans::{
    DROPPED_EVENTS, DROPPED_LINKS, DURATION, EVENTS, FLAGS, KIND, KINDS, LINKS, NAME, PARENT_ID,
    SPAN_ID, SPANS, START, STATUS, STATUS_MESSAGE, STATUSES, TRACE_ID, TRACE_STATE, number,
};
use curtail_otlp::{
    BadRow, EventRow, LinkRow, PlainValue, ResourceText, ScopeText, SpanRow, TracesWriter,
};

/// Adds a span to a batch of traces. Its attributes come in the order of their columns, then those in maps.
///
/// # Errors
/// When what should be JSON in the row is none.
///
/// # Panics
/// When there is no such row, or the rows are not spans.
pub fn write_span(writer: &mut TracesWriter, rows: &Columns, row: usize) -> Result<(), BadRow> {
    let text = |field: usize| rows.coded(field).text(row);
    let resource = ResourceText {
        attributes: text(RESOURCE),
        dropped_attributes: count(rows, RESOURCE_DROPPED, row),
        schema_url: text(RESOURCE_SCHEMA_URL),
    };
    let scope = ScopeText {
        name: text(SCOPE_NAME),
        version: text(SCOPE_VERSION),
        attributes: text(SCOPE),
        dropped_attributes: count(rows, SCOPE_DROPPED, row),
        schema_url: text(SCOPE_SCHEMA_URL),
    };
    let start = rows.longs(START)[row];
    let end = start.saturating_add(rows.longs(DURATION)[row]);
    let (attributes, events, links) = (attributes(rows, row), events(rows, row), links(rows, row));
    let span = SpanRow {
        trace_id: rows.wide(TRACE_ID)[row],
        span_id: rows.narrow(SPAN_ID)[row],
        parent_id: rows.narrow(PARENT_ID).get(row).copied().unwrap_or(0),
        start_ns: start.cast_unsigned(),
        end_ns: end.cast_unsigned(),
        name: text(NAME),
        trace_state: text(TRACE_STATE),
        kind: number(&KINDS, text(KIND)),
        status: number(&STATUSES, text(STATUS)),
        status_message: text(STATUS_MESSAGE),
        flags: count(rows, FLAGS, row),
        dropped_attributes: count(rows, DROPPED_ATTRIBUTES, row),
        dropped_events: count(rows, DROPPED_EVENTS, row),
        dropped_links: count(rows, DROPPED_LINKS, row),
        attributes: &attributes,
        events: &events,
        links: &links,
    };
    writer.span(&resource, &scope, &span)
}

/// What came with 32 bits.
fn count(rows: &Columns, field: usize, row: usize) -> u32 {
    rows.coded(field).int(row).map_or(0, short)
}

fn short(number: i64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

fn attributes(rows: &Columns, row: usize) -> Vec<(&str, PlainValue<'_>)> {
    let mut attributes = Vec::new();
    for (field, key, kind) in SPANS.keys() {
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

fn events(rows: &Columns, row: usize) -> Vec<EventRow<'_>> {
    let lists = rows.lists(EVENTS);
    let [Values::Longs(times), names, attributes, dropped] = lists.parts() else {
        return Vec::new();
    };
    let event = |entry: usize| EventRow {
        time_ns: times[entry].cast_unsigned(),
        name: text(value(names, entry)),
        attributes: text(value(attributes, entry)),
        dropped_attributes: short(int(value(dropped, entry))),
    };
    lists.entries(row).map(event).collect()
}

fn links(rows: &Columns, row: usize) -> Vec<LinkRow<'_>> {
    let lists = rows.lists(LINKS);
    let [Values::Wide(traces), Values::Narrow(spans), states, attributes, dropped, flags] =
        lists.parts()
    else {
        return Vec::new();
    };
    let link = |entry: usize| LinkRow {
        trace_id: traces[entry],
        span_id: spans[entry],
        trace_state: text(value(states, entry)),
        attributes: text(value(attributes, entry)),
        dropped_attributes: short(int(value(dropped, entry))),
        flags: short(int(value(flags, entry))),
    };
    lists.entries(row).map(link).collect()
}
