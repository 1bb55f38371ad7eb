//! The table of points: one row a measurement of a metric, of whichever form.
//!
//! Rows are sorted by series, then time. A column that a form has no use for has nothing in its rows: `count`
//! to `max` are of histograms and summaries, `bounds` and `bucket_counts` of histograms, `scale` to
//! `negative_counts` of exponential ones, `quantiles` of summaries.
//!
//! Counts have 64 bits without a sign in OTLP and with one here. The bits are kept: a count above 2^63 is
//! negative in the table. Doubles keep their bits as well, those of a NaN and of -0.0 too.
//!
//! An exemplar has its value twice: `value` is a double whatever it was; it says in `value_kind` whether it was
//! `double`, `int`, which is whole in `value_int`, or `none`. IDs that an exemplar does not have are all zero.

use super::{Field, Form, Kind, Table, envelope, fields, optional, required};
use curtail_otlp::Form as Measures;
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

/// What `kind` says.
pub(crate) const KINDS: [(Measures, &str); 6] = [
    (Measures::None, "none"),
    (Measures::Gauge, "gauge"),
    (Measures::Sum, "sum"),
    (Measures::Histogram, "histogram"),
    (Measures::ExponentialHistogram, "exponential_histogram"),
    (Measures::Summary, "summary"),
];

/// What `temporality` says, by OTLP's number.
pub(crate) const TEMPORALITIES: [&str; 3] = ["unspecified", "delta", "cumulative"];

/// The table.
pub static POINTS: LazyLock<Table> =
    LazyLock::new(|| Table::new("points", ((SERIES_ID, TIME), None), FIELDS, &[]));
