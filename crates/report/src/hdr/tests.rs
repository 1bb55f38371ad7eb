use super::{Damaged, Layout, decode, decompress, encode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use curtail_sketch::{Exact, Histogram, Precision};
use curtail_units::{Duration, Rng};

/// What the port of `HdrHistogram` to Python (package hdrhistogram 0.10.8) made of the values of [`foreign_values`],
/// recorded by `HdrHistogram(1, 2**42 - 1, 3)` and `HdrHistogram(1, 2**42 - 1, 2)`.
const FOREIGN: [&str; 2] = [
    "HISTFAAAAMB4nC2IIUtDARhF3/ve3d13bzGYBnZ/xII/xOqvMBk0jCEipjHEsCAiw2QQGSIiYpAxhphETMYJxvGYk3nKOZyN/ZP1oiiGxYrq3+UyF39sfa+GA6UrNiivoRWbaHubnZLj0jeBtyoeGjhPf4iX4jx9b3QzDoxZ+kKsxVF6aFxnTIVbeZacmHXTtbDI6AtH9lVyYD6mn4QXxWfi2e4mf8RD+Vg4cwwSPXuaHInv8mviztFPfMmnYm9nr7P7CzNOM1U=",
    "HISTFAAAAKh4nC2NQWoCURBE/2s7DRaBLLIKZO8hXHgQbyKEcZiEQQYRERkGEZHgIl7CK3mDZH7GWnRRjy7q/XP3mlK6pkH2cFIa/WbN7gOQORrFU4z14m828anmsSL26IDX2AUvUUfsiDXqY2EnvEE9OBJf6BuvsBbvSw3xQ3zoiK+xLX5CFXEmarTHW6zBL6jI5Q3a4GeszFf/u9GhOr9keEBb4va8XC3+ALsYKRc=",
];

fn foreign_values(mut record: impl FnMut(u64, u64)) {
    let mut value = 1_u64;
    for nth in 0..60 {
        record(value, nth * nth % 7 + 1);
        value = value * 3 / 2 + 1;
    }
    record(0, 5);
    record((1 << 42) - 1, 1_000_000);
}

fn recorded(precision: Precision, count: usize) -> Histogram {
    let mut rng = Rng::new(11);
    let mut histogram = Histogram::new(precision);
    for _ in 0..count {
        histogram.record(Duration::from_ns_f64(2e6 * (1.5 * rng.normal()).exp()));
    }
    histogram
}

#[test]
fn every_bucket_is_one_of_hdr_histogram() {
    for layout in Layout::ALL {
        // HdrHistogram: 2 * 10^digits, up to the next power of two, values have a bucket each; then half as many an
        // octave.
        let singles = (2 * 10_u64.pow(layout.digits)).next_power_of_two();
        assert_eq!(singles, 2 << layout.bits);
        let mut expected = 0;
        let mut all = Histogram::new(layout.precision);
        for index in 0..layout.bucket_count() {
            assert_eq!(layout.lower(index), expected);
            assert_eq!(layout.index(expected), index);
            all.record(Duration::from_ns(expected));
            let octave = (index >> layout.bits).saturating_sub(1);
            expected += 1 << octave;
        }
        assert_eq!(expected, 1 << 42);
        // The lower ends of HdrHistogram's buckets are those of ours, each in a bucket of its own.
        let ours: Vec<u64> = all.buckets().map(|bucket| bucket.lower.as_ns()).collect();
        assert!(ours.iter().copied().eq((0..layout.bucket_count()).map(|i| layout.lower(i))));
        assert!(all.buckets().all(|bucket| bucket.count == 1));
    }
}

#[test]
fn the_output_of_another_implementation_is_read_and_written_unchanged() {
    for (layout, text) in Layout::ALL.into_iter().zip(FOREIGN) {
        let mut expected = Histogram::new(layout.precision);
        foreign_values(|value, n| expected.record_n(Duration::from_ns(value), n));
        assert_eq!(decode(text, expected.exact()), Ok(expected.clone()));
        let plain = |text: &str| decompress(&STANDARD.decode(text).expect("base64")).expect("zlib");
        assert_eq!(plain(text), plain(&encode(&expected)), "byte for byte, before compression");
    }
}

#[test]
fn what_is_written_is_read_back_equal() {
    for precision in [Precision::FINE, Precision::COARSE] {
        for count in [0, 1, 100_000] {
            let mut histogram = recorded(precision, count);
            assert_eq!(decode(&encode(&histogram), histogram.exact()), Ok(histogram.clone()));
            histogram.record_n(Duration::MAX, 1 << 62);
            histogram.record_n(Duration::ZERO, 3);
            assert_eq!(decode(&encode(&histogram), histogram.exact()), Ok(histogram.clone()));
        }
    }
}

#[test]
fn damage_is_found_and_never_worse_than_that() {
    let histogram = recorded(Precision::FINE, 2_000);
    let (text, exact) = (encode(&histogram), histogram.exact());
    let bytes = STANDARD.decode(&text).expect("base64");
    for len in 0..bytes.len() {
        let cut = STANDARD.encode(&bytes[..len]);
        assert!(decode(&cut, exact).is_err(), "cut after {len} of {} bytes", bytes.len());
    }
    // The checksum of zlib is a weak one: a flipped bit within the counts is found nearly always.
    let headers_end = 10;
    let checksum = bytes.len() - 4;
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        let got = decode(&STANDARD.encode(&flipped), exact);
        let is_found = got.is_err() || got.as_ref() == Ok(&histogram);
        assert!(is_found || (headers_end..checksum).contains(&at), "bit {} of byte {at}", at % 8);
    }
    let expected = |text: &str| decode(text, exact).expect_err("damaged").expected;
    assert_eq!(expected("%"), "base64");
    assert_eq!(expected("AAAA"), "a cookie of 4 bytes");
    assert_eq!(expected("AAAAAA=="), "the cookie of a compressed HdrHistogram of version 2");
    assert_eq!(expected(&"A".repeat(2 << 20)), "a histogram of less than a mebibyte");
    let other = Exact { max: exact.max + Duration::from_secs(1), ..exact };
    let error = Damaged { expected: "a maximum in the last bucket that holds a value" };
    assert_eq!(decode(&text, other), Err(error));
}

#[test]
fn what_unpacks_to_more_than_a_histogram_is_refused() {
    use std::io::Read as _;
    let zeros = vec![0; 100 << 20];
    let mut packed = Vec::new();
    let mut encoder = super::ZlibEncoder::new(zeros.as_slice(), super::Compression::best());
    encoder.read_to_end(&mut packed).expect("memory can be read");
    let mut bytes = super::COOKIE_COMPRESSED.to_be_bytes().to_vec();
    bytes.extend(super::len_u32(&packed).to_be_bytes());
    bytes.extend(packed);
    let got = decode(&STANDARD.encode(bytes), Histogram::new(Precision::FINE).exact());
    assert_eq!(got, Err(Damaged { expected: "no more bytes than a full histogram has" }));
}
