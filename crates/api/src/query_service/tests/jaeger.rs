//! The responses below `/jaeger`.

use super::*;

#[test]
fn services_and_what_they_do_are_named() {
    let service = TestService::with_traces(&all());
    let both = r#"["cart","front"]"#;
    assert_eq!(service.json("/jaeger/api/v3/services")["services"].to_string(), both);
    assert_eq!(service.json("/jaeger/api/services")["data"].to_string(), both);
    let operations =
        service.json("/jaeger/api/v3/operations?service=front")["operations"].to_string();
    assert_eq!(operations, r#"[{"name":"GET /cart","spanKind":"server"}]"#);
    let operations = service.json("/jaeger/api/services/cart/operations")["data"].to_string();
    assert_eq!(operations, r#"["lookup"]"#);
    let operations =
        service.json("/jaeger/api/operations?service=cart&spanKind=server")["data"].to_string();
    assert_eq!(operations, "[]");
}

#[test]
fn summaries_are_those_of_whole_traces() {
    let all = all();
    let service = TestService::with_traces(&all);
    let target = "/jaeger/api/v3/trace-summaries?query.serviceName=cart&query.operationName=lookup\
                  &query.startTimeMin=2025-06-15T15:06:50Z&query.durationMin=1us&query.searchDepth=2";
    let found = service.json(target);
    let summaries = found["summaries"].as_array().expect("summaries");
    assert_eq!(summaries.len(), 2);
    let sent = &all[TRACES - 1];
    let errors = i64::from(sent.is_error);
    let want = serde_json::json!({
        "traceId": format!("{:032x}", sent.trace_id),
        "rootServiceName": "front",
        "rootOperationName": "GET /cart",
        "minStartTimeUnixNano": sent.start_ns.to_string(),
        "maxEndTimeUnixNano": (sent.start_ns + sent.root_ns).to_string(),
        "spanCount": 2,
        "errorSpanCount": errors,
        "orphanSpanCount": 0,
        "services": [
            { "name": "cart", "spanCount": 1, "errorSpanCount": 0 },
            { "name": "front", "spanCount": 1, "errorSpanCount": errors },
        ],
    });
    assert_eq!(summaries[0], want);
    let match_count = |attributes: &str| {
        let attributes = encoded(attributes);
        let target = format!(
            "/jaeger/api/v3/trace-summaries?query.searchDepth=1000&query.attributes={attributes}"
        );
        service.json(&target)["summaries"].as_array().map_or(0, Vec::len)
    };
    let wrong = all.iter().filter(|sent| sent.is_error).count();
    assert_eq!(match_count(r#"{"http.response.status_code":"503"}"#), wrong);
    assert_eq!(match_count(r#"{"error":"true"}"#), wrong);
}

#[test]
fn a_trace_is_as_its_page_has_it() {
    let all = all();
    let service = TestService::with_traces(&all);
    let sent = all.iter().find(|sent| !sent.is_error).expect("most are none");
    let trace = service.json(&format!("/jaeger/api/traces/{:x}", sent.trace_id))["data"][0].clone();
    assert_eq!(trace["traceID"], format!("{:032x}", sent.trace_id));
    assert_eq!(trace["processes"]["p2"]["serviceName"], "cart");
    let front = trace["processes"]["p1"]["tags"].to_string();
    assert_eq!(front, r#"[{"key":"cloud.region","type":"string","value":"eu"}]"#);
    let (root, call) = (&trace["spans"][0], &trace["spans"][1]);
    assert_eq!((&root["processID"], &call["processID"]), (&"p1".into(), &"p2".into()));
    assert_eq!(root["startTime"], sent.start_ns / 1_000);
    assert_eq!(call["duration"], sent.call_ns / 1_000);
    assert_eq!(call["references"][0]["refType"], "CHILD_OF");
    assert_eq!(call["references"][0]["spanID"], "0000000000000001");
    let tags = root["tags"].to_string();
    for tag in [
        r#"{"key":"http.response.status_code","type":"int64","value":200}"#,
        r#"{"key":"span.kind","type":"string","value":"server"}"#,
        r#"{"key":"otel.scope.name","type":"string","value":"shop"}"#,
    ] {
        assert!(tags.contains(tag), "{tags}");
    }
    assert_eq!(root["logs"][0]["fields"][0]["value"], "asked");
    let third = service.json(&format!("/jaeger/api/v3/traces/{:x}", sent.trace_id));
    assert_eq!(third["result"]["resourceSpans"].as_array().map(Vec::len), Some(2));
}

#[test]
fn traces_are_searched_as_grafana_does() {
    let all = all();
    let service = TestService::with_traces(&all);
    let (start, end) = (BASE_NS / 1_000, BASE_NS / 1_000 + 20_000_000);
    let tags = encoded(r#"{"shop.price":"12.5"}"#);
    let found = service.json(&format!(
        "/jaeger/api/traces?service=cart&operation=lookup&tags={tags}&start={start}&end={end}\
         &limit=100&order=slowest"
    ));
    let mut want: Vec<_> = all[..20].iter().filter(|sent| sent.price.is_some()).collect();
    want.sort_by_key(|sent| std::cmp::Reverse(sent.call_ns));
    let want: Vec<_> = want.iter().map(|sent| format!("{:032x}", sent.trace_id)).collect();
    let got = found["data"].as_array().expect("traces");
    let got: Vec<_> = got.iter().map(|trace| trace["traceID"].as_str().expect("an ID")).collect();
    assert_eq!(got, want);
    let both = service.json("/jaeger/api/traces?traceID=1000&traceID=1001");
    assert_eq!(both["data"].as_array().map(Vec::len), Some(2));
}

#[test]
fn who_calls_whom_is_counted_in_files_and_in_memory() {
    let all = all();
    let service = TestService::with_traces(&all);
    let calls = |target: &str| service.json(target)["data"].to_string();
    let dependency =
        |count: usize| format!(r#"[{{"callCount":{count},"child":"cart","parent":"front"}}]"#);
    assert_eq!(calls("/jaeger/api/dependencies"), dependency(all.len()));
    // Both spans of a trace begin at once: before the end, and not before the time looked back.
    let end_ms = all[TRACES / 2].start_ns / 1_000_000 + 1;
    let trace_count = |since_ms: i64| {
        let is_among =
            |sent: &&Sent| (since_ms * 1_000_000..end_ms * 1_000_000).contains(&sent.start_ns);
        all.iter().filter(is_among).count()
    };
    assert!((1..all.len()).contains(&trace_count(0)));
    assert_eq!(
        calls(&format!("/jaeger/api/dependencies?endTs={end_ms}")),
        dependency(trace_count(0))
    );
    let lookback = (end_ms - all[0].start_ns / 1_000_000) / 2;
    let target = format!("/jaeger/api/dependencies?endTs={end_ms}&lookback={lookback}");
    assert_eq!(calls(&target), dependency(trace_count(end_ms - lookback)));
}

#[test]
fn errors_have_the_form_that_jaegers_page_reads() {
    let service = TestService::with_traces(&all()[..1]);
    let respond = |request: Request<String>| {
        run(async {
            let (head, body) = service.0.respond(request).await.into_parts();
            assert_eq!(head.headers[CONTENT_TYPE], "application/json");
            let body =
                http_body_util::BodyExt::collect(body).await.expect("it is whole").to_bytes();
            (head.status.as_u16(), serde_json::from_slice::<Value>(&body).expect("JSON"))
        })
    };
    for (method, path, code, message) in [
        (Method::GET, "traces/77", 404, "there is no such trace"),
        (Method::GET, "traces/xyz", 400, "expected a trace ID: 1 to 32 hexadecimal digits"),
        (Method::GET, "nothing", 404, "there is nothing of this name"),
        (Method::GET, "operations", 400, "service: expected the name of a service"),
        (Method::GET, "metrics/calls", 501, "metrics are served at /api/metrics/query_range"),
        (Method::POST, "services", 405, "expected GET or HEAD"),
    ] {
        for (version, want) in [
            (
                "",
                serde_json::json!({
                    "data": null, "total": 0, "limit": 0, "offset": 0,
                    "errors": [{ "code": code, "msg": message }],
                }),
            ),
            ("v3/", serde_json::json!({ "error": { "httpCode": code, "message": message } })),
        ] {
            if version == "v3/" && path.starts_with("metrics") {
                continue;
            }
            let request =
                Request::builder().method(&method).uri(format!("/jaeger/api/{version}{path}"));
            let got = respond(request.body(String::new()).expect("a request"));
            assert_eq!(got, (code, want), "{path}");
        }
    }
    // Elsewhere they are text.
    let (status, body) = service.get("/api/traces/77");
    assert_eq!((status.as_u16(), &*body), (404, "there is no such trace\n"));
}
