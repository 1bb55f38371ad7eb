//! Histograms in the form that `HdrHistogram`'s tools read: V2, compressed, in base64.
//!
//! **Layout**: `HdrHistogram` of 3 significant digits with a lowest value of 1 ns has 2,048 buckets of 1 ns and then
//! 1,024 an octave, which is [`Precision::FINE`]. With 2 digits it has 256 and then 128, which is
//! [`Precision::COARSE`]. Counts are therefore copied one by one. The results file also has the exact sum and extremes.
//! **Form**: a header and the counts, as zigzag LEB128 numbers of at most 9 bytes; a negative number skips empty
//! buckets. Header and counts are compressed by zlib, after a cookie and the compressed length. Headers are big endian.
//! **Limits**: input may be damaged. Texts of at most [`TEXT_LEN_MAX`] bytes are read, and decompressed to no more than
//! a full histogram.
//! **Source**: `AbstractHistogram.encodeIntoCompressedByteBuffer` of `HdrHistogram` 2.2 (Java).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use curtail_sketch::{Exact, Histogram, Precision};
use curtail_units::Duration;
use flate2::read::ZlibEncoder;
use flate2::{Compression, Decompress, FlushDecompress, Status};
use std::io::Read as _;

#[cfg(test)]
mod tests;

/// Maximum length of a text that is read: more than a full histogram of random counts takes.
pub(super) const TEXT_LEN_MAX: usize = 1 << 20;

const COOKIE: u32 = 0x1c84_9313;
const COOKIE_COMPRESSED: u32 = 0x1c84_9314;
const HEADER_LEN: usize = 40;
/// Maximum bytes of a number; the last byte has 8 bits of the number, the others have 7.
const NUMBER_LEN_MAX: usize = 9;
/// The lowest duration above zero, in nanoseconds.
const LOWEST: u64 = 1;
/// The longest duration with a bucket of its own, in nanoseconds.
const HIGHEST: u64 = Precision::END.as_ns() - 1;

/// An invalid text of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged {
    /// The expected form.
    pub(super) expected: &'static str,
}

const fn damaged(expected: &'static str) -> Damaged {
    Damaged { expected }
}

/// A layout that `HdrHistogram` and the recordings of a run have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    digits: u32,
    /// The binary logarithm of the number of buckets an octave.
    bits: u32,
    precision: Precision,
}

impl Layout {
    const ALL: [Self; 2] = [
        Self { digits: 3, bits: 10, precision: Precision::FINE },
        Self { digits: 2, bits: 7, precision: Precision::COARSE },
    ];

    /// The bucket of a duration of `ns`, at most [`HIGHEST`].
    const fn index(self, ns: u64) -> u64 {
        let shift = (ns | (1 << self.bits)).ilog2() - self.bits;
        ((shift as u64) << self.bits) + (ns >> shift)
    }

    /// The shortest duration of a bucket, in nanoseconds.
    const fn lower(self, index: u64) -> u64 {
        let octave = index >> self.bits;
        if octave == 0 {
            return index;
        }
        let first = 1 << self.bits;
        (first | (index & (first - 1))) << (octave - 1)
    }

    const fn bucket_count(self) -> u64 {
        self.index(HIGHEST) + 1
    }
}

/// The counts of a histogram as text. A precision that is not [`Precision::FINE`] becomes [`Precision::COARSE`].
pub(super) fn encode(histogram: &Histogram) -> String {
    let [fine, coarse] = Layout::ALL;
    let layout = if histogram.precision() == fine.precision { fine } else { coarse };
    let counts = counts(layout, histogram);
    let mut plain = Vec::with_capacity(HEADER_LEN + counts.len());
    plain.extend(COOKIE.to_be_bytes());
    plain.extend(len_u32(&counts).to_be_bytes());
    plain.extend(0_u32.to_be_bytes()); // The index is not shifted.
    plain.extend(layout.digits.to_be_bytes());
    plain.extend(LOWEST.to_be_bytes());
    plain.extend(HIGHEST.to_be_bytes());
    plain.extend(1.0_f64.to_be_bytes()); // Values are what they are.
    plain.extend(counts);
    let mut packed = Vec::new();
    let mut encoder = ZlibEncoder::new(plain.as_slice(), Compression::default());
    encoder.read_to_end(&mut packed).expect("memory can be read and written");
    let mut bytes = Vec::with_capacity(8 + packed.len());
    bytes.extend(COOKIE_COMPRESSED.to_be_bytes());
    bytes.extend(len_u32(&packed).to_be_bytes());
    bytes.extend(packed);
    STANDARD.encode(bytes)
}

/// The counts of the buckets; negative numbers skip empty buckets.
fn counts(layout: Layout, histogram: &Histogram) -> Vec<u8> {
    let mut counts = Vec::new();
    let mut next = 0;
    for bucket in histogram.buckets() {
        let index = layout.index(bucket.lower.as_ns());
        let empty = i64::try_from(index - next).expect("at most 2^16 buckets");
        if empty > 0 {
            write_number(&mut counts, -empty);
        }
        // 2^63 requests in one bucket take 290 years at 10^9 a second.
        write_number(&mut counts, i64::try_from(bucket.count).unwrap_or(i64::MAX));
        next = index + 1;
    }
    counts
}

