//! Encodes points; those of one metric are adjacent in its message.

use super::batch_writer::{BatchWriter, ScopeNumber};
use super::{
    BadRow, PlainValue, ResourceText, RowPart, ScopeText, attributes, enumerated, number, object,
    span_id, text, time, trace_id,
};
use crate::metrics::{AtQuantile, Buckets, Distribution, Form, Measured};
use crate::wire::LEN;
use curtail_protobuf as protobuf;
use std::collections::HashMap;
use std::sync::LazyLock;

/// What is measured, as a table has it: what [`crate::Metric`] is in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricText<'a> {
    /// Its name.
    pub name: &'a str,
    /// For people.
    pub description: &'a str,
    /// UCUM: `ms`, `By`, `{request}`.
    pub unit: &'a str,
    /// What its points are.
    pub form: Form,
    /// 1: since the last point, 2: since the start; 0: not said.
    pub temporality: i32,
    /// A sum that never falls.
    pub is_monotonic: bool,
    /// Plain JSON; empty: none.
    pub metadata: &'a str,
}

/// A point, as a table has it: what [`crate::Point`] and its [`crate::Details`] are in a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PointRow<'a> {
    /// Since when it counts, in nanoseconds since 1970; zero: not said.
    pub start_ns: u64,
    /// Of when it is.
    pub time_ns: u64,
    /// Its number, if it is one.
    pub measured: Measured,
    /// What it says if it is not.
    pub distribution: &'a Distribution,
    /// In their order. A summary has none.
    pub exemplars: &'a [ExemplarRow<'a>],
    /// In their order.
    pub attributes: &'a [(&'a str, PlainValue<'a>)],
    /// 1: nothing was recorded.
    pub flags: u32,
}

impl Default for PointRow<'_> {
    fn default() -> Self {
        static NOTHING: LazyLock<Distribution> = LazyLock::new(Distribution::default);
        Self {
            start_ns: 0,
            time_ns: 0,
            measured: Measured::None,
            distribution: &NOTHING,
            exemplars: &[],
            attributes: &[],
            flags: 0,
        }
    }
}

/// One of the values that a point was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExemplarRow<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// The value.
    pub measured: Measured,
    /// The trace in which it was measured; zero: none.
    pub trace_id: u128,
    /// The span in which it was measured; zero: none.
    pub span_id: u64,
    /// Plain JSON; empty: none.
    pub attributes: &'a str,
}

/// A batch of metrics that grows point by point.
#[derive(Debug, Default)]
pub struct MetricsWriter {
    scopes: BatchWriter,
    /// In the order in which they first came.
    metrics: Vec<Metric>,
    /// The number of each, by scope and texts.
    numbers: HashMap<(ScopeNumber, Box<[u8]>), usize>,
    /// Of the point that is being written.
    point: Vec<u8>,
    bytes: usize,
}

#[derive(Debug)]
struct Metric {
    scope: ScopeNumber,
    form: Form,
    temporality: i32,
    is_monotonic: bool,
    /// Name, description and unit, as the message has them.
    texts: Vec<u8>,
    /// The same.
    metadata: Vec<u8>,
    /// Each a field of the message that is around points.
    points: Vec<u8>,
}

impl MetricsWriter {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a point.
    ///
    /// # Errors
    /// When what should be plain JSON is none. The batch is without this point then.
    pub fn point(
        &mut self,
        resource: &ResourceText<'_>,
        scope: &ScopeText<'_>,
        metric: &MetricText<'_>,
        point: &PointRow<'_>,
    ) -> Result<(), BadRow> {
        self.point.clear();
        point.write(&mut self.point, metric.form)?;
        let mut metadata = Vec::new();
        object(&mut metadata, 12, metric.metadata).map_err(|fault| RowPart::Metadata.is(fault))?;
        let scope = self.scopes.scope(resource, scope)?;
        let number = *self.numbers.entry((scope, metric.key())).or_insert_with(|| {
            let metric = Metric::new(scope, metric, metadata);
            self.bytes += metric.texts.len() + metric.metadata.len();
            self.metrics.push(metric);
            self.metrics.len() - 1
        });
        let points = &mut self.metrics[number].points;
        let len = points.len();
        protobuf::bytes_field(points, 1, &self.point);
        self.bytes += points.len() - len;
        Ok(())
    }

    /// How many bytes the batch has so far, but for some 20 around each resource and scope, and 40 around each
    /// metric.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.scopes.bytes() + self.bytes
    }

    /// The batch: `MetricsData`, which is the same as an `ExportMetricsServiceRequest`.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        for metric in self.metrics {
            self.scopes.put(metric.scope, &metric.message());
        }
        self.scopes.finish()
    }
}

impl Metric {
    fn new(scope: ScopeNumber, metric: &MetricText<'_>, metadata: Vec<u8>) -> Self {
        let mut texts = Vec::new();
        text(&mut texts, 1, metric.name);
        text(&mut texts, 2, metric.description);
        text(&mut texts, 3, metric.unit);
        Self {
            scope,
            form: metric.form,
            temporality: metric.temporality,
            is_monotonic: metric.is_monotonic,
            texts,
            metadata,
            points: Vec::new(),
        }
    }

