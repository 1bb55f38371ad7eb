use super::{ArmReport, Comparison, QUANTILES, Report};
use crate::batches::Estimate;
use crate::world::StopReason;
use curtail_units::Duration;
use expect_test::expect;

fn estimate(ms: f64, error: f64) -> Estimate {
    let ns = ms * 1e6;
    Estimate { value: ns, interval: Some((ns * (1.0 - error), ns * (1.0 + error))) }
}

fn arm(variant: &str, arm: &str, latencies_ms: [f64; 6]) -> ArmReport {
    let [mean, p50, p90, p95, p99, p999] = latencies_ms;
    let quantiles = [p50, p90, p95, p99, p999].map(|ms| (ms > 0.0).then(|| estimate(ms, 0.0123)));
    let share = Estimate { value: 0.0234, interval: Some((0.0223, 0.0245)) };
    ArmReport {
        variant: variant.to_owned(),
        arm: arm.to_owned(),
        requests: 1_000_000,
        mean_ns: Some(estimate(mean, 0.004)),
        quantiles_ns: QUANTILES.into_iter().zip(quantiles).collect(),
        above: vec![(Duration::from_secs(1), share)],
        errors: 0,
        extra_requests_ratio: 0.0,
        extra_work_ratio: 0.0,
        utilization_ratio: 0.634,
        client_retries_ratio: 0.0,
        partial: 0,
        types: Vec::new(),
        comparison: None,
        stopped: None,
        settled: true,
        log: 0x1234,
    }
}

fn report() -> Report {
    let mut plain = arm("idle", "plain", [22.7, 19.004, 38.85, 50.0, 467.5, 9_998.7]);
    plain.quantiles_ns[4].1 = Some(Estimate { value: 9_998.7e6, interval: None });
    plain.quantiles_ns[3].1 =
        Some(Estimate { value: 467.5e6, interval: Some((301.2e6, f64::INFINITY)) });
    plain.requests = 100_000;
    let mut tied =
        arm("busy and sorting at the same time", "tied", [0.001_4, 0.5, 0.99, 2.0, 9.9996, 0.0]);
    (tied.errors, tied.settled) = (1_234, false);
    (tied.extra_requests_ratio, tied.extra_work_ratio) = (1.0, 0.0083);
    let ratio = |value: f64, interval| Some(Estimate { value, interval });
    let p99 = ratio(0.021, Some((0.0, 0.0334)));
    tied.comparison = Some(Comparison {
        against: "plain".to_owned(),
        mean: ratio(0.5, Some((0.4567, 0.5678))),
        quantiles: QUANTILES
            .into_iter()
            .zip([ratio(0.0263, None), ratio(0.0255, None), ratio(0.04, None), p99, None])
            .collect(),
    });
    Report { seed: 7, events: 4_000_000, arms: vec![plain, tied] }
}