fn len_u32(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("a full histogram takes less than a mebibyte")
}

fn write_number(out: &mut Vec<u8>, number: i64) {
    let mut rest = (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned();
    for _ in 1..NUMBER_LEN_MAX {
        let [low, ..] = rest.to_le_bytes();
        rest >>= 7;
        if rest == 0 {
            out.push(low & 0x7f);
            return;
        }
        out.push(low | 0x80);
    }
    let [last, ..] = rest.to_le_bytes();
    out.push(last);
}

/// A histogram from the text of its counts and its exact figures.
pub(super) fn decode(text: &str, exact: Exact) -> Result<Histogram, Damaged> {
    if text.len() > TEXT_LEN_MAX {
        return Err(damaged("a histogram of less than a mebibyte"));
    }
    let bytes = STANDARD.decode(text).map_err(|_| damaged("base64"))?;
    let plain = decompress(&bytes)?;
    let (layout, mut rest) = header(&plain)?;
    let mut counts = Vec::new();
    let mut index = 0_u64;
    while !rest.is_empty() {
        let number = read_number(&mut rest)?;
        let step = if number < 0 { number.unsigned_abs() } else { 1 };
        if step > layout.bucket_count() - index {
            return Err(damaged("no more counts than there are buckets"));
        }
        if let Some(count) = u64::try_from(number).ok().filter(|count| *count > 0) {
            counts.push((Duration::from_ns(layout.lower(index)), count));
        }
        index += step;
    }
    Histogram::from_exact(layout.precision, counts, exact)
        .map_err(|inconsistent| damaged(inconsistent.expected))
}

/// Decompresses at most a full histogram.
fn decompress(bytes: &[u8]) -> Result<Vec<u8>, Damaged> {
    let (cookie, rest) = bytes.split_first_chunk().ok_or(damaged("a cookie of 4 bytes"))?;
    if u32::from_be_bytes(*cookie) != COOKIE_COMPRESSED {
        return Err(damaged("the cookie of a compressed HdrHistogram of version 2"));
    }
    let (len, packed) = rest.split_first_chunk().ok_or(damaged("a length of 4 bytes"))?;
    if usize::try_from(u32::from_be_bytes(*len)) != Ok(packed.len()) {
        return Err(damaged("as many compressed bytes as are announced"));
    }
    let [fine, _] = Layout::ALL;
    let most = HEADER_LEN as u64 + fine.bucket_count() * NUMBER_LEN_MAX as u64;
    let most = usize::try_from(most).expect("less than a mebibyte");
    // Memory is what bounds it: no more is decompressed than fits.
    let mut plain = Vec::with_capacity(most + 1);
    let mut decoder = Decompress::new(true);
    let status = decoder.decompress_vec(packed, &mut plain, FlushDecompress::Finish);
    match status {
        Ok(Status::StreamEnd) if decoder.total_in() == packed.len() as u64 => Ok(plain),
        Ok(_) if plain.len() > most => Err(damaged("no more bytes than a full histogram has")),
        Ok(_) | Err(_) => Err(damaged("bytes that zlib unpacks")),
    }
}

/// The layout, and the bytes of the counts.
fn header(plain: &[u8]) -> Result<(Layout, &[u8]), Damaged> {
    const SHORT: Damaged = damaged("a header of 40 bytes");
    let (cookie, rest) = plain.split_first_chunk().ok_or(SHORT)?;
    let (len, rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let (shift, rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let (digits, rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let (lowest, rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let (highest, rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let (scale, counts) = rest.split_first_chunk().ok_or(SHORT)?;
    if u32::from_be_bytes(*cookie) != COOKIE {
        return Err(damaged("the cookie of an HdrHistogram of version 2"));
    }
    let is_plain = u32::from_be_bytes(*shift) == 0 && *scale == 1.0_f64.to_be_bytes();
    let bounds = (u64::from_be_bytes(*lowest), u64::from_be_bytes(*highest));
    if !is_plain || bounds != (LOWEST, HIGHEST) {
        return Err(damaged("nanoseconds from 1 to 2^42 - 1, neither shifted nor scaled"));
    }
    let digits = u32::from_be_bytes(*digits);
    let layout = Layout::ALL.into_iter().find(|layout| layout.digits == digits);
    let layout = layout.ok_or(damaged("2 or 3 significant digits"))?;
    if usize::try_from(u32::from_be_bytes(*len)) != Ok(counts.len()) {
        return Err(damaged("as many bytes of counts as are announced"));
    }
    Ok((layout, counts))
}

fn read_number(rest: &mut &[u8]) -> Result<i64, Damaged> {
    let mut number = 0;
    for nth in 0..NUMBER_LEN_MAX {
        let (&byte, after) = rest.split_first().ok_or(damaged("counts that end whole"))?;
        *rest = after;
        let is_last = nth == NUMBER_LEN_MAX - 1;
        let bits = if is_last { byte } else { byte & 0x7f };
        number |= u64::from(bits) << (7 * nth);
        if is_last || byte < 0x80 {
            break;
        }
    }
    Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}
