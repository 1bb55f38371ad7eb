//! The report as JSON: `curtail.simulate/2`. An end of an interval is `null` if the run does not bound the value on
//! that side.

use super::{ArmReport, Comparison, Report};
use crate::batches::Estimate;
use crate::world::StopReason;
use serde::Serialize;
use std::collections::BTreeMap;

const SCHEMA: &str = "curtail.simulate/2";

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    seed: u64,
    events: u64,
    events_per_second: f64,
    arms: Vec<Arm>,
}

#[derive(Serialize)]
struct Arm {
    name: String,
    requests: u64,
    settled: bool,
    stopped: Option<&'static str>,
    mean_ms: Option<f64>,
    p50_ms: Option<f64>,
    p90_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    p999_ms: Option<f64>,
    interval_ms: BTreeMap<&'static str, Interval>,
    ratio: Option<Ratio>,
    extra_requests_ratio: f64,
    extra_work_ratio: f64,
    utilisation_ratio: f64,
    errors: u64,
    above: Vec<Above>,
    log: String,
}

/// The ends of an interval; absent where the interval is open.
type Interval = (Option<f64>, Option<f64>);

/// An arm relative to another one: 0.5 is half as long.
#[derive(Serialize)]
struct Ratio {
    against: String,
    value: BTreeMap<&'static str, Option<f64>>,
    interval: BTreeMap<&'static str, Interval>,
}

#[derive(Serialize)]
struct Above {
    threshold_ms: f64,
    ratio: f64,
    interval: Option<(f64, f64)>,
}

pub(super) fn render(report: &Report, seconds: f64) -> String {
    let document = Document {
        schema: SCHEMA,
        seed: report.seed,
        events: report.events,
        events_per_second: if seconds > 0.0 { report.events as f64 / seconds } else { 0.0 },
        arms: report.arms.iter().map(arm).collect(),
    };
    serde_json::to_string(&document).expect("numbers and names can be written as JSON")
}

fn arm(arm: &ArmReport) -> Arm {
    let [p50, p90, p95, p99, p999] = super::QUANTILES.map(|quantile| arm.quantile_ns(quantile));
    let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value / 1e6);
    Arm {
        name: arm.name(),
        requests: arm.requests,
        settled: arm.settled,
        stopped: arm.stopped.map(StopReason::name),
        mean_ms: value(arm.mean_ns),
        p50_ms: value(p50),
        p90_ms: value(p90),
        p95_ms: value(p95),
        p99_ms: value(p99),
        p999_ms: value(p999),
        interval_ms: intervals([arm.mean_ns, p50, p90, p95, p99, p999], 1e6),
        ratio: arm.comparison.as_ref().map(ratio),
        extra_requests_ratio: arm.extra_requests_ratio,
        extra_work_ratio: arm.extra_work_ratio,
        utilisation_ratio: arm.utilisation_ratio,
        errors: arm.errors,
        above: arm
            .above
            .iter()
            .map(|(threshold, share)| Above {
                threshold_ms: threshold.as_ms_f64(),
                ratio: share.value,
                interval: share.interval,
            })
            .collect(),
        log: format!("{:016x}", arm.log),
    }
}

const NAMES: [&str; 6] = ["mean", "p50", "p90", "p95", "p99", "p999"];

/// The existing intervals, in another unit.
fn intervals(estimates: [Option<Estimate>; 6], unit: f64) -> BTreeMap<&'static str, Interval> {
    let end = |value: f64| value.is_finite().then_some(value / unit);
    let interval = |(name, estimate): (&'static str, Option<Estimate>)| {
        estimate?.interval.map(|(low, high)| (name, (end(low), end(high))))
    };
    NAMES.into_iter().zip(estimates).filter_map(interval).collect()
}

fn ratio(comparison: &Comparison) -> Ratio {
    let [p50, p90, p95, p99, p999] = super::QUANTILES.map(|q| comparison.quantile(q));
    let estimates = [comparison.mean, p50, p90, p95, p99, p999];
    let values = estimates.map(|estimate| estimate.map(|estimate| estimate.value));
    Ratio {
        against: comparison.against.clone(),
        value: NAMES.into_iter().zip(values).collect(),
        interval: intervals(estimates, 1.0),
    }
}
