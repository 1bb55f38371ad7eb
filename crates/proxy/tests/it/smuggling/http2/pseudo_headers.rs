//! Pseudo-headers: their values, their number and their order (RFC 9113, section 8.3).

use super::super::Step::{self, Next, Rejects, Resets, Sees};
use super::Body::{Data, None};
use super::{Field, Http2Case};

const GET: Field = (":method", "GET");
const OPTIONS: Field = (":method", "OPTIONS");
const CONNECT: Field = (":method", "CONNECT");
const WEBSOCKET: Field = (":protocol", "websocket");
const HTTP: Field = (":scheme", "http");
const H: Field = (":authority", "h");
const PATH: Field = (":path", "/@");

const PLAIN: &[Step] = &[Sees("GET /@ | host: h"), Next];

const BAD_REQUEST: &[Step] = &[Rejects(400, "bad_request"), Next];

const UNSUPPORTED: &[Step] = &[Rejects(501, "connect_unsupported"), Next];

const BAD_HOST: &[Step] = &[Rejects(400, "bad_host"), Next];

/// The request is malformed (RFC 9113, section 8.1.1).
const MALFORMED: &[Step] = &[Resets(""), Next];

/// Values of `:path`.
pub(super) const PATHS: &[Http2Case] = &[
    ("no :path", "9113 8.3.1", &[GET, HTTP, H], None, MALFORMED),
    ("an empty :path", "9113 8.3.1", &[GET, HTTP, H, (":path", "")], None, MALFORMED),
    ("a :path without a slash", "9113 8.3.1", &[GET, HTTP, H, (":path", "a")], None, BAD_REQUEST),
    ("a query alone", "9113 8.3.1", &[GET, HTTP, H, (":path", "?a")], None, BAD_REQUEST),
    (
        "an absolute URL",
        "9113 8.3.1",
        &[GET, HTTP, H, (":path", "http://evil/@")],
        None,
        BAD_REQUEST,
    ),
    (
        "an authority in :path",
        "9113 8.3.1",
        &[GET, HTTP, H, (":path", "@evil/")],
        None,
        BAD_REQUEST,
    ),
    ("a space", "9113 8.3.1", &[GET, HTTP, H, (":path", "/@ HTTP/1.1")], None, MALFORMED),
    (
        "a second request",
        "9113 10.3",
        &[GET, HTTP, H, (":path", "/@ HTTP/1.1\r\nhost: h\r\n\r\nGET /smuggled HTTP/1.1\r\nx: y")],
        None,
        MALFORMED,
    ),
    ("an LF", "9113 8.2.1", &[GET, HTTP, H, (":path", "/@\nx")], None, MALFORMED),
    ("a CR", "9113 8.2.1", &[GET, HTTP, H, (":path", "/@\rx")], None, MALFORMED),
    ("a NUL", "9113 8.2.1", &[GET, HTTP, H, (":path", "/@\0x")], None, MALFORMED),
    ("a tab", "9113 8.3.1", &[GET, HTTP, H, (":path", "/@\tx")], None, MALFORMED),
    ("a space at the end", "9113 8.2.1", &[GET, HTTP, H, (":path", "/@ ")], None, MALFORMED),
    (
        "encoded line ends stay encoded",
        "9113 10.3",
        &[GET, HTTP, H, (":path", "/@%0d%0ax:y")],
        None,
        &[Sees("GET /@%0d%0ax:y | host: h"), Next],
    ),
    (
        "two slashes are not a host",
        "9113 8.3.1",
        &[GET, HTTP, H, (":path", "//evil/@")],
        None,
        &[Sees("GET //evil/@ | host: h"), Next],
    ),
    (
        "an asterisk",
        "9113 8.3.1",
        &[OPTIONS, HTTP, H, (":path", "*")],
        None,
        &[Sees("OPTIONS * | host: h"), Next],
    ),
    (
        "an asterisk with another method",
        "9113 8.3.1",
        &[GET, HTTP, H, (":path", "*")],
        None,
        BAD_REQUEST,
    ),
    ("a fragment in :path", "9113 8.3.1", &[GET, HTTP, H, (":path", "/@#b")], None, BAD_REQUEST),
    ("two equal paths", "9113 8.3", &[GET, HTTP, H, PATH, PATH], None, MALFORMED),
    (
        "two different paths",
        "9113 8.3",
        &[GET, HTTP, H, PATH, (":path", "/smuggled")],
        None,
        MALFORMED,
    ),
];

