//! The report as JSON: `curtail.sharding/1`.

use super::{Placed, ShardingReport};
use crate::batches::Estimate;
use serde_json::{Value, json};

const SCHEMA: &str = "curtail.sharding/1";

pub(super) fn render(report: &ShardingReport) -> String {
    let rows = report.rows.iter().map(|row| {
        let placed = report.rules.iter().zip(&row.placed);
        let placed: Vec<Value> = placed.map(|(rule, placed)| of(rule, placed)).collect();
        json!({ "servers": row.servers, "rules": placed })
    });
    json!({
        "schema": SCHEMA,
        "seed": report.seed,
        "requests": report.requests,
        "servers": rows.collect::<Vec<_>>(),
    })
    .to_string()
}

fn of(rule: &str, placed: &Placed) -> Value {
    let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value / 1e6);
    let interval = |estimate: Option<Estimate>| {
        let end = |ns: f64| ns.is_finite().then_some(ns / 1e6);
        estimate.and_then(|e| e.interval).map(|(low, high)| (end(low), end(high)))
    };
    json!({
        "rule": rule,
        "shards": placed.placement.shards,
        "fullest": placed.placement.fullest(),
        "imbalance_ratio": placed.placement.imbalance(),
        "p50_ms": value(placed.p50_ns),
        "p99_ms": value(placed.p99_ns),
        "interval_ms": { "p50": interval(placed.p50_ns), "p99": interval(placed.p99_ns) },
    })
}
