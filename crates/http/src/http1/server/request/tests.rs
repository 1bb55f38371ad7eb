use super::*;
use http::StatusCode;

const BYTES_MAX: usize = 256;

/// What a reader makes of bytes that come in these pieces, and what stands after the head.
fn read(pieces: &[&[u8]]) -> Result<Option<(ParsedRequest, BytesMut)>, Fault> {
    let (mut reader, mut read) = (RequestHeadReader::default(), BytesMut::new());
    let mut request = None;
    for piece in pieces {
        read.extend_from_slice(piece);
        if request.is_none() {
            request = reader.take(&mut read, BYTES_MAX)?;
        }
    }
    Ok(request.map(|request| (request, read)))
}

fn whole(text: &str) -> ParsedRequest {
    let read = read(&[text.as_bytes()]).unwrap_or_else(|fault| panic!("{text:?}: {fault:?}"));
    read.unwrap_or_else(|| panic!("{text:?} is not whole")).0
}

fn fault(text: &str) -> Fault {
    match read(&[text.as_bytes()]) {
        Err(fault) => fault,
        Ok(read) => panic!("{text:?}: {read:?}"),
    }
}

#[test]
fn a_head_is_the_same_however_it_comes() {
    let text = "POST /a?b=c HTTP/1.1\r\nHost: h\r\nX: \t1 2 \r\ncontent-length: 4\r\n\r\nbody";
    let end = text.len() - "body".len();
    for before in ["", "\r\n", "\r\n\r\n"] {
        let text = format!("{before}{text}");
        let bytes = text.as_bytes();
        let each: Vec<_> = bytes.chunks(1).collect();
        let split = (0..bytes.len()).map(|at| vec![&bytes[..at], &bytes[at..]]);
        for pieces in split.chain([each]) {
            let (request, rest) = read(&pieces).expect("good").expect("whole");
            let ParsedRequest { head, framing, .. } = request;
            assert_eq!((head.method, head.target.as_str()), (Method::POST, "/a?b=c"));
            let fields: Vec<_> = head.fields.iter().map(|(_, name, value)| (name, value)).collect();
            let want: [(&[u8], &[u8]); 3] =
                [(b"host", b"h"), (b"x", b"1 2"), (b"content-length", b"4")];
            assert_eq!(fields, want);
            assert_eq!((framing, &*rest), (Framing::Length(4), &b"body"[..]));
        }
        let part = &bytes[..before.len() + end - 1];
        assert!(read(&[part]).expect("nothing is wrong with it yet").is_none());
    }
}

#[test]
fn a_body_is_framed_as_its_request_says() {
    let chunked = Framing::Chunked(Decoder::Size);
    for (fields, framing) in [
        ("", Framing::Ended),
        ("content-length: 0\r\n", Framing::Ended),
        ("content-length: 7\r\n", Framing::Length(7)),
        ("content-length: 7\r\nContent-Length: 07\r\n", Framing::Length(7)),
        ("transfer-encoding: chunked\r\n", chunked),
        ("Transfer-Encoding: CHUNKED\r\n", chunked),
        ("content-length: 7, 7\r\n", Framing::Length(7)),
        ("content-length: 7\r\ntransfer-encoding: chunked\r\n", chunked),
    ] {
        assert_eq!(
            whole(&format!("PUT / HTTP/1.1\r\n{fields}\r\n")).framing,
            framing,
            "{fields:?}"
        );
    }
}

#[test]
fn a_connection_is_kept_when_both_versions_of_it_say_so() {
    for (head, keeps) in [
        ("GET / HTTP/1.1\r\n", true),
        ("GET / HTTP/1.1\r\nconnection: close\r\n", false),
        ("GET / HTTP/1.1\r\nconnection: x, Close\r\n", false),
        ("GET / HTTP/1.1\r\nconnection: x\r\nconnection: close\r\n", false),
        ("GET / HTTP/1.0\r\n", false),
        ("GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n", true),
        ("GET / HTTP/1.0\r\nconnection: keep-alive, close\r\n", false),
        ("PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n", true),
        // What follows may be its body to somebody before us.
        ("PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 7\r\n", false),
    ] {
        assert_eq!(whole(&format!("{head}\r\n")).terms.keeps, keeps, "{head:?}");
    }
}

