//! Writes rows of a table as an OTLP batch.

use crate::columns::{Columns, Values, int, text};
use crate::schema::envelope::{
    ATTRIBUTES_JSON, DROPPED_ATTRIBUTES, MAPS, RESOURCE, RESOURCE_DROPPED, RESOURCE_SCHEMA_URL,
    SCOPE, SCOPE_DROPPED, SCOPE_NAME, SCOPE_SCHEMA_URL, SCOPE_VERSION,
};
use crate::schema::{Kind, Table, logs, number, spans};
use curtail_otlp::{
    BadRow, BatchWriter, EventRow, LinkRow, LogRow, PlainValue, ResourceText, ScopeText, SpanRow,
};

/// Adds a span to a batch of traces: its attributes in the order of their columns, then the attributes in maps.
///
/// # Errors
/// When JSON in the row is invalid.
///
/// # Panics
/// When there is no such row, or the rows are not spans.
pub fn write_span(writer: &mut BatchWriter, rows: &Columns, row: usize) -> Result<(), BadRow> {
    with_span(rows, row, |resource, scope, span| writer.span(resource, scope, span))
}

/// Calls `take` with a span, its resource and its scope.
///
/// # Panics
/// When there is no such row, or the rows are not spans.
pub fn with_span<T>(
    rows: &Columns,
    row: usize,
    take: impl FnOnce(&ResourceText<'_>, &ScopeText<'_>, &SpanRow<'_>) -> T,
) -> T {
    let text = |field: usize| rows.coded(field).text(row);
    let start = rows.longs(spans::START)[row];
    let end = start.saturating_add(rows.longs(spans::DURATION)[row]);
    let (attributes, events, links) =
        (attributes(rows, row, &spans::SPANS), events(rows, row), links(rows, row));
    let span = SpanRow {
        trace_id: rows.wide(spans::TRACE_ID)[row],
        span_id: rows.narrow(spans::SPAN_ID)[row],
        parent_id: rows.narrow(spans::PARENT_ID).get(row).copied().unwrap_or(0),
        start_ns: start.cast_unsigned(),
        end_ns: end.cast_unsigned(),
        name: text(spans::NAME),
        trace_state: text(spans::TRACE_STATE),
        kind: number(&spans::KINDS, text(spans::KIND)),
        status: number(&spans::STATUSES, text(spans::STATUS)),
        status_message: text(spans::STATUS_MESSAGE),
        flags: count(rows, spans::FLAGS, row),
        dropped_attributes: count(rows, DROPPED_ATTRIBUTES, row),
        dropped_events: count(rows, spans::DROPPED_EVENTS, row),
        dropped_links: count(rows, spans::DROPPED_LINKS, row),
        attributes: &attributes,
        events: &events,
        links: &links,
    };
    take(&resource(rows, row), &scope(rows, row), &span)
}

fn events(rows: &Columns, row: usize) -> Vec<EventRow<'_>> {
    let lists = rows.lists(spans::EVENTS);
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
    let lists = rows.lists(spans::LINKS);
    let [Values::Wide(traces), Values::Narrow(span_ids), states, attributes, dropped, flags] =
        lists.parts()
    else {
        return Vec::new();
    };
    let link = |entry: usize| LinkRow {
        trace_id: traces[entry],
        span_id: span_ids[entry],
        trace_state: text(value(states, entry)),
        attributes: text(value(attributes, entry)),
        dropped_attributes: short(int(value(dropped, entry))),
        flags: short(int(value(flags, entry))),
    };
    lists.entries(row).map(link).collect()
}

/// Adds a record to a batch of logs: its attributes in the order of their columns, then the attributes in maps.
///
/// # Errors
/// When JSON in the row is invalid.
///
/// # Panics
/// When there is no such row, or the rows are not log records.
pub fn write_log(writer: &mut BatchWriter, rows: &Columns, row: usize) -> Result<(), BadRow> {
    let of = |field: usize| rows.coded(field);
    let body = of(logs::BODY).get(row).map(|body| PlainValue::Text(text(body)));
    let body =
        body.or_else(|| of(logs::BODY_JSON).get(row).map(|body| PlainValue::Json(text(body))));
    let severity = of(logs::SEVERITY).int(row).unwrap_or_default();
    let record = LogRow {
        time_ns: rows.longs(logs::TIME)[row].cast_unsigned(),
        observed_ns: rows.longs(logs::OBSERVED)[row].cast_unsigned(),
        trace_id: rows.wide(logs::TRACE_ID).get(row).copied().unwrap_or(0),
        span_id: rows.narrow(logs::SPAN_ID).get(row).copied().unwrap_or(0),
        severity: i32::try_from(severity).unwrap_or_default(),
        severity_text: of(logs::SEVERITY_TEXT).text(row),
        body,
        event_name: of(logs::EVENT_NAME).text(row),
        attributes: &attributes(rows, row, &logs::LOGS),
        dropped_attributes: count(rows, DROPPED_ATTRIBUTES, row),
        flags: count(rows, logs::FLAGS, row),
    };
    writer.record(&resource(rows, row), &scope(rows, row), &record)
}

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

/// The attributes in the order of their columns, then the attributes in maps.
fn attributes<'a>(rows: &'a Columns, row: usize, table: &Table) -> Vec<(&'a str, PlainValue<'a>)> {
    let mut attributes = Vec::new();
    for (field, key, kind) in &table.schema().keys {
        if let Some(value) = rows.coded(*field).get(row) {
            attributes.push((*key, plain(*kind, value)));
        }
    }
    for (field, kind) in MAPS {
        let lists = rows.lists(field);
        let [keys, values] = lists.parts() else { continue };
        for entry in lists.entries(row) {
            let (key, value) = (text(value(keys, entry)), value(values, entry));
            let is_json = field == ATTRIBUTES_JSON;
            let value = if is_json { PlainValue::Json(text(value)) } else { plain(kind, value) };
            attributes.push((key, value));
        }
    }
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

/// The value of an entry in a part that has a dictionary.
fn value(part: &Values, entry: usize) -> &[u8] {
    match part {
        Values::Coded(coded) => coded.get(entry).unwrap_or_default(),
        Values::Wide(_) | Values::Narrow(_) | Values::Longs(_) => &[],
    }
}
