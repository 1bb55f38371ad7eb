use super::{Calibration, Plan, Rate, on_model, on_recorded, planted};
use crate::stalls::Stalls;
use crate::{Latencies, LatencyKind};
use curtail_units::{Quantile, Rng};

const SEED: u64 = 1;

/// What the verdicts are for: see docs/concepts/compare.md.
#[test]
fn false_alarms_are_rare_and_a_shift_of_a_tenth_is_found() {
    let plan = Plan { seed: SEED, ..Plan::default() };
    assert_eq!((plan.comparisons, plan.shift), (200, 1.1));
    let calibration = on_model(&Stalls::new(), &plan, |_| {});
    let share = |rate: Rate| rate.ratio().expect("there were comparisons");
    for row in &calibration.rows {
        assert!(row.alarms.of >= 190, "{row:?}");
        assert!(share(row.alarms) <= 0.05, "{row:?}");
        assert!(share(row.alarms_bootstrap) >= 0.4, "{row:?}");
    }
    assert!(share(calibration.any_alarm) <= 0.05, "{:?}", calibration.any_alarm);
    assert!(share(calibration.alarms_mann_whitney) >= 0.4);
    let p99 = calibration.rows.iter().find(|row| row.name == "p99").expect("it is in the list");
    assert!(share(p99.found) >= 0.8, "{p99:?}");
    assert!(p99.design_effect > 5.0, "{p99:?}");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let plan = Plan { comparisons: 3, blocks: 10, seed: 5, ..Plan::default() };
    let mut progress = Vec::new();
    let first = on_model(&Stalls::new(), &plan, |done| progress.push(done));
    assert_eq!(progress, [1, 2, 3]);
    assert_eq!(first, on_model(&Stalls::new(), &plan, |_| {}));
    let other = on_model(&Stalls::new(), &Plan { seed: 6, ..plan }, |_| {});
    let effects = |calibration: &Calibration| {
        calibration.rows.iter().map(|row| row.design_effect).sum::<f64>()
    };
    assert_ne!(effects(&first), effects(&other));
}

#[test]
fn recorded_blocks_of_one_arm_are_compared_with_each_other() {
    let recorded = Stalls::new().blocks(&mut Rng::new(SEED).split("recorded"), 41);
    let plan = Plan { comparisons: 60, ..Plan::default() };
    let calibration = on_recorded(&recorded, LatencyKind::Service, &plan, |_| {});
    assert_eq!(calibration.plan.blocks, 20);
    let alarms: u32 = calibration.rows.iter().map(|row| row.alarms.hits).sum();
    let comparison_count: u32 = calibration.rows.iter().map(|row| row.alarms.of).sum();
    // p99.99 has too few requests.
    assert_eq!(comparison_count, 5 * 60);
    assert!(alarms <= 15, "{alarms} of {comparison_count}");
    assert!(calibration.alarms_mann_whitney.hits > 20, "{calibration:?}");
    let none = on_recorded(&[], LatencyKind::Service, &plan, |_| {});
    assert!(none.rows.iter().all(|row| row.alarms.of == 0 && row.alarms.ratio().is_none()));
}

#[test]
fn a_planted_shift_moves_every_quantile_by_as_much() {
    let blocks = Stalls::new().blocks(&mut Rng::new(SEED), 20);
    let merged = |shift: f64| {
        let mut merged = Latencies::new();
        for block in &blocks {
            merged.merge(&planted(block, LatencyKind::Response, shift));
        }
        merged
    };
    let (plain, shifted) = (merged(1.0), merged(1.1));
    for q in [0.5, 0.9, 0.99, 0.999, 0.9999] {
        let quantile = Quantile::new(q).expect("a quantile");
        let at = |latencies: &Latencies| {
            latencies.quantile(LatencyKind::Response, quantile).expect("no failures").as_ns_f64()
        };
        let ratio = at(&shifted) / at(&plain);
        assert!((ratio - 1.1).abs() < 0.0012, "{q}: {ratio}");
    }
}

#[test]
fn a_rate_has_wilsons_interval() {
    // Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20.
    for (hits, of, low, high) in
        [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)]
    {
        let (got_low, got_high) = Rate { hits, of }.interval().expect("of some");
        assert!(
            (got_low - low).abs() < 5e-5 && (got_high - high).abs() < 5e-5,
            "{got_low} {got_high}"
        );
    }
    assert_eq!(Rate::default().interval(), None);
}
