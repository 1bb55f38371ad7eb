//! Encodes log records.

use super::batch_writer::BatchWriter;
use super::{
    BadRow, PlainValue, ResourceText, RowPart, ScopeText, attributes, enumerated, flags, id,
    number, text, time,
};
use curtail_protobuf as protobuf;

/// A row of the table of log records; [`crate::LogRecord`] is one of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogRow<'a> {
    /// The time at which it happened, in nanoseconds since 1970; zero: unset.
    pub time_ns: u64,
    /// The time at which it was observed, in nanoseconds since 1970.
    pub observed_ns: u64,
    /// The ID of its trace; zero: none.
    pub trace_id: u128,
    /// The ID of its span; zero: none.
    pub span_id: u64,
    /// 1 to 24, from trace to fatal; 0: not said.
    pub severity: i32,
    /// The severity as its source names it.
    pub severity_text: &'a str,
    /// The body.
    pub body: Option<PlainValue<'a>>,
    /// The name of its kind of event.
    pub event_name: &'a str,
    /// In the order of the row.
    pub attributes: &'a [(&'a str, PlainValue<'a>)],
    /// The number that the sender has dropped.
    pub dropped_attributes: u32,
    /// W3C trace flags.
    pub flags: u32,
}

impl BatchWriter {
    /// Adds a log record.
    ///
    /// # Errors
    /// When a text is not the plain JSON that it should be. The batch is without this record then.
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
