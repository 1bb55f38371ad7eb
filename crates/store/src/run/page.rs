//! The header of a page, in Thrift's compact protocol.
//!
//! **Source**: parquet.thrift of apache/parquet-format; "Thrift Compact protocol encoding" of apache/thrift.

use crate::encoding::{Damaged, take_varint};
use curtail_protobuf::{unzigzag, varint, zigzag};

/// The header of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) of: Of,
    /// The length of the body before compression.
    pub(super) raw_len: usize,
    /// The length of the body, which follows the header.
    pub(super) len: usize,
    pub(super) checksum: u32,
    /// The number of rows, or of entries of lists.
    pub(super) values: usize,
    /// The encoding by Parquet's number.
    pub(super) encoding: i32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Of {
    #[default]
    Data,
    Dictionary,
}

// Types of fields, in Thrift's numbers.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const STRUCT: u8 = 12;

/// Parquet's number of the encoding of levels, RLE.
const RLE: i32 = 3;

const CUT_OFF: Damaged = Damaged("the header of a page is cut off");

impl Header {
    /// Appends the header.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let of = match self.of {
            Of::Data => 0,
            Of::Dictionary => 2,
        };
        put(out, 1, of);
        put(out, 1, int(self.raw_len));
        put(out, 1, int(self.len));
        put(out, 1, self.checksum.cast_signed());
        match self.of {
            Of::Data => {
                out.push(1 << 4 | STRUCT);
                put(out, 1, int(self.values));
                put(out, 1, self.encoding);
                put(out, 1, RLE);
                put(out, 1, RLE);
            }
            Of::Dictionary => {
                out.push(3 << 4 | STRUCT);
                put(out, 1, int(self.values));
                put(out, 1, self.encoding);
            }
        }
        // Both structs end.
        out.extend_from_slice(&[0, 0]);
    }

    /// Takes a header from the front of `bytes`.
    pub(super) fn take(bytes: &mut &[u8]) -> Result<Self, Damaged> {
        let mut header = Self::default();
        let mut field = 0;
        while let Some(of) = take_field(bytes, &mut field)? {
            match (field, of) {
                (1, I32) => {
                    header.of = match take_int(bytes)? {
                        0 => Of::Data,
                        2 => Of::Dictionary,
                        _ => return Err(Damaged("a page is of a kind that is not written here")),
                    }
                }
                (2, I32) => header.raw_len = take_len(bytes)?,
                (3, I32) => header.len = take_len(bytes)?,
                (4, I32) => header.checksum = take_int(bytes)?.cast_unsigned(),
                (5 | 7, STRUCT) => header.take_inner(bytes)?,
                _ => skip(bytes, of)?,
            }
        }
        Ok(header)
    }

    fn take_inner(&mut self, bytes: &mut &[u8]) -> Result<(), Damaged> {
        let mut field = 0;
        while let Some(of) = take_field(bytes, &mut field)? {
            match (field, of) {
                (1, I32) => self.values = take_len(bytes)?,
                (2, I32) => self.encoding = take_int(bytes)?,
                _ => skip(bytes, of)?,
            }
        }
        Ok(())
    }
}

fn put(out: &mut Vec<u8>, step: u8, number: i32) {
    out.push(step << 4 | I32);
    varint(out, zigzag(number.into()));
}

fn int(number: usize) -> i32 {
    i32::try_from(number).expect("a row group has less than 2 GiB")
}

/// Takes the head of a field, and adds its step to the number `field`. Returns its type; [`None`] ends a struct.
fn take_field(bytes: &mut &[u8], field: &mut i16) -> Result<Option<u8>, Damaged> {
    let head = take_byte(bytes)?;
    let (step, of) = (head >> 4, head & 0xF);
    if of == 0 {
        return Ok(None);
    }
    if step == 0 {
        return Err(Damaged("the header of a page has a field out of order"));
    }
    *field = field.checked_add(i16::from(step)).ok_or(CUT_OFF)?;
    Ok(Some(of))
}

fn skip(bytes: &mut &[u8], of: u8) -> Result<(), Damaged> {
    match of {
        TRUE | FALSE => Ok(()),
        BYTE => take_byte(bytes).map(drop),
        I32 | I64 => take_varint(bytes).map(drop),
        BINARY => {
            let len = usize::try_from(take_varint(bytes)?).map_err(|_| CUT_OFF)?;
            *bytes = bytes.get(len..).ok_or(CUT_OFF)?;
            Ok(())
        }
        _ => Err(Damaged("the header of a page has a field that is not written here")),
    }
}

fn take_byte(bytes: &mut &[u8]) -> Result<u8, Damaged> {
    let (byte, rest) = bytes.split_first().ok_or(CUT_OFF)?;
    *bytes = rest;
    Ok(*byte)
}

fn take_int(bytes: &mut &[u8]) -> Result<i32, Damaged> {
    i32::try_from(unzigzag(take_varint(bytes)?)).map_err(|_| CUT_OFF)
}

fn take_len(bytes: &mut &[u8]) -> Result<usize, Damaged> {
    usize::try_from(take_int(bytes)?).map_err(|_| Damaged("a page has a negative length"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use curtail_units::Rng;

    const SEED: u64 = 5;

    #[test]
    fn a_header_comes_back_and_one_that_is_cut_off_does_not() {
        for of in [Of::Data, Of::Dictionary] {
            let checksum = 0xFEDC_BA98;
            let header =
                Header { of, raw_len: 70_000, len: 9, checksum, values: 8_192, encoding: 8 };
            let mut bytes = Vec::new();
            header.write(&mut bytes);
            let mut rest = &*bytes;
            assert_eq!(Header::take(&mut rest), Ok(header));
            assert!(rest.is_empty());
            for len in 0..bytes.len() {
                assert!(Header::take(&mut &bytes[..len]).is_err(), "{len} bytes of {of:?}");
            }
        }
    }

    #[test]
    fn noise_is_read_or_refused() {
        println!("seed {SEED}");
        let mut rng = Rng::new(SEED);
        for _ in 0..50_000 {
            let len = rng.below(40);
            let noise: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
            let mut rest = &*noise;
            let is_read = Header::take(&mut rest).is_ok();
            assert!(rest.len() < noise.len() || !is_read);
        }
    }
}
