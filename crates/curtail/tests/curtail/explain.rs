//! `curtail explain`: spans that the simulator wrote, and files that are not what they should be.

use crate::command::{curtail, written};
use crate::running::Running;
use crate::server::{Server, folder};
use curtail_units::Rng;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::SystemTime;

/// Simulates requests to four servers; returns the name of a file with their spans.
fn simulate(name: &str, keys: &str) -> String {
    let scenario = format!(
        "model:
  service: {{shape: exponential, mean: 5ms}}
  arrivals: {{requests_per_second: 40}}
  replicas: 4
  concurrency: 8
{keys}
arms: {{plain: {{balance: random, hedge: false, retry: false}}}}
requests_max: 12000
"
    );
    let file = written(&format!("explain-{name}.yaml"), scenario);
    let spans = format!("explain-{name}.jsonl");
    let ended = curtail(&["simulate", &file, "--spans", &spans, "--spans-max", "6000"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    spans
}

fn explain(arguments: &[&str]) -> Value {
    let ended = curtail(&[&["explain", "--format", "json"], arguments].concat());
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    serde_json::from_str(&ended.stdout).expect("JSON")
}

#[test]
fn a_cause_that_was_simulated_is_found_in_the_spans() {
    for (name, keys, cause, subject) in [
        ("replica", "  server_factors: [1, 1, 1, 9]", "slow_replica", "server-3"),
        (
            "payload",
            "  request_factor: {shape: lognormal, median: 1, sigma: 1.2}\n  request_bytes: 4KiB",
            "large_payload",
            "http.request.body.size > ",
        ),
    ] {
        let json = explain(&[&simulate(name, keys)]);
        assert_eq!(json["schema"], "curtail.explain/1");
        let first = &json["findings"][0];
        assert_eq!(first["cause"], cause, "{json:#}");
        let of = first["subject"].as_str().expect("a text");
        assert!(of.contains(subject), "{json:#}");
    }
}

#[test]
fn nothing_stands_out_among_alike_servers() {
    let spans = simulate("alike", "");
    assert_eq!(explain(&[&spans])["findings"], serde_json::json!([]));
    // Halves of one run do not differ.
    let text =
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(&spans));
    let text = text.expect("it was written");
    let lines: Vec<&str> = text.lines().collect();
    let (one, other) = lines.split_at(lines.len() / 2);
    let one = written("explain-one.jsonl", one.join("\n"));
    let other = written("explain-other.jsonl", other.join("\n"));
    let json = explain(&["--baseline", &one, "--slow", &other]);
    assert_eq!(json["findings"], serde_json::json!([]), "{json:#}");
}

#[test]
fn the_server_that_is_slower_than_another_is_the_finding() {
    let spans = simulate("between", "  server_factors: [1, 1, 1, 3]");
    let between = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|instance| format!("service.instance.id={instance}"));
        explain(&[&spans, "--between", &one, &other])
    };
    let json = between("server-0", "server-3");
    assert_eq!(json["findings"][0]["cause"], "slow_service", "{json:#}");
    let slower = |json: &Value| {
        let mean = |side: &str| json[side]["mean_ms"].as_f64().expect("a number");
        mean("slow") / mean("baseline")
    };
    assert!(slower(&json) > 2.0, "{json:#}");
    assert_eq!(between("server-0", "server-1")["findings"], serde_json::json!([]));
    let ended = curtail(&["explain", &spans, "--between", "a=1", "1.5"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("--between: expected ATTRIBUTE=VALUE"), "{}", ended.stderr);
}

