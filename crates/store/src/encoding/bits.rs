//! Numbers of so many bits each, side by side, the lowest bit first.

/// Numbers are packed in groups of this many, which end with a byte whatever their width.
pub(super) const GROUP: usize = 8;

/// How many bits a number needs.
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
            // What had no room; a shift by all 64 bits is none.
            word = number.checked_shr(u32::from(width) - filled).unwrap_or(0);
        }
    }
    out.extend_from_slice(&word.to_le_bytes());
    out.resize(end, 0);
}

/// Unpacks as many numbers as there are, a group at a time.
///
/// # Panics
/// When `width` is over 64.
pub(super) fn unpack(packed: &[u8], width: u8, mut take: impl FnMut([u64; GROUP])) {
    let width = usize::from(width);
    assert!(width <= 64, "numbers have 64 bits");
    if width == 0 {
        return;
    }
    let mask = u64::MAX >> (64 - width);
    for group in packed.chunks_exact(width) {
        // A whole group, and room behind it to read eight bytes from wherever a number begins.
        let mut bytes = [0; 64 + 16];
        bytes[..width].copy_from_slice(group);
        take(std::array::from_fn(|nth| {
            let (byte, shift) = (nth * width / 8, nth * width % 8);
            let number = if width + shift <= 64 {
                u64::from_le_bytes(bytes[byte..byte + 8].try_into().expect("eight bytes")) >> shift
            } else {
                let wide =
                    u128::from_le_bytes(bytes[byte..byte + 16].try_into().expect("16 bytes"));
                #[expect(clippy::cast_possible_truncation, reason = "masked to 64 bits")]
                let number = (wide >> shift) as u64;
                number
            };
            number & mask
        }));
    }
}
