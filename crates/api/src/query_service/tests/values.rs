//! Conditions on values that a simpler representation would compare wrongly: large integers, empty and missing texts,
//! lists. Also the fields that `select` returns.

use super::*;

fn batch(resource: &str, spans: &[SpanRow<'_>]) -> (Signal, Vec<u8>) {
    let mut writer = BatchWriter::new();
    let resource = ResourceText { attributes: resource, ..ResourceText::default() };
    for span in spans {
        writer.span(&resource, &ScopeText::default(), span).expect("plain JSON");
    }
    (Signal::Traces, writer.finish())
}

fn span<'a>(trace_id: u128, attributes: &'a [(&'a str, PlainValue<'a>)]) -> SpanRow<'a> {
    let start_ns = BASE_NS.cast_unsigned();
    let end_ns = start_ns + 1_000_000;
    SpanRow {
        trace_id,
        span_id: 1,
        name: "GET /",
        start_ns,
        end_ns,
        attributes,
        ..SpanRow::default()
    }
}

/// The IDs of the traces that a query finds.
fn found(service: &TestService, q: &str) -> Vec<u128> {
    let found = service.json(&format!("/api/search?q={}", encoded(q)));
    let traces = found["traces"].as_array().expect("traces").iter();
    let id = |trace: &Value| u128::from_str_radix(trace["traceID"].as_str()?, 16).ok();
    let mut ids: Vec<_> = traces.map(|trace| id(trace).expect("an ID")).collect();
    ids.sort_unstable();
    ids
}

fn assert_found(service: &TestService, all: &[(&str, &[u128])]) {
    for (q, ids) in all {
        assert_eq!(found(service, q), *ids, "{q}");
    }
}

fn measured(service: &TestService, q: &str) -> Value {
    let target = format!("/api/metrics/query?q={}&start=0&end=2000000000", encoded(q));
    service.json(&target)["series"].clone()
}

#[test]
fn integers_that_doubles_cannot_hold_are_compared_exactly() {
    let big = 9_007_199_254_740_993_i64;
    let attributes_with = |number| [("shop.id", PlainValue::Int(number))];
    let (one, other, most) =
        (attributes_with(big), attributes_with(big - 1), attributes_with(i64::MAX));
    let spans = [span(1, &one), span(2, &other), span(3, &most)];
    let service = TestService::with(&[batch("", &spans[..1]), batch("", &spans[1..])]);
    assert_found(
        &service,
        &[
            ("{ span.shop.id = 9007199254740993 }", &[1]),
            ("{ span.shop.id > 9007199254740992 }", &[1, 3]),
            ("{ span.shop.id >= 9007199254740993 }", &[1, 3]),
            ("{ span.shop.id < 9007199254740993 }", &[2]),
            ("{ span.shop.id <= 9007199254740992 }", &[2]),
            ("{ span.shop.id = 9007199254740992. }", &[2]),
            ("{ span.shop.id < 9223372036854775807 }", &[1, 2]),
            ("{ span.shop.id < 9223372036854775808 }", &[1, 2, 3]),
            ("{ span.shop.id != 9007199254740993 }", &[2, 3]),
        ],
    );
}

