//! Queries return the written rows.

use crate::program::{rows, run_query};
use crate::written::{NOON_NS, SERVICES, Sent, shop, trace_id};
use serde_json::{Value, json};
use std::path::Path;

/// The value at a quantile of the durations, as sorting has it: the lowest that this number of values does not exceed.
fn quantile(spans: &[&Sent], quantile: f64) -> u64 {
    let mut durations: Vec<_> = spans.iter().map(|span| span.duration_ns).collect();
    durations.sort_unstable();
    let place = (0..).find(|place| f64::from(*place + 1) >= quantile * durations.len() as f64);
    durations[usize::try_from(place.expect("one of them")).expect("it is small")]
}

fn counts_sums_and_extremes(data: &Path, all: &[Sent]) {
    let query = "SELECT count(*) AS spans, sum(duration_ns) AS ns, min(start_ns) AS first, \
                    max(start_ns) AS last, count(DISTINCT trace_id) AS traces FROM spans";
    let expected = json!({
        "spans": all.len(),
        "ns": all.iter().map(|span| span.duration_ns).sum::<u64>(),
        "first": NOON_NS,
        "last": all.iter().map(|span| span.start_ns).max(),
        "traces": all.len() / 4,
    });
    assert_eq!(rows(data, query), [expected]);
    // The log of the table says it, no file is read.
    let counted = rows(data, "EXPLAIN SELECT count(*), max(start_ns) FROM spans");
    assert!(
        counted[1]["plan"].as_str().expect("text").contains("PlaceholderRowExec"),
        "{counted:?}"
    );
}

fn quantiles_by_service(data: &Path, all: &[Sent]) {
    let query = "SELECT service, count(*) AS spans, \
                    percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ns) AS p50, \
                    approx_percentile_cont(0.99) WITHIN GROUP (ORDER BY duration_ns) AS p99 \
                    FROM spans GROUP BY service ORDER BY service";
    let result = rows(data, query);
    assert_eq!(result.len(), 3);
    for (row, service) in result.iter().zip(SERVICES) {
        let spans_of_service: Vec<_> = all.iter().filter(|span| span.service == service).collect();
        assert_eq!(row["service"], service);
        assert_eq!(row["spans"], spans_of_service.len());
        let near = |value: &Value, at: f64, ratio: f64| {
            let (value, exact) =
                (value.as_f64().expect("a number"), quantile(&spans_of_service, at) as f64);
            assert!((value / exact - 1.0).abs() < ratio, "{service} {at}: {value}, {exact}");
        };
        near(&row["p50"], 0.5, 0.001);
        near(&row["p99"], 0.99, 0.01);
    }
}

fn attributes_are_columns_or_in_maps(data: &Path, all: &[Sent]) {
    let is_chosen = |span: &&Sent| span.basket == "b7" && span.route == "/pay";
    let chosen: Vec<_> = all.iter().filter(is_chosen).collect();
    let items: i64 = chosen.iter().map(|span| span.items).sum();
    let query = "SELECT count(*) AS spans, sum(attributes_int['shop.items']) AS items FROM spans \
                    WHERE http_route = '/pay' AND attributes_text['shop.basket'] = 'b7'";
    assert_eq!(rows(data, query), [json!({ "spans": chosen.len(), "items": items })]);
    let span = all.iter().find(|span| span.span_id == 5).expect("there is one");
    let map = rows(
        data,
        "SELECT attributes_text AS t, links FROM spans WHERE span_id = X'0000000000000005'",
    );
    assert_eq!(map, [json!({ "t": { "shop.basket": span.basket }, "links": [] })]);
    let missing = "SELECT count(*) AS n FROM spans WHERE attributes_text['no.such'] IS NOT NULL";
    assert_eq!(rows(data, missing), [json!({ "n": 0 })]);
}

fn a_span_of_time(data: &Path, all: &[Sent]) {
    let (from, to) = (NOON_NS + 1_000_000_000, NOON_NS + 18_500_000_000);
    let count = all.iter().filter(|span| (from..to).contains(&span.start_ns)).count();
    let query =
        format!("SELECT count(*) AS n FROM spans WHERE start_ns >= {from} AND start_ns < {to}");
    assert_eq!(rows(data, &query), [json!({ "n": count })]);
    let later = "SELECT day, count(*) AS n FROM spans WHERE day = '2024-10-05' GROUP BY day";
    assert_eq!(rows(data, later), [json!({ "day": "2024-10-05", "n": 2_000 })]);
    let by_time = "SELECT count(*) AS n FROM spans \
                   WHERE to_timestamp_nanos(start_ns) < TIMESTAMP '2024-10-04T12:00:01'";
    assert_eq!(rows(data, by_time), [json!({ "n": 1_000 })]);
}

