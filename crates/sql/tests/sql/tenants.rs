//! Who asks for one tenant sees that one alone, whatever the SQL.

use crate::program::{Ended, rows, run_query};
use crate::written::{NOON_NS, Sent, Writer, run, trace_id};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const RUNS: u64 = 8;
/// The spans of each tenant; both tenants share one file.
const SPANS: u64 = RUNS * 4;

/// The spans of a run: what `shop` has are numbers, what the other has must not be seen.
fn spans(run: u64, is_secret: bool) -> Vec<Sent> {
    let span = |nth: u64| Sent {
        trace_id: trace_id(if is_secret { 1_000 + nth } else { nth }),
        span_id: nth + 1,
        start_ns: NOON_NS + nth * 1_000,
        duration_ns: if is_secret { 999_999_999 } else { 1_000 + nth },
        service: if is_secret { "secret" } else { "7" },
        route: if is_secret { "/secret" } else { "/pay" },
        basket: if is_secret { "secret".to_owned() } else { nth.to_string() },
        items: if is_secret { 0 } else { 1 },
    };
    (run * 4..run * 4 + 4).map(span).collect()
}

/// A folder with rows of two tenants.
fn two_tenants(name: &str) -> PathBuf {
    run(async {
        let mut writer = Writer::new(name).await;
        for run in 0..RUNS {
            let is_secret = run % 2 == 0;
            for is_secret in [is_secret, !is_secret] {
                writer.tenant = if is_secret { "rival" } else { "shop" };
                writer.spans(&spans(run, is_secret), 0).await;
            }
        }
        writer.logs(0..3).await;
        writer.points(&[1.0]).await;
        // Both in one file, in the order of their traces.
        assert!(writer.keep().await > 0);
        writer.data
    })
}

fn run_query_as(data: &Path, tenant: &str, query: &str) -> Ended {
    run_query(data, &["--tenant", tenant, "--format", "json"], query)
}

fn rows_of(data: &Path, tenant: &str, query: &str) -> Vec<Value> {
    let ended = run_query_as(data, tenant, query);
    assert_eq!(ended.code, Some(0), "{query}: {ended:?}");
    let lines = ended.stdout.lines().map(serde_json::from_str::<Value>);
    lines.map(|line| line.expect("a line is an object")).collect()
}

#[test]
fn a_tenant_sees_only_its_own_rows() {
    let data = two_tenants("sql-tenants");
    let all = rows(&data, "SELECT count(*) AS n, count(DISTINCT tenant) AS t FROM spans");
    assert_eq!(all, [json!({ "n": 2 * SPANS, "t": 2 })]);
    whatever_the_form(&data);
    whatever_the_condition(&data);
    no_error_tells(&data);
    no_plan_tells(&data);
    every_table(&data);
}

/// Each of these counts what it sees of all spans.
fn whatever_the_form(data: &Path) {
    for counts in [
        "SELECT count(*) AS n FROM spans",
        "SELECT count(name) AS n FROM spans",
        "SELECT sum(one) AS n FROM (SELECT 1 AS one FROM spans)",
        "SELECT count(*) AS n FROM (SELECT * FROM spans LIMIT 1000)",
        "SELECT count(*) AS n FROM (SELECT name FROM spans ORDER BY duration_ns DESC LIMIT 1000)",
        "WITH a AS (SELECT * FROM spans) SELECT count(*) AS n FROM a",
        "WITH RECURSIVE a AS (SELECT 0 AS step UNION ALL SELECT step + 1 FROM a JOIN spans ON \
         span_id = X'0000000000000001' WHERE step < 31) SELECT count(*) AS n FROM a",
        "SELECT count(*) AS n FROM spans a JOIN spans b USING (trace_id, span_id)",
        "SELECT count(*) AS n FROM spans a FULL JOIN spans b USING (trace_id, span_id)",
        "SELECT count(*) AS n FROM (SELECT span_id FROM spans UNION SELECT span_id FROM spans)",
        "SELECT count(*) AS n FROM spans a WHERE EXISTS (SELECT 1 FROM spans b WHERE a.name = b.name)",
        "SELECT count(*) AS n FROM spans WHERE duration_ns <= (SELECT max(duration_ns) FROM spans)",
        "SELECT count(*) AS n FROM (SELECT row_number() OVER (ORDER BY start_ns) FROM spans)",
        "SELECT count(*) AS n FROM datafusion.public.spans",
    ] {
        assert_eq!(rows_of(data, "shop", counts), [json!({ "n": SPANS })], "{counts}");
        let none = rows_of(data, "nobody", counts);
        let is_none = none[0]["n"] == 0 || none[0]["n"].is_null() || counts.contains("RECURSIVE");
        assert!(is_none, "{counts}: {none:?}");
    }
    let extremes = "SELECT min(duration_ns) AS least, max(duration_ns) AS most, \
                    array_agg(DISTINCT tenant) AS tenants FROM spans";
    let expected = json!({ "least": 1_000, "most": 999 + SPANS, "tenants": ["shop"] });
    assert_eq!(rows_of(data, "shop", extremes), [expected]);
    let first = "SELECT service, duration_ns AS ns FROM spans ORDER BY duration_ns DESC LIMIT 1";
    assert_eq!(rows_of(data, "shop", first), [json!({ "service": "7", "ns": 999 + SPANS })]);
}