#[test]
fn an_empty_name_is_a_name() {
    let nameless = SpanRow { name: "", ..span(1, &[]) };
    let service = TestService::with(&[batch("", &[nameless]), batch("", &[span(2, &[])])]);
    assert_found(
        &service,
        &[
            (r#"{ name != "zzz" }"#, &[1, 2]),
            (r#"{ name = "" }"#, &[1]),
            (r#"{ name =~ ".*" }"#, &[1, 2]),
            (r#"{ name !~ "GET.*" }"#, &[1]),
            ("{ name = nil }", &[]),
            (r#"{ statusMessage = "" && name < "H" }"#, &[1, 2]),
            (r#"{ instrumentation:name != "x" }"#, &[1, 2]),
        ],
    );
    let names = service.json("/api/v2/search/tag/name/values")["tagValues"].to_string();
    assert_eq!(names, r#"[{"type":"string","value":""},{"type":"string","value":"GET /"}]"#);
    let names = service.json("/api/search/tag/name/values")["tagValues"].to_string();
    assert_eq!(names, r#"["","GET /"]"#);
}

#[test]
fn a_missing_service_differs_from_nil_and_from_an_empty_name() {
    let batch_of_service = |service: &str, trace_id| {
        let resource = format!(r#"{{"service.name":"{service}"}}"#);
        batch(&resource, &[span(trace_id, &[])])
    };
    let service = TestService::with(&[
        batch_of_service("nil", 1),
        batch_of_service("", 2),
        batch("", &[span(3, &[])]),
    ]);
    assert_found(
        &service,
        &[
            ("{ resource.service.name = nil }", &[3]),
            (r#"{ resource.service.name = "nil" }"#, &[1]),
            (r#"{ resource.service.name = "" }"#, &[2]),
            (r#"{ resource.service.name != "nil" }"#, &[2]),
        ],
    );
    let series = measured(&service, "{ } | count_over_time() by (resource.service.name)");
    let values: Vec<_> = series.as_array().expect("series").iter().collect();
    let values: Vec<_> =
        values.iter().map(|series| series["labels"][0]["value"].to_string()).collect();
    assert_eq!(values, ["{}", r#"{"stringValue":""}"#, r#"{"stringValue":"nil"}"#]);
    let services = service.json("/api/search/tag/service.name/values")["tagValues"].to_string();
    assert_eq!(services, r#"["","nil"]"#);
}

#[test]
fn heatmaps_have_buckets_for_extreme_values() {
    let attributes_with = |number| [("shop.price", PlainValue::Double(number))];
    let (huge, large, small) =
        (attributes_with(1e300), attributes_with(3e19), attributes_with(0.3));
    let spans = [span(1, &huge), span(2, &large), span(3, &small)];
    let service = TestService::with(&[batch("", &spans)]);
    let series = measured(&service, "{ } | histogram_over_time(span.shop.price)");
    let buckets = series.as_array().expect("series").iter();
    let upper = |series: &Value| series["labels"][0]["value"]["doubleValue"].as_f64();
    let buckets: Vec<_> = buckets.map(|series| upper(series).expect("a number")).collect();
    let wanted = [0.5, 2.0_f64.powi(65), 2.0_f64.powi(997)];
    assert_eq!(
        buckets.iter().map(|upper| upper.to_bits()).collect::<Vec<_>>(),
        wanted.map(f64::to_bits)
    );
}

#[test]
fn a_list_passes_by_one_element_and_a_negation_by_all() {
    let texts = [("shop.tags", PlainValue::Json(r#"["red","large"]"#))];
    let numbers = [("shop.sizes", PlainValue::Json("[36,38.5]"))];
    let spans = [span(1, &texts), span(2, &numbers)];
    let resource = r#"{"shop.regions":["eu","us"]}"#;
    let service = TestService::with(&[batch(resource, &spans[..1]), batch("", &spans[1..])]);
    assert_found(
        &service,
        &[
            (r#"{ span.shop.tags = "red" }"#, &[1]),
            (r#"{ span.shop.tags =~ "la.*" }"#, &[1]),
            (r#"{ span.shop.tags != "red" }"#, &[]),
            (r#"{ span.shop.tags != "blue" }"#, &[1]),
            (r#"{ span.shop.tags !~ "r.*" }"#, &[]),
            ("{ span.shop.sizes > 38 }", &[2]),
            ("{ span.shop.sizes = 36 }", &[2]),
            (r#"{ resource.shop.regions = "us" }"#, &[1]),
            (r#"{ .shop.regions = "eu" }"#, &[1]),
        ],
    );
    let values = service.json("/api/v2/search/tag/span.shop.tags/values")["tagValues"].to_string();
    assert_eq!(values, r#"[{"type":"string","value":"large"},{"type":"string","value":"red"}]"#);
    let q = encoded(r#"{ span.shop.tags = "red" }"#);
    let found = service.json(&format!("/api/search?q={q}"));
    let shown = found["traces"][0]["spanSets"][0]["spans"][0]["attributes"][0]["value"].to_string();
    let want = r#"{"arrayValue":{"values":[{"stringValue":"red"},{"stringValue":"large"}]}}"#;
    assert_eq!(shown, want);
}

#[test]
fn patterns_support_unicode_scripts() {
    let names = [SpanRow { name: "αβγ", ..span(1, &[]) }, span(2, &[])];
    let service = TestService::with(&[batch("", &names)]);
    assert_found(
        &service,
        &[(r#"{ name =~ "\\p{Greek}+" }"#, &[1]), (r#"{ name =~ `\pL+ /` }"#, &[2])],
    );
}

/// A span with an error status, two events and a link.
fn eventful() -> TestService {
    let event = |name, attributes| EventRow { name, attributes, ..EventRow::default() };
    let events = [
        event("exception", r#"{"exception.type":"Timeout"}"#),
        event("exception", r#"{"exception.type":"Refused"}"#),
    ];
    let link = curtail_otlp::LinkRow {
        trace_id: 5,
        span_id: 6,
        attributes: r#"{"why":"batch"}"#,
        ..Default::default()
    };
    let failed = SpanRow {
        kind: 2,
        status: 2,
        status_message: "gone",
        events: &events,
        links: &[link],
        ..span(1, &[])
    };
    let quiet = SpanRow { trace_id: 2, events: &[], links: &[], ..failed };
    TestService::with(&[batch("", &[failed]), batch("", &[quiet])])
}

#[test]
fn select_returns_the_named_fields() {
    let service = eventful();
    let shown = |q: &str| {
        let found = service.json(&format!("/api/search?q={}", encoded(q)));
        let attributes = &found["traces"][0]["spanSets"][0]["spans"][0]["attributes"];
        let key_and_value = |each: &Value| {
            let key = each["key"].as_str().expect("a key");
            format!("{key}={}", each["value"]["stringValue"].as_str().expect("a text"))
        };
        attributes.as_array().expect("attributes").iter().map(key_and_value).collect::<Vec<_>>()
    };
    let q = "{ trace:id = \"1\" } | select(event.exception.type, event:name, status, kind, name)";
    let want = ["exception.type=Timeout", "exception.type=Refused", "event:name=exception"];
    assert_eq!(shown(q)[..3], want);
    assert_eq!(shown(q)[3..], ["status=error", "kind=server"]);
    let q = "{ trace:id = \"1\" } | select(link.why, link:traceID) | select(statusMessage)";
    assert_eq!(shown(q), ["why=batch", "link:traceID=5", "statusMessage=gone"]);
    // Fields of a condition are returned as well.
    assert_eq!(shown("{ trace:id = \"1\" && status = error }"), ["status=error"]);
    for unknown in ["nestedSetLeft", "childCount", "event:timeSinceStart"] {
        let (status, body) = service
            .get(&format!("/api/search?q={}", encoded(&format!("{{}} | select({unknown})"))));
        assert_eq!(status, StatusCode::NOT_IMPLEMENTED, "{body}");
        assert!(body.contains(unknown), "{body}");
    }
}

#[test]
fn values_of_events_and_links_are_offered() {
    let service = eventful();
    for (tag, values) in [
        (
            "event.exception.type",
            r#"[{"type":"string","value":"Refused"},{"type":"string","value":"Timeout"}]"#,
        ),
        ("event:name", r#"[{"type":"string","value":"exception"}]"#),
        ("link.why", r#"[{"type":"string","value":"batch"}]"#),
    ] {
        let found = service.json(&format!("/api/v2/search/tag/{tag}/values"));
        assert_eq!(found["tagValues"].to_string(), values, "{tag}");
    }
}

#[test]
fn a_negation_applies_to_the_condition_after_it() {
    let service = eventful();
    assert_found(
        &service,
        &[
            ("{ !(event.exception.type = \"Timeout\") }", &[2]),
            ("{ !(name = \"x\") && !(span.absent = 1) }", &[1, 2]),
            ("{ !(status = error || kind = client) }", &[]),
            ("{ !!(status = error) }", &[1, 2]),
        ],
    );
    let (status, body) = service.get(&format!("/api/search?q={}", encoded("{ !( ) }")));
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(
        body.contains("byte 5: expected a condition") && body.contains("found \")\""),
        "{body}"
    );
}

#[test]
fn limits_of_zero_behave_as_in_tempo_and_jaeger() {
    let all = all();
    let service = TestService::with_traces(&all[..30]);
    let found = service.json("/api/search?q=%7B%7D&spss=0&limit=5");
    let set = &found["traces"][0]["spanSets"][0];
    assert_eq!(
        set["spans"].as_array().map(|spans| spans.len().into()),
        Some(set["matched"].clone())
    );
    let (status, body) = service.get("/api/search?limit=0");
    assert_eq!((status, body.contains("limit")), (StatusCode::BAD_REQUEST, true), "{body}");
    for (target, has) in [
        ("/api/v2/search/tag/name/values?limit=0", "lookup"),
        ("/api/search/tag/name/values?limit=0", "lookup"),
        ("/api/v2/search/tags?limit=0", "shop.price"),
    ] {
        assert!(service.json(target).to_string().contains(has), "{target}");
    }
    let tags = service.json("/api/v2/search/tags?limit=1&scope=resource");
    assert_eq!(tags["scopes"][0]["tags"].as_array().map(Vec::len), Some(1));
    for (limit, traces) in [("500", 30), ("1500", 30), ("7", 7), ("0", 30)] {
        let found = service.json(&format!("/jaeger/api/traces?service=front&limit={limit}"));
        assert_eq!(found["data"].as_array().map(Vec::len), Some(traces), "{limit}");
    }
}

#[test]
fn without_times_a_metrics_query_covers_the_last_hour() {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let now_ns = u64::try_from(now.as_nanos()).expect("before 2554");
    let at = |trace_id, minutes: u64| {
        let start_ns = now_ns - minutes * 60_000_000_000;
        SpanRow { start_ns, end_ns: start_ns + 1_000, ..span(trace_id, &[]) }
    };
    let service = TestService::with(&[batch("", &[at(1, 10), at(2, 30), at(3, 90)])]);
    let count = |rest: &str| {
        let q = encoded("{ } | count_over_time()");
        let range = service.json(&format!("/api/metrics/query_range?q={q}{rest}"));
        let samples = range["series"][0]["samples"].as_array().expect("samples");
        let range: f64 = samples.iter().filter_map(|sample| sample["value"].as_f64()).sum();
        let once = service.json(&format!("/api/metrics/query?q={q}{rest}"));
        format!("{range:.1} {}", once["series"][0]["value"])
    };
    assert_eq!(count(""), "2.0 2.0");
    assert_eq!(count("&since=20m"), "1.0 1.0");
    assert_eq!(count("&since=2h"), "3.0 3.0");
    let end = now_ns / 1_000_000_000 - 20 * 60;
    assert_eq!(count(&format!("&end={end}&since=15m")), "1.0 1.0");
    assert_eq!(count(&format!("&start={}", end - 5_400)), "3.0 3.0");
}
