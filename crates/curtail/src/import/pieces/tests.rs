use super::*;
use std::io::Write as _;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packing = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packing.write_all(bytes).expect("packed");
    packing.finish().expect("packed")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("packed")
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

fn pieces(file: &[u8]) -> Vec<Result<Piece, BadPiece>> {
    let whole: Vec<_> = Pieces::of(Cursor::new(file.to_vec())).expect("opened").collect();
    let in_drops = Pieces::of(Drops(Cursor::new(file.to_vec()))).expect("opened");
    assert_eq!(in_drops.collect::<Vec<_>>(), whole);
    whole
}

fn good(nth: u64, bytes: &[u8], is_message: bool) -> Result<Piece, BadPiece> {
    Ok(Piece { nth, bytes: bytes.to_vec(), is_message })
}

#[test]
fn lines_come_with_their_numbers_however_they_are_packed() {
    let lines = b"{1}\n\n  \r\n{2}\n{3}";
    for file in [lines.to_vec(), gzip(lines), zstd(lines)] {
        let want = [good(1, b"{1}\n", false), good(4, b"{2}\n", false), good(5, b"{3}", false)];
        assert_eq!(pieces(&file), want);
    }
    // Whoever appends to a packed file packs again.
    let twice = [gzip(b"{1}\n"), gzip(b"{2}\n")].concat();
    assert_eq!(pieces(&twice), [good(1, b"{1}\n", false), good(2, b"{2}\n", false)]);
    let twice = [zstd(b"{1}\n"), zstd(b"{2}\n")].concat();
    assert_eq!(pieces(&twice), [good(1, b"{1}\n", false), good(2, b"{2}\n", false)]);
    assert_eq!(pieces(b""), []);
    assert_eq!(pieces(b"\n\n"), []);
}

#[test]
fn messages_come_out_of_their_frames() {
    let plain = [framed(b"{1}"), framed(b""), framed(b"\x0A\x00")].concat();
    let packed = [framed(&zstd(b"{1}")), framed(&zstd(b"")), framed(&zstd(b"\x0A\x00"))].concat();
    for file in [plain.clone(), packed.clone(), zstd(&plain), gzip(&packed)] {
        let want = [good(1, b"{1}", true), good(2, b"", true), good(3, b"\x0A\x00", true)];
        assert_eq!(pieces(&file), want);
    }
}

#[test]
fn what_is_cut_off_or_too_long_is_named_with_its_byte() {
    let bad = |nth, what: &str| Err(BadPiece { nth, what: what.to_owned() });
    let cut = [framed(b"{1}"), framed(b"{22}")].concat();
    assert_eq!(
        pieces(&cut[..cut.len() - 1]),
        [good(1, b"{1}", true), bad(2, "byte 7: a message of 4 bytes, of which 3 are there")]
    );
    assert_eq!(
        pieces(&cut[..9]),
        [good(1, b"{1}", true), bad(2, "byte 7: expected a length of four bytes")]
    );
    let long = [&framed(b"{1}"), &[0x04, 0, 0, 1][..], b"xxxx"].concat();
    let what =
        "byte 7: a length of 67108865 bytes, expected at most 67108864: what follows is not read";
    assert_eq!(pieces(&long), [good(1, b"{1}", true), bad(2, what)]);
    // A packed message that is damaged leaves the others.
    let mut damaged = zstd(b"{1}");
    damaged.truncate(damaged.len() - 1);
    let [Err(first), second] = &*pieces(&[framed(&damaged), framed(b"{2}")].concat()) else {
        panic!("two");
    };
    assert!(first.what.starts_with("the message cannot be decompressed: "));
    assert_eq!(*second, good(2, b"{2}", true));
    // A packed file that is damaged ends there.
    let packed = gzip(&b"{1}\n".repeat(100_000));
    let found = pieces(&packed[..packed.len() / 2]);
    let Some((Err(last), before)) = found.split_last() else { panic!("{found:?}") };
    assert!(last.what.starts_with("cannot be read beyond byte "), "{last:?}");
    assert!(before.iter().all(Result::is_ok));
}

#[test]
fn a_line_that_is_too_long_is_passed_over() {
    let long = [&b"{1}\n"[..], &vec![b'x'; PIECE_BYTES_MAX + 1], b"\n{3}\n"].concat();
    let found: Vec<_> = Pieces::of(Cursor::new(long)).expect("opened").collect();
    let what = "the line has more than 67108864 bytes".to_owned();
    let second = Err(BadPiece { nth: 2, what });
    assert_eq!(found, [good(1, b"{1}\n", false), second, good(3, b"{3}\n", false)]);
}
