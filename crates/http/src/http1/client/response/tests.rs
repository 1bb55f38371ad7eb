use super::*;
use bytes::{BufMut, Bytes};
use http::{HeaderMap, HeaderValue};

/// What a reader makes of bytes that come in these pieces: the head, and what stands after it.
fn read_head(pieces: &[&[u8]]) -> Result<Option<(Versioned, Bytes)>, &'static str> {
    let (mut reader, mut read) = (ResponseHeadReader::default(), BytesMut::new());
    let mut response = None;
    for piece in pieces {
        read.put_slice(piece);
        if response.is_none() {
            response = reader.take(&mut read, |_| {}).map_err(malformed_reason)?;
        }
    }
    Ok(response.map(|response| (response, read.freeze())))
}

fn malformed_reason(error: Error) -> &'static str {
    let Error::Malformed(why) = error else { panic!("only the response is bad: {error:?}") };
    why
}

fn fields_of(fields: &Fields) -> Vec<(&str, &[u8])> {
    let name = |name| std::str::from_utf8(name).expect("a name");
    fields.iter().map(|(_, field, value)| (name(field), value)).collect()
}

fn response(status: u16, fields: &[(&'static str, &str)]) -> ResponseHead {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
    }
    let status = StatusCode::from_u16(status).expect("a status");
    ResponseHead { status, fields: Fields::from(&map) }
}

type Pairs = &'static [(&'static str, &'static [u8])];

const HEADS: &[(&str, Version, u16, Pairs)] = &[
    ("HTTP/1.1 200 OK\r\n\r\n", Version::HTTP_11, 200, &[]),
    ("HTTP/1.0 404 Not Found\r\na: 1\r\n\r\n", Version::HTTP_10, 404, &[("a", b"1")]),
    ("HTTP/1.1 204\r\n\r\n", Version::HTTP_11, 204, &[]),
    ("HTTP/1.1 204 \r\n\r\n", Version::HTTP_11, 204, &[]),
    ("HTTP/1.1 999 \u{e4}\tb\r\n\r\n", Version::HTTP_11, 999, &[]),
    (
        "HTTP/1.1 200 OK\r\nA:1\r\nb: \t x y \t\r\nC:\r\na: \u{e9}\r\n\r\n",
        Version::HTTP_11,
        200,
        &[("a", b"1"), ("a", b"\xc3\xa9"), ("b", b"x y"), ("c", b"")],
    ),
    ("HTTP/1.1 200 OK\na: 1\n\n", Version::HTTP_11, 200, &[("a", b"1")]),
    ("HTTP/1.1 200 OK\na: 1\n\r\n", Version::HTTP_11, 200, &[("a", b"1")]),
    ("HTTP/1.1 200 OK\r\na: 1\r\n\n", Version::HTTP_11, 200, &[("a", b"1")]),
    ("\r\nHTTP/1.1 200 OK\r\n\r\n", Version::HTTP_11, 200, &[]),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n\
         HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 No\r\na: 1\r\n\r\n",
        Version::HTTP_11,
        500,
        &[("a", b"1")],
    ),
    (
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        Version::HTTP_11,
        101,
        &[("upgrade", b"x")],
    ),
];

#[test]
fn a_head_is_the_same_in_whatever_pieces_it_comes() {
    const REST: &[u8] = b"\r\n\r\nHTTP/1.1 200 the rest is not looked at\n\n";
    for &(head, version, status, fields) in HEADS {
        let check = |pieces: &[&[u8]], rest: &[u8]| {
            let read = read_head(pieces).unwrap_or_else(|why| panic!("{pieces:?}: {why}"));
            let ((got_version, response), left) =
                read.unwrap_or_else(|| panic!("{pieces:?}: not whole"));
            assert_eq!((got_version, response.status.as_u16()), (version, status), "{head:?}");
            let mut got = fields_of(&response.fields);
            got.sort_unstable();
            assert_eq!((&got[..], &left[..]), (fields, rest), "{head:?} in {pieces:?}");
        };
        let whole = [head.as_bytes(), REST].concat();
        for at in 0..head.len() {
            let before = &whole[..at];
            assert!(matches!(read_head(&[before]), Ok(None)), "{head:?} is not whole after {at}");
            check(&[before, &whole[at..]], REST);
        }
        let bytes: Vec<&[u8]> = whole[..head.len()].chunks(1).collect();
        check(&bytes, b"");
    }
}

