//! Renders a snapshot as the text that Prometheus scrapes: `OpenMetrics` 1.0, or the plain text before it.
//!
//! `prometheus-client` only writes the format: the numbers come from a snapshot, not from its metric objects.
//! **Error**: each bound is at most 1.2 times the previous bound, so a quantile from the buckets is off by less than a
//! fifth.

use crate::{Family, MetricsSnapshot, SeriesValue};
use curtail_sketch::Histogram;
use curtail_units::Duration;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use std::fmt;

/// The media type of the text before `OpenMetrics`.
pub(crate) const PLAIN_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The media type of the text format.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The number of bounds per decade: each bound is 1.19 times the previous bound.
const PER_DECADE: usize = 13;

/// The bounds of the buckets of a duration: from 100 µs to 100 s. A series always has 82 lines.
const BOUNDS: [Duration; 6 * PER_DECADE + 1] = {
    const STEPS: [u64; PER_DECADE] =
        [100, 119, 142, 170, 203, 242, 289, 345, 412, 492, 587, 701, 837];
    let mut bounds = [Duration::ZERO; 6 * PER_DECADE + 1];
    let (mut decade_us, mut next) = (1, 0);
    while next < bounds.len() {
        bounds[next] = Duration::from_us(STEPS[next % PER_DECADE] * decade_us);
        next += 1;
        if next.is_multiple_of(PER_DECADE) {
            decade_us *= 10;
        }
    }
    bounds
};

/// Renders the text of one scrape.
///
/// # Panics
/// Never: writing to a string does not fail.
#[must_use]
pub fn render_text(snapshot: impl MetricsSnapshot) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(FamilyEncoder(snapshot)));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("a string takes everything");
    text
}

/// Rewrites `OpenMetrics` as the plain text before it, in which a type is that of the full name, and units and information
/// are no types.
///
/// **Source**: Prometheus's documentation, "Exposition formats".
pub(crate) fn to_plain(open_metrics: &str) -> String {
    let mut plain = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // It precedes the type of the same metric.
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((base, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            plain += &format!("# HELP {base}{suffix} {help}\n# TYPE {base}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            plain += line;
            plain.push('\n');
        }
    }
    plain
}

#[derive(Debug)]
struct FamilyEncoder<S>(S);

impl<S: MetricsSnapshot> Collector for FamilyEncoder<S> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.families().iter().try_for_each(|family| encode(&mut encoder, family))
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, family: &Family<'_>) -> fmt::Result {
    let metric = family.metric;
    let mut encoder =
        encoder.encode_descriptor(metric.base, metric.help, metric.unit.as_ref(), metric.kind)?;
    for series in &family.series {
        match (&series.value, series.labels.as_slice()) {
            (SeriesValue::Info, labels) => encoder.encode_info(&labels)?,
            (value, []) => encode_value(&mut encoder, metric.kind, value)?,
            (value, labels) => {
                encode_value(&mut encoder.encode_family(&labels)?, metric.kind, value)?;
            }
        }
    }
    Ok(())
}

fn encode_value(
    encoder: &mut MetricEncoder<'_>,
    kind: MetricType,
    value: &SeriesValue<'_>,
) -> fmt::Result {
    match value {
        SeriesValue::Int(value) => encode_number(encoder, kind, value),
        SeriesValue::Float(value) => encode_number(encoder, kind, value),
        SeriesValue::Histogram(durations) => {
            let (sum, count) = (durations.sum_secs_f64(), durations.count());
            let buckets = count_by_bound(durations);
            encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
        SeriesValue::Info => Ok(()),
    }
}

fn encode_number(
    encoder: &mut MetricEncoder<'_>,
    kind: MetricType,
    value: &(impl EncodeCounterValue + EncodeGaugeValue),
) -> fmt::Result {
    if matches!(kind, MetricType::Counter) {
        encoder.encode_counter(value, None::<&Exemplar<NoLabelSet, f64>>)
    } else {
        encoder.encode_gauge(value)
    }
}

/// Counts the durations between each of [`BOUNDS`] (in seconds) and the previous bound; the last entry has no bound.
/// A duration that may equal a bound counts as longer than the bound, so that the metrics never overstate speed.
pub(crate) fn count_by_bound(durations: &Histogram) -> Vec<(f64, u64)> {
    let bounds = BOUNDS.iter().map(|bound| bound.as_secs_f64()).chain([f64::INFINITY]);
    let mut buckets: Vec<_> = bounds.map(|bound| (bound, 0)).collect();
    for bucket in durations.buckets() {
        let place = BOUNDS.partition_point(|&bound| bound < bucket.upper);
        buckets[place].1 += bucket.count;
    }
    buckets
}

#[cfg(test)]
mod tests;
