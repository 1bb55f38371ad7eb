//! Converts values in a batch to plain JSON, in one pass.

use crate::attributes::{Attribute, Value, any_value, key_value};
use crate::error::Broken;
use crate::schema::{ARRAY_VALUE, KEY_VALUE, KEY_VALUE_LIST};
use crate::wire::{LEN, Reader};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Writes attributes of a decoded batch as one object.
///
/// # Panics
/// When `batch` is not the batch that the attributes were decoded from.
pub fn attributes(out: &mut Vec<u8>, attributes: &[Attribute], batch: &[u8]) {
    out.push(b'{');
    for (nth, attribute) in attributes.iter().enumerate() {
        member(out, nth == 0, attribute, batch).expect(CHECKED);
    }
    out.push(b'}');
}

/// Writes one value of a decoded batch.
///
/// # Panics
/// When `batch` is not the batch that the value was decoded from.
pub fn value(out: &mut Vec<u8>, value: &Value, batch: &[u8]) {
    write_value(out, value, batch).expect(CHECKED);
}

const CHECKED: &str = "lists and maps are walked to their ends when their batch is decoded";

fn write_value(out: &mut Vec<u8>, value: &Value, batch: &[u8]) -> Result<(), Broken> {
    match *value {
        Value::Empty => out.extend_from_slice(b"null"),
        Value::Text(slice) => text(out, slice.of(batch)),
        Value::Bool(is_true) => out.extend_from_slice(if is_true { b"true" } else { b"false" }),
        Value::Int(number) => json(out, &number),
        Value::Double(number) => double(out, number),
        Value::List(slice) => return list(out, slice.of(batch)),
        Value::Map(slice) => return map(out, slice.of(batch)),
        Value::Bytes(slice) => {
            out.extend_from_slice(br#"{"@bytes":""#);
            out.extend_from_slice(STANDARD.encode(slice.of(batch)).as_bytes());
            out.extend_from_slice(br#""}"#);
        }
    }
    Ok(())
}

fn member(
    out: &mut Vec<u8>,
    is_first: bool,
    attribute: &Attribute,
    batch: &[u8],
) -> Result<(), Broken> {
    if !is_first {
        out.push(b',');
    }
    text(out, attribute.key.of(batch));
    out.push(b':');
    write_value(out, &attribute.value, batch)
}

/// Writes an `ArrayValue`.
fn list(out: &mut Vec<u8>, parts: &[u8]) -> Result<(), Broken> {
    let mut reader = Reader::new(parts, &ARRAY_VALUE);
    let mut is_first = true;
    out.push(b'[');
    while let Some(tag) = reader.tag()? {
        if (tag.field, tag.wire_type) != (1, LEN) {
            reader.skip(tag)?;
            continue;
        }
        if !is_first {
            out.push(b',');
        }
        is_first = false;
        write_value(out, &any_value(&mut reader, |_| Ok(true))?, parts)?;
    }
    out.push(b']');
    Ok(())
}

/// Writes a `KeyValueList`; a list that would look like a marked value gets the mark `@map`.
fn map(out: &mut Vec<u8>, parts: &[u8]) -> Result<(), Broken> {
    let mut reader = Reader::new(parts, &KEY_VALUE_LIST);
    let (mut is_first, mut is_marked) = (true, false);
    while let Some(tag) = reader.tag()? {
        if (tag.field, tag.wire_type) != (1, LEN) {
            reader.skip(tag)?;
            continue;
        }
        let attribute = key_value(reader.message(&KEY_VALUE)?, |_| Ok(true))?;
        if is_first {
            is_marked = attribute.key.of(parts).starts_with(b"@");
            out.extend_from_slice(if is_marked { br#"{"@map":{"# } else { b"{" });
        }
        member(out, is_first, &attribute, parts)?;
        is_first = false;
    }
    out.extend_from_slice(match (is_first, is_marked) {
        (true, _) => b"{}",
        (_, true) => b"}}",
        _ => b"}",
    });
    Ok(())
}

/// Writes a text. Texts of rows are UTF-8, but the text of a resource or scope whose rows were rejected may not be.
fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    json(out, &*String::from_utf8_lossy(bytes));
}

/// Writes a double. A finite number always has a point or an exponent.
fn double(out: &mut Vec<u8>, number: f64) {
    if number.is_finite() {
        return json(out, &number);
    }
    out.extend_from_slice(if number.is_nan() {
        br#"{"@double":"NaN"}"#
    } else if number > 0.0 {
        br#"{"@double":"Infinity"}"#
    } else {
        br#"{"@double":"-Infinity"}"#
    });
}

fn json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, what: &T) {
    serde_json::to_writer(out, what).expect("numbers and text are JSON, and memory takes it");
}
