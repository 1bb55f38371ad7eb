//! The description of a metric: name, unit, type, labels and meaning.
//!
//! Exposition and reference page are written from the same descriptions. Names follow Prometheus: the base name, then
//! the unit, then `_total` for a counter.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt::Write as _;

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// The name without unit and without `_total`.
    pub base: &'static str,
    /// Its unit, which becomes part of the name.
    pub unit: Option<Unit>,
    /// Its type.
    pub kind: MetricType,
    /// The labels of its series.
    pub labels: &'static [&'static str],
    /// The help text: a sentence on the counted or measured thing.
    pub help: &'static str,
}

impl Metric {
    /// The name under which it is queried.
    #[must_use]
    pub fn name(&self) -> String {
        let unit = self.unit.as_ref().map(|unit| format!("_{}", unit.as_str()));
        let suffix = match self.kind {
            MetricType::Counter => "_total",
            MetricType::Info => "_info",
            MetricType::Gauge | MetricType::Histogram | MetricType::Unknown => "",
        };
        format!("{}{}{suffix}", self.base, unit.unwrap_or_default())
    }
}

/// A counter without a unit.
#[must_use]
pub const fn counter(
    base: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { base, unit: None, kind: MetricType::Counter, labels, help }
}

/// A gauge without a unit.
#[must_use]
pub const fn gauge(
    base: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { base, unit: None, kind: MetricType::Gauge, labels, help }
}

/// A counter or a gauge with a unit.
#[must_use]
pub const fn with_unit(
    kind: MetricType,
    unit: Unit,
    base: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { base, unit: Some(unit), kind, labels, help }
}

/// A histogram of durations.
#[must_use]
pub const fn histogram_seconds(
    base: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { base, unit: Some(Unit::Seconds), kind: MetricType::Histogram, labels, help }
}

/// A table of metrics in Markdown.
#[must_use]
pub fn reference_table(metrics: &[&Metric]) -> String {
    let mut page = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for metric in metrics {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind, labels) = (metric.name(), metric.kind.as_str(), labels.join(", "));
        writeln!(page, "| `{name}` | {kind} | {labels} | {} |", metric.help)
            .expect("a string takes everything");
    }
    page
}
