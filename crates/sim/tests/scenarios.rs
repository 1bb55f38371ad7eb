//! The scenarios against the figures of the papers that they are made after, in runs of modest length.
//!
//! Each scenario names the figures that it was calibrated on; the tests check these figures and the figures that
//! follow from them. Lengths are set so that the figures lie well inside their bounds.

use curtail_sim::{ArmReport, Described, Report, Scenario, run};
use curtail_units::Quantile;

const SEED: u64 = 1;

/// Simulates one of the scenarios with at most `requests_max` requests; of its models those in `variants`.
fn simulate(file: &str, requests_max: u64, variants: &[&str]) -> Report {
    let path = format!("{}/../../scenarios/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the scenario is part of the repository");
    let mut scenario = Scenario::read(file, &text, &[]).expect("it has no errors");
    let stop = &mut scenario.stop;
    (stop.requests_min, stop.requests_max) = (stop.requests_min.min(requests_max), requests_max);
    scenario.variants.retain(|variant| variants.contains(&variant.name.as_str()));
    assert_eq!(scenario.variants.len(), variants.len(), "{file} has other variants");
    let report = run(&scenario, SEED, |_| {});
    println!("{file}, seed {SEED}\n{}", report.table());
    report
}

fn arm<'r>(report: &'r Report, variant: &str, arm: &str) -> &'r ArmReport {
    report.arm(variant, arm).expect("the scenario has it")
}

fn ms(report: &ArmReport, quantile: Quantile) -> f64 {
    report.quantile_ns(quantile).expect("it is not among the failures").value / 1e6
}

/// Asserts that `got` is within `margin` of `expected`, as a share of it.
fn assert_near(what: &str, got: f64, expected: f64, margin: f64) {
    assert!((got / expected - 1.0).abs() <= margin, "{what}: {got}, expected {expected}");
}

#[test]
fn a_rare_hiccup_of_one_leaf_is_the_rule_for_a_fan_out() {
    for (variant, requests, leaves, slow) in [
        ("1 leaf, 1 in 100", 100_000, 1, 0.01),
        ("100 leaves, 1 in 100", 20_000, 100, 0.01),
        ("2000 leaves, 1 in 10000", 6_000, 2_000, 0.000_1),
    ] {
        let report = simulate("fan-out.yaml", requests, &[variant]);
        let got = arm(&report, variant, "plain").above[0].1.value;
        let expected = 1.0 - f64::powi(1.0 - slow, leaves);
        assert!((got - expected).abs() < 0.01, "{variant}: {got}, expected {expected}");
    }
}

#[test]
fn a_hedge_cuts_the_read_of_a_thousand_keys() {
    let report = simulate("bigtable-hedge.yaml", 12_000, &[""]);
    let (plain, hedged) = (arm(&report, "", "plain"), arm(&report, "", "hedge after 10 ms"));
    // Ten reads or so lie beyond this quantile, and the tail falls with an exponent of 1.9.
    assert_near("plain p99.9", ms(plain, Quantile::P999), 1_800.0, 0.35);
    let p999 = ms(hedged, Quantile::P999);
    assert!(p999 <= 74.0, "hedged p99.9: {p999} ms");
    let extra = hedged.extra_requests_ratio;
    assert!(extra > 0.0 && extra <= 0.02, "{extra} more requests");
    assert_eq!((plain.errors, hedged.errors), (0, 0));
}

#[test]
fn when_replicas_stall_p99_falls_and_lower_percentiles_stay_within_2_percent() {
    let report = simulate("stalls.yaml", 1_000_000, &[""]);
    let plain = arm(&report, "", "plain");
    for name in ["default", "hedge", "retry"] {
        let remedied = arm(&report, "", name);
        for (quantile, ratio_max) in [
            (Quantile::P50, 1.01),
            (Quantile::P95, 1.02),
            (Quantile::P99, 1.0),
            (Quantile::P999, if name == "retry" { 0.4 } else { 0.2 }),
        ] {
            let ratio = ms(remedied, quantile) / ms(plain, quantile);
            assert!(ratio <= ratio_max, "{name}, {quantile}: {ratio} times plain");
        }
    }
}

