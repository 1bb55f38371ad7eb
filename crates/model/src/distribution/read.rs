//! The keys of a distribution: `{shape: exponential, mean: 5ms}`.

use super::{Distribution, Part, Point};
use curtail_config::{Cases, Section};
use curtail_units::Duration;

/// Maximum depth of mixtures and sums.
const DEPTH_MAX: u8 = 2;

impl Distribution {
    /// Reads the keys of a distribution.
    pub fn read(s: &mut Section<'_>) -> Self {
        nested(s, 0)
    }
}

fn nested(s: &mut Section<'_>, depth: u8) -> Distribution {
    s.cases("shape", "Shape of the distribution.").required(|cases| {
        plain(cases);
        tails(cases);
        recorded(cases);
        if depth < DEPTH_MAX {
            compound(cases, depth + 1);
        }
    })
}

fn plain(cases: &mut Cases<'_, '_, Distribution>) {
    cases.case("constant", "always the same.", |s| Distribution::Constant {
        value: s.field("value", "The duration.").required(),
    });
    cases.case("uniform", "everything between two durations alike.", |s| {
        let low = s.field("low", "Minimum duration.").default(Duration::ZERO);
        let high = s.field("high", "Maximum duration.").required();
        s.check_order(("low", low), ("high", high));
        Distribution::Uniform { low, high }
    });
    cases.case("exponential", "memoryless.", |s| Distribution::Exponential {
        mean: s.field("mean", "The mean.").required(),
    });
    cases.case("normal", "normal, its negative part counts as no time at all.", |s| {
        Distribution::Normal {
            mean: s.field("mean", "Mean before truncation.").required(),
            deviation: s.field("deviation", "Standard deviation before truncation.").required(),
        }
    });
}

fn tails(cases: &mut Cases<'_, '_, Distribution>) {
    cases.case("lognormal", "the logarithm is normal.", |s| Distribution::Lognormal {
        median: s.field("median", "The median.").required(),
        sigma: s
            .field("sigma", "The standard deviation of the natural logarithm.")
            .range(0.0..=10.0)
            .required(),
    });
    cases.case("pareto", "a power-law tail.", |s| {
        let shortest =
            s.field("shortest", "Minimum duration.").at_least(Duration::from_ns(1)).required();
        let longest = s.field("longest", "Maximum duration; absent: no maximum.").optional();
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
        let fast = s.field("fast", "Duration of the fast part.").required();
        let slow = s.field("slow", "Duration of the slow part.").required();
        let weight =
            s.field::<f64>("slow_ratio", "Share of the slow part.").range(0.0..=1.0).required();
        let part = |weight, value| Part { weight, distribution: Distribution::Constant { value } };
        Distribution::Mixture(vec![part(1.0 - weight, fast), part(weight, slow)])
    });
    cases.case("hyperexponential", "one of several exponential ones.", |s| {
        let phases = s.list("phases", "The exponential distributions.", |s| {
            (weight(s), s.field("mean", "The mean.").required())
        });
        check_weights(s, "phases", phases.iter().map(|(weight, _)| *weight));
        Distribution::hyperexponential(&phases)
    });
}

fn recorded(cases: &mut Cases<'_, '_, Distribution>) {
    cases.case("samples", "drawn from durations that were recorded.", |s| {
        let samples: Vec<Duration> = s.values("values", "The durations.");
        if samples.is_empty() {
            s.error("values", "there is nothing to draw from: expected at least one duration");
        }
        Distribution::Samples(samples)
    });
    cases.case("quantiles", "known by its quantiles, straight lines in between.", |s| {
        let points = s.list("points", "Quantiles in rising order, from 0 to 1.", |s| Point {
            quantile: s
                .field::<f64>("quantile", "Share of durations up to the value.")
                .range(0.0..=1.0)
                .required(),
            value: s.field("value", "Duration at this quantile.").required(),
        });
        let rises =
            |pair: &[Point]| pair[0].quantile < pair[1].quantile && pair[0].value <= pair[1].value;
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

fn compound(cases: &mut Cases<'_, '_, Distribution>, depth: u8) {
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
