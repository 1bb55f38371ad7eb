//! `DELTA_BINARY_PACKED`: 64-bit numbers as bit-packed differences.

use super::bits::{pack, unpack, width};
use super::{Damaged, take_bytes, take_varint};

use curtail_protobuf::{unzigzag, varint, zigzag};

/// The number of differences in a block. The least of them is subtracted from all.
const BLOCK: usize = 128;

/// The number of miniblocks in a block. All differences of a miniblock are packed with the same width.
const MINIBLOCKS: usize = 4;
const MINIBLOCK: usize = BLOCK / MINIBLOCKS;

/// Writes numbers.
pub(crate) fn encode(out: &mut Vec<u8>, numbers: &[i64]) {
    varint(out, BLOCK as u64);
    varint(out, MINIBLOCKS as u64);
    varint(out, numbers.len() as u64);
    let first = numbers.first().copied().unwrap_or(0);
    varint(out, zigzag(first));
    let mut before = first;
    let mut deltas = [0; BLOCK];
    for block in numbers.get(1..).unwrap_or_default().chunks(BLOCK) {
        for (delta, number) in deltas.iter_mut().zip(block) {
            *delta = number.wrapping_sub(before);
            before = *number;
        }
        put_block(out, &deltas[..block.len()]);
    }
}

fn put_block(out: &mut Vec<u8>, deltas: &[i64]) {
    let least = deltas.iter().copied().min().unwrap_or(0);
    varint(out, zigzag(least));
    let above = |delta: &i64| delta.wrapping_sub(least).cast_unsigned();
    let widths_at = out.len();
    out.extend_from_slice(&[0; MINIBLOCKS]);
    for (nth, miniblock) in deltas.chunks(MINIBLOCK).enumerate() {
        let width = width(miniblock.iter().map(above).fold(0, |all, one| all | one));
        out[widths_at + nth] = width;
        let end = out.len() + MINIBLOCK / 8 * usize::from(width);
        pack(out, miniblock.iter().map(above), width);
        out.resize(end, 0);
    }
}

/// Takes numbers from the front of `bytes`, and appends them to `out`.
///
/// # Errors
/// When the numbers are cut off, or there are more than `max`.
pub(crate) fn take(out: &mut Vec<i64>, bytes: &mut &[u8], max: usize) -> Result<(), Damaged> {
    let wrong = Damaged("blocks of differences have a wrong header");
    let block = usize::try_from(take_varint(bytes)?).map_err(|_| wrong)?;
    let miniblocks = usize::try_from(take_varint(bytes)?).map_err(|_| wrong)?;
    let count = usize::try_from(take_varint(bytes)?).map_err(|_| wrong)?;
    if block != BLOCK || miniblocks != MINIBLOCKS || count > max {
        return Err(wrong);
    }
    let mut number = unzigzag(take_varint(bytes)?);
    if count == 0 {
        return Ok(());
    }
    out.reserve(count + MINIBLOCK);
    let end = out.len() + count;
    out.push(number);
    while out.len() < end {
        let least = unzigzag(take_varint(bytes)?);
        for width in take_bytes(bytes, MINIBLOCKS)? {
            if out.len() >= end {
                // The widths that follow are those of miniblocks without numbers.
                break;
            }
            if *width > 64 {
                return Err(Damaged("a difference has more than 64 bits"));
            }
            let packed = take_bytes(bytes, MINIBLOCK / 8 * usize::from(*width))?;
            let mut next = |above: &u64| {
                number = number.wrapping_add(least).wrapping_add(above.cast_signed());
                number
            };
            match *width {
                0 => out.extend([0; MINIBLOCK].iter().map(next)),
                width => unpack(packed, width, |block| out.extend(block.iter().map(&mut next))),
            }
        }
    }
    out.truncate(end);
    Ok(())
}
