//! Decodes spans.

use crate::attributes::{Attribute, push};
use crate::envelope::{self, Envelope, ReadRow};
use crate::error::{Broken, Malformed, Refused, RowFault};
use crate::judge::Judge;
use crate::limits::Limits;
use crate::schema::{EVENT, LINK, Message, SPAN, STATUS, TRACES};
use crate::slice::Slice;
use crate::wire::{FIXED32, FIXED64, LEN, Reader, VARINT};

/// The spans of one batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spans {
    /// The spans, in the order of the batch.
    pub spans: Vec<Span>,
    /// The attributes of spans.
    pub attributes: Vec<Attribute>,
    /// The events of spans.
    pub events: Vec<Event>,
    /// The links of spans.
    pub links: Vec<Link>,
    /// The attributes of events and links.
    pub inner_attributes: Vec<Attribute>,
    /// The resources and scopes of the rows.
    pub envelope: Envelope,
}

/// One operation of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The ID of the trace; never zero.
    pub trace_id: u128,
    /// The ID of the span; never zero.
    pub span_id: u64,
    /// The ID of the parent span; zero: none.
    pub parent_id: u64,
    /// The start, in nanoseconds since 1970, below 2^63.
    pub start_ns: u64,
    /// The end, in nanoseconds since 1970, below 2^63; may be before the start, if a clock was set.
    pub end_ns: u64,
    /// The name of the operation.
    pub name: Slice,
    /// W3C trace state.
    pub trace_state: Slice,
    /// The description of the status.
    pub status_message: Slice,
    /// The attributes, in [`Spans::attributes`].
    pub attributes: Slice,
    /// The events, in [`Spans::events`].
    pub events: Slice,
    /// The links, in [`Spans::links`].
    pub links: Slice,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
    /// The number of events that the sender dropped.
    pub dropped_events: u32,
    /// The number of links that the sender dropped.
    pub dropped_links: u32,
    /// W3C trace flags, and whether the parent is remote.
    pub flags: u32,
    /// The index of the scope in [`Envelope::scopes`].
    pub scope: u32,
    /// 1 internal, 2 server, 3 client, 4 producer, 5 consumer; 0: unset. Other numbers are kept as sent.
    pub kind: i32,
    /// 1 ok, 2 error; 0: unset.
    pub status: i32,
}

/// An event of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The time, in nanoseconds since 1970, below 2^63.
    pub time_ns: u64,
    /// The name.
    pub name: Slice,
    /// The attributes, in [`Spans::inner_attributes`].
    pub attributes: Slice,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
}

/// A link to another span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The ID of the linked trace.
    pub trace_id: u128,
    /// The ID of the linked span.
    pub span_id: u64,
    /// W3C trace state.
    pub trace_state: Slice,
    /// The attributes, in [`Spans::inner_attributes`].
    pub attributes: Slice,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
    /// W3C trace flags, and whether the linked span is remote.
    pub flags: u32,
}

impl Spans {
    /// Reads a batch: an `ExportTraceServiceRequest` or `TracesData`, which have the same encoding.
    ///
    /// # Errors
    /// When the batch is malformed, which rejects the whole batch. Spans that cannot be stored are only counted.
    pub fn decode(batch: &[u8], limits: &Limits) -> Result<(Self, Refused), Malformed> {
        let (spans, envelope, refused) =
            envelope::decode::<Self>(batch, limits).map_err(|broken| *broken)?;
        Ok((Self { envelope, ..spans }, refused))
    }

    /// Truncates the lists to these lengths.
    fn cut(&mut self, lens: [usize; 4]) {
        self.attributes.truncate(lens[0]);
        self.events.truncate(lens[1]);
        self.links.truncate(lens[2]);
        self.inner_attributes.truncate(lens[3]);
    }
}

impl ReadRow for Spans {
    const BATCH: &'static Message = &TRACES;

    /// Reserves capacity for the usual number of rows, because growing lists takes as much time as reading some rows.
    fn of_bytes(bytes: usize) -> Self {
        Self {
            spans: Vec::with_capacity(bytes / 384),
            attributes: Vec::with_capacity(bytes / 40),
            ..Self::default()
        }
    }

