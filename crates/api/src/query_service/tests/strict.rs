//! Responses decoded as strictly as Tempo's clients do. Unknown fields, negative numbers in unsigned fields, and
//! numbers where text is expected reject the whole response.
//!
//! **Source**: `tempo.proto` of Grafana Tempo 3; protobuf's mapping to JSON.

#[expect(dead_code, reason = "most fields are only decoded")]
mod messages;

use super::*;
use messages::{
    QueryInstantResponse, QueryRangeResponse, SearchResponse, SearchTagValuesResponse,
    SearchTagValuesV2Response, SearchTagsResponse, SearchTagsV2Response, Trace, TraceByIdResponse,
};
use serde::de::DeserializeOwned;

fn strict<T: DeserializeOwned>(service: &TestService, target: &str) -> T {
    let (status, body) = service.get(target);
    assert_eq!(status, StatusCode::OK, "{target}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{target}: {error}: {body}"))
}

fn times() -> String {
    let start = BASE_NS / SECOND_NS;
    format!("start={}&end={}", start - 60, start + 300)
}

/// Sends every request that Tempo's clients send.
fn ask_all(service: &TestService, trace_id: u128) {
    strict::<SearchResponse>(service, "/api/search?q=%7B%7D&limit=1000&spss=100");
    strict::<SearchTagsResponse>(service, "/api/search/tags");
    strict::<SearchTagsV2Response>(service, "/api/v2/search/tags");
    strict::<SearchTagValuesResponse>(service, "/api/search/tag/service.name/values");
    strict::<SearchTagValuesV2Response>(service, "/api/v2/search/tag/span.shop.price/values");
    for measure in [
        "rate() by (resource.service.name)",
        "max_over_time(duration)",
        "min_over_time(duration)",
        "sum_over_time(span.shop.price)",
        "quantile_over_time(duration, .5, .99) by (name)",
        "histogram_over_time(duration)",
    ] {
        let q = encoded(&format!("{{ }} | {measure}"));
        let range = format!("/api/metrics/query_range?q={q}&{}&exemplars=5", times());
        strict::<QueryRangeResponse>(service, &range);
        strict::<QueryInstantResponse>(service, &format!("/api/metrics/query?q={q}&{}", times()));
    }
    let first = strict::<Trace>(service, &format!("/api/traces/{trace_id:x}"));
    let second = strict::<TraceByIdResponse>(service, &format!("/api/v2/traces/{trace_id:x}"));
    for batch in first.batches.iter().chain(&second.trace.resource_spans) {
        assert!(batch.resource.is_some(), "{batch:?}");
        for scope_spans in &batch.scope_spans {
            assert!(scope_spans.scope.is_some(), "{scope_spans:?}");
            assert!(scope_spans.spans.iter().all(|span| span.status.is_some()), "{scope_spans:?}");
            // Hexadecimal digits are base64 too, of more bytes.
            let ids =
                scope_spans.spans.iter().map(|span| (&*span.trace_id.0, span.span_id.0.len()));
            assert!(
                ids.clone().all(|id| id == (&trace_id.to_be_bytes()[..], 8)),
                "{scope_spans:?}"
            );
        }
    }
}

#[test]
fn every_response_is_a_message_that_tempos_clients_accept() {
    let all = all();
    ask_all(&TestService::with_traces(&all[..20]), all[0].trace_id);
}

/// Empty messages that every SDK sends are in the response too; otherwise a comparison by field fails.
#[test]
fn empty_messages_are_returned() {
    let mut writer = BatchWriter::new();
    let (resource, scope) = (ResourceText::default(), ScopeText::default());
    let span = SpanRow { trace_id: 7, span_id: 1, ..SpanRow::default() };
    writer.span(&resource, &scope, &span).expect("plain JSON");
    ask_all(&TestService::with(&[(Signal::Traces, writer.finish())]), 7);
}