#[test]
fn the_table_says_everything_within_80_columns() {
    let table = report().table();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    expect![[r#"
        ms             mean    p50    p90    p95    p99  p99.9 more requests  busy
        idle, plain   22.70  19.00  38.85  50.00  467.5   9999        0.00 %  63 %
          95 % from   22.61  18.77  38.37  49.38  301.2      –
          95 % to     22.79  19.24  39.33  50.62      ∞      –
          no interval for p99.9: too few requests (100000)
          above 1 s: 2.34 % (2.23 % to 2.45 %)
        busy and sorting at the same time, tied
                      0.001  0.500  0.990  2.000  10.00 failed      100.00 %  63 %
          95 % from   0.001  0.494  0.978  1.975  9.877      –
          95 % to     0.001  0.506  1.002  2.025  10.12      –
          × plain     0.500  0.026  0.025  0.040  0.021      –
          95 % from   0.457      –      –      –  0.000      –
          95 % to     0.568      –      –      –  0.033      –
          no ratio interval for p50, p90, p95: too few paired requests
          above 1 s: 2.34 % (2.23 % to 2.45 %)
          extra executions: 0.83 % of the calls to shards
          1234 of 1000000 requests failed
          the run never settled: the load may be too high, or requests_max too low
    "#]]
    .assert_eq(&table);
}

#[test]
fn a_stopped_run_has_no_ratios() {
    let mut report = report();
    let arm = &mut report.arms[0];
    (arm.stopped, arm.settled) = (Some(StopReason::TooManyInFlight { max: 2_000_000 }), false);
    (arm.mean_ns, arm.quantiles_ns, arm.above) = (None, Vec::new(), Vec::new());
    (arm.extra_requests_ratio, arm.extra_work_ratio) = (-0.99, -0.99);
    let table = report.table();
    let row = "idle, plain       –      –      –      –      –      –             –     –\n";
    assert!(table.contains(&format!("{row}  stopped after 100000 requests: more than")), "{table}");
    let json: serde_json::Value = serde_json::from_str(&report.json(2.0)).expect("JSON");
    let plain = &json["arms"][0];
    assert_eq!(plain["stopped"], "too_many_in_flight");
    assert_eq!(plain["settled"], false);
    for key in ["extra_requests_ratio", "extra_work_ratio", "utilization_ratio"] {
        assert_eq!(plain[key], serde_json::Value::Null, "{key}");
    }
}

#[test]
fn intervals_that_say_nothing_are_not_printed() {
    let mut report = report();
    let [plain, tied] = report.arms.as_mut_slice() else { panic!("two arms") };
    let shares =
        [(0.0, (0.0, 1.0)), (0.000_12, (0.0, 1.0)), (0.000_12, (0.0, 0.0024)), (1.0, (1.0, 1.0))];
    plain.above = shares
        .map(|(value, interval)| {
            (Duration::from_secs(1), Estimate { value, interval: Some(interval) })
        })
        .to_vec();
    let comparison = tied.comparison.as_mut().expect("it has one");
    comparison.quantiles[4].1 = Some(Estimate { value: 0.5, interval: Some((0.0, f64::INFINITY)) });
    let table = report.table();
    for line in [
        "  above 1 s: none of 100000 requests\n",
        "  above 1 s: 0.01 % (no interval: in too few parts of the run)\n",
        "  above 1 s: 0.01 % (0.00 % to 0.24 %)\n",
        "  above 1 s: all of 100000 requests\n",
        "  × plain     0.500  0.026  0.025  0.040  0.021  0.500\n",
        "  95 % from   0.457      –      –      –  0.000      –\n",
        "  95 % to     0.568      –      –      –  0.033      –\n",
        "  no ratio interval for p50, p90, p95: too few paired requests\n",
        "  no ratio interval for p99.9: the run does not bound it\n",
    ] {
        assert!(table.contains(line), "{line} is not in:\n{table}");
    }
}

#[test]
fn a_ratio_without_any_interval_has_a_note() {
    let mut report = report();
    let comparison = report.arms[1].comparison.as_mut().expect("it has one");
    let estimates = comparison.quantiles.iter_mut().map(|(_, estimate)| estimate);
    for estimate in estimates.chain([&mut comparison.mean]) {
        *estimate = Some(Estimate { value: 0.5, interval: None });
    }
    let table = report.table();
    let rows = "  × plain     0.500  0.500  0.500  0.500  0.500  0.500\n  no ratio interval for mean, p50, \
                p90, p95, p99, p99.9: too few paired requests\n";
    assert!(table.contains(rows), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

#[test]
fn the_json_has_every_figure_under_its_name() {
    let json: serde_json::Value = serde_json::from_str(&report().json(2.0)).expect("JSON");
    assert_eq!(json["schema"], "curtail.simulate/2");
    assert_eq!(json["seed"], 7);
    assert_eq!(json["events_per_second"], 2e6);
    let [plain, tied] = json["arms"].as_array().expect("a list").as_slice() else {
        panic!("two arms")
    };
    assert_eq!(plain["name"], "idle, plain");
    assert_eq!(plain["p90_ms"], 38.85);
    assert_eq!(plain["p999_ms"], 9_998.7);
    assert_eq!(plain["interval_ms"]["p999"], serde_json::Value::Null, "there is no interval");
    assert_eq!(plain["interval_ms"]["p99"], serde_json::json!([301.2, null]), "no upper end");
    assert_eq!(plain["p95_ms"], 50.0);
    assert_eq!(plain["ratio"], serde_json::Value::Null);
    assert_eq!(tied["ratio"]["against"], "plain");
    assert_eq!(tied["ratio"]["value"]["p50"], 0.0263);
    assert_eq!(
        tied["ratio"]["interval"],
        serde_json::json!({"mean": [0.4567, 0.5678], "p99": [0.0, 0.0334]})
    );
    assert_eq!(plain["interval_ms"]["mean"][0].as_f64().map(f64::round), Some(23.0));
    assert_eq!(plain["above"][0]["threshold_ms"], 1_000.0);
    assert_eq!(plain["above"][0]["ratio"], 0.0234);
    assert_eq!(tied["p999_ms"], serde_json::Value::Null, "it lies among the failures");
    assert_eq!(tied["extra_work_ratio"], 0.0083);
    assert_eq!(tied["errors"], 1_234);
    assert_eq!(tied["log"], "0000000000001234");
}
