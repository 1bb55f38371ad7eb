use super::{ArrivalProcess, Arrivals, Bursts, Rate, RateChange, RateCurve, Spacing};
use crate::distribution::Distribution;
use curtail_units::{Duration, Instant, Rng};

const SEED: u64 = 4;

const fn ms(n: u64) -> Duration {
    Duration::from_ms(n)
}

fn process(arrivals: &Arrivals, seed: u64) -> ArrivalProcess {
    let Rate::PerSecond(rate) = arrivals.rate else { panic!("the tests state rates") };
    ArrivalProcess::new(arrivals, rate, &Rng::new(seed))
}

fn curve(changes: &[(u64, f64)], repeats_every: Option<Duration>) -> RateCurve {
    let change = |&(at, factor): &(u64, f64)| RateChange { at: ms(at), factor };
    RateCurve { changes: changes.iter().map(change).collect(), repeats_every }
}

fn steady(spacing: Spacing, rate: f64) -> Arrivals {
    Arrivals::steady(spacing, Rate::PerSecond(rate))
}

/// The number of arrivals in each of `count` windows of equal length.
fn counts(process: &mut ArrivalProcess, window: Duration, count: usize) -> Vec<f64> {
    let mut counts = vec![0.0; count];
    loop {
        let at = process.next_arrival().since(Instant::ZERO);
        let nth = usize::try_from(at.as_ns() / window.as_ns()).expect("a 64-bit machine");
        match counts.get_mut(nth) {
            Some(count) => *count += 1.0,
            None => return counts,
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of independent values, and four of its standard errors.
fn mean_and_margin(values: &[f64]) -> (f64, f64) {
    let mean = mean(values);
    let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    let count = values.len() as f64;
    (mean, 4.0 * (square / (count - 1.0) / count).sqrt())
}

#[test]
fn a_steady_rate_has_the_gaps_of_its_spacing() {
    for spacing in [Spacing::Poisson, Spacing::Even] {
        let mut process = process(&steady(spacing, 300.0), SEED);
        let (mut rng, mut at) = (Rng::new(SEED).split("arrivals"), Instant::ZERO);
        for _ in 0..1_000 {
            at = at + spacing.gap(1e9 / 300.0, &mut rng);
            assert_eq!(process.next_arrival(), at);
        }
    }
}

#[test]
fn counts_of_bursts_have_the_dispersion_of_a_markov_modulated_poisson_process() {
    // In seconds: the rate is 100 for 300 ms, then 500 for 100 ms, on average; overall 200.
    let bursts = Bursts {
        every: Distribution::Exponential { mean: ms(300) },
        lasts: Distribution::Exponential { mean: ms(100) },
        rate_factor: 5.0,
    };
    let arrivals = Arrivals { bursts: Some(bursts), ..steady(Spacing::Poisson, 200.0) };
    let ([low, high], [up, down]) = ([100.0_f64, 500.0], [1.0 / 0.3, 1.0 / 0.1]);
    let switches: f64 = up + down;
    // Heffes & Lucantoni, "A Markov modulated characterization of packetized voice and data traffic", 1986.
    let limit =
        2.0 * up * down * (low - high).powi(2) / (switches.powi(2) * (low * down + high * up));
    for (window, windows) in [(ms(20), 20_000), (ms(200), 5_000), (ms(2_000), 1_000)] {
        let time = switches * window.as_secs_f64();
        let expected = 1.0 + limit * (1.0 - (1.0 - (-time).exp()) / time);
        let of_seed = |seed| {
            let counts = counts(&mut process(&arrivals, seed), window, windows);
            let mean = mean(&counts);
            let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>();
            (variance / windows as f64 / mean, mean / window.as_secs_f64())
        };
        let (dispersions, rates): (Vec<f64>, Vec<f64>) = (1..=40).map(of_seed).unzip();
        let (dispersion, margin) = mean_and_margin(&dispersions);
        println!("{window}: {dispersion:.3} ± {margin:.3}, expected {expected:.3}");
        // The variance of finitely many windows is a little too small.
        assert!(margin < 0.06 * expected, "{window}: ± {margin} says little");
        assert!((dispersion - expected).abs() < margin, "{window}: {dispersion}, not {expected}");
        let (rate, margin) = mean_and_margin(&rates);
        assert!((rate - 200.0).abs() < margin && margin < 5.0, "{rate} ± {margin} a second");
    }
}

#[test]
fn bursts_are_as_frequent_at_the_start_as_later() {
    for (every, lasts) in [
        (
            Distribution::Exponential { mean: ms(90_000) },
            Distribution::Constant { value: ms(10_000) },
        ),
        (
            Distribution::Constant { value: ms(90_000) },
            Distribution::Exponential { mean: ms(10_000) },
        ),
    ] {
        let bursts = Some(Bursts { every, lasts, rate_factor: 11.0 });
        let arrivals = Arrivals { bursts, ..steady(Spacing::Poisson, 100.0) };
        let first_second = |seed| counts(&mut process(&arrivals, seed), ms(1_000), 1)[0];
        let firsts: Vec<f64> = (0..4_000).map(first_second).collect();
        let (rate, margin) = mean_and_margin(&firsts);
        assert!((rate - 100.0).abs() < margin && margin < 12.0, "{rate} ± {margin}");
    }
}

#[test]
fn each_segment_of_a_curve_has_its_rate() {
    // The segments of 10 ms without requests, 10 ms at 100, 30 ms at 2,000 and 50 ms at 51 a second are mostly shorter
    // than a gap.
    let factors = [(0.0, 1), (1.0, 1), (20.0, 3), (0.5123, 5)];
    let repeated = curve(&[(0, 0.0), (10, 1.0), (20, 20.0), (50, 0.5123)], Some(ms(100)));
    assert!((repeated.mean_factor() - 6.35615).abs() < 1e-12);
    for spacing in [Spacing::Poisson, Spacing::Even] {
        let arrivals = Arrivals { curve: repeated.clone(), ..steady(spacing, 100.0) };
        let repetitions = 20_000;
        let counts = counts(&mut process(&arrivals, SEED), ms(10), 10 * repetitions);
        let mut first = 0;
        for (factor, windows) in factors {
            let of_repetition =
                |nth: usize| counts[10 * nth + first..][..windows].iter().sum::<f64>();
            let all: f64 = (0..repetitions).map(of_repetition).sum();
            let expected = factor * windows as f64 * repetitions as f64;
            // Five standard deviations of a Poisson count. Equal distances count exactly, but for a fraction at the ends.
            let margin = match spacing {
                Spacing::Poisson => 5.0 * expected.sqrt(),
                Spacing::Even => 12.0,
            };
            assert!(
                (all - expected).abs() <= margin,
                "{spacing:?}, {factor}: {all}, not {expected}"
            );
            first += windows;
        }
    }
}

#[test]
fn a_change_takes_effect_within_a_gap() {
    // At 10 a second, the third gap is half over after 250 ms, and its rest is at twice the rate.
    let doubled = curve(&[(250, 2.0)], None);
    let arrivals = Arrivals { curve: doubled, ..steady(Spacing::Even, 10.0) };
    let mut even = process(&arrivals, SEED);
    for expected in [100, 200, 275, 325, 375] {
        assert_eq!(even.next_arrival(), Instant::ZERO + ms(expected));
    }
    let from_ten_seconds = curve(&[(0, 0.001), (10_000, 1.0)], None);
    let arrivals = Arrivals { curve: from_ten_seconds, ..steady(Spacing::Poisson, 10.0) };
    // At 0.01 a second, 9.5 % of the runs have an arrival in the first ten seconds. In the others, the first arrival is
    // 100 ms later on average, however long the gap was so far.
    let first = |seed| process(&arrivals, seed).next_arrival().since(Instant::ZERO).as_secs_f64();
    let firsts: Vec<f64> = (0..10_000).map(first).filter(|at| *at > 10.0).collect();
    let share = firsts.len() as f64 / 10_000.0;
    assert!((share - (-0.1_f64).exp()).abs() < 0.012, "{share} without an early arrival");
    let (mean, margin) = mean_and_margin(&firsts);
    assert!((mean - 10.1).abs() < margin && margin < 0.005, "{mean} ± {margin}");
}

#[test]
fn bursts_and_curves_do_not_shift_the_draws_of_arrivals() {
    let plain = steady(Spacing::Poisson, 100.0);
    let curve = curve(&[(0, 2.0)], None);
    let (mut plain, mut doubled) =
        (process(&plain, SEED), process(&Arrivals { curve, ..plain.clone() }, SEED));
    for _ in 0..1_000 {
        let (at, sooner) = (plain.next_arrival(), doubled.next_arrival());
        let half = at.since(Instant::ZERO).as_ns() / 2;
        assert!(half.abs_diff(sooner.since(Instant::ZERO).as_ns()) < 1_000, "{at:?}, {sooner:?}");
    }
}

#[test]
fn a_rate_that_remains_zero_ends_the_arrivals() {
    let curve = curve(&[(1_000, 0.0)], None);
    let arrivals = Arrivals { curve, ..steady(Spacing::Even, 10.0) };
    let mut process = process(&arrivals, SEED);
    let until_end =
        std::iter::from_fn(|| Some(process.next_arrival()).filter(|at| *at < Instant::MAX));
    assert_eq!(until_end.take(100).count(), 9, "the tenth would be at the change");
}
