use super::{Fit, Known};
use crate::lab::Lab;
use curtail_units::Rng;

#[test]
fn a_fit_recovers_what_was_planted() {
    let lab = Lab {
        seed: 1,
        requests: 30_000,
        per_second: 400.0,
        replicas: 3,
        places: 4,
        work_ms: |rng: &mut Rng| 20.0 * (0.4 * rng.normal()).exp(),
        periods: Lab::periods((1, 3), 2.0, 80, f64::INFINITY, 74.0),
    };
    let fit = Fit::new(&lab.record(), Known::default()).expect("enough requests");
    assert_eq!((fit.replicas, fit.concurrency), (3, Some(4)));
    // 20 ms × exp(0.4² / 2).
    let mean = fit.mean_work().as_ms_f64();
    assert!((mean / 21.67 - 1.0).abs() < 0.05, "{mean}");
    let utilization = fit.utilization().expect("the concurrency is known");
    assert!((utilization / 0.75 - 1.0).abs() < 0.06, "{utilization}");
    assert!(!fit.intrinsic.is_known());
}
