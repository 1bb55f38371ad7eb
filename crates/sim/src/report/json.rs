//! The report as JSON: `curtail.simulate/1`.

use super::{ArmReport, Report};
use crate::batches::Estimate;
use serde::Serialize;
use std::collections::BTreeMap;

const SCHEMA: &str = "curtail.simulate/1";

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
    mean_ms: Option<f64>,
    p50_ms: Option<f64>,
    p90_ms: Option<f64>,
    p99_ms: Option<f64>,
    p999_ms: Option<f64>,
    interval_ms: BTreeMap<&'static str, (f64, f64)>,
    extra_requests_ratio: f64,
    extra_work_ratio: f64,
    utilisation_ratio: f64,
    errors: u64,
    above: Vec<Above>,
    log: String,
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
    let [p50, p90, p99, p999] = super::QUANTILES.map(|quantile| arm.quantile_ns(quantile));
    let names = ["mean", "p50", "p90", "p99", "p999"];
    let estimates = [arm.mean_ns, p50, p90, p99, p999];
    let interval = |(name, estimate): (&'static str, Option<Estimate>)| {
        estimate?.interval.map(|(low, high)| (name, (low / 1e6, high / 1e6)))
    };
    let value = |estimate: Option<Estimate>| estimate.map(|estimate| estimate.value / 1e6);
    Arm {
        name: arm.name(),
        requests: arm.requests,
        settled: arm.settled,
        mean_ms: value(arm.mean_ns),
        p50_ms: value(p50),
        p90_ms: value(p90),
        p99_ms: value(p99),
        p999_ms: value(p999),
        interval_ms: names.into_iter().zip(estimates).filter_map(interval).collect(),
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
