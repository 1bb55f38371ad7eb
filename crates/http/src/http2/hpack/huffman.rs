//! HPACK's Huffman code (RFC 7541, appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers, in the order of their symbols. The lengths
//! therefore determine all codes.

/// The length of each symbol's code.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
];

const LENGTH_MAX: usize = 30;

/// Codes of at most this length are looked up at once.
const SHORT: u32 = 8;

struct Code {
    /// The symbols in the order of their codes.
    symbols: [u8; 256],
    /// For each length, its first code, its number of codes, and the position of the first one in `symbols`.
    lengths: [(u32, u32, u8); LENGTH_MAX + 1],
    /// For the next [`SHORT`] bits, the symbol and its length; zero if the code is longer.
    short: [(u8, u8); 1 << SHORT],
}

static CODE: Code = {
    let mut code = Code {
        symbols: [0; 256],
        lengths: [(0, 0, 0); LENGTH_MAX + 1],
        short: [(0, 0); 1 << SHORT],
    };
    let (mut next, mut position, mut length) = (0_u32, 0_usize, 1_usize);
    while length <= LENGTH_MAX {
        next <<= 1;
        #[expect(clippy::cast_possible_truncation, reason = "there are 256 symbols")]
        let first_position = position as u8;
        let first = next;
        let mut symbol = 0_usize;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                #[expect(clippy::cast_possible_truncation, reason = "there are 256 symbols")]
                let text = symbol as u8;
                code.symbols[position] = text;
                if length <= SHORT as usize {
                    let unused = SHORT - LENGTHS[symbol] as u32;
                    let mut from = next << unused;
                    let to = (next + 1) << unused;
                    while from < to {
                        code.short[from as usize] = (text, LENGTHS[symbol]);
                        from += 1;
                    }
                }
                position += 1;
                next += 1;
            }
            symbol += 1;
        }
        code.lengths[length] = (first, next - first, first_position);
        length += 1;
    }
    code
};

/// Decodes a text; [`None`] if it is not valid, or does not end with the beginning of the code for the end.
pub(super) fn decode(text: &[u8], decoded: &mut Vec<u8>) -> Option<()> {
    let mut rest = text.iter();
    // The next bits begin at the highest bit.
    let (mut bits, mut count) = (0_u64, 0_u32);
    // A symbol has at least 5 bits.
    decoded.reserve(text.len() * 8 / 5);
    loop {
        while count <= 56 {
            let Some(byte) = rest.next() else { break };
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
        }
        let (symbol, length) = match CODE.short[(bits >> (64 - SHORT)) as usize] {
            (_, 0) => long_symbol(bits)?,
            short => short,
        };
        let length = u32::from(length);
        if length > count {
            break;
        }
        decoded.push(symbol);
        bits <<= length;
        count -= length;
    }
    let is_padding = count < 8 && bits.leading_ones() >= count;
    is_padding.then_some(())
}

fn long_symbol(bits: u64) -> Option<(u8, u8)> {
    for length in SHORT as usize + 1..=LENGTH_MAX {
        let (first, count, position) = CODE.lengths[length];
        #[expect(clippy::cast_possible_truncation, reason = "a code has at most 30 bits")]
        let nth = ((bits >> (64 - length)) as u32).wrapping_sub(first);
        if nth < count {
            #[expect(clippy::cast_possible_truncation, reason = "both are below 256")]
            return Some((CODE.symbols[usize::from(position) + nth as usize], length as u8));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u8]) -> Option<String> {
        let mut decoded = Vec::new();
        decode(text, &mut decoded)?;
        Some(String::from_utf8(decoded).expect("UTF-8"))
    }

    /// RFC 7541, appendices C.4 and C.6.
    #[test]
    fn the_examples_of_the_rfc_are_decoded() {
        for (encoded, text) in [
            (
                &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f], "custom-key"),
            (&[0x64, 0x02], "302"),
            (&[0xae, 0xc3, 0x77, 0x1a, 0x4b], "private"),
            (
                &[
                    0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04,
                    0x0b, 0x81, 0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
                ],
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
            (b"", ""),
        ] {
            assert_eq!(decoded(encoded).as_deref(), Some(text));
        }
    }

    /// The codes of these symbols, as the RFC lists them.
    #[test]
    fn long_codes_have_the_numbers_of_the_rfc() {
        for (symbol, code, length) in [
            (0, 0x1ff8_u64, 13_u32),
            (b'{', 0x7ffe, 15),
            (b'\\', 0x7fff0, 19),
            (128, 0xfffe6, 20),
            (9, 0xff_ffea, 24),
            (199, 0x1ff_ffec, 25),
            (192, 0x3ff_ffe0, 26),
            (203, 0x7ff_ffde, 27),
            (249, 0xfff_fffe, 28),
            (22, 0x3fff_fffe, 30),
        ] {
            let padded = (code << (64 - length)) | (u64::MAX >> length);
            let mut decoded = Vec::new();
            let bytes = length.div_ceil(8) as usize;
            decode(&padded.to_be_bytes()[..bytes], &mut decoded).expect("a valid text");
            assert_eq!(decoded, [symbol]);
        }
    }

    #[test]
    fn padding_is_shorter_than_a_byte_and_of_ones() {
        assert_eq!(decoded(&[0x64, 0x02, 0xff]), None, "a whole byte");
        assert_eq!(decoded(&[0b0000_0000]), None, "zeros after the first symbol");
        assert_eq!(decoded(&[0xff; 4]), None, "the code for the end");
        assert_eq!(decoded(&[0b0000_0111]).as_deref(), Some("0"));
    }
}
