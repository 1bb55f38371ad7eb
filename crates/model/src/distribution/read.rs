//! The keys of a distribution: `{shape: exponential, mean: 5ms}`.

use super::{Amount, Distribution, Part, Point};
use curtail_config::{Cases, Section};

const SAMPLES_FILE: &str = "File with one recorded value on each line, instead of `values`.";

/// Maximum depth of mixtures and sums.
const DEPTH_MAX: u8 = 2;

impl<T: Amount> Distribution<T> {
    /// Reads the keys of a distribution.
    pub fn read(s: &mut Section<'_>) -> Self {
        nested(s, 0)
    }
}

fn nested<T: Amount>(s: &mut Section<'_>, depth: u8) -> Distribution<T> {
    s.cases("shape", "Shape of the distribution.").required(|cases| {
        plain(cases);
        tails(cases);
        recorded(cases);
        if depth < DEPTH_MAX {
            compound(cases, depth + 1);
        }
    })
}

fn plain<T: Amount>(cases: &mut Cases<'_, '_, Distribution<T>>) {
    cases.case("constant", "always the same.", |s| Distribution::Constant {
        value: T::field(s, "value", "The value.").required(),
    });
    cases.case("uniform", "everything between two values alike.", |s| {
        let low = T::field(s, "low", "Minimum.").default(T::ZERO);
        let high = T::field(s, "high", "Maximum.").required();
        s.check_order(("low", low), ("high", high));
        Distribution::Uniform { low, high }
    });
    cases.case("exponential", "memoryless.", |s| Distribution::Exponential {
        mean: T::field(s, "mean", "The mean.").required(),
    });
    cases.case("normal", "normal, its negative part counts as no time at all.", |s| {
        Distribution::Normal {
            mean: T::field(s, "mean", "Mean before truncation.").required(),
            deviation: T::field(s, "deviation", "Standard deviation before truncation.").required(),
        }
    });
}

fn tails<T: Amount>(cases: &mut Cases<'_, '_, Distribution<T>>) {
    cases.case("lognormal", "the logarithm is normal.", |s| Distribution::Lognormal {
        median: T::field(s, "median", "The median.").required(),
        sigma: s
            .field("sigma", "The standard deviation of the natural logarithm.")
            .range(0.0..=10.0)
            .required(),
    });
    cases.case("pareto", "a power-law tail.", |s| {
        let shortest = T::field(s, "shortest", "Minimum.").at_least(T::SHORTEST).required();
        let longest = T::field(s, "longest", "Maximum; absent: no maximum.").optional();
        if longest.is_some_and(|longest| longest <= shortest) {
            s.error("longest", format!("expected more than shortest ({shortest})"));
        }
        Distribution::Pareto {
            shortest,
            shape: s
                .field("exponent", "Exponent: a share (shortest / t)^exponent is longer than t.")
                .range(0.1..=100.0)
                .required(),
            longest,
        }
    });
    cases.case("bimodal", "fast, and sometimes slow.", |s| {
        let fast = T::field(s, "fast", "Value of the fast part.").required();
        let slow = T::field(s, "slow", "Value of the slow part.").required();
        let weight =
            s.field::<f64>("slow_ratio", "Share of the slow part.").range(0.0..=1.0).required();
        let part = |weight, value| Part { weight, distribution: Distribution::Constant { value } };
        Distribution::Mixture(vec![part(1.0 - weight, fast), part(weight, slow)])
    });
    cases.case("hyperexponential", "one of several exponential ones.", |s| {
        let phases = s.list("phases", "The exponential distributions.", |s| {
            (weight(s), T::field(s, "mean", "The mean.").required())
        });
        check_weights(s, "phases", phases.iter().map(|(weight, _)| *weight));
        Distribution::hyperexponential(&phases)
    });
}

fn recorded<T: Amount>(cases: &mut Cases<'_, '_, Distribution<T>>) {
    cases.case("samples", "drawn from values that were recorded.", |s| {
        let values: Vec<T> = s.values("values", "The recorded values.");
        let file = s.file_values("samples_file", SAMPLES_FILE);
        if file.is_some() && !values.is_empty() {
            s.error("samples_file", "expected either this or values");
        }
        let key = if file.is_some() { "samples_file" } else { "values" };
        let samples = file.unwrap_or(values);
        if samples.is_empty() {
            s.error(key, "there is nothing to draw from: expected at least one value");
        }
        if let Some(nth) = samples.iter().position(|sample| *sample < T::ZERO) {
            match key {
                "values" => s.error(&format!("values[{nth}]"), "expected zero or more"),
                _ => s.error(key, format!("line {}: expected zero or more", nth + 1)),
            }
        }
        Distribution::Samples(samples)
    });
    cases.case("quantiles", "known by its quantiles, straight lines in between.", |s| {
        let points = s.list("points", "Quantiles in rising order, from 0 to 1.", |s| Point {
            quantile: s
                .field::<f64>("quantile", "Share of draws up to the value.")
                .range(0.0..=1.0)
                .required(),
            value: T::field(s, "value", "Value at this quantile.").required(),
        });
        let rises = |pair: &[Point<T>]| {
            pair[0].quantile < pair[1].quantile && pair[0].value <= pair[1].value
        };
        let ends = (points.first().map(|p| p.quantile), points.last().map(|p| p.quantile));
        if ends != (Some(0.0), Some(1.0)) || !points.windows(2).all(rises) {
            s.error(
                "points",
                "expected quantiles that rise from 0 to 1, and values that do not fall",
            );
        }
        Distribution::Quantiles(points)
    });
}

fn compound<T: Amount>(cases: &mut Cases<'_, '_, Distribution<T>>, depth: u8) {
    cases.case("mixture", "one of several, drawn by weight.", |s| {
        let parts = s.list("parts", "The distributions.", |s| Part {
            distribution: nested(s, depth),
            weight: weight(s),
        });
        check_weights(s, "parts", parts.iter().map(|part| part.weight));
        Distribution::Mixture(parts)
    });
    cases.case("sum", "all of several, one after the other.", |s| {
        let terms = s.list("terms", "The distributions.", |s| nested(s, depth));
        if terms.is_empty() {
            s.error("terms", "the sum has no terms: expected at least one distribution");
        }
        Distribution::Sum(terms)
    });
}

fn weight(s: &mut Section<'_>) -> f64 {
    s.field("weight", "Relative frequency of this part.").range(0.0..=1e9).required()
}

fn check_weights(s: &mut Section<'_>, key: &str, weights: impl Iterator<Item = f64>) {
    if weights.sum::<f64>() <= 0.0 {
        s.error(key, "nothing has a weight: expected at least one above 0");
    }
}
