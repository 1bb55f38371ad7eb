//! The access log: a line for each request, whatever becomes of it, and no request that waits for the file.

use crate::body;
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::frames::{END_HEADERS, END_STREAM, Frames, HEADERS, RST_STREAM, fields};
use crate::logs;
use crate::metrics::Metrics;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, ok, status};
use crate::wire::Wire;
use curtail_proxy::Options;
use http::{HeaderValue, StatusCode, Version};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A configuration with an access log in this file; `keys` follow a comma.
pub(crate) fn logging(setup: &Setup, file: &Path, keys: &str) -> Setup {
    setup.clone().top(&format!("access_log: {{file: {}{keys}}}", file.display()))
}

fn written(metrics: &Metrics) -> u64 {
    metrics.sum("curtail_access_log_lines_written_total", &[])
}

fn dropped(metrics: &Metrics, cause: &str) -> u64 {
    metrics.sum("curtail_access_log_lines_dropped_total", &[("cause", cause)])
}

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).expect("the access log")
}

/// The lines of the file, each of which is JSON.
fn lines(file: &Path) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text(file).lines().map(parse).collect()
}

/// The lines of the file, as soon as the proxy has written this many.
pub(crate) async fn lines_after(proxy: &Proxy, count: u64, file: &Path) -> Vec<Value> {
    proxy.until(|metrics| written(metrics) >= count).await;
    lines(file)
}

async fn get(proxy: &Proxy, path: &str) -> StatusCode {
    let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
    client.get(path).await.status
}

#[test]
fn a_hedged_request_has_one_line_with_both_attempts_and_the_winner() {
    run(async {
        let (a, b) =
            (Replica::for_hedges(Speaks::Http1).await, Replica::for_hedges(Speaks::Http1).await);
        let directory = Directory::new();
        let file = directory.path("access.log");
        let setup = Setup::before(&[a.address(), b.address()]).upstream(
            "balance: round_robin\nretry: false\nbudget: {ratio: 1.0}\nhedge: {delay_min: 1ms, delay_max: 1ms}",
        );
        let proxy = logging(&setup, &file, ", headers: [User-Agent, x-absent]").start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        let mut request = client.request("GET", "/search?q=secret");
        let agent = HeaderValue::from_bytes(b"evil\"\xff\tagent").expect("a value");
        request.headers_mut().insert("user-agent", agent);
        client.send(request).await;
        let lines = lines_after(&proxy, 1, &file).await;
        assert_eq!(lines.len(), 1);
        let line = &lines[0];
        for (key, value) in [
            ("client", json!("127.0.0.1")),
            ("listener", json!("in")),
            ("method", json!("GET")),
            ("host", json!("service.test")),
            ("path", json!("/search")),
            ("protocol", json!("HTTP/2")),
            ("route", json!("/")),
            ("upstream", json!("service")),
            ("status", json!(200)),
            ("reason", json!("first_accepted")),
            ("response_bytes", json!(4)),
            ("hedges", json!(1)),
            ("retries", json!(0)),
            ("headers", json!({"user-agent": "evil\"\u{fffd}\tagent"})),
        ] {
            assert_eq!(line[key], value, "{key} of {line}");
        }
        let [first, hedge] = line["attempts"].as_array().expect("a list").as_slice() else {
            panic!("{line}")
        };
        assert_eq!((&first["reason"], &first["won"]), (&json!("first"), &json!(false)));
        assert_eq!(
            (&first["outcome"], &first["outcome_reason"]),
            (&json!("cancelled"), &json!("lost"))
        );
        assert_eq!(hedge["reason"], "slower_than_cap");
        assert!(hedge["reason_detail"].as_str().is_some_and(|text| text.contains("cap")), "{line}");
        assert_eq!((&hedge["outcome"], &hedge["won"]), (&json!("responded"), &json!(true)));
        assert!(hedge["tcp_ms"].is_number(), "the connection was opened: {line}");
        assert_eq!(line["replica"], hedge["replica"]);
        assert_ne!(line["replica"], first["replica"]);
        let ms = |value: &Value| value.as_f64().expect("a number");
        assert!(ms(&hedge["start_ms"]) >= 1.0, "{line}");
        assert!(ms(&line["duration_ms"]) >= ms(&line["first_byte_ms"]), "{line}");
        assert!(ms(&line["first_byte_ms"]) >= ms(&hedge["first_byte_ms"]), "{line}");
    });
}

