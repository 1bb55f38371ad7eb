//! Traces in the format of Jaeger's UI, streamed span by span.
//!
//! **When it hurts**: the times of this format are microseconds, so nanoseconds are lost.

use crate::Limits;
use crate::api_error::ApiError;
use crate::response_chunks::{CHUNK_BYTES, NextChunk, ResponseChunks, RowReader, TOO_LONG};
use curtail_otlp::{EventRow, LinkRow, PlainValue, ResourceText, ScopeText, SpanRow};
use curtail_store::batch::with_span;
use curtail_store::tree::{RowsWithId, Unread};
use curtail_store::{Columns, Store};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Traces in the envelope of Jaeger's UI.
pub(super) struct JaegerChunks {
    store: Arc<Store>,
    tenant: String,
    limits: Limits,
    /// The IDs of the traces that are still to be written.
    ids: VecDeque<u128>,
    trace: Option<Trace>,
    /// The number of written traces, including the current trace.
    count: usize,
    bytes_left: usize,
    unread: Vec<Unread>,
    is_begun: bool,
    is_done: bool,
}

/// The current trace.
struct Trace {
    reader: RowReader,
    has_span: bool,
    processes: Processes,
}

/// The distinct resources of the spans, each with a number.
#[derive(Default)]
struct Processes {
    /// The number of each resource, by the JSON of its attributes.
    numbers: HashMap<String, usize>,
    /// The members of the JSON object `processes`.
    json: Vec<u8>,
}

impl JaegerChunks {
    pub(super) fn new(
        store: &Arc<Store>,
        tenant: &str,
        limits: &Limits,
        (ids, unread): (Vec<u128>, Vec<Unread>),
    ) -> Self {
        Self {
            store: Arc::clone(store),
            tenant: tenant.to_owned(),
            limits: *limits,
            ids: ids.into(),
            trace: None,
            count: 0,
            bytes_left: limits.response_bytes,
            unread,
            is_begun: false,
            is_done: false,
        }
    }

    /// Creates a response with one trace, which was already found.
    pub(super) fn of_one(store: &Arc<Store>, found: RowsWithId, limits: &Limits) -> Self {
        let mut chunks = Self::new(store, "", limits, (Vec::new(), Vec::new()));
        chunks.begin(found);
        chunks
    }

    fn begin(&mut self, found: RowsWithId) {
        self.count += 1;
        self.unread.extend_from_slice(found.unread());
        let reader = RowReader::new(found);
        self.trace = Some(Trace { reader, has_span: false, processes: Processes::default() });
    }

    async fn chunk(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        if self.is_done {
            return Ok(None);
        }
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            out.extend_from_slice(br#"{"data":["#);
        }
        while out.len() < CHUNK_BYTES {
            if let Some(trace) = &mut self.trace {
                let is_full = out.len() + trace.processes.json.len() > self.bytes_left;
                if !is_full && trace.reader.fill().await {
                    trace.spans(&mut out);
                    continue;
                }
                if is_full {
                    self.ids.clear();
                }
                trace.end(&mut out, is_full);
                self.unread.extend_from_slice(trace.reader.late_unread());
                self.trace = None;
            } else if let Some(id) = self.ids.pop_front() {
                let spans = self.store.spans();
                let found = spans.rows_with_id(&self.tenant, id, self.limits.trace_spans).await;
                if found.is_empty() {
                    self.unread.extend_from_slice(found.unread());
                } else {
                    if self.count > 0 {
                        out.push(b',');
                    }
                    self.begin(found);
                }
            } else {
                let end =
                    format!(r#"],"total":{},"limit":0,"offset":0,"errors":null}}"#, self.count);
                out.extend_from_slice(end.as_bytes());
                self.is_done = true;
                break;
            }
        }
        self.bytes_left = self.bytes_left.saturating_sub(out.len());
        Ok(Some(out))
    }
}

impl ResponseChunks for JaegerChunks {
    fn next(&mut self) -> NextChunk<'_> {
        Box::pin(self.chunk())
    }

    fn unread(&self) -> &[Unread] {
        &self.unread
    }

    fn has_status(&self) -> bool {
        true
    }

    fn content_type(&self) -> &'static str {
        "application/json"
    }
}

