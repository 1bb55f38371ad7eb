//! Request lines, targets and hosts.

use super::super::BAD_REQUEST;
use super::super::Step::{self, Closes, Next, Rejects, Sees};
use super::Http1Case;

/// A request with this request line.
macro_rules! line {
    ($line:literal) => {
        concat!($line, "\r\nhost: h\r\n\r\n")
    };
}

/// A GET with these headers instead of `host: h`.
macro_rules! host {
    ($fields:literal) => {
        concat!("GET /@ HTTP/1.1\r\n", $fields, "\r\n\r\n")
    };
}

const PLAIN: &[Step] = &[Sees("GET /@ | host: h"), Next];

/// The framing of the request is known, so the connection stays open.
const BAD_HOST: &[Step] = &[Rejects(400, "bad_host"), Next];

/// A bad host in the target, which is detected before the framing is known.
const BAD_AUTHORITY: &[Step] = &[Rejects(400, "bad_host"), Closes];

const CONNECT: &[Step] = &[Rejects(501, "connect_unsupported"), Closes];

/// Methods, targets and versions.
pub(super) const REQUEST_LINES: &[Http1Case] = &[
    ("two spaces before the target", "9112 3", line!("GET  /@ HTTP/1.1"), BAD_REQUEST),
    ("two spaces before the version", "9112 3", line!("GET /@  HTTP/1.1"), BAD_REQUEST),
    ("a tab before the target", "9112 3", line!("GET\t/@ HTTP/1.1"), BAD_REQUEST),
    ("a tab before the version", "9112 3", line!("GET /@\tHTTP/1.1"), BAD_REQUEST),
    ("a form feed before the version", "9112 3", line!("GET /@\u{c}HTTP/1.1"), BAD_REQUEST),
    ("a space before the method", "9112 3", line!(" GET /@ HTTP/1.1"), BAD_REQUEST),
    ("a space after the version", "9112 3", line!("GET /@ HTTP/1.1 "), BAD_REQUEST),
    ("a word after the version", "9112 3", line!("GET /@ HTTP/1.1 x"), BAD_REQUEST),
    ("a space in the target", "9112 3.2", line!("GET /@ b HTTP/1.1"), BAD_REQUEST),
    (
        "a second request line in the target",
        "9112 3.2",
        line!("GET /@ HTTP/1.1 /b HTTP/1.1"),
        BAD_REQUEST,
    ),
    ("no target", "9112 3", line!("GET HTTP/1.1"), BAD_REQUEST),
    ("a method alone", "9112 3", line!("GET"), BAD_REQUEST),
    ("HTTP/0.9", "9112 3", "GET /@\r\n\r\n", BAD_REQUEST),
    ("version 0.9", "9112 2.3", line!("GET /@ HTTP/0.9"), BAD_REQUEST),
    ("version 2.0", "9112 2.3", line!("GET /@ HTTP/2.0"), BAD_REQUEST),
    ("a version in lower case", "9112 2.3", line!("GET /@ http/1.1"), BAD_REQUEST),
    ("a minor version of two digits", "9112 2.3", line!("GET /@ HTTP/1.10"), BAD_REQUEST),
    ("a major version of two digits", "9112 2.3", line!("GET /@ HTTP/01.1"), BAD_REQUEST),
    ("a comma in the version", "9112 2.3", line!("GET /@ HTTP/1,1"), BAD_REQUEST),
    ("a sign in the version", "9112 2.3", line!("GET /@ HTTP/1.+1"), BAD_REQUEST),
    ("a space within the version", "9112 2.3", line!("GET /@ HTTP /1.1"), BAD_REQUEST),
    ("another protocol", "9112 2.3", line!("GET /@ ICAP/1.1"), BAD_REQUEST),
    ("a later minor version", "9110 2.5", line!("GET /@ HTTP/1.9"), PLAIN),
    (
        "a method in lower case is another method",
        "9110 9.1",
        line!("get /@ HTTP/1.1"),
        &[Sees("get /@ | host: h"), Next],
    ),
    ("a method that is no token", "9112 3.1", line!("G@T /@ HTTP/1.1"), BAD_REQUEST),
    ("a colon in a method", "9112 3.1", line!("GET: /@ HTTP/1.1"), BAD_REQUEST),
    ("a byte above ASCII in a method", "9112 3.1", line!("G\u{c9}T /@ HTTP/1.1"), BAD_REQUEST),
    ("a control character in a target", "9112 3.2", line!("GET /@\u{1}b HTTP/1.1"), BAD_REQUEST),
    ("a NUL in a target", "9112 3.2", line!("GET /@\0b HTTP/1.1"), BAD_REQUEST),
    ("DEL in a target", "9112 3.2", line!("GET /@\u{7f}b HTTP/1.1"), BAD_REQUEST),
    (
        "a byte that is not UTF-8 in a target",
        "9112 3.2",
        line!("GET /@\u{ff} HTTP/1.1"),
        BAD_REQUEST,
    ),
    ("a fragment", "9112 3.2", line!("GET /@#b HTTP/1.1"), BAD_REQUEST),
    (
        "UTF-8, a backslash and encoded line ends stay as they are",
        "9112 3.2",
        line!("GET /@/caf\u{c3}\u{a9}\\%0d%0ax:y HTTP/1.1"),
        &[Sees("GET /@/caf\\xc3\\xa9\\\\%0d%0ax:y | host: h"), Next],
    ),
    (
        "two slashes are not a host",
        "9112 3.2.1",
        line!("GET //evil/@ HTTP/1.1"),
        &[Sees("GET //evil/@ | host: h"), Next],
    ),
    (
        "an absolute target and another host",
        "9112 3.2.2",
        line!("GET http://other:81/@ HTTP/1.1"),
        &[Sees("GET /@ | host: other:81"), Next],
    ),
    (
        "an absolute target with a query and no path",
        "9112 3.2.2",
        line!("GET http://other?/@ HTTP/1.1"),
        &[Sees("GET /?/@ | host: other"), Next],
    ),
    ("an absolute target in upper case", "9112 3.2.2", line!("GET HTTP://h/@ HTTP/1.1"), PLAIN),
    ("an absolute target without host", "9112 3.2", host!("x: y"), BAD_HOST),
    (
        "an absolute target and two hosts",
        "9112 3.2",
        line!("GET http://h/@ HTTP/1.1\r\nhost: h"),
        BAD_HOST,
    ),
    (
        "an absolute target and a bad host",
        "9112 3.2",
        "GET http://h/@ HTTP/1.1\r\nhost: a b\r\n\r\n",
        BAD_HOST,
    ),
    ("userinfo in a target", "9110 4.2.4", line!("GET http://h@evil/@ HTTP/1.1"), BAD_HOST),
    ("an empty host in a target", "9110 4.2.1", line!("GET http:///@ HTTP/1.1"), BAD_AUTHORITY),
    (
        "a backslash in the host of a target",
        "9112 3.2.2",
        line!("GET http://h\\@evil/@ HTTP/1.1"),
        BAD_AUTHORITY,
    ),
    ("a bad port in a target", "9112 3.2.2", line!("GET http://h:x/@ HTTP/1.1"), BAD_HOST),
    ("another scheme", "9112 3.2.2", line!("GET ftp://h/@ HTTP/1.1"), BAD_REQUEST),
    ("a scheme without slashes", "9112 3.2.2", line!("GET http:h/@ HTTP/1.1"), BAD_REQUEST),
    ("a scheme with backslashes", "9112 3.2.2", line!("GET http:\\\\h/@ HTTP/1.1"), BAD_REQUEST),
    (
        "a fragment of an absolute target",
        "9112 3.2.2",
        line!("GET http://h/@#b HTTP/1.1"),
        BAD_REQUEST,
    ),
    ("a target of host and port", "9112 3.2.3", line!("GET h:80 HTTP/1.1"), BAD_REQUEST),
    ("a target that begins with an at sign", "9112 3.2", line!("GET @evil/ HTTP/1.1"), BAD_REQUEST),
    ("a target without a slash", "9112 3.2", line!("GET a HTTP/1.1"), BAD_REQUEST),
    ("a query alone", "9112 3.2", line!("GET ?a HTTP/1.1"), BAD_REQUEST),
    ("CONNECT", "9112 3.2.3", line!("CONNECT h:443 HTTP/1.1"), CONNECT),
    ("CONNECT with a path", "9112 3.2.3", line!("CONNECT /@ HTTP/1.1"), CONNECT),
    (
        "CONNECT with a body that looks like a request",
        "9110 9.3.6",
        "CONNECT h:443 HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n",
        CONNECT,
    ),
    (
        "an asterisk",
        "9112 3.2.4",
        line!("OPTIONS * HTTP/1.1"),
        &[Sees("OPTIONS * | host: h"), Next],
    ),
    (
        "an absolute target in place of an asterisk",
        "9112 3.2.4",
        line!("OPTIONS http://other HTTP/1.1"),
        &[Sees("OPTIONS * | host: other"), Next],
    ),
    ("an asterisk with another method", "9112 3.2.4", line!("GET * HTTP/1.1"), BAD_REQUEST),
    ("an asterisk with a query", "9112 3.2.4", line!("OPTIONS *?a HTTP/1.1"), BAD_REQUEST),
    (
        "the preface of HTTP/2 after a request",
        "9113 3.4",
        "GET /@ HTTP/1.1\r\nhost: h\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &[Sees("GET /@ | host: h"), Rejects(400, "bad_request"), Closes],
    ),
];

