//! Converts JSON to protobuf, in one pass.

use super::NotOtlp;
use crate::limits::Limits;
use crate::response::Signal;
use crate::schema::{Field, Kind, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use curtail_protobuf as protobuf;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use std::borrow::Cow;
use std::fmt;

/// Converts a batch from JSON to protobuf.
///
/// # Errors
/// When the text is not a batch; the error has the line, the column and the expected input. Values deeper than the
/// limit are cut one level beyond the limit, so the decoder rejects their rows.
pub fn to_protobuf(json: &[u8], signal: Signal, limits: &Limits) -> Result<Vec<u8>, NotOtlp> {
    let mut out = Vec::with_capacity(json.len() / 2);
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let depth_left = limits.depth.saturating_add(1);
    let fields = Fields { message: signal.batch(), depth_left, out: &mut out };
    let read = (&mut deserializer).deserialize_map(fields);
    read.and_then(|()| deserializer.end()).map_err(NotOtlp)?;
    Ok(out)
}

/// Writes the members of an object as the fields of a message.
struct Fields<'a> {
    message: &'static Message,
    /// The remaining nesting of lists and maps. Deeper values are skipped without recursion.
    depth_left: u32,
    out: &'a mut Vec<u8>,
}

/// Writes one field.
struct One<'a> {
    field: &'static Field,
    /// Whether the value may be a list.
    is_list: bool,
    depth_left: u32,
    out: &'a mut Vec<u8>,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object: {}", self.message.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { message, depth_left, out } = self;
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            match message.fields.iter().find(|field| field.name == name) {
                Some(field) if depth_left > 0 => {
                    let is_list = field.is_repeated;
                    map.next_value_seed(One { field, is_list, depth_left, out })?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for One<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for One<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.field.kind {
            _ if self.is_list => "a list",
            Kind::Text => "text",
            Kind::Bytes => "text: bytes in base64",
            Kind::Id => "text: hexadecimal digits",
            Kind::Bool => "true or false",
            Kind::Enum(_) | Kind::Uint32 | Kind::Sint32 | Kind::Fixed32 => "a whole number",
            Kind::Int64 | Kind::Uint64 | Kind::Fixed64 | Kind::Sfixed64 => {
                "a whole number, as text or as it is"
            }
            Kind::Double => "a number, or the text NaN, Infinity or -Infinity",
            Kind::Message(message) => return write!(f, "an object: {}", message.name),
        };
        write!(f, "{what} for {}", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { field, is_list: true, depth_left, out } = self else {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        };
        while list.next_element_seed(One { field, is_list: false, depth_left, out })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let (Kind::Message(message), false) = (self.field.kind, self.is_list) else {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        };
        let depth_left = self.depth_left - u32::from(message.is_container());
        protobuf::long_message_field(self.out, self.field.number, |out| {
            Fields { message, depth_left, out }.visit_map(map)
        })
    }

    fn visit_bool<E: Error>(self, is_true: bool) -> Result<(), E> {
        if self.is_list || !matches!(self.field.kind, Kind::Bool) {
            return Err(E::invalid_type(Unexpected::Bool(is_true), &self));
        }
        self.varint(u64::from(is_true));
        Ok(())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.whole(i128::from(number), Unexpected::Unsigned(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.whole(i128::from(number), Unexpected::Signed(number))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        if self.is_list || !matches!(self.field.kind, Kind::Double) {
            return Err(E::invalid_type(Unexpected::Float(number), &self));
        }
        self.fixed64(number.to_bits());
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        let unexpected = Unexpected::Str(text);
        if self.is_list {
            return Err(E::invalid_type(unexpected, &self));
        }
        match self.field.kind {
            Kind::Text => protobuf::bytes_field(self.out, self.field.number, text.as_bytes()),
            Kind::Bytes => {
                let bytes = STANDARD.decode(text);
                let bytes = bytes.map_err(|_| E::invalid_value(unexpected, &self))?;
                protobuf::bytes_field(self.out, self.field.number, &bytes);
            }
            Kind::Id => {
                let bytes = from_hex(text).ok_or_else(|| E::invalid_value(unexpected, &self))?;
                protobuf::bytes_field(self.out, self.field.number, &bytes);
            }
            Kind::Double => {
                // `parse` takes more names than protobuf's JSON has, and means the same by them.
                let number: Result<f64, _> = text.parse();
                let number = number.map_err(|_| E::invalid_value(unexpected, &self))?;
                self.fixed64(number.to_bits());
            }
            Kind::Int64 | Kind::Uint64 | Kind::Fixed64 | Kind::Sfixed64 => {
                let number = text.parse().map_err(|_| E::invalid_value(unexpected, &self))?;
                self.whole(number, unexpected)?;
            }
            Kind::Bool
            | Kind::Enum(_)
            | Kind::Uint32
            | Kind::Sint32
            | Kind::Fixed32
            | Kind::Message(_) => return Err(E::invalid_type(unexpected, &self)),
        }
        Ok(())
    }
}

impl<'a> One<'a> {
    /// Writes the tag of the field; returns the output.
    fn tag(self) -> &'a mut Vec<u8> {
        protobuf::tag(self.out, self.field.number, self.field.kind.wire_type());
        self.out
    }

    /// Writes an integer; fails if it does not fit.
    fn whole<E: Error>(self, number: i128, unexpected: Unexpected<'_>) -> Result<(), E> {
        let kind = if self.is_list { Kind::Text } else { self.field.kind };
        let out_of_range = || E::invalid_value(unexpected, &self);
        match kind {
            Kind::Int64 | Kind::Sfixed64 => {
                let number = i64::try_from(number).map_err(|_| out_of_range())?.cast_unsigned();
                if let Kind::Int64 = kind { self.varint(number) } else { self.fixed64(number) }
            }
            Kind::Uint64 | Kind::Fixed64 => {
                let number = u64::try_from(number).map_err(|_| out_of_range())?;
                if let Kind::Uint64 = kind { self.varint(number) } else { self.fixed64(number) }
            }
            Kind::Uint32 | Kind::Fixed32 => {
                let number = u32::try_from(number).map_err(|_| out_of_range())?;
                if let Kind::Uint32 = kind {
                    self.varint(u64::from(number));
                } else {
                    self.tag().extend_from_slice(&number.to_le_bytes());
                }
            }
            Kind::Sint32 | Kind::Enum(_) => {
                let number = i32::try_from(number).map_err(|_| out_of_range())?;
                let (zigzag, plain) =
                    (protobuf::zigzag(number.into()), i64::from(number).cast_unsigned());
                self.varint(if let Kind::Sint32 = kind { zigzag } else { plain });
            }
            Kind::Double => {
                // A number of JSON may be written without a point.
                #[expect(clippy::cast_precision_loss, reason = "as JSON's readers do")]
                let number = number as f64;
                self.fixed64(number.to_bits());
            }
            Kind::Text | Kind::Bytes | Kind::Id | Kind::Bool | Kind::Message(_) => {
                return Err(E::invalid_type(unexpected, &self));
            }
        }
        Ok(())
    }

    fn varint(self, number: u64) {
        protobuf::varint(self.tag(), number);
    }

    fn fixed64(self, bits: u64) {
        self.tag().extend_from_slice(&bits.to_le_bytes());
    }
}

/// Decodes two hexadecimal digits a byte, in either case.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|&[high, low]| u8::try_from(16 * digit(high)? + digit(low)?).ok()).collect()
}
