//! Converts protobuf to JSON.

use super::Mapping;
use crate::error::{Broken, Fault, Malformed};
use crate::response::Signal;
use crate::schema::{Field, Kind};
use crate::wire::{LEN, Reader};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;

/// Maximum nesting of messages, because each is a recursive call; less than the maximum of JSON readers.
const DEPTH_MAX: u32 = 60;

/// Converts a batch from protobuf to JSON.
///
/// # Errors
/// When the bytes are not a batch.
pub fn from_protobuf(batch: &[u8], signal: Signal, mapping: Mapping) -> Result<String, Malformed> {
    let mut out = Out { text: String::with_capacity(2 * batch.len()), mapping };
    object(&mut out, Reader::new(batch, signal.batch()), 0).map_err(|broken| *broken)?;
    Ok(out.text)
}

/// The output, and its mapping.
struct Out {
    text: String,
    mapping: Mapping,
}

/// Writes a message as an object. The elements of a repeated field may be scattered, but form one list in JSON, so the
/// message is walked once for each field.
fn object(out: &mut Out, message: Reader<'_>, depth: u32) -> Result<(), Broken> {
    if depth > DEPTH_MAX {
        return Err(message.fault(Fault::Depth { max: DEPTH_MAX }));
    }
    let present = present(message)?;
    let mut separator = "{";
    for (nth, field) in message.schema().fields.iter().enumerate() {
        if present & (1 << nth) == 0 {
            continue;
        }
        out.text.push_str(separator);
        separator = ",";
        text(out, field.name);
        out.text.push(':');
        if field.is_repeated {
            list(out, message, field, depth)?;
        } else {
            last(out, message, field, depth)?;
        }
    }
    out.text.push_str(if separator == "{" { "{}" } else { "}" });
    Ok(())
}

/// Returns a bit for each field of the schema: whether the message has the field. This reads the whole message, so
/// later walks can fail only within inner messages.
fn present(mut reader: Reader<'_>) -> Result<u32, Broken> {
    let mut present = 0;
    while let Some(tag) = reader.tag()? {
        let number = tag.field;
        let nth = reader.schema().fields.iter().position(|field| field.number == number);
        if let Some(nth) = nth {
            present |= 1 << nth;
        }
        match reader.schema().field(number) {
            Some(field) if field.may_be_packed() && tag.wire_type == LEN => reader.skip(tag)?,
            _ => reader.other(tag)?,
        }
    }
    Ok(present)
}

/// Writes the value of a field; of several values, the last.
fn last(out: &mut Out, mut reader: Reader<'_>, field: &Field, depth: u32) -> Result<(), Broken> {
    let mut last = reader;
    while let Some(tag) = reader.tag()? {
        if tag.field == field.number {
            last = reader;
        }
        reader.skip(tag)?;
    }
    value(out, &mut last, field.kind, depth)
}

fn list(out: &mut Out, mut reader: Reader<'_>, field: &Field, depth: u32) -> Result<(), Broken> {
    let mut separator = '[';
    while let Some(tag) = reader.tag()? {
        if tag.field != field.number {
            reader.skip(tag)?;
            continue;
        }
        if field.may_be_packed() && tag.wire_type == LEN {
            let mut packed = reader.message(reader.schema())?;
            while !packed.rest().is_empty() {
                out.text.push(std::mem::replace(&mut separator, ','));
                value(out, &mut packed, field.kind, depth)?;
            }
        } else {
            out.text.push(std::mem::replace(&mut separator, ','));
            value(out, &mut reader, field.kind, depth)?;
        }
    }
    out.text.push_str(if separator == '[' { "[]" } else { "]" });
    Ok(())
}

/// Writes the next value.
fn value(out: &mut Out, reader: &mut Reader<'_>, kind: Kind, depth: u32) -> Result<(), Broken> {
    match kind {
        Kind::Message(message) => return object(out, reader.message(message)?, depth + 1),
        Kind::Text => {
            let slice = reader.slice()?;
            text(out, &String::from_utf8_lossy(reader.bytes(slice)));
        }
        Kind::Bytes => {
            let slice = reader.slice()?;
            text(out, &STANDARD.encode(reader.bytes(slice)));
        }
        Kind::Id => {
            let slice = reader.slice()?;
            let bytes = reader.bytes(slice);
            match out.mapping {
                Mapping::Otlp => {
                    out.text.push('"');
                    for byte in bytes {
                        show(out, format_args!("{byte:02x}"));
                    }
                    out.text.push('"');
                }
                Mapping::Protobuf => text(out, &STANDARD.encode(bytes)),
            }
        }
        Kind::Bool => out.text.push_str(if reader.varint()? == 0 { "false" } else { "true" }),
        Kind::Enum(names) => {
            let number = reader.enumerated()?;
            let name = usize::try_from(number).ok().and_then(|number| names.get(number));
            match (out.mapping, name) {
                (Mapping::Protobuf, Some(name)) => text(out, name),
                _ => show(out, number),
            }
        }
        Kind::Uint32 => show(out, reader.count()?),
        Kind::Sint32 => show(out, reader.zigzag()?),
        Kind::Fixed32 => show(out, reader.fixed32()?),
        Kind::Int64 => show(out, format_args!("\"{}\"", reader.varint()?.cast_signed())),
        Kind::Uint64 => show(out, format_args!("\"{}\"", reader.varint()?)),
        Kind::Fixed64 => show(out, format_args!("\"{}\"", reader.fixed64()?)),
        Kind::Sfixed64 => show(out, format_args!("\"{}\"", reader.fixed64()?.cast_signed())),
        Kind::Double => double(out, f64::from_bits(reader.fixed64()?)),
    }
    Ok(())
}

fn show(out: &mut Out, what: impl std::fmt::Display) {
    write!(out.text, "{what}").expect("text takes everything");
}

fn text(out: &mut Out, text: &str) {
    out.text.push_str(&serde_json::Value::from(text).to_string());
}

/// Writes the shortest text that a reader converts to the same number.
fn double(out: &mut Out, number: f64) {
    if number.is_finite() {
        show(out, serde_json::Value::from(number));
    } else if number.is_nan() {
        out.text.push_str("\"NaN\"");
    } else {
        out.text.push_str(if number > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" });
    }
}
