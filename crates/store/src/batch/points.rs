//! Rows of the table of points.

use super::{attributes, count, resource, scope, value};
use crate::columns::{Columns, Values, int, text};
use crate::schema::number;
use crate::schema::points::{
    BOUNDS, BUCKET_COUNTS, COUNT, DESCRIPTION, EXEMPLARS, FLAGS, IS_MONOTONIC, KIND, KINDS, MAX,
    METADATA, METRIC, MIN, NEGATIVE_COUNTS, NEGATIVE_OFFSET, POINTS, POSITIVE_COUNTS,
    POSITIVE_OFFSET, QUANTILES, SCALE, START, SUM, TEMPORALITIES, TEMPORALITY, TIME, UNIT,
    VALUE_DOUBLE, VALUE_INT, ZERO_COUNT, ZERO_THRESHOLD,
};
use curtail_otlp::{
    AtQuantile, BadRow, Buckets, Distribution, ExemplarRow, Measured, MetricText, MetricsWriter,
    PointRow,
};

/// Adds a point to a batch of metrics. Its attributes come by their kinds.
///
/// # Errors
/// When what should be JSON in the row is none.
///
/// # Panics
/// When there is no such row, or the rows are not points.
pub fn write_point(writer: &mut MetricsWriter, rows: &Columns, row: usize) -> Result<(), BadRow> {
    let text = |field: usize| rows.coded(field).text(row);
    let kind = KINDS.iter().find(|(_, name)| *name == text(KIND));
    let metric = MetricText {
        name: text(METRIC),
        description: text(DESCRIPTION),
        unit: text(UNIT),
        form: kind.map(|(form, _)| *form).unwrap_or_default(),
        temporality: number(&TEMPORALITIES, text(TEMPORALITY)),
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
        distribution: &distribution(rows, row),
        exemplars: &exemplars(rows, row),
        attributes: &attributes(rows, row, &POINTS),
        flags: count(rows, FLAGS, row),
    };
    writer.point(&resource(rows, row), &scope(rows, row), &metric, &point)
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

/// What came with 32 bits.
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
    let exemplar = |entry: usize| ExemplarRow {
        time_ns: times[entry].cast_unsigned(),
        measured: match value(kinds, entry) {
            b"int" => Measured::Int(int(value(ints, entry))),
            b"double" => Measured::Double(f64::from_bits(bits(value(values, entry)))),
            _ => Measured::None,
        },
        trace_id: traces[entry],
        span_id: spans[entry],
        attributes: text(value(attributes, entry)),
    };
    lists.entries(row).map(exemplar).collect()
}
