//! Rows of the table of spans.

use super::{attributes, count, resource, scope, short, value};
use crate::columns::{Columns, Values, int, text};
use crate::schema::envelope::DROPPED_ATTRIBUTES;
use crate::schema::number;
use crate::schema::spans::{
    DROPPED_EVENTS, DROPPED_LINKS, DURATION, EVENTS, FLAGS, KIND, KINDS, LINKS, NAME, PARENT_ID,
    SPAN_ID, SPANS, START, STATUS, STATUS_MESSAGE, STATUSES, TRACE_ID, TRACE_STATE,
};
use curtail_otlp::{BadRow, BatchWriter, EventRow, LinkRow, ResourceText, ScopeText, SpanRow};

/// Adds a span to a batch of traces. Its attributes come in the order of their columns, then those in maps.
///
/// # Errors
/// When what should be JSON in the row is none.
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
    let start = rows.longs(START)[row];
    let end = start.saturating_add(rows.longs(DURATION)[row]);
    let (attributes, events, links) =
        (attributes(rows, row, &SPANS), events(rows, row), links(rows, row));
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
    take(&resource(rows, row), &scope(rows, row), &span)
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
