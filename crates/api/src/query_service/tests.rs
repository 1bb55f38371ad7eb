mod explain;
mod jaeger;
mod large;
mod odd;
mod predict;
mod scorecard;
mod sql;
mod strict;
mod tempo;
mod values;

use super::*;
use crate::{MetricsPage, Sql, SqlProgram};
use curtail_http::access::Tokens;
use curtail_otlp::{
    BatchWriter, Decoded, EventRow, LogRow, PlainValue, ResourceText, ScopeText, Signal, SpanRow,
};
use curtail_store::log::Record;
use curtail_store::{Settings, Store, tree};
use curtail_units::Rng;
use serde_json::Value;
use std::path::{Path, PathBuf};

const SEED: u64 = 3_200;
const BASE_NS: i64 = 1_750_000_000_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
const TRACES: usize = 300;

/// A trace as it was sent: a root, and a call beneath it.
#[derive(Clone, Debug)]
struct Sent {
    trace_id: u128,
    start_ns: i64,
    root_ns: i64,
    call_ns: i64,
    is_error: bool,
    price: Option<f64>,
}

fn sent(nth: usize, rng: &mut Rng) -> Sent {
    let root_ns = 1_000_000 + i64::try_from(rng.below(900_000_000)).expect("small");
    Sent {
        trace_id: 0x1000 + nth as u128,
        start_ns: BASE_NS + i64::try_from(nth).expect("small") * SECOND_NS,
        root_ns,
        call_ns: root_ns / 2,
        is_error: rng.below(10) == 0,
        price: (rng.below(3) == 0).then_some(12.5),
    }
}

fn all() -> Vec<Sent> {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    (0..TRACES).map(|nth| sent(nth, &mut rng)).collect()
}

fn batch(sent: &Sent) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    let scope = ScopeText { name: "shop", ..ScopeText::default() };
    let code = if sent.is_error { 503 } else { 200 };
    let root = SpanRow {
        trace_id: sent.trace_id,
        span_id: 1,
        name: "GET /cart",
        kind: 2,
        start_ns: sent.start_ns.cast_unsigned(),
        end_ns: (sent.start_ns + sent.root_ns).cast_unsigned(),
        status: if sent.is_error { 2 } else { 0 },
        attributes: &[("http.response.status_code", PlainValue::Int(code))],
        events: &[EventRow {
            name: "asked",
            time_ns: sent.start_ns.cast_unsigned(),
            ..EventRow::default()
        }],
        ..SpanRow::default()
    };
    let price = sent.price.map(|price| ("shop.price", PlainValue::Double(price)));
    let call = SpanRow {
        span_id: 2,
        parent_id: 1,
        name: "lookup",
        kind: 3,
        end_ns: (sent.start_ns + sent.call_ns).cast_unsigned(),
        status: 0,
        attributes: &price.into_iter().collect::<Vec<_>>(),
        events: &[],
        ..root
    };
    let front = r#"{"service.name":"front","cloud.region":"eu"}"#;
    for (resource, span) in [(front, &root), (r#"{"service.name":"cart"}"#, &call)] {
        let resource = ResourceText { attributes: resource, ..ResourceText::default() };
        writer.span(&resource, &scope, span).expect("plain JSON");
    }
    writer.finish()
}

/// A log record that names a trace.
fn log(sent: &Sent) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    let record = LogRow {
        trace_id: sent.trace_id,
        span_id: 1,
        time_ns: sent.start_ns.cast_unsigned(),
        body: Some(PlainValue::Text("asked")),
        ..LogRow::default()
    };
    let (resource, scope) = (ResourceText::default(), ScopeText::default());
    writer.record(&resource, &scope, &record).expect("plain JSON");
    writer.finish()
}

/// Metrics of nothing.
#[derive(Debug)]
struct Page;

impl MetricsPage for Page {
    fn render(&self, _: curtail_metrics::MetricsForm) -> (&'static str, Vec<u8>) {
        ("text/plain", b"# EOF\n".to_vec())
    }
}

/// A service whose store has half of the batches in a run, and half in memory.
struct TestService(QueryService);

impl TestService {
    fn with_traces(all: &[Sent]) -> Self {
        let both = |sent| [(Signal::Traces, batch(sent)), (Signal::Logs, log(sent))];
        Self::with(&all.iter().flat_map(both).collect::<Vec<_>>())
    }

