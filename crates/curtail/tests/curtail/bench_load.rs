//! `curtail bench load`, `compare` and `sweep` against servers of the testbed: every request of the plan is in the
//! results, however the run ends.
//!
//! How quick the machine is that runs this decides whether a run is void, so exit code 1 is as good as 0 here.

use crate::command::{Ended, curtail, written};
use crate::running::Running;
use crate::testbed::get;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

const SERVER: &str = "
name: one
replicas: 1
server: {concurrency: 64, service: {shape: constant, value: 1ms}}
";

/// A server of the testbed, and where it is.
fn server(name: &str) -> (Running, SocketAddr) {
    let file = format!("{}/{}", env!("CARGO_TARGET_TMPDIR"), written(name, SERVER));
    let mut testbed = Running::start(&["testbed", &file]);
    testbed.line();
    let address = testbed.line().strip_prefix("shard 0: ").expect("an address").parse();
    (testbed, address.expect("an address"))
}

fn done(arguments: &[&str]) -> Ended {
    let ended = curtail(arguments);
    assert!(matches!(ended.code, Some(0 | 1)), "{:?}: {}", ended.code, ended.stderr);
    ended
}

fn results(arguments: &[&str]) -> Value {
    serde_json::from_str(&done(arguments).stdout).expect("JSON")
}

/// The output without its line breaks.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How many requests one arm has made, and how many of them failed.
fn counts(results: &Value, arm: usize) -> (u64, u64) {
    let figures = &results["figures"][arm];
    let number = |key: &str| figures[key].as_u64().expect("a number");
    (number("requests"), number("failed"))
}

#[test]
fn every_request_of_the_plan_is_in_the_results() {
    let (_testbed, address) = server("load.yaml");
    let url = format!("http://{address}/shard/0/keys?k=a");
    let load = ["bench", "load", &url, "--rate", "200", "--for", "1s", "--spacing", "even"];
    let all = results(&[&load[..], &["--expect-contains", "values", "--format", "json"]].concat());
    assert_eq!(counts(&all, 0), (200, 0));
    assert_eq!(all["series"][0]["query"], "request");

    // Two generators with half of the plan each, at the same time, and their results merged.
    let halves = ["half-1.json", "half-2.json"];
    std::thread::scope(|scope| {
        for (share, file) in ["1/2", "2/2"].into_iter().zip(halves) {
            scope.spawn(move || done(&[&load[..], &["--share", share, "--json", file]].concat()));
        }
    });
    let merged = results(&["bench", "report", halves[0], halves[1], "--format", "json"]);
    assert_eq!(counts(&merged, 0), (200, 0));

    let wrong =
        results(&[&load[..], &["--expect-contains", "nonsense", "--format", "json"]].concat());
    assert_eq!(counts(&wrong, 0), (200, 200));
    assert_eq!(wrong["figures"][0]["failures"]["check"], 200);
}

#[test]
fn a_run_without_a_successful_request_has_exit_code_1() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    drop(listener);
    let ended = curtail(&["bench", "load", &url, "--rate", "20", "--for", "1s"]);
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    assert!(ended.stdout.contains("(100.0 %): connect"), "{}", ended.stdout);
}

#[test]
fn a_rate_below_the_plan_is_reported() {
    let (_testbed, address) = server("behind.yaml");
    let url = format!("http://{address}/shard/0/keys?k=a");
    // One connection with 1 ms a request: 1,000/s at most.
    let load = ["bench", "load", &url, "--rate", "4000", "--for", "1s", "--connections", "1"];
    let ended = done(&load);
    let text = in_one_line(&ended.stdout);
    assert!(text.contains("BEHIND THE PLAN: "), "{text}");
    assert!(text.contains(" of 4,000 requests/s were sent."), "{text}");
    assert!(text.contains("requests began to wait for one of 1 connections; "), "{text}");
}

/// Responds to this many requests on one connection, then closes it and the listener.
fn respond_then_close(listener: TcpListener, requests: usize) {
    let (mut stream, _) = listener.accept().expect("a client");
    let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
    for _ in 0..requests {
        while !lines.next().expect("a request").expect("text").is_empty() {}
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("it reads");
    }
}

