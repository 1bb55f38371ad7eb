//! The framing of a body: `content-length` and `transfer-encoding`.

use super::super::BAD_REQUEST;
use super::super::Step::{self, BreaksOff, Closes, Next, Rejects, Sees};
use super::Http1Case;

/// A request with these headers and this body.
macro_rules! post {
    ($fields:literal, $body:literal) => {
        concat!("POST /@ HTTP/1.1\r\nhost: h\r\n", $fields, "\r\n\r\n", $body)
    };
}

/// A request with this `transfer-encoding`.
macro_rules! coding {
    ($value:literal) => {
        concat!(
            "POST /@ HTTP/1.1\r\nhost: h\r\ntransfer-encoding:",
            $value,
            "\r\n\r\n",
            "3\r\nabc\r\n0\r\n\r\n"
        )
    };
}

/// A request with this `content-length`.
macro_rules! length {
    ($value:literal) => {
        concat!("POST /@ HTTP/1.1\r\nhost: h\r\ncontent-length:", $value, "\r\n\r\nabc")
    };
}

const SEES_CHUNKS: Step = Sees("POST /@ | host: h | transfer-encoding: chunked || abc");

const SEES_LENGTH: Step = Sees("POST /@ | host: h | content-length: 3 || abc");

const SEES_SECOND: Step = Sees("GET /second | host: h");

const BAD_CODING: &[Step] = &[Rejects(501, "bad_transfer_encoding"), Closes];

