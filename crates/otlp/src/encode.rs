//! Encodes the rows of a table as OTLP batches.
//!
//! Each row has the texts of its resource and scope. Rows with equal texts are grouped in the batch, in the order of
//! first occurrence. Zeros and empty texts are omitted, as in protobuf. Empty messages of a resource, a scope and a
//! status are also written, as every SDK and the Collector do, because clients compare traces field by field.
//!
//! **Inputs**: times in nanoseconds since 1970; sets of attributes, and values without a column, as [plain JSON](crate::plain).
//!
//! **Limits**: memory holds the batch, and the texts of resources and scopes. The caller checks [`BatchWriter::bytes`].
//!
//! **Source**: opentelemetry-proto 1.9, for the field numbers.

mod batch_writer;
mod logs;
mod traces;

pub use batch_writer::BatchWriter;
pub use logs::LogRow;
pub use traces::{EventRow, LinkRow, SpanRow};

use crate::plain::{self, NotPlain};
use curtail_protobuf as protobuf;

/// The resource of a row of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceText<'a> {
    /// The attributes in plain JSON; empty: none.
    pub attributes: &'a str,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
    /// The schema of the attribute names.
    pub schema_url: &'a str,
}

/// The scope of a row of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScopeText<'a> {
    /// The name.
    pub name: &'a str,
    /// The version.
    pub version: &'a str,
    /// The attributes in plain JSON; empty: none.
    pub attributes: &'a str,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
    /// The schema of the attribute names of the rows.
    pub schema_url: &'a str,
}

/// A value of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PlainValue<'a> {
    /// A text.
    Text(&'a str),
    /// A whole number.
    Int(i64),
    /// A double, which may be NaN.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// Any other value, as plain JSON.
    Json(&'a str),
}

/// A row that was not written, because a part of it is not plain JSON.
#[derive(Debug, thiserror::Error)]
#[error("{part}: {fault}")]
pub struct BadRow {
    /// The part that is not plain JSON.
    pub part: RowPart,
    /// The error.
    pub fault: NotPlain,
}

/// The parts of a row that are plain JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowPart {
    /// The attributes of the resource.
    #[error("the attributes of its resource")]
    Resource,
    /// The attributes of the scope.
    #[error("the attributes of its scope")]
    Scope,
    /// An attribute, by its key.
    #[error("its attribute {0:?}")]
    Attribute(Box<str>),
    /// The attributes of an event; events count from 0.
    #[error("the attributes of its event {0}")]
    Event(usize),
    /// The attributes of a link; links count from 0.
    #[error("the attributes of its link {0}")]
    Link(usize),
    /// The body of a log record.
    #[error("its body")]
    Body,
}

impl RowPart {
    fn is(self, fault: NotPlain) -> BadRow {
        BadRow { part: self, fault }
    }
}

impl PlainValue<'_> {
    /// Writes the value as the content of an `AnyValue`.
    fn write(self, out: &mut Vec<u8>) -> Result<(), NotPlain> {
        match self {
            Self::Text(text) => protobuf::bytes_field(out, 1, text.as_bytes()),
            Self::Bool(is_true) => protobuf::varint_field(out, 2, u64::from(is_true)),
            Self::Int(number) => protobuf::varint_field(out, 3, number.cast_unsigned()),
            Self::Double(number) => protobuf::fixed64_field(out, 4, number.to_bits()),
            Self::Json(json) => return plain::write_value(out, json.as_bytes()),
        }
        Ok(())
    }
}

/// Writes attributes that have their own columns.
fn attributes(
    out: &mut Vec<u8>,
    field: u32,
    attributes: &[(&str, PlainValue<'_>)],
) -> Result<(), BadRow> {
    for (key, value) in attributes {
        protobuf::long_message_field(out, field, |out| {
            protobuf::bytes_field(out, 1, key.as_bytes());
            protobuf::long_message_field(out, 2, |out| value.write(out))
        })
        .map_err(|fault| RowPart::Attribute((*key).into()).is(fault))?;
    }
    Ok(())
}

/// Writes attributes that are plain JSON.
fn object(out: &mut Vec<u8>, field: u32, json: &str) -> Result<(), NotPlain> {
    if json.is_empty() {
        return Ok(());
    }
    plain::write_attributes(out, field, json.as_bytes())
}

fn text(out: &mut Vec<u8>, field: u32, text: &str) {
    if !text.is_empty() {
        protobuf::bytes_field(out, field, text.as_bytes());
    }
}

fn number(out: &mut Vec<u8>, field: u32, number: u32) {
    if number != 0 {
        protobuf::varint_field(out, field, u64::from(number));
    }
}

/// Writes an enumeration, in which a negative number takes 64 bits.
fn enumerated(out: &mut Vec<u8>, field: u32, number: i32) {
    if number != 0 {
        protobuf::varint_field(out, field, i64::from(number).cast_unsigned());
    }
}

fn time(out: &mut Vec<u8>, field: u32, ns: u64) {
    if ns != 0 {
        protobuf::fixed64_field(out, field, ns);
    }
}

fn flags(out: &mut Vec<u8>, field: u32, flags: u32) {
    if flags != 0 {
        protobuf::fixed32_field(out, field, flags);
    }
}

/// Writes an ID; an ID of zeros is absent.
fn id<const N: usize>(out: &mut Vec<u8>, field: u32, id: [u8; N]) {
    if id != [0; N] {
        protobuf::bytes_field(out, field, &id);
    }
}