#[test]
fn what_a_client_understands_is_known() {
    let terms = whole("HEAD / HTTP/1.0\r\nte: gzip, Trailers\r\n\r\n").terms;
    assert!(
        terms.is_head && terms.takes_trailers && terms.version == Version::HTTP_10,
        "{terms:?}"
    );
    let terms = whole("GET / HTTP/1.1\r\n\r\n").terms;
    assert!(!terms.is_head && !terms.takes_trailers && terms.version == Version::HTTP_11);
}

#[test]
fn a_client_waits_to_go_on_when_it_says_so_and_has_something_to_send() {
    let expects = "expect: 100-Continue\r\n\r\n";
    for (head, waits) in [
        ("PUT / HTTP/1.1\r\ncontent-length: 7\r\n", true),
        ("PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n", true),
        ("PUT / HTTP/1.1\r\ncontent-length: 0\r\n", false),
        ("GET / HTTP/1.1\r\n", false),
        ("PUT / HTTP/1.0\r\ncontent-length: 7\r\n", false),
    ] {
        assert_eq!(whole(&format!("{head}{expects}")).is_continue_expected, waits, "{head:?}");
    }
    let other = "PUT / HTTP/1.1\r\ncontent-length: 7\r\nexpect: x\r\n\r\n";
    assert!(!whole(other).is_continue_expected);
}

#[test]
fn what_could_be_read_in_two_ways_is_refused_with_the_reason() {
    for (head, why) in [
        (
            "GET / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n",
            "there are two different content-lengths",
        ),
        ("GET / HTTP/1.1\r\ncontent-length: 3, 4\r\n", "there are two different content-lengths"),
        ("GET / HTTP/1.1\r\ncontent-length: 3,\r\n", "the content-length is not a number of bytes"),
        (
            "GET / HTTP/1.1\r\ntransfer-encoding: chunked\r\nconnection: Transfer-Encoding\r\n",
            "`connection` names a framing field",
        ),
        ("GET / HTTP/1.1\r\ncontent-length:\r\n", "the content-length is not a number of bytes"),
        ("GET / HTTP/1.1\r\ncontent-length: +3\r\n", "the content-length is not a number of bytes"),
        (
            "GET / HTTP/1.1\r\ncontent-length: x\r\ntransfer-encoding: chunked\r\n",
            "the content-length is not a number of bytes",
        ),
        (
            "GET / HTTP/1.1\r\ntransfer-encoding: chunked, gzip\r\n",
            "its last transfer coding is not `chunked`",
        ),
        (
            "GET / HTTP/1.1\r\ntransfer-encoding: chunked;a=b\r\n",
            "its last transfer coding is not `chunked`",
        ),
        ("GET / HTTP/1.1\r\ntransfer-encoding:\r\n", "its last transfer coding is not `chunked`"),
        ("GET / HTTP/1.0\r\ntransfer-encoding: chunked\r\n", "HTTP/1.0 knows no transfer coding"),
        ("GET / HTTP/1.1\r\na : b\r\n", "the name of a header is not valid"),
        ("GET / HTTP/1.1\r\na: b\r\n c\r\n", "the name of a header is not valid"),
        ("GET / HTTP/1.1\r\na: b\rc: d\r\n", "the value of a header has a control character"),
        ("GET  / HTTP/1.1\r\n", "the request line or status line is not valid"),
        ("GET / HTTP/1.1 \r\n", "a line does not end with CRLF"),
        ("\nGET / HTTP/1.1\r\n", "a line does not end with CRLF"),
        ("GET / HTTP/1.1\n", "a line does not end with CRLF"),
        ("GET / HTTP/1.1\r\na: b\nc: d\r\n", "a line does not end with CRLF"),
        ("GET / HTTP/1.1\r\na: b\r\n\n", "a line does not end with CRLF"),
        ("GET / HTTP/1.1\r\ncontent_length: 3\r\n", Fault::FRAMING_ALIAS.why),
        ("GET / HTTP/1.1\r\nTransfer_Encoding: chunked\r\n", Fault::FRAMING_ALIAS.why),
        ("GET / HTTP/3.0\r\n", "the version is not HTTP/1.0 or HTTP/1.1"),
        ("GET / HTTP/1.10\r\n", "a line does not end with CRLF"),
        ("GET /a#b HTTP/1.1\r\n", "the request target has a fragment (`#`)"),
    ] {
        let fault = fault(&format!("{head}\r\n"));
        let want = (StatusCode::BAD_REQUEST, "bad_request", why);
        assert_eq!((fault.status, fault.error, fault.why), want, "{head:?}");
    }
}

