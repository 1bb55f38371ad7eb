//! Protobuf's wire format: fields appended to a buffer in one pass, and read back one by one.
//!
//! Covers the fields of OTLP and of Prometheus's metrics; groups are not supported.
//! **Source**: Protocol Buffers documentation, "Encoding", sections "Base 128 Varints" and "Submessages".
#![no_std]

extern crate alloc;

use alloc::vec::Vec;

/// The number of bytes reserved for the length of a [`message_field`]: a length of at most 2 MiB - 1.
const LENGTH_BYTES: usize = 3;

/// The wire type of an integer of variable length.
pub const VARINT: u8 = 0;
/// The wire type of eight bytes.
pub const FIXED64: u8 = 1;
/// The wire type of bytes, a text or a message.
pub const LEN: u8 = 2;
/// The wire type of four bytes.
pub const FIXED32: u8 = 5;

/// Appends the number and the wire type of a field.
#[inline]
pub fn tag(out: &mut Vec<u8>, field: u32, wire_type: u8) {
    varint(out, u64::from(field) << 3 | u64::from(wire_type));
}

/// Appends an integer, seven bits a byte, the lowest bits first.
#[inline]
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Encodes an integer in exactly `BYTES` bytes. Continuation bits pad the integer with leading zeros, which protobuf's
/// encoding allows.
#[must_use]
pub fn padded_varint<const BYTES: usize>(value: u64) -> [u8; BYTES] {
    debug_assert!(value < 1 << (7 * BYTES), "{value} does not fit {BYTES} bytes");
    core::array::from_fn(|place| {
        let more = if place + 1 < BYTES { 0x80 } else { 0 };
        (value >> (7 * place)).to_le_bytes()[0] & 0x7f | more
    })
}

/// The number of bytes that [`varint`] appends for `value`.
#[must_use]
#[inline]
pub const fn varint_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Appends a field that is an integer.
#[inline]
pub fn varint_field(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, VARINT);
    varint(out, value);
}

/// Appends a field of eight bytes.
#[inline]
pub fn fixed64_field(out: &mut Vec<u8>, field: u32, value: u64) {
    tag(out, field, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field of four bytes.
#[inline]
pub fn fixed32_field(out: &mut Vec<u8>, field: u32, value: u32) {
    tag(out, field, FIXED32);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field of bytes or text.
#[inline]
pub fn bytes_field(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    length_field(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Encodes a signed integer with the sign in its lowest bit.
#[must_use]
#[inline]
pub const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// Decodes an integer that [`zigzag`] encoded.
#[must_use]
#[inline]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Appends the tag and the length of a field; its `len` bytes follow.
#[inline]
pub fn length_field(out: &mut Vec<u8>, field: u32, len: usize) {
    tag(out, field, LEN);
    varint(out, len as u64);
}

/// The tag of a field in one byte. The number of the field must be below 16.
#[must_use]
#[inline]
pub const fn short_tag(field: u32, wire_type: u8) -> u8 {
    debug_assert!(field < 16, "the tag takes two bytes");
    (field << 3).to_le_bytes()[0] | wire_type
}

/// Appends a nested message of less than 2 MiB, made of the bytes that `write` appends.
pub fn message_field(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, LEN);
    let length_at = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    write(out);
    let len = out.len() - length_at - LENGTH_BYTES;
    out[length_at..][..LENGTH_BYTES].copy_from_slice(&padded_varint::<LENGTH_BYTES>(len as u64));
}

/// Appends a nested message of any length. One byte is reserved for the length, so short messages are cheap. A message
/// of 128 bytes or more is moved to make room for its length.
pub fn long_message_field<T>(
    out: &mut Vec<u8>,
    field: u32,
    write: impl FnOnce(&mut Vec<u8>) -> T,
) -> T {
    tag(out, field, LEN);
    let at = out.len();
    out.push(0);
    let written = write(out);
    let len = out.len() - at - 1;
    if len < 0x80 {
        out[at] = len.to_le_bytes()[0];
    } else {
        let mut prefix = Vec::with_capacity(5);
        varint(&mut prefix, len as u64);
        drop(out.splice(at..=at, prefix));
    }
    written
}

/// The fields of a message, in the order of its bytes. The iteration ends at the first invalid field.
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
    /// Reads the next of several length-delimited messages.
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
