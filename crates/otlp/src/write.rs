//! Writing protobuf's wire format.

use crate::wire::{FIXED32, FIXED64, LEN, Tag, VARINT};

pub(crate) fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

pub(crate) fn tag(out: &mut Vec<u8>, tag: Tag) {
    varint(out, u64::from(tag.field) << 3 | u64::from(tag.wire_type));
}

/// A field that is a number, as short as it can be.
pub(crate) fn number(out: &mut Vec<u8>, field: u32, number: u64) {
    tag(out, Tag { field, wire_type: VARINT });
    varint(out, number);
}

/// A field of four bytes.
pub(crate) fn fixed32(out: &mut Vec<u8>, field: u32, bits: u32) {
    tag(out, Tag { field, wire_type: FIXED32 });
    out.extend_from_slice(&bits.to_le_bytes());
}

/// A field of eight bytes.
pub(crate) fn fixed64(out: &mut Vec<u8>, field: u32, bits: u64) {
    tag(out, Tag { field, wire_type: FIXED64 });
    out.extend_from_slice(&bits.to_le_bytes());
}

/// A field that is text or bytes.
pub(crate) fn bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    tag(out, Tag { field, wire_type: LEN });
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A field that is a message, which `write` writes. Its length stands before it and is known after it: most
/// are short, and a byte is kept free for it.
pub(crate) fn message<T>(
    out: &mut Vec<u8>,
    field: u32,
    write: impl FnOnce(&mut Vec<u8>) -> T,
) -> T {
    tag(out, Tag { field, wire_type: LEN });
    let at = out.len();
    out.push(0);
    let done = write(out);
    let len = out.len() - at - 1;
    if len < 0x80 {
        out[at] = len.to_le_bytes()[0];
    } else {
        let mut prefix = Vec::with_capacity(5);
        varint(&mut prefix, len as u64);
        drop(out.splice(at..=at, prefix));
    }
    done
}

/// A message with one field, which is this message.
#[must_use]
pub fn within(field: u32, inner: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(inner.len() + 8);
    bytes(&mut out, field, inner);
    out
}
