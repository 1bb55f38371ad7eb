//! The rows that are compared: a recipe each, simulated and as servers.

use curtail_sim::{Scenario, run};
use curtail_units::Quantile;

/// The largest difference between simulation and servers.
const DIFFERENCE_MAX: f64 = 0.15;

pub(crate) const SERVERS: usize = 3;
pub(crate) const REQUESTS_PER_SECOND: f64 = 300.0;

pub(crate) const QUANTILES: [(&str, Quantile); 4] = [
    ("p50", Quantile::P50),
    ("p90", Quantile::P90),
    ("p95", Quantile::P95),
    ("p99", Quantile::P99),
];

/// The server of all rows: of at most 6 requests, 2.2 are in service on average.
const SERVER: &str = "concurrency: 6, service: {shape: lognormal, median: 20ms, sigma: 0.4}";

/// Name, keys of the server in addition to [`SERVER`], and fault.
pub(crate) const ROWS: [(&str, &str, &str); 9] = [
    ("no fault", "", ""),
    (
        "stall",
        "",
        "recipe: stall, every: {shape: exponential, mean: 1s}, lasts: {shape: constant, value: 80ms}",
    ),
    (
        "garbage_collection",
        "",
        "recipe: garbage_collection, executions: 100, lasts: {shape: constant, value: 80ms}",
    ),
    (
        "background_job",
        "",
        "recipe: background_job, every: 2s, lasts: {shape: constant, value: 300ms}, slowdown: 2",
    ),
    (
        "background_job, synchronized",
        "",
        "recipe: background_job, every: 2s, lasts: {shape: constant, value: 300ms}, slowdown: 2, synchronized: true",
    ),
    ("slow_replica", "", "recipe: slow_replica, servers_first: 1, slowdown: 2"),
    ("errors", "", "recipe: errors, broken_ratio: 0.002, bad_ratio: 0.002, silent_ratio: 0.001"),
    (
        "noisy_neighbor",
        "",
        "recipe: noisy_neighbor, requests_per_second: 50, service: {shape: exponential, mean: 40ms}",
    ),
    (
        "antagonist",
        ", cores: {allocated: 2, machine: 6}",
        "recipe: antagonist, cores_max: 6, cores_left_min: 3, every: {shape: exponential, mean: 500ms}",
    ),
];

/// The percentiles of one row, in milliseconds; infinite among failed requests.
pub(crate) type Percentiles = [f64; QUANTILES.len()];

fn faults(fault: &str) -> String {
    if fault.is_empty() { "[]".to_owned() } else { format!("[{{{fault}}}]") }
}

/// Simulates a row.
pub(crate) fn simulate(keys: &str, fault: &str, seed: u64, requests: u32) -> Percentiles {
    let faults = faults(fault);
    let yaml = format!(
        "model: {{replicas: {SERVERS}, {SERVER}{keys}, faults: {faults}, arrivals: {{requests_per_second: {REQUESTS_PER_SECOND}}}}}
arms: {{plain: {{balance: random, hedge: false, retry: false, timeout: 2s}}}}
requests_max: {requests}
"
    );
    let scenario = Scenario::read("recipes", &yaml, &[]).expect("no errors");
    let report = run(&scenario, seed, |_| {});
    let arm = report.arm("", "plain").expect("the only arm");
    QUANTILES.map(|(_, quantile)| {
        let known = arm.quantiles_ns.iter().find(|(other, _)| *other == quantile);
        known.and_then(|(_, value)| *value).map_or(f64::INFINITY, |value| value.value / 1e6)
    })
}

/// The file of a row's testbed.
pub(crate) fn testbed_yaml(keys: &str, fault: &str) -> String {
    let faults = faults(fault);
    format!("{{name: recipes, replicas: {SERVERS}, server: {{{SERVER}{keys}}}, faults: {faults}}}")
}

/// The percentiles of these latencies.
pub(crate) fn percentiles(mut latencies_ms: Vec<f64>) -> Percentiles {
    latencies_ms.sort_unstable_by(f64::total_cmp);
    QUANTILES.map(|(_, quantile)| {
        let rank = latencies_ms.len() as f64 * quantile.get();
        let nth = (0..latencies_ms.len()).find(|nth| *nth as f64 + 1.0 >= rank);
        latencies_ms[nth.expect("a quantile is at most 1")]
    })
}

/// Whether no percentile differs by more than [`DIFFERENCE_MAX`].
pub(crate) fn is_within(simulated: &Percentiles, measured: &Percentiles) -> bool {
    let difference = |(simulated, measured): (&f64, &f64)| (measured / simulated - 1.0).abs();
    simulated.iter().zip(measured).map(difference).all(|difference| difference <= DIFFERENCE_MAX)
}
