//! A confidence sequence for a probability: an interval that may be looked at after every observation.
//!
//! **How.** Of `n` observations, `k` were successes. The likelihood of the true probability is compared with the mean
//! likelihood over all probabilities, weighted by a Beta(½, ½) distribution (Jeffreys' prior):
//!
//! ```text
//! M(θ) = B(k + ½, n − k + ½) / B(½, ½) / (θ^k · (1 − θ)^(n − k))
//! ```
//!
//! For the true θ, `M` is a martingale with mean 1, so the probability that it ever reaches 1 / level is at most `level`
//! (Ville's inequality). The interval contains every θ with `M(θ)` below 1 / level. It is exact for any number of
//! observations: no normal approximation.
//! **Source**: Robbins, "Statistical methods related to the law of the iterated logarithm", Annals of Mathematical
//! Statistics 41(5), 1970. Howard, Ramdas, `McAuliffe` and Sekhon, Annals of Statistics 49(2), 2021, section 3.2, for
//! mixtures in general.

/// The parameter of both sides of the weights.
const PRIOR: f64 = 0.5;

/// The interval of a probability after this many successes and failures. The probability that any of these intervals, at
/// any look, misses the true probability is at most `level`.
#[must_use]
pub fn interval(successes: u64, failures: u64, level: f64) -> (f64, f64) {
    let (k, m) = (successes as f64, failures as f64);
    if successes + failures == 0 {
        return (0.0, 1.0);
    }
    let mode = k / (k + m);
    let is_within = |probability: f64| ln_martingale((k, m), probability) < -libm::log(level);
    // The martingale is smallest at the mode, and rises on both sides.
    let end = |mut outside: f64| {
        let mut inside = mode;
        for _ in 0..60 {
            let middle = f64::midpoint(inside, outside);
            *(if is_within(middle) { &mut inside } else { &mut outside }) = middle;
        }
        outside
    };
    let low = if successes == 0 { 0.0 } else { end(0.0) };
    let high = if failures == 0 { 1.0 } else { end(1.0) };
    (low, high)
}

/// The logarithm of the martingale at this probability, after `k` successes and `m` failures.
fn ln_martingale((k, m): (f64, f64), probability: f64) -> f64 {
    // 0 · ln 0 is 0 here: no success has probability 1 if the probability is 0.
    let times_ln = |count: f64, of: f64| if count > 0.0 { count * libm::log(of) } else { 0.0 };
    ln_beta(k + PRIOR, m + PRIOR)
        - ln_beta(PRIOR, PRIOR)
        - times_ln(k, probability)
        - times_ln(m, 1.0 - probability)
}

fn ln_beta(a: f64, b: f64) -> f64 {
    libm::lgamma(a) + libm::lgamma(b) - libm::lgamma(a + b)
}

#[cfg(test)]
mod tests {
    use super::{interval, ln_martingale};
    use curtail_units::Rng;

    /// The mean of the martingale over all outcomes of `n` observations is 1, whatever the probability.
    #[test]
    fn the_martingale_has_mean_one() {
        for n in [1_u32, 7, 40] {
            for probability in [0.03_f64, 0.5, 0.9] {
                let mut binomial = (1.0 - probability).powi(n as i32);
                let mut mean = 0.0;
                for k in 0..=n {
                    let counts = (f64::from(k), f64::from(n - k));
                    mean += binomial * ln_martingale(counts, probability).exp();
                    binomial *= f64::from(n - k) / f64::from(k + 1);
                    binomial *= probability / (1.0 - probability);
                }
                assert!((mean - 1.0).abs() < 1e-9, "n {n}, probability {probability}: {mean}");
            }
        }
    }

    #[test]
    fn intervals_begin_with_everything_are_symmetric_and_shrink() {
        assert_eq!(interval(0, 0, 0.05), (0.0, 1.0));
        assert_eq!(interval(0, 9, 0.05).0, 0.0);
        assert_eq!(interval(9, 0, 0.05).1, 1.0);
        let (low, high) = interval(30, 70, 0.05);
        let (mirrored_low, mirrored_high) = interval(70, 30, 0.05);
        assert!((low - (1.0 - mirrored_high)).abs() < 1e-9);
        assert!((high - (1.0 - mirrored_low)).abs() < 1e-9);
        let (closer_low, closer_high) = interval(3_000, 7_000, 0.05);
        assert!(low < closer_low && closer_low < 0.3 && 0.3 < closer_high && closer_high < high);
    }

    /// With a look after each observation, the truth is missed in at most 5 % of the runs, and not in far fewer.
    #[test]
    fn the_truth_is_held_at_all_looks() {
        let (seed, runs, level) = (5, 2_000, 0.05);
        for probability in [0.1, 0.5] {
            let mut rng = Rng::new(seed);
            let is_missed = |rng: &mut Rng| {
                let (mut k, mut m) = (0.0, 0.0);
                (0..500).any(|_| {
                    *(if rng.chance(probability) { &mut k } else { &mut m }) += 1.0;
                    ln_martingale((k, m), probability) >= -f64::ln(level)
                })
            };
            let missed = (0..runs).filter(|_| is_missed(&mut rng)).count();
            // Four standard errors above 5 % of 2,000 runs is 139.
            assert!((20..=139).contains(&missed), "seed {seed}: {missed} of {runs}");
        }
    }
}
