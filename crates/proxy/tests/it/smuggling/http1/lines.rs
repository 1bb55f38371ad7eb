//! The ends of lines, control characters, and the names of headers.

use super::super::BAD_REQUEST;
use super::super::Step::{self, Closes, Next, Rejects, Sees};
use super::Http1Case;

/// A GET with these bytes after its `host` line.
macro_rules! get {
    ($fields:literal) => {
        concat!("GET /@ HTTP/1.1\r\nhost: h\r\n", $fields, "\r\n\r\n")
    };
}

const PLAIN: &[Step] = &[Sees("GET /@ | host: h"), Next];

/// Line endings, empty lines, whitespace at the start of lines, and control characters.
pub(super) const ENDINGS: &[Http1Case] = &[
    (
        "an LF alone after the request line",
        "9112 2.2",
        "GET /@ HTTP/1.1\nhost: h\r\n\r\n",
        BAD_REQUEST,
    ),
    ("an LF alone after a header", "9112 2.2", get!("x: a\ny: b"), BAD_REQUEST),
    ("an LF alone after each line", "9112 2.2", "GET /@ HTTP/1.1\nhost: h\n\n", BAD_REQUEST),
    (
        "an LF alone in place of the empty line",
        "9112 2.2",
        "GET /@ HTTP/1.1\r\nhost: h\r\n\nGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n",
        BAD_REQUEST,
    ),
    (
        "an empty line of LF and CR",
        "9112 2.2",
        "GET /@ HTTP/1.1\r\nhost: h\r\n\n\r\r\n\r\n",
        BAD_REQUEST,
    ),
    ("a CR alone between headers", "9112 2.2", get!("x: a\ry: b"), BAD_REQUEST),
    ("a CR alone at the end of a value", "9112 2.2", get!("x: a\r\r\ny: b"), BAD_REQUEST),
    ("a CR alone in a name", "9112 2.2", get!("x\ry: b"), BAD_REQUEST),
    (
        "a CR alone after the request line",
        "9112 2.2",
        "GET /@ HTTP/1.1\rhost: h\r\n\r\n",
        BAD_REQUEST,
    ),
    (
        "a CR alone in place of the empty line",
        "9112 2.2",
        "GET /@ HTTP/1.1\r\nhost: h\r\n\rGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n",
        BAD_REQUEST,
    ),
    ("a continuation line with a space", "9112 5.2", get!("x: a\r\n b"), BAD_REQUEST),
    ("a continuation line with a tab", "9112 5.2", get!("x: a\r\n\tb"), BAD_REQUEST),
    ("a continuation line after an empty value", "9112 5.2", get!("x:\r\n b"), BAD_REQUEST),
    ("a line of whitespace", "9112 5.2", get!("x: a\r\n \r\ny: b"), BAD_REQUEST),
    (
        "whitespace before the first header",
        "9112 2.2",
        "GET /@ HTTP/1.1\r\n host: h\r\n\r\n",
        BAD_REQUEST,
    ),
    (
        "a tab before the first header",
        "9112 2.2",
        "GET /@ HTTP/1.1\r\n\tx: y\r\nhost: h\r\n\r\n",
        BAD_REQUEST,
    ),
    (
        "an empty line before the request line",
        "9112 2.2",
        "\r\nGET /@ HTTP/1.1\r\nhost: h\r\n\r\n",
        PLAIN,
    ),
    (
        "an LF alone before the request line",
        "9112 2.2",
        "\nGET /@ HTTP/1.1\r\nhost: h\r\n\r\n",
        BAD_REQUEST,
    ),
    (
        "a CR alone before the request line",
        "9112 2.2",
        "\rGET /@ HTTP/1.1\r\nhost: h\r\n\r\n",
        BAD_REQUEST,
    ),
    (
        "an empty line after a body",
        "9112 2.2",
        "POST /@ HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc\r\n",
        &[Sees("POST /@ | host: h | content-length: 3 || abc"), Next],
    ),
    ("a NUL in a value", "9110 5.5", get!("x: a\0b"), BAD_REQUEST),
    ("a control character in a value", "9110 5.5", get!("x: a\u{1}b"), BAD_REQUEST),
    ("DEL in a value", "9110 5.5", get!("x: a\u{7f}b"), BAD_REQUEST),
    (
        "a tab and bytes above ASCII in a value",
        "9110 5.5",
        get!("x: a\tb caf\u{e9} \u{c3}\u{a9}"),
        &[Sees("GET /@ | host: h | x: a\\tb caf\\xe9 \\xc3\\xa9"), Next],
    ),
    (
        "whitespace around a value",
        "9112 5.1",
        get!("x:  \t a b\t "),
        &[Sees("GET /@ | host: h | x: a b"), Next],
    ),
    ("an empty value", "9110 5.5", get!("x:"), &[Sees("GET /@ | host: h | x: "), Next]),
    (
        "encoded line ends in a value stay encoded",
        "9110 5.5",
        get!("x: a%0d%0ay: b"),
        &[Sees("GET /@ | host: h | x: a%0d%0ay: b"), Next],
    ),
];

