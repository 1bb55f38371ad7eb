use super::SpanWriter;
use crate::model::Model;
use crate::record::RequestRecord;
use crate::run::{Recording, run_recorded};
use crate::scenario::Scenario;
use curtail_otlp::Signal;
use curtail_otlp::json::{Mapping, from_protobuf};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const SEED: u64 = 3;

/// A span, with its service and its attributes.
#[derive(Debug)]
struct Span {
    json: Value,
    service: String,
    attributes: BTreeMap<String, Value>,
}

impl Span {
    fn text(&self, key: &str) -> &str {
        self.json[key].as_str().unwrap_or_default()
    }

    fn ns(&self, key: &str) -> u64 {
        self.text(key).parse().expect("a time is text")
    }

    fn kind(&self) -> u64 {
        self.json["kind"].as_u64().expect("each span has a kind")
    }

    fn int(&self, key: &str) -> Option<i64> {
        self.attributes.get(key)?["intValue"].as_str()?.parse().ok()
    }
}

fn attributes(of: &Value) -> BTreeMap<String, Value> {
    let list = of["attributes"].as_array().map_or(&[][..], Vec::as_slice);
    let key = |a: &Value| a["key"].as_str().expect("a key").to_owned();
    list.iter().map(|a| (key(a), a["value"].clone())).collect()
}

fn list<'v>(of: &'v Value, key: &str) -> &'v [Value] {
    of[key].as_array().expect("a list")
}

/// The records and the spans of 500 requests, as a reader of OTLP in JSON sees them.
fn simulate(keys: &str) -> (Vec<RequestRecord>, Vec<Span>) {
    let yaml = format!(
        "model:
  service: {{shape: exponential, mean: 10ms}}
  message_delay: {{shape: constant, value: 1ms}}
  arrivals: {{load_ratio: 0.5}}
  replicas: 3
{keys}
arms: {{hedged: {{hedge: {{delay_min: 20ms, delay_max: 20ms}}, budget: {{ratio: 1}}}}}}
requests_max: 10000
"
    );
    let scenario = Scenario::read("spans", &yaml, &[]).expect("no errors");
    let mut writer = SpanWriter::new(&scenario.variants[0], &scenario.arms[0], SEED);
    let mut records = Vec::new();
    let recording = Recording {
        requests_max: 500,
        record: &mut |_, _, record| {
            writer.write(&record);
            records.push(record);
        },
    };
    run_recorded(&scenario, SEED, |_| {}, recording);
    let json = from_protobuf(&writer.take_batch(), Signal::Traces, Mapping::Otlp).expect("OTLP");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let mut spans = Vec::new();
    for resource in list(&json, "resourceSpans") {
        let service = attributes(&resource["resource"])["service.name"]["stringValue"].clone();
        for span in list(resource, "scopeSpans").iter().flat_map(|scope| list(scope, "spans")) {
            let service = service.as_str().expect("a name").to_owned();
            spans.push(Span { json: span.clone(), service, attributes: attributes(span) });
        }
    }
    (records, spans)
}

#[test]
fn each_request_is_a_trace_and_each_execution_a_child_of_its_attempt() {
    for (keys, calls) in [("", 0), ("  fan_out: 2\n  shards: 2", 2)] {
        let (records, spans) = simulate(keys);
        let ids: BTreeSet<(&str, &str)> =
            spans.iter().map(|span| (span.text("traceId"), span.text("spanId"))).collect();
        assert_eq!(ids.len(), spans.len(), "IDs are unique");
        let roots: Vec<&Span> =
            spans.iter().filter(|s| s.text("parentSpanId").is_empty()).collect();
        assert_eq!(roots.len(), records.len());
        let has_parent =
            |span: &&Span| ids.contains(&(span.text("traceId"), span.text("parentSpanId")));
        assert_eq!(spans.iter().filter(has_parent).count(), spans.len() - roots.len());
        let attempts = || records.iter().flat_map(|r| &r.calls).flat_map(|call| &call.attempts);
        let of_kind = |kind| spans.iter().filter(move |span| span.kind() == kind);
        assert_eq!(of_kind(1).count(), calls * records.len());
        assert_eq!(of_kind(3).count(), attempts().count());
        let arrived = attempts().filter(|attempt| attempt.arrived.is_some()).count();
        assert_eq!(of_kind(2).filter(|span| span.service.starts_with("shard-")).count(), arrived);
        assert!(attempts().count() > records.len() * calls.max(1), "some are hedged");
        let latency = |record: &RequestRecord| record.ended.since(record.arrived).as_ns();
        let expected: Vec<u64> = records.iter().map(latency).collect();
        let duration = |s: &&Span| s.ns("endTimeUnixNano") - s.ns("startTimeUnixNano");
        assert_eq!(roots.iter().map(duration).collect::<Vec<u64>>(), expected);
    }
}

#[test]
fn spans_have_the_queue_the_hedge_and_the_size_of_a_request() {
    let keys = "  request_factor: {shape: uniform, low: 1, high: 3}\n  request_bytes: 1000B";
    let (records, spans) = simulate(keys);
    let attempts = || records.iter().flat_map(|r| &r.calls).flat_map(|call| &call.attempts);
    let queued: u64 =
        attempts().filter_map(|a| Some(a.started.or(a.left)?.since(a.arrived?).as_ns())).sum();
    let of_spans: i64 = spans.iter().filter_map(|span| span.int("curtail.leaf.wait_ns")).sum();
    assert_eq!(i64::try_from(queued), Ok(of_spans));
    assert!(queued > 0);
    let resent = spans.iter().filter(|span| span.int("http.request.resend_count") == Some(1));
    assert_eq!(resent.count(), attempts().count() - records.len());
    let sizes: Vec<Option<i64>> = spans
        .iter()
        .filter(|span| span.text("parentSpanId").is_empty())
        .map(|span| span.int("http.request.body.size"))
        .collect();
    #[expect(clippy::cast_possible_truncation, reason = "between 1,000 and 3,000")]
    let expected: Vec<Option<i64>> =
        records.iter().map(|record| Some((record.factor * 1_000.0) as i64)).collect();
    assert_eq!(sizes, expected);
    assert!(Model::queue(1, 0.5, curtail_model::Distribution::ZERO).request_bytes.is_none());
}