#[test]
fn a_response_has_begun_with_its_first_byte_and_with_any_interim_one() {
    let (mut reader, mut read) = (ResponseHeadReader::default(), BytesMut::new());
    assert!(!reader.is_begun(&read));
    read.put_slice(b"H");
    assert!(matches!(reader.take(&mut read, |_| {}), Ok(None)));
    assert!(reader.is_begun(&read));
    read.put_slice(b"TTP/1.1 100 Continue\r\n\r\n");
    assert!(matches!(reader.take(&mut read, |_| {}), Ok(None)));
    assert_eq!((read.len(), reader.is_begun(&read)), (0, true));
}

#[test]
fn what_is_no_head_is_refused_in_whatever_pieces_it_comes() {
    const STATUS: &str = "the status line is not valid";
    const NAME: &str = "the name of a header is not valid";
    const VALUE: &str = "the value of a header has a control character";
    const VERSION: &str = "the version is not HTTP/1.0 or HTTP/1.1";
    for (head, why) in [
        ("HTTP/2.0 200 OK\r\n\r\n", VERSION),
        // Rejected at once: there may be no empty line.
        ("220 mail.example ESMTP\r\n", VERSION),
        ("\0\0\x12\x04\0\0\0\0\0", "the server speaks HTTP/2: set connect.protocol to http2"),
        ("\x15\x03\x03\0\x02\x02\x46", "the server speaks TLS: its URL must be https://"),
        ("HTTP/1.2 200 OK\r\n\r\n", VERSION),
        ("ICY 200 OK\r\n\r\n", VERSION),
        ("http/1.1 200 OK\r\n\r\n", VERSION),
        (" HTTP/1.1 200 OK\r\n\r\n", VERSION),
        ("HTTP/1.1\t200 OK\r\n\r\n", VERSION),
        ("HTTP/1.1 20 OK\r\n\r\n", STATUS),
        ("HTTP/1.1 2000 OK\r\n\r\n", STATUS),
        ("HTTP/1.1 +20 OK\r\n\r\n", STATUS),
        ("HTTP/1.1 000 OK\r\n\r\n", STATUS),
        ("HTTP/1.1 099 OK\r\n\r\n", STATUS),
        ("HTTP/1.1  200 OK\r\n\r\n", STATUS),
        ("HTTP/1.1 200 O\0K\r\n\r\n", STATUS),
        ("HTTP/1.1 200 OK\rX\n\n", STATUS),
        ("HTTP/1.1 200 OK\r\na\r\n\r\n", NAME),
        ("HTTP/1.1 200 OK\r\n: 1\r\n\r\n", NAME),
        ("HTTP/1.1 200 OK\r\na b: 1\r\n\r\n", NAME),
        ("HTTP/1.1 200 OK\r\ncontent-length : 1\r\n\r\n", NAME),
        ("HTTP/1.1 200 OK\r\ncontent-length\0: 1\r\n\r\n", NAME),
        ("HTTP/1.1 200 OK\r\n\u{e4}: 1\r\n\r\n", NAME),
        // Folded lines.
        ("HTTP/1.1 200 OK\r\n a: 1\r\n\r\n", NAME),
        ("HTTP/1.1 200 OK\r\na: 1\r\n b\r\n\r\n", NAME),
        ("HTTP/1.1 200 OK\r\na: 1\r\n\tcontent-length: 5\r\n\r\n", NAME),
        ("HTTP/1.1 200 OK\r\na: 1\r\n \r\n\r\n", NAME),
        ("HTTP/1.1 200 OK\r\na: \0\r\n\r\n", VALUE),
        ("HTTP/1.1 200 OK\r\na: b\x7f\r\n\r\n", VALUE),
        // Two fields for those who take a carriage return alone for the end of a line.
        ("HTTP/1.1 200 OK\r\na: 1\rcontent-length: 5\r\n\r\n", VALUE),
        ("HTTP/1.1 200 OK\r\na: 1\r\r\n\r\n", VALUE),
        ("HTTP/1.1 200 OK\r\na: 1\r\n\r\r\n\n", "a line does not end with CRLF"),
        ("\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "its head has an empty line within"),
        (
            "HTTP/1.1 100 Continue\r\n\r\n\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            "its head has an empty line within",
        ),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\na\r\n\r\n", NAME),
    ] {
        let bytes: Vec<&[u8]> = head.as_bytes().chunks(1).collect();
        for pieces in [&[head.as_bytes()][..], &bytes] {
            assert_eq!(read_head(pieces).err(), Some(why), "{head:?} in {} pieces", pieces.len());
        }
    }
}

#[test]
fn a_head_has_at_most_the_maximum_of_fields() {
    for (fields, want) in [(FIELDS_MAX, None), (FIELDS_MAX + 1, Some("it has too many fields"))] {
        let head = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: 1\r\n".repeat(fields));
        assert_eq!(read_head(&[head.as_bytes()]).err(), want, "{fields} fields");
    }
}

/// A last response with a head of `bytes` bytes, after `before`.
fn head_of_bytes(before: &str, bytes: usize) -> Vec<u8> {
    let (begin, end) = (format!("{before}HTTP/1.1 200 OK\r\na: "), "\r\n\r\n");
    let value = "x".repeat(bytes - begin.len() - end.len());
    [begin, value, end.to_owned()].concat().into_bytes()
}

#[test]
fn a_head_is_taken_up_to_its_limit_in_whatever_pieces_it_comes() {
    const TOO_LONG: &str = "its head is too long";
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(99);
    for before in ["", &interim] {
        let (most, more) =
            (head_of_bytes(before, HEAD_BYTES_MAX), head_of_bytes(before, HEAD_BYTES_MAX + 1));
        for step in [1, 1_000, 8 << 10, HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1] {
            let in_steps = |head: &[u8]| {
                let pieces: Vec<&[u8]> = head.chunks(step).collect();
                read_head(&pieces).map(|read| read.is_some())
            };
            assert_eq!(in_steps(&most), Ok(true), "in steps of {step}");
            assert_eq!(in_steps(&more), Err(TOO_LONG), "in steps of {step}");
            // Nor is its end waited for.
            assert_eq!(in_steps(&more[..HEAD_BYTES_MAX]), Ok(false), "in steps of {step}");
            let endless = [&more[..more.len() - 4], b"xxxx"].concat();
            assert_eq!(in_steps(&endless), Err(TOO_LONG), "in steps of {step}");
        }
    }
}

#[test]
fn endless_interim_responses_are_cut_off() {
    const INTERIM: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let (mut reader, mut read) = (ResponseHeadReader::default(), BytesMut::new());
    for sent in 1.. {
        read.put_slice(INTERIM);
        match reader.take(&mut read, |_| {}) {
            Ok(None) => assert!(sent * INTERIM.len() <= HEAD_BYTES_MAX, "{sent} were taken"),
            result => {
                assert_eq!(result.map_err(malformed_reason).err(), Some("its head is too long"));
                assert_eq!(sent, HEAD_BYTES_MAX / INTERIM.len() + 1);
                return;
            }
        }
    }
}

#[test]
fn a_body_is_framed_by_status_then_chunks_then_length() {
    const CHUNKED: Framing = Framing::Chunked(Decoder::Size);
    const BOTH: &[(&str, &str)] = &[("transfer-encoding", "chunked"), ("content-length", "5")];
    for (to_head, status, fields, want, is_kept) in [
        (false, 200, &[("content-length", "5")][..], Framing::Length(5), true),
        (false, 500, &[("content-length", "007")], Framing::Length(7), true),
        (
            false,
            200,
            &[("content-length", "18446744073709551615")],
            Framing::Length(u64::MAX),
            true,
        ),
        (false, 200, &[("content-length", "0")], Framing::Ended, true),
        (false, 200, &[("transfer-encoding", "chunked")], CHUNKED, true),
        (false, 200, &[("transfer-encoding", "Chunked")], CHUNKED, true),
        (false, 200, BOTH, CHUNKED, false),
        (false, 200, &[], Framing::UntilClosed, false),
        (false, 101, &[("content-length", "5")], Framing::Length(5), false),
        (false, 204, &[], Framing::Ended, true),
        (false, 204, &[("content-length", "0")], Framing::Ended, true),
        (false, 204, &[("content-length", "5")], Framing::Ended, false),
        (false, 204, &[("transfer-encoding", "chunked")], Framing::Ended, false),
        (false, 304, &[("content-length", "5")], Framing::Ended, true),
        (false, 304, &[("transfer-encoding", "chunked")], Framing::Ended, true),
        (true, 200, &[], Framing::Ended, true),
        (true, 200, &[("content-length", "5")], Framing::Ended, true),
        (true, 200, &[("transfer-encoding", "chunked")], Framing::Ended, true),
        (true, 200, BOTH, Framing::Ended, false),
    ] {
        let got = framing(Version::HTTP_11, &mut response(status, fields), to_head)
            .map_err(malformed_reason);
        assert_eq!(got, Ok((want, is_kept)), "{status} {fields:?}, to HEAD: {to_head}");
    }
}

#[test]
fn framings_that_could_be_read_in_two_ways_are_refused() {
    const LENGTH: &str = "the content-length is not a number of bytes";
    const TWO: &str = "there are two different content-lengths";
    const CODING: &str = "its transfer coding is not `chunked`";
    for (fields, why) in [
        (&[("content-length", "")][..], LENGTH),
        (&[("content-length", "+5")], LENGTH),
        (&[("content-length", "-5")], LENGTH),
        (&[("content-length", "0x5")], LENGTH),
        (&[("content-length", "5e0")], LENGTH),
        (&[("content-length", "5 5")], LENGTH),
        (&[("content-length", "5;5")], LENGTH),
        (&[("content-length", "5,")], LENGTH),
        (&[("content-length", ",5")], LENGTH),
        (&[("content-length", "\u{665}")], LENGTH),
        (&[("content-length", "18446744073709551616")], LENGTH),
        (&[("content-length", "5"), ("content-length", "6")], TWO),
        (&[("content-length", "5, 5"), ("content-length", "0")], TWO),
        (&[("transfer-encoding", "chunked"), ("content-length", "+5")], LENGTH),
        (&[("transfer-encoding", "")], CODING),
        (&[("transfer-encoding", "gzip")], CODING),
        (&[("transfer-encoding", "identity")], CODING),
        (&[("transfer-encoding", "gzip, chunked")], CODING),
        (&[("transfer-encoding", "chunked, gzip")], CODING),
        (&[("transfer-encoding", "chunked, chunked")], CODING),
        (&[("transfer-encoding", "chunked;q=1")], CODING),
        (&[("transfer-encoding", "xchunked")], CODING),
        (&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], CODING),
        (&[("transfer-encoding", "gzip"), ("content-length", "5")], CODING),
    ] {
        for (status, to_head) in [(200, false), (204, false), (304, false), (200, true)] {
            let got = framing(Version::HTTP_11, &mut response(status, fields), to_head)
                .map_err(malformed_reason);
            assert_eq!(got, Err(why), "{status} {fields:?}, to HEAD: {to_head}");
        }
    }
}