/// Names of headers.
pub(super) const NAMES: &[Http1Case] = &[
    ("a space before the colon", "9112 5.1", get!("x : y"), BAD_REQUEST),
    ("a tab before the colon", "9112 5.1", get!("x\t: y"), BAD_REQUEST),
    ("a space in a name", "9110 5.1", get!("x y: z"), BAD_REQUEST),
    ("an empty name", "9110 5.1", get!(": y"), BAD_REQUEST),
    ("no colon", "9112 5", get!("x"), BAD_REQUEST),
    ("a pseudo-header of HTTP/2", "9110 5.1", get!(":method: POST"), BAD_REQUEST),
    ("a NUL in a name", "9110 5.1", get!("x\0: y"), BAD_REQUEST),
    ("a control character in a name", "9110 5.1", get!("x\u{1}: y"), BAD_REQUEST),
    ("DEL in a name", "9110 5.1", get!("x\u{7f}: y"), BAD_REQUEST),
    ("a byte above ASCII in a name", "9110 5.1", get!("caf\u{e9}: y"), BAD_REQUEST),
    ("a slash in a name", "9110 5.1", get!("x/y: z"), BAD_REQUEST),
    ("an at sign in a name", "9110 5.1", get!("x@y: z"), BAD_REQUEST),
    ("a name in quotes", "9110 5.1", get!("\"x\": y"), BAD_REQUEST),
    ("a name in brackets", "9110 5.1", get!("[x]: y"), BAD_REQUEST),
    ("a request line in place of a header", "9112 5", get!("GET /smuggled HTTP/1.1"), BAD_REQUEST),
    (
        "all characters of a token",
        "9110 5.1",
        get!("!#$%&*+-.^_`|~09azAZ: y"),
        &[Sees("GET /@ | host: h | !#$%&*+-.^_`|~09azaz: y"), Next],
    ),
    (
        "names in upper case",
        "9110 5.1",
        get!("X-UPPER: Y"),
        &[Sees("GET /@ | host: h | x-upper: Y"), Next],
    ),
    (
        "an underscore beside a dash",
        "9110 5.1",
        get!("x-tenant: a\r\nx_tenant: b"),
        &[Sees("GET /@ | host: h | x-tenant: a | x_tenant: b"), Next],
    ),
    (
        "the forwarded fields of a client",
        "9110 7.6",
        get!(
            "x-forwarded-for: 6.6.6.6\r\n\
      x-forwarded-proto: https\r\nx-forwarded-host: evil\r\nx-real-ip: 6.6.6.6\r\nforwarded: for=a"
        ),
        PLAIN,
    ),
    (
        "forwarded fields with underscores",
        "9110 5.1",
        get!("X_Forwarded_For: 6.6.6.6\r\nx-forwarded_proto: https\r\nX_REAL-IP: 6.6.6.6"),
        PLAIN,
    ),
    (
        "the tie of a root from a client",
        "9110 7.6",
        get!("curtail-tie: 0000000000000001;first;127.0.0.1:1"),
        PLAIN,
    ),
    (
        "a bad name in the second of two requests",
        "9112 5.1",
        "GET /@ HTTP/1.1\r\nhost: h\r\n\r\nGET /@ HTTP/1.1\r\nhost: h\r\nx : y\r\n\r\n",
        &[Sees("GET /@ | host: h"), Rejects(400, "bad_request"), Closes],
    ),
];
