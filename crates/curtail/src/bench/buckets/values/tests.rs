use super::{LINE_BYTES_MAX, fields, read_lines};
use crate::bench::buckets::Unit;
use crate::input::decompress;
use curtail_units::Duration;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, Write as _};

/// The values in nanoseconds, or what is wrong.
fn read(text: &[u8], column: Option<&str>, unit: Unit) -> Result<Vec<u64>, String> {
    let values = read_lines(text, column, unit).map_err(|error| error.to_string())?;
    Ok(values.as_slice().iter().copied().map(Duration::as_ns).collect())
}

#[test]
fn a_number_a_line() {
    let text = b"\xEF\xBB\xBF3\r\n1.5\n\n 2e0 \n0";
    assert_eq!(read(text, None, Unit::Us), Ok(vec![0, 1_500, 2_000, 3_000]));
    assert_eq!(read(b"0.25", None, Unit::S), Ok(vec![250_000_000]));
}

#[test]
fn a_column_by_its_name() {
    let text = b"at,\"path, query\",elapsed\n1,\"/a,\"\"b\"\"\",7\n2,/c,5\n";
    assert_eq!(read(text, Some("elapsed"), Unit::Ns), Ok(vec![5, 7]));
    assert_eq!(
        fields("a,\"b \"\"c\"\", d\",\"\",").expect("quotes are closed"),
        ["a", "b \"c\", d", "", ""]
    );
}

#[test]
fn errors_name_their_line() {
    let long = [vec![b'1'; LINE_BYTES_MAX + 1], b"\n".to_vec()].concat();
    for (text, column, expected) in [
        (
            &b"1\nabc\n"[..],
            None,
            "line 2: expected a number of ms from 0 to 100 days, found \"abc\"",
        ),
        (b"1\n-1\n", None, "line 2: expected a number of ms from 0 to 100 days, found -1"),
        (b"NaN\n", None, "line 1: expected a number of ms from 0 to 100 days, found NaN"),
        (b"1\n2,3\n", None, "line 2: expected a number of ms from 0 to 100 days, found \"2,3\""),
        (
            b"1e12\n",
            None,
            "line 1: expected a number of ms from 0 to 100 days, found 1000000000000",
        ),
        (b"1\n\xFF\n", None, "line 2: expected text in UTF-8"),
        (&*long, None, "line 1: expected at most 1048576 bytes"),
        (b"", None, "expected values, found none"),
        (b"\n\n", None, "expected values, found none"),
        (b"a,b\n", Some("b"), "expected values, found none"),
        (b"a,b\n1,2\n", Some("c"), "line 1: there is no column \"c\": expected one of a, b"),
        (b"a,b\n1,2\n3\n", Some("b"), "line 3: expected at least 2 fields, found 1"),
        (
            b"a,b\n1,\n",
            Some("b"),
            "line 2: field 2: expected a number of ms from 0 to 100 days, found \"\"",
        ),
        (b"a\n\"1\n", Some("a"), "line 2: expected a closing quote before the end of the line"),
    ] {
        assert_eq!(read(text, column, Unit::Ms), Err(expected.to_owned()));
    }
}

#[test]
fn packed_files_are_known_by_their_first_bytes() {
    let plain = b"1\n2\n".to_vec();
    let gzip = || -> io::Result<Vec<u8>> {
        let mut packing = GzEncoder::new(Vec::new(), Compression::default());
        packing.write_all(&plain)?;
        packing.finish()
    };
    let gzip = gzip().expect("writing to memory");
    let zstd = zstd::encode_all(&*plain, 1).expect("writing to memory");
    for packed in [&plain, &gzip, &zstd] {
        let lines = decompress(&**packed).expect("reading from memory");
        let values = read_lines(lines, None, Unit::Ns).expect("two numbers");
        assert_eq!(values.as_slice(), [1, 2].map(Duration::from_ns));
    }
    // A packed file that ends early is not a shorter file.
    let cut = &gzip[..gzip.len() - 6];
    let lines = decompress(cut).expect("reading from memory");
    let error = read_lines(lines, None, Unit::Ns).expect_err("its end is missing");
    assert!(error.to_string().starts_with("line "), "{error}");
}
