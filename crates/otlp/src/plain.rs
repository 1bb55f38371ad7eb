//! Plain JSON: attributes as the functions for JSON of any SQL engine read them, and back without a loss.
//!
//! A table keeps what has no column of its own as text. OTLP's own JSON would say `{"key":"retries","value":
//! {"intValue":"3"}}`, which nobody wants to query; plain JSON says `{"retries":3}`. Each value is what JSON
//! has for it, and a mark stands where JSON has nothing:
//!
//! | value | in plain JSON |
//! |---|---|
//! | text | `"text"` |
//! | true, false | `true`, `false` |
//! | whole number | `3`, with all of its 64 bits |
//! | double | `3.0`, `1e300`: always a point or an exponent; as short as it can be and come back the same |
//! | what is no number | `{"@double":"NaN"}`, `"Infinity"` or `"-Infinity"` |
//! | bytes | `{"@bytes":"AAE="}`, in base64 |
//! | none set | `null` |
//! | list | `["a",1]` |
//! | map | `{"a":1}` |
//! | map whose first key begins with `@` | `{"@map":{"@a":1}}` |
//!
//! Attributes are one object, which is never marked: a key of theirs may begin with `@`. Keys stay in their
//! order, and one that came twice stands there twice.
//!
//! **What comes back** is the same value, bit by bit, with three exceptions: the bits of a NaN besides that it
//! is one, fields of later versions of OTLP within a list or map, and whether an attribute without a value had
//! an empty one.
//!
//! **Limits**: values are as deep as the decoder lets them be ([`crate::Limits::depth`]). Reading stops at 128
//! objects and lists in each other, and a map may take two, so what is deeper than 62 is written and not read.
//! A whole number above 2^64 that somebody else wrote is read as a double, as readers of JSON do.
//!
//! **When it hurts**: engines that turn every number of JSON into a double read whole numbers above 2^53
//! rounded, and most of them see only one of two equal keys.

mod read;
mod write;

use crate::attributes::{Attribute, Value};

/// Text that is not plain JSON.
#[derive(Debug, thiserror::Error)]
#[error("not plain JSON: {0}")]
pub struct NotPlain(serde_json::Error);

/// Writes attributes of a decoded batch as one object.
///
/// # Panics
/// When `batch` is not the one that they were decoded from.
pub fn attributes(out: &mut Vec<u8>, attributes: &[Attribute], batch: &[u8]) {
    write::attributes(out, attributes, batch).expect(CHECKED);
}

/// Writes one value of a decoded batch.
///
/// # Panics
/// When `batch` is not the one that it was decoded from.
pub fn value(out: &mut Vec<u8>, value: &Value, batch: &[u8]) {
    write::value(out, value, batch).expect(CHECKED);
}

const CHECKED: &str = "lists and maps are walked to their ends when their batch is decoded";

/// Writes each member of an object as a `KeyValue` of protobuf: the field `field` of whatever message `out`
/// is.
///
/// # Errors
/// When it is no such object: with the line, the column, and what was expected there. `out` is as it was.
pub fn write_attributes(out: &mut Vec<u8>, field: u32, json: &[u8]) -> Result<(), NotPlain> {
    whole(out, |out| read::attributes(out, field, json))
}

/// Writes one value as the content of an `AnyValue` of protobuf.
///
/// # Errors
/// When it is no such value: with the line, the column, and what was expected there. `out` is as it was.
pub fn write_value(out: &mut Vec<u8>, json: &[u8]) -> Result<(), NotPlain> {
    whole(out, |out| read::value(out, json))
}

/// Writes all of something, or nothing.
fn whole(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), serde_json::Error>,
) -> Result<(), NotPlain> {
    let len = out.len();
    let written = write(out);
    if written.is_err() {
        out.truncate(len);
    }
    written.map_err(NotPlain)
}

#[cfg(test)]
mod tests;