#[test]
fn disconnects_rejections_and_upgrades_have_a_line_when_they_end() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            let Some(request) = record.read(&mut wire).await else { return };
            if request.head.request().1 == "/broken" {
                return;
            }
            if request.head.get("upgrade").is_none() {
                return std::future::pending().await;
            }
            wire.send("HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await;
            assert_eq!(wire.read_exact(4).await.expect("held"), "ping");
            wire.send("pong!").await;
            // The client closes first.
            wire.read_to_close().await;
        })
        .await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let setup = Setup::before(&[replica.address()]).upstream("hedge: false\nretry: false");
        let proxy = logging(&setup, &file, ", sample: 1").start();

        let mut leaving = Wire::connect(proxy.address()).await;
        leaving.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n").await;
        replica.record().until(|record| record.requests().len() == 1).await;
        drop(leaving);
        let line = lines_after(&proxy, 1, &file).await.remove(0);
        assert_eq!((line.get("status"), &line["error"]), (None, &json!("client_gone")), "{line}");
        assert_eq!(line["attempts"][0]["outcome"], "cancelled", "{line}");

        let mut malformed = Wire::connect(proxy.address()).await;
        malformed.send("GET /a HTTP/1.1\r\nhost: h\r\n\"bad\\name\n: x\r\n\r\n").await;
        assert_eq!(malformed.response().await.head.status(), 400);
        let line = lines_after(&proxy, 2, &file).await.remove(1);
        assert_eq!((&line["status"], &line["error"]), (&json!(400), &json!("bad_request")));
        assert_eq!(line["error_detail"], "a line does not end with CRLF", "{line}");
        assert_eq!((line.get("method"), line.get("attempts")), (None, None), "{line}");

        let mut broken = Wire::connect(proxy.address()).await;
        broken.send("GET /broken HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(broken.response().await.head.status(), 502);
        let line = lines_after(&proxy, 3, &file).await.remove(2);
        assert_eq!((&line["error"], &line["reason"]), (&json!("broken"), &json!("attempts_spent")));

        let mut tunnel = Wire::connect(proxy.address()).await;
        tunnel
            .send("GET /t HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
            .await;
        assert_eq!(tunnel.read_head().await.expect("held").expect("a response").status(), 101);
        tunnel.send("ping").await;
        assert_eq!(tunnel.read_exact(5).await.expect("held"), "pong!");
        assert_eq!(lines(&file).len(), 3, "it has not ended");
        drop(tunnel);
        let line = lines_after(&proxy, 4, &file).await.remove(3);
        assert_eq!(line["status"], 101, "{line}");
        assert_eq!((&line["request_bytes"], &line["response_bytes"]), (&json!(4), &json!(5)));

        // Over HTTP/2, the client sees the reset of its stream in place of the 400.
        let mut frames = Frames::connect(proxy.address()).await;
        frames.send(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&[(":method", "GET")])).await;
        while frames.read().await.expect("the connection stays").kind != RST_STREAM {}
        let line = lines_after(&proxy, 5, &file).await.remove(4);
        assert_eq!((&line["status"], &line["error"]), (&json!(400), &json!("bad_request")));
        assert_eq!(proxy.metrics().await.sum("curtail_requests_malformed_total", &[]), 2);
    });
}