#[test]
fn infinities_and_nan_are_text_in_json() {
    let mut writer = BatchWriter::new();
    for (span_id, price) in [(1, f64::INFINITY), (2, f64::NEG_INFINITY)] {
        let attributes = [("shop.price", PlainValue::Double(price))];
        let start_ns = BASE_NS.cast_unsigned();
        let span = SpanRow {
            trace_id: 7,
            span_id,
            start_ns,
            attributes: &attributes,
            ..SpanRow::default()
        };
        writer.span(&ResourceText::default(), &ScopeText::default(), &span).expect("plain JSON");
    }
    let service = TestService::with(&[(Signal::Traces, writer.finish())]);
    for (function, value) in [("min", "-Infinity"), ("max", "Infinity"), ("sum", "NaN")] {
        let q = encoded(&format!("{{ }} | {function}_over_time(span.shop.price)"));
        let found = service.json(&format!("/api/metrics/query?q={q}&{}", times()));
        assert_eq!(found["series"][0]["value"], value, "{found}");
    }
    strict::<SearchResponse>(&service, "/api/search?q=%7B+span.shop.price+%21%3D+nil+%7D");
}

#[test]
fn the_error_of_quantiles_is_a_header() {
    let service = TestService::with_traces(&all()[..20]);
    let error = |q: &str| {
        let q = encoded(q);
        ["query", "query_range"].map(|path| {
            let target = format!("/api/metrics/{path}?q={q}&{}", times());
            let request = Request::get(target).body(String::new()).expect("a request");
            let response = run(service.0.respond(request));
            let error = response.headers().get("curtail-quantile-error");
            error.map(|error| error.to_str().expect("a number").to_owned())
        })
    };
    let zero = || Some("0".to_owned());
    assert_eq!(error("{ } | quantile_over_time(duration, .99)"), [zero(), zero()]);
    assert_eq!(error("{ } | rate()"), [None, None]);
}

#[test]
fn a_span_that_ends_before_it_starts_has_duration_zero() {
    let (start, most) = (BASE_NS.cast_unsigned(), u64::MAX >> 1);
    let mut writer = BatchWriter::new();
    let resource = r#"{"service.name":"front"}"#;
    let resource = ResourceText { attributes: resource, ..ResourceText::default() };
    // The second span has not ended; the third lasted 292 years.
    for (trace_id, start_ns, end_ns) in
        [(7, start, start - 5_000_000_000), (8, start, 0), (9, 0, most), (10, most, 0)]
    {
        let span = SpanRow { trace_id, span_id: 1, start_ns, end_ns, ..SpanRow::default() };
        writer.span(&resource, &ScopeText::default(), &span).expect("plain JSON");
    }
    let batch = (Signal::Traces, writer.finish());
    // One span is in a run, the other in memory.
    let service = TestService::with(&[batch.clone(), batch]);
    for trace_id in 7..=10 {
        ask_all(&service, trace_id);
    }
    let traces = |q: &str| {
        let q = encoded(q);
        service.json(&format!("/api/search?q={q}"))["traces"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(traces("{ duration = 0s }"), 3);
    assert_eq!(traces("{ duration >= 0s }"), 4);
    assert_eq!(traces("{ duration < 0s }"), 0);
    assert_eq!(traces("{ duration < 1ms || name = \"none\" }"), 3);
    let found = service.json("/api/search?q=%7B+trace:id+%3D+%227%22+%7D");
    let trace = &found["traces"][0];
    assert_eq!(trace["durationMs"], 0);
    assert_eq!(trace["spanSets"][0]["spans"][0]["durationNanos"], "0");
    for function in ["min", "max", "sum", "avg"] {
        let q = encoded(&format!("{{ trace:id = \"7\" }} | {function}_over_time(duration)"));
        let found = service.json(&format!("/api/metrics/query?q={q}&{}", times()));
        assert_eq!(found["series"][0]["value"], 0.0, "{function}: {found}");
    }
    let summaries = service.json("/jaeger/api/v3/trace-summaries");
    for summary in summaries["summaries"].as_array().expect("summaries") {
        let time = |name: &str| summary[name].as_str().and_then(|ns| ns.parse::<u64>().ok());
        assert!(time("minStartTimeUnixNano") <= time("maxEndTimeUnixNano"), "{summary}");
    }
    let trace = service.json("/jaeger/api/traces/7");
    assert_eq!(trace["data"][0]["spans"][0]["duration"], 0);
    // The trace itself is unchanged.
    let trace = service.get("/api/v2/traces/7").1;
    assert!(
        trace.contains(&format!("\"endTimeUnixNano\":\"{}\"", start - 5_000_000_000)),
        "{trace}"
    );
}
