//! Rows written as a new batch are equal to the rows of the batch they were read from.

#[path = "support/metrics_writer.rs"]
mod metrics_writer;

use curtail_otlp::{
    Attribute, BatchWriter, Envelope, Event, EventRow, Limits, Link, LinkRow, LogRow, Logs,
    PlainValue, Points, ResourceText, ScopeText, Signal, Slice, SpanRow, Spans, Value, json, plain,
};
use curtail_units::Rng;
use metrics_writer::{MetricText, MetricsWriter, PointRow};
use serde_json::Value as Json;

const TRACES: &[u8] = include_bytes!("golden/traces.pb");
const LOGS: &[u8] = include_bytes!("golden/logs.pb");
const METRICS: &[u8] = include_bytes!("golden/metrics.pb");
const SEED: u64 = 77_012;

fn text(batch: &[u8], slice: Slice) -> &str {
    std::str::from_utf8(slice.of(batch)).expect("text")
}

/// Attributes as a table has them that keeps them as one text.
fn object(batch: &[u8], attributes: &[Attribute]) -> String {
    let mut out = Vec::new();
    if !attributes.is_empty() {
        plain::attributes(&mut out, attributes, batch);
    }
    String::from_utf8(out).expect("text")
}

/// What a table needs as plain JSON of values that it has other columns for.
fn jsons(batch: &[u8], values: impl IntoIterator<Item = Value>) -> Vec<String> {
    let json = |value| {
        let mut out = Vec::new();
        plain::value(&mut out, &value, batch);
        String::from_utf8(out).expect("text")
    };
    values.into_iter().map(json).collect()
}

fn plain_value<'a>(batch: &'a [u8], value: Value, json: &'a str) -> PlainValue<'a> {
    match value {
        Value::Text(slice) => PlainValue::Text(text(batch, slice)),
        Value::Int(number) => PlainValue::Int(number),
        Value::Double(number) => PlainValue::Double(number),
        Value::Bool(is_true) => PlainValue::Bool(is_true),
        Value::Empty | Value::List(_) | Value::Map(_) | Value::Bytes(_) => PlainValue::Json(json),
    }
}

fn columns<'a>(
    batch: &'a [u8],
    attributes: &[Attribute],
    jsons: &'a [String],
) -> Vec<(&'a str, PlainValue<'a>)> {
    let column = |(each, json): (&Attribute, &'a String)| {
        (text(batch, each.key), plain_value(batch, each.value, json))
    };
    attributes.iter().zip(jsons).map(column).collect()
}

/// The texts around the rows of a scope, with the plain JSON of resource and scope.
fn around(batch: &[u8], envelope: &Envelope, scope: u32) -> [String; 2] {
    let scope = &envelope.scopes[scope as usize];
    let resource = &envelope.resources[scope.resource as usize];
    [resource.attributes, scope.attributes]
        .map(|range| object(batch, range.of(&envelope.attributes)))
}

fn texts<'a>(
    batch: &'a [u8],
    envelope: &Envelope,
    scope: u32,
    [of_resource, of_scope]: &'a [String; 2],
) -> (ResourceText<'a>, ScopeText<'a>) {
    let scope = &envelope.scopes[scope as usize];
    let resource = &envelope.resources[scope.resource as usize];
    let resource = ResourceText {
        attributes: of_resource,
        dropped_attributes: resource.dropped_attributes,
        schema_url: text(batch, resource.schema_url),
    };
    let scope = ScopeText {
        name: text(batch, scope.name),
        version: text(batch, scope.version),
        attributes: of_scope,
        dropped_attributes: scope.dropped_attributes,
        schema_url: text(batch, scope.schema_url),
    };
    (resource, scope)
}

fn event_row<'a>(batch: &'a [u8], event: &Event, attributes: &'a str) -> EventRow<'a> {
    let name = text(batch, event.name);
    let dropped_attributes = event.dropped_attributes;
    EventRow { time_ns: event.time_ns, name, attributes, dropped_attributes }
}

