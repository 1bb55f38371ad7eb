//! Parquet's encodings of numbers.
//!
//! | encoding | encoded values | module |
//! |---|---|---|
//! | RLE / bit-packing hybrid | levels, codes of a dictionary | [`hybrid`] |
//! | `DELTA_BINARY_PACKED` | integers of 64 bits | [`deltas`] |
//!
//! The writers of the parquet crate take values one by one, and hash each to build a dictionary. Here the values are
//! codes of a dictionary already.
//!
//! **Source**: "Encodings.md" of apache/parquet-format.

mod bits;
pub(crate) mod deltas;
pub(crate) mod hybrid;

/// Bytes that are not an encoding of the expected values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(pub(crate) &'static str);

/// Takes an integer of variable length from the front of `bytes`.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Result<u64, Damaged> {
    let mut number = 0;
    for nth in 0..10 {
        let (&byte, rest) = bytes.split_first().ok_or(Damaged("a number is cut off"))?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << (7 * nth);
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Damaged("a number is longer than 64 bits"))
}

/// Takes `len` bytes from the front of `bytes`.
fn take_bytes<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], Damaged> {
    let (taken, rest) = bytes.split_at_checked(len).ok_or(Damaged("values are cut off"))?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests;
