//! The responses for Grafana's data source for Tempo.

use super::*;

fn slowest_first(mut all: Vec<Sent>) -> Vec<Sent> {
    all.sort_by_key(|sent| std::cmp::Reverse(sent.root_ns));
    all
}

fn ids(found: &Value) -> Vec<String> {
    let traces = found["traces"].as_array().expect("traces");
    traces.iter().map(|trace| trace["traceID"].as_str().expect("an ID").to_owned()).collect()
}

fn id(sent: &Sent) -> String {
    format!("{:032x}", sent.trace_id)
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// From the start of the first trace to that of the last.
fn times() -> String {
    let start = BASE_NS / SECOND_NS;
    format!("start={start}&end={}", start + 300)
}

const FRONT: &str = "{ resource.service.name = \"front\" }";

#[test]
fn a_trace_is_returned_in_both_forms() {
    let all = all();
    let service = TestService::with_traces(&all);
    for sent in [&all[0], &all[TRACES - 1]] {
        let first = service.json(&format!("/api/traces/{:x}", sent.trace_id));
        let second = service.json(&format!("/api/v2/traces/{}", id(sent)));
        assert_eq!(first["batches"], second["trace"]["resourceSpans"]);
        assert_eq!(first["batches"].as_array().map(Vec::len), Some(2));
        let span = &first["batches"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!(
            (&span["name"], &span["spanId"], &span["kind"]),
            (&"GET /cart".into(), &"AAAAAAAAAAE=".into(), &"SPAN_KIND_SERVER".into())
        );
        // OTLP's own JSON has digits and numbers.
        let third = service.json(&format!("/jaeger/api/v3/traces/{}", id(sent)));
        let span = &third["result"]["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
        assert_eq!((&span["spanId"], &span["kind"]), (&"0000000000000001".into(), &2.into()));
    }
}

#[test]
fn the_logs_of_a_trace_are_returned() {
    let all = all();
    let service = TestService::with_traces(&all);
    for sent in [&all[0], &all[TRACES - 1]] {
        let logs = service.json(&format!("/api/v1/traces/{:x}/logs", sent.trace_id));
        let record = &logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
        assert_eq!(
            (&record["traceId"], &record["spanId"]),
            (&id(sent).into(), &"0000000000000001".into())
        );
        assert_eq!(record["body"]["stringValue"], "asked");
    }
    let none = service.json("/api/v1/traces/77/logs");
    assert!(!none.to_string().contains("logRecords"), "{none}");
}

#[test]
fn the_slowest_traces_are_found_with_what_they_are() {
    let all = all();
    let service = TestService::with_traces(&all);
    let query = encoded("{ resource.service.name = \"cart\" && span.shop.price > 10 }");
    let found = service.json(&format!("/api/search?q={query}&order=slowest&limit=5"));
    let priced = slowest_first(all).into_iter().filter(|sent| sent.price.is_some());
    let want: Vec<_> = priced.take(5).collect();
    assert_eq!(ids(&found), want.iter().map(id).collect::<Vec<_>>());
    let (trace, sent) = (&found["traces"][0], &want[0]);
    assert_eq!(trace["rootServiceName"], "front");
    assert_eq!(trace["rootTraceName"], "GET /cart");
    assert_eq!(trace["startTimeUnixNano"], sent.start_ns.to_string());
    assert_eq!(trace["durationMs"], sent.root_ns / 1_000_000);
    assert_eq!(trace["serviceStats"]["front"]["errorCount"], i32::from(sent.is_error));
    let set = &trace["spanSets"][0];
    assert_eq!((&set["matched"], set["spans"].as_array().map(Vec::len)), (&1.into(), Some(1)));
    let span = &set["spans"][0];
    assert_eq!(span["name"], "lookup");
    assert_eq!(span["durationNanos"], sent.call_ns.to_string());
    let attributes = span["attributes"].to_string();
    assert!(attributes.contains("\"shop.price\"") && attributes.contains("12.5"), "{attributes}");
    let hinted = encoded("{ span.shop.price > 10 } with (slowest=true)");
    assert_eq!(ids(&service.json(&format!("/api/search?q={hinted}&limit=5"))), ids(&found));
}

#[test]
fn the_newest_come_first_and_within_the_times_that_are_asked_for() {
    let all = all();
    let service = TestService::with_traces(&all);
    let newest: Vec<_> = all.iter().rev().take(20).map(id).collect();
    assert_eq!(ids(&service.json("/api/search")), newest);
    let (start, end) = (BASE_NS / SECOND_NS + 10, BASE_NS / SECOND_NS + 13);
    let found = service.json(&format!("/api/search?q=%7B%7D&start={start}&end={end}"));
    assert_eq!(ids(&found), [12, 11, 10].map(|nth: usize| id(&all[nth])));
    let found = service.json("/api/search?tags=service.name%3Dcart&minDuration=100ms&limit=1000");
    let slow = all.iter().rev().filter(|sent| sent.call_ns >= 100_000_000);
    assert_eq!(ids(&found), slow.map(id).collect::<Vec<_>>());
}

#[test]
fn quantiles_and_extremes_are_those_of_all_spans() {
    let all = all();
    let service = TestService::with_traces(&all);
    let query = encoded(&format!("{FRONT} | quantile_over_time(duration, .5, .99)"));
    let quantiles =
        service.json(&format!("/api/metrics/query_range?q={query}&{}&step=1h", times()));
    let mut durations: Vec<_> = all.iter().map(|sent| sent.root_ns).collect();
    durations.sort_unstable();
    for (nth, (rank, p)) in [(150, 0.5), (297, 0.99)].into_iter().enumerate() {
        let series = &quantiles["series"][nth];
        assert_eq!(series["labels"][0]["key"], "p");
        assert_eq!(series["labels"][0]["value"]["doubleValue"], p);
        let value = number(&series["samples"][0]["value"]);
        let want = durations[rank - 1] as f64 / 1e9;
        assert!((value - want).abs() < 1e-12, "{value} {want}");
    }
    let query = encoded(&format!("{FRONT} | max_over_time(duration)"));
    let most = service.json(&format!("/api/metrics/query?q={query}&{}", times()));
    let want = durations[299] as f64 / 1e9;
    assert!((number(&most["series"][0]["value"]) - want).abs() < 1e-12);
    assert_eq!(most["series"][0]["labels"][0]["value"]["stringValue"], "max_over_time");
}

#[test]
fn rates_and_heatmaps_count_all_spans() {
    let service = TestService::with_traces(&all());
    let query = encoded("{ } | rate() by (resource.service.name)");
    let rate = service.json(&format!("/api/metrics/query_range?q={query}&{}&step=60s", times()));
    assert_eq!(rate["series"].as_array().map(Vec::len), Some(2));
    assert_eq!(rate["series"][0]["labels"][0]["value"]["stringValue"], "cart");
    let samples = rate["series"][1]["samples"].as_array().expect("samples");
    let spans: f64 = samples.iter().map(|sample| number(&sample["value"]) * 60.0).sum();
    assert!((spans - 300.0).abs() < 1e-9 && samples.len() >= 5, "{samples:?}");
    let query = encoded(&format!("{FRONT} | histogram_over_time(duration)"));
    let heat = service.json(&format!("/api/metrics/query_range?q={query}&{}&step=1h", times()));
    let series = heat["series"].as_array().expect("series");
    let count = |series: &Value| {
        assert_eq!(series["labels"][0]["key"], "__bucket");
        number(&series["samples"][0]["value"])
    };
    assert!((series.iter().map(count).sum::<f64>() - 300.0).abs() < 1e-9);
}

#[test]
fn exemplars_are_the_slowest() {
    let all = all();
    let service = TestService::with_traces(&all);
    let query = encoded("{ } | rate()");
    let found =
        service.json(&format!("/api/metrics/query_range?q={query}&{}&exemplars=3", times()));
    let exemplars = found["series"][0]["exemplars"].as_array().expect("exemplars");
    let want: Vec<_> = slowest_first(all).iter().take(3).map(id).collect();
    let got: Vec<_> = exemplars
        .iter()
        .map(|exemplar| exemplar["labels"][0]["value"]["stringValue"].as_str().expect("an ID"))
        .collect();
    assert_eq!(got, want);
}

#[test]
fn tags_are_offered_by_their_scopes() {
    let service = TestService::with_traces(&all());
    let scopes = service.json("/api/v2/search/tags")["scopes"].clone();
    let tags_of_scope = |scope: &str| {
        let scopes = scopes.as_array().expect("scopes");
        scopes.iter().find(|each| each["name"] == scope).map(|each| each["tags"].to_string())
    };
    assert_eq!(
        tags_of_scope("span").as_deref(),
        Some("[\"http.response.status_code\",\"shop.price\"]")
    );
    assert_eq!(tags_of_scope("resource").as_deref(), Some("[\"cloud.region\",\"service.name\"]"));
    assert!(tags_of_scope("intrinsic").is_some_and(|tags| tags.contains("\"duration\"")));
    assert_eq!(tags_of_scope("event"), None);
    let only = service.json("/api/v2/search/tags?scope=resource");
    assert_eq!(only["scopes"].as_array().map(Vec::len), Some(1));
    let names = service.json("/api/search/tags")["tagNames"].to_string();
    assert!(names.contains("\"shop.price\"") && names.contains("\"cloud.region\""), "{names}");
}

#[test]
fn values_of_tags_are_offered() {
    let service = TestService::with_traces(&all());
    let values =
        |rest: &str| service.json(&format!("/api/v2/search/tag/{rest}"))["tagValues"].to_string();
    assert_eq!(
        values("span.http.response.status_code/values"),
        r#"[{"type":"int","value":"200"},{"type":"int","value":"503"}]"#
    );
    // Encoded twice, as Grafana does.
    let services = values("resource%252Eservice%252Ename/values");
    assert!(services.contains(r#"{"type":"string","value":"cart"}"#), "{services}");
    assert!(values("status/values").contains(r#"{"type":"keyword","value":"error"}"#));
    let of_cart = encoded("{ resource.service.name = \"cart\" }");
    let names = values(&format!("name/values?q={of_cart}"));
    assert_eq!(names, r#"[{"type":"string","value":"lookup"}]"#);
    let old = service.json("/api/search/tag/service.name/values")["tagValues"].to_string();
    assert!(old.contains("\"front\""), "{old}");
}
