//! Distributions of durations (service times, message delays, the times between faults) and of factors on durations.
//!
//! Both are [`Amount`]s. Where a type is not stated, a distribution is one of durations.
//! A draw inverts the distribution function where possible: it takes one random number, or two for normal shapes.
//! **Source**: Devroye, "Non-Uniform Random Variate Generation", 1986, chapter II.
//! **Hurts when** a load needs the mean of a Pareto with a shape of 1 or less, which is infinite.

use curtail_units::{Duration, Rng, normal_upper_tail};
use libm::{exp, log, sqrt};

mod amount;
mod read;
#[cfg(test)]
mod tests;

pub use amount::{Amount, FACTOR_MAX};

/// A distribution of durations or of factors.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "a variant explains its fields")]
pub enum Distribution<T = Duration> {
    /// Always the same value.
    Constant { value: T },
    /// All values between two, with equal probability.
    Uniform { low: T, high: T },
    /// Memoryless.
    Exponential { mean: T },
    /// A normal distribution with this mean and standard deviation; a negative draw becomes zero.
    Normal { mean: T, deviation: T },
    /// The logarithm is normal; `sigma` is the standard deviation of the natural logarithm.
    Lognormal { median: T, sigma: f64 },
    /// A power-law tail: a share (shortest / t)^shape is longer than t. The smaller the shape, the heavier the tail.
    /// `longest` cuts off the tail.
    Pareto { shortest: T, shape: f64, longest: Option<T> },
    /// One of several distributions, drawn by weight; a mixture of exponential ones is hyperexponential.
    Mixture(Vec<Part<T>>),
    /// The sum of a draw of each of several distributions.
    Sum(Vec<Self>),
    /// Drawn with equal chance from values that were recorded.
    Samples(Vec<T>),
    /// Given by some quantiles, with straight lines between them.
    Quantiles(Vec<Point<T>>),
}

/// One distribution of a mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct Part<T = Duration> {
    /// The relative frequency of the part.
    pub weight: f64,
    /// The distribution of the part.
    pub distribution: Distribution<T>,
}

/// One known quantile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point<T = Duration> {
    /// The share of draws up to `value`; the first point of a list has 0, the last has 1.
    pub quantile: f64,
    /// The value at this quantile.
    pub value: T,
}

/// The number of draws of which [`Distribution::draw_rest`] chooses one.
const REST_DRAWS: usize = 64;

impl Distribution {
    /// Always zero.
    pub const ZERO: Self = Self::Constant { value: Duration::ZERO };

    /// Draws a duration in nanoseconds, with a fraction.
    pub fn draw_ns(&self, rng: &mut Rng) -> f64 {
        self.draw_f64(rng)
    }

    /// Draws a duration in whole nanoseconds.
    pub fn draw(&self, rng: &mut Rng) -> Duration {
        Duration::from_ns_f64(self.draw_f64(rng))
    }

    /// Draws the rest of a duration from a random instant on, when durations follow each other.
    ///
    /// Long durations contain more instants, so this is no share of an ordinary draw: of an exponential one it is a
    /// fresh draw. Of several draws one is chosen by its length (Rubin's sampling/importance resampling, 1987).
    pub(crate) fn draw_rest(&self, rng: &mut Rng) -> Duration {
        if let Self::Exponential { .. } = self {
            return self.draw(rng);
        }
        if let Self::Mixture(parts) = self
            && self.mean_ns().is_finite()
        {
            let length = |part: &Part| part.weight * part.distribution.mean_ns();
            return parts[draw_weighted(parts, length, rng)].distribution.draw_rest(rng);
        }
        let drawn: [f64; REST_DRAWS] = std::array::from_fn(|_| self.draw_ns(rng));
        let mut left = drawn.iter().sum::<f64>() * rng.unit();
        for length_ns in drawn {
            if left < length_ns {
                // The part before the point is as uniform as the part after it.
                return Duration::from_ns_f64(left);
            }
            left -= length_ns;
        }
        Duration::ZERO
    }

    /// The mean, in nanoseconds; infinite when the tail is too heavy for a mean.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        self.mean_f64()
    }
}

impl Distribution<f64> {
    /// Always 1: a factor without an effect.
    pub const ONE: Self = Self::Constant { value: 1.0 };

    /// Draws a factor.
    pub fn draw_factor(&self, rng: &mut Rng) -> f64 {
        self.draw_f64(rng)
    }

    /// The mean; infinite when the tail is too heavy for a mean.
    #[must_use]
    pub fn mean_factor(&self) -> f64 {
        self.mean_f64()
    }
}

impl<T: Amount> Distribution<T> {
    /// A mixture of exponential distributions, each given by (weight, mean).
    #[must_use]
    pub fn hyperexponential(phases: &[(f64, T)]) -> Self {
        let part =
            |&(weight, mean): &(f64, T)| Part { weight, distribution: Self::Exponential { mean } };
        Self::Mixture(phases.iter().map(part).collect())
    }

