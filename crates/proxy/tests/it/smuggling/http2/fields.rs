//! Headers over HTTP/2 that would have another meaning in HTTP/1.1 (RFC 9113, sections 8.2 and 10.3).

use super::super::Step::{self, Next, Rejects, Resets, Sees};
use super::Body::{Data, None};
use super::Http2Case;

/// A GET with these headers.
macro_rules! get {
    ($(($name:literal, $value:literal)),*) => {
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "h"),
            (":path", "/@"),
            $(($name, $value)),*
        ]
    };
}

const PLAIN: &[Step] = &[Sees("GET /@ | host: h"), Next];

const MALFORMED: &[Step] = &[Resets(""), Next];

const BAD_REQUEST: &[Step] = &[Rejects(400, "bad_request"), Next];

/// Bytes of names and values (RFC 9113, section 8.2.1).
pub(super) const NAMES_AND_VALUES: &[Http2Case] = &[
    ("CR and LF in a value", "9113 8.2.1", get![("x", "a\r\ny: b")], None, MALFORMED),
    (
        "a second request in a value",
        "9113 10.3",
        get![("x", "a\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: h\r\ny: b")],
        None,
        MALFORMED,
    ),
    ("an LF in a value", "9113 8.2.1", get![("x", "a\ny: b")], None, MALFORMED),
    ("a CR in a value", "9113 8.2.1", get![("x", "a\ry")], None, MALFORMED),
    ("a NUL in a value", "9113 8.2.1", get![("x", "a\0b")], None, MALFORMED),
    ("an LF at the start of a value", "9113 8.2.1", get![("x", "\na")], None, MALFORMED),
    ("a CR at the end of a value", "9113 8.2.1", get![("x", "a\r")], None, MALFORMED),
    ("another control character", "9110 5.5", get![("x", "a\u{1}b")], None, MALFORMED),
    ("a space before a value", "9113 8.2.1", get![("x", " a")], None, BAD_REQUEST),
    ("a tab after a value", "9113 8.2.1", get![("x", "a\t")], None, BAD_REQUEST),
    ("a space as value", "9113 8.2.1", get![("x", " ")], None, BAD_REQUEST),
    (
        "an empty value",
        "9113 8.2.1",
        get![("x", "")],
        None,
        &[Sees("GET /@ | x:  | host: h"), Next],
    ),
    (
        "a tab and bytes above ASCII in a value",
        "9110 5.5",
        get![("x", "a\tcaf\u{e9}")],
        None,
        &[Sees("GET /@ | x: a\\tcaf\\xe9 | host: h"), Next],
    ),
    (
        "encoded line ends in a value stay encoded",
        "9113 10.3",
        get![("x", "a%0d%0ay: b")],
        None,
        &[Sees("GET /@ | x: a%0d%0ay: b | host: h"), Next],
    ),
    ("a name in upper case", "9113 8.2.1", get![("X", "a")], None, MALFORMED),
    (
        "transfer-encoding in upper case",
        "9113 8.2.1",
        get![("Transfer-Encoding", "chunked")],
        None,
        MALFORMED,
    ),
    ("an empty name", "9113 8.2.1", get![("", "a")], None, MALFORMED),
    ("a colon in a name", "9113 8.2.1", get![("x:y", "a")], None, MALFORMED),
    ("a header in a name", "9113 10.3", get![("x: a\r\ny", "b")], None, MALFORMED),
    (
        "a second request in a name",
        "9113 10.3",
        get![("x: a\r\n\r\nGET /smuggled HTTP/1.1\r\ny", "b")],
        None,
        MALFORMED,
    ),
    ("an LF in a name", "9113 8.2.1", get![("x\ny", "a")], None, MALFORMED),
    ("a NUL in a name", "9113 8.2.1", get![("x\0", "a")], None, MALFORMED),
    ("a space in a name", "9113 8.2.1", get![("x y", "a")], None, MALFORMED),
    (
        "a space after transfer-encoding",
        "9113 8.2.1",
        get![("transfer-encoding ", "chunked")],
        None,
        MALFORMED,
    ),
    ("a tab before a name", "9113 8.2.1", get![("\tx", "a")], None, MALFORMED),
    ("DEL in a name", "9113 8.2.1", get![("x\u{7f}", "a")], None, MALFORMED),
    ("a byte above ASCII in a name", "9113 8.2.1", get![("caf\u{e9}", "a")], None, MALFORMED),
    ("a slash in a name", "9110 5.1", get![("x/y", "a")], None, MALFORMED),
];