fn a_trace_by_its_id(data: &Path) {
    let id = format!("{:032x}", trace_id(3));
    let query = format!(
        "SELECT encode(trace_id, 'hex') AS trace, encode(span_id, 'hex') AS span FROM spans \
         WHERE trace_id = X'{id}' ORDER BY start_ns"
    );
    let expected: Vec<_> =
        (13..17).map(|span| json!({ "trace": id, "span": format!("{span:016x}") })).collect();
    assert_eq!(rows(data, &query), expected);
}

fn spans_with_what_they_logged(data: &Path) {
    let query = "SELECT s.service, l.body FROM spans s JOIN logs l ON s.trace_id = l.trace_id \
                    WHERE s.span_id = X'0000000000000051'";
    let result = rows(data, query);
    assert_eq!(result.len(), 1);
    assert_eq!(result[0]["body"], "trace 20\n\u{1b}[31m");
    let all = "SELECT count(*) AS n FROM spans JOIN logs USING (trace_id)";
    assert_eq!(rows(data, all), [json!({ "n": 2_000 })]);
}

fn points_of_metrics(data: &Path) {
    let query = "SELECT metric, sum(value_double) AS load FROM points GROUP BY metric";
    assert_eq!(rows(data, query), [json!({ "metric": "load", "load": 55.5 })]);
}

#[test]
fn queries_return_the_written_rows() {
    let (data, all) = shop("sql-results");
    counts_sums_and_extremes(&data, &all);
    quantiles_by_service(&data, &all);
    attributes_are_columns_or_in_maps(&data, &all);
    a_span_of_time(&data, &all);
    a_trace_by_its_id(&data);
    spans_with_what_they_logged(&data);
    points_of_metrics(&data);
    files_and_pages_that_cannot_have_it_are_left_out(&data);
    formats(&data, &all[0]);
}

/// What `EXPLAIN ANALYZE` says of the files that were read.
fn analyzed(data: &Path, query: &str) -> String {
    let plan = rows(data, &format!("EXPLAIN ANALYZE {query}"));
    plan[0]["plan"].as_str().expect("text").to_owned()
}

fn files_and_pages_that_cannot_have_it_are_left_out(data: &Path) {
    let plan = analyzed(data, "SELECT name FROM spans WHERE day = '2024-10-05'");
    assert!(plan.contains("day=2024-10-05/") && !plan.contains("day=2024-10-04/"), "{plan}");
    let start = NOON_NS + 19_000_000_000;
    let plan = analyzed(data, &format!("SELECT name FROM spans WHERE start_ns = {start}"));
    assert!(plan.contains("day=2024-10-05/") && !plan.contains("day=2024-10-04/"), "{plan}");
    let id = format!("{:032x}", trace_id(3));
    let plan = analyzed(data, &format!("SELECT name FROM spans WHERE trace_id = X'{id}'"));
    // One of the three pages of the large file, and the small one.
    assert!(plan.contains("page_index_rows_pruned=20.00 K total → 10.19 K matched"), "{plan}");
    assert!(!plan.contains("bytes_scanned=0"), "{plan}");
}

fn formats(data: &Path, first: &Sent) {
    let query = "SELECT spans.service, spans.attributes_int, trace_id, duration_ns, body FROM spans \
                    JOIN logs USING (trace_id) WHERE spans.span_id = X'0000000000000001'";
    let Sent { service, items, trace_id, duration_ns, .. } = first;
    let csv = run_query(data, &["--format", "csv"], query);
    assert_eq!(
        csv.stdout,
        format!(
            "service,attributes_int,trace_id,duration_ns,body\r\n\
             {service},\"{{\"\"shop.items\"\":{items}}}\",{trace_id:032x},{duration_ns},\
             \"trace 0\n\u{1b}[31m\"\r\n"
        )
    );
    let table = run_query(data, &[], query);
    let (map, id) = (format!("{{\"shop.items\":{items}}}"), format!("{trace_id:032x}"));
    let (head, ns) = ("attributes_int", duration_ns.to_string());
    let (widest, widths) = (map.len().max(head.len()), (service.len().max(7), ns.len().max(11)));
    assert_eq!(
        table.stdout,
        format!(
            "{:5$}  {head:4$}  {:32}  {:>6$}  body\n{service:5$}  {map:4$}  {id}  {ns:>6$}  {}\n",
            "service",
            "trace_id",
            "duration_ns",
            r"trace 0\n\u{1b}[31m",
            widest,
            widths.0,
            widths.1
        )
    );
    let none = run_query(data, &["--format", "csv"], "SELECT service, name FROM spans WHERE false");
    assert_eq!(none.stdout, "service,name\r\n");
}