    fn with(batches: &[(Signal, Vec<u8>)]) -> Self {
        run(async {
            let folder = std::env::temp_dir();
            let log = folder.join(format!("curtail-api-{}-{batches:p}", std::process::id()));
            let settings = Settings {
                files: Arc::new(curtail_store::Directory::open(&log).expect("a folder")),
                tables: tree::Settings {
                    objects: Arc::new(object_store::memory::InMemory::new()),
                    root: "data".into(),
                    writer: "one".to_owned(),
                    final_rows: tree::FINAL_ROWS,
                    known: Default::default(),
                },
                memtable_bytes: usize::MAX,
                batch_key: curtail_store::recent::BatchKey::new([7; 32]),
            };
            let (mut parts, _) = Store::open(&settings, 0, "f0b1").await.expect("memory");
            let store = Arc::clone(&parts.store);
            for (half, segment) in batches.chunks(batches.len().div_ceil(2)).zip(1..) {
                for (signal, batch) in half {
                    let (tenant, batch) =
                        (curtail_store::DEFAULT_TENANT.into(), batch.clone().into());
                    let record = Record { signal: *signal, tenant, received_ns: 0, batch };
                    let rows =
                        Decoded::of(*signal, &record.batch, &curtail_otlp::Limits::default());
                    store.insert(segment, &record, rows.expect("a batch").0);
                }
                if segment == 1 {
                    store.seal(segment);
                    parts.flusher.flush(0).await.expect("memory");
                }
            }
            std::fs::remove_dir_all(&log).expect("it is ours");
            let api = Api {
                tls: None,
                access: Arc::default(),
                store,
                sql: by_stand_in(Some(PathBuf::from("the tables"))),
                limits: Arc::default(),
                query_threads: None,
                metrics: Arc::default(),
                page: Arc::new(Page),
            };
            Self(QueryService::new(api, Arc::default()).expect("threads"))
        })
    }

    fn get(&self, target: &str) -> (StatusCode, String) {
        self.send_empty(Request::get(target), "GET")
    }

    fn send_empty(&self, head: http::request::Builder, method: &str) -> (StatusCode, String) {
        let request = head.method(method).body(String::new()).expect("a request");
        run(self.send(request))
    }

    async fn send(&self, request: Request<String>) -> (StatusCode, String) {
        let (head, body) = self.0.respond(request).await.into_parts();
        let body = http_body_util::BodyExt::collect(body).await.expect("it is whole");
        (head.status, String::from_utf8_lossy(&body.to_bytes()).into_owned())
    }

    fn json(&self, target: &str) -> Value {
        let (status, body) = self.get(target);
        assert_eq!(status, StatusCode::OK, "{target}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{target}: {error}: {body}"))
    }
}

