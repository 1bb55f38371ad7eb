//! The memtable: what came since the last run, in memory, in the order in which it came.
//!
//! Spans are put into [`Columns`] as they come, so what is in memory is asked in the same way as what is in
//! runs, and takes about as much as it says: texts that repeat are there once. Rows are put in the order of a
//! run only when it is written.
//!
//! **Limits**: none of its own; whoever fills it looks at [`Memtable::bytes`] and begins another.

mod attributes;

use crate::columns::Columns;
use crate::run::GROUP_ROWS;
use crate::schema::spans::{
    DROPPED_ATTRIBUTES, DROPPED_EVENTS, DROPPED_LINKS, DURATION, EVENTS, FLAGS, KIND, KINDS, LINKS,
    NAME, PARENT_ID, RESOURCE, RESOURCE_DROPPED, RESOURCE_SCHEMA_URL, SCOPE, SCOPE_DROPPED,
    SCOPE_NAME, SCOPE_SCHEMA_URL, SCOPE_VERSION, SPAN_ID, SPANS, START, STATUS, STATUS_MESSAGE,
    STATUSES, TENANT, TRACE_ID, TRACE_STATE, with_name,
};
use crate::sort::{Key, Place, sort};
use attributes::SpanAttributes;
use curtail_otlp::{Attribute, Resource, Scope, Slice, Span, Spans, Value, plain};

/// Spans that came, and how to find one in them.
#[derive(Debug)]
pub struct Memtable {
    columns: Columns,
    attributes: SpanAttributes,
    json: Vec<u8>,
}

impl Default for Memtable {
    fn default() -> Self {
        let columns = Columns::new(SPANS.schema());
        Self { columns, attributes: SpanAttributes::default(), json: Vec::new() }
    }
}

/// Values that all spans of a scope have: fields, and numbers in their dictionaries.
type Shared = Vec<(usize, u32)>;

impl Memtable {
    /// Adds the spans of a batch; `rows` is what was read of it.
    ///
    /// # Panics
    /// When `rows` were read of another batch.
    pub fn insert(&mut self, tenant: &str, batch: &[u8], rows: &Spans) {
        let tenant = (TENANT, self.columns.intern(TENANT, tenant.as_bytes()));
        let around = &rows.envelope;
        let resources: Vec<Shared> = around
            .resources
            .iter()
            .map(|resource| {
                self.resource(resource, resource.attributes.of(&around.attributes), batch)
            })
            .collect();
        let scopes: Vec<Shared> = around
            .scopes
            .iter()
            .map(|scope| {
                let mut shared = resources[scope.resource as usize].clone();
                shared.push(tenant);
                self.scope(&mut shared, scope, scope.attributes.of(&around.attributes), batch);
                shared
            })
            .collect();
        for spans in rows.spans.chunk_by(|span, next| span.scope == next.scope) {
            for (field, code) in &scopes[spans[0].scope as usize] {
                self.columns.set_many(*field, *code, spans.len());
            }
            for span in spans {
                self.span(span, batch);
                let of_span = span.attributes.of(&rows.attributes);
                self.attributes.insert(&mut self.columns, of_span, batch);
                self.events_and_links(span, rows, batch);
                self.columns.end_row();
            }
        }
    }