/// All other pseudo-headers.
pub(super) const OTHERS: &[Http2Case] = &[
    ("all pseudo-headers", "9113 8.3.1", &[GET, HTTP, H, PATH], None, PLAIN),
    ("all pseudo-headers in another order", "9113 8.3", &[PATH, H, HTTP, GET], None, PLAIN),
    (
        "a pseudo-header after a header",
        "9113 8.3",
        &[GET, HTTP, H, ("x", "y"), PATH],
        None,
        MALFORMED,
    ),
    (
        "a second :path after a header",
        "9113 8.3",
        &[GET, HTTP, H, PATH, ("x", "y"), (":path", "/smuggled")],
        None,
        MALFORMED,
    ),
    ("an unknown pseudo-header", "9113 8.3", &[GET, HTTP, H, PATH, (":odd", "y")], None, MALFORMED),
    (
        "a pseudo-header of responses",
        "9113 8.3",
        &[GET, HTTP, H, PATH, (":status", "200")],
        None,
        MALFORMED,
    ),
    (
        "a pseudo-header in upper case",
        "9113 8.2.1",
        &[GET, HTTP, H, (":Path", "/@")],
        None,
        MALFORMED,
    ),
    ("a colon alone as name", "9113 8.3", &[GET, HTTP, H, PATH, (":", "y")], None, MALFORMED),
    (
        "a pseudo-header named host",
        "9113 8.3",
        &[GET, HTTP, H, PATH, (":host", "evil")],
        None,
        MALFORMED,
    ),
    ("no :method", "9113 8.3.1", &[HTTP, H, PATH], None, MALFORMED),
    ("two methods", "9113 8.3", &[GET, (":method", "POST"), HTTP, H, PATH], None, MALFORMED),
    ("an empty :method", "9113 8.3.1", &[(":method", ""), HTTP, H, PATH], None, MALFORMED),
    (
        "a space in :method",
        "9113 8.3.1",
        &[(":method", "GET /smuggled HTTP/1.1"), HTTP, H, PATH],
        None,
        MALFORMED,
    ),
    (
        "a request line in :method",
        "9113 10.3",
        &[(":method", "GET /smuggled HTTP/1.1\r\nx: y\r\n\r\nGET"), HTTP, H, PATH],
        None,
        MALFORMED,
    ),
    (
        "a method in lower case is another method",
        "9110 9.1",
        &[(":method", "get"), HTTP, H, PATH],
        None,
        &[Sees("get /@ | host: h"), Next],
    ),
    ("no :scheme", "9113 8.3.1", &[GET, H, PATH], None, MALFORMED),
    ("two schemes", "9113 8.3", &[GET, HTTP, HTTP, H, PATH], None, MALFORMED),
    ("an empty :scheme", "9113 8.3.1", &[GET, (":scheme", ""), H, PATH], None, BAD_REQUEST),
    ("https over clear text", "9113 8.3.1", &[GET, (":scheme", "https"), H, PATH], None, PLAIN),
    ("another scheme", "9113 8.3.1", &[GET, (":scheme", "ftp"), H, PATH], None, BAD_REQUEST),
    (
        "another :scheme without :authority",
        "9113 8.3.1",
        &[GET, (":scheme", "ftp"), PATH, ("host", "h")],
        None,
        BAD_REQUEST,
    ),
    (
        "a URL in :scheme",
        "9113 8.3.1",
        &[GET, (":scheme", "http://evil/?"), H, PATH],
        None,
        BAD_REQUEST,
    ),
    (
        "a second request in :scheme",
        "9113 10.3",
        &[GET, (":scheme", "http\r\nx: y"), H, PATH],
        None,
        BAD_REQUEST,
    ),
    ("neither :authority nor host", "9113 8.3.1", &[GET, HTTP, PATH], None, BAD_HOST),
    ("host instead of :authority", "9113 8.3.1", &[GET, HTTP, PATH, ("host", "h")], None, PLAIN),
    (
        "host and the same :authority",
        "9113 8.3.1",
        &[GET, HTTP, H, PATH, ("host", "h")],
        None,
        PLAIN,
    ),
    (
        "host and another :authority",
        "9113 8.3.1",
        &[GET, HTTP, H, PATH, ("host", "evil")],
        None,
        BAD_HOST,
    ),
    (
        "host and :authority with another port",
        "9113 8.3.1",
        &[GET, HTTP, H, PATH, ("host", "h:81")],
        None,
        BAD_HOST,
    ),
    (
        "two host headers",
        "9112 3.2",
        &[GET, HTTP, H, PATH, ("host", "h"), ("host", "h")],
        None,
        BAD_HOST,
    ),
    ("two :authority", "9113 8.3", &[GET, HTTP, H, (":authority", "evil"), PATH], None, MALFORMED),
    ("an empty :authority", "9113 8.3.1", &[GET, HTTP, (":authority", ""), PATH], None, MALFORMED),
    (
        "userinfo in :authority",
        "9113 8.3.1",
        &[GET, HTTP, (":authority", "user@h"), PATH],
        None,
        BAD_HOST,
    ),
    (
        "a comma in :authority",
        "9110 7.2",
        &[GET, HTTP, (":authority", "h,evil"), PATH],
        None,
        BAD_HOST,
    ),
    (
        "a path in :authority",
        "9113 8.3.1",
        &[GET, HTTP, (":authority", "h/evil"), PATH],
        None,
        MALFORMED,
    ),
    (
        "a space in :authority",
        "9113 8.3.1",
        &[GET, HTTP, (":authority", "h evil"), PATH],
        None,
        MALFORMED,
    ),
    (
        "a header in :authority",
        "9113 10.3",
        &[GET, HTTP, (":authority", "h\r\nx: y"), PATH],
        None,
        MALFORMED,
    ),
    (
        "CONNECT",
        "9113 8.5",
        &[CONNECT, (":authority", "h:443")],
        Data(&["GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"]),
        UNSUPPORTED,
    ),
    ("CONNECT with :scheme and :path", "9113 8.5", &[CONNECT, HTTP, H, PATH], None, UNSUPPORTED),
    (
        "CONNECT with another :protocol",
        "9220 3",
        &[CONNECT, (":protocol", "connect-udp"), HTTP, H, PATH],
        Data(&["GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"]),
        UNSUPPORTED,
    ),
    (
        "CONNECT with :protocol and without :scheme",
        "8441 4",
        &[CONNECT, WEBSOCKET, H, PATH],
        None,
        MALFORMED,
    ),
    (
        "CONNECT with :protocol and without :path",
        "8441 4",
        &[CONNECT, WEBSOCKET, HTTP, H],
        None,
        MALFORMED,
    ),
    (
        "CONNECT with :protocol and without a host",
        "8441 4",
        &[CONNECT, WEBSOCKET, HTTP, PATH],
        None,
        BAD_HOST,
    ),
    (
        "CONNECT with :protocol twice",
        "9113 8.3.1",
        &[CONNECT, WEBSOCKET, WEBSOCKET, HTTP, H, PATH],
        None,
        MALFORMED,
    ),
    (
        "CONNECT with :protocol and a length",
        "9110 9.3.6",
        &[CONNECT, WEBSOCKET, HTTP, H, PATH, ("content-length", "5")],
        Data(&["12345"]),
        BAD_REQUEST,
    ),
    (
        "CONNECT with :protocol and upgrade",
        "9113 8.2.2",
        &[CONNECT, WEBSOCKET, HTTP, H, PATH, ("upgrade", "websocket")],
        None,
        MALFORMED,
    ),
    (
        "CONNECT with :protocol and connection",
        "9113 8.2.2",
        &[CONNECT, WEBSOCKET, HTTP, H, PATH, ("connection", "upgrade")],
        None,
        MALFORMED,
    ),
    (":protocol without CONNECT", "9113 8.3", &[GET, WEBSOCKET, HTTP, H, PATH], None, MALFORMED),
];