/// A request with both framings, or with neither of them.
pub(super) const LENGTH_AND_CHUNKS: &[Http1Case] = &[
    (
        "CL.TE: the chunks end before the length",
        "9112 6.3",
        post!(
            "content-length: 39\r\ntransfer-encoding: chunked",
            "0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"
        ),
        &[Sees("POST /@ | host: h | transfer-encoding: chunked"), Closes],
    ),
    (
        "TE.CL: the length ends before the chunks",
        "9112 6.3",
        post!(
            "transfer-encoding: chunked\r\ncontent-length: 4",
            "24\r\nGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n!\r\n0\r\n\r\n"
        ),
        &[
            Sees(
                "POST /@ | host: h | transfer-encoding: chunked || \
                 GET /smuggled HTTP/1.1\\r\\nhost: h\\r\\n\\r\\n!",
            ),
            Closes,
        ],
    ),
    (
        "chunks and the length of the encoded body",
        "9112 6.1",
        post!("content-length: 13\r\ntransfer-encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
        &[SEES_CHUNKS, Closes],
    ),
    (
        "chunks and a length of 0",
        "9112 6.3",
        post!("content-length: 0\r\ntransfer-encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
        &[SEES_CHUNKS, Closes],
    ),
    (
        "keep-alive does not keep a connection with both framings",
        "9112 6.1",
        post!(
            "connection: keep-alive\r\ncontent-length: 3\r\ntransfer-encoding: chunked",
            "3\r\nabc\r\n0\r\n\r\n"
        ),
        &[SEES_CHUNKS, Closes],
    ),
    (
        "both framings of a GET",
        "9112 6.3",
        "GET /@ HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n",
        &[Sees("GET /@ | host: h | transfer-encoding: chunked || abc"), Closes],
    ),
    (
        "chunks and the same length twice",
        "9112 6.3",
        post!(
            "content-length: 3\r\ntransfer-encoding: chunked\r\ncontent-length: 3",
            "3\r\nabc\r\n0\r\n\r\n"
        ),
        &[SEES_CHUNKS, Closes],
    ),
    (
        "chunks and two different lengths",
        "9112 6.3",
        post!(
            "content-length: 3\r\ntransfer-encoding: chunked\r\ncontent-length: 5",
            "3\r\nabc\r\n0\r\n\r\n"
        ),
        BAD_REQUEST,
    ),
    (
        "chunks and an invalid length",
        "9112 6.3",
        post!("content-length: 3x\r\ntransfer-encoding: chunked", "3\r\nabc\r\n0\r\n\r\n"),
        BAD_REQUEST,
    ),
    (
        "both framings in HTTP/1.0",
        "9112 6.1",
        "POST /@ HTTP/1.0\r\nhost: h\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
        BAD_REQUEST,
    ),
    (
        "a coding that is not chunked, and a length",
        "9112 6.3",
        post!("content-length: 3\r\ntransfer-encoding: gzip", "abc"),
        BAD_REQUEST,
    ),
    (
        "without framing, the bytes after a POST are the next request",
        "9112 6.3",
        "POST /@ HTTP/1.1\r\nhost: h\r\n\r\nGET /second HTTP/1.1\r\nhost: h\r\n\r\n",
        &[Sees("POST /@ | host: h | content-length: 0"), SEES_SECOND, Next],
    ),
    (
        "a GET with a body that looks like a request",
        "9110 9.3.1",
        "GET /@ HTTP/1.1\r\nhost: h\r\ncontent-length: 36\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n!",
        &[
            Sees(
                "GET /@ | host: h | content-length: 36 || \
                 GET /smuggled HTTP/1.1\\r\\nhost: h\\r\\n\\r\\n!",
            ),
            Next,
        ],
    ),
    (
        "a HEAD with a body",
        "9112 6.3",
        "HEAD /@ HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc",
        &[Sees("HEAD /@ | host: h | content-length: 3 || abc"), Next],
    ),
    (
        "a DELETE with chunks",
        "9112 6.3",
        "DELETE /@ HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        &[Sees("DELETE /@ | host: h | transfer-encoding: chunked || abc"), Next],
    ),
    (
        "a length that ends before the next request",
        "9112 6.3",
        post!("content-length: 3", "abcGET /second HTTP/1.1\r\nhost: h\r\n\r\n"),
        &[SEES_LENGTH, SEES_SECOND, Next],
    ),
    (
        "a body that is longer than its length",
        "9112 6.3",
        post!("content-length: 3", "abcde\r\n\r\n"),
        &[SEES_LENGTH, Rejects(400, "bad_request"), Closes],
    ),
    ("a body that is shorter than its length", "9112 6.3", length!(" 10"), &[BreaksOff("abc")]),
];

/// Values and names of `transfer-encoding` that only some servers understand.
pub(super) const TRANSFER_ENCODING: &[Http1Case] = &[
    (
        "upper case",
        "9112 7",
        post!("TRANSFER-ENCODING: CHUNKED", "3\r\nabc\r\n0\r\n\r\n"),
        &[SEES_CHUNKS, Next],
    ),
    ("tabs around the coding", "9112 5.1", coding!("\tchunked \t"), &[SEES_CHUNKS, Next]),
    ("no space before the coding", "9112 5.1", coding!("chunked"), &[SEES_CHUNKS, Next]),
    (
        "a space before the colon",
        "9112 5.1",
        post!("transfer-encoding : chunked", "0\r\n\r\n"),
        BAD_REQUEST,
    ),
    (
        "a tab before the colon, and a length",
        "9112 5.1",
        post!("transfer-encoding\t: chunked\r\ncontent-length: 5", "0\r\n\r\n"),
        BAD_REQUEST,
    ),
    (
        "a continuation of another header",
        "9112 5.2",
        post!("x: y\r\n transfer-encoding: chunked", "0\r\n\r\n"),
        BAD_REQUEST,
    ),
    ("the coding on a continuation line", "9112 5.2", coding!("\r\n chunked"), BAD_REQUEST),
    ("a continuation after the coding", "9112 5.2", coding!(" chunked\r\n\tx"), BAD_REQUEST),
    ("a vertical tab before the coding", "9110 5.5", coding!(" \u{b}chunked"), BAD_REQUEST),
    ("a form feed after the coding", "9110 5.5", coding!(" chunked\u{c}"), BAD_REQUEST),
    ("a NUL after the coding", "9110 5.5", coding!(" chunked\0"), BAD_REQUEST),
    ("a CR alone before the coding", "9112 2.2", coding!(" \rchunked"), BAD_REQUEST),
    (
        "an LF alone before the name",
        "9112 2.2",
        post!("x: y\ntransfer-encoding: chunked", "0\r\n\r\n"),
        BAD_REQUEST,
    ),
    ("a no-break space after the coding", "9112 6.3", coding!(" chunked\u{a0}"), BAD_REQUEST),
    ("double quotes", "9112 6.3", coding!(" \"chunked\""), BAD_REQUEST),
    ("single quotes", "9112 6.3", coding!(" 'chunked'"), BAD_REQUEST),
    ("a parameter", "9112 7.1", coding!(" chunked;q=1"), BAD_REQUEST),
    ("a coding that ends with chunked", "9112 6.3", coding!(" xchunked"), BAD_REQUEST),
    ("a coding that begins with chunked", "9112 6.3", coding!(" chunked-x"), BAD_REQUEST),
    ("two codings without a comma", "9112 6.3", coding!(" x chunked"), BAD_REQUEST),
    (
        "identity, which is no coding, and a length",
        "9112 6.3",
        post!("transfer-encoding: identity\r\ncontent-length: 3", "abc"),
        BAD_REQUEST,
    ),
    ("identity before chunked", "9112 6.1", coding!(" identity, chunked"), BAD_CODING),
    ("identity after chunked", "9112 6.3", coding!(" chunked, identity"), BAD_REQUEST),
    ("another coding before chunked", "9112 6.1", coding!(" gzip, chunked"), BAD_CODING),
    ("another coding after chunked", "9112 6.3", coding!(" chunked, gzip"), BAD_REQUEST),
    ("chunked twice in one line", "9112 6.1", coding!(" chunked, chunked"), BAD_CODING),
    (
        "chunked twice in two lines",
        "9112 6.1",
        coding!(" chunked\r\ntransfer-encoding: chunked"),
        BAD_CODING,
    ),
    (
        "another coding in a second line",
        "9112 6.3",
        coding!(" chunked\r\nTransfer-encoding: cow\r\ncontent-length: 5"),
        BAD_REQUEST,
    ),
    (
        "another coding in a first line",
        "9112 6.1",
        coding!(" cow\r\nTransfer-encoding: chunked\r\ncontent-length: 5"),
        BAD_CODING,
    ),
    ("an empty value", "9112 6.3", coding!(""), BAD_REQUEST),
    ("an empty element after chunked", "9112 6.3", coding!(" chunked,"), BAD_REQUEST),
    ("an empty element before chunked", "9112 6.1", coding!(" , chunked"), BAD_CODING),
    (
        "chunked in HTTP/1.0",
        "9112 6.1",
        "POST /@ HTTP/1.0\r\nhost: h\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n\
         0\r\n\r\n",
        BAD_REQUEST,
    ),
    (
        "chunked in a later minor version",
        "9110 2.5",
        "POST /@ HTTP/1.2\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        &[SEES_CHUNKS, Next],
    ),
    (
        "an underscore in the name",
        "9110 5.1",
        post!("transfer_encoding: chunked\r\ncontent-length: 5", "0\r\n\r\n"),
        BAD_REQUEST,
    ),
    (
        "a longer name frames nothing",
        "9110 5.1",
        post!("x-transfer-encoding: chunked\r\ncontent-length: 3", "abc"),
        &[
            Sees("POST /@ | host: h | x-transfer-encoding: chunked | content-length: 3 || abc"),
            Next,
        ],
    ),
    (
        "content-encoding frames nothing",
        "9112 6.1",
        post!("content-encoding: chunked\r\ncontent-length: 3", "abc"),
        &[Sees("POST /@ | host: h | content-encoding: chunked | content-length: 3 || abc"), Next],
    ),
    (
        "te frames nothing",
        "9110 7.6.1",
        post!("te: chunked\r\ncontent-length: 3", "abc"),
        &[SEES_LENGTH, Next],
    ),
];

/// Values and names of `content-length`.
pub(super) const CONTENT_LENGTH: &[Http1Case] = &[
    ("a plus sign", "9110 8.6", length!(" +3"), BAD_REQUEST),
    ("a minus sign", "9110 8.6", length!(" -3"), BAD_REQUEST),
    ("a negative zero", "9110 8.6", length!(" -0"), BAD_REQUEST),
    ("a hexadecimal number with a prefix", "9110 8.6", length!(" 0x3"), BAD_REQUEST),
    ("a hexadecimal digit", "9110 8.6", length!(" a"), BAD_REQUEST),
    ("a fraction", "9110 8.6", length!(" 3.0"), BAD_REQUEST),
    ("an exponent", "9110 8.6", length!(" 3e0"), BAD_REQUEST),
    ("an underscore between digits", "9110 8.6", length!(" 0_3"), BAD_REQUEST),
    ("two numbers without a comma", "9110 8.6", length!(" 3 4"), BAD_REQUEST),
    ("a number in quotes", "9110 8.6", length!(" \"3\""), BAD_REQUEST),
    ("a number with a parameter", "9110 8.6", length!(" 3;x=4"), BAD_REQUEST),
    ("a fullwidth digit in UTF-8", "9110 8.6", length!(" \u{ef}\u{bc}\u{93}"), BAD_REQUEST),
    ("a NUL after the number", "9110 5.5", length!(" 3\0"), BAD_REQUEST),
    ("a vertical tab before the number", "9110 5.5", length!(" \u{b}3"), BAD_REQUEST),
    ("an empty value", "9110 8.6", length!(""), BAD_REQUEST),
    ("a comma alone", "9110 8.6", length!(" ,"), BAD_REQUEST),
    ("a comma after the number", "9110 8.6", length!(" 3,"), BAD_REQUEST),
    ("the same number twice in a list", "9110 8.6", length!(" 3, 3"), &[SEES_LENGTH, Next]),
    ("two different numbers in a list", "9112 6.3", length!(" 3, 37"), BAD_REQUEST),
    (
        "the same number in two lines",
        "9110 8.6",
        length!(" 3\r\nContent-Length: 3"),
        &[SEES_LENGTH, Next],
    ),
    (
        "two different numbers, the larger first",
        "9112 6.3",
        length!(" 37\r\nContent-Length: 3"),
        BAD_REQUEST,
    ),
    (
        "two different numbers, the smaller first",
        "9112 6.3",
        length!(" 3\r\nContent-Length: 37"),
        BAD_REQUEST,
    ),
    (
        "a number and an empty value in two lines",
        "9112 6.3",
        length!(" 3\r\ncontent-length:"),
        BAD_REQUEST,
    ),
    ("leading zeros", "9110 8.6", length!(" 00000000000000000000003"), &[SEES_LENGTH, Next]),
    (
        "a leading zero is not octal",
        "9110 8.6",
        post!("content-length: 010", "abcdefghij"),
        &[Sees("POST /@ | host: h | content-length: 10 || abcdefghij"), Next],
    ),
    ("whitespace around the number", "9112 5.1", length!("\t 3 \t"), &[SEES_LENGTH, Next]),
    ("2^64, which wraps to 0", "9110 8.6", length!(" 18446744073709551616"), BAD_REQUEST),
    ("2^64 + 3, which wraps to 3", "9110 8.6", length!(" 18446744073709551619"), BAD_REQUEST),
    (
        "2^32 + 3, which wraps to 3 in 32 bits",
        "9110 8.6",
        length!(" 4294967299"),
        &[BreaksOff("abc")],
    ),
    ("a space before the colon", "9112 5.1", post!("content-length : 3", "abc"), BAD_REQUEST),
    ("a number on a continuation line", "9112 5.2", length!("\r\n\t3"), BAD_REQUEST),
    (
        "an underscore in the name",
        "9110 5.1",
        post!("content_length: 37\r\ncontent-length: 3", "abc"),
        BAD_REQUEST,
    ),
    (
        "a longer name frames nothing",
        "9110 5.1",
        post!("content-length-x: 37\r\ncontent-length: 3", "abc"),
        &[Sees("POST /@ | host: h | content-length-x: 37 | content-length: 3 || abc"), Next],
    ),
    (
        "a length of 0 before the next request",
        "9112 6.3",
        "GET /@ HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n\
         GET /second HTTP/1.1\r\nhost: h\r\n\r\n",
        &[Sees("GET /@ | host: h"), SEES_SECOND, Next],
    ),
    (
        "a length in HTTP/1.0",
        "9112 6.3",
        "POST /@ HTTP/1.0\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc",
        &[SEES_LENGTH, Closes],
    ),
];