#[test]
fn requests_that_the_stop_aborts_are_no_fault_of_their_clients() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            let Some(request) = record.read(&mut wire).await else { return };
            match request.head.request().1 {
                "/upgrade" => {
                    wire.send("HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await;
                    assert_eq!(wire.read_exact(4).await.expect("held"), "ping");
                    wire.send("pong!").await;
                }
                "/half" => {
                    wire.send("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nhalf").await
                }
                _ => {}
            }
            wire.read_to_close().await;
        })
        .await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let setup = Setup::before(&[replica.address()]).upstream("hedge: false\nretry: false");
        let proxy = logging(&setup, &file, "").start();

        let mut waiting = Wire::connect(proxy.address()).await;
        waiting.send("GET /waiting HTTP/1.1\r\nhost: h\r\n\r\n").await;
        let mut half = Wire::connect(proxy.address()).await;
        half.send("GET /half HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(half.read_head().await.expect("held").expect("a response").status(), 200);
        assert_eq!(half.read_exact(4).await.expect("held"), "half");
        let mut tunnel = Wire::connect(proxy.address()).await;
        let upgrade =
            "GET /upgrade HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
        tunnel.send(upgrade).await;
        assert_eq!(tunnel.read_head().await.expect("held").expect("a response").status(), 101);
        tunnel.send("ping").await;
        assert_eq!(tunnel.read_exact(5).await.expect("held"), "pong!");
        replica.record().until(|record| record.requests().len() == 3).await;

        proxy.stop(Duration::ZERO).await.expect("no panic");
        let mut lines = lines(&file);
        lines.sort_by_key(|line| line["path"].to_string());
        let [half, upgrade, waiting] = lines.as_slice() else { panic!("{lines:?}") };
        for (line, status) in [(half, json!(200)), (upgrade, json!(101)), (waiting, json!(null))] {
            assert_eq!(line.get("status").unwrap_or(&json!(null)), &status, "{line}");
            assert_eq!(line["error"], "drain_timeout", "{line}");
            let attempt = &line["attempts"][0];
            let outcome = (&attempt["outcome"], &attempt["outcome_reason"]);
            assert_eq!(outcome, (&json!("cancelled"), &json!("drain_timeout")), "{line}");
        }
        let bytes = |line: &Value| (line["request_bytes"].clone(), line["response_bytes"].clone());
        assert_eq!(bytes(upgrade), (json!(4), json!(5)), "{upgrade}");
        assert_eq!(half["response_bytes"], 4, "{half}");
    });
}

#[test]
fn an_attempt_with_a_bad_status_failed_and_a_malformed_upload_is_no_failure_of_a_replica() {
    run(async {
        let attempts = Arc::new(AtomicUsize::new(0));
        let bad_first =
            Replica::start(Speaks::Http1, move |_| {
                let is_first = attempts.fetch_add(1, Ordering::Relaxed) == 0;
                async move {
                    if is_first { status(StatusCode::SERVICE_UNAVAILABLE) } else { ok("good") }
                }
            })
            .await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let setup =
            Setup::before(&[bad_first.address()]).upstream("hedge: false\nbudget: {ratio: 1.0}");
        let proxy = logging(&setup, &file, "").start();
        assert_eq!(get(&proxy, "/retried").await, StatusCode::OK);
        let mut upload = Wire::connect(proxy.address()).await;
        upload
            .send("POST /upload HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nx\r\n")
            .await;
        assert_eq!(upload.response().await.head.status(), 400);

        let lines = lines_after(&proxy, 2, &file).await;
        let metrics = proxy.metrics().await;
        let lost = metrics.sum("curtail_attempts_cancelled_total", &[("reason", "lost")]);
        assert_eq!(lost, 0, "the first attempt was complete: {metrics}");
        let first = &lines[0]["attempts"][0];
        assert_eq!(
            (&first["outcome"], &first["outcome_reason"], &first["status"]),
            (&json!("failed"), &json!("bad_response"), &json!(503)),
            "{first}"
        );
        // The rest of the request is not the attempt's.
        assert_eq!(first["duration_ms"], first["first_byte_ms"], "{first}");
        assert_eq!(lines[1]["error"], "client_broken", "{}", lines[1]);
        for attempt in lines[1]["attempts"].as_array().expect("a list") {
            let outcome = (&attempt["outcome"], &attempt["outcome_reason"]);
            assert_eq!(outcome, (&json!("cancelled"), &json!("client_broken")), "{}", lines[1]);
        }
    });
}