fn link_row<'a>(batch: &'a [u8], link: &Link, attributes: &'a str) -> LinkRow<'a> {
    LinkRow {
        trace_id: link.trace_id,
        span_id: link.span_id,
        trace_state: text(batch, link.trace_state),
        attributes,
        dropped_attributes: link.dropped_attributes,
        flags: link.flags,
    }
}

/// The spans of a batch, as a table would have them, as a batch.
fn rewritten_traces(batch: &[u8]) -> Vec<u8> {
    let (read, rejected) = Spans::decode(batch, &Limits::default()).expect("a good batch");
    assert_eq!(rejected.count, 0);
    let mut writer = BatchWriter::new();
    for span in &read.spans {
        let around = around(batch, &read.envelope, span.scope);
        let (resource, scope) = texts(batch, &read.envelope, span.scope, &around);
        let own = span.attributes.of(&read.attributes);
        let jsons = jsons(batch, own.iter().map(|each| each.value));
        let inner = |range: Slice| object(batch, range.of(&read.inner_attributes));
        let (events, links) = (span.events.of(&read.events), span.links.of(&read.links));
        let event_attributes: Vec<_> = events.iter().map(|event| inner(event.attributes)).collect();
        let link_attributes: Vec<_> = links.iter().map(|link| inner(link.attributes)).collect();
        let events = events
            .iter()
            .zip(&event_attributes)
            .map(|(e, attributes)| event_row(batch, e, attributes));
        let links = links
            .iter()
            .zip(&link_attributes)
            .map(|(l, attributes)| link_row(batch, l, attributes));
        let row = SpanRow {
            trace_id: span.trace_id,
            span_id: span.span_id,
            parent_id: span.parent_id,
            start_ns: span.start_ns,
            end_ns: span.end_ns,
            name: text(batch, span.name),
            trace_state: text(batch, span.trace_state),
            kind: span.kind,
            status: span.status,
            status_message: text(batch, span.status_message),
            flags: span.flags,
            dropped_attributes: span.dropped_attributes,
            dropped_events: span.dropped_events,
            dropped_links: span.dropped_links,
            attributes: &columns(batch, own, &jsons),
            events: &events.collect::<Vec<_>>(),
            links: &links.collect::<Vec<_>>(),
        };
        writer.span(&resource, &scope, &row).expect("plain JSON");
    }
    writer.finish()
}

/// The same for log records.
fn rewritten_logs(batch: &[u8]) -> Vec<u8> {
    let (read, rejected) = Logs::decode(batch, &Limits::default()).expect("a good batch");
    assert_eq!(rejected.count, 0);
    let mut writer = BatchWriter::new();
    for record in &read.records {
        let around = around(batch, &read.envelope, record.scope);
        let (resource, scope) = texts(batch, &read.envelope, record.scope, &around);
        let own = record.attributes.of(&read.attributes);
        let of_own = jsons(batch, own.iter().map(|each| each.value));
        let of_body = jsons(batch, [record.body]);
        let row = LogRow {
            time_ns: record.time_ns,
            observed_ns: record.observed_ns,
            trace_id: record.trace_id,
            span_id: record.span_id,
            severity: record.severity,
            severity_text: text(batch, record.severity_text),
            body: Some(plain_value(batch, record.body, &of_body[0])),
            event_name: text(batch, record.event_name),
            attributes: &columns(batch, own, &of_own),
            dropped_attributes: record.dropped_attributes,
            flags: record.flags,
        };
        writer.record(&resource, &scope, &row).expect("plain JSON");
    }
    writer.finish()
}

