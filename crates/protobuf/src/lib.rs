//! Protobuf's wire format: fields appended to a buffer in one pass, and read back one by one.
//!
//! Covers OTLP and Prometheus's metrics. A message field takes [`LENGTH_BYTES`] bytes for its length, see
//! [`padded_varint`].
//! **Source**: Protocol Buffers documentation, "Encoding", sections "Base 128 Varints" and "Submessages".
#![no_std]

extern crate alloc;

use alloc::vec::Vec;

/// Bytes reserved for the length of a message: enough for 2 MiB - 1, and spans are bounded far below.
const LENGTH_BYTES: usize = 3;

/// The wire types of the fields that OTLP has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Length = 2,
    Fixed32 = 5,
}

fn tag(out: &mut Vec<u8>, field: u32, wire: Wire) {
    varint(out, u64::from(field << 3 | wire as u32));
}

/// An integer, seven bits a byte, the lowest first.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// An integer in `BYTES` bytes, the unused high ones padded with continuation bits: protobuf's encoding of integers
/// allows leading zeros.
#[must_use]
pub fn padded_varint<const BYTES: usize>(value: u64) -> [u8; BYTES] {
    debug_assert!(value < 1 << (7 * BYTES), "{value} does not fit {BYTES} bytes");
    core::array::from_fn(|place| {
        let more = if place + 1 < BYTES { 0x80 } else { 0 };
        (value >> (7 * place)).to_le_bytes()[0] & 0x7f | more
    })
}

/// The bytes that [`varint`] takes for a length.
#[must_use]
pub const fn varint_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// A field that is an integer.
pub fn varint_field(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, Wire::Varint);
    varint(out, value);
}

/// A field of eight bytes.
pub fn fixed64_field(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, Wire::Fixed64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// A field of four bytes.
pub fn fixed32_field(out: &mut Vec<u8>, field: u32, value: u32) {
    tag(out, field, Wire::Fixed32);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Bytes, or a text.
pub fn bytes_field(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    length_field(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Encodes a signed integer with the sign in its lowest bit.
#[must_use]
pub const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Decodes an integer that [`zigzag`] encoded.
#[must_use]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// The beginning of a field of which `len` bytes follow.
pub fn length_field(out: &mut Vec<u8>, field: u32, len: usize) {
    tag(out, field, Wire::Length);
    varint(out, len as u64);
}

/// The first byte of a [`length_field`] whose number is below 16.
#[must_use]
pub fn length_tag(field: u32) -> u8 {
    (field << 3 | Wire::Length as u32).to_le_bytes()[0]
}

/// A message within the message, made of what `write` appends.
pub fn message_field(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, Wire::Length);
    let length_at = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    write(out);
    let len = out.len() - length_at - LENGTH_BYTES;
    out[length_at..][..LENGTH_BYTES].copy_from_slice(&padded_varint::<LENGTH_BYTES>(len as u64));
}

/// The fields of a message, in the order in which they stand; ends where the bytes make no sense.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer of variable length.
    Int(u64),
    /// Bytes, a message or a number of fixed length.
    Bytes(&'a [u8]),
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Int(self.varint()?),
            1 => Value::Bytes(self.take(8)?),
            2 => {
                let len = self.varint()?;
                Value::Bytes(self.take(usize::try_from(len).ok()?)?)
            }
            5 => Value::Bytes(self.take(4)?),
            _ => return None,
        };
        Some((tag >> 3, value))
    }
}

impl<'a> Fields<'a> {
    /// The next of several length-delimited messages.
    pub fn delimited(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()?;
        self.take(usize::try_from(len).ok()?)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for place in 0..10 {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}