/// Headers of a connection, framing headers, cookies, and headers with a meaning of their own.
pub(super) const MEANINGS: &[Http2Case] = &[
    (
        "H2.TE: transfer-encoding",
        "9113 8.2.2",
        post![("transfer-encoding", "chunked")],
        Data(&["0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"]),
        MALFORMED,
    ),
    (
        "transfer-encoding and content-length",
        "9113 8.2.2",
        post![("transfer-encoding", "chunked"), ("content-length", "5")],
        Data(&["0\r\n\r\n"]),
        MALFORMED,
    ),
    (
        "transfer-encoding: identity",
        "9113 8.2.2",
        post![("transfer-encoding", "identity")],
        Data(&["abc"]),
        MALFORMED,
    ),
    (
        "transfer-encoding with an underscore",
        "9110 5.1",
        post![("transfer_encoding", "chunked")],
        Data(&["0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"]),
        BAD_REQUEST,
    ),
    (
        "content-length with an underscore",
        "9110 5.1",
        post![("content_length", "5")],
        None,
        BAD_REQUEST,
    ),
    ("connection", "9113 8.2.2", get![("connection", "close")], None, MALFORMED),
    (
        "connection names another header",
        "9113 8.2.2",
        get![("connection", "x"), ("x", "y")],
        None,
        MALFORMED,
    ),
    ("keep-alive", "9113 8.2.2", get![("keep-alive", "timeout=9")], None, MALFORMED),
    ("proxy-connection", "9113 8.2.2", get![("proxy-connection", "close")], None, MALFORMED),
    ("upgrade", "9113 8.2.2", get![("upgrade", "h2c")], None, MALFORMED),
    (
        "http2-settings, which has a meaning only with an upgrade to h2c",
        "9113 3.1",
        get![("http2-settings", "AAMAAABkAAQAAP__")],
        None,
        &[Sees("GET /@ | http2-settings: AAMAAABkAAQAAP__ | host: h"), Next],
    ),
    (
        "te: trailers",
        "9113 8.2.2",
        get![("te", "trailers")],
        None,
        &[Sees("GET /@ | host: h | te: trailers | connection: te"), Next],
    ),
    ("te: gzip", "9113 8.2.2", get![("te", "gzip")], None, MALFORMED),
    ("te: trailers in a list", "9113 8.2.2", get![("te", "trailers, gzip")], None, MALFORMED),
    (
        "cookies in several fields",
        "9113 8.2.3",
        get![("cookie", "a=1"), ("cookie", "b=2; c=3"), ("cookie", "d=")],
        None,
        &[Sees("GET /@ | cookie: a=1; b=2; c=3; d= | host: h"), Next],
    ),
    (
        "cookies in fields with others between them",
        "9113 8.2.3",
        get![("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")],
        None,
        &[Sees("GET /@ | x: y | cookie: a=1; b=2 | host: h"), Next],
    ),
    (
        "one cookie field",
        "9113 8.2.3",
        get![("cookie", "a=1; b=2"), ("x", "y")],
        None,
        &[Sees("GET /@ | cookie: a=1; b=2 | x: y | host: h"), Next],
    ),
    (
        "a space after a cookie",
        "9113 8.2.1",
        get![("cookie", "a=1 "), ("cookie", "b=2")],
        None,
        BAD_REQUEST,
    ),
    (
        "an expectation",
        "9110 10.1.1",
        post![("expect", "100-continue"), ("content-length", "3")],
        Data(&["abc"]),
        &[Sees("POST /@ | host: h | content-length: 3 || abc"), Next],
    ),
    (
        "the forwarded fields of a client",
        "9110 7.6",
        get![
            ("x-forwarded-for", "6.6.6.6"),
            ("x_forwarded_for", "6.6.6.6"),
            ("x-real-ip", "6.6.6.6"),
            ("forwarded", "for=6.6.6.6")
        ],
        None,
        PLAIN,
    ),
    (
        "the same field twice, and fields that differ in an underscore",
        "9110 5.3",
        get![("x-a", "1"), ("x_a", "2"), ("x-a", "3")],
        None,
        &[Sees("GET /@ | x-a: 1 | x_a: 2 | x-a: 3 | host: h"), Next],
    ),
];
