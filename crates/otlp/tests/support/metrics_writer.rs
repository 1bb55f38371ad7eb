//! Points as batches of metrics, for tests. Points of the same metric, scope and resource are in one message.

use curtail_otlp::plain::{NotPlain, write_attributes, write_value};
use curtail_otlp::{
    BadRow, Buckets, Distribution, Exemplar, Form, Measured, PlainValue, ResourceText, RowPart,
    ScopeText,
};
use curtail_protobuf as protobuf;

/// A metric, as a table has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MetricText<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) form: Form,
    pub(crate) temporality: i32,
    pub(crate) is_monotonic: bool,
    /// Plain JSON; empty: none.
    pub(crate) metadata: &'a str,
}

/// A point, as a table has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PointRow<'a> {
    pub(crate) start_ns: u64,
    pub(crate) time_ns: u64,
    pub(crate) measured: Measured,
    pub(crate) distribution: Distribution,
    pub(crate) exemplars: &'a [ExemplarRow<'a>],
    pub(crate) attributes: &'a [(&'a str, PlainValue<'a>)],
    pub(crate) flags: u32,
}

/// An exemplar, and its attributes as plain JSON.
pub(crate) type ExemplarRow<'a> = (Exemplar, &'a str);

/// A batch of metrics that grows point by point.
#[derive(Debug, Default)]
pub(crate) struct MetricsWriter {
    batch: Message,
}

/// A message, its fields before and after the inner messages and rows.
#[derive(Debug, Default)]
struct Message {
    field: u32,
    /// The form, temporality and monotonicity of a metric.
    kind: (Form, i32, bool),
    head: Vec<u8>,
    inner: Vec<Self>,
    rows: Vec<u8>,
    tail: Vec<u8>,
}