#[test]
fn shards_with_a_shared_budget_hedge_more_than_each_could_alone() {
    let report = simulate("shared-budget.yaml", 4_000, &[""]);
    let above_100_ms = |name: &str| arm(&report, "", name).above[0].1.value;
    let (alone, group) = (above_100_ms("alone"), above_100_ms("group"));
    assert!(group < 0.002, "{group} of the reads of a group, {alone} of shards alone");
    assert!(alone > 10.0 * group, "{group} of the reads of a group, {alone} of shards alone");
    assert!(above_100_ms("group, due at 0.98") > group, "ordinary requests spend the budget");
    let extra = arm(&report, "", "group").extra_requests_ratio;
    assert!(extra > 0.0 && extra <= 0.02, "{extra} more requests");
}

#[test]
fn a_tie_cuts_the_waiting_in_the_queue_of_a_disk() {
    let report = simulate("tied-read.yaml", 400_000, &["idle", "sorting"]);
    for (variant, plain_ms, cut_p50, cut_p999) in [
        ("idle", [19.0, 38.0, 67.0, 98.0], 0.16, 0.38),
        ("sorting", [24.0, 56.0, 108.0, 159.0], 0.21, 0.32),
    ] {
        let (plain, tied) = (arm(&report, variant, "plain"), arm(&report, variant, "tied"));
        let quantiles = [Quantile::P50, Quantile::P90, Quantile::P99, Quantile::P999];
        for (quantile, expected) in quantiles.into_iter().zip(plain_ms) {
            let what = format!("{variant}, plain, {quantile}");
            assert_near(&what, ms(plain, quantile), expected, 0.06);
        }
        let cut = |quantile| 1.0 - ms(tied, quantile) / ms(plain, quantile);
        let cuts = (cut(Quantile::P50), cut(Quantile::P999));
        assert!(cuts.0 >= cut_p50 && cuts.1 >= cut_p999, "{variant}: cut by {cuts:?}");
        assert!(tied.extra_work_ratio < 0.01, "{variant}: {} more work", tied.extra_work_ratio);
    }
}

#[test]
fn prequal_keeps_the_tail_where_others_lose_it() {
    let report = simulate("prequal.yaml", 250_000, &["90 %", "127 %"]);
    let p99 = |name: &str| ms(arm(&report, "90 %", name), Quantile::P99);
    let (prequal, as_in_paper) = (p99("prequal"), p99("prequal, hot at 0.84"));
    let (least, ewma) = (p99("least_request"), p99("peak_ewma"));
    assert_near("two random choices, p99", least, 1_918.0, 0.15);
    assert!(prequal <= 0.2 * least, "{prequal} ms, two random choices {least} ms");
    assert!(
        prequal <= ewma && as_in_paper <= ewma,
        "{prequal} and {as_in_paper} ms, peak EWMA {ewma} ms"
    );
    for name in ["prequal", "prequal, hot at 0.84"] {
        assert_eq!(arm(&report, "127 %", name).errors, 0, "{name} at 127 %");
    }
    assert!(arm(&report, "127 %", "least_request").errors > 0, "a load that others fail at");
}

#[test]
fn shards_that_can_only_double_leave_servers_idle() {
    let path = format!("{}/../../scenarios/power-of-two.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the scenario is part of the repository");
    let described = Described::read("power-of-two.yaml", &text, &[]).expect("it has no errors");
    let Described::Sharding(sharding) = described else { panic!("it is a sharding") };
    let report = sharding.run(SEED);
    println!("seed {SEED}\n{}", report.table());
    let p99 = |servers, rule| {
        let placed = report.placed(servers, rule).expect("the scenario has it");
        placed.p99_ns.expect("there are enough requests").value / 1e6
    };
    let imbalance = |servers, rule| {
        report.placed(servers, rule).expect("the scenario has it").placement.imbalance()
    };
    // From 8 servers to 12 next to nothing is gained, from 8 to 16 half.
    assert_near("doubled, 12 servers", imbalance(12, "doubled"), 1.5, 1e-12);
    assert_near("doubled, 12 servers", p99(12, "doubled"), p99(8, "doubled"), 0.05);
    assert_near("doubled, 16 servers", p99(16, "doubled"), p99(8, "doubled") / 2.0, 0.05);
    assert_near("one each, 12 servers", p99(12, "one each"), p99(8, "doubled") / 1.5, 0.05);
    let many = "640 micro-partitions";
    for servers in 8..=32 {
        assert!(imbalance(servers, many) < 1.05, "{servers} servers: {}", imbalance(servers, many));
        assert_near("micro-partitions", p99(servers, many), p99(servers, "one each"), 0.01);
    }
}