    /// What all of it takes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.columns.bytes()
    }

    /// How many spans there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The spans, in the order in which they came.
    #[must_use]
    pub const fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The rows of a trace, in the order in which they came.
    pub fn trace(&self, trace_id: u128) -> impl Iterator<Item = usize> {
        let ids = self.columns.wide(TRACE_ID).iter().enumerate();
        ids.filter(move |(_, id)| **id == trace_id).map(|(row, _)| row)
    }

    /// All spans in the order of a run, by trace and then by start, as the row groups of one.
    pub fn sorted(&self) -> impl Iterator<Item = Columns> {
        let ids = self.columns.wide(TRACE_ID).iter().zip(self.columns.longs(START));
        let mut keys: Vec<Key> = (0..)
            .zip(ids)
            .map(|(row, (trace_id, start_ns))| Key {
                trace_id: *trace_id,
                start_ns: start_ns.cast_unsigned(),
                place: Place { batch: 0, row },
            })
            .collect();
        sort(&mut keys);
        let places: Vec<_> = keys.iter().map(|key| key.place).collect();
        let groups = places.len().div_ceil(GROUP_ROWS);
        (0..groups).map(move |nth| {
            let of_group = &places[nth * GROUP_ROWS..((nth + 1) * GROUP_ROWS).min(places.len())];
            Columns::gather(SPANS.schema(), &[&self.columns], of_group)
        })
    }

    fn resource(&mut self, resource: &Resource, attributes: &[Attribute], batch: &[u8]) -> Shared {
        let mut shared = Shared::new();
        for attribute in attributes {
            let Value::Text(text) = attribute.value else { continue };
            let key = std::str::from_utf8(attribute.key.of(batch)).unwrap_or_default();
            if let Some(field) = SPANS.of_resource(key) {
                shared.push((field, self.columns.intern(field, text.of(batch))));
            }
        }
        self.json(&mut shared, RESOURCE, attributes, batch);
        self.count(&mut shared, RESOURCE_DROPPED, resource.dropped_attributes);
        self.text(&mut shared, RESOURCE_SCHEMA_URL, resource.schema_url, batch);
        shared
    }

    fn scope(
        &mut self,
        shared: &mut Shared,
        scope: &Scope,
        attributes: &[Attribute],
        batch: &[u8],
    ) {
        self.text(shared, SCOPE_NAME, scope.name, batch);
        self.text(shared, SCOPE_VERSION, scope.version, batch);
        self.json(shared, SCOPE, attributes, batch);
        self.count(shared, SCOPE_DROPPED, scope.dropped_attributes);
        self.text(shared, SCOPE_SCHEMA_URL, scope.schema_url, batch);
    }

    fn json(&mut self, shared: &mut Shared, field: usize, attributes: &[Attribute], batch: &[u8]) {
        if !attributes.is_empty() {
            self.json.clear();
            plain::attributes(&mut self.json, attributes, batch);
            shared.push((field, self.columns.intern(field, &self.json)));
        }
    }

    fn text(&mut self, shared: &mut Shared, field: usize, text: Slice, batch: &[u8]) {
        if !text.is_empty() {
            shared.push((field, self.columns.intern(field, text.of(batch))));
        }
    }

    fn count(&mut self, shared: &mut Shared, field: usize, count: u32) {
        if count > 0 {
            shared.push((field, self.columns.intern(field, &i64::from(count).to_le_bytes())));
        }
    }

    fn span(&mut self, span: &Span, batch: &[u8]) {
        let columns = &mut self.columns;
        columns.push_wide(TRACE_ID, span.trace_id);
        columns.push_narrow(SPAN_ID, span.span_id);
        columns.push_narrow(PARENT_ID, span.parent_id);
        let (start, end) = (span.start_ns.cast_signed(), span.end_ns.cast_signed());
        columns.push_long(START, start);
        // Both have 63 bits.
        columns.push_long(DURATION, end - start);
        let mut value = |field: usize, value: &[u8]| {
            let code = columns.intern(field, value);
            columns.set(field, code);
        };
        with_name(&KINDS, span.kind, |name| value(KIND, name.as_bytes()));
        with_name(&STATUSES, span.status, |name| value(STATUS, name.as_bytes()));
        let texts = [
            (NAME, span.name),
            (STATUS_MESSAGE, span.status_message),
            (TRACE_STATE, span.trace_state),
        ];
        for (field, text) in texts {
            if !text.is_empty() {
                value(field, text.of(batch));
            }
        }
        let counts = [
            (FLAGS, span.flags),
            (DROPPED_ATTRIBUTES, span.dropped_attributes),
            (DROPPED_EVENTS, span.dropped_events),
            (DROPPED_LINKS, span.dropped_links),
        ];
        for (field, count) in counts {
            if count > 0 {
                value(field, &i64::from(count).to_le_bytes());
            }
        }
    }

    fn events_and_links(&mut self, span: &Span, rows: &Spans, batch: &[u8]) {
        for event in span.events.of(&rows.events) {
            self.json.clear();
            let attributes = event.attributes.of(&rows.inner_attributes);
            plain::attributes(&mut self.json, attributes, batch);
            self.columns
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
            self.columns
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

#[cfg(test)]
mod tests;