#[test]
fn an_error_that_is_not_retried_is_accepted_but_not_called_good() {
    run(async {
        let replica =
            Replica::start(Speaks::Http1, |_| async { status(StatusCode::INTERNAL_SERVER_ERROR) });
        let replica = replica.await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let proxy = logging(&Setup::before(&[replica.address()]), &file, "").start();
        assert_eq!(get(&proxy, "/").await, StatusCode::INTERNAL_SERVER_ERROR);
        let line = lines_after(&proxy, 1, &file).await.remove(0);
        assert_eq!(line["reason"], "first_accepted", "{line}");
    });
}

#[test]
fn a_full_disk_costs_no_request_and_the_lost_lines_are_counted() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "good").await;
        let setup = Setup::before(&[replica.address()]);
        let proxy = logging(&setup, Path::new("/dev/full"), "").start();
        for _ in 0..50 {
            assert_eq!(get(&proxy, "/").await, StatusCode::OK);
        }
        let metrics = proxy.until(|metrics| dropped(metrics, "write_failed") == 50).await;
        assert_eq!((written(&metrics), dropped(&metrics, "buffer_full")), (0, 0));
        let warning = ["the access log has dropped lines", "No space left on device"];
        proxy.until(|_| logs::find(&warning).is_some()).await;

        // The next warning would come later, but the proxy stops.
        assert_eq!(get(&proxy, "/").await, StatusCode::OK);
        proxy.stop(Duration::from_secs(10)).await.expect("no panic");
        let lines = |warning: &String| {
            let (_, lines) = warning.split_once("lines=").expect("a number of lines");
            lines
                .split_once(' ')
                .map_or(lines, |(lines, _)| lines)
                .parse::<u64>()
                .expect("a number")
        };
        assert_eq!(logs::find_all(&warning).iter().map(lines).sum::<u64>(), 51);
    });
}

/// A pipe that nobody reads yet.
fn pipe(directory: &Directory) -> std::path::PathBuf {
    let path = directory.path("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo is there").success());
    path
}

/// Sends requests with lines of 20 KB until the proxy has dropped some; returns how many were sent.
async fn fill_buffers(proxy: &Proxy) -> u64 {
    let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
    let mut sent = 0;
    while dropped(&proxy.metrics().await, "buffer_full") == 0 {
        for _ in 0..100 {
            let mut request = client.request("GET", "/");
            for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"] {
                let value = HeaderValue::from_str(&name.repeat(2_000)).expect("text");
                request.headers_mut().insert(name, value);
            }
            assert_eq!(client.send(request).await.status, StatusCode::OK);
            sent += 1;
        }
    }
    sent
}

const LONG_LINES: &str = ", headers: [a, b, c, d, e, f, g, h, i, j]";

#[test]
fn a_reader_that_does_not_read_costs_no_request_and_gets_whole_lines_later() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "good").await;
        let directory = Directory::new();
        let pipe = pipe(&directory);
        let setup = Setup::before(&[replica.address()]).workers(1);
        let proxy = logging(&setup, &pipe, LONG_LINES).start();
        let sent = fill_buffers(&proxy).await;
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe));
        let settled = |metrics: &Metrics| written(metrics) + dropped(metrics, "buffer_full");
        let metrics = proxy.until(|metrics| settled(metrics) == sent).await;
        assert_eq!(get(&proxy, "/").await, StatusCode::OK);
        proxy.stop(Duration::from_secs(10)).await.expect("no panic");
        let text = read.await.expect("no panic").expect("the pipe");
        let parsed = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        assert_eq!(parsed.count() as u64, written(&metrics) + 1, "the last one at the stop");
    });
}

