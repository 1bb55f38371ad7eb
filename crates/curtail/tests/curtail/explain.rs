//! `curtail explain`: spans that the simulator wrote, and files that are not what they should be.

use crate::command::{curtail, written};
use crate::server::{Server, folder};
use serde_json::Value;

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
        ("equal", spans(200, ""), Some(0), "all take equally long"),
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
    let service = file["endpoints"][0]["endpoint"].as_str().expect("a text");
    let (service, _) = service.split_once(": ").expect("service and operation");
    let of_server = ["--service", service, "--since", "20000d", "--server", &url];
    assert_eq!(explain(&of_server), file);
    let ended = curtail(&[&["explain"], &of_server[..]].concat());
    assert!(ended.stdout.contains("server-3"), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    for (service, code, message) in
        [("nobody", Some(1), "begins at the service \"nobody\""), (service, Some(2), "--since")]
    {
        let since = if code == Some(1) { "20000d" } else { "soon" };
        let ended = curtail(&["explain", "--service", service, "--since", since, "--server", &url]);
        assert_eq!(ended.code, code, "{}", ended.stderr);
        assert!(ended.stderr.contains(message.trim_start_matches("--")), "{}", ended.stderr);
    }
    server.ended("TERM");
}
