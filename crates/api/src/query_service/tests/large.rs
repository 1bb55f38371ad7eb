//! Traces that are larger than a response may be, or than memory should hold.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;

const TRACE: u128 = 0x77;

/// A trace of `spans` spans in batches; each span has a text of `text_bytes` bytes.
fn trace(spans: u64, text_bytes: usize) -> Vec<(Signal, Vec<u8>)> {
    let text = "x".repeat(text_bytes);
    let attributes = [("shop.text", PlainValue::Text(&text))];
    let resource = r#"{"service.name":"front"}"#;
    let resource = ResourceText { attributes: resource, ..ResourceText::default() };
    let ids: Vec<_> = (1..=spans).collect();
    let batch = |ids: &[u64]| {
        let mut writer = BatchWriter::new();
        for span_id in ids {
            let start_ns = BASE_NS.cast_unsigned() + span_id;
            let span = SpanRow {
                trace_id: TRACE,
                span_id: *span_id,
                start_ns,
                end_ns: start_ns + 1_000,
                attributes: &attributes,
                ..SpanRow::default()
            };
            writer.span(&resource, &ScopeText::default(), &span).expect("plain JSON");
        }
        (Signal::Traces, writer.finish())
    };
    ids.chunks(ids.len().div_ceil(2)).map(batch).collect()
}

fn service(spans: u64, text_bytes: usize, limits: Limits) -> TestService {
    let service = TestService::with(&trace(spans, text_bytes));
    service.0.api.limits.store(Arc::new(limits));
    service
}

fn protobuf(service: &TestService, target: &str) -> Bytes {
    let request = Request::get(target).header("accept", "application/protobuf");
    let request = request.body(String::new()).expect("a request");
    run(async {
        let response = service.0.respond(request).await;
        assert_eq!(response.headers()[CONTENT_TYPE], "application/protobuf");
        response.into_body().collect().await.expect("it is whole").to_bytes()
    })
}

fn span_count(text: &str) -> usize {
    text.matches("\"spanId\"").count() + text.matches("\"spanID\"").count()
}

const FORMS: [(&str, bool); 4] = [
    ("/api/v2/traces/77", true),
    ("/jaeger/api/traces/77", true),
    ("/api/traces/77", false),
    ("/jaeger/api/v3/traces/77", false),
];

#[test]
fn a_trace_with_too_many_spans_is_cut_and_marked_partial() {
    let service = service(50, 10, Limits { trace_spans: 20, ..Limits::default() });
    for (target, says_it) in FORMS {
        let (status, body) = service.get(target);
        if says_it {
            assert_eq!((status, span_count(&body)), (StatusCode::OK, 20), "{target}: {body}");
            assert!(body.contains("Trace has 50 spans, the first 20 are returned"), "{body}");
            let ids = |nth: u64| [format!("{nth:016x}"), STANDARD.encode(nth.to_be_bytes())];
            let of_first = |nth| ids(nth).iter().any(|id| body.contains(&format!("\"{id}\"")));
            assert!(of_first(1) && of_first(20) && !of_first(21), "{body}");
        } else {
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{target}: {body}");
            assert!(body.contains("/api/v2/traces"), "{body}");
        }
    }
    let second = service.json("/api/v2/traces/77");
    assert_eq!(second["status"], "PARTIAL");
    let bytes = protobuf(&service, "/api/v2/traces/77");
    // The field `status` of the message, and the first bytes of `message`.
    let end: &[u8] = &[3 << 3, 1, 4 << 3 | 2];
    assert!(bytes.windows(3).any(|three| three == end));
    let found = service.json("/api/search?q=%7B%7D");
    assert_eq!(found["traces"][0]["spanSets"][0]["matched"], 20);
}

