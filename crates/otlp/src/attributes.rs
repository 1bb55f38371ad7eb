//! Attributes: a key and a value, of whatever they are attributes of.

use crate::check::check;
use crate::error::{Broken, RowFault};
use crate::judge::Judge;
use crate::schema::{ANY_VALUE, ARRAY_VALUE, KEY_VALUE, KEY_VALUE_LIST};
use crate::slice::Slice;
use crate::wire::{FIXED64, LEN, Reader, VARINT};

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attribute {
    /// UTF-8. The same key may come twice, as it was sent.
    pub key: Slice,
    /// What it says.
    pub value: Value,
}

/// One of the values that OTLP knows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Value {
    /// None was set.
    #[default]
    Empty,
    /// UTF-8.
    Text(Slice),
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number, and what is none.
    Double(f64),
    /// An `ArrayValue`, whose parts were checked.
    List(Slice),
    /// A `KeyValueList`, whose parts were checked.
    Map(Slice),
    /// Whatever.
    Bytes(Slice),
}

/// Reads a `KeyValue` that comes next in `within`.
#[inline(always)]
pub(crate) fn attribute(
    within: &mut Reader<'_>,
    judge: &mut Judge<'_>,
) -> Result<Attribute, Broken> {
    let reader = within.message(&KEY_VALUE)?;
    // Most attributes are ASCII with their tags and lengths: one look instead of two.
    let is_ascii = is_ascii(reader.rest());
    let attribute = key_value(reader, |parts| check(parts, judge, 1))?;
    if !is_ascii {
        judge.text(within, attribute.key);
        if let Value::Text(text) = attribute.value {
            judge.text(within, text);
        }
    }
    Ok(attribute)
}

/// Reads a `KeyValue`, with its value as [`any_value`] does. Text is for the caller to check.
#[inline(always)]
pub(crate) fn key_value(
    mut reader: Reader<'_>,
    mut look_at: impl FnMut(&mut Reader<'_>) -> Result<(), Broken>,
) -> Result<Attribute, Broken> {
    let mut attribute = Attribute { key: Slice::default(), value: Value::Empty };
    while let Some(tag) = reader.tag()? {
        match (tag.field, tag.wire_type) {
            (1, LEN) => attribute.key = reader.slice()?,
            (2, LEN) => attribute.value = any_value(&mut reader, &mut look_at)?,
            _ => reader.other(tag)?,
        }
    }
    Ok(attribute)
}

/// Reads an `AnyValue` that comes next in `within`. A list or a map is only looked at, by the caller, and text
/// is for the caller to check.
#[inline(always)]
pub(crate) fn any_value(
    within: &mut Reader<'_>,
    mut look_at: impl FnMut(&mut Reader<'_>) -> Result<(), Broken>,
) -> Result<Value, Broken> {
    let mut reader = within.message(&ANY_VALUE)?;
    let mut value = Value::Empty;
    while let Some(tag) = reader.tag()? {
        value = match (tag.field, tag.wire_type) {
            (1, LEN) => Value::Text(reader.slice()?),
            (2, VARINT) => Value::Bool(reader.varint()? != 0),
            (3, VARINT) => Value::Int(reader.varint()?.cast_signed()),
            (4, FIXED64) => Value::Double(f64::from_bits(reader.fixed64()?)),
            (5, LEN) => {
                let mut list = reader.message(&ARRAY_VALUE)?;
                let slice = list.whole();
                look_at(&mut list)?;
                Value::List(slice)
            }
            (6, LEN) => {
                let mut map = reader.message(&KEY_VALUE_LIST)?;
                let slice = map.whole();
                look_at(&mut map)?;
                Value::Map(slice)
            }
            (7, LEN) => Value::Bytes(reader.slice()?),
            _ => {
                reader.other(tag)?;
                value
            }
        };
    }
    Ok(value)
}

/// Reads an attribute into a list, of which `from` on are those of the same row.
#[inline(always)]
pub(crate) fn push(
    within: &mut Reader<'_>,
    into: &mut Vec<Attribute>,
    from: usize,
    judge: &mut Judge<'_>,
) -> Result<(), Broken> {
    let attribute = attribute(within, judge)?;
    if into.len() - from < judge.limits.attributes as usize {
        into.push(attribute);
    } else {
        judge.refuse(RowFault::Attributes);
    }
    Ok(())
}

/// `[u8]::is_ascii` for what is some 40 bytes long: eight at a time, the last of them twice.
#[inline(always)]
fn is_ascii(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else { return bytes.is_ascii() };
    let (chunks, _) = bytes.as_chunks::<8>();
    let all = chunks.iter().fold(*last, |all, chunk| {
        (u64::from_ne_bytes(all) | u64::from_ne_bytes(*chunk)).to_ne_bytes()
    });
    u64::from_ne_bytes(all) & 0x8080_8080_8080_8080 == 0
}
