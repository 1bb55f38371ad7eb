//! Plain JSON: the encoding of attributes for SQL engines, which can be converted back without loss.
//!
//! Tables store attributes without a column as text. OTLP's JSON (`{"key":"retries","value":{"intValue":"3"}}`) is hard
//! to query; plain JSON is `{"retries":3}`. A mark stands for a value that JSON does not have:
//!
//! | value | in plain JSON |
//! |---|---|
//! | text | `"text"` |
//! | true, false | `true`, `false` |
//! | integer | `3`, with all of its 64 bits |
//! | double | `3.0`, `1e300`: always with a point or an exponent; the shortest text of the same number |
//! | infinity, NaN | `{"@double":"NaN"}`, `"Infinity"` or `"-Infinity"` |
//! | bytes | `{"@bytes":"AAE="}`, in base64 |
//! | not set | `null` |
//! | list | `["a",1]` |
//! | map | `{"a":1}` |
//! | map whose first key begins with `@` | `{"@map":{"@a":1}}` |
//!
//! The attributes of a row are always one object without a mark, even if its first key begins with `@`. Order and
//! duplicates are kept.
//!
//! **Invariant**: a value that is converted back is equal bit by bit. Exceptions are the payload of a NaN, unknown
//! fields in a list or map, and the difference between no value and an empty value.
//!
//! **Limits**: values are as deep as in the decoder ([`crate::Limits::depth`]). The reader accepts 127 nested objects
//! and lists. A map with a mark counts as two, so a value deeper than 62 can be written, but may not be read. An
//! integer above 2^64 is read as a double.
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
