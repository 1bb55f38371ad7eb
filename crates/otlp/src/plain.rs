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

pub use read::{write_attributes, write_value};
pub use write::{attributes, value};

/// Text that is not plain JSON.
#[derive(Debug, thiserror::Error)]
#[error("not plain JSON: {0}")]
pub struct NotPlain(serde_json::Error);

#[cfg(test)]
mod tests;
