use super::{Distribution, Part, Point};
use curtail_units::{Duration, Rng};

const fn ms(n: u64) -> Duration {
    Duration::from_ms(n)
}

/// Every shape, with its median in milliseconds where that has a closed form of its own.
fn shapes() -> Vec<(Distribution, f64)> {
    let ln2 = std::f64::consts::LN_2;
    let exponential = |n| Distribution::Exponential { mean: ms(n) };
    vec![
        (Distribution::Constant { value: ms(3) }, 3.0),
        (Distribution::Uniform { low: ms(2), high: ms(6) }, 4.0),
        (exponential(10), 10.0 * ln2),
        (Distribution::Normal { mean: ms(10), deviation: ms(10) }, 10.0),
        (Distribution::Lognormal { median: ms(5), sigma: 0.8 }, 5.0),
        (
            Distribution::Pareto { shortest: ms(1), shape: 3.0, longest: None },
            2_f64.powf(1.0 / 3.0),
        ),
        // Half of the tail from 1 to 1/16 lies above 17/32.
        (
            Distribution::Pareto { shortest: ms(1), shape: 2.0, longest: Some(ms(4)) },
            (32.0_f64 / 17.0).sqrt(),
        ),
        (Distribution::Pareto { shortest: ms(1), shape: 1.0, longest: Some(ms(16)) }, 32.0 / 17.0),
        (
            Distribution::Sum(vec![Distribution::Constant { value: ms(7) }, exponential(10)]),
            7.0 + 10.0 * ln2,
        ),
        (Distribution::Samples(vec![ms(1), ms(2), ms(9)]), 2.0),
        (
            Distribution::Quantiles(vec![
                Point { quantile: 0.0, value: ms(1) },
                Point { quantile: 0.4, value: ms(2) },
                Point { quantile: 0.6, value: ms(4) },
                Point { quantile: 1.0, value: ms(100) },
            ]),
            3.0,
        ),
        (
            Distribution::Mixture(vec![
                Part { weight: 3.0, distribution: Distribution::Constant { value: ms(2) } },
                Part { weight: 1.0, distribution: Distribution::Constant { value: ms(30) } },
            ]),
            2.0,
        ),
    ]
}

#[test]
fn draws_have_the_mean_and_the_median_that_the_shape_promises() {
    const DRAWS: usize = 400_000;
    let seed = 21;
    for (distribution, median_ms) in shapes() {
        let mut rng = Rng::new(seed);
        let mut draws: Vec<f64> =
            (0..DRAWS).map(|_| distribution.draw_ns(&mut rng) / 1e6).collect();
        let mean = draws.iter().sum::<f64>() / DRAWS as f64;
        let square = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / DRAWS as f64;
        let error = (square / DRAWS as f64).sqrt();
        let expected = distribution.mean_ns() / 1e6;
        assert!(
            (mean - expected).abs() <= 4.0 * error + 1e-9,
            "seed {seed}, {distribution:?}: mean {mean}, expected {expected} ± {error}"
        );
        draws.sort_unstable_by(f64::total_cmp);
        // The median lies between these two ranks but for one case in 15,000.
        let margin = 2 * DRAWS.isqrt();
        let (low, high) = (draws[DRAWS / 2 - margin], draws[DRAWS / 2 + margin]);
        assert!(
            (low - 1e-9..=high + 1e-9).contains(&median_ms),
            "seed {seed}, {distribution:?}: median from {low} to {high}, expected {median_ms}"
        );
    }
}

#[test]
fn a_tail_that_is_cut_off_is_never_exceeded() {
    let longest = ms(4);
    let cut = Distribution::Pareto { shortest: ms(1), shape: 1.1, longest: Some(longest) };
    let mut rng = Rng::new(4);
    let draws: Vec<Duration> = (0..100_000).map(|_| cut.draw(&mut rng)).collect();
    assert!(draws.iter().all(|draw| (ms(1)..=longest).contains(draw)));
    assert!(draws.iter().any(|draw| *draw > longest.mul_f64(0.99)));
}

#[test]
fn the_rest_of_a_duration_met_at_random_has_the_mean_of_renewal_theory() {
    const DRAWS: usize = 20_000;
    let seed = 8;
    let uniform = Distribution::Uniform { low: ms(2), high: ms(6) };
    // Half of E[X²] / E[X].
    for (distribution, expected_ms) in [
        (Distribution::Constant { value: ms(10) }, 5.0),
        (Distribution::Exponential { mean: ms(10) }, 10.0),
        (uniform, (4.0 + 16.0 / 12.0 / 4.0) / 2.0),
        (Distribution::hyperexponential(&[(0.9, ms(1)), (0.1, ms(11))]), 6.5),
    ] {
        let mut rng = Rng::new(seed);
        let rests: Vec<f64> =
            (0..DRAWS).map(|_| distribution.draw_rest(&mut rng).as_ms_f64()).collect();
        let mean = rests.iter().sum::<f64>() / DRAWS as f64;
        // Five standard errors of the widest; a choice among 64 is biased by less.
        assert!(
            (mean / expected_ms - 1.0).abs() < 0.05,
            "seed {seed}, {distribution:?}: {mean}, expected {expected_ms}"
        );
    }
}

#[test]
fn a_tail_without_a_mean_says_so() {
    let heavy = Distribution::Pareto { shortest: ms(1), shape: 1.0, longest: None };
    assert!(heavy.mean_ns().is_infinite());
    let phases = [(0.9, ms(1)), (0.1, ms(11))];
    assert_eq!(Distribution::hyperexponential(&phases).mean_ns(), 2e6);
}
