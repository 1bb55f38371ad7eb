//! The table of points: one row for each point of a metric, sorted by series and time.
//!
//! Histograms have the columns `count`, `sum`, `min`, `max`, `bounds` and `bucket_counts`. Exponential histograms have
//! `count`, `sum`, `min`, `max`, and the columns from `scale` to `negative_counts`. Summaries have `count`, `sum` and
//! `quantiles`. In other rows, these columns are null or an empty list.
//!
//! Counts keep the bits of OTLP's unsigned numbers, so they are negative from 2^63 on. Doubles keep their bits.
//!
//! The `value` of an exemplar is a double. Its `value_kind` is `double`, `int` (exact in `value_int`) or `none`. Its
//! missing IDs are zero.

use super::{Field, Form, Kind, Origin, Schema, Table, envelope, fields, optional, required};
use curtail_otlp::{Form as Measures, Signal};
use std::sync::LazyLock;

fields! {
    after envelope::LEN;
    SERIES_ID "series_id" required(Kind::Wide);
    TIME "time_ns" required(Kind::Long);
    START "start_ns" required(Kind::Long);
    METRIC "metric" optional(Kind::Text);
    DESCRIPTION "description" optional(Kind::Text);
    UNIT "unit" optional(Kind::Text);
    KIND "kind" optional(Kind::Text);
    TEMPORALITY "temporality" optional(Kind::Text);
    IS_MONOTONIC "is_monotonic" optional(Kind::Bool);
    METADATA "metadata" optional(Kind::Text);
    VALUE_INT "value_int" optional(Kind::Int);
    VALUE_DOUBLE "value_double" optional(Kind::Double);
    COUNT "count" optional(Kind::Int);
    SUM "sum" optional(Kind::Double);
    MIN "min" optional(Kind::Double);
    MAX "max" optional(Kind::Double);
    BOUNDS "bounds" Form::Values(Kind::Double);
    BUCKET_COUNTS "bucket_counts" Form::Values(Kind::Int);
    SCALE "scale" optional(Kind::Int);
    ZERO_COUNT "zero_count" optional(Kind::Int);
    ZERO_THRESHOLD "zero_threshold" optional(Kind::Double);
    POSITIVE_OFFSET "positive_offset" optional(Kind::Int);
    POSITIVE_COUNTS "positive_counts" Form::Values(Kind::Int);
    NEGATIVE_OFFSET "negative_offset" optional(Kind::Int);
    NEGATIVE_COUNTS "negative_counts" Form::Values(Kind::Int);
    QUANTILES "quantiles" Form::List(&[("quantile", Kind::Double), ("value", Kind::Double)]);
    EXEMPLARS "exemplars" Form::List(&[
        ("time_ns", Kind::Long),
        ("value", Kind::Double),
        ("value_kind", Kind::Text),
        ("value_int", Kind::Int),
        ("trace_id", Kind::Wide),
        ("span_id", Kind::Narrow),
        ("attributes", Kind::Text),
    ]);
    FLAGS "flags" optional(Kind::Int);
}

/// The values of `kind`.
pub(crate) const KINDS: [(Measures, &str); 6] = [
    (Measures::None, "none"),
    (Measures::Gauge, "gauge"),
    (Measures::Sum, "sum"),
    (Measures::Histogram, "histogram"),
    (Measures::ExponentialHistogram, "exponential_histogram"),
    (Measures::Summary, "summary"),
];

/// The values of `temporality` by OTLP's number.
pub(crate) const TEMPORALITIES: [&str; 3] = ["unspecified", "delta", "cumulative"];

/// The table of points.
pub static POINTS: LazyLock<Table> = LazyLock::new(|| Table {
    name: "points",
    schema: Schema::ingested(FIELDS, &[]),
    order: (SERIES_ID, TIME),
    identity: None,
    zones: &[SERIES_ID, TIME, START],
    indexes: &[],
    origin: Origin::Ingested(Signal::Metrics),
});
