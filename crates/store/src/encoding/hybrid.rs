//! The RLE / bit-packing hybrid: small numbers, with sequences of equal numbers.
//!
//! A sequence of eight or more equal numbers is an RLE run: a header, and the number once. Others are packed in groups
//! of eight.

use super::bits::{GROUP, pack, unpack};
use super::{Damaged, take_bytes, take_varint};
use curtail_protobuf::varint;
use std::ops::Range;

/// The number of bits that numbers up to `max` need.
pub(crate) fn width(max: u32) -> u8 {
    super::bits::width(u64::from(max))
}

/// Writes numbers, none of which needs more than `width` bits.
pub(crate) fn encode(out: &mut Vec<u8>, numbers: &[u32], width: u8) {
    let (mut packed_from, mut at) = (0, 0);
    while at < numbers.len() {
        let run = run_len(&numbers[at..]);
        if run < GROUP {
            at = (at + GROUP).min(numbers.len());
            continue;
        }
        put_packed(out, &numbers[packed_from..at], width);
        varint(out, (run as u64) << 1);
        out.extend_from_slice(&numbers[at].to_le_bytes()[..usize::from(width.div_ceil(8))]);
        at += run;
        packed_from = at;
    }
    put_packed(out, &numbers[packed_from..], width);
}

/// The number of equal numbers at the beginning; one if there are fewer than a group.
fn run_len(numbers: &[u32]) -> usize {
    let first = numbers[0];
    // Comparing a group takes as long as comparing one number.
    let groups = numbers.as_chunks::<GROUP>().0.iter();
    let same = GROUP * groups.take_while(|group| **group == [first; GROUP]).count();
    if same == 0 {
        return 1;
    }
    same + numbers[same..].iter().take_while(|number| **number == first).count()
}

fn put_packed(out: &mut Vec<u8>, numbers: &[u32], width: u8) {
    if !numbers.is_empty() {
        let groups = numbers.len().div_ceil(GROUP) as u64;
        varint(out, groups << 1 | 1);
        pack(out, numbers.iter().copied().map(u64::from), width);
    }
}

/// The numbers that follow one header.
enum Stretch<'a> {
    /// A number, and how often it occurs.
    Same(u32, usize),
    /// Packed numbers, in whole groups.
    Packed(&'a [u8]),
}

/// Takes the next stretch. Returns also the number of its numbers that are wanted, at most `left`.
fn take_stretch<'a>(
    bytes: &mut &'a [u8],
    width: u8,
    left: usize,
) -> Result<(Stretch<'a>, usize), Damaged> {
    let header = take_varint(bytes)?;
    let times = usize::try_from(header >> 1).map_err(|_| Damaged("a run is too long"))?;
    if times == 0 {
        return Err(Damaged("a run has no numbers"));
    }
    if header & 1 == 1 {
        let groups = times.min(left.div_ceil(GROUP));
        let packed = take_bytes(bytes, groups * usize::from(width))?;
        return Ok((Stretch::Packed(packed), left.min(groups * GROUP)));
    }
    let mut number = [0; 4];
    let len = usize::from(width.div_ceil(8));
    number[..len].copy_from_slice(take_bytes(bytes, len)?);
    let number = u32::from_le_bytes(number);
    if super::bits::width(u64::from(number)) > width {
        return Err(Damaged("a number of a run is too large"));
    }
    let times = times.min(left);
    Ok((Stretch::Same(number, times), times))
}

/// Decodes the numbers with indexes in `range`, and appends them to `out`.
///
/// # Errors
/// When there are fewer numbers, or a number needs more than `width` bits.
pub(crate) fn decode(
    out: &mut Vec<u32>,
    mut bytes: &[u8],
    width: u8,
    range: Range<usize>,
) -> Result<(), Damaged> {
    if width > 32 {
        return Err(Damaged("small numbers have at most 32 bits"));
    }
    let end = out.len() + range.len();
    out.reserve(range.len());
    let mut at = 0;
    while at < range.end {
        let (stretch, len) = take_stretch(&mut bytes, width, range.end - at)?;
        let skipped = range.start.saturating_sub(at).min(len);
        match stretch {
            Stretch::Same(number, times) => {
                out.extend(std::iter::repeat_n(number, times - skipped));
            }
            Stretch::Packed(_) if width == 0 => out.resize(out.len() + len - skipped, 0),
            Stretch::Packed(packed) => {
                // Groups before the range are skipped. In its first group, numbers before the range are removed.
                let groups = skipped / GROUP;
                let from = out.len();
                #[expect(clippy::cast_possible_truncation, reason = "of at most 32 bits")]
                unpack(&packed[groups * usize::from(width)..], width, |block| {
                    out.extend(block.iter().map(|number| *number as u32));
                });
                out.truncate(from + len - groups * GROUP);
                out.drain(from..from + skipped % GROUP);
            }
        }
        at += len;
    }
    debug_assert_eq!(out.len(), end, "each stretch says how long it is");
    Ok(())
}

/// The number of ones among the first `count` numbers of one bit.
///
/// # Errors
/// When there are fewer numbers.
pub(crate) fn ones(mut bytes: &[u8], count: usize) -> Result<usize, Damaged> {
    let (mut at, mut ones) = (0, 0);
    while at < count {
        let (stretch, len) = take_stretch(&mut bytes, 1, count - at)?;
        ones += match stretch {
            Stretch::Same(number, times) => number as usize * times,
            Stretch::Packed(packed) => {
                let whole: u32 = packed[..len / 8].iter().map(|byte| byte.count_ones()).sum();
                let rest = packed.get(len / 8).map_or(0, |byte| byte & ((1 << (len % 8)) - 1));
                (whole + rest.count_ones()) as usize
            }
        };
        at += len;
    }
    Ok(ones)
}
