//! `curtail query`: the printed results of a server.

use crate::command::curtail;
use crate::server::{BATCH, Server, TRACE, batch, folder};

#[test]
fn queries_print_tables_and_json() {
    let server = Server::start(&folder("query-tables"));
    assert!(server.sends(BATCH));
    let url = format!("http://{}", server.api);
    let run_query = |arguments: &[&str]| {
        let ended = curtail(&[&["query"], arguments, &["--server", &url]].concat());
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
        let is_narrow = ended.stdout.lines().all(|line| line.chars().count() <= 80);
        assert!(is_narrow || arguments.contains(&"json"), "{}", ended.stdout);
        ended.stdout
    };
    for (arguments, expected) in [
        (&["slowest"][..], TRACE),
        (&["newest", "{ status = error }"], "GET /"),
        (&["slowest", "{ name = \"none\" }"], "none"),
        (&["trace", TRACE], "2 spans"),
        (&["quantiles"], "exact"),
        (&["quantiles", "--quantile", "0.99", "--by", "name"], "p99"),
        (&["histogram"], "####"),
        (&["count", "{ name =~ \"GET.*\" }"], "1\n"),
        (&["tags"], "span.text"),
        (&["values", "name"], "GET /"),
        (&["slowest", "--since", "1h"], "none"),
        (&["count", "--format", "json"], "\"series\""),
        (&["slowest", "--tenant", "nobody"], "none"),
    ] {
        let response = run_query(arguments);
        assert!(response.contains(expected), "{arguments:?}: {response}");
    }
    server.ended("TERM");
}

#[test]
fn a_quantile_of_few_values_is_marked() {
    let server = Server::start(&folder("query-few"));
    assert!((0..200).all(|nth| server.sends(&batch(nth))));
    let url = format!("http://{}", server.api);
    let spans = r#"{ name =~ "GE.*" }"#;
    let ended = curtail(&[
        "query",
        "quantiles",
        spans,
        "--quantile",
        "0.4",
        "--quantile",
        "0.9",
        "--quantile",
        "0.99",
        "--server",
        &url,
    ]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["values", "p40", "p90", "p99"]);
    let cells: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(cells[0], "200", "{}", ended.stdout);
    let marks = [cells[1].starts_with('~'), cells[3].starts_with('~')];
    assert_eq!(marks, [false, true], "120 and 20 are beyond: {}", ended.stdout);
    assert_eq!(*cells.last().expect("a cell"), "n/a", "2 are beyond: {}", ended.stdout);
    assert_eq!(lines[2], "exact; ~: fewer than 100 larger values; n/a: fewer than 10");
    server.ended("TERM");
}

#[test]
fn the_exit_code_distinguishes_the_kinds_of_errors() {
    let server = Server::start(&folder("query-codes"));
    let url = format!("http://{}", server.api);
    for (arguments, code, message) in [
        (&["trace", "77"][..], 1, "no such trace"),
        (&["slowest", "{ x"], 2, "byte 2"),
        (&["slowest", "{ rootName = \"a\" }"], 2, "not supported"),
        (&["count", "--since", "soon"], 2, "--since: expected"),
        (&["values", "a b"], 2, "expected a tag"),
    ] {
        let ended = curtail(&[&["query"], arguments, &["--server", &url]].concat());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(message), "{arguments:?}: {}", ended.stderr);
    }
    for url in [
        "here",
        "http://:1",
        "http://a:b@127.0.0.1:1",
        "http://127.0.0.1:1/?x",
        "http://127.0.0.1:1#x",
    ] {
        let ended = curtail(&["query", "slowest", "--server", url]);
        assert_eq!(ended.code, Some(2), "{url}: {}", ended.stderr);
    }
    // Nobody listens on a port below 1024 that no service has.
    let ended = curtail(&["query", "slowest", "--server", "http://127.0.0.1:1"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("(curtail server starts one)"), "{}", ended.stderr);
    server.ended("TERM");
}
