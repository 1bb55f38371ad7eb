//! Converts plain JSON to protobuf, in one pass.

use super::NotPlain;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use curtail_protobuf as protobuf;
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use std::borrow::Cow;
use std::fmt;

/// The marks: an object whose first key is a mark is a marked value.
const MARKS: &[&str] = &["@double", "@bytes", "@map"];

/// Writes each member of an object as a `KeyValue` of protobuf: the field `field` of the message in `out`.
///
/// # Errors
/// When the text is not such an object; the error has the line, the column and the expected input. `out` is unchanged.
pub fn write_attributes(out: &mut Vec<u8>, field: u32, json: &[u8]) -> Result<(), NotPlain> {
    write_whole(out, json, |out, deserializer| Members { field, out }.deserialize(deserializer))
}

/// Writes one value as the content of an `AnyValue` of protobuf.
///
/// # Errors
/// When the text is not such a value; the error has the line, the column and the expected input. `out` is unchanged.
pub fn write_value(out: &mut Vec<u8>, json: &[u8]) -> Result<(), NotPlain> {
    write_whole(out, json, |out, deserializer| deserializer.deserialize_any(Content { out }))
}

/// Writes a complete value; leaves `out` unchanged after an error.
fn write_whole(
    out: &mut Vec<u8>,
    json: &[u8],
    write: impl FnOnce(&mut Vec<u8>, &mut JsonDeserializer<'_>) -> Result<(), serde_json::Error>,
) -> Result<(), NotPlain> {
    let len = out.len();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let written = write(out, &mut deserializer).and_then(|()| deserializer.end());
    if written.is_err() {
        out.truncate(len);
    }
    written.map_err(NotPlain)
}

type JsonDeserializer<'a> = serde_json::Deserializer<serde_json::de::SliceRead<'a>>;

/// Text; borrowed if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Writes each member of an object as a field that is a `KeyValue`.
struct Members<'a> {
    field: u32,
    out: &'a mut Vec<u8>,
}

/// Writes a value as a field that is an `AnyValue`.
struct One<'a> {
    field: u32,
    out: &'a mut Vec<u8>,
}

/// Writes the content of an `AnyValue`.
struct Content<'a> {
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object: keys and plain values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key()? {
            member(self.out, self.field, &key, &mut map)?;
        }
        Ok(())
    }
}

/// Writes the member whose key was read.
fn member<'de, A: MapAccess<'de>>(
    out: &mut Vec<u8>,
    field: u32,
    key: &str,
    map: &mut A,
) -> Result<(), A::Error> {
    protobuf::long_message_field(out, field, |out| {
        protobuf::bytes_field(out, 1, key.as_bytes());
        map.next_value_seed(One { field: 2, out })
    })
}

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        protobuf::long_message_field(self.out, self.field, |out| {
            deserializer.deserialize_any(Content { out })
        })
    }
}

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        protobuf::bytes_field(self.out, 1, text.as_bytes());
        Ok(())
    }

    fn visit_bool<E: Error>(self, is_true: bool) -> Result<(), E> {
        protobuf::varint_field(self.out, 2, u64::from(is_true));
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        protobuf::varint_field(self.out, 3, number.cast_unsigned());
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        let whole = i64::try_from(number).map_err(|_| {
            E::invalid_value(Unexpected::Unsigned(number), &"a whole number below 2^63")
        })?;
        self.visit_i64(whole)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        protobuf::fixed64_field(self.out, 4, number.to_bits());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        protobuf::long_message_field(self.out, 5, |out| {
            while list.next_element_seed(One { field: 1, out })?.is_some() {}
            Ok(())
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some(Text(first)) = map.next_key()? else {
            protobuf::long_message_field(self.out, 6, |_| ());
            return Ok(());
        };
        if first.starts_with('@') {
            return self.marked(&first, map);
        }
        protobuf::long_message_field(self.out, 6, |out| {
            member(out, 1, &first, &mut map)?;
            Members { field: 1, out }.visit_map(map)
        })
    }
}

impl Content<'_> {
    /// Writes a marked value, which JSON cannot represent.
    fn marked<'de, A: MapAccess<'de>>(self, mark: &str, mut map: A) -> Result<(), A::Error> {
        match mark {
            "@double" => self.visit_f64(not_finite(&map.next_value::<Text<'de>>()?.0)?)?,
            "@bytes" => {
                let Text(text) = map.next_value()?;
                let bytes = STANDARD.decode(&*text).map_err(|_| {
                    A::Error::invalid_value(Unexpected::Str(&text), &"bytes in base64")
                })?;
                protobuf::bytes_field(self.out, 7, &bytes);
            }
            "@map" => protobuf::long_message_field(self.out, 6, |out| {
                map.next_value_seed(Members { field: 1, out })
            })?,
            _ => return Err(A::Error::unknown_field(mark, MARKS)),
        }
        match map.next_key::<IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(A::Error::custom(format_args!("expected nothing else beside {mark}"))),
        }
    }
}

fn not_finite<E: Error>(text: &str) -> Result<f64, E> {
    match text {
        "NaN" => Ok(f64::NAN),
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        _ => Err(E::invalid_value(Unexpected::Str(text), &"NaN, Infinity or -Infinity")),
    }
}
