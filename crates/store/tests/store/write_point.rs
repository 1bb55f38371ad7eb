//! Rows of the table of points as a batch of metrics.

use crate::metrics_writer::{ExemplarRow, MetricText, MetricsWriter, PointRow};
use curtail_otlp::{
    AtQuantile, BadRow, Buckets, Distribution, Exemplar, Form, Measured, PlainValue, ResourceText,
    ScopeText,
};
use curtail_store::schema::envelope::{
    ATTRIBUTES_BOOL, ATTRIBUTES_DOUBLE, ATTRIBUTES_INT, ATTRIBUTES_JSON, ATTRIBUTES_TEXT, RESOURCE,
    RESOURCE_DROPPED, RESOURCE_SCHEMA_URL, SCOPE, SCOPE_DROPPED, SCOPE_NAME, SCOPE_SCHEMA_URL,
    SCOPE_VERSION,
};
use curtail_store::schema::points::{
    BOUNDS, BUCKET_COUNTS, COUNT, DESCRIPTION, EXEMPLARS, FLAGS, IS_MONOTONIC, KIND, MAX, METADATA,
    METRIC, MIN, NEGATIVE_COUNTS, NEGATIVE_OFFSET, POSITIVE_COUNTS, POSITIVE_OFFSET, QUANTILES,
    SCALE, START, SUM, TEMPORALITY, TIME, UNIT, VALUE_DOUBLE, VALUE_INT, ZERO_COUNT,
    ZERO_THRESHOLD,
};
use curtail_store::{Columns, Values};

const KINDS: [(Form, &str); 5] = [
    (Form::Gauge, "gauge"),
    (Form::Sum, "sum"),
    (Form::Histogram, "histogram"),
    (Form::ExponentialHistogram, "exponential_histogram"),
    (Form::Summary, "summary"),
];

/// Adds a point to a batch of metrics. Its attributes come by their kinds.
pub(crate) fn write_point(
    writer: &mut MetricsWriter,
    rows: &Columns,
    row: usize,
) -> Result<(), BadRow> {
    let text = |field: usize| rows.coded(field).text(row);
    let kind = KINDS.iter().find(|(_, name)| *name == text(KIND));
    let metric = MetricText {
        name: text(METRIC),
        description: text(DESCRIPTION),
        unit: text(UNIT),
        form: kind.map(|(form, _)| *form).unwrap_or_default(),
        temporality: temporality(text(TEMPORALITY)),
        is_monotonic: rows.coded(IS_MONOTONIC).get(row) == Some(&[1]),
        metadata: text(METADATA),
    };
    let measured = match (rows.coded(VALUE_INT).int(row), double(rows, VALUE_DOUBLE, row)) {
        (Some(number), _) => Measured::Int(number),
        (None, Some(number)) => Measured::Double(number),
        (None, None) => Measured::None,
    };
    let point = PointRow {
        start_ns: rows.longs(START)[row].cast_unsigned(),
        time_ns: rows.longs(TIME)[row].cast_unsigned(),
        measured,
        distribution: distribution(rows, row),
        exemplars: &exemplars(rows, row),
        attributes: &attributes(rows, row),
        flags: count(rows, FLAGS, row),
    };
    writer.point(&resource(rows, row), &scope(rows, row), &metric, &point)
}

/// OTLP's number of a name; unknown ones are digits.
fn temporality(name: &str) -> i32 {
    match name {
        "delta" => 1,
        "cumulative" => 2,
        other => other.parse().unwrap_or_default(),
    }
}

fn resource(rows: &Columns, row: usize) -> ResourceText<'_> {
    ResourceText {
        attributes: rows.coded(RESOURCE).text(row),
        dropped_attributes: count(rows, RESOURCE_DROPPED, row),
        schema_url: rows.coded(RESOURCE_SCHEMA_URL).text(row),
    }
}

fn scope(rows: &Columns, row: usize) -> ScopeText<'_> {
    ScopeText {
        name: rows.coded(SCOPE_NAME).text(row),
        version: rows.coded(SCOPE_VERSION).text(row),
        attributes: rows.coded(SCOPE).text(row),
        dropped_attributes: count(rows, SCOPE_DROPPED, row),
        schema_url: rows.coded(SCOPE_SCHEMA_URL).text(row),
    }
}

/// Reads the value of an attribute.
type ReadValue = fn(&[u8]) -> PlainValue<'_>;

