//! Fields of one connection, expectations, upgrades, and requests that follow on a connection.

use super::super::BAD_REQUEST;
use super::super::Step::{self, Closes, Next, Rejects, Sees};
use super::Http1Case;

/// A GET with these headers.
macro_rules! get {
    ($fields:literal) => {
        concat!("GET /@ HTTP/1.1\r\nhost: h\r\n", $fields, "\r\n\r\n")
    };
}

/// A request with these headers and the body `abc`.
macro_rules! post {
    ($fields:literal) => {
        concat!("POST /@ HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n", $fields, "\r\n\r\nabc")
    };
}

const PLAIN: &[Step] = &[Sees("GET /@ | host: h"), Next];

const PLAIN_POST: &[Step] = &[Sees("POST /@ | host: h | content-length: 3 || abc"), Next];

/// `connection` and the fields that concern one connection, `expect` and `upgrade`.
pub(super) const HOP_BY_HOP: &[Http1Case] = &[
    (
        "connection names content-length",
        "9110 7.6.1",
        post!("connection: content-length"),
        BAD_REQUEST,
    ),
    (
        "connection names Content-Length in a list",
        "9110 7.6.1",
        post!("connection: keep-alive, Content-Length"),
        BAD_REQUEST,
    ),
    (
        "connection names transfer-encoding",
        "9110 7.6.1",
        "POST /@ HTTP/1.1\r\nhost: h\r\nconnection: transfer-encoding\r\n\
         transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        BAD_REQUEST,
    ),
    (
        "a second connection line names transfer-encoding",
        "9110 7.6.1",
        "POST /@ HTTP/1.1\r\nhost: h\r\nconnection: keep-alive\r\nconnection: transfer-encoding\r\n\
         transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
        BAD_REQUEST,
    ),
    ("connection names host, which stays", "9112 3.2", get!("connection: Host"), PLAIN),
    (
        "connection names x-forwarded-for",
        "9110 7.6.1",
        get!("connection: x-forwarded-for, x-forwarded-proto"),
        PLAIN,
    ),
    (
        "connection names authorization and cookie",
        "9110 7.6.1",
        get!("connection: Authorization, cookie\r\nauthorization: a\r\ncookie: b\r\nx: y"),
        &[Sees("GET /@ | host: h | x: y"), Next],
    ),
    (
        "connection names fields in two lines",
        "9110 7.6.1",
        get!("x-a: 1\r\nconnection: x-a,\r\nx-b: 2\r\nconnection: ,X-B\r\nx-b: 3\r\nx-c: 4"),
        &[Sees("GET /@ | host: h | x-c: 4"), Next],
    ),
    (
        "connection names a field that begins like another",
        "9110 7.6.1",
        get!("connection: x-\r\nx-a: 1"),
        &[Sees("GET /@ | host: h | x-a: 1"), Next],
    ),
    (
        "connection names itself, nothing, and text in quotes",
        "9110 7.6.1",
        get!("connection: connection, , \"x-a\"\r\nx-a: 1"),
        &[Sees("GET /@ | host: h | x-a: 1"), Next],
    ),
    ("an empty connection", "9110 7.6.1", get!("connection:"), PLAIN),
    (
        "fields of a connection that it does not name",
        "9110 7.6.1",
        get!("keep-alive: timeout=9\r\nproxy-connection: close\r\nte: gzip\r\nupgrade: websocket"),
        PLAIN,
    ),
    (
        "te keeps only trailers",
        "9110 7.6.1",
        get!("connection: te\r\nte: gzip, trailers;q=0.5, Trailers"),
        &[Sees("GET /@ | host: h | te: trailers | connection: te"), Next],
    ),
    (
        "100-continue with the body at once",
        "9110 10.1.1",
        post!("expect: 100-continue"),
        PLAIN_POST,
    ),
    ("100-Continue in another case", "9110 10.1.1", post!("Expect: 100-CONTINUE"), PLAIN_POST),
    ("100-continue without a body", "9110 10.1.1", get!("expect: 100-continue"), PLAIN),
    (
        "100-continue in HTTP/1.0",
        "9110 10.1.1",
        "POST /@ HTTP/1.0\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc",
        &[Sees("POST /@ | host: h | content-length: 3 || abc"), Closes],
    ),
    ("an unknown expectation", "9110 10.1.1", post!("expect: x"), PLAIN_POST),
    ("100-continue after another word", "9110 10.1.1", post!("expect: y 100-continue"), PLAIN_POST),
    ("two expectations", "9110 10.1.1", post!("expect: 100-continue\r\nexpect: x"), PLAIN_POST),
    (
        "100-continue on a continuation line",
        "9112 5.2",
        post!("expect:\r\n 100-continue"),
        BAD_REQUEST,
    ),
    (
        "100-continue, a final response, and the next request instead of the body",
        "9110 10.1.1",
        "POST /@ HTTP/1.1\r\nhost: a b\r\nexpect: 100-continue\r\ncontent-length: 100\r\n\r\n",
        &[Rejects(400, "bad_host"), Closes],
    ),
    (
        "100-continue, a final response, and the body",
        "9110 10.1.1",
        "POST /@ HTTP/1.1\r\nhost: a b\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc",
        &[Rejects(400, "bad_host"), Next],
    ),
    (
        "an upgrade that the server declines",
        "9110 7.8",
        get!("connection: Upgrade\r\nupgrade: websocket"),
        &[Sees("GET /@ | host: h | connection: upgrade | upgrade: websocket"), Next],
    ),
    (
        "an upgrade with a body that the server declines",
        "9110 7.8",
        post!("connection: upgrade\r\nupgrade: websocket"),
        &[
            Sees(
                "POST /@ | host: h | content-length: 3 | connection: upgrade | \
                 upgrade: websocket || abc",
            ),
            Next,
        ],
    ),
    ("an upgrade that connection does not name", "9110 7.8", get!("upgrade: websocket"), PLAIN),
    (
        "an upgrade in HTTP/1.0",
        "9110 7.8",
        "GET /@ HTTP/1.0\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        &[Sees("GET /@ | host: h"), Closes],
    ),
    (
        "h2c",
        "9113 3.1",
        get!(
            "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__"
        ),
        PLAIN,
    ),
    (
        "h2c, and http2-settings that connection does not name",
        "9113 3.1",
        get!("connection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__"),
        &[Sees("GET /@ | host: h | http2-settings: AAMAAABkAAQAAP__"), Next],
    ),
    ("h2c in upper case", "9113 3.1", get!("connection: upgrade\r\nupgrade: H2C"), PLAIN),
    ("h2c in a list", "9113 3.1", get!("connection: upgrade\r\nupgrade: websocket, h2c"), PLAIN),
    (
        "h2c in a second line",
        "9113 3.1",
        get!("connection: upgrade\r\nupgrade: websocket\r\nupgrade: h2c"),
        PLAIN,
    ),
    ("h2c with a body", "9113 3.1", post!("connection: upgrade\r\nupgrade: h2c"), PLAIN_POST),
    (
        "h2c and the preface of HTTP/2 at once",
        "9113 3.1",
        get!("connection: upgrade\r\nupgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM"),
        &[Sees("GET /@ | host: h"), Rejects(400, "bad_request"), Closes],
    ),
];