/// The same for points.
fn rewritten_metrics(batch: &[u8]) -> Vec<u8> {
    let (read, rejected) = Points::decode(batch, &Limits::default()).expect("a good batch");
    assert_eq!(rejected.count, 0);
    let mut writer = MetricsWriter::new();
    for point in &read.points {
        let metric = &read.metrics[point.metric as usize];
        let around = around(batch, &read.envelope, metric.scope);
        let (resource, scope) = texts(batch, &read.envelope, metric.scope, &around);
        let own = point.attributes.of(&read.attributes);
        let own_values = jsons(batch, own.iter().map(|each| each.value));
        let details = read.details(point, batch);
        let inner = |range: Slice| object(batch, range.of(&details.attributes));
        let exemplars = &details.exemplars;
        let exemplar_attributes: Vec<_> =
            exemplars.iter().map(|each| inner(each.attributes)).collect();
        let exemplars =
            exemplars.iter().zip(&exemplar_attributes).map(|(e, attributes)| (*e, &**attributes));
        let text_of_metric = MetricText {
            name: text(batch, metric.name),
            description: text(batch, metric.description),
            unit: text(batch, metric.unit),
            form: metric.form,
            temporality: metric.temporality,
            is_monotonic: metric.is_monotonic,
            metadata: &object(batch, metric.metadata.of(&read.attributes)),
        };
        let row = PointRow {
            start_ns: point.start_ns,
            time_ns: point.time_ns,
            measured: point.measured,
            distribution: details.distribution.clone(),
            exemplars: &exemplars.collect::<Vec<_>>(),
            attributes: &columns(batch, own, &own_values),
            flags: point.flags,
        };
        writer.point(&resource, &scope, &text_of_metric, &row).expect("plain JSON");
    }
    writer.finish()
}

/// A golden batch without what no row says: metrics without points, entities, and resources that nothing comes from.
fn of_rows(golden: &str, resources: &str, scopes: &str, rows: &str) -> Json {
    let mut golden: Json = serde_json::from_str(golden).expect("JSON");
    let all = golden[resources].as_array_mut().expect("a list");
    all.retain(|each| each[scopes][0].get(rows).is_some());
    for each in all {
        each["resource"].as_object_mut().expect("an object").remove("entityRefs");
        let rows = each[scopes][0][rows].as_array_mut().expect("a list");
        rows.retain(|row| row["name"] != "none");
        // Every span has a status, which may be empty.
        let spans = rows.iter_mut().filter(|_| resources == "resourceSpans");
        spans
            .filter(|row| row.get("status").is_none())
            .for_each(|row| row["status"] = serde_json::json!({}));
    }
    golden
}

#[test]
fn every_field_of_golden_rows_comes_back() {
    let traces = include_str!("golden/traces.json");
    let logs = include_str!("golden/logs.json");
    let metrics = include_str!("golden/metrics.json");
    for (signal, batch, want, rewritten) in [
        (
            Signal::Traces,
            TRACES,
            of_rows(traces, "resourceSpans", "scopeSpans", "spans"),
            rewritten_traces as fn(&[u8]) -> Vec<u8>,
        ),
        (
            Signal::Logs,
            LOGS,
            of_rows(logs, "resourceLogs", "scopeLogs", "logRecords"),
            rewritten_logs,
        ),
        (
            Signal::Metrics,
            METRICS,
            of_rows(metrics, "resourceMetrics", "scopeMetrics", "metrics"),
            rewritten_metrics,
        ),
    ] {
        let written = rewritten(batch);
        let json =
            json::from_protobuf(&written, signal, json::Mapping::Otlp).expect("a good batch");
        assert_eq!(serde_json::from_str::<Json>(&json).expect("JSON"), want, "{signal:?}");
        assert_eq!(rewritten(&written), written, "{signal:?}: what it says does not change again");
        // The bytes at the end are equal, where the rows are; the last span also has a status. The fields of points
        // have another order.
        let part = &written[written.len() / 2..written.len() * 9 / 10];
        let is_same = batch.windows(part.len()).any(|each| each == part);
        assert!(is_same || signal == Signal::Metrics, "{signal:?}: the very bytes");
    }
}

/// A number with any count of bits.
fn number(rng: &mut Rng) -> u64 {
    if rng.chance(0.2) { 0 } else { rng.next_u64() >> rng.below(64) }
}

