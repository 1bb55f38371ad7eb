//! Batches that OpenTelemetry's own classes wrote, with every field of OTLP set: `golden/make.py` made them.

use curtail_otlp::{
    Attribute, Form, Limits, Logs, Measured, Points, Signal, Slice, Spans, Value, json,
};
use serde_json::Value as Json;

const TRACES: &[u8] = include_bytes!("golden/traces.pb");
const LOGS: &[u8] = include_bytes!("golden/logs.pb");
const METRICS: &[u8] = include_bytes!("golden/metrics.pb");

/// With which `make.py` begins.
const START_NS: u64 = 1_750_000_000_123_456_789;

fn text(batch: &[u8], slice: Slice) -> &str {
    std::str::from_utf8(slice.of(batch)).expect("text")
}

/// Counts up from `first`, as the IDs do.
fn id<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|nth| first + u8::try_from(nth).expect("short"))
}

/// The attributes that `make.py` gives everything, in short.
fn shown(batch: &[u8], attributes: &[Attribute]) -> Vec<String> {
    let shown = |value| match value {
        Value::Text(slice) if slice.len > 100 => format!("{} long", slice.len),
        Value::Text(slice) => text(batch, slice).to_owned(),
        Value::Bytes(slice) => format!("{} bytes", slice.of(batch).len()),
        Value::List(slice) => format!("list of {} bytes", slice.len),
        Value::Empty | Value::Bool(_) | Value::Int(_) | Value::Double(_) | Value::Map(_) => {
            format!("{value:?}")
        }
    };
    attributes
        .iter()
        .map(|each| format!("{}={}", text(batch, each.key), shown(each.value)))
        .collect()
}

fn expected(owner: &str) -> Vec<String> {
    let mut all = vec![format!("of={owner}")];
    let rest = [
        "text=größer “quoted” \\ \n \u{1}",
        "true=Bool(true)",
        "false=Bool(false)",
        "least=Int(-9223372036854775808)",
        "most=Int(9223372036854775807)",
        "double=Double(0.1)",
        "nan=Double(NaN)",
        "infinite=Double(-inf)",
        "list=list of 42 bytes",
        "bytes=256 bytes",
        "empty=Empty",
        "long=300 long",
    ];
    all.extend(rest.map(str::to_owned));
    all
}

fn check(batch: &[u8], all: &[Attribute], range: Slice, owner: &str) {
    assert_eq!(shown(batch, range.of(all)), expected(owner), "{owner}");
}

#[test]
fn every_field_of_a_span_is_read() {
    let (read, rejected) = Spans::decode(TRACES, &Limits::default()).expect("a good batch");
    assert_eq!((read.spans.len(), rejected.count), (2, 0));
    let span = &read.spans[0];
    assert_eq!(span.trace_id.to_be_bytes(), id(1));
    assert_eq!(span.span_id.to_be_bytes(), id(17));
    assert_eq!(span.parent_id.to_be_bytes(), id(25));
    assert_eq!((span.start_ns, span.end_ns), (START_NS, START_NS + 1_000_001));
    let texts = [span.trace_state, span.name, span.status_message];
    assert_eq!(texts.map(|slice| text(TRACES, slice)), ["a=1,b=2", "GET /", "it broke"]);
    assert_eq!((span.kind, span.status, span.flags), (2, 2, 0x301));
    let dropped = (span.dropped_attributes, span.dropped_events, span.dropped_links);
    assert_eq!(dropped, (3, 4, 300));
    check(TRACES, &read.attributes, span.attributes, "span");
    let events = span.events.of(&read.events);
    let links = span.links.of(&read.links);
    assert_eq!((events.len(), links.len()), (2, 2));
    for (nth, (event, link)) in (0..).zip(events.iter().zip(links)) {
        assert_eq!((event.time_ns, event.dropped_attributes), (START_NS + u64::from(nth), nth));
        assert_eq!(text(TRACES, event.name), format!("event {nth}"));
        check(TRACES, &read.inner_attributes, event.attributes, &format!("event {nth}"));
        assert_eq!(link.trace_id.to_be_bytes(), id(33));
        assert_eq!(link.span_id.to_be_bytes(), id(49));
        assert_eq!(text(TRACES, link.trace_state), "c=3");
        assert_eq!((link.flags, link.dropped_attributes), (0x100, nth));
        check(TRACES, &read.inner_attributes, link.attributes, &format!("link {nth}"));
    }
    let root = &read.spans[1];
    assert_eq!((root.parent_id, root.kind, root.status), (0, 0, 0));
    assert!(root.name.is_empty() && root.attributes.len == 0 && root.events.len == 0);
}