#[test]
fn a_response_has_a_maximum_size() {
    let response_bytes = 3 << 20;
    let service = service(500, 20_000, Limits { response_bytes, ..Limits::default() });
    for (target, says_it) in FORMS {
        let (status, body) = service.get(target);
        if says_it {
            assert_eq!(status, StatusCode::OK, "{target}");
            assert!(body.contains("a partial trace is returned"), "{target}");
            // ResponseChunks are never cut.
            assert!(
                (response_bytes / 2..response_bytes + (2 << 20)).contains(&body.len()),
                "{}",
                body.len()
            );
            serde_json::from_str::<Value>(&body).expect("the partial response is JSON");
        } else {
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{target}: {body:.100}");
        }
    }
    let q = encoded("{ } | select(span.shop.text)");
    let (status, body) = service.get(&format!("/api/search?q={q}&spss=0"));
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body:.100}");
    assert!(body.contains("spss"), "{body:.100}");
}

#[test]
fn a_streamed_response_has_the_whole_trace_in_every_form() {
    let service = service(20_000, 500, Limits::default());
    for (target, _) in FORMS {
        let (status, body) = service.get(target);
        assert_eq!((status, span_count(&body)), (StatusCode::OK, 20_000), "{target}");
        assert!(body.len() > 2 * WHOLE_BYTES, "{target}: {}", body.len());
        serde_json::from_str::<Value>(&body).expect(target);
    }
    for (target, inner) in [("/api/traces/77", false), ("/api/v2/traces/77", true)] {
        let bytes = protobuf(&service, target);
        let mut batches = Vec::new();
        let mut rest = &bytes[..];
        while inner && !rest.is_empty() {
            // A repeated field: each occurrence has its number, its length, and a part of the message.
            let (len, at) = length(&rest[1..]);
            assert_eq!(rest[0], 1 << 3 | 2);
            batches.extend_from_slice(&rest[1 + at..1 + at + len]);
            rest = &rest[1 + at + len..];
        }
        let batch = if inner { batches } else { bytes.to_vec() };
        let (spans, _) = curtail_otlp::Spans::decode(&batch, &curtail_otlp::Limits::default())
            .expect("protobuf");
        assert_eq!(spans.spans.len(), 20_000, "{target}");
    }
}

/// A variable-length number, and its own length in bytes.
fn length(bytes: &[u8]) -> (usize, usize) {
    let len = bytes.iter().take_while(|byte| **byte >= 0x80).count() + 1;
    let number = bytes[..len].iter().rev().fold(0, |all, byte| all << 7 | usize::from(byte & 0x7F));
    (number, len)
}

#[test]
fn a_streamed_response_stops_when_the_client_is_gone() {
    let service = service(500, 50_000, Limits::default());
    run(async {
        let request = Request::get("/jaeger/api/traces/77").body(String::new()).expect("a request");
        let response = service.0.respond(request).await;
        assert!(matches!(response.body(), ResponseBody::Right(_)));
        drop(response);
        let all = u32::try_from(LARGE_RESPONSES_MAX).expect("few");
        let permits = service.0.large.acquire_many(all).await;
        assert!(permits.is_ok(), "the permit has come back");
    });
}

#[test]
fn one_large_response_too_many_is_refused() {
    let service = service(500, 50_000, Limits::default());
    run(async {
        let all = u32::try_from(LARGE_RESPONSES_MAX).expect("few");
        let permits = service.0.large.acquire_many(all).await.expect("never closed");
        let get = || Request::get("/jaeger/api/traces/77").body(String::new()).expect("a request");
        assert_eq!(service.0.respond(get()).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(permits);
        assert_eq!(service.0.respond(get()).await.status(), StatusCode::OK);
    });
}

#[test]
fn every_query_ends_at_its_deadline() {
    let mut service = TestService::with_traces(&all()[..4]);
    service.0.patience = Duration::ZERO;
    let rate = encoded("{ } | rate()");
    for target in [
        "/api/traces/1000",
        "/api/v2/traces/1000",
        "/api/v1/traces/1000/logs",
        "/api/search",
        "/api/search/tags",
        "/api/v2/search/tag/name/values",
        &format!("/api/metrics/query?q={rate}"),
        &format!("/api/metrics/query_range?q={rate}"),
        "/jaeger/api/services",
        "/jaeger/api/traces/1000",
        "/jaeger/api/traces?service=front",
        "/jaeger/api/v3/trace-summaries",
        "/jaeger/api/dependencies",
    ] {
        let (status, body) = service.get(target);
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{target}: {body}");
    }
}