impl Trace {
    /// Writes spans of the window until the chunk is long enough.
    fn spans(&mut self, out: &mut Vec<u8>) {
        while !self.reader.is_taken() && out.len() < CHUNK_BYTES {
            let row = self.reader.take();
            if std::mem::replace(&mut self.has_span, true) {
                out.push(b',');
            } else {
                let id = self.reader.window().wide(curtail_store::schema::spans::TRACE_ID)[row];
                out.extend_from_slice(format!(r#"{{"traceID":"{id:032x}","spans":["#).as_bytes());
            }
            span(out, self.reader.window(), row, &mut self.processes);
        }
    }

    fn end(&self, out: &mut Vec<u8>, is_full: bool) {
        if !self.has_span {
            out.extend_from_slice(br#"{"traceID":"","spans":["#);
        }
        out.extend_from_slice(br#"],"processes":{"#);
        out.extend_from_slice(&self.processes.json);
        let partial = if is_full { Some(TOO_LONG.to_owned()) } else { self.reader.partial() };
        let warnings: Option<Vec<_>> = partial.map(|why| vec![why]);
        out.extend_from_slice(br#"},"warnings":"#);
        json(out, &warnings);
        out.push(b'}');
    }
}

impl Processes {
    /// Returns the number of a resource; a new resource gets the next number.
    fn number(&mut self, resource: &ResourceText<'_>) -> usize {
        if let Some(number) = self.numbers.get(resource.attributes) {
            return *number;
        }
        let number = self.numbers.len() + 1;
        self.numbers.insert(resource.attributes.to_owned(), number);
        let mut attributes = object(resource.attributes);
        let service = attributes.remove("service.name");
        let process = Process {
            service_name: service.as_ref().and_then(Value::as_str).unwrap_or_default(),
            tags: attributes.into_iter().map(|(key, value)| Tag::of_json(key, value)).collect(),
        };
        let separator = if number == 1 { "" } else { "," };
        self.json.extend_from_slice(format!(r#"{separator}"p{number}":"#).as_bytes());
        json(&mut self.json, &process);
        number
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Process<'a> {
    service_name: &'a str,
    tags: Vec<Tag<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    #[serde(rename = "traceID")]
    trace_id: String,
    #[serde(rename = "spanID")]
    span_id: String,
    flags: u32,
    operation_name: &'a str,
    references: Vec<Reference>,
    start_time: u64,
    duration: u64,
    tags: Vec<Tag<'a>>,
    logs: Vec<Log<'a>>,
    #[serde(rename = "processID")]
    process_id: String,
    warnings: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    ref_type: &'static str,
    #[serde(rename = "traceID")]
    trace_id: String,
    #[serde(rename = "spanID")]
    span_id: String,
}

#[derive(Serialize)]
struct Log<'a> {
    timestamp: u64,
    fields: Vec<Tag<'a>>,
}

#[derive(Serialize)]
struct Tag<'a> {
    key: TagText<'a>,
    r#type: &'static str,
    value: TagValue<'a>,
}

type TagText<'a> = std::borrow::Cow<'a, str>;

#[derive(Serialize)]
#[serde(untagged)]
enum TagValue<'a> {
    Text(TagText<'a>),
    Bool(bool),
    Int(i64),
    Double(f64),
}

fn span(out: &mut Vec<u8>, rows: &Columns, row: usize, processes: &mut Processes) {
    with_span(rows, row, |resource, scope, span| {
        let shape = Span {
            trace_id: format!("{:032x}", span.trace_id),
            span_id: format!("{:016x}", span.span_id),
            flags: span.flags & 0xFF,
            operation_name: span.name,
            references: references(span),
            start_time: span.start_ns / 1_000,
            duration: span.end_ns.saturating_sub(span.start_ns) / 1_000,
            tags: tags(span, scope),
            logs: span.events.iter().map(log).collect(),
            process_id: format!("p{}", processes.number(resource)),
            warnings: None,
        };
        json(out, &shape);
    });
}

/// Returns references to the parent and to linked spans.
fn references(span: &SpanRow<'_>) -> Vec<Reference> {
    let reference = |ref_type, trace_id: u128, span_id: u64| Reference {
        ref_type,
        trace_id: format!("{trace_id:032x}"),
        span_id: format!("{span_id:016x}"),
    };
    let parent =
        (span.parent_id != 0).then(|| reference("CHILD_OF", span.trace_id, span.parent_id));
    let links = span.links.iter();
    let link = |link: &LinkRow<'_>| reference("FOLLOWS_FROM", link.trace_id, link.span_id);
    parent.into_iter().chain(links.map(link)).collect()
}

/// Returns the attributes, and further properties of the span for which Jaeger has no field.
fn tags<'a>(span: &SpanRow<'a>, scope: &ScopeText<'a>) -> Vec<Tag<'a>> {
    let mut tags: Vec<_> =
        span.attributes.iter().map(|(key, value)| Tag::of(key, *value)).collect();
    let kind = match span.kind {
        1 => "internal",
        2 => "server",
        3 => "client",
        4 => "producer",
        5 => "consumer",
        _ => "",
    };
    let status = match span.status {
        1 => "OK",
        2 => "ERROR",
        _ => "",
    };
    for (key, text) in [
        ("otel.scope.name", scope.name),
        ("otel.scope.version", scope.version),
        ("span.kind", kind),
        ("otel.status_code", status),
    ] {
        tags.extend((!text.is_empty()).then(|| Tag::text(key, text)));
    }
    if span.status == 2 {
        tags.push(Tag { key: "error".into(), r#type: "bool", value: TagValue::Bool(true) });
    }
    for (key, text) in
        [("otel.status_description", span.status_message), ("w3c.tracestate", span.trace_state)]
    {
        tags.extend((!text.is_empty()).then(|| Tag::text(key, text)));
    }
    tags
}

fn log<'a>(event: &EventRow<'a>) -> Log<'a> {
    let name = (!event.name.is_empty()).then(|| Tag::text("event", event.name));
    let attributes = object(event.attributes);
    let attributes = attributes.into_iter().map(|(key, value)| Tag::of_json(key, value));
    Log { timestamp: event.time_ns / 1_000, fields: name.into_iter().chain(attributes).collect() }
}

impl<'a> Tag<'a> {
    fn text(key: &'a str, text: &'a str) -> Self {
        Self { key: key.into(), r#type: "string", value: TagValue::Text(text.into()) }
    }

    /// Converts an attribute; lists and maps become JSON text.
    fn of(key: &'a str, value: PlainValue<'a>) -> Self {
        let (r#type, value) = match value {
            PlainValue::Text(text) => ("string", TagValue::Text(text.into())),
            PlainValue::Bool(is) => ("bool", TagValue::Bool(is)),
            PlainValue::Int(number) => ("int64", TagValue::Int(number)),
            PlainValue::Double(number) => double(number),
            PlainValue::Json(json) => of_json(serde_json::from_str(json).unwrap_or_default()),
        };
        Self { key: key.into(), r#type, value }
    }

    fn of_json(key: String, value: Value) -> Self {
        let (r#type, value) = of_json(value);
        Self { key: key.into(), r#type, value }
    }
}

/// Converts a value in plain JSON, which marks values that JSON does not have.
fn of_json(value: Value) -> (&'static str, TagValue<'static>) {
    match value {
        Value::String(text) => ("string", TagValue::Text(text.into())),
        Value::Bool(is) => ("bool", TagValue::Bool(is)),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => ("int64", TagValue::Int(whole)),
            None => double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::Null | Value::Array(_) => ("string", TagValue::Text(value.to_string().into())),
        Value::Object(object) => match (object.get("@bytes"), object.get("@double")) {
            (Some(Value::String(bytes)), _) => ("binary", TagValue::Text(bytes.clone().into())),
            (_, Some(Value::String(number))) => ("string", TagValue::Text(number.clone().into())),
            _ => ("string", TagValue::Text(Value::Object(object).to_string().into())),
        },
    }
}

/// Converts a double; infinities and NaN become text.
fn double<'a>(number: f64) -> (&'static str, TagValue<'a>) {
    if number.is_finite() {
        ("float64", TagValue::Double(number))
    } else {
        ("string", TagValue::Text(number.to_string().into()))
    }
}

/// Parses attributes from their JSON text.
fn object(json: &str) -> Map<String, Value> {
    match serde_json::from_str(json) {
        Ok(Value::Object(object)) => object,
        _ => Map::new(),
    }
}

fn json<T: Serialize>(out: &mut Vec<u8>, what: &T) {
    serde_json::to_writer(out, what).expect("numbers and text are valid JSON");
}