#[test]
fn the_first_failure_has_the_time_at_which_it_happened() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    std::thread::spawn(move || respond_then_close(listener, 50));
    // Request 51, the first without a response, is sent a second after the start.
    let load = ["--rate", "50", "--for", "2s", "--spacing", "even", "--connections", "1"];
    let found = results(&[&["bench", "load", &url, "--format", "json"], &load[..]].concat());
    assert_eq!(counts(&found, 0), (100, 50));
    let events = found["events"].as_array().expect("events").iter();
    let first = |event: &&Value| event["what"].as_str().is_some_and(|what| what.contains("first"));
    let dated: Vec<u64> =
        events.filter(first).map(|event| event["at_ns"].as_u64().expect("a number")).collect();
    assert!(!dated.is_empty(), "{found}");
    assert!(dated.iter().all(|at_ns| *at_ns >= 1_000_000_000), "{dated:?}");
}

#[test]
fn the_blocks_of_a_run_are_compared_with_each_other() {
    let (_testbed, address) = server("calibrate.yaml");
    let url = format!("http://{address}/shard/0/keys?k=a");
    let blocks = ["--blocks", "12", "--rate", "400", "--for", "100ms", "--warm-up", "none"];
    done(&[&["bench", "compare", &url, &url], &blocks[..], &["--json", "same.json"]].concat());
    let arguments = ["bench", "calibrate", "same.json", "--arm", "B", "--format", "json"];
    let found = results(&arguments);
    assert_eq!((&found["arm"], &found["blocks"]), (&Value::from("B"), &Value::from(6)));
    assert_eq!(found["alarms_mann_whitney"]["of"], 200);
    let rejected = curtail(&["bench", "calibrate", "same.json", "--arm", "C"]);
    assert_eq!(rejected.code, Some(2));
    let says = "same.json: there is no arm \"C\": expected one of A, B";
    assert!(rejected.stderr.contains(says), "{}", rejected.stderr);
}

#[test]
fn one_connection_of_http_2_is_enough_for_many_requests_at_once() {
    let (_testbed, address) = server("http2.yaml");
    let url = format!("http://{address}/shard/0/keys?k=a");
    // The 60 of the burst and the first of those in between come at once; up to 100 may.
    let file = written(
        "burst.yaml",
        "
requests: [{name: keys, expect: {contains: [values]}}]
schedule: {spacing: even, phases: [{shape: bursts, rate: 1, size: 60, every: 1s, lasts: 10ms}]}
",
    );
    let arguments =
        ["bench", "load", &url, "--protocol", "http2", "--file", &file, "--threads", "1"];
    let found = results(&[&arguments[..], &["--format", "json"]].concat());
    assert_eq!(counts(&found, 0), (61, 0));
    assert_eq!(found["figures"][0]["connections"], 1);
}

#[test]
fn too_few_connections_are_reported() {
    let (_testbed, address) = server("crowded.yaml");
    let url = format!("http://{address}/shard/0/keys?k=a");
    // A response takes at least a millisecond, so of 2,000 requests a second most wait for the one connection.
    let load = ["bench", "load", &url, "--rate", "2000", "--for", "200ms"];
    let found = results(&[&load[..], &["--connections", "1", "--format", "json"]].concat());
    let event = found["events"][0]["what"].as_str().expect("an event");
    assert!(event.contains("requests began to wait for one of 1 connections; "), "{event}");
}

#[test]
fn a_workload_file_has_requests_tenants_and_a_schedule() {
    let (_testbed, address) = server("workload-server.yaml");
    written("keys.csv", "key\nred\nblue\n");
    let file = written(
        "workload.yaml",
        "
requests:
  - {name: one, weight: 3, path: '/shard/0/keys?k={key}', data: keys.csv, expect: {contains: [values]}}
  - {name: two, path: '/shard/0/keys?k={tenant}&k=x', headers: {x-tenant: '{tenant}'}}
tenants: [{name: large, size: 1000, weight: 4}, {name: small, size: 10}]
schedule: {spacing: even, phases: [{rate: 100, lasts: 1s}, {shape: ramp, from: 100, to: 300, lasts: 1s}]}
",
    );
    let url = format!("http://{address}");
    let found = results(&["bench", "load", &url, "--file", &file, "--format", "json"]);
    assert_eq!(counts(&found, 0), (300, 0));
    let table = done(&["bench", "load", &url, "--file", &file]).stdout;
    assert!(table.contains("by query") && table.contains("large, size 1,000"), "{table}");
}

