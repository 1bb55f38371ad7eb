//! Durations to test against: shapes that latencies have, and the extremes of what can be recorded.

use alloc::vec::Vec;
use curtail_units::{Duration, Quantile, Rng};

/// A distribution to draw durations from.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    draw: fn(&mut Rng) -> f64,
}

impl Shape {
    /// `n` durations drawn with a generator for `seed`; the name and the seed are printed, so a failed
    /// test says how to draw them again.
    pub(crate) fn sample(&self, seed: u64, n: usize) -> Vec<Duration> {
        std::println!("{n} values, {}, seed {seed}", self.name);
        let mut rng = Rng::new(seed).split(self.name);
        (0..n).map(|_| Duration::from_ns_f64((self.draw)(&mut rng))).collect()
    }
}

const MS: f64 = 1e6;

/// Shapes that stay below the last bucket.
pub(crate) const SHAPES: &[Shape] = &[
    Shape { name: "constant", draw: |_| 3.7 * MS },
    Shape { name: "exponential", draw: |rng| 10.0 * MS * rng.exponential() },
    Shape { name: "lognormal", draw: |rng| 10.0 * MS * libm::exp(0.8 * rng.normal()) },
    // Pareto with exponent 1.3: a mean, but no variance. Cut at an hour.
    Shape {
        name: "pareto",
        draw: |rng| (2.0 * MS * libm::exp(rng.exponential() / 1.3)).min(3.6e12),
    },
    // The shapes on which power-of-two buckets with interpolation go wrong by tens of percent.
    Shape { name: "narrow", draw: |rng| (10.0 + 0.2 * rng.normal()) * MS },
    Shape {
        name: "timeouts",
        draw: |rng| {
            let ms = if rng.chance(0.005) { 1_000.0 } else { 2.0 };
            ms * (1.0 + 0.05 * rng.normal()) * MS
        },
    },
    Shape {
        name: "bimodal",
        draw: |rng| {
            let ms = if rng.chance(0.012) { 520.0 } else { 3.0 };
            ms * (1.0 + 0.05 * rng.normal()) * MS
        },
    },
    // Every octave alike, from nothing at all to 70 minutes.
    Shape { name: "every octave", draw: |rng| libm::exp2(42.0 * rng.unit()) - 1.0 },
    Shape { name: "a few nanoseconds", draw: |rng| libm::floor(5.0 * rng.unit()) },
];

/// The quantiles that are looked at in practice, and both ends.
pub(crate) fn quantiles() -> impl Iterator<Item = Quantile> {
    [0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 1.0]
        .into_iter()
        .map(|q| Quantile::new(q).expect("in range"))
}

/// The value with rank `ceil(q · n)` in `sorted`, found the plain way.
pub(crate) fn exact_quantile(sorted: &[Duration], quantile: Quantile) -> Duration {
    let rank = crate::rank(quantile, sorted.len() as u64);
    sorted[usize::try_from(rank).expect("an index") - 1]
}

/// How far `got` is from `exact`, as a share of `exact`; an exact zero must be met.
pub(crate) fn relative_error(got: Duration, exact: Duration) -> f64 {
    let difference = got.as_ns().abs_diff(exact.as_ns()) as f64;
    if difference == 0.0 { 0.0 } else { difference / exact.as_ns_f64() }
}