/// A shell in the place of `curtail-sql`: it executes the query.
fn by_stand_in(tables: Option<PathBuf>) -> Sql {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stand-in");
    Sql::new(SqlProgram::in_folder_of(&folder.join("curtail")), tables)
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

/// In the target of a request.
fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[test]
fn health_checks_respond_and_unknown_paths_do_not() {
    let service = TestService::with_traces(&all()[..2]);
    for (path, body) in [
        ("/healthz", "ok\n"),
        ("/readyz", "ready\n"),
        ("/ready", "ready\n"),
        ("/metrics", "# EOF\n"),
    ] {
        assert_eq!(service.get(path), (StatusCode::OK, body.to_owned()));
    }
    let (status, profiles) = service.get("/debug/pprof/");
    assert_eq!(status, StatusCode::OK);
    assert!(profiles.starts_with("profile?seconds=10"), "{profiles}");
    assert_eq!(service.get("/api/echo"), (StatusCode::OK, "echo".to_owned()));
    assert_eq!(service.json("/api/status/buildinfo")["version"], env!("CARGO_PKG_VERSION"));
    for (target, status, message) in [
        ("/", 404, "nothing of this name"),
        ("/api/traces/xyz", 400, "hexadecimal"),
        ("/api/v2/traces/77", 404, "no such trace"),
        ("/jaeger/api/traces/77", 404, "no such trace"),
        ("/api/search?q=%7B", 400, "byte 1"),
        ("/api/search?q=%7B+rootName%3D%22a%22+%7D", 501, "rootName"),
        ("/api/search?limit=0", 400, "limit: expected a number from 1"),
        ("/api/search?order=random", 400, "slowest or newest"),
        ("/api/search?start=soon", 400, "start: expected a time"),
        ("/api/search?q=%7B%7D%7Crate()", 400, "/api/metrics/query_range"),
        ("/api/metrics/query_range?q=%7B%7D%7Crate()&since=soon", 400, "since: expected"),
        ("/api/metrics/query_range?q=%7B%7D%7Crate()&start=7&end=5", 400, "a time before end"),
        ("/api/metrics/query?q=%7B%7D", 400, "a measure"),
        ("/api/metrics/query_range?q=%7B%7D%7Crate()&start=1&end=100000&step=1s", 400, "step"),
        ("/api/v2/search/tag/a%20b/values", 400, "a tag"),
        ("/jaeger/api/dependencies?endTs=now", 400, "endTs: expected milliseconds"),
        ("/jaeger/api/operations", 400, "service"),
        ("/jaeger/api/traces?tags=a", 400, "tags"),
        ("/debug/pprof/profile?seconds=0", 400, "from 1 to 60"),
        ("/debug/pprof/heap", 404, "threads?seconds=10"),
    ] {
        let (got, body) = service.get(target);
        assert_eq!(got.as_u16(), status, "{target}: {body}");
        assert!(body.contains(message), "{target}: {body}");
    }
    for (target, method, allowed) in [
        ("/api/search", "POST", "GET, HEAD"),
        ("/metrics", "POST", "GET, HEAD"),
        ("/api/v1/sql", "GET", "POST"),
    ] {
        let request = Request::get(target).method(method).body(String::new()).expect("a request");
        let response = run(service.0.respond(request));
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(response.headers()["allow"], allowed, "{target}");
    }
}

#[test]
fn the_response_to_head_is_that_to_get_without_its_body() {
    let service = TestService::with_traces(&all()[..2]);
    for target in ["/readyz", "/api/echo", "/api/search", "/api/traces/77"] {
        let send = |method| {
            let request = Request::get(target).method(method).body(String::new());
            run(service.0.respond(request.expect("a request")))
        };
        let (of_get, of_head) = (send("GET"), send("HEAD"));
        assert_eq!(of_head.status(), of_get.status(), "{target}");
        let len = of_get.body().size_hint().exact().expect("it is whole");
        assert_eq!(of_head.headers()["content-length"], len.to_string(), "{target}");
        assert!(of_head.body().is_end_stream(), "{target}");
    }
}

#[test]
fn a_draining_server_is_healthy_and_not_ready_and_serves_queries() {
    let service = TestService::with_traces(&all()[..2]);
    service.0.api.access.replace(Tokens::parse("secret").expect("a token"));
    service.0.draining.begin();
    for path in ["/readyz", "/ready"] {
        assert_eq!(service.get(path), (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned()));
    }
    assert_eq!(service.get("/healthz").0, StatusCode::OK);
    let head = Request::get("/api/search").header("authorization", "Bearer secret");
    assert_eq!(service.send_empty(head, "GET").0, StatusCode::OK);
}

#[test]
fn with_tokens_every_request_but_health_checks_needs_one_and_errors_have_the_form_of_their_api() {
    let service = TestService::with_traces(&all()[..2]);
    let tokens = Tokens::parse("all\nbound other").expect("two tokens");
    service.0.api.access.replace(tokens);
    assert_eq!(service.get("/healthz").0, StatusCode::OK);
    for (path, body) in [
        ("/metrics", "expected authorization"),
        ("/debug/pprof/profile", "expected authorization"),
        ("/api/search", "expected authorization"),
        (
            "/jaeger/api/services",
            "{\"data\":null,\"errors\":[{\"code\":401,\"msg\":\"expected auth",
        ),
        ("/jaeger/api/v3/services", "{\"error\":{\"httpCode\":401,\"message\":\"expected auth"),
        ("/api/v1/sql", "{\"error\":{\"message\":\"expected auth"),
    ] {
        let request = Request::get(path).body(String::new()).expect("a request");
        let response = run(service.0.respond(request));
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(response.headers()["www-authenticate"], "Bearer", "{path}");
        assert!(service.get(path).1.starts_with(body), "{path}: {}", service.get(path).1);
    }
    let search = |token: &str, tenant: Option<&str>| {
        let head = Request::get("/api/search").header("authorization", format!("Bearer {token}"));
        let head = match tenant {
            Some(tenant) => head.header("x-scope-orgid", tenant),
            None => head,
        };
        let (status, body) = service.send_empty(head, "GET");
        (status.as_u16(), body.contains("\"traceID\""))
    };
    assert_eq!(search("wrong", None), (401, false));
    assert_eq!(search("all", None), (200, true));
    assert_eq!(search("bound", None), (200, false), "the other tenant has no traces");
    assert_eq!(search("bound", Some("shop")), (403, false));
}

#[test]
fn a_tenant_sees_only_its_own_spans() {
    let service = TestService::with_traces(&all()[..10]);
    let as_other = |target: &str| {
        service.send_empty(Request::get(target).header("x-scope-orgid", "other"), "GET")
    };
    for (target, none) in [
        ("/api/search", "\"traces\":[]"),
        ("/api/v2/search/tags?scope=span", "\"scopes\":[]"),
        ("/api/v2/search/tag/name/values", "\"tagValues\":[]"),
        ("/api/metrics/query?q=%7B%7D%7Crate()&start=0&end=9000000000", "\"series\":[]"),
        ("/jaeger/api/services", "\"data\":[]"),
        ("/jaeger/api/traces", "\"data\":[]"),
        ("/jaeger/api/v3/trace-summaries", "\"summaries\":[]"),
    ] {
        let (status, body) = as_other(target);
        assert_eq!(status, StatusCode::OK, "{target}: {body}");
        assert!(body.contains(none), "{target}: {body}");
        let (_, theirs) = service.get(target);
        assert!(!theirs.contains(none), "{target}: {theirs}");
    }
    assert_eq!(as_other("/api/traces/1000").0, StatusCode::NOT_FOUND);
}