#[test]
fn a_stop_does_not_wait_for_a_file_that_takes_no_lines() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "good").await;
        let directory = Directory::new();
        let setup = Setup::before(&[replica.address()]).workers(1);
        let proxy = logging(&setup, &pipe(&directory), LONG_LINES).start();
        fill_buffers(&proxy).await;
        // Nor does a reload, which logs to another file from then on.
        let file = directory.path("other.log");
        let other = logging(&setup, &file, "");
        assert_eq!(proxy.reload(&other).expect("it is good"), ["access_log"]);
        // The earlier writer may have taken all lines just before.
        assert_eq!(get(&proxy, "/").await, StatusCode::OK);
        proxy.until(|metrics| written(metrics) > 0).await;
        assert!(!lines(&file).is_empty());
        proxy.reload(&logging(&setup, &directory.path("pipe"), LONG_LINES)).expect("it is good");
        fill_buffers(&proxy).await;
        proxy.stop(Duration::from_secs(10)).await.expect("no panic");
    });
}

#[test]
fn a_reload_opens_a_renamed_file_again_and_a_stop_writes_the_last_lines() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "good").await;
        let directory = Directory::new();
        let (file, rotated) = (directory.path("access.log"), directory.path("access.log.1"));
        let setup = Setup::before(&[replica.address()]);
        let proxy = logging(&setup, &file, ", format: \"{path} {status}\"").start();
        get(&proxy, "/a").await;
        proxy.until(|metrics| written(metrics) == 1).await;
        std::fs::rename(&file, &rotated).expect("both are in a directory of ours");
        get(&proxy, "/b").await;
        proxy.until(|metrics| written(metrics) == 2).await;
        let same = logging(&setup, &file, ", format: \"{path} {status}\"");
        assert_eq!(proxy.reload(&same).expect("it is good"), Vec::<String>::new());
        get(&proxy, "/c").await;
        proxy.until(|metrics| written(metrics) == 3).await;
        assert_eq!(
            (text(&rotated).as_str(), text(&file).as_str()),
            ("/a 200\n/b 200\n", "/c 200\n")
        );

        // Whole or not at all.
        let missing = directory.path("missing/access.log");
        let refused = proxy.reload(&logging(&setup, &missing, ""));
        let error = refused.expect_err("no such directory").to_string();
        assert!(
            error.contains("access_log.file") && error.contains("missing/access.log"),
            "{error}"
        );
        get(&proxy, "/d").await;
        proxy.until(|metrics| written(metrics) == 4).await;

        // Without the section there are neither lines nor metrics; the file is kept when it comes back.
        assert_eq!(proxy.reload(&setup).expect("it is good"), ["access_log"]);
        get(&proxy, "/unlogged").await;
        assert!(!proxy.metrics().await.to_string().contains("curtail_access_log"));
        proxy.reload(&same).expect("it is good");
        get(&proxy, "/e").await;
        proxy.stop(Duration::from_secs(10)).await.expect("no panic");
        assert_eq!(text(&file), "/c 200\n/d 200\n/e 200\n");
    });
}

#[test]
fn only_slow_and_failed_requests_are_logged_on_demand() {
    run(async {
        let replica = Replica::start(Speaks::Http1, |request| async move {
            match request.uri().path() {
                "/fails" => status(StatusCode::INTERNAL_SERVER_ERROR),
                _ => ok("good"),
            }
        })
        .await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let setup = Setup::before(&[replica.address()]).upstream("retry: false");
        let proxy = logging(&setup, &file, ", slower_than: 1h, format: \"{path}\"").start();
        for path in ["/", "/fails", "/"] {
            get(&proxy, path).await;
        }
        proxy
            .reload(&logging(&setup, &file, ", slower_than: 1ns, format: \"{path}\""))
            .expect("good");
        get(&proxy, "/slow").await;
        proxy.until(|metrics| written(metrics) == 2).await;
        let text = text(&file);
        // The lines of two workers come in any order.
        let lines: BTreeSet<_> = text.lines().collect();
        assert_eq!(lines, BTreeSet::from(["/fails", "/slow"]));
    });
}

