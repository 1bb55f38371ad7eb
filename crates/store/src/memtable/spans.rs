//! Writes spans into columns.

use super::RowWriter;
use super::attributes::{set_numbers, set_texts};
use super::envelope::Shared;
use crate::columns::Columns;
use crate::schema::envelope::DROPPED_ATTRIBUTES;
use crate::schema::spans::{
    DROPPED_EVENTS, DROPPED_LINKS, DURATION, EVENTS, FLAGS, KIND, KINDS, LINKS, NAME, PARENT_ID,
    SPAN_ID, START, STATUS, STATUS_MESSAGE, STATUSES, TRACE_ID, TRACE_STATE,
};
use crate::schema::with_name;
use curtail_otlp::{Span, Spans, plain};

impl RowWriter {
    pub(super) fn spans(
        &mut self,
        columns: &mut Columns,
        tenant: &str,
        batch: &[u8],
        rows: &Spans,
    ) {
        let scopes = Shared::of(columns, tenant, batch, &rows.envelope);
        for spans in rows.spans.chunk_by(|span, next| span.scope == next.scope) {
            scopes[spans[0].scope as usize].set(columns, spans.len());
            for span in spans {
                Self::span(columns, span, batch);
                self.attributes.take(columns, span.attributes.of(&rows.attributes), batch);
                self.events_and_links(columns, span, rows, batch);
                columns.end_row();
            }
        }
    }

    fn span(columns: &mut Columns, span: &Span, batch: &[u8]) {
        columns.push_wide(TRACE_ID, span.trace_id);
        columns.push_narrow(SPAN_ID, span.span_id);
        columns.push_narrow(PARENT_ID, span.parent_id);
        let (start, end) = (span.start_ns.cast_signed(), span.end_ns.cast_signed());
        columns.push_long(START, start);
        // The decoder accepts no time of more than 63 bits.
        columns.push_long(DURATION, end - start);
        with_name(&KINDS, span.kind, |name| columns.set_value(KIND, name.as_bytes()));
        with_name(&STATUSES, span.status, |name| columns.set_value(STATUS, name.as_bytes()));
        let texts = [
            (NAME, span.name),
            (STATUS_MESSAGE, span.status_message),
            (TRACE_STATE, span.trace_state),
        ];
        set_texts(columns, texts, batch);
        let counts = [
            (FLAGS, span.flags),
            (DROPPED_ATTRIBUTES, span.dropped_attributes),
            (DROPPED_EVENTS, span.dropped_events),
            (DROPPED_LINKS, span.dropped_links),
        ];
        set_numbers(columns, counts.map(|(field, count)| (field, i64::from(count))));
    }

    fn events_and_links(&mut self, columns: &mut Columns, span: &Span, rows: &Spans, batch: &[u8]) {
        for event in span.events.of(&rows.events) {
            self.json.clear();
            let attributes = event.attributes.of(&rows.inner_attributes);
            plain::attributes(&mut self.json, attributes, batch);
            columns
                .push_entry(EVENTS)
                .long(event.time_ns.cast_signed())
                .coded(event.name.of(batch))
                .coded(&self.json)
                .coded(&i64::from(event.dropped_attributes).to_le_bytes());
        }
        for link in span.links.of(&rows.links) {
            self.json.clear();
            let attributes = link.attributes.of(&rows.inner_attributes);
            plain::attributes(&mut self.json, attributes, batch);
            columns
                .push_entry(LINKS)
                .wide(link.trace_id)
                .narrow(link.span_id)
                .coded(link.trace_state.of(batch))
                .coded(&self.json)
                .coded(&i64::from(link.dropped_attributes).to_le_bytes())
                .coded(&i64::from(link.flags).to_le_bytes());
        }
    }
}