#[test]
fn what_stands_around_rows_is_read() {
    let (read, _) = Spans::decode(TRACES, &Limits::default()).expect("a good batch");
    let around = &read.envelope;
    assert_eq!((around.resources.len(), around.scopes.len()), (2, 2), "the last two are empty");
    let (scope, resource) = (&around.scopes[0], &around.resources[0]);
    assert_eq!((read.spans[0].scope, scope.resource), (0, 0));
    assert_eq!((text(TRACES, scope.name), text(TRACES, scope.version)), ("golden", "1.2.3"));
    assert_eq!(text(TRACES, scope.schema_url), "https://example.com/scope");
    assert_eq!(text(TRACES, resource.schema_url), "https://example.com/resource");
    assert_eq!((resource.dropped_attributes, scope.dropped_attributes), (1, 2));
    check(TRACES, &around.attributes, resource.attributes, "resource");
    check(TRACES, &around.attributes, scope.attributes, "scope");
}

#[test]
fn every_field_of_a_log_record_is_read() {
    let (read, rejected) = Logs::decode(LOGS, &Limits::default()).expect("a good batch");
    let values = expected("body");
    assert_eq!((read.records.len(), rejected.count), (1 + values.len(), 0));
    let record = &read.records[0];
    assert_eq!((record.time_ns, record.observed_ns), (START_NS, START_NS + 5));
    assert_eq!((record.severity, record.flags, record.dropped_attributes), (17, 1, 1));
    assert_eq!(text(LOGS, record.severity_text), "ERROR");
    assert_eq!(text(LOGS, record.event_name), "device.app");
    assert_eq!(record.trace_id.to_be_bytes(), id(1));
    assert_eq!(record.span_id.to_be_bytes(), id(17));
    let Value::Text(body) = record.body else { panic!("{record:?}") };
    assert_eq!(text(LOGS, body), "it broke: größer");
    check(LOGS, &read.attributes, record.attributes, "record");
    for (record, value) in read.records[1..].iter().zip(values) {
        let body = Attribute { key: Slice::default(), value: record.body };
        let (_, want) = value.split_once('=').expect("a value");
        assert_eq!(shown(LOGS, &[body]), [format!("={want}")]);
    }
}

#[test]
fn every_point_of_a_metric_is_read() {
    let (read, rejected) = Points::decode(METRICS, &Limits::default()).expect("a good batch");
    assert_eq!(rejected.count, 0);
    let nth_metric = |nth: usize| &read.metrics[nth];
    let forms = [
        ("gauge", Form::Gauge, 0, false),
        ("sum", Form::Sum, 2, true),
        ("histogram", Form::Histogram, 1, false),
        ("exponential", Form::ExponentialHistogram, 2, false),
        ("summary", Form::Summary, 0, false),
        ("none", Form::None, 0, false),
    ];
    assert_eq!(read.metrics.len(), forms.len());
    for (nth, (name, form, temporality, is_monotonic)) in forms.into_iter().enumerate() {
        let metric = nth_metric(nth);
        assert_eq!(text(METRICS, metric.name), name);
        assert_eq!(text(METRICS, metric.description), format!("what {name} is"));
        assert_eq!(text(METRICS, metric.unit), "ms");
        let kind = (metric.form, metric.temporality, metric.is_monotonic);
        assert_eq!(kind, (form, temporality, is_monotonic), "{name}");
        check(METRICS, &read.attributes, metric.metadata, "metric");
    }
    let points: Vec<_> = read.points.iter().map(|p| (p.metric, p.measured)).collect();
    let want = [
        (0, Measured::Double(-0.5)),
        (1, Measured::Int(i64::MIN)),
        (1, Measured::Int(0)),
        (2, Measured::None),
        (3, Measured::None),
        (4, Measured::None),
    ];
    assert_eq!(points, want);
    for point in &read.points {
        let times = (point.start_ns, point.time_ns, point.flags);
        assert_eq!(times, (START_NS, START_NS + 60_000_000_000, 1), "{point:?}");
        check(METRICS, &read.attributes, point.attributes, "point");
    }
}

#[test]
fn protobuf_and_json_say_the_same() {
    for (signal, batch, golden) in [
        (Signal::Traces, TRACES, include_str!("golden/traces.json")),
        (Signal::Logs, LOGS, include_str!("golden/logs.json")),
        (Signal::Metrics, METRICS, include_str!("golden/metrics.json")),
    ] {
        let parse = |text: &str| serde_json::from_str::<Json>(text).expect("JSON");
        let ours = json::from_protobuf(batch, signal, json::Mapping::Otlp).expect("a good batch");
        assert_eq!(parse(&ours), parse(golden), "{signal:?}");
        let back =
            json::to_protobuf(golden.as_bytes(), signal, &Limits::default()).expect("a good batch");
        let again = json::from_protobuf(&back, signal, json::Mapping::Otlp).expect("a good batch");
        assert_eq!(parse(&again), parse(golden), "{signal:?}");
    }
    let back =
        json::to_protobuf(include_bytes!("golden/traces.json"), Signal::Traces, &Limits::default());
    assert_eq!(back.expect("a good batch"), TRACES, "the very bytes");
}
