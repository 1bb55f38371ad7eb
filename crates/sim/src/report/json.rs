//! The report as JSON: `curtail.simulate/2`. An end of an interval is `null` if the run does not bound the value on
//! that side. A run that was stopped early has no latencies and no ratios.

use super::{ArmReport, Comparison, Report, TypeReport};
use crate::batches::Estimate;
use crate::world::StopReason;
use curtail_units::Duration;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SCHEMA: &str = "curtail.simulate/2";

/// The ends of an interval; absent where the interval is open.
type Interval = (Option<f64>, Option<f64>);

pub(super) fn render(report: &Report, seconds: f64) -> String {
    json!({
        "schema": SCHEMA,
        "seed": report.seed,
        "events": report.events,
        "events_per_second": if seconds > 0.0 { report.events as f64 / seconds } else { 0.0 },
        "arms": report.arms.iter().map(arm).collect::<Vec<Value>>(),
    })
    .to_string()
}

fn arm(arm: &ArmReport) -> Value {
    let [p50, p90, p95, p99, p999] = super::QUANTILES.map(|quantile| arm.quantile_ns(quantile));
    let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value / 1e6);
    let ratio_of = |ratio: f64| arm.stopped.is_none().then_some(ratio);
    let above = |(threshold, share): &(Duration, Estimate)| {
        json!({
            "threshold_ms": threshold.as_ms_f64(),
            "ratio": share.value,
            "interval": share.interval,
        })
    };
    json!({
        "name": arm.name(),
        "requests": arm.requests,
        "settled": arm.settled,
        "stopped": arm.stopped.map(StopReason::name),
        "mean_ms": value(arm.mean_ns),
        "p50_ms": value(p50),
        "p90_ms": value(p90),
        "p95_ms": value(p95),
        "p99_ms": value(p99),
        "p999_ms": value(p999),
        "interval_ms": intervals([arm.mean_ns, p50, p90, p95, p99, p999], 1e6),
        "ratio": arm.comparison.as_ref().map(ratio),
        "extra_requests_ratio": ratio_of(arm.extra_requests_ratio),
        "extra_work_ratio": ratio_of(arm.extra_work_ratio),
        "utilization_ratio": ratio_of(arm.utilization_ratio),
        "errors": arm.errors,
        "client_retries_ratio": ratio_of(arm.client_retries_ratio),
        "partial": arm.partial,
        "types": arm.types.iter().map(request_type).collect::<Vec<Value>>(),
        "above": arm.above.iter().map(above).collect::<Vec<Value>>(),
        "log": format!("{:016x}", arm.log),
    })
}

fn request_type(of: &TypeReport) -> Value {
    let [p50, p90, p95, p99, p999] = super::QUANTILES.map(|quantile| of.quantile_ns(quantile));
    let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value / 1e6);
    json!({
        "name": of.name,
        "requests": of.requests,
        "errors": of.errors,
        "mean_ms": value(of.mean_ns),
        "p50_ms": value(p50),
        "p90_ms": value(p90),
        "p95_ms": value(p95),
        "p99_ms": value(p99),
        "p999_ms": value(p999),
        "interval_ms": intervals([of.mean_ns, p50, p90, p95, p99, p999], 1e6),
    })
}

const NAMES: [&str; 6] = ["mean", "p50", "p90", "p95", "p99", "p999"];

/// The intervals that exist, with their ends divided by `unit`.
fn intervals(estimates: [Option<Estimate>; 6], unit: f64) -> BTreeMap<&'static str, Interval> {
    let end = |value: f64| value.is_finite().then_some(value / unit);
    let interval = |(name, estimate): (&'static str, Option<Estimate>)| {
        estimate?.interval.map(|(low, high)| (name, (end(low), end(high))))
    };
    NAMES.into_iter().zip(estimates).filter_map(interval).collect()
}

/// An arm relative to another one: 0.5 is half as long.
fn ratio(comparison: &Comparison) -> Value {
    let [p50, p90, p95, p99, p999] = super::QUANTILES.map(|q| comparison.quantile(q));
    let estimates = [comparison.mean, p50, p90, p95, p99, p999];
    let values = estimates.map(|estimate| estimate.map(|estimate| estimate.value));
    json!({
        "against": comparison.against,
        "value": NAMES.into_iter().zip(values).collect::<BTreeMap<_, _>>(),
        "interval": intervals(estimates, 1.0),
    })
}
