//! Layouts of buckets, and the quantiles that readers of the counts compute.

use super::Values;
use curtail_sketch::exponential::Scale;
use curtail_units::{Duration, OutOfRange, Quantile};
use libm::{ceil, exp2, log2, pow};
use std::fmt;

/// Maximum number of bounds of one layout; more are an oversight.
const BOUNDS_MAX: usize = 10_000;

/// The schemas of Prometheus' native histograms: their base is 2^(2^-schema).
const SCHEMAS: std::ops::RangeInclusive<i8> = -4..=8;

/// The way to read a quantile from its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// As if the values of the bucket stood at equal distances.
    Linear,
    /// As if the logarithms of the values stood at equal distances.
    Exponential,
    /// As the value with the same relative error at both bounds: the harmonic mean of the bounds.
    Middle,
}

impl Reader {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Exponential => "exponential",
            Self::Middle => "middle",
        }
    }

    /// The value at a share of the bucket's values; both bounds are above 0, or the lower one is 0.
    fn read(self, (lower, upper): (f64, f64), share: f64) -> f64 {
        match self {
            Self::Linear => lower + (upper - lower) * share,
            Self::Exponential => lower * pow(upper / lower, share),
            Self::Middle => 2.0 * lower / (1.0 + lower / upper),
        }
    }
}

/// The bounds of buckets, and the way to read them.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    name: String,
    bounds: Bounds,
    reader: Reader,
}

/// Bounds in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
enum Bounds {
    /// A bound for every whole number of steps; zero has a bucket of its own.
    Powers(Powers),
    /// The listed bounds, in rising order.
    Listed(Vec<f64>),
}

/// Bounds that are `first_ns` times the powers of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Powers {
    step: Step,
    first_ns: f64,
}

/// The step from one bound to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    /// The ratio of one bound to the one below.
    Factor(f64),
    /// The number of octaves between two bounds, which keeps powers of two exact.
    Octaves(f64),
}

impl Layout {
    /// Buckets that are `growth` times as wide as the one below; `unit` is one of the bounds.
    ///
    /// # Errors
    /// When `growth` is not from 1.001 to 1,000.
    pub fn growth(growth: f64, unit: Duration) -> Result<Self, OutOfRange> {
        if !(1.001..=1_000.0).contains(&growth) {
            let expected = "a growth factor from 1.001 to 1000 (1.2: each bucket 20 % wider)";
            return Err(OutOfRange { value: growth, expected });
        }
        let bounds = Powers { step: Step::Factor(growth), first_ns: unit.as_ns_f64() };
        Ok(Self {
            name: format!("growth {growth}"),
            bounds: Bounds::Powers(bounds),
            reader: Reader::Linear,
        })
    }

    /// A layout with `bounds`, which a report calls `name`.
    ///
    /// # Errors
    /// When there are no bounds or too many, or they do not rise.
    pub fn bounds(name: &str, bounds: &[Duration]) -> Result<Self, String> {
        if bounds.is_empty() {
            return Err("expected at least one bound".to_owned());
        }
        if bounds.len() > BOUNDS_MAX {
            return Err(format!("{} bounds, expected at most {BOUNDS_MAX}", bounds.len()));
        }
        if let Some(pair) = bounds.windows(2).find(|pair| pair[0] >= pair[1]) {
            let (before, next) = (pair[0], pair[1]);
            return Err(format!("{next} comes after {before}: expected bounds that rise"));
        }
        Ok(Self::listed(name, bounds))
    }

