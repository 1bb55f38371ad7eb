use super::*;
use bytes::{BufMut, Bytes};

#[test]
fn a_body_takes_what_is_its_own_and_leaves_the_rest() {
    let data = |data: &'static str| Piece::Data(Bytes::from_static(data.as_bytes()));
    for (mut framing, steps, left) in [
        (
            Framing::Length(5),
            &[("hel", data("hel")), ("", Piece::None), ("lo!", data("lo")), ("!", Piece::End)][..],
            "!!",
        ),
        (
            Framing::UntilClosed,
            &[("hel", data("hel")), ("", Piece::None), ("lo", data("lo")), ("", Piece::None)],
            "",
        ),
        (Framing::Ended, &[("a", Piece::End), ("b", Piece::End)], "ab"),
        (Framing::Chunked(Decoder::Size), &[("2\r\nabc", data("ab"))], "c"),
        (Framing::Chunked(Decoder::Size), &[("0\r\n\r\n!", Piece::End), ("!", Piece::End)], "!!"),
    ] {
        let begun = framing;
        let mut read = BytesMut::new();
        for (piece, want) in steps {
            read.put_slice(piece.as_bytes());
            assert_eq!(&framing.take(&mut read).expect("it is well framed"), want, "{begun:?}");
        }
        assert_eq!(read, left, "{begun:?}");
    }
}

#[test]
fn a_malformed_body_has_no_end() {
    for bytes in ["zz\r\n", "-1\r\n", "FFFFFFFFFFFFFFFFF\r\n", "3\rX\n", "1\r\nab\r\n"] {
        let mut framing = Framing::Chunked(Decoder::Size);
        let mut read = BytesMut::from(bytes);
        let malformed = (0..3).find_map(|_| framing.take(&mut read).err());
        assert!(malformed.is_some() && framing == Framing::Malformed, "{bytes:?}");
        read.put_slice(b"0\r\n\r\n");
        assert!(framing.take(&mut read).is_err() && !framing.is_end(), "{bytes:?}");
    }
}

#[test]
fn what_is_left_of_a_body_is_known_of_lengths_alone() {
    let mut framing = Framing::Length(5);
    let mut read = BytesMut::from("hello");
    for (bytes, left) in [(2, 3), (3, 0)] {
        let mut come = read.split_to(bytes);
        framing.take(&mut come).expect("it is well framed");
        assert_eq!((framing.size_hint().exact(), framing.is_end()), (Some(left), left == 0));
    }
    for (framing, exact, is_end, ends_with_connection) in [
        (Framing::Length(9), Some(9), false, false),
        (Framing::Chunked(Decoder::Size), None, false, false),
        (Framing::UntilClosed, None, false, true),
        (Framing::Ended, Some(0), true, false),
    ] {
        assert_eq!(framing.size_hint().exact(), exact, "{framing:?}");
        assert_eq!(framing.is_end(), is_end, "{framing:?}");
        assert_eq!(framing.ends_with_connection(), ends_with_connection, "{framing:?}");
    }
}
