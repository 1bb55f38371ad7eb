use super::{SpanReader, are_shards};
use crate::fit::{Fit, FitOverrides};
use crate::recording::{AttemptEnd, Recording as ServiceRecording, RecordingError};
use curtail_otlp::Signal;
use curtail_otlp::json::{Mapping, from_protobuf};
use curtail_policy::{BalanceConfig, PrequalConfig};
use curtail_sim::{Recording, RequestRecord, Scenario, SpanWriter, run_recorded};
use curtail_units::{Duration, Quantile};
use serde_json::{Value, json};

/// The spans of requests of a scenario, as a server stores them.
fn written(yaml: &str, requests_max: u64) -> (SpanReader, Vec<RequestRecord>) {
    let scenario = Scenario::read("service", yaml, &[]).expect("no errors");
    let mut writer = SpanWriter::new(&scenario.variants[0], &scenario.arms[0], 1);
    let (mut reader, mut records) = (SpanReader::new(), Vec::new());
    let record = &mut |_: &_, _: &_, record: RequestRecord| {
        writer.write(&record);
        records.push(record);
        reader.add(&writer.take_batch()).expect("a batch");
    };
    run_recorded(&scenario, 1, |_| {}, Recording { requests_max, record });
    records.sort_unstable_by_key(|record| record.arrived);
    (reader, records)
}

#[test]
fn the_reasons_of_choices_name_the_balancing_rule() {
    for (rule, expected) in [
        ("round_robin", BalanceConfig::RoundRobin),
        ("random", BalanceConfig::Random),
        ("least_request", BalanceConfig::LEAST_REQUEST),
        ("peak_ewma", BalanceConfig::PEAK_EWMA),
        ("prequal", BalanceConfig::Prequal(PrequalConfig::default())),
    ] {
        let yaml = format!(
            "model:
  service: {{shape: exponential, mean: 10ms}}
  arrivals: {{load_ratio: 0.5}}
  replicas: 3
arms: {{plain: {{balance: {rule}, hedge: false, retry: false}}}}
requests_max: 4000
"
        );
        let (reader, _) = written(&yaml, 1_000);
        let read = reader.finish(None).expect("spans of the proxy");
        assert_eq!((read.balance, read.policy), (Some(expected), None), "{rule}");
        let fit = Fit::new(&read, FitOverrides::default()).expect("enough requests");
        assert_eq!((fit.policy.balance, fit.is_policy_known), (expected, false));
    }
    // Two rules, as after a reload.
    let choice = |rule: &str| json!({ "key": "curtail.choice", "value": { "stringValue": rule } });
    let mut attempts = [(2, "turn"), (3, "chance")].map(|(id, rule)| {
        let mut attempt = span(1, (id, 1), (1, 2), Some(("shop", 1)));
        attempt["attributes"].as_array_mut().expect("an attempt has some").push(choice(rule));
        attempt
    });
    let request = span(1, (1, 0), (0, 3), None);
    let both = [vec![request.clone()], attempts.to_vec()].concat();
    assert_eq!(read(&both, None).expect("an upstream").balance, None);
    attempts[1] = span(1, (3, 1), (1, 2), Some(("shop", 1)));
    let one = [vec![request], attempts.to_vec()].concat();
    assert_eq!(read(&one, None).expect("an upstream").balance, Some(BalanceConfig::RoundRobin));
}

/// Queues are long at this load: a time in service that includes the queue would be twice as long.
#[test]
fn the_time_in_service_is_without_the_queue() {
    let yaml = "model:
  service: {shape: exponential, mean: 10ms}
  arrivals: {load_ratio: 0.8}
  replicas: 2
arms: {plain: {balance: random, hedge: false, retry: false}}
requests_max: 4000
";
    let scenario = Scenario::read("service", yaml, &[]).expect("no errors");
    let mut writer = SpanWriter::new(&scenario.variants[0], &scenario.arms[0], 1);
    let (mut waited, mut served) = (Duration::ZERO, Duration::ZERO);
    let recording = Recording {
        requests_max: 2_000,
        record: &mut |_, _, record| {
            for attempt in record.calls.iter().flat_map(|call| &call.attempts) {
                let (started, left) = attempt.started.zip(attempt.left).expect("it was executed");
                served = served + left.since(started);
                waited = waited + started.since(attempt.arrived.expect("it arrived"));
            }
            writer.write(&record);
        },
    };
    run_recorded(&scenario, 1, |_| {}, recording);
    assert!(waited > served, "{waited} {served}");
    let json = from_protobuf(&writer.take_batch(), Signal::Traces, Mapping::Otlp).expect("OTLP");
    let mut reader = SpanReader::new();
    reader.read_line(&json.to_string()).expect("a batch");
    let read = reader.finish(None).expect("one upstream");
    assert!(read.attempts.iter().all(|attempt| attempt.end == AttemptEnd::Responded));
    let services = read.attempts.iter().map(|attempt| attempt.service.expect("a server's span"));
    assert_eq!(services.fold(Duration::ZERO, |sum, service| sum + service), served);
}