#[test]
fn equal_lengths_become_one_field() {
    for fields in [
        &[("content-length", "5"), ("content-length", "5")][..],
        &[("content-length", "5, 5")],
        &[("content-length", "5\t,05"), ("content-length", "5")],
    ] {
        let mut head = response(200, fields);
        let got = framing(Version::HTTP_11, &mut head, false).map_err(malformed_reason);
        assert_eq!(got, Ok((Framing::Length(5), true)), "{fields:?}");
        assert_eq!(fields_of(&head.fields), [("content-length", &b"5"[..])], "{fields:?}");
    }
    let mut both = response(200, &[("content-length", "5"), ("transfer-encoding", "chunked")]);
    framing(Version::HTTP_11, &mut both, false).expect("chunks count");
    assert!(!both.fields.has(Known::ContentLength), "{both:?}");
}

#[test]
fn a_connection_is_kept_as_version_and_words_say() {
    let (http_10, http_11) = (Version::HTTP_10, Version::HTTP_11);
    for (version, values, want) in [
        (http_11, &[][..], true),
        (http_11, &["keep-alive"], true),
        (http_11, &["closed", "en-close"], true),
        (http_11, &["close"], false),
        (http_11, &["Close"], false),
        (http_11, &["x,\tCLOSE ,y"], false),
        (http_11, &["keep-alive", "close"], false),
        (http_11, &["keep-alive, close"], false),
        (http_10, &[], false),
        (http_10, &["x"], false),
        (http_10, &["keep-alive"], true),
        (http_10, &["x, Keep-Alive"], true),
        (http_10, &["keep-alive, close"], false),
        (http_10, &["close", "keep-alive"], false),
    ] {
        let connection = values.iter().map(|value| ("connection", *value));
        let fields: Vec<_> = connection.chain([("content-length", "5")]).collect();
        let framing = framing(version, &mut response(200, &fields), false).expect("it is clear");
        assert_eq!(framing, (Framing::Length(5), want), "{version:?} {values:?}");
    }
}

#[test]
fn chunks_of_a_version_that_has_none_end_the_connection() {
    let fields = [("connection", "keep-alive"), ("transfer-encoding", "chunked")];
    let framing =
        framing(Version::HTTP_10, &mut response(200, &fields), false).expect("it is clear");
    assert_eq!(framing, (Framing::Chunked(Decoder::Size), false));
}