#[test]
fn a_request_with_an_unknown_coding_is_rejected() {
    for codings in ["gzip, chunked", "gzip\r\ntransfer-encoding: chunked", "chunked, chunked"] {
        let head = format!("PUT / HTTP/1.1\r\ntransfer-encoding: {codings}\r\n\r\n");
        assert_eq!(fault(&head), Fault::TRANSFER_CODING, "{codings:?}");
    }
}

#[test]
fn a_request_has_one_framing_field() {
    for (fields, want) in [
        ("content-length: 7\r\ncontent-length: 07\r\n", Some(&b"7"[..])),
        ("content-length: 7 ,7\r\n", Some(b"7")),
        ("content-length: 7\r\n", Some(b"7")),
        ("content-length: 7\r\ntransfer-encoding: chunked\r\n", None),
    ] {
        let head = whole(&format!("PUT / HTTP/1.1\r\n{fields}\r\n")).head;
        assert_eq!(head.fields.all(Known::ContentLength).collect::<Vec<_>>(), Vec::from_iter(want));
    }
}

#[test]
fn a_later_minor_version_is_read_as_http_1_1() {
    let request = whole("GET /a HTTP/1.7\r\na: b\r\n\r\n");
    assert_eq!((request.head.version, request.terms.keeps), (Version::HTTP_11, true));
    assert_eq!(request.head.target.as_str(), "/a");
    assert_eq!(whole("GET /a HTTP/1.2\r\na: b\r\n\r\n").head.fields.len(), 1);
}

#[test]
fn a_head_is_as_long_as_it_may_be_and_no_longer() {
    let head = |value: usize| format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(value));
    let room = BYTES_MAX - head(0).len();
    assert_eq!(whole(&head(room)).head.fields.len(), 1);
    assert_eq!(fault(&head(room + 1)), Fault::HEAD_TOO_LONG);
    // It need not have come to its end for that.
    assert_eq!(fault(&head(room + 1)[..=BYTES_MAX]), Fault::HEAD_TOO_LONG);
    let target = format!("GET /{}", "y".repeat(BYTES_MAX));
    assert_eq!(fault(&target), Fault::TARGET_TOO_LONG);
    assert!(read(&[&target.as_bytes()[..BYTES_MAX]]).expect("short enough").is_none());
}

#[test]
fn a_head_has_as_many_fields_as_it_may_have_and_no_more() {
    let head = |fields: usize| format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(fields));
    assert_eq!(parse(head(FIELDS_MAX).as_bytes()).expect("good").head.fields.len(), FIELDS_MAX);
    let fault = parse(head(FIELDS_MAX + 1).as_bytes()).expect_err("too many");
    assert_eq!(fault, Fault::HEAD_TOO_LONG);
    let target = |len: usize| format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(len - 1));
    parse(target(TARGET_BYTES_MAX).as_bytes()).expect("as long as it may be");
    let fault = parse(target(TARGET_BYTES_MAX + 1).as_bytes()).expect_err("too long");
    assert_eq!(fault, Fault::TARGET_TOO_LONG);
}