    fn message(mut self) -> Vec<u8> {
        let mut out = self.texts;
        if let Some(field) = self.form.field() {
            enumerated(&mut self.points, 2, self.temporality);
            number(&mut self.points, 3, u32::from(self.is_monotonic));
            protobuf::bytes_field(&mut out, field, &self.points);
        }
        out.extend_from_slice(&self.metadata);
        out
    }
}

impl MetricText<'_> {
    /// Each text with its length, so that keys are equal only when all is.
    fn key(&self) -> Box<[u8]> {
        let mut key = Vec::new();
        for text in [self.name, self.description, self.unit, self.metadata] {
            protobuf::bytes_field(&mut key, 1, text.as_bytes());
        }
        key.extend_from_slice(&self.temporality.to_le_bytes());
        key.extend_from_slice(&[u8::from(self.is_monotonic), self.form as u8]);
        key.into()
    }
}

impl PointRow<'_> {
    fn write(&self, out: &mut Vec<u8>, form: Form) -> Result<(), BadRow> {
        let (of_attributes, of_flags) = form.fields();
        time(out, 2, self.start_ns);
        time(out, 3, self.time_ns);
        let of_exemplars = match form {
            Form::None | Form::Gauge | Form::Sum => {
                measured(out, 4, self.measured);
                Some(5)
            }
            Form::Histogram => {
                self.distribution.write_histogram(out);
                Some(8)
            }
            Form::ExponentialHistogram => {
                self.distribution.write_exponential(out);
                Some(11)
            }
            Form::Summary => {
                self.distribution.write_summary(out);
                None
            }
        };
        for (nth, exemplar) in self.exemplars.iter().enumerate() {
            let Some(field) = of_exemplars else { break };
            protobuf::long_message_field(out, field, |out| exemplar.write(out, nth))?;
        }
        attributes(out, of_attributes, self.attributes)?;
        number(out, of_flags, self.flags);
        Ok(())
    }
}

/// Writes a number: a double as `field`, a whole one as field 6 of points and exemplars alike.
fn measured(out: &mut Vec<u8>, field: u32, measured: Measured) {
    match measured {
        Measured::None => {}
        Measured::Double(number) => protobuf::fixed64_field(out, field, number.to_bits()),
        Measured::Int(number) => protobuf::fixed64_field(out, 6, number.cast_unsigned()),
    }
}

impl ExemplarRow<'_> {
    fn write(&self, out: &mut Vec<u8>, nth: usize) -> Result<(), BadRow> {
        time(out, 2, self.time_ns);
        measured(out, 3, self.measured);
        span_id(out, 4, self.span_id);
        trace_id(out, 5, self.trace_id);
        object(out, 7, self.attributes).map_err(|fault| RowPart::Exemplar(nth).is(fault))
    }
}

impl Distribution {
    fn write_histogram(&self, out: &mut Vec<u8>) {
        self.write_count(out);
        packed(out, 6, self.bucket_counts.iter().copied());
        packed(out, 7, self.bounds.iter().map(|bound| bound.to_bits()));
        said(out, 11, self.min);
        said(out, 12, self.max);
    }

    fn write_exponential(&self, out: &mut Vec<u8>) {
        self.write_count(out);
        signed(out, 6, self.scale);
        fixed(out, 7, self.zero_count);
        for (field, buckets) in [(8, &self.positive), (9, &self.negative)] {
            if let Some(buckets) = buckets {
                protobuf::long_message_field(out, field, |out| buckets.write(out));
            }
        }
        said(out, 12, self.min);
        said(out, 13, self.max);
        fixed(out, 14, self.zero_threshold.to_bits());
    }

    fn write_summary(&self, out: &mut Vec<u8>) {
        self.write_count(out);
        for at in &self.quantiles {
            protobuf::long_message_field(out, 6, |out| at.write(out));
        }
    }

    fn write_count(&self, out: &mut Vec<u8>) {
        fixed(out, 4, self.count);
        said(out, 5, self.sum);
    }
}

impl Buckets {
    fn write(&self, out: &mut Vec<u8>) {
        signed(out, 1, self.offset);
        if !self.counts.is_empty() {
            protobuf::long_message_field(out, 2, |out| {
                self.counts.iter().for_each(|count| protobuf::varint(out, *count));
            });
        }
    }
}

impl AtQuantile {
    fn write(&self, out: &mut Vec<u8>) {
        fixed(out, 1, self.quantile.to_bits());
        fixed(out, 2, self.value.to_bits());
    }
}

/// A number of eight bytes; zero is left out.
fn fixed(out: &mut Vec<u8>, field: u32, bits: u64) {
    if bits != 0 {
        protobuf::fixed64_field(out, field, bits);
    }
}

/// A number that may be missing; zero is said.
fn said(out: &mut Vec<u8>, field: u32, number: Option<f64>) {
    if let Some(number) = number {
        protobuf::fixed64_field(out, field, number.to_bits());
    }
}

/// A number whose sign is in its last bit.
fn signed(out: &mut Vec<u8>, field: u32, number: i32) {
    if number != 0 {
        protobuf::varint_field(out, field, protobuf::zigzag(number.into()));
    }
}

/// Numbers of eight bytes as one field.
fn packed(out: &mut Vec<u8>, field: u32, all: impl ExactSizeIterator<Item = u64>) {
    if all.len() > 0 {
        protobuf::tag(out, field, LEN);
        protobuf::varint(out, 8 * all.len() as u64);
        all.for_each(|bits| out.extend_from_slice(&bits.to_le_bytes()));
    }
}
