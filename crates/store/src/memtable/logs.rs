//! Writes log records into columns.

use super::RowWriter;
use super::attributes::{set_numbers, set_texts};
use super::envelope::Shared;
use crate::columns::Columns;
use crate::schema::envelope::DROPPED_ATTRIBUTES;
use crate::schema::logs::{
    BODY, BODY_JSON, EVENT_NAME, FLAGS, OBSERVED, SEVERITY, SEVERITY_TEXT, SPAN_ID, TIME, TRACE_ID,
};
use curtail_otlp::{LogRecord, Logs, Value, plain};

impl RowWriter {
    pub(super) fn logs(&mut self, columns: &mut Columns, tenant: &str, batch: &[u8], rows: &Logs) {
        let scopes = Shared::of(columns, tenant, batch, &rows.envelope);
        for records in rows.records.chunk_by(|record, next| record.scope == next.scope) {
            scopes[records[0].scope as usize].set(columns, records.len());
            for record in records {
                self.record(columns, record, batch);
                self.attributes.take(columns, record.attributes.of(&rows.attributes), batch);
                columns.end_row();
            }
        }
    }

    fn record(&mut self, columns: &mut Columns, record: &LogRecord, batch: &[u8]) {
        columns.push_wide(TRACE_ID, record.trace_id);
        columns.push_narrow(SPAN_ID, record.span_id);
        // The decoder accepts no time of more than 63 bits.
        columns.push_long(TIME, record.time_ns.cast_signed());
        columns.push_long(OBSERVED, record.observed_ns.cast_signed());
        let texts = [(SEVERITY_TEXT, record.severity_text), (EVENT_NAME, record.event_name)];
        set_texts(columns, texts, batch);
        let numbers = [
            (SEVERITY, i64::from(record.severity)),
            (FLAGS, i64::from(record.flags)),
            (DROPPED_ATTRIBUTES, i64::from(record.dropped_attributes)),
        ];
        set_numbers(columns, numbers);
        match &record.body {
            Value::Empty => {}
            Value::Text(text) => {
                columns.set_value(BODY, text.of(batch));
            }
            other @ (Value::Bool(_)
            | Value::Int(_)
            | Value::Double(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Bytes(_)) => {
                self.json.clear();
                plain::value(&mut self.json, other, batch);
                columns.set_value(BODY_JSON, &self.json);
            }
        }
    }
}
