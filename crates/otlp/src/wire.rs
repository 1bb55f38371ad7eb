//! Reads protobuf's wire format.
//!
//! A [`Reader`] walks one message within a batch. An inner message has its own reader of the same batch, which ends at
//! the end of the inner message. All positions are therefore positions in the batch.

use crate::error::{Broken, Fault, Malformed};
use crate::schema::Message;
use crate::slice::{Slice, short};

pub(crate) use curtail_protobuf::{FIXED32, FIXED64, LEN, VARINT};

/// The number and the wire type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) field: u32,
    pub(crate) wire_type: u8,
}

/// A message that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    /// The batch, up to the end of the message.
    bytes: &'a [u8],
    at: usize,
    message: &'static Message,
}

impl<'a> Reader<'a> {
    /// Creates a reader of a whole batch, which is one message.
    pub(crate) const fn new(batch: &'a [u8], message: &'static Message) -> Self {
        Self { bytes: batch, at: 0, message }
    }

    /// Creates a reader of a message at a position in a batch.
    pub(crate) fn at(batch: &'a [u8], place: Slice, message: &'static Message) -> Self {
        let (at, len) = (place.at as usize, place.len as usize);
        Self { bytes: &batch[..at + len], at, message }
    }

    pub(crate) const fn schema(&self) -> &'static Message {
        self.message
    }

    /// Returns the position of the unread bytes.
    pub(crate) fn whole(&self) -> Slice {
        Slice { at: short(self.at), len: short(self.bytes.len() - self.at) }
    }

    /// Returns the unread bytes of the message.
    pub(crate) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Reads the tag of the next field; [`None`] at the end of the message.
    #[inline(always)]
    pub(crate) fn tag(&mut self) -> Result<Option<Tag>, Broken> {
        let Some(&first) = self.bytes.get(self.at) else { return Ok(None) };
        let tag = if first < 0x80 {
            self.at += 1;
            u64::from(first)
        } else {
            self.varint()?
        };
        let wire_type = (tag & 7) as u8;
        match u32::try_from(tag >> 3) {
            Ok(field @ 1..=0x1FFF_FFFF) => Ok(Some(Tag { field, wire_type })),
            _ => Err(self.fault(Fault::FieldNumber(tag >> 3))),
        }
    }

    #[inline(always)]
    pub(crate) fn varint(&mut self) -> Result<u64, Broken> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Broken> {
        let mut number = 0;
        for (nth, &byte) in self.bytes[self.at..].iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7F) << (7 * nth);
            if byte < 0x80 {
                // The tenth byte has room for the last bit alone.
                if nth == 9 && byte > 1 {
                    break;
                }
                self.at += nth + 1;
                return Ok(number);
            }
        }
        let is_cut_off = self.bytes.len() - self.at < 10;
        Err(self.fault(if is_cut_off { Fault::CutOff } else { Fault::TooLong }))
    }

    #[inline(always)]
    pub(crate) fn fixed64(&mut self) -> Result<u64, Broken> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline(always)]
    pub(crate) fn fixed32(&mut self) -> Result<u32, Broken> {
        self.array().map(u32::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let Some(bytes) = self.bytes[self.at..].first_chunk::<N>() else {
            return Err(self.fault(Fault::CutOff));
        };
        self.at += N;
        Ok(*bytes)
    }

    /// Reads the length of a text, of bytes or of a message, and skips them; returns their position.
    #[inline(always)]
    pub(crate) fn slice(&mut self) -> Result<Slice, Broken> {
        let len = self.varint()?;
        let left = self.bytes.len() - self.at;
        if len > left as u64 {
            return Err(self.fault(Fault::Length { len, left }));
        }
        let at = self.at;
        self.at += usize::try_from(len).unwrap_or(left);
        Ok(Slice { at: short(at), len: short(self.at - at) })
    }

    /// Skips the inner message that comes next; returns a reader of it.
    #[inline(always)]
    pub(crate) fn message(&mut self, message: &'static Message) -> Result<Self, Broken> {
        let slice = self.slice()?;
        Ok(Self { bytes: &self.bytes[..self.at], at: slice.at as usize, message })
    }

    /// Reads a count; a count above 32 bits becomes the maximum.
    #[inline(always)]
    pub(crate) fn count(&mut self) -> Result<u32, Broken> {
        Ok(u32::try_from(self.varint()?).unwrap_or(u32::MAX))
    }

    /// Reads an enumeration. Negative numbers have 64 bits in protobuf.
    #[inline(always)]
    pub(crate) fn enumerated(&mut self) -> Result<i32, Broken> {
        let number = self.varint()?.cast_signed();
        Ok(i32::try_from(number).unwrap_or_default())
    }

    /// Reads an integer whose sign is in its lowest bit.
    pub(crate) fn zigzag(&mut self) -> Result<i64, Broken> {
        self.varint().map(curtail_protobuf::unzigzag)
    }

    /// Returns the bytes at a position in this message.
    #[inline(always)]
    pub(crate) fn bytes(&self, slice: Slice) -> &'a [u8] {
        slice.of(self.bytes)
    }

    /// Skips the value of a field, such as an unknown field of a later version.
    pub(crate) fn skip(&mut self, tag: Tag) -> Result<(), Broken> {
        match tag.wire_type {
            VARINT => self.varint().map(drop),
            FIXED64 => self.fixed64().map(drop),
            LEN => self.slice().map(drop),
            FIXED32 => self.fixed32().map(drop),
            other => Err(self.fault(Fault::WireType(other))),
        }
    }

    /// Skips a field that the caller does not read; fails if the field has another wire type than in the schema.
    #[cold]
    pub(crate) fn other(&mut self, tag: Tag) -> Result<(), Broken> {
        let Some(field) = self.message.field(tag.field) else { return self.skip(tag) };
        let expected = field.kind.wire_type();
        if tag.wire_type == expected {
            return self.skip(tag);
        }
        let fault = Fault::OtherType { field: tag.field, found: tag.wire_type, expected };
        Err(self.fault(fault))
    }

    #[cold]
    pub(crate) fn fault(&self, fault: Fault) -> Broken {
        Box::new(Malformed { at: self.at, message: self.message.name, fault })
    }
}

#[cfg(test)]
mod tests;
