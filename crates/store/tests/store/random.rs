//! Batches with everything that OTLP has in a row.

pub(crate) mod logs;
pub(crate) mod points;

use curtail_otlp::{
    Attribute, BatchWriter, Envelope, EventRow, Limits, LinkRow, PlainValue, ResourceText,
    ScopeText, Slice, Span, SpanRow, Spans, plain,
};
use curtail_units::Rng;
use std::fmt::Debug;

/// Known attributes of spans and of resources, others, and what is no name at all.
const KEYS: [&str; 10] = [
    "http.request.method",
    "http.response.status_code",
    "db.query.text",
    "service.name",
    "shop.basket",
    "shop.price",
    "@odd",
    "",
    "schlüssel \"ü\"",
    "exception.message",
];

const RESOURCES: [&str; 4] = [
    r#"{"service.name":"shop","host.name":"node-1","process.pid":17}"#,
    r#"{"service.name":"cart","k8s.pod.name":"cart-7","ratio":0.5,"tags":["a",1]}"#,
    r#"{"service.name":17,"service.version":"1"}"#,
    "",
];

fn any<T: Copy>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len())]
}

fn value(rng: &mut Rng) -> PlainValue<'static> {
    const TEXTS: [&str; 5] = ["GET", "POST", "", "ein längerer Text mit ü", "SELECT 1"];
    const JSON: [&str; 6] =
        ["null", "[]", r#"[1,2.5,"x",[true]]"#, r#"{"a":{"b":1}}"#, r#"{"@bytes":"AAE="}"#, "{}"];
    const DOUBLES: [f64; 6] = [0.0, -0.0, 1.0, 1e300, f64::INFINITY, f64::MIN_POSITIVE];
    match rng.below(5) {
        0 => PlainValue::Text(any(rng, &TEXTS)),
        1 => PlainValue::Int(any(rng, &[0, 1, 200, -1, i64::MIN, i64::MAX])),
        2 => PlainValue::Double(any(rng, &DOUBLES)),
        3 => PlainValue::Bool(rng.chance(0.5)),
        _ => PlainValue::Json(any(rng, &JSON)),
    }
}

/// Attributes of a row.
fn own(rng: &mut Rng) -> Vec<(&'static str, PlainValue<'static>)> {
    (0..rng.below(8)).map(|_| (any(rng, &KEYS), value(rng))).collect()
}

fn resource(rng: &mut Rng) -> ResourceText<'static> {
    ResourceText {
        attributes: any(rng, &RESOURCES),
        dropped_attributes: any(rng, &[0, 1]),
        schema_url: any(rng, &["", "https://opentelemetry.io/schemas/1.38.0"]),
    }
}

fn scope(rng: &mut Rng) -> ScopeText<'static> {
    ScopeText {
        name: any(rng, &["", "http"]),
        version: any(rng, &["", "1.2"]),
        attributes: any(rng, &["", r#"{"a":1}"#]),
        dropped_attributes: any(rng, &[0, 1]),
        schema_url: any(rng, &["", "u"]),
    }
}

/// Spans of a few traces; some spans end before they begin.
pub(crate) fn batch(rng: &mut Rng, spans: usize, traces: usize) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    for _ in 0..spans {
        let attributes = own(rng);
        let start_ns = 1_750_000_000_000_000_000 + rng.below(1_000) as u64;
        let is_plain = rng.chance(0.5);
        let span = SpanRow {
            trace_id: trace_id(rng.below(traces)),
            span_id: rng.next_u64() | 1,
            parent_id: if rng.chance(0.3) { 0 } else { rng.next_u64() },
            start_ns,
            end_ns: start_ns - 100 + rng.below(1_000_000) as u64,
            name: any(rng, &["GET /", "", "name"]),
            kind: any(rng, &[0, 1, 2, 3, 4, 5, 9, -1]),
            attributes: &attributes,
            ..SpanRow::default()
        };
        let (resource, scope) = (resource(rng), scope(rng));
        if is_plain {
            writer.span(&resource, &scope, &span).expect("plain JSON");
            continue;
        }
        let (events, links) = (events(rng), links(rng));
        let span = SpanRow {
            trace_state: any(rng, &["", "a=1"]),
            status: any(rng, &[0, 1, 2, 7]),
            status_message: any(rng, &["", "no such item"]),
            flags: any(rng, &[0, 1, 257]),
            dropped_attributes: any(rng, &[0, 1, 2]),
            dropped_events: any(rng, &[0, u32::MAX]),
            dropped_links: any(rng, &[0, 1, 2]),
            events: &events,
            links: &links,
            ..span
        };
        writer.span(&resource, &scope, &span).expect("plain JSON");
    }
    writer.finish()
}

