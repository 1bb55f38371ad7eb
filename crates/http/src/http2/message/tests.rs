//! Tests of messages: RFC 9113, section 8.

use super::super::hpack::encode_field;
use super::*;

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/a?b")];

fn block(fields: &[(&str, &str)]) -> HeaderBlock {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        encode_field(&mut bytes, name.as_bytes(), value.as_bytes());
    }
    HeaderBlock::decode(&mut Decoder::default(), &bytes, (1_000, false)).expect("a valid block")
}

fn request(changes: &[(&str, &str)]) -> Result<RequestHead, Rejection> {
    // A change of a pseudo-header replaces it.
    let is_changed = |(name, _): &(&str, &str)| changes.iter().any(|(changed, _)| changed == name);
    let mut fields: Vec<_> = GET.into_iter().filter(|field| !is_changed(field)).collect();
    fields.extend(changes.iter().filter(|(_, value)| *value != "absent"));
    block(&fields).into_request()
}

#[test]
fn a_request_has_its_parts() {
    let head = request(&[("cookie", "a"), ("x", "1"), ("cookie", "b")]).expect("valid");
    assert_eq!((head.method, head.target.as_str()), (Method::GET, "/a?b"));
    assert_eq!(head.authority.as_ref().map(Authority::as_str), Some("h"));
    let fields: Vec<_> = head.fields.iter().map(|(_, name, value)| (name, value)).collect();
    assert_eq!(fields, [(&b"x"[..], &b"1"[..]), (b"cookie", b"a; b")]);
}

#[test]
fn malformed_requests_are_known_by_their_section() {
    for (section, fields) in [
        ("8.2.1", &[("X", "1")][..]),
        ("8.2.1", &[("a b", "1")]),
        ("8.2.1", &[("", "1")]),
        ("8.2.1", &[("x", "a\rb")]),
        ("8.2.1", &[("x", "a\0b")]),
        ("8.2.1", &[("x", "a\x7fb")]),
        ("8.2.2", &[("connection", "close")]),
        ("8.2.2", &[("keep-alive", "1")]),
        ("8.2.2", &[("proxy-connection", "close")]),
        ("8.2.2", &[("transfer-encoding", "chunked")]),
        ("8.2.2", &[("upgrade", "x")]),
        ("8.2.2", &[("te", "gzip")]),
        ("8.3", &[("x", "1"), (":method", "GET")]),
        ("8.3", &[(":unknown", "1")]),
        ("8.3", &[(":status", "200")]),
        ("8.3.1", &[(":method", "absent")]),
        ("8.3.1", &[(":scheme", "absent")]),
        ("8.3.1", &[(":path", "absent")]),
        ("8.3.1", &[(":path", "")]),
        ("8.3.1", &[(":path", "/a b")]),
        ("8.3.1", &[(":method", "")]),
        ("8.3.1", &[(":method", "A B")]),
        ("8.3.1", &[(":authority", "")]),
        ("8.3.1", &[(":authority", "a b")]),
        ("8.3.1", &[(":path", "/"), (":path", "/")]),
        ("8.3.1", &[(":method", "GET"), (":method", "POST")]),
        ("8441 4", &[(":protocol", "websocket")]),
        ("8441 4", &[(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "absent")]),
        ("8441 4", &[(":method", "CONNECT"), (":protocol", "websocket"), (":path", "absent")]),
    ] {
        let rejected = request(fields);
        assert!(matches!(rejected, Err(Rejection::Malformed(_))), "{section}: {rejected:?}");
    }
}

#[test]
fn requests_that_are_rejected_get_a_response() {
    for (fault, fields) in [
        (Fault::CONNECT, &[(":method", "CONNECT")][..]),
        (Fault::SCHEME, &[(":scheme", "ftp")]),
        (Fault::FRAMING_ALIAS, &[("content_length", "1")]),
        (Fault::bad("a header value begins or ends with whitespace"), &[("x", " 1")]),
        (Fault::bad("the content-length is not a number of bytes"), &[("content-length", "+1")]),
        (Fault::HEAD_TOO_LONG, &[("x", &"y".repeat(1_000))]),
    ] {
        assert_eq!(request(fields).err(), Some(Rejection::Response(fault)));
    }
    for path in ["*", "a", "?b", "/a#b", "http://h/"] {
        assert!(matches!(request(&[(":path", path)]), Err(Rejection::Response(_))), "{path}");
    }
    for (fault, changes) in [
        (Fault::CONNECT_PROTOCOL, &[(":protocol", "connect-udp")][..]),
        (
            Fault::bad("CONNECT has no content"),
            &[(":protocol", "websocket"), ("content-length", "0")],
        ),
    ] {
        let fields = [&[(":method", "CONNECT")], changes].concat();
        assert_eq!(request(&fields).err(), Some(Rejection::Response(fault)));
    }
    let options = request(&[(":method", "OPTIONS"), (":path", "*")]).expect("valid");
    assert_eq!(options.target.as_str(), "*");
}

#[test]
fn a_websocket_handshake_becomes_that_of_http_1_1() {
    for protocol in ["websocket", "WebSocket"] {
        let head = request(&[
            (":method", "CONNECT"),
            (":protocol", protocol),
            ("sec-websocket-key", "the client's"),
            ("sec-websocket-version", "13"),
        ])
        .expect("valid");
        assert_eq!((head.method, head.target.as_str()), (Method::GET, "/a?b"));
        let fields: Vec<_> = head.fields.iter().map(|(_, name, value)| (name, value)).collect();
        assert_eq!(
            fields,
            [
                (&b"sec-websocket-version"[..], &b"13"[..]),
                (b"connection", b"upgrade"),
                (b"upgrade", b"websocket"),
            ]
        );
    }
}

#[test]
fn a_response_has_a_status_and_no_whitespace_around_values() {
    let head = block(&[(":status", "404"), ("x", " 1\t")]).into_response().expect("valid");
    let fields: Vec<_> = head.fields.iter().map(|(_, name, value)| (name, value)).collect();
    assert_eq!((head.status, fields), (StatusCode::NOT_FOUND, vec![(&b"x"[..], &b"1"[..])]));
    for malformed in [
        &[("x", "1")][..],
        &[(":status", "20")],
        &[(":status", "200"), (":path", "/")],
        &[(":status", "200"), (":protocol", "websocket")],
        &[(":status", "200"), ("connection", "close")],
        &[(":status", "200"), ("content-length", "1"), ("content-length", "2")],
    ] {
        block(malformed).into_response().expect_err("malformed");
    }
}

#[test]
fn trailers_have_no_pseudo_header() {
    let trailers = block(&[("grpc-status", "0")]).into_trailers(true).expect("valid");
    assert_eq!(trailers.get("grpc-status").map(http::HeaderValue::as_bytes), Some(&b"0"[..]));
    block(&[(":status", "200")]).into_trailers(false).expect_err("malformed");
    block(&[(":path", "/")]).into_trailers(true).expect_err("malformed");
    block(&[(":protocol", "websocket")]).into_trailers(true).expect_err("malformed");
    block(&[("x", "1 ")]).into_trailers(true).expect_err("malformed in a request");
    block(&[("x", "1 ")]).into_trailers(false).expect("trimmed in a response");
}
