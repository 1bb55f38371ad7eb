//! Rows of the table of logs.

use super::{attributes, count, resource, scope};
use crate::columns::{Columns, text};
use crate::schema::envelope::DROPPED_ATTRIBUTES;
use crate::schema::logs::{
    BODY, BODY_JSON, EVENT_NAME, FLAGS, LOGS, OBSERVED, SEVERITY, SEVERITY_TEXT, SPAN_ID, TIME,
    TRACE_ID,
};
use curtail_otlp::{BadRow, BatchWriter, LogRow, PlainValue};

/// Adds a record to a batch of logs. Its attributes come in the order of their columns, then those in maps.
///
/// # Errors
/// When what should be JSON in the row is none.
///
/// # Panics
/// When there is no such row, or the rows are not log records.
pub fn write_log(writer: &mut BatchWriter, rows: &Columns, row: usize) -> Result<(), BadRow> {
    let of = |field: usize| rows.coded(field);
    let body = of(BODY).get(row).map(|body| PlainValue::Text(text(body)));
    let body = body.or_else(|| of(BODY_JSON).get(row).map(|body| PlainValue::Json(text(body))));
    let severity = of(SEVERITY).int(row).unwrap_or_default();
    let record = LogRow {
        time_ns: rows.longs(TIME)[row].cast_unsigned(),
        observed_ns: rows.longs(OBSERVED)[row].cast_unsigned(),
        trace_id: rows.wide(TRACE_ID).get(row).copied().unwrap_or(0),
        span_id: rows.narrow(SPAN_ID).get(row).copied().unwrap_or(0),
        severity: i32::try_from(severity).unwrap_or_default(),
        severity_text: of(SEVERITY_TEXT).text(row),
        body,
        event_name: of(EVENT_NAME).text(row),
        attributes: &attributes(rows, row, &LOGS),
        dropped_attributes: count(rows, DROPPED_ATTRIBUTES, row),
        flags: count(rows, FLAGS, row),
    };
    writer.record(&resource(rows, row), &scope(rows, row), &record)
}
