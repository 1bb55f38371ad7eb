//! What is no query, and what would change something.

use crate::program::{Ended, run_query};
use crate::written::{Writer, run, shop};
use std::path::Path;

fn query_error(data: &Path, query: &str) -> String {
    let ended = run_query(data, &[], query);
    assert_eq!(ended.code, Some(2), "{query}: {ended:?}");
    assert!(ended.stdout.is_empty(), "{query}: {ended:?}");
    ended.stderr
}

#[test]
fn nothing_is_changed() {
    let (data, _) = shop("sql-refusals");
    let out = data.join("out.csv").display().to_string();
    let statements = [
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW t AS SELECT 1",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "DROP TABLE spans",
        "INSERT INTO spans SELECT * FROM spans",
        "UPDATE spans SET name = 'x'",
        "DELETE FROM spans",
        "TRUNCATE TABLE spans",
        &format!("COPY spans TO '{out}'"),
        &format!("EXPLAIN ANALYZE COPY spans TO '{out}'"),
        "SET datafusion.runtime.memory_limit = '64G'",
        "RESET datafusion.runtime.memory_limit",
        "SET datafusion.catalog.location = '/etc'",
        "SET TIME ZONE 'UTC'",
        "COPY (SELECT 1) TO '/tmp'",
        "CREATE SCHEMA s",
        "CREATE FUNCTION f(int) RETURNS int RETURN $1",
        "EXECUTE p",
        "DEALLOCATE p",
        "USE public",
        "PREPARE p AS SELECT 1",
        "SELECT 1 AS a INTO t",
    ];
    for statement in statements {
        let error = query_error(&data, statement);
        assert!(error.contains("is refused: only reading is supported"), "{statement}: {error}");
    }
    assert!(!Path::new(&out).exists());
}

#[test]
fn no_file_is_read_but_those_of_the_tables() {
    let data = run(async { Writer::new("sql-files").await.data });
    let own = data.join("own.csv");
    std::fs::write(&own, "a\nfound\n").expect("the folder is ours");
    let own = own.display().to_string();
    for query in [
        format!("SELECT * FROM '{own}'"),
        format!("SELECT * FROM \"{own}\""),
        format!("SELECT * FROM 'file://{own}'"),
        format!("SELECT * FROM read_csv('{own}')"),
        format!("SELECT * FROM read_text('{own}')"),
        format!("SELECT * FROM read_parquet('{own}')"),
        format!("SELECT * FROM parquet_metadata('{own}')"),
        format!("SELECT read_file('{own}')"),
        format!("DESCRIBE '{own}'"),
        format!("WITH a AS (SELECT * FROM '{own}') SELECT * FROM a"),
    ] {
        let error = query_error(&data, &query);
        assert!(!error.contains("found"), "{query}: {error}");
    }
}

#[test]
fn errors_are_named_with_what_there_is() {
    let data = run(async { Writer::new("sql-errors").await.data });
    let error = query_error(&data, "SELECT * FROM spanz");
    assert_eq!(error, "there is no table spanz: there are logs, points, spans, traces\n");
    let error = query_error(&data, "SELECT servis FROM spans");
    assert!(
        error.starts_with("there is no column servis: there are trace_id, span_id, "),
        "{error}"
    );
    assert!(error.contains(", service, ") && error.ends_with(", day\n"), "{error}");
    let error = query_error(&data, "SELECT l.servis FROM logs l");
    assert!(error.starts_with("there is no column l.servis: there are trace_id, "), "{error}");
    for (query, expected) in [
        ("SELEKT 1", "SELEKT"),
        ("", "No SQL statements"),
        ("SELECT 1; SELECT 2", "single SQL statement"),
        ("SELECT quantil(duration_ns) FROM spans", "quantil"),
        ("SELECT * FROM '/etc/passwd'", "there is no table /etc/passwd"),
        ("SELECT name + 1 FROM spans", "Utf8View + Int64"),
        ("SELECT * FROM spans WHERE duration_ns = 'x'", "'x'"),
    ] {
        let error = query_error(&data, query);
        assert!(error.contains(expected), "{query}: {error}");
    }
    let json = run_query(&data, &["--format", "json"], "SELECT 1 AS a, 2 AS a");
    assert_eq!(json.code, Some(2), "{json:?}");
}

#[test]
fn a_folder_without_tables_is_named() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for data in [folder.join("sql-no-such-folder"), folder.to_path_buf()] {
        let Ended { code, stderr, .. } = run_query(&data, &[], "SELECT 1");
        assert_eq!(code, Some(3), "{stderr}");
        let tables = data.join("tables").display().to_string();
        assert!(stderr.contains(&format!("{tables} has no tables")), "{stderr}");
    }
}

#[test]
fn tables_without_rows_are_tables() {
    let data = run(async { Writer::new("sql-empty").await.data });
    let ended =
        run_query(&data, &["--format", "csv"], "SELECT count(*), max(duration_ns) FROM spans");
    assert_eq!(ended.stdout, "count(*),max(spans.duration_ns)\r\n0,\r\n", "{ended:?}");
    let none = run_query(&data, &["--format", "json"], "SELECT * FROM logs WHERE body LIKE '%x%'");
    assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""), "{none:?}");
    let named = run_query(&data, &["--format", "csv"], "SHOW TABLES");
    assert!(named.stdout.contains("spans") && named.stdout.contains("points"), "{named:?}");
}