/// `host`: RFC 9112, section 3.2, requires one valid value.
pub(super) const HOSTS: &[Http1Case] = &[
    ("no host", "9112 3.2", host!("x: y"), BAD_HOST),
    (
        "no host in HTTP/1.0",
        "9112 3.2",
        "GET /@ HTTP/1.0\r\n\r\n",
        &[Sees("GET /@ | host: REPLICA"), Closes],
    ),
    ("two hosts", "9112 3.2", host!("host: h\r\nhost: evil"), BAD_HOST),
    ("the same host twice", "9112 3.2", host!("host: h\r\nHost: h"), BAD_HOST),
    (
        "two hosts in HTTP/1.0",
        "9112 3.2",
        "GET /@ HTTP/1.0\r\nhost: h\r\nhost: evil\r\n\r\n",
        &[Rejects(400, "bad_host"), Closes],
    ),
    (
        "two hosts with a space before a colon",
        "9112 5.1",
        host!("host: h\r\nhost : evil"),
        BAD_REQUEST,
    ),
    (
        "a second host on a continuation line",
        "9112 5.2",
        host!("host: h\r\n host: evil"),
        BAD_REQUEST,
    ),
    ("an empty host", "9110 4.2.1", host!("host:"), BAD_HOST),
    ("a port alone", "9110 4.2.1", host!("host: :80"), BAD_HOST),
    ("a list of hosts", "9110 7.2", host!("host: h, evil"), BAD_HOST),
    ("a comma in a host", "9110 7.2", host!("host: h,evil"), BAD_HOST),
    ("userinfo", "9110 7.2", host!("host: user@h"), BAD_HOST),
    ("a space in a host", "9110 7.2", host!("host: h evil"), BAD_HOST),
    ("a tab in a host", "9110 7.2", host!("host: h\tevil"), BAD_HOST),
    ("a path in a host", "9110 7.2", host!("host: h/evil"), BAD_HOST),
    ("a query in a host", "9110 7.2", host!("host: h?evil"), BAD_HOST),
    ("a fragment in a host", "9110 7.2", host!("host: h#evil"), BAD_HOST),
    ("a backslash in a host", "9110 7.2", host!("host: h\\evil"), BAD_HOST),
    ("a URL as host", "9110 7.2", host!("host: http://h"), BAD_HOST),
    ("percent-encoding in a host", "9110 7.2", host!("host: h%2eevil"), BAD_HOST),
    ("a byte above ASCII in a host", "9110 7.2", host!("host: caf\u{e9}"), BAD_HOST),
    ("a no-break space after a host", "9110 7.2", host!("host: h\u{a0}"), BAD_HOST),
    ("a NUL in a host", "9110 5.5", host!("host: h\0evil"), BAD_REQUEST),
    ("a port that is not a number", "9110 7.2", host!("host: h:evil"), BAD_HOST),
    ("a port above 65535", "9110 7.2", host!("host: h:65536"), BAD_HOST),
    ("a port with a sign", "9110 7.2", host!("host: h:+80"), BAD_HOST),
    ("two ports", "9110 7.2", host!("host: h:80:81"), BAD_HOST),
    ("a host after a port", "9110 7.2", host!("host: h:80evil"), BAD_HOST),
    ("an unclosed bracket", "9110 7.2", host!("host: [::1"), BAD_HOST),
    ("a name after brackets", "9110 7.2", host!("host: [::1]evil"), BAD_HOST),
    ("a name in brackets", "9110 7.2", host!("host: [evil]"), BAD_HOST),
    ("a port", "9110 7.2", host!("host: h:81"), &[Sees("GET /@ | host: h:81"), Next]),
    ("an empty port", "9110 7.2", host!("host: h:"), &[Sees("GET /@ | host: h:"), Next]),
    (
        "an IPv6 address",
        "9110 7.2",
        host!("host: [::1]:81"),
        &[Sees("GET /@ | host: [::1]:81"), Next],
    ),
    ("whitespace around a host", "9112 5.1", host!("host: \t h \t"), PLAIN),
    (
        "a host with an underscore before its name is another header",
        "9110 5.1",
        host!("host: h\r\n_host: evil"),
        &[Sees("GET /@ | host: h | _host: evil"), Next],
    ),
    (
        "a bad host with a body",
        "9112 3.2",
        "POST /@ HTTP/1.1\r\nhost: a b\r\ncontent-length: 35\r\n\r\n\
         GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n",
        BAD_HOST,
    ),
    (
        "a bad host with a malformed body",
        "9112 7.1",
        "POST /@ HTTP/1.1\r\nhost: a b\r\ntransfer-encoding: chunked\r\n\r\n\
         zz\r\nGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n",
        &[Rejects(400, "bad_host"), Closes],
    ),
];