    /// The bounds that clients of Prometheus have by default: 5 ms to 10 s.
    #[must_use]
    pub fn prometheus_default() -> Self {
        let ms = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];
        Self::listed("prometheus", &ms.map(Duration::from_ms))
    }

    /// The bounds that SDKs of OpenTelemetry have by default, for a metric in milliseconds: 0 to 10 s.
    #[must_use]
    pub fn otel_default() -> Self {
        let ms = [0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1_000, 2_500, 5_000, 7_500, 10_000_u64];
        Self::listed("otel", &ms.map(Duration::from_ms))
    }

    /// The buckets of OpenTelemetry's exponential histogram, in seconds.
    #[must_use]
    pub fn otel_scale(scale: Scale) -> Self {
        let name = format!("otel scale {}", scale.get());
        Self { name, bounds: Bounds::of_scale(scale.get()), reader: Reader::Middle }
    }

    /// The buckets of Prometheus' native histograms, in seconds.
    ///
    /// # Errors
    /// When `schema` is not in -4..=8.
    pub fn prometheus_native(schema: i8) -> Result<Self, OutOfRange> {
        if !SCHEMAS.contains(&schema) {
            let expected = "a schema from -4 to 8 (3: each bucket 9 % wider)";
            return Err(OutOfRange { value: f64::from(schema), expected });
        }
        let name = format!("native schema {schema}");
        Ok(Self { name, bounds: Bounds::of_scale(schema), reader: Reader::Exponential })
    }

    fn listed(name: &str, bounds: &[Duration]) -> Self {
        let bounds = Bounds::Listed(bounds.iter().map(|bound| bound.as_ns_f64()).collect());
        Self { name: name.to_owned(), bounds, reader: Reader::Linear }
    }

    /// The name in reports.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The way to read a quantile.
    #[must_use]
    pub const fn reader(&self) -> Reader {
        self.reader
    }

    /// The number of buckets between the shortest and the longest of `values`; with listed bounds, that of all buckets.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number, at least 1 and below 2^27"
    )]
    pub fn len(&self, values: &Values) -> u64 {
        let powers = match &self.bounds {
            Bounds::Listed(bounds) => return bounds.len() as u64 + 1,
            Bounds::Powers(powers) => powers,
        };
        let zeros = values.up_to(0.0);
        let positive = &values.as_slice()[usize::try_from(zeros).unwrap_or(usize::MAX)..];
        let (Some(shortest), Some(longest)) = (positive.first(), positive.last()) else {
            return u64::from(zeros > 0);
        };
        let steps = powers.index(longest.as_ns_f64()) - powers.index(shortest.as_ns_f64());
        (steps + 1.0) as u64 + u64::from(zeros > 0)
    }

    /// The maximum error of a read for any data, as a share of the true quantile; [`None`] with listed bounds, where
    /// the error has no maximum.
    #[must_use]
    pub fn error_max(&self) -> Option<f64> {
        let Bounds::Powers(powers) = &self.bounds else { return None };
        let growth = powers.step.times(1.0);
        Some(match self.reader {
            Reader::Linear | Reader::Exponential => growth - 1.0,
            Reader::Middle => (growth - 1.0) / (growth + 1.0),
        })
    }

    /// The `quantile` read from the counts that `values` leave in the buckets, in nanoseconds; nothing when
    /// there is no value.
    ///
    /// A reader that adds up counts finds the bucket of the true quantile, so no other bucket matters.
    #[must_use]
    pub fn read_ns(&self, values: &Values, quantile: Quantile) -> Option<f64> {
        let (lower, upper) = self.bucket(values.quantile(quantile)?);
        if upper <= 0.0 {
            return Some(0.0);
        }
        if upper.is_infinite() && self.reader == Reader::Linear {
            return Some(lower);
        }
        let before = values.up_to(lower);
        let within = (values.up_to(upper) - before) as f64;
        let position = quantile.get() * values.len() as f64 - before as f64;
        let share = position.clamp(0.0, within) / within;
        Some(self.reader.read((lower.max(0.0), upper), share))
    }

    /// The error of the read as a share of the true quantile: 0.25 when the read is a quarter too long. [`None`]
    /// without values, or when the true quantile is zero.
    #[must_use]
    pub fn error(&self, values: &Values, quantile: Quantile) -> Option<f64> {
        let exact = values.quantile(quantile)?.as_ns_f64();
        let read = self.read_ns(values, quantile)?;
        (exact > 0.0).then(|| read / exact - 1.0)
    }

    /// The same buckets with every bound higher by `share` of a step; listed bounds stay where they are.
    pub(super) fn shifted(&self, share: f64) -> Self {
        let mut shifted = self.clone();
        if let Bounds::Powers(powers) = &mut shifted.bounds {
            powers.first_ns *= powers.step.times(share);
        }
        shifted
    }

    /// The bucket of `value`, above the first bound and up to the second, in nanoseconds. The lowest bucket has no
    /// lower bound, so zero is in that bucket.
    fn bucket(&self, value: Duration) -> (f64, f64) {
        let ns = value.as_ns_f64();
        match &self.bounds {
            Bounds::Powers(_) if ns <= 0.0 => (f64::NEG_INFINITY, 0.0),
            Bounds::Powers(powers) => {
                let index = powers.index(ns);
                (powers.bound_ns(index), powers.bound_ns(index + 1.0))
            }
            Bounds::Listed(bounds) => {
                let place = bounds.partition_point(|bound| *bound < ns);
                let lower = place.checked_sub(1).map_or(f64::NEG_INFINITY, |below| bounds[below]);
                (lower, bounds.get(place).copied().unwrap_or(f64::INFINITY))
            }
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Bounds {
    fn of_scale(scale: i8) -> Self {
        let step = Step::Octaves(exp2(-f64::from(scale)));
        Self::Powers(Powers { step, first_ns: Duration::from_secs(1).as_ns_f64() })
    }
}

impl Powers {
    /// The bound that is `steps` steps above the first.
    fn bound_ns(self, steps: f64) -> f64 {
        // Divided, not multiplied by an inverse: so 1 ms over 10^5 is 10 ns, to the last bit.
        if steps < 0.0 {
            self.first_ns / self.step.times(-steps)
        } else {
            self.first_ns * self.step.times(steps)
        }
    }

    /// The whole number of steps to the bound below `ns`, which is above 0.
    fn index(self, ns: f64) -> f64 {
        let index = ceil(log2(ns / self.first_ns) / self.step.octaves()) - 1.0;
        // On a bound the logarithm may come out a hair to either side of a whole number.
        if ns <= self.bound_ns(index) {
            index - 1.0
        } else if ns > self.bound_ns(index + 1.0) {
            index + 1.0
        } else {
            index
        }
    }
}

impl Step {
    /// The factor of `steps` steps.
    fn times(self, steps: f64) -> f64 {
        match self {
            Self::Factor(factor) => pow(factor, steps),
            Self::Octaves(octaves) => exp2(octaves * steps),
        }
    }

    fn octaves(self) -> f64 {
        match self {
            Self::Factor(factor) => log2(factor),
            Self::Octaves(octaves) => octaves,
        }
    }
}

#[cfg(test)]
mod tests;
