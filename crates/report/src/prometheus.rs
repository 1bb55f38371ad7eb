//! The final figures as Prometheus text, for a push gateway or the text files of the node exporter.
//!
//! **Buckets** with values are at most 5 % wide, so an interpolated percentile is off by less than 5 %. Each bound is
//! the end of a bucket of the recording, so counts are exact.
//! **Invariant**: failed requests count in the last bucket only, and a percentile among them is `+Inf`. Percentiles with
//! too few requests are absent.

use super::figures::{self, ArmFigures, CLOCKS, Figure, PERCENTILES, Percentiles, reasons};
use crate::Results;
use crate::results::State;
use curtail_load::{Latencies, LatencyKind};
use curtail_units::Duration;

#[cfg(test)]
mod tests;

/// Maximum ratio of the bounds of a bucket with values.
const GROWTH: f64 = 1.05;

/// The figures as text.
pub(crate) fn render(results: &Results) -> String {
    let mut page = Page { text: String::new() };
    let arms = figures::of_arms(results);
    let run = label(&results.name);
    let states = [
        ("complete", results.state == State::Complete),
        ("partial", matches!(results.state, State::Partial { .. })),
        ("void", matches!(results.state, State::Void { .. })),
    ];
    page.head("state", "Whether the run is valid: 1 for its state.", "gauge");
    for (name, is) in states {
        page.sample("state", &format!("run=\"{run}\",state=\"{name}\""), f64::from(u8::from(is)));
    }
    let of = |arm: &ArmFigures| format!("run=\"{run}\",arm=\"{}\"", label(&arm.name));
    let mut gauge = |name: &str, help: &str, samples: &dyn Fn(&ArmFigures) -> Samples| {
        page.head(name, help, "gauge");
        for arm in &arms {
            for (labels, value) in samples(arm) {
                page.sample(name, &format!("{}{labels}", of(arm)), value);
            }
        }
    };
    let one = |value: f64| vec![(String::new(), value)];
    gauge("requests", "Requests, those that failed included.", &|arm| {
        one(arm.latencies.count() as f64)
    });
    gauge("failures", "Requests that failed, by reason.", &|arm| {
        let labelled = |(reason, count)| (format!(",reason=\"{reason}\""), count as f64);
        reasons(&arm.latencies.failures).map(labelled).collect()
    });
    gauge("requests_per_second", "The rate that was reached.", &|arm| one(arm.rate()));
    gauge("lag_seconds", "How late the generator was.", &|arm| {
        let at = |q| Some((format!(",quantile=\"{q}\""), arm.lag(q)?.as_secs_f64()));
        [0.99, 0.999].into_iter().filter_map(at).collect()
    });
    gauge(
        "latency_seconds",
        "Latency by quantile and clock; +Inf where requests failed.",
        &quantiles,
    );
    page.histograms(&arms, of);
    page.text
}

/// Samples of one family: additional labels, each after a comma, and the value.
type Samples = Vec<(String, f64)>;

fn quantiles(arm: &ArmFigures) -> Samples {
    let mut samples = Vec::new();
    for (name, clock) in CLOCKS {
        let percentiles = Percentiles::of(&arm.latencies, clock);
        let at = PERCENTILES.into_iter().map(|(_, quantile)| quantile).zip(percentiles.at);
        for (quantile, figure) in at.chain([(1.0, percentiles.max)]) {
            if figure != Figure::TooFew {
                let value = figure.latency().map_or(f64::INFINITY, Duration::as_secs_f64);
                samples.push((format!(",clock=\"{name}\",quantile=\"{quantile}\""), value));
            }
        }
    }
    samples
}

/// A text as the value of a label.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Page {
    text: String,
}

impl Page {
    fn push(&mut self, args: std::fmt::Arguments<'_>) {
        self.text += &format!("{args}\n");
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.push(format_args!("# HELP curtail_bench_{name} {help}"));
        self.push(format_args!("# TYPE curtail_bench_{name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        self.push(format_args!("curtail_bench_{name}{{{labels}}} {}", number(value)));
    }

    fn histograms(&mut self, arms: &[ArmFigures], of: impl Fn(&ArmFigures) -> String) {
        for (clock_name, clock) in CLOCKS {
            let name = format!("{clock_name}_seconds");
            let help = "Latencies; what failed is in the last bucket, and not in the sum.";
            self.head(&name, help, "histogram");
            for arm in arms {
                let labels = of(arm);
                for (bound, count) in buckets(&arm.latencies, clock) {
                    let bound = number(bound.as_secs_f64());
                    self.sample(
                        &format!("{name}_bucket"),
                        &format!("{labels},le=\"{bound}\""),
                        count as f64,
                    );
                }
                let count = arm.latencies.count() as f64;
                self.sample(&format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), count);
                let sum = arm.latencies.responses(clock).sum_secs_f64();
                self.sample(&format!("{name}_sum"), &labels, sum);
                self.sample(&format!("{name}_count"), &labels, count);
            }
        }
    }
}

fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() }
}

/// Rising bounds, each with the number of responses that are no longer.
fn buckets(latencies: &Latencies, clock: LatencyKind) -> Vec<(Duration, u64)> {
    let mut bounds = Vec::new();
    // The lower bound of the current bucket, its count so far, and the number of responses.
    let (mut low, mut high, mut count) = (Duration::ZERO, None, 0);
    for bucket in latencies.responses(clock).buckets() {
        let end = bucket.upper - Duration::from_ns(1);
        if high.is_none() || end > low.mul_f64(GROWTH) {
            bounds.extend(high.map(|high| (high, count)));
            low = bucket.lower - Duration::from_ns(1);
            // A range without values is a bucket of its own, so that no bucket with values is wide.
            if bucket.lower > Duration::ZERO && high.is_none_or(|high| high < low) {
                bounds.push((low, count));
            }
        }
        count += bucket.count;
        high = Some(end);
    }
    bounds.extend(high.map(|high| (high, count)));
    bounds
}
