//! `curtail demo`, end to end and short: real servers, real proxies, a real load.

use crate::command::{curtail, written};
use crate::running::Running;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

#[test]
fn a_short_demo_measures_explains_and_verifies_and_says_why_it_predicts_nothing() {
    // The rate is low enough for a machine that runs other tests.
    let arguments =
        ["demo", "--seconds", "5", "--rate", "14", "--seed", "5", "--exit", "--format", "json"];
    let ended = curtail(&arguments);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON alone");
    // On a busy machine the client may be late; the exit code says so.
    let code = if report["void"].is_null() { 0 } else { 1 };
    assert_eq!(ended.code, Some(code), "{}", ended.stderr);
    assert_eq!((&report["schema"], &report["seed"]), (&"curtail.demo/3".into(), &5.into()));
    let arms = report["arms"].as_array().expect("a list");
    let names: Vec<_> = arms.iter().map(|arm| arm["name"].as_str().expect("text")).collect();
    assert_eq!(names, ["direct", "defaults"]);
    for arm in [&report["measure"], &arms[0], &arms[1]] {
        assert_eq!(arm["errors"], 0, "{report}");
        assert!(arm["requests"].as_u64() > Some(0), "{report}");
        assert!(arm["extra_requests_ratio"].as_f64() >= Some(0.0), "{report}");
        // Seventy reads do not have ten beyond their p99.
        assert!(arm["p99_ms"].is_null() && arm["p999_ms"].is_null(), "{report}");
    }
    // Enough traces for an explanation, too few for a prediction.
    assert_eq!(report["explain"]["schema"], "curtail.explain/1", "{report}");
    let why = report["predict"]["error"].as_str().expect("a reason");
    assert!(why.ends_with(" requests succeeded: expected at least 1000"), "{why}");
    assert!(report["verify"].is_null() && report["scorecard"].is_null(), "{report}");
    // A read takes as long as the slowest of 50 shards. Its median is above 5 ms with every remedy, because 0.95^50
    // of all reads are faster.
    assert!(arms[0]["p50_ms"].as_f64() > Some(5.0), "{report}");
    // Without a remedy nothing is sent twice.
    assert_eq!(report["measure"]["extra_requests_ratio"], 0.0, "{report}");
}

#[test]
fn a_demo_that_is_interrupted_before_its_result_ends_at_once() {
    let stderr_file =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(written("demo-interrupted.txt", ""));
    let stderr = File::create(&stderr_file).expect("the folder is cargo's, for tests to write in");
    let mut command = Command::new(env!("CARGO_BIN_EXE_curtail"));
    let mut demo = Running::run(command.args(["demo", "--rate", "10"]).stderr(stderr));
    while demo.line() != "warming up" {}
    demo.signal("INT");
    drop(demo.rest());
    assert_eq!(demo.ended().code(), Some(130));
    let printed = fs::read_to_string(stderr_file).expect("text");
    assert!(printed.ends_with("interrupted before the result; nothing was saved\n"), "{printed}");
}

#[test]
fn an_interrupt_after_the_measurement_ends_the_demo_with_its_result() {
    let mut demo = Running::start(&["demo", "--seconds", "1", "--rate", "10"]);
    while !demo.line().starts_with("5 VERIFY") {}
    while demo.line() != "waiting for the span of the slowest read" {}
    demo.signal("INT");
    drop(demo.rest());
    assert_eq!(demo.ended().code(), Some(0));
}

#[test]
fn a_finished_demo_runs_until_an_interrupt_ends_it_with_success() {
    let mut demo = Running::start(&["demo", "--seconds", "1", "--rate", "10"]);
    let url = loop {
        let line = demo.line();
        if let Some((_, quoted)) = line.split_once("the remedy  curl ") {
            break quoted.trim_matches('\'').to_owned();
        }
    };
    let (address, path) = url.trim_start_matches("http://").split_once('/').expect("a path");
    let address = address.parse().expect("an address");
    let response = crate::testbed::get(address, &format!("/{path}"));
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.contains("curtail-shards: 50/50\r\n"), "{response}");
    // The printed command shows the slowest read as a waterfall of its calls.
    while !demo.line().ends_with(" query trace \\") {}
    let arguments = demo.line();
    assert!(arguments.len() <= 80, "{arguments}");
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let [trace, "--server", server] = arguments[..] else { panic!("{arguments:?}") };
    let shown = curtail(&["query", "trace", trace, "--server", server]);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    // A read calls each of 50 shards, with one or two attempts: a span for the read, each call and each attempt.
    let spans = shown.stdout.lines().next().and_then(|line| line.split_once(" spans, "));
    let spans: u32 = spans.and_then(|(count, _)| count.parse().ok()).expect("a number of spans");
    assert!((101..=151).contains(&spans), "{}", shown.stdout);
    assert!(shown.stdout.lines().all(|line| line.chars().count() <= 80), "{}", shown.stdout);
    demo.signal("INT");
    assert_eq!(demo.ended().code(), Some(0));
    assert!(std::net::TcpStream::connect(address).is_err(), "nothing is left of it");
}