    fn read_row(
        &mut self,
        within: &mut Reader<'_>,
        scope: u32,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        let lens @ [attributes, events, links, _] = [
            self.attributes.len(),
            self.events.len(),
            self.links.len(),
            self.inner_attributes.len(),
        ];
        judge.part(within)?;
        let mut reader = within.message(&SPAN)?;
        let mut span = Span { scope, ..Span::default() };
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, LEN) => span.trace_id = u128::from_be_bytes(id(&mut reader)?),
                (2, LEN) => span.span_id = u64::from_be_bytes(id(&mut reader)?),
                (3, LEN) => span.trace_state = judge.checked(&mut reader)?,
                (4, LEN) => span.parent_id = parent_id(&mut reader, judge)?,
                (5, LEN) => span.name = judge.checked(&mut reader)?,
                (6, VARINT) => span.kind = reader.enumerated()?,
                (7, FIXED64) => span.start_ns = judge.time(&mut reader)?,
                (8, FIXED64) => span.end_ns = judge.time(&mut reader)?,
                (9, LEN) => push(&mut reader, &mut self.attributes, attributes, judge)?,
                (10, VARINT) => span.dropped_attributes = reader.count()?,
                (11, LEN) => self.event(&mut reader, events, judge)?,
                (12, VARINT) => span.dropped_events = reader.count()?,
                (13, LEN) => self.link(&mut reader, links, judge)?,
                (14, VARINT) => span.dropped_links = reader.count()?,
                (15, LEN) => status(&mut reader, &mut span, judge)?,
                (16, FIXED32) => span.flags = reader.fixed32()?,
                _ => reader.other(tag)?,
            }
        }
        if span.trace_id == 0 {
            judge.refuse(RowFault::TraceId);
        }
        if span.span_id == 0 {
            judge.refuse(RowFault::SpanId);
        }
        if judge.keeps(span.trace_id, span.span_id) {
            span.attributes = Slice::to_end(attributes, &self.attributes);
            span.events = Slice::to_end(events, &self.events);
            span.links = Slice::to_end(links, &self.links);
            self.spans.push(span);
        } else {
            self.cut(lens);
        }
        Ok(())
    }
}

impl Spans {
    fn event(
        &mut self,
        within: &mut Reader<'_>,
        from: usize,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        let inner = self.inner_attributes.len();
        judge.part(within)?;
        let mut reader = within.message(&EVENT)?;
        let mut event = Event::default();
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, FIXED64) => event.time_ns = judge.time(&mut reader)?,
                (2, LEN) => event.name = judge.checked(&mut reader)?,
                (3, LEN) => push(&mut reader, &mut self.inner_attributes, inner, judge)?,
                (4, VARINT) => event.dropped_attributes = reader.count()?,
                _ => reader.other(tag)?,
            }
        }
        event.attributes = Slice::to_end(inner, &self.inner_attributes);
        bounded(&mut self.events, from, event, judge);
        Ok(())
    }

    fn link(
        &mut self,
        within: &mut Reader<'_>,
        from: usize,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        let inner = self.inner_attributes.len();
        judge.part(within)?;
        let mut reader = within.message(&LINK)?;
        let mut link = Link::default();
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, LEN) => link.trace_id = u128::from_be_bytes(id(&mut reader)?),
                (2, LEN) => link.span_id = u64::from_be_bytes(id(&mut reader)?),
                (3, LEN) => link.trace_state = judge.checked(&mut reader)?,
                (4, LEN) => push(&mut reader, &mut self.inner_attributes, inner, judge)?,
                (5, VARINT) => link.dropped_attributes = reader.count()?,
                (6, FIXED32) => link.flags = reader.fixed32()?,
                _ => reader.other(tag)?,
            }
        }
        if link.trace_id == 0 || link.span_id == 0 {
            judge.refuse(RowFault::LinkId);
        }
        link.attributes = Slice::to_end(inner, &self.inner_attributes);
        bounded(&mut self.links, from, link, judge);
        Ok(())
    }
}

fn bounded<T>(into: &mut Vec<T>, from: usize, what: T, judge: &mut Judge<'_>) {
    if into.len() - from < judge.limits.events as usize {
        into.push(what);
    } else {
        judge.refuse(RowFault::Events { max: judge.limits.events });
    }
}

fn status(within: &mut Reader<'_>, span: &mut Span, judge: &mut Judge<'_>) -> Result<(), Broken> {
    let mut reader = within.message(&STATUS)?;
    while let Some(tag) = reader.tag()? {
        match (tag.field, tag.wire_type) {
            (2, LEN) => span.status_message = judge.checked(&mut reader)?,
            (3, VARINT) => span.status = reader.enumerated()?,
            _ => reader.other(tag)?,
        }
    }
    Ok(())
}

/// Reads a required ID; an ID of another length becomes zero, which is invalid.
#[inline]
pub(crate) fn id<const N: usize>(reader: &mut Reader<'_>) -> Result<[u8; N], Broken> {
    let slice = reader.slice()?;
    Ok(reader.bytes(slice).try_into().unwrap_or([0; N]))
}

/// Reads an optional ID, which is absent if it is empty or all zeros.
fn parent_id(reader: &mut Reader<'_>, judge: &mut Judge<'_>) -> Result<u64, Broken> {
    let slice = reader.slice()?;
    let bytes = reader.bytes(slice);
    if let Ok(id) = bytes.try_into() {
        return Ok(u64::from_be_bytes(id));
    }
    if !bytes.is_empty() {
        judge.refuse(RowFault::ParentId);
    }
    Ok(0)
}

#[cfg(test)]
mod tests;