#[test]
fn files_without_a_tail_get_clear_words() {
    let span = |id: u32, parent: &str| {
        format!(
            r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{id:032x}","spanId":"00000000000000aa","parentSpanId":"{parent}","name":"GET /","startTimeUnixNano":"1000","endTimeUnixNano":"5000"}}]}}]}}]}}"#
        )
    };
    let spans = |count: u32, parent: &str| -> String {
        (1..=count).map(|id| span(id, parent) + "\n").collect()
    };
    for (name, content, code, words) in [
        ("empty", String::new(), Some(2), "no trace has a root span"),
        ("orphans", spans(3, "00000000000000bb"), Some(2), "no trace has a root span"),
        ("single", spans(1, ""), Some(0), "too few traces"),
        ("equal", spans(200, ""), Some(0), "all durations are equal"),
    ] {
        let file = written(&format!("explain-{name}.jsonl"), content);
        let ended = curtail(&["explain", &file]);
        assert_eq!(ended.code, code, "{name}: {}{}", ended.stdout, ended.stderr);
        let text = ended.stdout + &ended.stderr;
        assert!(text.contains(words), "{name}: {text}");
    }
    let malformed = written("explain-malformed.jsonl", format!("{}nonsense\n", spans(200, "")));
    let ended = curtail(&["explain", &malformed]);
    assert!(ended.stderr.contains("explain-malformed.jsonl:201"), "{}", ended.stderr);
    let missing = curtail(&["explain", "no-such-file.jsonl"]);
    assert_eq!(missing.code, Some(3), "{}", missing.stderr);
    let one_side = curtail(&["explain", "--slow", "explain-equal.jsonl"]);
    assert_eq!(one_side.code, Some(2), "{}", one_side.stderr);
}

#[test]
fn a_cause_is_found_in_the_traces_of_a_server() {
    let server = Server::start(&folder("explain-server"));
    let spans = simulate("stored", "  server_factors: [1, 1, 1, 9]");
    let otlp = format!("http://{}", server.otlp);
    let imported = curtail(&["import", &spans, "--to", &otlp]);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let url = format!("http://{}", server.api);
    let file = explain(&[&spans]);
    let service = file["operations"][0]["operation"].as_str().expect("a text");
    let (service, _) = service.split_once(": ").expect("service and operation");
    let of_server = ["--service", service, "--since", "20000d", "--server", &url];
    assert_eq!(explain(&of_server), file);
    let ended = curtail(&[&["explain"], &of_server[..]].concat());
    assert!(ended.stdout.contains("server-3"), "{}{}", ended.stdout, ended.stderr);
    // A command that continues with this server is whole, and may be longer.
    let (commands, lines): (Vec<&str>, Vec<&str>) =
        ended.stdout.lines().partition(|line| line.contains("curtail query trace"));
    let server_flag = format!(" --server {url}");
    assert!(commands.iter().all(|command| command.ends_with(&server_flag)), "{commands:?}");
    assert!(!commands.is_empty(), "{}", ended.stdout);
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    for (service, code, message) in
        [("nobody", Some(1), "begins at the service \"nobody\""), (service, Some(2), "--since")]
    {
        let since = if code == Some(1) { "20000d" } else { "soon" };
        let ended = curtail(&["explain", "--service", service, "--since", since, "--server", &url]);
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.contains(message.trim_start_matches("--")), "{}", ended.stderr);
    }
    let late = [&of_server[..2], &["--until", "10000d"], &of_server[2..]].concat();
    let ended = curtail(&[&["explain"], &late[..]].concat());
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("no trace begins in this time"), "{}", ended.stderr);
    server.ended("TERM");
}

#[test]
fn what_selects_traces_of_a_server_is_rejected_with_files() {
    for command in [&["explain", "a.jsonl"][..], &["predict", "--from", "a.jsonl"]] {
        for flag in ["--since", "--until", "--operation", "--server", "--tenant"] {
            let ended = curtail(&[command, &[flag, "1h"]].concat());
            assert_eq!(ended.code, Some(2), "{command:?} {flag}: {}", ended.stdout);
            let names_both = ["cannot be used with", flag].map(|text| ended.stderr.contains(text));
            assert_eq!(names_both, [true; 2], "{command:?} {flag}: {}", ended.stderr);
        }
    }
    let sides = ["explain", "--baseline", "a.jsonl", "--slow", "b.jsonl", "--since", "1h"];
    let ended = curtail(&sides);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot be used with"), "{}", ended.stderr);
}

