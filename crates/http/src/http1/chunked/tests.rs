use super::super::fields::{FIELDS_MAX, HEAD_BYTES_MAX};
use super::*;
use bytes::BufMut;
use curtail_units::Rng;
use http::HeaderValue;

const SEED: u64 = 7_112;

const BAD_SIZE: &str = "a chunk has no valid size";

/// The result of decoding a body.
#[derive(Debug, Default, PartialEq)]
struct Decoded {
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
    /// It is over, and this stands after it.
    rest: Option<Vec<u8>>,
}

/// What a decoder makes of bytes that come in these pieces.
fn decoded<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Decoded, &'static str> {
    let (mut decoder, mut read) = (Decoder::Size, BytesMut::new());
    let mut decoded = Decoded::default();
    for piece in pieces {
        read.put_slice(piece);
        loop {
            match decoder.take(&mut read) {
                Ok(Piece::Data(data)) => decoded.data.extend_from_slice(&data),
                Ok(Piece::Trailers(trailers)) => decoded.trailers = Some(trailers),
                Ok(Piece::None) => break,
                Ok(Piece::End) => {
                    decoded.rest = Some(read.to_vec());
                    break;
                }
                Err(Error::Malformed(why)) => return Err(why),
                Err(error) => panic!("only the response is bad: {error:?}"),
            }
        }
    }
    Ok(decoded)
}

fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    fields.iter().map(|(n, v)| (n.parse().expect("a name"), HeaderValue::from_static(v))).collect()
}

#[test]
fn a_body_is_the_same_in_whatever_pieces_it_comes() {
    const BODY: &str = "4\r\nWiki\r\n\
                        5;ext=\"a;b\"\r\npedia\r\n\
                        A \t;x\r\n in\r\n\r\nchu\r\n\
                        0000000000000000000b\r\nnks\0\r\n0\r\n\r\n\r\n\
                        000 ;last\r\n";
    const REST: &str = "\r\nHTTP/1.1 200";
    let data = b"Wikipedia in\r\n\r\nchunks\0\r\n0\r\n\r\n".to_vec();
    for (trailers, fields) in
        [("\r\n", None), ("X-Sum: 7\r\na:\r\n\r\n", Some(&[("x-sum", "7"), ("a", "")]))]
    {
        let body = [BODY, trailers].concat();
        let whole = [&body, REST].concat();
        let want = |rest: &str| Decoded {
            data: data.clone(),
            trailers: fields.map(|fields| headers(fields)),
            rest: Some(rest.as_bytes().to_vec()),
        };
        for at in 0..body.len() {
            let (before, after) = whole.as_bytes().split_at(at);
            let part = decoded([before]).expect("so far it is well framed");
            assert!(part.rest.is_none() && part.trailers.is_none(), "{part:?} after {at}");
            assert!(data.starts_with(&part.data), "{part:?} after {at}");
            assert_eq!(decoded([before, after]), Ok(want(REST)), "split at {at}");
        }
        assert_eq!(decoded(body.as_bytes().chunks(1)), Ok(want("")), "byte by byte");
    }
}

#[test]
fn what_is_no_body_is_refused_in_whatever_pieces_it_comes() {
    const LONGER: &str = "a chunk is longer than its size";
    const LINE: &str = "a line does not end with CRLF";
    const NAME: &str = "the name of a header is not valid";
    const VALUE: &str = "the value of a header has a control character";
    for (body, why) in [
        ("\r\n", BAD_SIZE),
        (";a\r\n", BAD_SIZE),
        (" \r\n", BAD_SIZE),
        (" 5\r\n", BAD_SIZE),
        ("+5\r\n", BAD_SIZE),
        ("-5\r\n", BAD_SIZE),
        ("0x5\r\n", BAD_SIZE),
        ("5h\r\n", BAD_SIZE),
        ("5 5\r\n", BAD_SIZE),
        ("5,5\r\n", BAD_SIZE),
        ("\u{665}\r\n", BAD_SIZE),
        ("10000000000000000\r\n", BAD_SIZE),
        ("fffffffffffffffff\r\n", BAD_SIZE),
        // What ends a line for some and not for others.
        ("5\nhello\n", BAD_SIZE),
        ("5\n\rhello\r\n", BAD_SIZE),
        ("5\r\r\n", BAD_SIZE),
        ("5\rhello\r\n", BAD_SIZE),
        ("5;a\nb\r\n", BAD_SIZE),
        ("5;a\rb\r\n", BAD_SIZE),
        ("5;\0\r\n", BAD_SIZE),
        ("5\x0c\r\n", BAD_SIZE),
        ("0\n\n", BAD_SIZE),
        ("5\r\nhello0\r\n\r\n", LONGER),
        ("5\r\nhello\n0\r\n\r\n", LONGER),
        ("5\r\nhello\r0\r\n\r\n", LONGER),
        ("5\r\nhello\n\r0\r\n\r\n", LONGER),
        ("0\r\n\nHTTP/1.1 200 OK\r\n\r\n", LINE),
        ("0\r\n\rX\n\n", LINE),
        ("0\r\na: 1\n\r\n", LINE),
        ("0\r\na: 1\r\n\n", LINE),
        ("0\r\na\r\n\r\n", NAME),
        ("0\r\na : 1\r\n\r\n", NAME),
        ("0\r\na: 1\r\n b\r\n\r\n", NAME),
        ("0\r\na: \0\r\n\r\n", VALUE),
        ("0\r\na: 1\rb: 2\r\n\r\n", VALUE),
    ] {
        assert_eq!(decoded([body.as_bytes()]), Err(why), "{body:?}");
        assert_eq!(decoded(body.as_bytes().chunks(1)), Err(why), "{body:?} byte by byte");
    }
}

