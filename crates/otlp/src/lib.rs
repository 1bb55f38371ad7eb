//! OTLP: what OpenTelemetry sends, from bytes to rows, in one pass.
//!
//! A batch of protobuf stays as it came: a row holds the numbers of a span, a log record or a metric point,
//! and the *places* of its texts in the batch ([`Slice`]). Nothing is copied and nothing is allocated for an
//! attribute but its place in one list ([`Attribute`]). JSON is rewritten as protobuf first ([`json`]), so
//! that everything behind this crate knows one form.
//!
//! | of | use | gives | and back from |
//! |---|---|---|---|
//! | traces | [`Spans::decode`] | [`Span`], [`Event`], [`Link`] | [`SpanRow`], by [`BatchWriter`] |
//! | logs | [`Logs::decode`] | [`LogRecord`] | [`LogRow`], by [`BatchWriter`] |
//! | metrics | [`Points::decode`] | [`Point`], [`Metric`], [`Details`] | [`PointRow`], by [`MetricsWriter`] |
//! | whichever | [`Decoded::of`] | [`Decoded`] | |
//!
//! The way back begins at a table, which keeps texts and not places: attributes that it keeps as text are
//! [`plain`] JSON there, which people can query and which becomes protobuf again without a loss.
//!
//! **Errors** of a batch are of two kinds. Bytes that are no message of OTLP make
//! the whole batch [`Malformed`], with the byte and the message; a row that is one and cannot be kept (no
//! trace ID, text that is not UTF-8, more attributes or deeper values than [`Limits`] allow) is left out and
//! counted, and the first one named with its reason ([`Refused`]).
//!
//! **Source**: opentelemetry-proto 1.x; the OTLP specification for JSON; protobuf's encoding guide.

mod attributes;
mod check;
mod decoded;
mod encode;
mod envelope;
mod error;
pub mod json;
mod judge;
mod limits;
mod logs;
mod metrics;
pub mod plain;
mod response;
mod schema;
mod slice;
mod spans;
mod wire;

pub use attributes::{Attribute, Value};
pub use decoded::Decoded;
pub use encode::{
    BadRow, BatchWriter, EventRow, ExemplarRow, LinkRow, LogRow, MetricText, MetricsWriter,
    PlainValue, PointRow, ResourceText, RowPart, ScopeText, SpanRow,
};
pub use envelope::{Envelope, Resource, Scope};
pub use error::{Fault, Malformed, Refused, RefusedRow, RowFault};
pub use limits::Limits;
pub use logs::{LogRecord, Logs};
pub use metrics::{
    AtQuantile, Buckets, Details, Distribution, Exemplar, Form, Measured, Metric, Point, Points,
};
pub use response::{Signal, json_response, left_out, response, status};
pub use slice::{Range, Slice};
pub use spans::{Event, Link, Span, Spans};
