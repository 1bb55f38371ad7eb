//! Common tests that take requests as independent. The calibration measures their false alarms; no verdict uses them.
//!
//! **Bootstrap of all requests**: the quantile of a resample of `n` requests lies at a share that is distributed as
//! Beta(k, n + 1 − k), where `k` is the rank of the quantile. One draw of that share is therefore one resample.
//! **Mann–Whitney** (Wilcoxon's rank sum) on all requests, with the correction for ties: the requests of a bucket are
//! tied.
//! **Source**: Efron & Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13; Mann & Whitney, "On a test of
//! whether one of two random variables is stochastically larger than the other" (1947); Marsaglia & Tsang, "A simple
//! method for generating gamma variables" (2000).

use crate::compare::arm::Arm;
use crate::compare::student::two_sided_normal;
use curtail_sketch::rank;
use curtail_units::{Quantile, RankSum, Rng};

const RESAMPLES: usize = 999;

/// Whether the bootstrap's interval of the ratio excludes 1.
pub(super) fn bootstrap_differs(
    (a, b): (&Arm<'_>, &Arm<'_>),
    quantile: Quantile,
    level: f64,
    rng: &mut Rng,
) -> bool {
    let mut longer = 0_usize;
    let mut shorter = 0_usize;
    for _ in 0..RESAMPLES {
        let (a, b) = (resampled(a, quantile, rng), resampled(b, quantile, rng));
        longer += usize::from(b > a);
        shorter += usize::from(b < a);
    }
    let most = (1.0 - level / 2.0) * RESAMPLES as f64;
    longer as f64 > most || shorter as f64 > most
}

/// The quantile of one resample, in nanoseconds; infinite when it is a failed request.
fn resampled(arm: &Arm<'_>, quantile: Quantile, rng: &mut Rng) -> f64 {
    let count = arm.requests();
    let rank = rank(quantile, count);
    let (below, above) = (gamma(rng, rank as f64), gamma(rng, (count + 1 - rank) as f64));
    arm.latency_at(above / (below + above))
}

/// Draws a gamma-distributed number with `shape`, which is at least 1.
fn gamma(rng: &mut Rng, shape: f64) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let z = rng.normal();
        let v = (1.0 + c * z).powi(3);
        if v > 0.0 && -rng.exponential() < z * z / 2.0 + d - d * v + d * libm::log(v) {
            return d * v;
        }
    }
}

/// The two-sided p-value of the hypothesis that neither arm tends to be longer, if all requests were independent.
pub(super) fn mann_whitney((a, b): (&Arm<'_>, &Arm<'_>)) -> f64 {
    let mut counts: Vec<(u64, f64, f64)> = Vec::new();
    for bucket in a.responses.buckets() {
        counts.push((bucket.lower.as_ns(), bucket.count as f64, 0.0));
    }
    for bucket in b.responses.buckets() {
        counts.push((bucket.lower.as_ns(), 0.0, bucket.count as f64));
    }
    counts.push((u64::MAX, a.failed as f64, b.failed as f64));
    counts.sort_unstable_by_key(|(lower, ..)| *lower);
    let ranks = RankSum::of(counts.chunk_by(|x, y| x.0 == y.0).map(|equals| {
        [equals.iter().map(|(.., b)| b).sum(), equals.iter().map(|(_, a, _)| a).sum()]
    }));
    if ranks.variance > 0.0 {
        two_sided_normal((ranks.u - ranks.mean()) / ranks.variance.sqrt())
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Arm, bootstrap_differs, gamma, mann_whitney};
    use crate::{Failure, Latencies, LatencyKind};
    use curtail_units::{Duration, Quantile, Rng};

    fn mann_whitney_of(a: Latencies, b: Latencies) -> f64 {
        let blocks = ([a], [b]);
        let arm = |blocks| Arm::new(blocks, LatencyKind::Response);
        mann_whitney((&arm(&blocks.0), &arm(&blocks.1)))
    }

    fn arm(ms: &[u64]) -> Latencies {
        let mut arm = Latencies::new();
        for ms in ms {
            arm.response.record(Duration::from_ms(*ms));
        }
        arm
    }

    #[test]
    fn mann_whitney_is_what_paper_and_pencil_give() {
        // U = 5 of 25, where 12.5 is the middle, with two pairs of equals.
        let (a, b) = (arm(&[10, 20, 30, 40, 50]), arm(&[5, 10, 15, 20, 25]));
        let z: f64 = (5.0 - 12.5) / (25.0 / 12.0 * (11.0 - 12.0 / 90.0_f64)).sqrt();
        let expected = libm::erfc(-z / core::f64::consts::SQRT_2);
        let got = mann_whitney_of(a, b);
        assert!((got - expected).abs() < 1e-12, "{got} and {expected}");
        assert_eq!(mann_whitney_of(arm(&[]), arm(&[])), 1.0);
    }

    #[test]
    fn a_failure_is_longer_than_every_response() {
        let (mut a, mut b) = (arm(&[1; 50]), arm(&[1; 50]));
        a.failures.add_n(Failure::Timeout, 1);
        b.failures.add_n(Failure::Timeout, 40);
        assert!(mann_whitney_of(a, b) < 1e-4);
    }

    #[test]
    fn gamma_has_its_mean_and_variance() {
        let mut rng = Rng::new(5);
        for shape in [1.0, 3.5, 900.0] {
            let n = 40_000;
            let drawn: Vec<f64> = (0..n).map(|_| gamma(&mut rng, shape)).collect();
            let mean = drawn.iter().sum::<f64>() / f64::from(n);
            let variance = drawn.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / f64::from(n);
            assert!((mean / shape - 1.0).abs() < 5.0 / (f64::from(n) * shape).sqrt(), "{mean}");
            assert!((variance / shape - 1.0).abs() < 0.08, "{shape}: {variance}");
        }
    }

    /// The bootstrap is right when requests really are independent.
    #[test]
    fn of_independent_requests_the_bootstrap_errs_as_often_as_it_says() {
        let mut rng = Rng::new(6);
        let mut alarms = 0;
        for _ in 0..400 {
            let [a, b] = [(), ()].map(|()| {
                let mut arm = Latencies::new();
                for _ in 0..2_000 {
                    arm.response.record(Duration::from_ms(5).mul_f64(rng.exponential()));
                }
                [arm]
            });
            let (a, b) = (Arm::new(&a, LatencyKind::Response), Arm::new(&b, LatencyKind::Response));
            let p90 = Quantile::new(0.9).expect("a quantile");
            alarms += u32::from(bootstrap_differs((&a, &b), p90, 0.05, &mut rng));
        }
        // 20 are expected, with a standard deviation of 4.4.
        assert!((5..=37).contains(&alarms), "{alarms} of 400");
    }
}
