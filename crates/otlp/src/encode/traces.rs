//! Encodes spans.

use super::batch_writer::BatchWriter;
use super::{
    BadRow, PlainValue, ResourceText, RowPart, ScopeText, attributes, enumerated, flags, id,
    number, object, text, time,
};
use curtail_protobuf as protobuf;

/// A row of the table of spans. A [`crate::Span`] is a row of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpanRow<'a> {
    /// The ID of the trace.
    pub trace_id: u128,
    /// The ID of the span.
    pub span_id: u64,
    /// The ID of the parent span; zero: none.
    pub parent_id: u64,
    /// The start, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The end, in nanoseconds since 1970.
    pub end_ns: u64,
    /// The name of the operation.
    pub name: &'a str,
    /// W3C trace state.
    pub trace_state: &'a str,
    /// 1 internal, 2 server, 3 client, 4 producer, 5 consumer; 0: unset.
    pub kind: i32,
    /// 1 ok, 2 error; 0: unset.
    pub status: i32,
    /// The description of the status.
    pub status_message: &'a str,
    /// W3C trace flags, and whether the parent is remote.
    pub flags: u32,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
    /// The number of events that the sender dropped.
    pub dropped_events: u32,
    /// The number of links that the sender dropped.
    pub dropped_links: u32,
    /// The attributes, in the order of the row.
    pub attributes: &'a [(&'a str, PlainValue<'a>)],
    /// The events, in the order of the row.
    pub events: &'a [EventRow<'a>],
    /// The links, in the order of the row.
    pub links: &'a [LinkRow<'a>],
}

/// An event of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventRow<'a> {
    /// The time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The name.
    pub name: &'a str,
    /// The attributes in plain JSON; empty: none.
    pub attributes: &'a str,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
}

/// A link to another span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkRow<'a> {
    /// The ID of the linked trace.
    pub trace_id: u128,
    /// The ID of the linked span.
    pub span_id: u64,
    /// W3C trace state.
    pub trace_state: &'a str,
    /// The attributes in plain JSON; empty: none.
    pub attributes: &'a str,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
    /// W3C trace flags, and whether the linked span is remote.
    pub flags: u32,
}

impl BatchWriter {
    /// Adds a span.
    ///
    /// # Errors
    /// When a text that must be plain JSON is not. The span is then not in the batch.
    pub fn span(
        &mut self,
        resource: &ResourceText<'_>,
        scope: &ScopeText<'_>,
        span: &SpanRow<'_>,
    ) -> Result<(), BadRow> {
        self.row(resource, scope, |out| span.write(out))
    }
}

impl SpanRow<'_> {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), BadRow> {
        id(out, 1, self.trace_id.to_be_bytes());
        id(out, 2, self.span_id.to_be_bytes());
        text(out, 3, self.trace_state);
        id(out, 4, self.parent_id.to_be_bytes());
        text(out, 5, self.name);
        enumerated(out, 6, self.kind);
        time(out, 7, self.start_ns);
        time(out, 8, self.end_ns);
        attributes(out, 9, self.attributes)?;
        number(out, 10, self.dropped_attributes);
        for (nth, event) in self.events.iter().enumerate() {
            protobuf::long_message_field(out, 11, |out| event.write(out, nth))?;
        }
        number(out, 12, self.dropped_events);
        for (nth, link) in self.links.iter().enumerate() {
            protobuf::long_message_field(out, 13, |out| link.write(out, nth))?;
        }
        number(out, 14, self.dropped_links);
        protobuf::long_message_field(out, 15, |out| {
            text(out, 2, self.status_message);
            enumerated(out, 3, self.status);
        });
        flags(out, 16, self.flags);
        Ok(())
    }
}

impl EventRow<'_> {
    fn write(&self, out: &mut Vec<u8>, nth: usize) -> Result<(), BadRow> {
        time(out, 1, self.time_ns);
        text(out, 2, self.name);
        object(out, 3, self.attributes).map_err(|fault| RowPart::Event(nth).is(fault))?;
        number(out, 4, self.dropped_attributes);
        Ok(())
    }
}

impl LinkRow<'_> {
    fn write(&self, out: &mut Vec<u8>, nth: usize) -> Result<(), BadRow> {
        id(out, 1, self.trace_id.to_be_bytes());
        id(out, 2, self.span_id.to_be_bytes());
        text(out, 3, self.trace_state);
        object(out, 4, self.attributes).map_err(|fault| RowPart::Link(nth).is(fault))?;
        number(out, 5, self.dropped_attributes);
        flags(out, 6, self.flags);
        Ok(())
    }
}
