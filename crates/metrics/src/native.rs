//! Renders a snapshot in Prometheus's protobuf with native histograms, whose buckets grow by a constant factor.
//!
//! Each histogram also has classic buckets, for a Prometheus that stores only these.
//! **Error**: schema [`SCHEMA`] has 16 buckets an octave, so a quantile is off by at most 2.2 %, plus 0.4 % from our
//! own sketch.
//! **Limits**: all possible durations fit in 1,024 buckets of this schema. A service whose latencies span three decades
//! fills at most 160 buckets.
//! **Source**: `io.prometheus.client.MetricFamily` (metrics.proto of `prometheus/client_model`), length-delimited.

use crate::text::count_by_bound;
use crate::{Family, Label, MetricsSnapshot, SeriesValue};
use curtail_protobuf::{bytes_field, fixed64_field, message_field, varint, varint_field, zigzag};
use curtail_sketch::Histogram;
use curtail_sketch::exponential::{Exponential, Scale};
use prometheus_client::metrics::MetricType;

/// The media type of the bytes that [`render`] returns.
pub(crate) const CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The scale of native histograms, as Prometheus and OpenTelemetry number it.
const SCHEMA: i8 = 4;

/// Maximum number of buckets, enough to keep the scale. Prometheus would take a lower scale for another histogram.
const BUCKETS_MAX: usize = 2_048;

/// The upper bound of the zero bucket: 2^-128 s, which is less than a nanosecond. Its presence marks a histogram
/// without values as native.
const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

/// Renders the bytes of one scrape.
pub(crate) fn render(snapshot: &impl MetricsSnapshot) -> Vec<u8> {
    let mut out = Vec::new();
    let mut message = Vec::new();
    for family in snapshot.families() {
        message.clear();
        write_family(&mut message, &family);
        varint(&mut out, message.len() as u64);
        out.extend_from_slice(&message);
    }
    out
}

fn write_family(out: &mut Vec<u8>, family: &Family<'_>) {
    bytes_field(out, 1, family.metric.name().as_bytes());
    bytes_field(out, 2, family.metric.help.as_bytes());
    let kind = match family.metric.kind {
        MetricType::Counter => 0,
        MetricType::Histogram => 4,
        // There is no kind for information: it is a gauge that is 1.
        MetricType::Gauge | MetricType::Info | MetricType::Unknown => 1,
    };
    varint_field(out, 3, kind);
    for series in &family.series {
        message_field(out, 4, |out| {
            for &(name, value) in &series.labels {
                write_label(out, (name, value));
            }
            write_value(out, family.metric.kind, &series.value);
        });
    }
}

fn write_label(out: &mut Vec<u8>, (name, value): Label<'_>) {
    message_field(out, 1, |out| {
        bytes_field(out, 1, name.as_bytes());
        bytes_field(out, 2, value.as_bytes());
    });
}

#[expect(clippy::cast_precision_loss, reason = "the format has no other number; exact to 2^53")]
fn write_value(out: &mut Vec<u8>, kind: MetricType, value: &SeriesValue<'_>) {
    let number = match value {
        SeriesValue::Histogram(durations) => {
            message_field(out, 7, |out| write_histogram(out, durations));
            return;
        }
        SeriesValue::Int(value) => *value as f64,
        SeriesValue::Float(value) => *value,
        SeriesValue::Info => 1.0,
    };
    let field = if matches!(kind, MetricType::Counter) { 3 } else { 2 };
    message_field(out, field, |out| double_field(out, 1, number));
}

fn write_histogram(out: &mut Vec<u8>, durations: &Histogram) {
    varint_field(out, 1, durations.count());
    double_field(out, 2, durations.sum_secs_f64());
    let mut cumulative = 0;
    for (bound, count) in count_by_bound(durations) {
        cumulative += count;
        message_field(out, 3, |out| {
            varint_field(out, 1, cumulative);
            double_field(out, 2, bound);
        });
    }
    let scale = Scale::new(SCHEMA).expect("a scale of OpenTelemetry's");
    let native = Exponential::from_histogram(durations, scale, BUCKETS_MAX);
    varint_field(out, 5, zigzag(native.scale().get().into()));
    double_field(out, 6, ZERO_THRESHOLD);
    varint_field(out, 7, native.zero_count());
    write_buckets(out, &native);
}

/// Writes the non-empty buckets: spans of adjacent buckets, and the difference of each count to the previous count.
fn write_buckets(out: &mut Vec<u8>, native: &Exponential) {
    let mut deltas = Vec::new();
    let (mut before, mut rest) = (0, native.counts());
    // Prometheus numbers a bucket by its upper bound, OpenTelemetry by its lower one. The first offset is an index, the
    // others are distances from the end of the span before.
    let mut offset = i64::from(native.offset()) + 1;
    while !rest.is_empty() {
        let gap = rest.iter().take_while(|count| **count == 0).count();
        let filled = rest[gap..].iter().take_while(|count| **count > 0).count();
        let (span, after) = rest[gap..].split_at(filled);
        rest = after;
        if span.is_empty() {
            break;
        }
        message_field(out, 12, |out| {
            varint_field(out, 1, zigzag(offset + i64::try_from(gap).unwrap_or(i64::MAX)));
            varint_field(out, 2, span.len() as u64);
        });
        offset = 0;
        for &count in span {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            deltas.push(count - before);
            before = count;
        }
    }
    for delta in deltas {
        varint_field(out, 13, zigzag(delta));
    }
}

fn double_field(out: &mut Vec<u8>, field: u32, value: f64) {
    fixed64_field(out, field, value.to_bits());
}

#[cfg(test)]
mod tests;
