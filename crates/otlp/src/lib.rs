//! OTLP: decodes batches to rows in one pass, and encodes rows to batches.
//!
//! A decoded batch of protobuf keeps its bytes. A row has the numbers of a span, a log record or a metric point, and
//! the positions of its texts in the batch ([`Slice`]). Attributes are entries of lists that the whole batch shares
//! ([`Attribute`]), so none needs an allocation of its own. A batch in JSON is first converted to protobuf ([`json`]).
//!
//! | signal | decoder | rows | encoder |
//! |---|---|---|---|
//! | traces | [`Spans::decode`] | [`Span`], [`Event`], [`Link`] | [`BatchWriter`] of [`SpanRow`] |
//! | logs | [`Logs::decode`] | [`LogRecord`] | [`BatchWriter`] of [`LogRow`] |
//! | metrics | [`Points::decode`] | [`Point`], [`Metric`], [`Details`] | |
//! | any | [`Decoded::of`] | [`Decoded`] | |
//!
//! An encoder takes the rows of a table. Their attributes without a column are [`plain`] JSON, which it converts back
//! to protobuf without loss.
//!
//! **Errors**: bytes that are no OTLP message make the whole batch [`Malformed`], with the position of the fault and
//! the name of the message that has it. A row that cannot be stored (no trace ID, invalid UTF-8, beyond the [`Limits`])
//! is rejected and counted; [`Refused`] has the number of these rows, and the first of them with the reason.
//!
//! **Source**: opentelemetry-proto 1.x; the OTLP specification for JSON; protobuf's encoding guide.

mod attributes;
mod check;
mod decoded;
mod encode;
mod envelope;
mod error;
pub mod events;
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
    BadRow, BatchWriter, EventRow, LinkRow, LogRow, PlainValue, ResourceText, RowPart, ScopeText,
    SpanRow,
};
pub use envelope::{Envelope, Resource, Scope};
pub use error::{Fault, Malformed, Refused, RefusedRow, RowFault};
pub use limits::Limits;
pub use logs::{LogRecord, Logs};
pub use metrics::{
    AtQuantile, Buckets, Details, Distribution, Exemplar, Form, Measured, Metric, Point, Points,
};
pub use response::{Signal, json_response, left_out, response, status, status_message};
pub use slice::Slice;
pub use spans::{Event, Link, Span, Spans};
