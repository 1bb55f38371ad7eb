//! Invalid spans are kept, and queries for them get a response.

use super::*;

fn batch(spans: &[SpanRow<'_>]) -> (Signal, Vec<u8>) {
    let mut writer = BatchWriter::new();
    let resource = r#"{"service.name":"odd"}"#;
    let resource = ResourceText { attributes: resource, ..ResourceText::default() };
    for span in spans {
        writer.span(&resource, &ScopeText::default(), span).expect("plain JSON");
    }
    (Signal::Traces, writer.finish())
}

fn span(trace_id: u128, span_id: u64, parent_id: u64) -> SpanRow<'static> {
    let start_ns = BASE_NS.cast_unsigned();
    let end_ns = start_ns + 1_000_000 + span_id;
    SpanRow { trace_id, span_id, parent_id, name: "odd", start_ns, end_ns, ..SpanRow::default() }
}

/// Every query of a trace, or of all.
fn ask_all(service: &TestService, trace_id: u128) -> Vec<Value> {
    let rate = encoded("{ } | quantile_over_time(duration, .99)");
    [
        format!("/api/v2/traces/{trace_id:x}"),
        "/api/search?order=slowest&limit=100&spss=1000".to_owned(),
        "/api/search?limit=100".to_owned(),
        format!("/api/metrics/query?q={rate}"),
        "/api/v2/search/tags".to_owned(),
        format!("/jaeger/api/traces/{trace_id:x}"),
        "/jaeger/api/v3/trace-summaries".to_owned(),
    ]
    .map(|target| service.json(&target))
    .into()
}

#[test]
fn impossible_times_are_kept_and_returned() {
    let most = u64::MAX >> 1;
    let times = [(0, 0), (0, most), (most, most), (most, 0), (BASE_NS.cast_unsigned(), 5)];
    let spans: Vec<_> = (1..)
        .zip(times)
        .map(|(id, (start_ns, end_ns))| SpanRow { start_ns, end_ns, ..span(7, id, 0) })
        .collect();
    let service = TestService::with(&[batch(&spans), batch(&spans)]);
    let responses = ask_all(&service, 7);
    let trace = responses[0]["trace"].to_string();
    // Copies are dropped when a trace is read.
    assert_eq!(trace.matches("\"spanId\"").count(), 5);
    for (start_ns, end_ns) in times {
        for (name, ns) in [("startTimeUnixNano", start_ns), ("endTimeUnixNano", end_ns)] {
            // A time of zero is omitted.
            assert!(ns == 0 || trace.contains(&format!("\"{name}\":\"{ns}\"")), "{trace}");
        }
    }
    let slowest = &responses[1]["traces"][0]["spanSets"][0]["spans"][0];
    assert_eq!(slowest["durationNanos"], most.to_string());
}

#[test]
fn impossible_relations_are_kept_and_returned() {
    let circle = [span(1, 1, 2), span(1, 2, 1)];
    let own_parent = [span(2, 1, 1)];
    let lost = [span(3, 1, 99)];
    let twice = [span(4, 1, 0), SpanRow { kind: 2, ..span(4, 1, 0) }, span(4, 2, 1)];
    let service =
        TestService::with(&[batch(&circle), batch(&own_parent), batch(&lost), batch(&twice)]);
    for (trace_id, spans, orphans) in [(1, 2, 0), (2, 1, 0), (3, 1, 1), (4, 3, 0)] {
        let responses = ask_all(&service, trace_id);
        assert_eq!(responses[0].to_string().matches("\"spanId\"").count(), spans);
        let summaries = responses[6]["summaries"].as_array().expect("summaries");
        let is_of_trace = |summary: &&Value| summary["traceId"] == format!("{trace_id:032x}");
        let summary = summaries.iter().find(is_of_trace).expect("it is found");
        assert_eq!(
            (&summary["spanCount"], &summary["orphanSpanCount"]),
            (&spans.into(), &orphans.into())
        );
    }
}

#[test]
fn a_trace_of_a_hundred_thousand_spans_is_returned_whole() {
    let spans: Vec<_> = (1..=100_000).map(|id| span(9, id, id - 1)).collect();
    let batches: Vec<_> = spans.chunks(10_000).map(batch).collect();
    let service = TestService::with(&batches);
    let responses = ask_all(&service, 9);
    assert_eq!(responses[0].to_string().matches("\"spanId\"").count(), 100_000);
    assert_eq!(responses[1]["traces"][0]["spanSets"][0]["matched"], 100_000);
    let set = &responses[1]["traces"][0]["spanSets"][0]["spans"];
    assert_eq!(set.as_array().map(Vec::len), Some(1_000));
    assert_eq!(responses[5]["data"][0]["spans"].as_array().map(Vec::len), Some(100_000));
    assert_eq!(responses[6]["summaries"][0]["spanCount"], 100_000);
}