#[test]
fn requests_that_call_several_shards_are_a_fan_out() {
    let yaml = "model:
  service: {shape: exponential, mean: 10ms}
  overhead: {shape: exponential, mean: 3ms}
  arrivals: {requests_per_second: 30}
  fan_out: 4
  shards: 4
  replicas: 2
arms: {plain: {balance: random, hedge: false, retry: false}}
requests_max: 1000
";
    for wanted in [None, Some("shard-*")] {
        let (reader, records) = written(yaml, 300);
        let read = reader.finish(wanted).expect("spans of the proxy");
        let fan_out = read.fan_out.as_ref().expect("several upstreams");
        assert_eq!((fan_out.shards, fan_out.calls, fan_out.requests.len()), (4, 4, records.len()));
        assert_eq!((read.requests.len(), read.replicas.len()), (4 * records.len(), 8));
        for (request, record) in fan_out.requests.iter().zip(&records) {
            let lasted = record.ended.since(record.arrived);
            assert_eq!(request.latency, Some(lasted));
            let slowest = record.calls.iter().map(|call| call.ended.since(call.began)).max();
            assert_eq!(request.overhead + slowest.expect("four calls"), lasted);
        }
        let quantile = read.latency_at(Quantile::P50).expect("requests");
        let mut latencies: Vec<Duration> =
            records.iter().map(|record| record.ended.since(record.arrived)).collect();
        latencies.sort_unstable();
        assert_eq!(quantile, latencies[latencies.len() / 2 - 1]);
    }
    // One shard alone is an upstream as any other.
    let (reader, records) = written(yaml, 300);
    let read = reader.finish(Some("shard-2")).expect("spans of the proxy");
    assert_eq!((read.fan_out, read.requests.len()), (None, records.len()));
}

/// A span in OTLP JSON; `upstream` is the upstream and the port of an attempt.
fn span(
    trace: u32,
    (id, parent): (u32, u32),
    (start_ms, end_ms): (u64, u64),
    upstream: Option<(&str, u32)>,
) -> Value {
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let int = |key: &str, value: u32| json!({ "key": key, "value": { "intValue": value } });
    let attributes = upstream.map(|(upstream, port)| {
        let name = text("curtail.upstream", upstream);
        vec![int("curtail.attempt", 0), name, text("server.address", "a"), int("server.port", port)]
    });
    json!({
        "traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"),
        "parentSpanId": if parent == 0 { String::new() } else { format!("{parent:016x}") },
        "name": "span", "startTimeUnixNano": (start_ms * 1_000_000).to_string(),
        "endTimeUnixNano": (end_ms * 1_000_000).to_string(),
        "attributes": attributes.unwrap_or_default(),
    })
}

fn read(spans: &[Value], wanted: Option<&str>) -> Result<ServiceRecording, RecordingError> {
    let service = json!([{ "key": "service.name", "value": { "stringValue": "proxy" } }]);
    let mut reader = SpanReader::new();
    let batch = json!({ "resourceSpans": [{
        "resource": { "attributes": service }, "scopeSpans": [{ "spans": spans }],
    }]});
    reader.read_line(&batch.to_string()).expect("a batch");
    reader.finish(wanted)
}

/// Two requests, each with a call to both upstreams; the second call starts at `second_ms`.
fn two_calls(names: [&str; 2], second_ms: u64) -> Vec<Value> {
    let request = |trace| {
        let second = (second_ms, second_ms + 10);
        [
            span(trace, (1, 0), (1, 40), None),
            span(trace, (2, 1), (1, 11), None),
            span(trace, (3, 1), second, None),
            span(trace, (4, 2), (1, 11), Some((names[0], 1))),
            span(trace, (5, 3), second, Some((names[1], 2))),
        ]
    };
    [1, 2].into_iter().flat_map(request).collect()
}

#[test]
fn calls_one_after_the_other_or_to_unlike_upstreams_are_no_fan_out() {
    let at_once = read(&two_calls(["shard-0", "shard-1"], 2), None).expect("a fan-out");
    assert_eq!(at_once.fan_out.map(|of| of.shards), Some(2));
    for (names, second_ms) in [(["shard-0", "shard-1"], 20), (["cart", "search"], 2)] {
        let error = read(&two_calls(names, second_ms), None).expect_err("the user has to choose");
        assert!(matches!(error, RecordingError::Ambiguous(_)), "{names:?} {second_ms}: {error}");
        let one = read(&two_calls(names, second_ms), Some(names[1])).expect("it is there");
        assert_eq!((one.fan_out, one.requests.len()), (None, 2));
    }
    // A user who names the shards knows better.
    let named = read(&two_calls(["shard-0", "shard-1"], 20), Some("shard-*")).expect("a fan-out");
    assert!(named.fan_out.is_some());
}

