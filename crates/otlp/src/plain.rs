//! Plain JSON: attributes as SQL engines read them, and back without loss.
//!
//! Tables keep attributes without a column as text. OTLP's JSON (`{"key":"retries","value":{"intValue":"3"}}`) is hard to query;
//! plain JSON is `{"retries":3}`. A mark stands for a value that JSON does not have:
//!
//! | value | in plain JSON |
//! |---|---|
//! | text | `"text"` |
//! | true, false | `true`, `false` |
//! | integer | `3`, with all of its 64 bits |
//! | double | `3.0`, `1e300`: always with a point or an exponent; the shortest that is read back equal |
//! | not finite | `{"@double":"NaN"}`, `"Infinity"` or `"-Infinity"` |
//! | bytes | `{"@bytes":"AAE="}`, in base64 |
//! | not set | `null` |
//! | list | `["a",1]` |
//! | map | `{"a":1}` |
//! | map whose first key begins with `@` | `{"@map":{"@a":1}}` |
//!
//! Attributes are one object without marks, so their keys may begin with `@`. Keys keep their order, and duplicates remain.
//!
//! **Invariant**: the value read back is equal, bit by bit, except for the payload of a NaN, unknown fields within a list or
//! map, and whether an attribute without a value had an empty one.
//!
//! **Limits**: values are as deep as in the decoder ([`crate::Limits::depth`]). Reading stops at 128 nested objects and lists,
//! and a map may take two, so values deeper than 62 are written and not read. An integer above 2^64 is read as a double.
//!
//! **When it hurts**: engines that read all numbers as doubles round integers above 2^53, and most read only one of two equal
//! keys.

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

/// Writes each member of an object as a `KeyValue` of protobuf: the field `field` of the message in `out`.
///
/// # Errors
/// When it is not such an object: with the line, the column and the expected input. `out` is unchanged.
pub fn write_attributes(out: &mut Vec<u8>, field: u32, json: &[u8]) -> Result<(), NotPlain> {
    whole(out, |out| read::attributes(out, field, json))
}

/// Writes one value as the content of an `AnyValue` of protobuf.
///
/// # Errors
/// When it is not such a value: with the line, the column and the expected input. `out` is unchanged.
pub fn write_value(out: &mut Vec<u8>, json: &[u8]) -> Result<(), NotPlain> {
    whole(out, |out| read::value(out, json))
}

/// Writes a whole value, or nothing.
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
