//! The syntax of chunks, and trailers.

use super::super::Step::{self, BreaksOff, Closes, Next, RejectsBody, Sees};
use super::Http1Case;

/// A request with this chunked body.
macro_rules! chunks {
    ($body:literal) => {
        concat!("POST /@ HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n", $body)
    };
}

/// A request whose only chunk has this size line and these bytes after it.
macro_rules! chunk {
    ($size:literal) => {
        concat!(
            "POST /@ HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n",
            $size,
            "\r\nhello\r\n0\r\n\r\n"
        )
    };
}

/// A request with these trailers after its body.
macro_rules! trailers {
    ($trailers:literal) => {
        concat!(
            "POST /@ HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
            $trailers,
            "\r\n"
        )
    };
}

const HELLO: Step = Sees("POST /@ | host: h | transfer-encoding: chunked || hello");

const ACCEPTED: &[Step] = &[HELLO, Next];

/// The body is malformed before its first byte.
const BAD_SIZE: &[Step] = &[RejectsBody(""), Closes];

/// The body is malformed after the chunk `hello`.
const BAD_END: &[Step] = &[RejectsBody("hello"), Closes];

/// The lines before chunks, and the ends of chunks.
pub(super) const SIZES: &[Http1Case] = &[
    (
        "digits in upper and lower case",
        "9112 7.1",
        chunks!("A\r\n0123456789\r\na\r\nabcdefghij\r\n0\r\n\r\n"),
        &[Sees("POST /@ | host: h | transfer-encoding: chunked || 0123456789abcdefghij"), Next],
    ),
    ("leading zeros", "9112 7.1", chunk!("000000000000000000005"), ACCEPTED),
    ("a last chunk of several zeros", "9112 7.1", chunks!("5\r\nhello\r\n000\r\n\r\n"), ACCEPTED),
    ("a hexadecimal prefix", "9112 7.1", chunk!("0x5"), BAD_SIZE),
    ("a plus sign", "9112 7.1", chunk!("+5"), BAD_SIZE),
    ("a minus sign", "9112 7.1", chunk!("-5"), BAD_SIZE),
    ("a negative zero", "9112 7.1", chunks!("-0\r\n\r\n"), BAD_SIZE),
    ("a space before the size", "9112 7.1", chunk!(" 5"), BAD_SIZE),
    ("spaces after the size", "9112 7.1.1", chunk!("5  "), ACCEPTED),
    ("a tab after the size", "9112 7.1.1", chunk!("5\t"), ACCEPTED),
    ("a letter after the size", "9112 7.1", chunk!("5h"), BAD_SIZE),
    ("two sizes", "9112 7.1", chunk!("5 5"), BAD_SIZE),
    ("a list of sizes", "9112 7.1", chunk!("5,5"), BAD_SIZE),
    ("a fraction", "9112 7.1", chunk!("5.0"), BAD_SIZE),
    ("an underscore between digits", "9112 7.1", chunk!("0_5"), BAD_SIZE),
    ("a size in quotes", "9112 7.1", chunk!("\"5\""), BAD_SIZE),
    ("a fullwidth digit in UTF-8", "9112 7.1", chunk!("\u{ef}\u{bc}\u{95}"), BAD_SIZE),
    ("a NUL after the size", "9112 7.1", chunk!("5\0"), BAD_SIZE),
    ("a vertical tab after the size", "9112 7.1", chunk!("5\u{b}"), BAD_SIZE),
    ("no size", "9112 7.1", chunk!(""), BAD_SIZE),
    ("2^64 + 5, which wraps to 5", "9112 7.1", chunk!("10000000000000005"), BAD_SIZE),
    ("a size of 17 digits", "9112 7.1", chunk!("fffffffffffffffff"), BAD_SIZE),
    (
        "2^64 - 1, the largest size",
        "9112 7.1",
        chunks!("ffffffffffffffff\r\nhello"),
        &[BreaksOff("hello")],
    ),
    (
        "2^32 + 5, which wraps to 5 in 32 bits",
        "9112 7.1",
        chunks!("100000005\r\nhello\r\n0\r\n\r\n"),
        &[BreaksOff("hello\\r\\n0\\r\\n\\r\\n")],
    ),
    ("an extension is removed", "9112 7.1.1", chunk!("5;name"), ACCEPTED),
    ("an extension with a quoted value", "9112 7.1.1", chunk!("5 ; name=\"a;b\""), ACCEPTED),
    ("an extension of a last chunk", "9112 7.1.1", chunks!("5\r\nhello\r\n0;x\r\n\r\n"), ACCEPTED),
    ("an extension that looks like a size", "9112 7.1.1", chunk!("5;30"), ACCEPTED),
    ("an extension without a size", "9112 7.1.1", chunk!(";5"), BAD_SIZE),
    ("an extension without a semicolon", "9112 7.1.1", chunk!("5 name"), BAD_SIZE),
    ("an LF within an extension", "9112 7.1.1", chunk!("5;a\n"), BAD_SIZE),
    ("an LF within a quoted extension", "9112 7.1.1", chunk!("5;a=\"\n\""), BAD_SIZE),
    ("a CR within an extension", "9112 7.1.1", chunk!("5;a\rb"), BAD_SIZE),
    ("a NUL within an extension", "9112 7.1.1", chunk!("5;\0"), BAD_SIZE),
    ("an extension without limit", "9112 7.1.1", chunk!("5;\u{100}"), BAD_SIZE),
    (
        "a CRLF ends a line even within quotes",
        "9112 7.1.1",
        chunks!("5;a=\"\r\nhello\r\n0\r\n\r\n"),
        ACCEPTED,
    ),
    ("an LF alone after the size", "9112 7.1", chunks!("5\nhello\r\n0\r\n\r\n"), BAD_SIZE),
    ("a CR alone after the size", "9112 7.1", chunks!("5\rhello\r\n0\r\n\r\n"), BAD_SIZE),
    ("two CRs after the size", "9112 7.1", chunk!("5\r"), BAD_SIZE),
    ("an LF alone after the last chunk", "9112 7.1", chunks!("5\r\nhello\r\n0\n\r\n"), BAD_END),
    ("an LF alone after the data", "9112 7.1", chunks!("5\r\nhello\n0\r\n\r\n"), BAD_END),
    ("a CR alone after the data", "9112 7.1", chunks!("5\r\nhello\r0\r\n\r\n"), BAD_END),
    ("nothing after the data", "9112 7.1", chunks!("5\r\nhello0\r\n\r\n"), BAD_END),
    ("an empty line after the data", "9112 7.1", chunks!("5\r\nhello\r\n\r\n0\r\n\r\n"), BAD_END),
    ("more data than the size", "9112 7.1", chunks!("5\r\nhello world\r\n0\r\n\r\n"), BAD_END),
    (
        "less data than the size",
        "9112 7.1",
        chunks!("7\r\nhello\r\n0\r\n\r\n"),
        &[RejectsBody("hello\\r\\n"), Closes],
    ),
    (
        "a malformed chunk after a good one, before a request",
        "9112 7.1",
        chunks!("5\r\nhello\r\nzz\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"),
        BAD_END,
    ),
    (
        "chunks after the last chunk are the next request",
        "9112 7.1",
        chunks!("5\r\nhello\r\n0\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        &[HELLO, Step::Rejects(400, "bad_request"), Closes],
    ),
    (
        "two requests with chunks",
        "9112 9.3",
        "POST /@ HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n\
         POST /@ HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        &[HELLO, HELLO, Next],
    ),
    ("no chunk before the end of the connection", "9112 7.1", chunks!(""), &[BreaksOff("")]),
    (
        "no last chunk before the end of the connection",
        "9112 7.1",
        chunks!("5\r\nhello\r\n"),
        &[BreaksOff("hello")],
    ),
    ("no empty line after the last chunk", "9112 7.1.2", chunks!("5\r\nhello\r\n0\r\n"), BAD_END),
];

/// Trailers: which of them the server sees, and which end the request.
pub(super) const TRAILERS: &[Http1Case] = &[
    (
        "trailers are forwarded",
        "9112 7.1.2",
        trailers!("X-Sum: 1\r\nx-b:\r\n"),
        &[
            Sees("POST /@ | host: h | transfer-encoding: chunked || hello || x-sum: 1 | x-b: "),
            Next,
        ],
    ),
    ("content-length", "9110 6.5.1", trailers!("content-length: 50\r\n"), ACCEPTED),
    ("transfer-encoding", "9110 6.5.1", trailers!("transfer-encoding: chunked\r\n"), ACCEPTED),
    (
        "content-length with an underscore",
        "9110 6.5.1",
        trailers!("content_length: 9\r\n"),
        ACCEPTED,
    ),
    ("host", "9110 6.5.1", trailers!("host: evil\r\n"), ACCEPTED),
    (
        "fields of authentication",
        "9110 6.5.1",
        trailers!("authorization: a\r\nproxy-authorization: b\r\ncookie: c\r\n"),
        ACCEPTED,
    ),
    (
        "fields that modify the request",
        "9110 6.5.1",
        trailers!(
            "expect: 100-continue\r\nrange: bytes=0-1\r\nif-match: *\r\nmax-forwards: 0\r\n\
             cache-control: no-cache\r\nte: trailers\r\n"
        ),
        ACCEPTED,
    ),
    (
        "fields that describe the content",
        "9110 6.5.1",
        trailers!(
            "content-type: a\r\ncontent-encoding: gzip\r\ncontent-range: x\r\ntrailer: y\r\n"
        ),
        ACCEPTED,
    ),
    (
        "fields of the connection",
        "9110 7.6.1",
        trailers!("connection: close\r\nkeep-alive: x\r\nproxy-connection: x\r\nupgrade: h2c\r\n"),
        ACCEPTED,
    ),
    (
        "fields that name the client",
        "9110 6.5.1",
        trailers!("x-forwarded-for: 6.6.6.6\r\nX_Real_IP: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\n"),
        ACCEPTED,
    ),
    (
        "a trailer that connection names",
        "9110 7.6.1",
        "POST /@ HTTP/1.1\r\nhost: h\r\nconnection: X-Sum\r\ntransfer-encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n",
        ACCEPTED,
    ),
    ("a trailer without a colon", "9112 7.1.2", trailers!("x-sum\r\n"), BAD_END),
    ("a trailer without a name", "9112 7.1.2", trailers!(": 1\r\n"), BAD_END),
    ("a space before the colon of a trailer", "9112 5.1", trailers!("x-sum : 1\r\n"), BAD_END),
    ("a continuation line in trailers", "9112 5.2", trailers!("x-sum: 1\r\n 2\r\n"), BAD_END),
    ("a NUL in a trailer", "9110 5.5", trailers!("x-sum: \0\r\n"), BAD_END),
    ("a CR in a trailer", "9110 5.5", trailers!("x-sum: 1\rx: 2\r\n"), BAD_END),
    ("an LF alone after a trailer", "9112 2.2", trailers!("x-sum: 1\nx: 2\r\n"), BAD_END),
    (
        "an LF alone in place of the empty line",
        "9112 2.2",
        chunks!("5\r\nhello\r\n0\r\nx-sum: 1\r\n\n"),
        BAD_END,
    ),
    (
        "trailers after a body with a length are the next request",
        "9112 7.1.2",
        "POST /@ HTTP/1.1\r\nhost: h\r\ntrailer: x-sum\r\ncontent-length: 5\r\n\r\n\
         hellox-sum: 1\r\n\r\n",
        &[
            Sees("POST /@ | host: h | trailer: x-sum | content-length: 5 || hello"),
            Step::Rejects(400, "bad_request"),
            Closes,
        ],
    ),
];
