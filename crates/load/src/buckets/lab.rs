//! The data of Google's `tail_latency_lab`, and the spread of its figures by chance.
//!
//! The notebook draws 100,000 values of 70 × Beta(2, 5) milliseconds for each growth factor, and loses values below 1
//! ms. Here every value counts, and all layouts read the same values.
//! **Source**: GoogleCloudPlatform/opencensus-jetty-demo, `tail_latency_lab.ipynb`, 2019. The order statistic: David &
//! Nagaraja, "Order Statistics", 2003, section 2.3.

use super::Values;
use curtail_units::{Duration, Rng};

/// The number of values.
pub const VALUES: usize = 100_000;

/// The upper end of the distribution of the values.
pub const LONGEST: Duration = Duration::from_ms(70);

/// Draws the values from `rng`.
#[must_use]
pub fn values(rng: &mut Rng) -> Values {
    Values::new((0..VALUES).map(|_| LONGEST.mul_f64(beta_2_5(rng))).collect())
}

/// Draws a number from Beta(2, 5): the second smallest of six uniform numbers has this distribution.
fn beta_2_5(rng: &mut Rng) -> f64 {
    let (mut least, mut second) = (1.0_f64, 1.0_f64);
    for _ in 0..6 {
        let drawn = rng.unit();
        if drawn < least {
            (least, second) = (drawn, least);
        } else {
            second = second.min(drawn);
        }
    }
    second
}

/// The mean and the standard deviation of each of the figures that `figures` computes, over `repeats` samples, which
/// are drawn from `rng`; `repeats` is at least 2.
#[must_use]
pub fn spread(rng: &Rng, repeats: u32, figures: impl Fn(&Values) -> Vec<f64>) -> Vec<(f64, f64)> {
    let samples: Vec<Vec<f64>> =
        (0..repeats).map(|nth| figures(&values(&mut rng.split_index(nth.into())))).collect();
    let width = samples.first().map_or(0, Vec::len);
    let of = |place: usize| {
        let mean = samples.iter().map(|sample| sample[place]).sum::<f64>() / f64::from(repeats);
        let squares = samples.iter().map(|sample| (sample[place] - mean).powi(2)).sum::<f64>();
        (mean, (squares / f64::from(repeats - 1)).sqrt())
    };
    (0..width).map(of).collect()
}
