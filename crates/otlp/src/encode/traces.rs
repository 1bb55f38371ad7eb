//! Encodes spans.

use super::batch_writer::BatchWriter;
use super::{
    BadRow, PlainValue, ResourceText, RowPart, ScopeText, attributes, enumerated, flags, id,
    number, object, text, time,
};
use curtail_protobuf as protobuf;

/// A row of the table of spans; [`crate::Span`] is one of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpanRow<'a> {
    /// The ID of its trace.
    pub trace_id: u128,
    /// Its own ID.
    pub span_id: u64,
    /// The ID of its parent; zero: none.
    pub parent_id: u64,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    /// Nanoseconds since 1970.
    pub end_ns: u64,
    /// The name of the operation.
    pub name: &'a str,
    /// W3C trace state.
    pub trace_state: &'a str,
    /// 1 internal, 2 server, 3 client, 4 producer, 5 consumer; 0: not said.
    pub kind: i32,
    /// 1 good, 2 failed; 0: not said.
    pub status: i32,
    /// The description of its status.
    pub status_message: &'a str,
    /// W3C trace flags, and whether the parent is remote.
    pub flags: u32,
    /// The number that the sender has dropped.
    pub dropped_attributes: u32,
    /// The number that the sender has dropped.
    pub dropped_events: u32,
    /// The number that the sender has dropped.
    pub dropped_links: u32,
    /// In the order of the row.
    pub attributes: &'a [(&'a str, PlainValue<'a>)],
    /// In the order of the row.
    pub events: &'a [EventRow<'a>],
    /// In the order of the row.
    pub links: &'a [LinkRow<'a>],
}

/// An event of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventRow<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Its name.
    pub name: &'a str,
    /// Plain JSON; empty: none.
    pub attributes: &'a str,
    /// The number that the sender has dropped.
    pub dropped_attributes: u32,
}

/// A link to another span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkRow<'a> {
    /// Its trace.
    pub trace_id: u128,
    /// Its ID.
    pub span_id: u64,
    /// W3C trace state.
    pub trace_state: &'a str,
    /// Plain JSON; empty: none.
    pub attributes: &'a str,
    /// The number that the sender has dropped.
    pub dropped_attributes: u32,
    /// W3C trace flags, and whether it is remote.
    pub flags: u32,
}

impl BatchWriter {
    /// Adds a span.
    ///
    /// # Errors
    /// When a text is not the plain JSON that it should be. The batch is without this span then.
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