#[test]
fn shards_have_a_common_prefix() {
    for (names, expected) in [
        (&["shard-0", "shard-12"][..], true),
        (&["shard10", "shard11", "shard2"], true),
        (&["search/a", "search/b"], true),
        (&["search", "shop"], false),
        (&["cart", "search"], false),
        (&["é1", "è2"], false),
        (&["1", "2"], false),
    ] {
        assert_eq!(are_shards(names), expected, "{names:?}");
    }
}

#[test]
fn more_replicas_than_are_predicted_are_rejected() {
    let call = |trace: u32, id: u32, upstream: (&str, u32)| {
        [span(trace, (id, 1), (1, 11), None), span(trace, (id + 1, id), (1, 11), Some(upstream))]
    };
    // One shard has one replica, and the other one has half as many as are allowed, and one more.
    let request = |trace: u32| {
        let calls = [call(trace, 2, ("shard-0", 1)), call(trace, 4, ("shard-1", trace))];
        [span(trace, (1, 0), (1, 40), None)].into_iter().chain(calls.into_iter().flatten())
    };
    let spans: Vec<Value> = (1..=2_049).flat_map(request).collect();
    let fitting = read(&spans[..5 * 2_048], None).expect("as many as are allowed");
    assert_eq!(fitting.replicas.len(), 4_096);
    let error = read(&spans, None).expect_err("too many").to_string();
    assert_eq!(
        error,
        "spans: expected at most 4096 replicas of all shards, found 2 shards of 2,049 replicas"
    );
}

#[test]
fn copies_and_implausible_spans_are_left_out() {
    let call = |trace: u32, (start_ms, end_ms): (u64, u64)| {
        let parent = span(trace, (1, 0), (start_ms, end_ms), None);
        [parent, span(trace, (2, 1), (start_ms, end_ms), Some(("search", 1)))]
    };
    let hours = 3_600_000;
    let requests =
        [(1, (1, 11)), (1, (1, 11)), (2, (20, 15)), (3, (30, 30 + 2 * hours)), (4, (40, 50))];
    let spans: Vec<Value> =
        requests.into_iter().flat_map(|(trace, times)| call(trace, times)).collect();
    let recording = read(&spans, None).expect("two requests");
    assert_eq!((recording.requests.len(), recording.rejected_spans), (2, 6));
    let far: Vec<Value> = [(1, (1, 11)), (2, (900 * hours, 900 * hours))]
        .into_iter()
        .flat_map(|(trace, times)| call(trace, times))
        .collect();
    let error = read(&far, None).expect_err("37 days apart");
    assert!(error.to_string().contains("found 37 days"), "{error}");
}

/// The span of a server that paused begins after the pause.
#[test]
fn only_the_span_of_a_leaf_has_the_time_in_service() {
    let spans = [
        span(1, (1, 0), (1, 301), None),
        span(1, (2, 1), (1, 301), Some(("search", 1))),
        span(1, (3, 2), (291, 301), None),
    ];
    let recording = read(&spans, None).expect("a request");
    assert_eq!(recording.attempts[0].service, None);
}

/// A copy of a tie that its leaf dropped: the leaf has a span of it, and its server has not seen it.
#[test]
fn what_was_cancelled_has_no_latency_and_what_waited_until_then_no_service() {
    let mut spans = [
        span(1, (1, 0), (1, 301), None),
        span(1, (2, 1), (1, 301), Some(("search", 1))),
        span(1, (3, 2), (1, 301), None),
    ];
    let cancelled = json!({ "key": "curtail.cancelled", "value": { "stringValue": "enough" } });
    let waited = json!({ "key": "curtail.leaf.wait_ns", "value": { "intValue": 300_000_000 } });
    let mut add = |nth: usize, attribute: &Value| {
        spans[nth]["attributes"].as_array_mut().expect("a list").push(attribute.clone());
    };
    (0..3).for_each(|nth| add(nth, &cancelled));
    add(2, &waited);
    let recording = read(&spans, None).expect("a request");
    let attempt = &recording.attempts[0];
    assert_eq!((attempt.end, attempt.service), (AttemptEnd::Cancelled, Some(Duration::ZERO)));
    assert_eq!(recording.requests[0].latency, None);
}
