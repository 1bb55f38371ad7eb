//! The scenarios against the figures of the papers that they are made after, in runs of modest length.
//!
//! What each was calibrated on is said in the scenario itself; the tests look at both sides, what was
//! calibrated and what follows from it. Lengths are set so that the figures lie well inside their bounds.

use curtail_sim::{ArmReport, Report, Scenario, run};
use curtail_units::Quantile;

const SEED: u64 = 1;

/// Simulates one of the scenarios, with some keys set.
fn simulate(file: &str, sets: &[&str]) -> Report {
    let path = format!("{}/../../scenarios/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the scenario is part of the repository");
    let sets: Vec<String> = sets.iter().map(|&set| set.to_owned()).collect();
    let scenario = Scenario::read(file, &text, &sets).expect("it has no mistakes");
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
    let report = simulate("fan-out.yaml", &["requests_max=20000"]);
    let above = |variant: &str| arm(&report, variant, "plain").above[0].1.value;
    for (variant, leaves, slow) in
        [("1 leaf, 1 in 100", 1, 0.01), ("100 leaves, 1 in 100", 100, 0.01)]
    {
        let expected = 1.0 - f64::powi(1.0 - slow, leaves);
        let got = above(variant);
        assert!((got - expected).abs() < 0.01, "{variant}: {got}, expected {expected}");
    }
}

#[test]
fn one_in_ten_thousand_is_one_in_five_for_two_thousand_leaves() {
    let only = "variants.2000 leaves, 1 in 10000.fan_out=2000";
    let report = simulate("fan-out.yaml", &["requests_max=8000", only]);
    let got = arm(&report, "2000 leaves, 1 in 10000", "plain").above[0].1.value;
    let expected = 1.0 - f64::powi(0.9999, 2_000);
    assert!((got - expected).abs() < 0.01, "{got}, expected {expected}");
}
