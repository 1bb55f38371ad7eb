//! The table of traces: one row for each trace of a run of spans.
//!
//! The root is the span without a parent that starts first. If the run does not have it, its fields are null.
//!
//! `is_whole` is true if the run has one span without a parent, and the parent of every other span. It is false for
//! most traces that are split between runs. It is true for a split trace if the run has the root, and no span whose
//! parent is in another run.
//!
//! `weight` is the number of traces that a row stands for: one, unless the day was reduced to its [tail](crate::tail).

use super::spans::SPANS;
use super::{Field, Form, Kind, Origin, Schema, Table, fields, optional, required};
use std::sync::LazyLock;

fields! {
    after 0;
    TENANT "tenant" optional(Kind::Text);
    TRACE_ID "trace_id" required(Kind::Wide);
    START "start_ns" required(Kind::Long);
    DURATION "duration_ns" required(Kind::Long);
    ROOT_SERVICE "root_service" optional(Kind::Text);
    ROOT_NAME "root_name" optional(Kind::Text);
    ROOT_STATUS "root_status" optional(Kind::Text);
    ROOT_DURATION "root_duration_ns" optional(Kind::Int);
    REQUEST_BYTES "root_request_bytes" optional(Kind::Int);
    RESPONSE_BYTES "root_response_bytes" optional(Kind::Int);
    STATUS "status" optional(Kind::Text);
    IS_WHOLE "is_whole" optional(Kind::Bool);
    SPAN_COUNT "span_count" required(Kind::Long);
    ERROR_COUNT "error_span_count" required(Kind::Long);
    ORPHAN_COUNT "orphan_span_count" required(Kind::Long);
    RETRY_COUNT "retry_count" required(Kind::Long);
    SERVICES "services" Form::List(&[
        ("name", Kind::Text),
        ("span_count", Kind::Long),
        ("error_span_count", Kind::Long),
    ]);
    CRITICAL_PATH "critical_path_ns" Form::Map(Kind::Long);
    WEIGHT "weight" required(Kind::Long);
}

/// The table of traces.
pub static TRACES: LazyLock<Table> = LazyLock::new(|| Table {
    name: "traces",
    schema: Schema::of(FIELDS.to_vec()),
    order: (TRACE_ID, START),
    identity: None,
    zones: &[TRACE_ID, START, DURATION, SPAN_COUNT, ERROR_COUNT, ORPHAN_COUNT, RETRY_COUNT, WEIGHT],
    indexes: &[],
    origin: Origin::Derived(&SPANS),
});