/// Requests of ten seconds from now on, a hundred a second; those at one of four pods take nine times as long.
fn spans_from_now_on() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let mut rng = Rng::new(1);
    let span = |nth: u128| {
        let start = now.as_nanos() + nth * 10_000_000;
        let pod = rng.below(4);
        let lasts_us = (10_000 + rng.below(10_000) as u128) * if pod == 3 { 9 } else { 1 };
        let end = start + lasts_us * 1_000;
        format!(
            r#"{{"resourceSpans":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"shop"}}}},{{"key":"k8s.pod.name","value":{{"stringValue":"shop-{pod}"}}}}]}},"scopeSpans":[{{"spans":[{{"traceId":"{:032x}","spanId":"00000000000000aa","name":"GET /","kind":2,"startTimeUnixNano":"{start}","endTimeUnixNano":"{end}"}}]}}]}}]}}"#,
            nth + 1
        ) + "\n"
    };
    (0..1_000).map(span).collect()
}

/// Accepts requests, rejects the first one, and hands on the bodies of the others.
fn webhook() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/hooks/secret", listener.local_addr().expect("it is bound"));
    let (send, receive) = mpsc::sync_channel(16);
    std::thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let (mut line, mut length) = (String::new(), 0);
            while stream.read_line(&mut line).is_ok() && line != "\r\n" {
                let (name, value) = line.split_once(':').unwrap_or_default();
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().expect("a number");
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).expect("a body");
            let status = if nth == 0 { "503 Service Unavailable" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            stream.get_mut().write_all(head.as_bytes()).expect("it reads");
            if nth > 0 {
                // The test has ended when nobody receives.
                send.send(serde_json::from_slice(&body).expect("JSON")).ok();
            }
        }
    });
    (url, receive)
}

#[test]
fn a_watch_prints_what_is_new_and_sends_it_to_a_webhook() {
    let server = Server::start(&folder("explain-watch"));
    let spans = written("explain-watch.jsonl", spans_from_now_on());
    let imported = curtail(&["import", &spans, "--to", &format!("http://{}", server.otlp)]);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let (webhook, news) = webhook();
    let url = format!("http://{}", server.api);
    let mut watch = Running::start(&[
        "explain",
        "--watch",
        "2s",
        "--server",
        &url,
        "--webhook",
        &webhook,
        "--keep",
        "--to",
        &format!("http://{}", server.otlp),
        "--format",
        "json",
    ]);
    let line: Value = serde_json::from_str(&watch.line()).expect("JSON");
    assert_eq!((&line["schema"], &line["state"]), (&"curtail.watch/1".into(), &"new".into()));
    assert_eq!((&line["service"], &line["question"]), (&"shop".into(), &"tail".into()));
    assert_eq!(line["finding"]["subject"], "k8s.pod.name = shop-3", "{line:#}");
    let since = line["since_unix_ns"].as_u64().expect("a time");
    assert_eq!(line["until_unix_ns"].as_u64(), Some(since + 4_000_000_000));
    // The webhook has rejected it once.
    assert_eq!(news.recv().expect("the watch tries again"), line);
    watch.signal("TERM");
    assert_eq!(watch.ended().code(), Some(0));
    // It was kept in the first round.
    let id = format!("{:032x}", u128::from_be_bytes(*b"curtail-findings"));
    let logs = server.get(&format!("/api/v1/traces/{id}/logs"));
    let (_, logs) = logs.split_once("\r\n\r\n").expect("a head");
    let logs: Value = serde_json::from_str(logs).expect("JSON");
    let record = &logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
    assert_eq!(record["eventName"], "curtail.finding", "{logs:#}");
    let kept = record["body"]["stringValue"].as_str().expect("a text");
    assert_eq!(serde_json::from_str::<Value>(kept).expect("JSON"), line);
    let ended = curtail(&["explain", "--watch", "10ms", "--server", &url]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    server.ended("TERM");
    let ended = curtail(&["explain", "--watch", "1s", "--server", &url]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
}