fn attributes(rows: &Columns, row: usize) -> Vec<(&str, PlainValue<'_>)> {
    let maps: [(usize, ReadValue); 5] = [
        (ATTRIBUTES_TEXT, |value| PlainValue::Text(text(value))),
        (ATTRIBUTES_INT, |value| PlainValue::Int(int(value))),
        (ATTRIBUTES_DOUBLE, |value| PlainValue::Double(f64::from_bits(bits(value)))),
        (ATTRIBUTES_BOOL, |value| PlainValue::Bool(value != [0])),
        (ATTRIBUTES_JSON, |value| PlainValue::Json(text(value))),
    ];
    let mut attributes = Vec::new();
    for (field, plain) in maps {
        let lists = rows.lists(field);
        let [keys, values] = lists.parts() else { panic!("a map has keys and values") };
        let entries = lists.entries(row);
        attributes.extend(entries.map(|at| (text(value(keys, at)), plain(value(values, at)))));
    }
    attributes
}

fn count(rows: &Columns, field: usize, row: usize) -> u32 {
    let number = rows.coded(field).int(row).unwrap_or_default();
    u32::try_from(number).expect("a count of 32 bits")
}

/// The value of an entry's part that has a dictionary.
fn value(part: &Values, entry: usize) -> &[u8] {
    let Values::Coded(coded) = part else { panic!("the part has no dictionary") };
    coded.get(entry).unwrap_or_default()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

fn int(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn distribution(rows: &Columns, row: usize) -> Distribution {
    let bits = |field: usize| rows.coded(field).int(row).unwrap_or_default().cast_unsigned();
    let bounds = numbers(rows, BOUNDS, row).map(f64::from_bits);
    Distribution {
        count: bits(COUNT),
        sum: double(rows, SUM, row),
        min: double(rows, MIN, row),
        max: double(rows, MAX, row),
        bounds: bounds.collect(),
        bucket_counts: numbers(rows, BUCKET_COUNTS, row).collect(),
        scale: rows.coded(SCALE).int(row).map_or(0, signed),
        zero_count: bits(ZERO_COUNT),
        zero_threshold: f64::from_bits(bits(ZERO_THRESHOLD)),
        positive: buckets(rows, (POSITIVE_OFFSET, POSITIVE_COUNTS), row),
        negative: buckets(rows, (NEGATIVE_OFFSET, NEGATIVE_COUNTS), row),
        quantiles: quantiles(rows, row),
    }
}

fn double(rows: &Columns, field: usize, row: usize) -> Option<f64> {
    rows.coded(field).get(row).map(|bytes| f64::from_bits(bits(bytes)))
}

fn bits(bytes: &[u8]) -> u64 {
    int(bytes).cast_unsigned()
}

/// A number of 32 bits.
fn signed(number: i64) -> i32 {
    i32::try_from(number).unwrap_or_default()
}

/// The bits of each number of a list.
fn numbers(rows: &Columns, field: usize, row: usize) -> impl Iterator<Item = u64> {
    let lists = rows.lists(field);
    let parts = lists.parts().first();
    lists.entries(row).filter_map(move |entry| Some(bits(value(parts?, entry))))
}

fn buckets(rows: &Columns, fields: (usize, usize), row: usize) -> Option<Buckets> {
    let offset = signed(rows.coded(fields.0).int(row)?);
    Some(Buckets { offset, counts: numbers(rows, fields.1, row).collect() })
}

fn quantiles(rows: &Columns, row: usize) -> Vec<AtQuantile> {
    let lists = rows.lists(QUANTILES);
    let [quantiles, values] = lists.parts() else { return Vec::new() };
    let at = |entry: usize| AtQuantile {
        quantile: f64::from_bits(bits(value(quantiles, entry))),
        value: f64::from_bits(bits(value(values, entry))),
    };
    lists.entries(row).map(at).collect()
}

fn exemplars(rows: &Columns, row: usize) -> Vec<ExemplarRow<'_>> {
    let lists = rows.lists(EXEMPLARS);
    let [
        Values::Longs(times),
        values,
        kinds,
        ints,
        Values::Wide(traces),
        Values::Narrow(spans),
        attributes,
    ] = lists.parts()
    else {
        return Vec::new();
    };
    let exemplar = |entry: usize| {
        let measured = match value(kinds, entry) {
            b"int" => Measured::Int(int(value(ints, entry))),
            b"double" => Measured::Double(f64::from_bits(bits(value(values, entry)))),
            _ => Measured::None,
        };
        let (trace_id, span_id) = (traces[entry], spans[entry]);
        let time_ns = times[entry].cast_unsigned();
        let exemplar = Exemplar { time_ns, measured, trace_id, span_id, ..Exemplar::default() };
        (exemplar, text(value(attributes, entry)))
    };
    lists.entries(row).map(exemplar).collect()
}