/// Each of these holds for spans of both.
fn whatever_the_condition(data: &Path) {
    for (condition, count) in [
        ("true", SPANS),
        ("tenant = 'rival'", 0),
        ("tenant <> 'shop'", 0),
        ("tenant = 'shop' OR tenant = 'rival'", SPANS),
        ("tenant = 'rival' OR 1 = 1", SPANS),
        ("NOT (tenant = 'shop')", 0),
        ("tenant IS NOT NULL", SPANS),
        ("tenant IN ('shop', 'rival')", SPANS),
        ("tenant LIKE '%'", SPANS),
        ("duration_ns > 500000000", 0),
        ("service = 'secret'", 0),
        ("start_ns >= 0 AND day IS NOT NULL", SPANS),
        ("day < '2024-10-04'", 0),
        ("span_id = X'0000000000000001'", 1),
        ("attributes_text['shop.basket'] <> ''", SPANS),
        ("trace_id IN (SELECT trace_id FROM spans)", SPANS),
    ] {
        let query = format!("SELECT count(*) AS n FROM spans WHERE {condition}");
        assert_eq!(rows_of(data, "shop", &query), [json!({ "n": count })], "{condition}");
    }
    for tenant in ["", "SHOP", "shop ", "shop' OR '1'='1", "%", "shop|rival"] {
        let none = rows_of(data, tenant, "SELECT count(*) AS n FROM spans");
        assert_eq!(none, [json!({ "n": 0 })], "{tenant:?}");
    }
}

/// What fails over a value says which: only over values that may be seen.
fn no_error_tells(data: &Path) {
    for query in [
        "SELECT count(*) FROM spans WHERE CAST(service AS BIGINT) > 0",
        "SELECT count(*) FROM spans WHERE service::BIGINT = 7 AND tenant = 'rival'",
        "SELECT count(*) FROM spans WHERE tenant = 'rival' AND service::BIGINT = 7",
        "SELECT sum(CAST(attributes_text['shop.basket'] AS BIGINT)) FROM spans",
        "SELECT max(10 / attributes_int['shop.items']) FROM spans",
        "SELECT count(*) FROM spans WHERE 10 / attributes_int['shop.items'] > 0",
        "SELECT count(*) FROM spans a JOIN spans b ON a.service::BIGINT = b.service::BIGINT",
        "SELECT to_timestamp(service) FROM spans WHERE tenant = 'rival'",
        "SELECT service::BIGINT AS s FROM spans ORDER BY 1 LIMIT 3",
    ] {
        let by_all = run_query(data, &[], query);
        let fails = by_all.code != Some(0);
        assert!(fails || query.contains("tenant"), "{query}: {by_all:?}");
        let Ended { code, stderr, .. } = run_query_as(data, "shop", query);
        assert_eq!((code, &*stderr), (Some(0), ""), "{query}");
    }
}

/// A plan says how many rows were read, and of which files.
fn no_plan_tells(data: &Path) {
    for kind in ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE", "EXPLAIN ANALYZE VERBOSE"] {
        let query = format!("{kind} SELECT name FROM spans WHERE start_ns > 0 LIMIT 5");
        let ended = run_query_as(data, "shop", &query);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains("RowsOf: tenant=shop"), "{ended:?}");
        assert!(!ended.stdout.contains(".parquet"), "{ended:?}");
        assert!(!ended.stdout.contains(&format!("Rows=Exact({})", 2 * SPANS)), "{ended:?}");
    }
}

fn every_table(data: &Path) {
    for (table, count) in [("logs", 3), ("points", 1)] {
        let query = format!("SELECT count(*) AS n FROM {table}");
        // They were written last, by whom the last spans were.
        let by_tenant =
            ["shop", "rival"].map(|tenant| rows_of(data, tenant, &query)[0]["n"].clone());
        let [shop, rival] = by_tenant;
        assert_eq!((shop, rival), (json!(0), json!(count)), "{table}");
        assert_eq!(rows(data, &query), [json!({ "n": count })], "{table}");
    }
    let query =
        "SELECT count(*) AS n, count(*) FILTER (WHERE tenant <> 'shop') AS others FROM traces";
    let traces = rows_of(data, "shop", query);
    assert_eq!(traces[0]["others"], 0, "{traces:?}");
}

/// Tables may be in another folder than the data.
#[test]
fn tables_are_found_by_their_own_folder() {
    let data = run(async { Writer::new("sql-own-folder").await.data });
    let tables = data.join("tables").display().to_string();
    let elsewhere = data.join("no-such-folder");
    let ended = run_query(
        &elsewhere,
        &["--tables", &tables, "--format", "csv"],
        "SELECT count(*) AS n FROM spans",
    );
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "n\r\n0\r\n"), "{ended:?}");
}