fn short(rng: &mut Rng) -> u32 {
    u32::try_from(number(rng) & 0xFFFF_FFFF).expect("32 bits")
}

fn word(rng: &mut Rng) -> &'static str {
    ["", "a", "größer", "a name that is longer than others, so that its field has some length"]
        [rng.below(4)]
}

fn made_up_span<'a>(rng: &mut Rng, events: &'a [EventRow<'a>]) -> SpanRow<'a> {
    SpanRow {
        trace_id: u128::from(number(rng)) << 64 | u128::from(number(rng)) | 1,
        span_id: number(rng).max(1),
        parent_id: number(rng),
        start_ns: number(rng) >> 1,
        end_ns: number(rng) >> 1,
        name: word(rng),
        trace_state: word(rng),
        kind: short(rng).cast_signed(),
        status: short(rng).cast_signed(),
        status_message: word(rng),
        flags: short(rng),
        dropped_attributes: short(rng),
        dropped_events: short(rng),
        dropped_links: short(rng),
        events,
        ..SpanRow::default()
    }
}

#[test]
fn every_number_and_text_comes_back_from_where_it_was_put() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    for _ in 0..5_000 {
        let (time_ns, dropped_attributes) = (number(&mut rng) >> 1, short(&mut rng));
        let name = word(&mut rng);
        let events = [EventRow { time_ns, name, dropped_attributes, ..EventRow::default() }];
        let events = &events[..rng.below(2)];
        let row = made_up_span(&mut rng, events);
        let mut writer = BatchWriter::new();
        writer.span(&ResourceText::default(), &ScopeText::default(), &row).expect("no JSON");
        let batch = writer.finish();
        let (read, rejected) = Spans::decode(&batch, &Limits::default()).expect("a batch");
        assert_eq!((read.spans.len(), rejected.count), (1, 0), "{row:?}");
        let span = &read.spans[0];
        let of_events = span.events.of(&read.events);
        let again = SpanRow {
            trace_id: span.trace_id,
            span_id: span.span_id,
            parent_id: span.parent_id,
            start_ns: span.start_ns,
            end_ns: span.end_ns,
            name: text(&batch, span.name),
            trace_state: text(&batch, span.trace_state),
            kind: span.kind,
            status: span.status,
            status_message: text(&batch, span.status_message),
            flags: span.flags,
            dropped_attributes: span.dropped_attributes,
            dropped_events: span.dropped_events,
            dropped_links: span.dropped_links,
            attributes: &[],
            events: &of_events.iter().map(|event| event_row(&batch, event, "")).collect::<Vec<_>>(),
            links: &[],
        };
        assert_eq!(again, row);
    }
}