/// Which requests are served after one another.
pub(super) const PERSISTENCE: &[Http1Case] = &[
    (
        "three requests at once",
        "9112 9.3.2",
        "GET /@ HTTP/1.1\r\nhost: h\r\n\r\n\
         POST /@ HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc\
         HEAD /@ HTTP/1.1\r\nhost: h\r\n\r\n",
        &[
            Sees("GET /@ | host: h"),
            Sees("POST /@ | host: h | content-length: 3 || abc"),
            Sees("HEAD /@ | host: h"),
            Next,
        ],
    ),
    ("close", "9112 9.3", get!("connection: close"), &[Sees("GET /@ | host: h"), Closes]),
    (
        "close in upper case, in a list",
        "9112 9.3",
        get!("connection: keep-alive, CLOSE"),
        &[Sees("GET /@ | host: h"), Closes],
    ),
    (
        "close in a second line",
        "9112 9.3",
        get!("connection: keep-alive\r\nconnection: close"),
        &[Sees("GET /@ | host: h"), Closes],
    ),
    ("a word that begins with close", "9112 9.3", get!("connection: closed"), PLAIN),
    (
        "close and an expectation",
        "9112 9.3",
        post!("connection: close\r\nexpect: 100-continue"),
        &[Sees("POST /@ | host: h | content-length: 3 || abc"), Closes],
    ),
    (
        "HTTP/1.0",
        "9112 9.3",
        "GET /@ HTTP/1.0\r\nhost: h\r\n\r\n",
        &[Sees("GET /@ | host: h"), Closes],
    ),
    (
        "HTTP/1.0 with keep-alive",
        "9112 9.3",
        "GET /@ HTTP/1.0\r\nhost: h\r\nconnection: Keep-Alive\r\n\r\n",
        PLAIN,
    ),
    (
        "HTTP/1.0 with keep-alive and close",
        "9112 9.3",
        "GET /@ HTTP/1.0\r\nhost: h\r\nconnection: keep-alive, close\r\n\r\n",
        &[Sees("GET /@ | host: h"), Closes],
    ),
    (
        "HTTP/1.0 with the keep-alive header only",
        "9112 9.3",
        "GET /@ HTTP/1.0\r\nhost: h\r\nkeep-alive: timeout=9\r\n\r\n",
        &[Sees("GET /@ | host: h"), Closes],
    ),
    (
        "a malformed request after a good one",
        "9112 9.3",
        "GET /@ HTTP/1.1\r\nhost: h\r\n\r\nGARBAGE\r\n\r\n",
        &[Sees("GET /@ | host: h"), Rejects(400, "bad_request"), Closes],
    ),
    (
        "a malformed body after a good request",
        "9112 7.1",
        "GET /@ HTTP/1.1\r\nhost: h\r\n\r\n\
         POST /@ HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        &[Sees("GET /@ | host: h"), Step::RejectsBody(""), Closes],
    ),
];