    fn draw_f64(&self, rng: &mut Rng) -> f64 {
        match self {
            Self::Constant { value } => value.as_f64(),
            Self::Uniform { low, high } => between(*low, *high, rng.unit()),
            Self::Exponential { mean } => mean.as_f64() * rng.exponential(),
            Self::Normal { mean, deviation } => {
                (mean.as_f64() + deviation.as_f64() * rng.normal()).max(0.0)
            }
            Self::Lognormal { median, sigma } => median.as_f64() * exp(sigma * rng.normal()),
            Self::Pareto { shortest, shape, longest } => {
                let cut = longest.map_or(0.0, |longest| pareto_tail(*shortest, *shape, longest));
                // Uniform over the tails that are allowed: from the cut, exclusive, to 1.
                let tail = 1.0 - (1.0 - cut) * rng.unit();
                shortest.as_f64() * exp(-log(tail) / shape)
            }
            Self::Mixture(parts) => {
                parts[draw_weighted(parts, |part| part.weight, rng)].distribution.draw_f64(rng)
            }
            Self::Sum(terms) => terms.iter().map(|term| term.draw_f64(rng)).sum(),
            Self::Samples(samples) => samples[rng.below(samples.len())].as_f64(),
            Self::Quantiles(points) => {
                let quantile = rng.unit();
                let upper = points.partition_point(|point| point.quantile <= quantile);
                let (from, to) = (points[upper - 1], points[upper]);
                let share = (quantile - from.quantile) / (to.quantile - from.quantile);
                between(from.value, to.value, share)
            }
        }
    }

    fn mean_f64(&self) -> f64 {
        match self {
            Self::Constant { value } => value.as_f64(),
            Self::Uniform { low, high } => between(*low, *high, 0.5),
            Self::Exponential { mean } => mean.as_f64(),
            Self::Normal { mean, deviation } => {
                normal_positive_mean(mean.as_f64(), deviation.as_f64())
            }
            Self::Lognormal { median, sigma } => median.as_f64() * exp(sigma * sigma / 2.0),
            Self::Pareto { shortest, shape, longest } => pareto_mean(*shortest, *shape, *longest),
            Self::Mixture(parts) => {
                let total: f64 = parts.iter().map(|part| part.weight).sum();
                parts.iter().map(|part| part.weight / total * part.distribution.mean_f64()).sum()
            }
            Self::Sum(terms) => terms.iter().map(Self::mean_f64).sum(),
            Self::Samples(samples) => {
                samples.iter().map(|sample| sample.as_f64()).sum::<f64>() / samples.len() as f64
            }
            Self::Quantiles(points) => points
                .windows(2)
                .map(|pair| {
                    (pair[1].quantile - pair[0].quantile)
                        * between(pair[0].value, pair[1].value, 0.5)
                })
                .sum(),
        }
    }
}

fn between<T: Amount>(low: T, high: T, share: f64) -> f64 {
    low.as_f64() + (high.as_f64() - low.as_f64()) * share
}

/// Draws the index of one of `parts`, each with the probability of its weight divided by the sum of all weights.
///
/// # Panics
/// Without parts.
pub fn draw_weighted<P>(parts: &[P], weight: impl Fn(&P) -> f64, rng: &mut Rng) -> usize {
    let total: f64 = parts.iter().map(&weight).sum();
    let mut left = total * rng.unit();
    for (nth, part) in parts.iter().enumerate() {
        let weight = weight(part);
        if left < weight {
            return nth;
        }
        left -= weight;
    }
    // Only rounding leads here: the sum of the weights was a hair more than their differences.
    parts.len() - 1
}

/// The share of a Pareto distribution that is longer than `value`.
fn pareto_tail<T: Amount>(shortest: T, shape: f64, value: T) -> f64 {
    exp(shape * log(shortest.as_f64() / value.as_f64()))
}

fn pareto_mean<T: Amount>(shortest: T, shape: f64, longest: Option<T>) -> f64 {
    let low = shortest.as_f64();
    let Some(longest) = longest else {
        return if shape > 1.0 { low * shape / (shape - 1.0) } else { f64::INFINITY };
    };
    let ratio = low / longest.as_f64();
    let mass = 1.0 - exp(shape * log(ratio));
    // The integral of t over the density; at a shape of 1 the power becomes a logarithm.
    let integral = if (shape - 1.0).abs() < 1e-9 {
        -log(ratio)
    } else {
        shape / (shape - 1.0) * (1.0 - exp((shape - 1.0) * log(ratio)))
    };
    low * integral / mass
}

/// The mean of max(0, X) for a normal X.
fn normal_positive_mean(mean: f64, deviation: f64) -> f64 {
    if deviation <= 0.0 {
        return mean;
    }
    let z = mean / deviation;
    let density = exp(-z * z / 2.0) / sqrt(2.0 * std::f64::consts::PI);
    mean * normal_upper_tail(-z) + deviation * density
}