#[test]
fn rows_stand_with_those_whose_texts_are_all_the_same_in_the_order_in_which_they_came() {
    let plain = ResourceText { attributes: r#"{"a":1}"#, ..ResourceText::default() };
    let resources = [
        plain,
        ResourceText { attributes: r#"{"a":1.0}"#, ..plain },
        ResourceText { dropped_attributes: 1, ..plain },
        ResourceText { schema_url: "a", ..plain },
        ResourceText { attributes: "", ..plain },
    ];
    let plain = ScopeText { name: "ab", version: "c", ..ScopeText::default() };
    let scopes = [
        plain,
        ScopeText { name: "a", version: "bc", ..plain },
        ScopeText { attributes: r#"{"a":1}"#, ..plain },
        ScopeText { schema_url: "c", version: "", ..plain },
        ScopeText { dropped_attributes: 2, ..plain },
    ];
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut writer = BatchWriter::new();
    let mut groups: Groups = Vec::new();
    let mut bytes = 0;
    for span_id in 1..=500 {
        let (resource, scope) = (rng.below(resources.len()), rng.below(scopes.len()));
        let row = LogRow { span_id, ..LogRow::default() };
        writer.record(&resources[resource], &scopes[scope], &row).expect("plain JSON");
        assert!(writer.bytes() >= bytes + 12, "{} after {bytes}", writer.bytes());
        bytes = writer.bytes();
        entry(entry(&mut groups, resource), scope).push(span_id);
    }
    let batch = writer.finish();
    let ends = 20 * (resources.len() + resources.len() * scopes.len());
    assert!((bytes..bytes + ends).contains(&batch.len()), "{} of {bytes}", batch.len());
    let (read, rejected) = Logs::decode(&batch, &Limits::default()).expect("a batch");
    assert_eq!((read.envelope.resources.len(), rejected.count), (resources.len(), 0));
    let mut found: Groups = Vec::new();
    for record in &read.records {
        let around = around(&batch, &read.envelope, record.scope);
        let (resource, scope) = texts(&batch, &read.envelope, record.scope, &around);
        let scope = scopes.iter().position(|each| *each == scope).expect("one of them");
        let resource = resources.iter().position(|each| *each == resource).expect("one of them");
        entry(entry(&mut found, resource), scope).push(record.span_id);
    }
    assert_eq!(found, groups);
}

/// Numbers of rows, by those of their scope, by those of its resource.
type Groups = Vec<(usize, Vec<(usize, Vec<u64>)>)>;

/// What belongs to a key, in the order of the keys' first coming.
fn entry<T: Default>(all: &mut Vec<(usize, T)>, key: usize) -> &mut T {
    let at = all.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
        all.push((key, T::default()));
        all.len() - 1
    });
    &mut all[at].1
}

#[test]
fn an_error_in_plain_json_names_its_part_and_leaves_nothing() {
    let bad = |attributes| EventRow { attributes, ..EventRow::default() };
    let bad_link = LinkRow { attributes: "[", ..LinkRow::default() };
    let (resource, scope, span) =
        (ResourceText::default(), ScopeText::default(), SpanRow::default());
    let json = |json| [("fine", PlainValue::Int(1)), ("list", PlainValue::Json(json))];
    let mut writer = BatchWriter::new();
    for (resource, scope, span, message) in [
        (
            ResourceText { attributes: "{", ..resource },
            scope,
            span,
            "the attributes of its resource: not plain JSON: EOF while parsing an object at line 1 column 1",
        ),
        (
            resource,
            ScopeText { attributes: "x", ..scope },
            span,
            "the attributes of its scope: not plain JSON: expected value at line 1 column 1",
        ),
        (
            resource,
            scope,
            SpanRow { attributes: &json(""), ..span },
            r#"its attribute "list": not plain JSON: EOF while parsing a value at line 1 column 0"#,
        ),
        (
            resource,
            scope,
            SpanRow { events: &[bad("{}"), bad("{}}")], ..span },
            "the attributes of its event 1: not plain JSON: trailing characters at line 1 column 3",
        ),
        (
            resource,
            scope,
            SpanRow { links: &[bad_link], ..span },
            "the attributes of its link 0: not plain JSON: invalid type: sequence, expected an object: keys and plain values at line 1 column 0",
        ),
    ] {
        let error = writer.span(&resource, &scope, &span).expect_err("no JSON");
        assert_eq!(error.to_string(), message);
        assert_eq!(writer.bytes(), 0);
    }
    assert!(writer.finish().is_empty());
    let mut writer = BatchWriter::new();
    let record = LogRow { body: Some(PlainValue::Json("{]")), ..LogRow::default() };
    let error = writer.record(&resource, &scope, &record).expect_err("no JSON");
    assert_eq!(
        error.to_string(),
        "its body: not plain JSON: key must be a string at line 1 column 2"
    );
    // Zero and empty fields are omitted: the rest of such a record is its existence, and likewise for its resource and
    // its scope.
    writer.record(&resource, &scope, &LogRow::default()).expect("no JSON");
    assert_eq!(writer.finish(), [0x0A, 8, 0x0A, 0, 0x12, 4, 0x0A, 0, 0x12, 0]);
}
