//! Decodes attributes: keys and values.

use crate::check::check;
use crate::error::{Broken, RowFault};
use crate::judge::Judge;
use crate::schema::{ANY_VALUE, ARRAY_VALUE, KEY_VALUE, KEY_VALUE_LIST};
use crate::slice::Slice;
use crate::wire::{FIXED64, LEN, Reader, VARINT};

/// A key and its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attribute {
    /// The key, in UTF-8. Duplicate keys are kept as sent.
    pub key: Slice,
    /// The value.
    pub value: Value,
}

/// A value of OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Value {
    /// No value.
    #[default]
    Empty,
    /// UTF-8.
    Text(Slice),
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A double, which may be NaN.
    Double(f64),
    /// An `ArrayValue`, whose values were checked.
    List(Slice),
    /// A `KeyValueList`, whose keys and values were checked.
    Map(Slice),
    /// Any bytes.
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
    let attribute = match short_text(&reader) {
        Some(attribute) => attribute,
        None => key_value(reader, |parts| check(parts, judge, 1))?,
    };
    if !is_ascii {
        judge.text(within, attribute.key);
        if let Value::Text(text) = attribute.value {
            judge.text(within, text);
        }
    }
    Ok(attribute)
}

/// Reads a `KeyValue` of the usual shape, a key and a text whose lengths have one byte each, as a whole. Field by
/// field, the processor would mispredict the next field.
#[inline(always)]
fn short_text(reader: &Reader<'_>) -> Option<Attribute> {
    const KEY: u8 = 1 << 3 | LEN;
    const VALUE: u8 = 2 << 3 | LEN;
    const TEXT: u8 = 1 << 3 | LEN;
    let [KEY, key_len @ ..0x80, rest @ ..] = reader.rest() else { return None };
    let [VALUE, value_len, TEXT, text_len @ ..0x7E, text @ ..] =
        rest.get(usize::from(*key_len)..)?
    else {
        return None;
    };
    if *value_len != text_len + 2 || text.len() != usize::from(*text_len) {
        return None;
    }
    let Slice { at, len } = reader.whole();
    let (key_len, text_len) = (u32::from(*key_len), u32::from(*text_len));
    let key = Slice { at: at + 2, len: key_len };
    let text = Slice { at: at + len - text_len, len: text_len };
    Some(Attribute { key, value: Value::Text(text) })
}

/// Reads a `KeyValue`, and its value with [`any_value`]. The caller checks texts.
#[inline(always)]
pub(crate) fn key_value(
    mut reader: Reader<'_>,
    mut look_at: impl FnMut(&mut Reader<'_>) -> Result<bool, Broken>,
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

/// Reads an `AnyValue` that comes next in `within`. For a list or a map, `look_at` decides whether to keep the value.
/// The caller checks texts.
#[inline(always)]
pub(crate) fn any_value(
    within: &mut Reader<'_>,
    mut look_at: impl FnMut(&mut Reader<'_>) -> Result<bool, Broken>,
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
                if look_at(&mut list)? { Value::List(slice) } else { Value::Empty }
            }
            (6, LEN) => {
                let mut map = reader.message(&KEY_VALUE_LIST)?;
                let slice = map.whole();
                if look_at(&mut map)? { Value::Map(slice) } else { Value::Empty }
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

/// Reads an attribute into a list, in which the attributes of the row begin at `from`.
#[inline(always)]
pub(crate) fn push(
    within: &mut Reader<'_>,
    into: &mut Vec<Attribute>,
    from: usize,
    judge: &mut Judge<'_>,
) -> Result<(), Broken> {
    judge.part(within)?;
    let attribute = attribute(within, judge)?;
    if into.len() - from < judge.limits.attributes as usize {
        into.push(attribute);
    } else {
        judge.refuse(RowFault::Attributes { max: judge.limits.attributes });
    }
    Ok(())
}

/// `[u8]::is_ascii` for some 40 bytes: checks eight bytes at a time, the last chunk possibly twice.
#[inline(always)]
fn is_ascii(bytes: &[u8]) -> bool {
    let Some(last) = bytes.last_chunk::<8>() else { return bytes.is_ascii() };
    let (chunks, _) = bytes.as_chunks::<8>();
    let all = chunks.iter().fold(*last, |all, chunk| {
        (u64::from_ne_bytes(all) | u64::from_ne_bytes(*chunk)).to_ne_bytes()
    });
    u64::from_ne_bytes(all) & 0x8080_8080_8080_8080 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(tag: u8, payload: &[u8]) -> Vec<u8> {
        let len = payload.len();
        let len = u8::try_from(len & 0x7F).expect("seven bits");
        let more = u8::try_from(payload.len() >> 7).expect("short");
        let len: &[u8] = if more == 0 { &[len] } else { &[len | 0x80, more] };
        [&[tag], len, payload].concat()
    }

    /// What both ways of reading say of a `KeyValue`.
    fn both(message: &[u8]) -> (Option<Attribute>, Attribute) {
        let reader = Reader::new(message, &KEY_VALUE);
        (short_text(&reader), key_value(reader, |_| Ok(true)).expect("well formed"))
    }

    #[test]
    fn the_usual_shape_is_read_in_one_go_and_as_the_others_are() {
        let lens = [0, 1, 0x7D, 0x7E, 0x7F, 0x80, 0x81, 300];
        for (key_len, text_len) in lens.into_iter().flat_map(|key| lens.map(|text| (key, text))) {
            let (key, text) = (vec![b'k'; key_len], vec![b't'; text_len]);
            let message = [field(0x0A, &key), field(0x12, &field(0x0A, &text))].concat();
            let (fast, slow) = both(&message);
            assert_eq!(slow.key.of(&message), key);
            assert_eq!(fast.is_some(), key_len < 0x80 && text_len < 0x7E, "{key_len}, {text_len}");
            assert!(fast.is_none_or(|fast| fast == slow), "{fast:?}, {slow:?}");
        }
    }

    #[test]
    fn other_shapes_are_read_field_by_field() {
        let (key, text) = (field(0x0A, b"key"), field(0x12, &field(0x0A, b"text")));
        for other in [
            [&text[..], &key].concat(),
            [&key[..], &text, &[0x18, 1]].concat(),
            [&key[..], &text, &text].concat(),
            [&key[..], &field(0x12, &[0x18, 7])].concat(),
            [&key[..], &field(0x12, &[&field(0x0A, b"a")[..], &field(0x0A, b"b")].concat())]
                .concat(),
            key.clone(),
            text,
            Vec::new(),
        ] {
            assert_eq!(both(&other).0, None, "{other:x?}");
        }
    }
}