/// Traces whose IDs share a half.
pub(crate) fn trace_id(nth: usize) -> u128 {
    (nth as u128 % 3) << 64 | (nth as u128 / 3 + 1)
}

fn events(rng: &mut Rng) -> Vec<EventRow<'static>> {
    (0..rng.below(4))
        .map(|_| EventRow {
            time_ns: rng.below(1_000_000) as u64,
            name: any(rng, &["exception", ""]),
            attributes: any(rng, &["", r#"{"exception.type":"E","n":1,"x":[1]}"#]),
            dropped_attributes: any(rng, &[0, 1]),
        })
        .collect()
}

fn links(rng: &mut Rng) -> Vec<LinkRow<'static>> {
    (0..rng.below(3))
        .map(|_| LinkRow {
            trace_id: u128::from(rng.next_u64()) << 64 | 1,
            span_id: rng.next_u64() | 1,
            trace_state: any(rng, &["", "b=2"]),
            attributes: any(rng, &["", r#"{"why":"retry"}"#]),
            dropped_attributes: any(rng, &[0, 1]),
            flags: any(rng, &[0, 1]),
        })
        .collect()
}

/// All that a batch says of each span, in an order that does not depend on that of the batch.
pub(crate) fn facts(batch: &[u8]) -> Vec<String> {
    let (rows, rejected) = Spans::decode(batch, &Limits::default()).expect("a batch");
    assert_eq!(rejected.count, 0);
    let mut facts: Vec<_> = rows.spans.iter().map(|span| facts_of(batch, &rows, span)).collect();
    facts.sort();
    facts
}

fn facts_of(batch: &[u8], rows: &Spans, span: &Span) -> String {
    let text = |slice: Slice| String::from_utf8_lossy(slice.of(batch));
    let set = |all: &[Attribute]| attributes(batch, all);
    let events = span.events.of(&rows.events).iter().map(|event| {
        let inner = set(event.attributes.of(&rows.inner_attributes));
        format!("{} {} {inner:?} {}", event.time_ns, text(event.name), event.dropped_attributes)
    });
    let links = span.links.of(&rows.links).iter().map(|link| {
        let inner = set(link.attributes.of(&rows.inner_attributes));
        let ids = (link.trace_id, link.span_id, link.dropped_attributes, link.flags);
        format!("{ids:?} {} {inner:?}", text(link.trace_state))
    });
    let parts: [&dyn Debug; 10] = [
        &(span.trace_id, span.start_ns, span.span_id, span.parent_id, span.end_ns),
        &text(span.name),
        &(span.kind, span.status, span.flags),
        &text(span.trace_state),
        &text(span.status_message),
        &(span.dropped_attributes, span.dropped_events, span.dropped_links),
        &set(span.attributes.of(&rows.attributes)),
        &events.collect::<Vec<_>>(),
        &links.collect::<Vec<_>>(),
        &around(batch, &rows.envelope, span.scope),
    ];
    format!("{parts:?}")
}

/// All that a batch says around the rows of a scope.
fn around(batch: &[u8], envelope: &Envelope, scope: u32) -> String {
    let text = |slice: Slice| String::from_utf8_lossy(slice.of(batch));
    let set = |all: &[Attribute]| attributes(batch, all);
    let scope = &envelope.scopes[scope as usize];
    let resource = &envelope.resources[scope.resource as usize];
    let parts: [&dyn Debug; 5] = [
        &set(resource.attributes.of(&envelope.attributes)),
        &(resource.dropped_attributes, text(resource.schema_url)),
        &(text(scope.name), text(scope.version)),
        &set(scope.attributes.of(&envelope.attributes)),
        &(scope.dropped_attributes, text(scope.schema_url)),
    ];
    format!("{parts:?}")
}

/// Attributes as a set: columns do not keep their order.
fn attributes(batch: &[u8], all: &[Attribute]) -> Vec<String> {
    let facts = all.iter().map(|attribute| {
        let mut json = Vec::new();
        plain::value(&mut json, &attribute.value, batch);
        let key = String::from_utf8_lossy(attribute.key.of(batch));
        format!("{key}={}", String::from_utf8_lossy(&json))
    });
    let mut facts: Vec<_> = facts.collect();
    facts.sort();
    facts
}
