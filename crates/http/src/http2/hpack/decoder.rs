//! Decodes blocks of headers.

use super::static_table::ENTRIES;
use super::{FIELD_BYTES, TABLE_BYTES_MAX, huffman};
use std::collections::VecDeque;

/// A block that is not valid; the state of the decoder is then lost, and with it the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(in super::super) struct InvalidBlock(pub(in super::super) &'static str);

impl InvalidBlock {
    /// The header list is so far above its limit that decoding the rest of it is not worth the work.
    pub(in super::super) const EXCESSIVE: Self =
        Self("a header list of more than four times its maximum size");
}

const TRUNCATED: InvalidBlock = InvalidBlock("a header block ends within a field");
const BAD_INDEX: InvalidBlock =
    InvalidBlock("a header block has an index that is not in the table");
const BAD_INTEGER: InvalidBlock = InvalidBlock("a header block has an integer that is too large");
const BAD_HUFFMAN: InvalidBlock = InvalidBlock("a header block has an invalid Huffman code");
const BAD_SIZE: InvalidBlock = InvalidBlock("a header block sets a larger table than is allowed");
const LATE_SIZE: InvalidBlock = InvalidBlock("a header block sets the table's size after a field");

/// An entry of the dynamic table.
#[derive(Debug)]
struct Entry {
    /// The name, then the value.
    text: Box<[u8]>,
    name_len: usize,
}

impl Entry {
    fn size(&self) -> usize {
        self.text.len() + FIELD_BYTES
    }
}

#[derive(Debug)]
pub(in super::super) struct Decoder {
    /// The dynamic table, newest entry first.
    table: VecDeque<Entry>,
    table_bytes: usize,
    table_bytes_max: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: VecDeque::new(),
            table_bytes: 0,
            table_bytes_max: TABLE_BYTES_MAX,
            name: Vec::new(),
            value: Vec::new(),
        }
    }
}

impl Decoder {
    /// Decodes a block, and passes on each name and value, until that fails.
    pub(in super::super) fn decode(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]) -> Result<(), InvalidBlock>,
    ) -> Result<(), InvalidBlock> {
        let mut rest = block;
        let mut has_fields = false;
        while let Some(first) = rest.first() {
            match first {
                0b1000_0000.. => {
                    let (name, value) = self.indexed(take_integer(&mut rest, 7)?)?;
                    field(name, value)?;
                }
                0b0100_0000.. => {
                    self.take_literal(&mut rest, 6)?;
                    field(&self.name, &self.value)?;
                    self.insert();
                }
                0b0010_0000.. => {
                    if has_fields {
                        return Err(LATE_SIZE);
                    }
                    self.resize(take_integer(&mut rest, 5)?)?;
                    continue;
                }
                _ => {
                    self.take_literal(&mut rest, 4)?;
                    field(&self.name, &self.value)?;
                }
            }
            has_fields = true;
        }
        Ok(())
    }

    fn indexed(&self, index: usize) -> Result<(&[u8], &[u8]), InvalidBlock> {
        let nth = index.checked_sub(1).ok_or(BAD_INDEX)?;
        if let Some((name, value)) = ENTRIES.get(nth) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.table.get(nth - ENTRIES.len()).ok_or(BAD_INDEX)?;
        Ok(entry.text.split_at(entry.name_len))
    }

    /// Reads a literal field, whose name may be that of an entry.
    fn take_literal(&mut self, rest: &mut &[u8], prefix: u32) -> Result<(), InvalidBlock> {
        let index = take_integer(rest, prefix)?;
        let mut name = std::mem::take(&mut self.name);
        name.clear();
        if index == 0 {
            take_text(rest, &mut name)?;
        } else {
            name.extend_from_slice(self.indexed(index)?.0);
        }
        self.name = name;
        self.value.clear();
        take_text(rest, &mut self.value)
    }

    /// Inserts the last literal into the table. An entry that is larger than the table empties it (RFC 7541, section
    /// 4.4).
    fn insert(&mut self) {
        let size = self.name.len() + self.value.len() + FIELD_BYTES;
        self.evict(self.table_bytes_max.saturating_sub(size));
        if size <= self.table_bytes_max {
            let text = [&*self.name, &*self.value].concat().into();
            self.table.push_front(Entry { text, name_len: self.name.len() });
            self.table_bytes += size;
        }
    }

    fn evict(&mut self, bytes_max: usize) {
        while self.table_bytes > bytes_max {
            let Some(oldest) = self.table.pop_back() else { return };
            self.table_bytes -= oldest.size();
        }
    }

    fn resize(&mut self, bytes_max: usize) -> Result<(), InvalidBlock> {
        if bytes_max > TABLE_BYTES_MAX {
            return Err(BAD_SIZE);
        }
        self.table_bytes_max = bytes_max;
        self.evict(bytes_max);
        Ok(())
    }
}

/// Reads an integer whose first byte has `prefix` bits of it (RFC 7541, section 5.1).
fn take_integer(rest: &mut &[u8], prefix: u32) -> Result<usize, InvalidBlock> {
    let (first, after) = rest.split_first().ok_or(TRUNCATED)?;
    *rest = after;
    let mask = (1_u8 << prefix) - 1;
    let mut integer = u32::from(first & mask);
    if first & mask < mask {
        return Ok(integer as usize);
    }
    // Four bytes are far more than any size that is accepted.
    for shift in [0, 7, 14, 21] {
        let (byte, after) = rest.split_first().ok_or(TRUNCATED)?;
        *rest = after;
        integer += u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(integer as usize);
        }
    }
    Err(BAD_INTEGER)
}

fn take_text(rest: &mut &[u8], text: &mut Vec<u8>) -> Result<(), InvalidBlock> {
    let is_huffman = rest.first().is_some_and(|first| first & 0x80 != 0);
    let len = take_integer(rest, 7)?;
    let (encoded, after) = rest.split_at_checked(len).ok_or(TRUNCATED)?;
    *rest = after;
    if is_huffman {
        huffman::decode(encoded, text).ok_or(BAD_HUFFMAN)
    } else {
        text.extend_from_slice(encoded);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