#[test]
fn no_client_writes_a_line_of_its_own() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "good").await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let setup = Setup::before(&[replica.address()]);
        let format = ", format: '\"{path}\" \"{header.user-agent}\" {status}', query: true";
        let proxy = logging(&setup, &file, format).start();
        let mut wire = Wire::connect(proxy.address()).await;
        let target = b"GET /a\"b?c=\xc3\xa4 HTTP/1.1\r\nhost: h\r\n".as_slice();
        wire.send([target, b"user-agent: x\" 200\t\x80\\n\r\n\r\n"].concat()).await;
        assert_eq!(wire.response().await.head.status(), 200);
        proxy.until(|metrics| written(metrics) == 1).await;
        assert_eq!(text(&file), "\"/a\\x22b?c=\\xc3\\xa4\" \"x\\x22 200\\x09\\x80\\x5cn\" 200\n");
    });
}

/// A root whose route fans out to two shards, each the same leaf; both log to files.
#[test]
fn a_fan_out_has_one_line_and_its_leaf_one_for_each_call() {
    run(async {
        let server = Replica::responding(Speaks::Http1, "good").await;
        let directory = Directory::new();
        let [root_file, leaf_file] = ["root.log", "leaf.log"].map(|name| directory.path(name));
        let options = Options { journal: None, seed: 7, ..Options::default() };
        let top = |file: &Path| {
            let file = file.display();
            format!(
                "workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\naccess_log: {{file: {file}}}\n"
            )
        };
        let leaf = format!("{{address: \"127.0.0.1:0\", server: \"http://{}\"}}", server.address());
        let leaf = Proxy::start(&format!("{}leaves: [{leaf}]\n", top(&leaf_file)), &options);
        let upstream = format!("{{replicas: [\"http://{}\"]}}", leaf.listener("leaf"));
        let listen = "listeners: [{address: \"127.0.0.1:0\"}]\n";
        let routes = "routes: [{upstream: shard-*, fan_out: {}}]\n";
        let upstreams = format!("upstreams:\n  shard-a: {upstream}\n  shard-b: {upstream}\n");
        let yaml = [&*top(&root_file), listen, routes, &upstreams].concat();
        let root = Proxy::start(&yaml, &options);
        let mut client = Client::connect(root.address(), Version::HTTP_11).await;
        let mut request = client.request_with("POST", "/", body::whole("12345"));
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        request.headers_mut().insert("traceparent", HeaderValue::from_static(parent));
        assert_eq!(client.send(request).await.status, StatusCode::OK);
        let at_root = lines_after(&root, 1, &root_file).await;
        let at_leaf = lines_after(&leaf, 2, &leaf_file).await;
        assert_eq!((at_root.len(), at_leaf.len()), (1, 2));
        let line = &at_root[0];
        assert_eq!((&line["shards"], &line["shards_missing"]), (&json!(2), &json!(0)), "{line}");
        assert_eq!((&line["request_bytes"], &line["response_bytes"]), (&json!(5), &json!(8)));
        assert_eq!((line.get("upstream"), &line["attempts"]), (None, &json!([])), "{line}");
        for call in &at_leaf {
            assert_eq!((&call["listener"], &call["upstream"]), (&json!("leaf"), &json!("leaf")));
            assert!(call["queue_ms"].is_number(), "{call}");
            assert_eq!(call["trace_id"], "0af7651916cd43dd8448eb211c80319c");
            assert_eq!(call["trace_id"], line["trace_id"]);
        }
    });
}
