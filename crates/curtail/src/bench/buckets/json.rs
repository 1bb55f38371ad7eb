//! The report as JSON: `curtail.buckets/1`.

use super::report::{CoarsestLayouts, Figure, Report, Row, SAMPLES};
use curtail_load::buckets::{Coarsest, Layout};
use serde_json::{Value, json};

const SCHEMA: &str = "curtail.buckets/1";

pub(super) fn render(report: &Report<'_>) -> String {
    let values = report.data.values.as_slice();
    let wanted = report.wanted;
    let quantiles: Vec<f64> = wanted.quantiles.iter().map(|at| at.get()).collect();
    let seed = report.data.drawn.as_ref().map(|(seed, _)| seed);
    json!({
        "schema": SCHEMA,
        "data": {
            "file": report.data.name,
            "seed": seed,
            "samples": seed.map(|_| SAMPLES),
            "values": values.len(),
            "min_ns": values.first().map(|value| value.as_ns()),
            "max_ns": values.last().map(|value| value.as_ns()),
        },
        "quantiles": quantiles,
        "exact": report.exact.iter().map(figure).collect::<Vec<_>>(),
        "layouts": report.rows.iter().map(row).collect::<Vec<_>>(),
        "coarsest": coarsest(&report.coarsest, wanted.error_at.get(), wanted.error_max),
    })
    .to_string()
}

/// For samples, `value_ns` is the mean, and `spread_ns` is two standard deviations between samples.
fn figure(figure: &Figure) -> Value {
    json!({ "value_ns": figure.ns, "spread_ns": figure.spread_ns })
}

fn row(row: &Row) -> Value {
    let read = |(figure, error): &(Figure, Option<f64>)| json!({ "value_ns": figure.ns, "spread_ns": figure.spread_ns, "error_ratio": error });
    json!({
        "name": row.layout.name(),
        "reader": row.layout.reader().name(),
        "buckets": row.buckets,
        "error_max_ratio": row.layout.error_max(),
        "read": row.reads.iter().map(read).collect::<Vec<_>>(),
    })
}

fn coarsest(layouts: &CoarsestLayouts, quantile: f64, error_max: f64) -> Value {
    let found = |found: &Option<Coarsest>| {
        found.as_ref().map(|Coarsest { layout, worst }| {
            json!({ "name": layout.name(), "worst_error_ratio": worst })
        })
    };
    let name = |layout: &Option<Layout>| layout.as_ref().map(|layout| layout.name().to_owned());
    json!({
        "quantile": quantile,
        "error_max_ratio": error_max,
        "these_data": { "growth": found(&layouts.growth), "otel": found(&layouts.scale) },
        "any_data": { "growth": name(&layouts.growth_always), "otel": name(&layouts.scale_always) },
    })
}
