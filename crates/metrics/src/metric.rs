//! The description of a metric: name, unit, type, labels and meaning.
//!
//! Exposition and reference page use the same descriptions. Names follow Prometheus: the base name, then the unit, then
//! `_total` for a counter.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt::Write as _;

/// One metric.
#[derive(Debug)]
pub struct Metric {
    /// The name without unit and without `_total`.
    pub base: &'static str,
    /// The unit, which becomes part of the name.
    pub unit: Option<Unit>,
    /// The type.
    pub kind: MetricType,
    /// The labels of the series.
    pub labels: &'static [&'static str],
    /// The help text: the meaning of the metric.
    pub help: &'static str,
}

impl Metric {
    /// Returns the full name of the metric, which queries use.
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

/// Describes a counter without a unit.
#[must_use]
pub const fn counter(
    base: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { base, unit: None, kind: MetricType::Counter, labels, help }
}

/// Describes a gauge without a unit.
#[must_use]
pub const fn gauge(
    base: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { base, unit: None, kind: MetricType::Gauge, labels, help }
}

/// Describes a counter or a gauge with a unit.
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

/// Describes a histogram of durations.
#[must_use]
pub const fn histogram_seconds(
    base: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { base, unit: Some(Unit::Seconds), kind: MetricType::Histogram, labels, help }
}

/// Renders a table of metrics in Markdown.
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
