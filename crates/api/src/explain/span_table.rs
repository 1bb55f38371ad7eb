//! Spans of batches, grouped by trace.
//!
//! **Limits**: a maximum number of spans, and of bytes: about 100 for each span, 24 for each attribute, and the texts.

use super::comparison::Comparison;
use curtail_explain::{AttributeValue, Side, SpanKind, SpanRow, Traces};
use curtail_otlp::{Limits, Malformed, Spans, Value};
use curtail_trace::Span;
use std::collections::HashMap;
use std::ops::Range;

/// Spans with their texts as numbers.
#[derive(Debug)]
pub struct SpanTable {
    spans_max: usize,
    bytes_max: usize,
    /// The bytes of the texts, each of which is stored twice.
    text_bytes: usize,
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32>,
    spans: Vec<StoredSpan>,
    attributes: Vec<(u32, StoredValue)>,
    /// The attributes of each resource.
    resources: Vec<Range<usize>>,
}

#[derive(Debug)]
struct StoredSpan {
    trace_id: u128,
    span: Span,
    service: u32,
    operation: u32,
    kind: SpanKind,
    is_abandoned: bool,
    resource: usize,
    attributes: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
enum StoredValue {
    Text(u32),
    Number(f64),
}

/// Why the spans of a batch were not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanTableError {
    /// The batch is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The table has room for fewer spans.
    #[error("too many spans")]
    TooManySpans,
    /// The table has room for fewer bytes.
    #[error("too many bytes of spans")]
    TooManyBytes,
}

/// The attribute of an attempt that the proxy cancelled because another attempt won.
const CANCELLED: &str = "curtail.cancelled";

impl SpanTable {
    /// A table for at most `spans_max` spans. It takes batches until it has `bytes_max` bytes.
    #[must_use]
    pub fn new(spans_max: usize, bytes_max: usize) -> Self {
        Self {
            spans_max,
            bytes_max,
            text_bytes: 0,
            texts: Vec::new(),
            numbers: HashMap::new(),
            spans: Vec::new(),
            attributes: Vec::new(),
            resources: Vec::new(),
        }
    }

    /// Adds the spans of a batch of traces.
    ///
    /// # Errors
    /// When the batch is malformed, or there is no room.
    pub fn add(&mut self, batch: &[u8]) -> Result<(), SpanTableError> {
        let (spans, _) = Spans::decode(batch, &Limits::STORED)?;
        if self.spans.len() + spans.spans.len() > self.spans_max {
            return Err(SpanTableError::TooManySpans);
        }
        if self.bytes() >= self.bytes_max {
            return Err(SpanTableError::TooManyBytes);
        }
        self.add_spans(batch, &spans);
        Ok(())
    }

    /// Whether there is no span.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The bytes of spans, attributes and texts.
    const fn bytes(&self) -> usize {
        size_of_val(self.spans.as_slice())
            + size_of_val(self.attributes.as_slice())
            + size_of_val(self.resources.as_slice())
            + self.text_bytes
    }

    fn add_spans(&mut self, batch: &[u8], spans: &Spans) {
        let first = self.resources.len();
        let service = self.text("service.name");
        let mut services = Vec::new();
        for resource in &spans.envelope.resources {
            let attributes = resource.attributes.of(&spans.envelope.attributes);
            let range = self.attributes(batch, attributes);
            let of_service = self.attributes[range.clone()].iter().find(|(key, _)| *key == service);
            services.push(match of_service {
                Some((_, StoredValue::Text(name))) => *name,
                _ => self.text("unknown_service"),
            });
            self.resources.push(range);
        }
        for span in &spans.spans {
            let of_scope = spans.envelope.scopes[span.scope as usize].resource as usize;
            let attributes = span.attributes.of(&spans.attributes);
            let is_abandoned =
                attributes.iter().any(|attribute| attribute.key.of(batch) == CANCELLED.as_bytes());
            let attributes = self.attributes(batch, attributes);
            let operation = self.text(&String::from_utf8_lossy(span.name.of(batch)));
            let time = |ns| i64::try_from(ns).expect("below 2^63");
            self.spans.push(StoredSpan {
                trace_id: span.trace_id,
                span: Span {
                    id: span.span_id,
                    parent_id: span.parent_id,
                    start_ns: time(span.start_ns),
                    end_ns: time(span.end_ns),
                },
                service: services[of_scope],
                operation,
                kind: SpanKind::from_otlp(span.kind),
                is_abandoned,
                resource: first + of_scope,
                attributes,
            });
        }
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).expect("the number of spans is limited");
        self.text_bytes += 2 * (text.len() + size_of::<Box<str>>());
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    fn attributes(&mut self, batch: &[u8], attributes: &[curtail_otlp::Attribute]) -> Range<usize> {
        let from = self.attributes.len();
        for attribute in attributes {
            let value = match attribute.value {
                Value::Text(text) => {
                    StoredValue::Text(self.text(&String::from_utf8_lossy(text.of(batch))))
                }
                Value::Bool(flag) => {
                    StoredValue::Text(self.text(if flag { "true" } else { "false" }))
                }
                Value::Int(number) => StoredValue::Number(number as f64),
                Value::Double(number) if number.is_finite() => StoredValue::Number(number),
                Value::Double(_)
                | Value::Empty
                | Value::List(_)
                | Value::Map(_)
                | Value::Bytes(_) => {
                    continue;
                }
            };
            let key = self.text(&String::from_utf8_lossy(attribute.key.of(batch)));
            self.attributes.push((key, value));
        }
        from..self.attributes.len()
    }

    /// Adds all traces to `traces`, as traces of a side.
    pub fn add_to(self, traces: &mut Traces, side: Side) {
        self.add_sides(traces, |_| Some(side));
    }

    /// Adds the traces of a comparison to `traces`. Traces in neither population, or in both, are left out and counted.
    pub fn add_compared(self, traces: &mut Traces, comparison: &mut Comparison) {
        self.add_sides(traces, |trace| comparison.side(trace));
    }

    fn add_sides(
        mut self,
        traces: &mut Traces,
        mut side: impl FnMut(&[SpanRow<'_>]) -> Option<Side>,
    ) {
        let mut spans = std::mem::take(&mut self.spans);
        spans.sort_by_key(|span| span.trace_id);
        let value = |(key, value): &(u32, StoredValue)| {
            let value = match value {
                StoredValue::Text(text) => AttributeValue::Text(&self.texts[*text as usize]),
                StoredValue::Number(number) => AttributeValue::Number(*number),
            };
            (&*self.texts[*key as usize], value)
        };
        for of_trace in spans.chunk_by(|one, other| one.trace_id == other.trace_id) {
            let attributes: Vec<Vec<_>> = of_trace
                .iter()
                .map(|span| {
                    let own = self.attributes[span.attributes.clone()].iter();
                    own.chain(&self.attributes[self.resources[span.resource].clone()])
                        .map(value)
                        .collect()
                })
                .collect();
            let rows: Vec<SpanRow<'_>> = of_trace
                .iter()
                .zip(&attributes)
                .map(|(span, attributes)| SpanRow {
                    span: span.span,
                    service: &self.texts[span.service as usize],
                    operation: &self.texts[span.operation as usize],
                    kind: span.kind,
                    is_abandoned: span.is_abandoned,
                    attributes,
                })
                .collect();
            match side(&rows) {
                Some(side) => traces.add(of_trace[0].trace_id, side, &rows),
                None => traces.count_not_compared(),
            }
        }
    }
}
