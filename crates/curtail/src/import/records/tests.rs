use super::*;
use std::io::{Cursor, Write as _};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("compressed")
}

fn framed(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).expect("short");
    [&len.to_be_bytes()[..], message].concat()
}

/// A reader that gives one byte at a time, as a slow pipe does.
struct Drops(Cursor<Vec<u8>>);

impl Read for Drops {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(1);
        self.0.read(&mut into[..len])
    }
}

type NumberedRecord = (u64, Result<Vec<u8>, String>);

fn records(file: &[u8]) -> Vec<NumberedRecord> {
    let whole: Vec<_> = Records::new(Cursor::new(file.to_vec())).expect("opened").collect();
    let in_drops = Records::new(Drops(Cursor::new(file.to_vec()))).expect("opened");
    assert_eq!(in_drops.collect::<Vec<_>>(), whole);
    whole
}

fn good(nth: u64, bytes: &[u8]) -> NumberedRecord {
    (nth, Ok(bytes.to_vec()))
}

#[test]
fn lines_have_their_numbers_in_every_compression() {
    let lines = b"{1}\n\n  \r\n{2}\n{3}";
    for file in [lines.to_vec(), gzip(lines), zstd(lines)] {
        let want = [good(1, b"{1}\n"), good(4, b"{2}\n"), good(5, b"{3}")];
        assert_eq!(records(&file), want);
    }
    // Appending to a compressed file adds a member.
    let twice = [gzip(b"{1}\n"), gzip(b"{2}\n")].concat();
    assert_eq!(records(&twice), [good(1, b"{1}\n"), good(2, b"{2}\n")]);
    let twice = [zstd(b"{1}\n"), zstd(b"{2}\n")].concat();
    assert_eq!(records(&twice), [good(1, b"{1}\n"), good(2, b"{2}\n")]);
    assert_eq!(records(b""), []);
    assert_eq!(records(b"\n\n"), []);
    // A byte order mark is left out, at the start of the file alone.
    assert_eq!(
        records("\u{feff}{1}\n\u{feff}".as_bytes()),
        [good(1, b"{1}\n"), good(2, "\u{feff}".as_bytes())]
    );
}

#[test]
fn messages_are_read_without_their_lengths() {
    let plain = [framed(b"{1}"), framed(b""), framed(b"\x0A\x00")].concat();
    let compressed =
        [framed(&zstd(b"{1}")), framed(&zstd(b"")), framed(&zstd(b"\x0A\x00"))].concat();
    for file in [plain.clone(), compressed.clone(), zstd(&plain), gzip(&compressed)] {
        let want = [good(1, b"{1}"), good(2, b""), good(3, b"\x0A\x00")];
        assert_eq!(records(&file), want);
    }
}

#[test]
fn what_is_cut_off_or_too_long_is_named_with_its_byte() {
    let bad = |nth, error: &str| (nth, Err(error.to_owned()));
    let cut = [framed(b"{1}"), framed(b"{22}")].concat();
    assert_eq!(
        records(&cut[..cut.len() - 1]),
        [good(1, b"{1}"), bad(2, "byte 7: the file ends after 3 of 4 bytes of a message")]
    );
    assert_eq!(
        records(&cut[..9]),
        [good(1, b"{1}"), bad(2, "byte 7: expected a length of four bytes")]
    );
    let long = [&framed(b"{1}"), &[0x04, 0, 0, 1][..], b"xxxx"].concat();
    let what =
        "byte 7: a length of 67108865 bytes, expected at most 67108864; the rest is not read";
    assert_eq!(records(&long), [good(1, b"{1}"), bad(2, what)]);
    // A compressed message that is damaged leaves the others.
    let mut damaged = zstd(b"{1}");
    damaged.truncate(damaged.len() - 1);
    let [(1, Err(first)), second] = &*records(&[framed(&damaged), framed(b"{2}")].concat()) else {
        panic!("two");
    };
    assert!(first.starts_with("the message cannot be decompressed: "));
    assert_eq!(*second, good(2, b"{2}"));
    // A compressed file that is damaged ends there.
    let compressed = gzip(&b"{1}\n".repeat(100_000));
    let found = records(&compressed[..compressed.len() / 2]);
    let Some(((_, Err(last)), before)) = found.split_last() else { panic!("{found:?}") };
    assert!(last.starts_with("cannot be read beyond byte "), "{last}");
    assert!(before.iter().all(|(_, record)| record.is_ok()));
}

#[test]
fn a_line_that_is_too_long_is_passed_over() {
    let long = [&b"{1}\n"[..], &vec![b'x'; RECORD_BYTES_MAX + 1], b"\n{3}\n"].concat();
    let found: Vec<_> = Records::new(Cursor::new(long)).expect("opened").collect();
    let second = (2, Err("the line has more than 67108864 bytes".to_owned()));
    assert_eq!(found, [good(1, b"{1}\n"), second, good(3, b"{3}\n")]);
}