impl MetricsWriter {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn point(
        &mut self,
        resource: &ResourceText<'_>,
        scope: &ScopeText<'_>,
        metric: &MetricText<'_>,
        point: &PointRow<'_>,
    ) -> Result<(), BadRow> {
        let bad = |part: RowPart| move |fault: NotPlain| BadRow { part, fault };
        let resource = resource_message(resource).map_err(bad(RowPart::Resource))?;
        let scope = scope_message(scope).map_err(bad(RowPart::Scope))?;
        let of_metric = metric_message(metric).map_err(bad(RowPart::Resource))?;
        let mut row = Vec::new();
        write_point(&mut row, metric.form, point).map_err(bad(RowPart::Body))?;
        let message = self.batch.inner(resource).inner(scope).inner(of_metric);
        if let Some(data) = data_message(metric) {
            protobuf::bytes_field(&mut message.inner(data).rows, 1, &row);
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let mut out = Vec::new();
        self.batch.write(&mut out);
        out
    }
}

impl Message {
    /// The inner message that equals `message` except for its content; it is added if there is none.
    fn inner(&mut self, message: Self) -> &mut Self {
        let is_it = |each: &Self| {
            (each.field, each.kind, &each.head, &each.tail)
                == (message.field, message.kind, &message.head, &message.tail)
        };
        let at = self.inner.iter().position(is_it).unwrap_or(self.inner.len());
        if at == self.inner.len() {
            self.inner.push(message);
        }
        &mut self.inner[at]
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        for message in &self.inner {
            protobuf::long_message_field(out, message.field, |out| message.write(out));
        }
        out.extend_from_slice(&self.rows);
        out.extend_from_slice(&self.tail);
    }
}

/// `ResourceMetrics`.
fn resource_message(resource: &ResourceText<'_>) -> Result<Message, NotPlain> {
    let mut message = Message { field: 1, ..Message::default() };
    protobuf::long_message_field(&mut message.head, 1, |out| {
        number(out, 2, resource.dropped_attributes.into());
        object(out, 1, resource.attributes)
    })?;
    text(&mut message.tail, 3, resource.schema_url);
    Ok(message)
}

/// `ScopeMetrics`.
fn scope_message(scope: &ScopeText<'_>) -> Result<Message, NotPlain> {
    let mut message = Message { field: 2, ..Message::default() };
    protobuf::long_message_field(&mut message.head, 1, |out| {
        text(out, 1, scope.name);
        text(out, 2, scope.version);
        number(out, 4, scope.dropped_attributes.into());
        object(out, 3, scope.attributes)
    })?;
    text(&mut message.tail, 3, scope.schema_url);
    Ok(message)
}

/// `Metric`.
fn metric_message(metric: &MetricText<'_>) -> Result<Message, NotPlain> {
    let kind = (metric.form, metric.temporality, metric.is_monotonic);
    let mut message = Message { field: 2, kind, ..Message::default() };
    text(&mut message.head, 1, metric.name);
    text(&mut message.head, 2, metric.description);
    text(&mut message.head, 3, metric.unit);
    object(&mut message.tail, 12, metric.metadata)?;
    Ok(message)
}

/// `Gauge`, `Sum`, `Histogram`, `ExponentialHistogram` or `Summary`.
fn data_message(metric: &MetricText<'_>) -> Option<Message> {
    let field = match metric.form {
        Form::None => return None,
        Form::Gauge => 5,
        Form::Sum => 7,
        Form::Histogram => 9,
        Form::ExponentialHistogram => 10,
        Form::Summary => 11,
    };
    let mut message = Message { field, ..Message::default() };
    number(&mut message.tail, 2, i64::from(metric.temporality).cast_unsigned());
    number(&mut message.tail, 3, metric.is_monotonic.into());
    Some(message)
}

fn write_point(out: &mut Vec<u8>, form: Form, point: &PointRow<'_>) -> Result<(), NotPlain> {
    fixed(out, 2, point.start_ns);
    fixed(out, 3, point.time_ns);
    // The numbers of the fields of exemplars, attributes and flags; a summary has no exemplars.
    let (of_exemplars, of_attributes, of_flags) = match form {
        Form::None | Form::Gauge | Form::Sum => (Some(5), 7, 8),
        Form::Histogram => (Some(8), 9, 10),
        Form::ExponentialHistogram => (Some(11), 1, 10),
        Form::Summary => (None, 7, 8),
    };
    match form {
        Form::None | Form::Gauge | Form::Sum => write_measured(out, 4, point.measured),
        Form::Histogram => write_histogram(out, &point.distribution),
        Form::ExponentialHistogram => write_exponential(out, &point.distribution),
        Form::Summary => write_summary(out, &point.distribution),
    }
    for (exemplar, attributes) in point.exemplars {
        let Some(field) = of_exemplars else { break };
        protobuf::long_message_field(out, field, |out| {
            fixed(out, 2, exemplar.time_ns);
            write_measured(out, 3, exemplar.measured);
            if exemplar.span_id != 0 {
                protobuf::bytes_field(out, 4, &exemplar.span_id.to_be_bytes());
            }
            if exemplar.trace_id != 0 {
                protobuf::bytes_field(out, 5, &exemplar.trace_id.to_be_bytes());
            }
            object(out, 7, attributes)
        })?;
    }
    for (key, value) in point.attributes {
        protobuf::long_message_field(out, of_attributes, |out| {
            protobuf::bytes_field(out, 1, key.as_bytes());
            protobuf::long_message_field(out, 2, |out| write_any_value(out, *value))
        })?;
    }
    number(out, of_flags, point.flags.into());
    Ok(())
}

fn write_any_value(out: &mut Vec<u8>, value: PlainValue<'_>) -> Result<(), NotPlain> {
    match value {
        PlainValue::Text(text) => protobuf::bytes_field(out, 1, text.as_bytes()),
        PlainValue::Bool(is_true) => protobuf::varint_field(out, 2, u64::from(is_true)),
        PlainValue::Int(number) => protobuf::varint_field(out, 3, number.cast_unsigned()),
        PlainValue::Double(number) => protobuf::fixed64_field(out, 4, number.to_bits()),
        PlainValue::Json(json) => return write_value(out, json.as_bytes()),
    }
    Ok(())
}

/// Writes a double as `field`, an integer as field 6 of points and exemplars alike.
fn write_measured(out: &mut Vec<u8>, field: u32, measured: Measured) {
    match measured {
        Measured::None => {}
        Measured::Double(number) => protobuf::fixed64_field(out, field, number.to_bits()),
        Measured::Int(number) => protobuf::fixed64_field(out, 6, number.cast_unsigned()),
    }
}

fn write_histogram(out: &mut Vec<u8>, distribution: &Distribution) {
    fixed(out, 4, distribution.count);
    optional(out, 5, distribution.sum);
    packed(out, 6, distribution.bucket_counts.iter().copied());
    packed(out, 7, distribution.bounds.iter().map(|bound| bound.to_bits()));
    optional(out, 11, distribution.min);
    optional(out, 12, distribution.max);
}

fn write_exponential(out: &mut Vec<u8>, distribution: &Distribution) {
    fixed(out, 4, distribution.count);
    optional(out, 5, distribution.sum);
    number(out, 6, protobuf::zigzag(distribution.scale.into()));
    fixed(out, 7, distribution.zero_count);
    write_buckets(out, 8, distribution.positive.as_ref());
    write_buckets(out, 9, distribution.negative.as_ref());
    optional(out, 12, distribution.min);
    optional(out, 13, distribution.max);
    fixed(out, 14, distribution.zero_threshold.to_bits());
}

fn write_buckets(out: &mut Vec<u8>, field: u32, buckets: Option<&Buckets>) {
    let Some(Buckets { offset, counts }) = buckets else { return };
    protobuf::long_message_field(out, field, |out| {
        number(out, 1, protobuf::zigzag((*offset).into()));
        if !counts.is_empty() {
            protobuf::long_message_field(out, 2, |out| {
                counts.iter().for_each(|count| protobuf::varint(out, *count));
            });
        }
    });
}

fn write_summary(out: &mut Vec<u8>, distribution: &Distribution) {
    fixed(out, 4, distribution.count);
    optional(out, 5, distribution.sum);
    for at in &distribution.quantiles {
        protobuf::long_message_field(out, 6, |out| {
            fixed(out, 1, at.quantile.to_bits());
            fixed(out, 2, at.value.to_bits());
        });
    }
}

fn object(out: &mut Vec<u8>, field: u32, json: &str) -> Result<(), NotPlain> {
    if json.is_empty() { Ok(()) } else { write_attributes(out, field, json.as_bytes()) }
}

fn text(out: &mut Vec<u8>, field: u32, text: &str) {
    if !text.is_empty() {
        protobuf::bytes_field(out, field, text.as_bytes());
    }
}

fn number(out: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        protobuf::varint_field(out, field, number);
    }
}

fn fixed(out: &mut Vec<u8>, field: u32, bits: u64) {
    if bits != 0 {
        protobuf::fixed64_field(out, field, bits);
    }
}

/// Writes a number that may be missing, even if it is zero.
fn optional(out: &mut Vec<u8>, field: u32, number: Option<f64>) {
    if let Some(number) = number {
        protobuf::fixed64_field(out, field, number.to_bits());
    }
}

fn packed(out: &mut Vec<u8>, field: u32, all: impl ExactSizeIterator<Item = u64>) {
    if all.len() > 0 {
        protobuf::long_message_field(out, field, |out| {
            all.for_each(|bits| out.extend_from_slice(&bits.to_le_bytes()));
        });
    }
}