#[test]
fn a_chunk_may_be_as_large_as_its_size_can_say_and_nothing_is_kept_ready_for_it() {
    let mut decoder = Decoder::Size;
    let mut read = BytesMut::from("FFFFFFFFFFFFFFFF\r\nabc");
    let before = read.capacity();
    let piece = decoder.take(&mut read).expect("it is well framed");
    assert_eq!(piece, Piece::Data("abc".into()));
    assert_eq!(decoder, Decoder::Data(u64::MAX - 3));
    assert!(read.capacity() <= before, "{} bytes", read.capacity());
}

#[test]
fn the_line_before_a_chunk_is_taken_up_to_its_limit_in_whatever_pieces_it_comes() {
    let line = |bytes: usize| format!("2;{}\r\n", "x".repeat(bytes - 4));
    for step in [1, 100, SIZE_LINE_BYTES_MAX, SIZE_LINE_BYTES_MAX + 1, 1 << 20] {
        let in_steps = |body: &str| decoded(body.as_bytes().chunks(step)).map(|d| d.data);
        let most = line(SIZE_LINE_BYTES_MAX) + "ok";
        assert_eq!(in_steps(&most), Ok(b"ok".to_vec()), "in steps of {step}");
        for more in [line(SIZE_LINE_BYTES_MAX + 1), "0".repeat(SIZE_LINE_BYTES_MAX + 1)] {
            assert_eq!(in_steps(&more), Err(BAD_SIZE), "in steps of {step}");
        }
    }
}

#[test]
fn trailers_are_taken_up_to_their_limit_in_whatever_pieces_they_come() {
    const TOO_LONG: &str = "its head is too long";
    let body = |bytes: usize| format!("0\r\na: {}\r\n\r\n", "x".repeat(bytes - 7));
    for step in [1_000, 8 << 10, 1 << 20] {
        let in_steps = |body: &str| {
            decoded(body.as_bytes().chunks(step)).map(|decoded| decoded.trailers.is_some())
        };
        assert_eq!(in_steps(&body(HEAD_BYTES_MAX)), Ok(true), "in steps of {step}");
        assert_eq!(in_steps(&body(HEAD_BYTES_MAX + 1)), Err(TOO_LONG), "in steps of {step}");
        let endless = format!("0\r\n{}", "a: 1\r\n".repeat(HEAD_BYTES_MAX / 6 + 1));
        assert_eq!(in_steps(&endless), Err(TOO_LONG), "in steps of {step}");
    }
    let too_many = format!("0\r\n{}\r\n", "a: 1\r\n".repeat(FIELDS_MAX + 1));
    assert_eq!(decoded([too_many.as_bytes()]), Err("it has too many fields"));
}

#[test]
fn what_is_encoded_is_decoded_again() {
    let mut rng = Rng::new(SEED);
    for case in 0..300 {
        let (mut encoded, mut data) = (Vec::new(), Vec::new());
        for _ in 0..rng.below(8) {
            // Of every number of digits.
            let most = [1, 16, 256, 20_000][rng.below(4)];
            let piece: Vec<u8> =
                (0..=rng.below(most)).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
            begin_chunk(&mut encoded, piece.len());
            encoded.extend_from_slice(&piece);
            encoded.extend_from_slice(CHUNK_END);
            data.extend(piece);
        }
        let trailers = rng.chance(0.5).then(|| headers(&[("x-sum", "7"), ("x-b", "")]));
        end(&mut encoded, trailers.as_ref());
        let mut rest = &encoded[..];
        let pieces = std::iter::from_fn(|| {
            let at = (1 + rng.below(9_000)).min(rest.len());
            let (piece, after) = rest.split_at(at);
            rest = after;
            (!piece.is_empty()).then_some(piece)
        });
        let want = Decoded { data, trailers, rest: Some(Vec::new()) };
        assert!(decoded(pieces) == Ok(want), "case {case} of seed {SEED}");
    }
}

#[test]
fn fields_of_heads_are_no_trailers() {
    let mut buffer = Vec::new();
    let mut trailers: HeaderMap = trailers::FOR_HEADS
        .iter()
        .map(|name| (name.clone(), HeaderValue::from_static("5")))
        .collect();
    for name in ["x-forwarded-for", "x-forwarded-host", "forwarded", "x-real-ip", "content_length"]
    {
        trailers.append(name, HeaderValue::from_static("10.0.0.1"));
    }
    trailers.append("x-sum", HeaderValue::from_static("7"));
    trailers.append("x-sum", HeaderValue::from_static("8"));
    end(&mut buffer, Some(&trailers));
    assert_eq!(String::from_utf8_lossy(&buffer), "0\r\nx-sum: 7\r\nx-sum: 8\r\n\r\n");
}
