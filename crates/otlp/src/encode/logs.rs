//! Encodes log records.

use super::batch_writer::BatchWriter;
use super::{
    BadRow, PlainValue, ResourceText, RowPart, ScopeText, attributes, enumerated, flags, id,
    number, text, time,
};
use curtail_protobuf as protobuf;

/// A row of the table of log records. A [`crate::LogRecord`] is a row of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogRow<'a> {
    /// The time of the event, in nanoseconds since 1970; zero: unset.
    pub time_ns: u64,
    /// The time of the observation, in nanoseconds since 1970.
    pub observed_ns: u64,
    /// The ID of the trace; zero: none.
    pub trace_id: u128,
    /// The ID of the span; zero: none.
    pub span_id: u64,
    /// 1 to 24, from trace to fatal; 0: unset.
    pub severity: i32,
    /// The severity in the words of the source.
    pub severity_text: &'a str,
    /// The body.
    pub body: Option<PlainValue<'a>>,
    /// The name of the kind of event.
    pub event_name: &'a str,
    /// The attributes, in the order of the row.
    pub attributes: &'a [(&'a str, PlainValue<'a>)],
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
    /// W3C trace flags.
    pub flags: u32,
}

impl BatchWriter {
    /// Adds a log record.
    ///
    /// # Errors
    /// When a text that must be plain JSON is not. The record is then not in the batch.
    pub fn record(
        &mut self,
        resource: &ResourceText<'_>,
        scope: &ScopeText<'_>,
        record: &LogRow<'_>,
    ) -> Result<(), BadRow> {
        self.row(resource, scope, |out| record.write(out))
    }
}

impl LogRow<'_> {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), BadRow> {
        time(out, 1, self.time_ns);
        enumerated(out, 2, self.severity);
        text(out, 3, self.severity_text);
        if let Some(body) = self.body {
            protobuf::long_message_field(out, 5, |out| body.write(out))
                .map_err(|fault| RowPart::Body.is(fault))?;
        }
        attributes(out, 6, self.attributes)?;
        number(out, 7, self.dropped_attributes);
        flags(out, 8, self.flags);
        id(out, 9, self.trace_id.to_be_bytes());
        id(out, 10, self.span_id.to_be_bytes());
        time(out, 11, self.observed_ns);
        text(out, 12, self.event_name);
        Ok(())
    }
}
