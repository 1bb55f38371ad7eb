//! No query takes more than it may.

use crate::program::{rows, run_query};
use crate::written::shop;
use curtail_store::SQL_BYTES_MAX;
use std::path::Path;

#[test]
fn memory_time_rows_and_depth_are_bounded() {
    let (data, _) = shop("sql-bounds");
    too_much_memory_is_refused(&data);
    too_much_in_one_value_is_refused(&data);
    what_takes_too_long_is_given_up(&data);
    rows_are_cut_with_a_message(&data);
    deeply_nested_queries_succeed_or_are_rejected(&data);
}

fn too_much_memory_is_refused(data: &Path) {
    let queries = [
        // A large group for each span.
        "SELECT span_id, array_agg(name) FROM spans GROUP BY span_id",
        // All pairs, in order: the maximum of rows is kept.
        "SELECT a.span_id, b.span_id FROM spans a CROSS JOIN spans b ORDER BY a.duration_ns * b.duration_ns",
        "SELECT a.name FROM spans a JOIN spans b ON a.name = b.name",
        "SELECT span_id, row_number() OVER (ORDER BY duration_ns) FROM spans",
    ];
    for query in queries {
        let ended = run_query(data, &["--memory", "1", "--rows", "4000000000"], query);
        assert_eq!(ended.code, Some(2), "{query}: {ended:?}");
        assert!(ended.stderr.contains("more memory than its limit"), "{query}: {ended:?}");
    }
    // To keep rows until they are printed takes of the same memory.
    let ended = run_query(
        data,
        &["--memory", "1", "--rows", "4000000000"],
        "SELECT span_id, start_ns, name FROM spans",
    );
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("rows to print"), "{ended:?}");
    let ended = run_query(
        data,
        &["--memory", "1", "--format", "csv", "--rows", "4000000000"],
        "SELECT span_id, name FROM spans",
    );
    assert_eq!((ended.code, ended.stdout.lines().count()), (Some(0), 20_001), "{}", ended.stderr);
}

/// What one function makes is not counted; there the system sets the bound.
fn too_much_in_one_value_is_refused(data: &Path) {
    for (query, message) in [
        ("SELECT repeat(name, 1000000000) FROM spans", "string size overflow"),
        ("SELECT range(0, 100000000000)", "Range too large"),
        ("SELECT lpad(name, 1000000, 'x') FROM spans", "memory allocation of"),
    ] {
        let ended = run_query(data, &[], query);
        assert_ne!(ended.code, Some(0), "{query}");
        assert!(ended.stderr.contains(message), "{query}: {ended:?}");
    }
}

fn what_takes_too_long_is_given_up(data: &Path) {
    // Eight million million rows are looked at.
    let query = "SELECT count(*) FROM spans a, spans b, spans c \
                    WHERE a.duration_ns * b.duration_ns = c.duration_ns + 1";
    let ended = run_query(data, &["--timeout", "1"], query);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.starts_with("no result within 1 s"), "{ended:?}");
}

fn rows_are_cut_with_a_message(data: &Path) {
    let query = "SELECT start_ns FROM spans ORDER BY start_ns";
    for (format, lines) in [("table", 4), ("csv", 4), ("json", 3)] {
        let ended = run_query(data, &["--rows", "3", "--format", format], query);
        assert_eq!((ended.code, ended.stdout.lines().count()), (Some(0), lines), "{ended:?}");
        assert_eq!(ended.stderr, "There are more rows than 3: --rows prints more.\n");
    }
    let three = "SELECT start_ns FROM spans ORDER BY start_ns LIMIT 3";
    let ended = run_query(data, &["--rows", "3"], three);
    assert_eq!((ended.stdout.lines().count(), ended.stderr.as_str()), (4, ""), "{ended:?}");
}

fn deeply_nested_queries_succeed_or_are_rejected(data: &Path) {
    let room = SQL_BYTES_MAX - 100;
    let deep = [
        format!("SELECT max(duration_ns{}) FROM spans", "+1".repeat(room / 2)),
        format!("SELECT name FROM spans WHERE status=''{}", " OR status=''".repeat(room / 13)),
        format!("SELECT {}1{}", "(".repeat(room / 2), ")".repeat(room / 2)),
        format!("SELECT {}1", "- ".repeat(room / 2)),
        format!("SELECT {}1{}", "abs(".repeat(room / 5), ")".repeat(room / 5)),
    ];
    for query in deep {
        // A process that was killed has no code.
        let ended = run_query(data, &["--timeout", "2"], &query);
        assert!(matches!(ended.code, Some(0 | 2)), "{query:.80}: {ended:?}");
    }
    let listed = format!(
        "SELECT count(*) AS n FROM spans WHERE duration_ns IN (0{})",
        ",1".repeat(room / 2)
    );
    assert_eq!(rows(data, &listed)[0]["n"], 0);
    let long = format!("SELECT 1 {}", " ".repeat(SQL_BYTES_MAX));
    let ended = run_query(data, &[], &long);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("expected at most 16384"), "{ended:?}");
}
