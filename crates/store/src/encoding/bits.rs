//! Bit-packed integers of a fixed width, the lowest bit first.

/// The number of packed numbers in a group. Groups fill whole bytes at any width of the numbers.
pub(super) const GROUP: usize = 8;

/// The number of bits that a number needs.
pub(super) fn width(number: u64) -> u8 {
    (u64::BITS - number.leading_zeros()).to_le_bytes()[0]
}

/// Packs numbers, none of which needs more than `width` bits; the last group is filled up with zeros.
pub(super) fn pack(out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u64>, width: u8) {
    let groups = numbers.len().div_ceil(GROUP);
    let end = out.len() + groups * usize::from(width);
    let (mut word, mut filled) = (0_u64, 0_u32);
    for number in numbers {
        word |= number << filled;
        filled += u32::from(width);
        if filled >= u64::BITS {
            out.extend_from_slice(&word.to_le_bytes());
            filled -= u64::BITS;
            // The bits that did not fit into the last word. A shift by all 64 bits leaves none.
            word = number.checked_shr(u32::from(width) - filled).unwrap_or(0);
        }
    }
    out.extend_from_slice(&word.to_le_bytes());
    out.resize(end, 0);
}

/// Unpacks whole groups. `take` gets [`BLOCK`] numbers at a time, and fewer the last time.
///
/// # Panics
/// When `width` is over 64.
pub(super) fn unpack(packed: &[u8], width: u8, mut take: impl FnMut(&[u64])) {
    if width == 0 {
        return;
    }
    let (unpack, width) = (UNPACK[usize::from(width)], usize::from(width));
    let mut numbers = [0; BLOCK];
    let mut blocks = packed.chunks_exact(width * BLOCK / 8);
    for block in &mut blocks {
        unpack(block, &mut numbers);
        take(&numbers);
    }
    let rest = blocks.remainder();
    if !rest.is_empty() {
        let mut block = [0; 64 * BLOCK / 8];
        block[..rest.len()].copy_from_slice(rest);
        unpack(&block[..width * BLOCK / 8], &mut numbers);
        take(&numbers[..rest.len() / width * GROUP]);
    }
}

/// The number of numbers in a block.
pub(super) const BLOCK: usize = 32;

/// Unpacks a block of a width that is known at compile time. So the loop is unrolled.
fn unpack_block<const WIDTH: usize>(packed: &[u8], numbers: &mut [u64; BLOCK]) {
    let len = WIDTH * BLOCK / 8;
    let packed = &packed[..len];
    let mask = u64::MAX >> (64 - WIDTH.max(1));
    for (nth, number) in numbers.iter_mut().enumerate() {
        // The bytes from the beginning of the number, but none beyond the end of the block.
        let bits = nth * WIDTH;
        *number = mask
            & if len < 8 {
                let word = packed.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
                u64::from(word) >> bits
            } else if WIDTH <= 57 {
                let from = (bits / 8).min(len - 8);
                let word = u64::from_le_bytes(*packed[from..].first_chunk().expect("eight bytes"));
                word >> (bits - 8 * from)
            } else {
                let from = (bits / 8).min(len - 16);
                let word = u128::from_le_bytes(*packed[from..].first_chunk().expect("16 bytes"));
                #[expect(clippy::cast_possible_truncation, reason = "masked to 64 bits")]
                let number = (word >> (bits - 8 * from)) as u64;
                number
            };
    }
}

type UnpackBlock = fn(&[u8], &mut [u64; BLOCK]);

/// The functions that unpack a block, by width.
static UNPACK: [UnpackBlock; 65] = {
    macro_rules! of_widths {
        ($($width:literal)*) => { [$(unpack_block::<$width>),*] };
    }
    of_widths!(
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62
        63 64
    )
};
