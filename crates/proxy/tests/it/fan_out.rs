//! Routes that fan out: one request to all shards, one response from theirs.

use crate::access_log::{lines_after, logging};
use crate::body;
use crate::client::{Client, FullResponse};
use crate::deadline::run_within;
use crate::directory::Directory;
use crate::metrics::Metrics;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Speaks, abort, ok, status};
use crate::wire::Wire;
use curtail_proxy::Options;
use http::{Request, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const SHARDS: usize = 3;

/// Fields of a shard's response that the client needs.
const END_TO_END: [(&str, &str); 7] = [
    ("allow", "GET"),
    ("content-encoding", "gzip"),
    ("content-type", "text/plain"),
    ("retry-after", "7"),
    ("set-cookie", "a=b"),
    ("www-authenticate", "Basic realm=\"shards\""),
    ("x-own", "1"),
];

/// Fields that concern the connection to the shard, and those of our leaves.
const HOP_BY_HOP: [(&str, &str); 5] = [
    ("connection", "x-hop"),
    ("keep-alive", "timeout=5"),
    ("upgrade", "websocket"),
    ("x-hop", "1"),
    ("curtail-shards", "9/9"),
];

/// Each shard responds as the path says; only shard 1 has troubles.
async fn respond(shard: usize, request: Request<Incoming>) -> Response<body::Body> {
    let path = request.uri().path().to_owned();
    match (path.as_str(), shard) {
        ("/hangs", 1) | ("/fails-alone", 0 | 2) | ("/all-hang", _) => std::future::pending().await,
        ("/breaks", 1) => abort(),
        ("/stalls", 1) => {
            let (sender, body) = body::channel();
            tokio::spawn(async move {
                sender.data("begun").await;
                std::future::pending::<()>().await;
            });
            Response::new(body)
        }
        ("/fails" | "/fails-alone", 1) => status(StatusCode::INTERNAL_SERVER_ERROR),
        ("/encoded", 1) => {
            let response = Response::builder().status(StatusCode::UNAUTHORIZED);
            let fields = END_TO_END.iter().chain(&HOP_BY_HOP);
            let response =
                fields.fold(response, |response, (name, value)| response.header(*name, *value));
            response.body(body::whole("packed")).expect("a valid response")
        }
        ("/no", 1) => {
            let mut response = ok("no such key");
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
        ("/echo", _) => {
            let encoding = request.headers().contains_key("accept-encoding");
            // The proxy breaks off a body that is too large.
            let Ok(sent) = request.into_body().collect().await else { return abort() };
            let sent = String::from_utf8_lossy(&sent.to_bytes()).into_owned();
            Response::new(body::whole(format!("{shard}:{sent}:{encoding};")))
        }
        ("/long", _) => Response::new(body::whole("x".repeat(400))),
        ("/json", 0) => ok("[1, 2]"),
        ("/json", 1) => ok("[]"),
        ("/json", _) => ok("[{\"a\": 3}]\n"),
        _ => Response::new(body::whole(format!("{shard};"))),
    }
}

/// A proxy with a route to all shards.
async fn start(fan_out: &str, upstream: &str) -> (Proxy, Vec<Replica>) {
    start_with(fan_out, upstream, "").await
}

/// The same with an access log in this file.
async fn start_logging(fan_out: &str, file: &Path) -> (Proxy, Vec<Replica>) {
    start_with(fan_out, "", &format!("access_log: {{file: {}}}\n", file.display())).await
}

async fn start_with(fan_out: &str, upstream: &str, top: &str) -> (Proxy, Vec<Replica>) {
    let mut replicas = Vec::new();
    let mut upstreams = String::new();
    for shard in 0..SHARDS {
        let replica = Replica::start(Speaks::Http1, move |request| respond(shard, request)).await;
        let address = replica.address();
        upstreams.push_str(&format!(
            "  shard-{shard}: {{replicas: [\"http://{address}\"], retry: false, {upstream}}}\n"
        ));
        replicas.push(replica);
    }
    let yaml = format!(
        "workers: 1\n\
         {top}\
         listeners: [{{address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         routes: [{{upstream: \"shard-*\", fan_out: {{{fan_out}}}}}]\n\
         upstreams:\n{upstreams}"
    );
    (Proxy::start(&yaml, &Options { journal: None, seed: 7, ..Options::default() }), replicas)
}

async fn get(proxy: &Proxy, path: &str) -> FullResponse {
    Client::connect(proxy.address(), Version::HTTP_11).await.get(path).await
}

fn text(response: &FullResponse) -> &str {
    std::str::from_utf8(&response.body).expect("text")
}

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn bodies_come_in_the_order_of_the_shards() {
    run_within(LIMIT, async {
        let (proxy, _replicas) = start("merge: concatenate", "").await;
        let response = get(&proxy, "/any").await;
        assert_eq!((response.status, text(&response)), (StatusCode::OK, "0;1;2;"));
        assert_eq!(response.get("curtail-shards"), Some("3/3"));
        assert_eq!(response.get("curtail-shards-failed"), None);
        let metrics = proxy.metrics().await;
        let complete = [("route", "/"), ("result", "complete")];
        assert_eq!(metrics.sum("curtail_fan_out_requests_total", &complete), 1, "{metrics}");
        assert_eq!(metrics.sum("curtail_fan_out_duration_seconds_count", &[]), 1, "{metrics}");
        assert_eq!(metrics.sum("curtail_requests_total", &[("upstream", "shard-2")]), 1);
    });
}

#[test]
fn json_arrays_are_merged_and_anything_else_is_a_failure() {
    run_within(LIMIT, async {
        let (proxy, _replicas) = start("merge: json_array", "").await;
        let response = get(&proxy, "/json").await;
        assert_eq!((response.status, text(&response)), (StatusCode::OK, "[1, 2,{\"a\": 3}]"));
        assert_eq!(response.get("content-type"), Some("application/json"));
        let response = get(&proxy, "/any").await;
        assert_eq!(
            (response.status, response.error()),
            (StatusCode::BAD_GATEWAY, Some("shards_failed"))
        );
    });
}

#[test]
fn every_shard_gets_the_body_and_may_not_compress_its_own() {
    run_within(LIMIT, async {
        let (proxy, replicas) = start("", "").await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        let mut request = client.request_with("POST", "/echo", body::whole("query"));
        request.headers_mut().insert("accept-encoding", "gzip".parse().expect("a value"));
        let response = client.send(request).await;
        assert_eq!(text(&response), "0:query:false;1:query:false;2:query:false;");
        assert!(replicas.iter().all(|replica| replica.record().count() == 1));
        // `limits.replay` is 64 KiB.
        const KEPT: usize = 64 << 10;
        for (bytes, has_length) in
            [KEPT, KEPT + 1, 70_000].into_iter().flat_map(|bytes| [(bytes, true), (bytes, false)])
        {
            let sent = "x".repeat(bytes);
            let sent = if has_length {
                body::whole(sent)
            } else {
                let (sender, body) = body::channel();
                tokio::spawn(async move { sender.data(sent).await });
                body
            };
            let response = client.send(client.request_with("POST", "/echo", sent)).await;
            if bytes <= KEPT {
                assert_eq!(response.status, StatusCode::OK, "{bytes}, {has_length}");
                continue;
            }
            assert_eq!(response.error(), Some("request_too_large"));
            assert_eq!(response.status, StatusCode::PAYLOAD_TOO_LARGE);
            // It is the request that is at fault, and no shard or replica.
            assert_eq!(response.get("curtail-shards-failed"), None);
        }
        assert!(replicas.iter().all(|replica| replica.record().count() == 3), "only what fits");
        let metrics = proxy.metrics().await;
        for blame in ["curtail_fan_out_shards_missing_total", "curtail_replica_ejections_total"] {
            assert_eq!(metrics.sum(blame, &[]), 0, "{blame}: {metrics}");
        }
        let broken = [("failure", "broken")];
        assert_eq!(metrics.sum("curtail_attempts_failed_total", &broken), 0, "{metrics}");
    });
}

#[test]
fn a_client_that_leaves_within_its_upload_has_gone_before_any_call() {
    run_within(LIMIT, async {
        let (proxy, _replicas) = start("", "").await;
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nx").await;
        drop(wire);
        let gone = |metrics: &Metrics| {
            metrics.sum("curtail_fan_out_requests_total", &[("result", "client_gone")])
        };
        let metrics = proxy.until(|metrics| gone(metrics) == 1).await;
        assert_eq!(metrics.sum("curtail_attempts_total", &[]), 0, "{metrics}");
    });
}

#[test]
fn a_client_that_takes_too_long_to_upload_gets_408_and_no_call_starts() {
    run_within(LIMIT, async {
        for (top, upstream) in [("limits: {body_timeout: 50ms}\n", ""), ("", "timeout: 50ms")] {
            let (proxy, _replicas) = start_with("", upstream, top).await;
            let mut wire = Wire::connect(proxy.address()).await;
            wire.send("POST /echo HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nx").await;
            let response = wire.response().await;
            let error = response.head.get("curtail-error");
            assert_eq!((response.head.status(), error), (408, Some("client_slow")));
            let metrics = proxy.metrics().await;
            assert_eq!(metrics.sum("curtail_attempts_total", &[]), 0, "{metrics}");
            let timeouts = metrics.sum("curtail_client_timeouts_total", &[]);
            assert_eq!(timeouts, 1, "{metrics}");
        }
    });
}

#[test]
fn a_failed_shard_is_named_and_the_others_are_cancelled() {
    run_within(LIMIT, async {
        let (proxy, _replicas) = start("", "timeout: 1s").await;
        for (path, expected) in [
            ("/breaks", StatusCode::BAD_GATEWAY),
            ("/fails", StatusCode::BAD_GATEWAY),
            ("/hangs", StatusCode::GATEWAY_TIMEOUT),
        ] {
            let response = get(&proxy, path).await;
            assert_eq!(
                (response.status, response.error()),
                (expected, Some("shards_failed")),
                "{path}"
            );
            assert_eq!(response.get("curtail-shards-failed"), Some("shard-1"), "{path}");
        }
        // What the client did wrong, it did wrong at every shard.
        let response = get(&proxy, "/no").await;
        assert_eq!((response.status, text(&response)), (StatusCode::NOT_FOUND, "no such key"));
        assert_eq!(response.error(), None);
        let metrics = proxy.metrics().await;
        let failed = [("result", "failed")];
        assert_eq!(metrics.sum("curtail_fan_out_requests_total", &failed), 4, "{metrics}");
        assert_eq!(metrics.sum("curtail_fan_out_shards_missing_total", &[]), 4, "{metrics}");
    });
}

#[test]
fn the_response_of_one_shard_is_passed_on_with_all_its_end_to_end_fields() {
    run_within(LIMIT, async {
        let (proxy, _replicas) = start("", "").await;
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut client = Client::connect(proxy.address(), version).await;
            let response = client.get("/encoded").await;
            assert_eq!((response.status, text(&response)), (StatusCode::UNAUTHORIZED, "packed"));
            for (name, value) in END_TO_END {
                assert_eq!(response.get(name), Some(value), "{name}");
            }
            for name in ["connection", "keep-alive", "upgrade", "x-hop"] {
                assert_eq!(response.get(name), None, "{name}");
            }
            assert_ne!(response.get("curtail-shards"), Some("9/9"), "it is that of this proxy");
            assert_eq!(response.get("content-length"), Some("6"));
        }
    });
}

#[test]
fn fewer_shards_may_be_enough_and_at_the_deadline_what_has_come_is() {
    run_within(LIMIT, async {
        let (proxy, _replicas) = start("needed: 2", "").await;
        let response = get(&proxy, "/hangs").await;
        assert_eq!((response.status, text(&response)), (StatusCode::OK, "0;2;"));
        assert_eq!(response.get("curtail-shards"), Some("2/3"));
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_fan_out_shards_missing_total", &[]), 0, "{metrics}");
        let (proxy, _replicas) = start("deadline: 1s", "").await;
        let response = get(&proxy, "/hangs").await;
        assert_eq!((response.status, text(&response)), (StatusCode::OK, "0;2;"));
        assert_eq!(response.get("curtail-shards"), Some("2/3"));
        let metrics = proxy.metrics().await;
        let partial = [("result", "partial")];
        assert_eq!(metrics.sum("curtail_fan_out_requests_total", &partial), 1, "{metrics}");
        assert_eq!(metrics.sum("curtail_fan_out_shards_missing_total", &[]), 1, "{metrics}");
    });
}

/// The fields of a line about missing shards.
fn missing(line: &Value) -> [&Value; 5] {
    ["status", "error", "error_detail", "shards_missing", "shards_missing_detail"]
        .map(|key| &line[key])
}

#[test]
fn shards_that_miss_the_deadline_are_named() {
    run_within(LIMIT, async {
        let directory = Directory::new();
        let file = directory.path("access.log");
        let (proxy, _replicas) = start_logging("deadline: 1s", &file).await;
        let response = get(&proxy, "/hangs").await;
        assert_eq!(response.status, StatusCode::OK);
        assert_eq!(response.get("curtail-shards-failed"), Some("shard-1"));
        let line = &lines_after(&proxy, 1, &file).await[0];
        let expected = [json!(200), json!(null), json!(null), json!(1), json!("shard-1: deadline")];
        assert_eq!(missing(line), expected.each_ref(), "{line}");

        let all = "shard-0: deadline, shard-1: deadline, shard-2: deadline";
        let response = get(&proxy, "/all-hang").await;
        assert_eq!(response.status, StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(text(&response), format!("curtail: deadline: {all}\n"));
        assert_eq!(response.get("curtail-shards-failed"), Some("shard-0, shard-1, shard-2"));
        let line = &lines_after(&proxy, 2, &file).await[1];
        let expected = [json!(504), json!("deadline"), json!(all), json!(3), json!(all)];
        assert_eq!(missing(line), expected.each_ref(), "{line}");
    });
}

#[test]
fn at_most_20_missing_shards_are_named() {
    run_within(LIMIT, async {
        let hung = Replica::start(Speaks::Http1, |_| std::future::pending()).await;
        let shards: String = (10..35)
            .map(|nth| format!("  s{nth}: {{replicas: [\"http://{}\"]}}\n", hung.address()))
            .collect();
        let yaml = format!(
            "workers: 1\n\
             listeners: [{{address: \"127.0.0.1:0\"}}]\n\
             admin: {{address: \"127.0.0.1:0\"}}\n\
             routes: [{{upstream: \"s*\", fan_out: {{deadline: 300ms}}}}]\n\
             upstreams:\n{shards}"
        );
        let proxy = Proxy::start(&yaml, &Options { journal: None, seed: 7, ..Options::default() });
        let response = get(&proxy, "/any").await;
        let named = response.get("curtail-shards-failed").expect("names");
        assert_eq!((named.split(", ").count(), named.ends_with("s29")), (20, true), "{named}");
        assert_eq!(text(&response).split(", ").count(), 20);
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_fan_out_shards_missing_total", &[]), 25, "{metrics}");
    });
}

#[test]
fn calls_that_a_fan_out_cancels_count_by_its_reason_and_only_failures_are_missing() {
    run_within(LIMIT, async {
        for (fan_out, path, reason, [attempts, calls, missing]) in [
            ("needed: 2", "/hangs", "enough", [1, 1, 0]),
            ("deadline: 1s", "/hangs", "deadline", [1, 1, 1]),
            // The attempt has responded; its body is not complete.
            ("deadline: 1s", "/stalls", "deadline", [0, 1, 1]),
            ("", "/fails-alone", "too_many_failed", [2, 2, 1]),
        ] {
            let (proxy, _replicas) = start(fan_out, "").await;
            get(&proxy, path).await;
            // Cancelled calls end after the response.
            let ended = |metrics: &Metrics| metrics.sum("curtail_requests_total", &[]);
            let metrics = proxy.until(|metrics| ended(metrics) == SHARDS as u64).await;
            let found = ["client_gone", reason].map(|reason| metrics.cancelled(reason));
            assert_eq!(found, [0, attempts], "{reason}: {metrics}");
            let requests = |status| metrics.sum("curtail_requests_total", &[("status", status)]);
            assert_eq!((requests("none"), requests("cancelled")), (0, calls), "{metrics}");
            let found = metrics.sum("curtail_fan_out_shards_missing_total", &[]);
            assert_eq!(found, missing, "{reason}: {metrics}");
        }
    });
}

#[test]
fn the_line_of_a_fan_out_counts_the_hedges_of_its_calls() {
    run_within(LIMIT, async {
        let (a, b) =
            (Replica::for_hedges(Speaks::Http1).await, Replica::for_hedges(Speaks::Http1).await);
        let directory = Directory::new();
        let file = directory.path("access.log");
        let setup = Setup::before(&[a.address(), b.address()]).route("fan_out: {}").upstream(
            "balance: round_robin\nretry: false\nbudget: {ratio: 1.0}\nhedge: {delay_min: 1ms, delay_max: 1ms}",
        );
        let proxy = logging(&setup, &file, "").start();
        assert_eq!(get(&proxy, "/any").await.status, StatusCode::OK);
        let line = &lines_after(&proxy, 1, &file).await[0];
        assert_eq!((&line["hedges"], &line["retries"]), (&json!(1), &json!(0)), "{line}");
    });
}

#[test]
fn a_failed_canary_spares_the_others() {
    run_within(LIMIT, async {
        let (proxy, replicas) = start("canaries: 2", "").await;
        assert_eq!(text(&get(&proxy, "/any").await), "0;1;2;");
        let response = get(&proxy, "/fails").await;
        assert_eq!(response.get("curtail-shards-failed"), Some("shard-1"));
        assert_eq!(replicas[2].record().count(), 1, "only the first request");
    });
}

#[test]
fn bodies_that_are_too_large_together_are_an_error() {
    run_within(LIMIT, async {
        let (proxy, _replicas) = start("response_max: 1KiB", "").await;
        let response = get(&proxy, "/long").await;
        assert_eq!(response.error(), Some("response_too_large"));
        assert_eq!(response.status, StatusCode::BAD_GATEWAY);
        let metrics = proxy.metrics().await;
        let too_large = [("result", "too_large")];
        assert_eq!(metrics.sum("curtail_fan_out_requests_total", &too_large), 1, "{metrics}");
    });
}

#[test]
fn a_body_that_stalls_is_a_failure_of_its_replica() {
    run_within(LIMIT, async {
        let (proxy, _replicas) = start("", "timeout: 300ms").await;
        let response = get(&proxy, "/stalls").await;
        assert_eq!(response.error(), Some("shards_failed"));
        assert_eq!(response.status, StatusCode::GATEWAY_TIMEOUT);
        let metrics = proxy.metrics().await;
        let broken = [("upstream", "shard-1"), ("failure", "broken")];
        assert_eq!(metrics.sum("curtail_attempts_failed_total", &broken), 1, "{metrics}");
        let incomplete = [("upstream", "shard-1"), ("status", "incomplete")];
        assert_eq!(metrics.sum("curtail_requests_total", &incomplete), 1, "{metrics}");
    });
}

#[test]
fn a_client_that_leaves_cancels_every_call() {
    run_within(LIMIT, async {
        let (proxy, replicas) = start("", "").await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let leaves = async {
            let request = client.request("GET", "/hangs");
            client.try_send(request).await.expect("it is cut off before a response");
        };
        tokio::select! {
            () = leaves => panic!("a shard hangs"),
            () = replicas[1].record().until(|record| record.count() == 1) => {}
        }
        drop(client);
        replicas[1].record().until(|record| record.reset() == 1).await;
        let gone = [("result", "client_gone")];
        proxy.until(|metrics| metrics.sum("curtail_fan_out_requests_total", &gone) == 1).await;
    });
}