#[test]
fn an_interrupted_run_leaves_a_report_that_says_so() {
    let (_testbed, address) = server("interrupted.yaml");
    let url = format!("http://{address}/shard/0/keys?k=a");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interrupted.json");
    let path = file.to_str().expect("text");
    let mut load =
        Running::start(&["bench", "load", &url, "--rate", "50", "--for", "1h", "--json", path]);
    // Once requests have come it is well under way.
    while get(address, "/executions").ends_with("\r\n\r\n0\n") {}
    load.signal("INT");
    let printed = load.rest();
    assert!(printed.starts_with("PARTIAL RUN: it was interrupted in block 1 of 1"), "{printed}");
    assert_eq!(load.ended().code(), Some(130));
    let again = curtail(&["bench", "report", path]);
    assert_eq!(again.stdout, printed, "{}", again.stderr);
}

#[test]
fn a_service_compared_with_itself_sends_both_the_same() {
    let (_testbed, address) = server("compare.yaml");
    let url = format!("http://{address}/shard/0/keys?k=a");
    let arguments = ["bench", "compare", &url, &url, "--rate", "100", "--for", "200ms"];
    let few = ["--blocks", "3", "--warm-up", "none"];
    let found = results(&[&arguments[..], &few, &["--format", "json"]].concat());
    let (a, b) = (counts(&found, 0), counts(&found, 1));
    assert_eq!(a, b);
    assert_eq!(a.1, 0);
    let arms: Vec<_> =
        found["blocks"].as_array().expect("blocks").iter().map(|b| b["arm"].clone()).collect();
    assert_eq!(arms, [0, 1, 1, 0, 0, 1]);
    let at_once = results(&[&arguments[..], &few, &["--mirrored", "--format", "json"]].concat());
    assert_eq!((counts(&at_once, 0), counts(&at_once, 1)), (a, b));
    let table = done(&[&arguments[..], &few].concat()).stdout;
    let verdict = table.contains("B against A") && table.contains("not enough");
    assert!(verdict || table.contains("No verdict: the run is void."), "{table}");
}

#[test]
fn a_sweep_names_the_rate_that_is_too_much() {
    let slow = SERVER.replace("concurrency: 64", "concurrency: 15").replace("1ms", "10ms");
    let file = format!("{}/{}", env!("CARGO_TARGET_TMPDIR"), written("sweep.yaml", slow));
    let mut testbed = Running::start(&["testbed", &file]);
    testbed.line();
    let address = testbed.line().strip_prefix("shard 0: ").expect("an address").to_owned();
    let url = format!("http://{address}/shard/0/keys?k=a");
    // 15 requests of 10 ms at once bear 1,500 a second; at 2,000 each request waits longer than the one before.
    let arguments = ["bench", "sweep", &url, "--rate", "1000", "--for", "1s", "--warm-up", "none"];
    let bounds = ["--spacing", "even", "--rate-max", "2000", "--p99-max", "200ms"];
    let printed = done(&[&arguments[..], &bounds].concat()).stdout;
    assert!(printed.contains("\nThe knee is "), "{printed}");
    assert!(printed.contains("requests/s responses/s"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
}

#[test]
fn what_cannot_be_sent_is_refused_before_anything_is() {
    for (arguments, says) in [
        (&["bench", "load", "ftp://a"][..], "the scheme is ftp"),
        (&["bench", "load", "http://127.0.0.1:1", "--path", "/{x}"], "{x} is unknown"),
        (&["bench", "load", "http://127.0.0.1:1", "--rate", "0"], "more than 0"),
        (&["bench", "load", "http://127.0.0.1:1", "--for", "5"], "a time with its unit"),
        (&["bench", "load", "http://127.0.0.1:1", "--share", "3/2"], "NTH/OF"),
        (
            &["bench", "sweep", "http://127.0.0.1:1", "--rate", "50", "--for", "3s"],
            "--for: 3 s at 50 requests/s is too short (requests beyond quantile 0.99: 1, expected at \
             least 10); pass --for 24s or a higher --rate",
        ),
        (&["bench", "compare", "http://127.0.0.1:1"], "<B>"),
    ] {
        let ended = curtail(arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn an_error_in_the_one_request_of_a_command_line_begins_with_its_key() {
    let ended = curtail(&["bench", "load", "http://127.0.0.1:1", "--path", "x"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("path: \"x\" does not begin with /"), "{}", ended.stderr);
}
