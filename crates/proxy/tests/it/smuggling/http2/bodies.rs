//! Bodies over HTTP/2: `content-length`, DATA frames and trailers (RFC 9113, sections 8.1 and 8.1.1).

use super::super::Step::{self, Next, Rejects, Resets, ResetsSurplus, Sees};
use super::Body::{Data, None, Trailers, UnendedTrailers};
use super::Http2Case;

const MALFORMED: &[Step] = &[Resets("abc"), Next];

const BAD_REQUEST: &[Step] = &[Rejects(400, "bad_request"), Next];

const SEES_LENGTH: &[Step] = &[Sees("POST /@ | host: h | content-length: 3 || abc"), Next];

const SEES_CHUNKS: &[Step] = &[Sees("POST /@ | host: h | transfer-encoding: chunked || abc"), Next];

pub(super) const BODIES: &[Http2Case] = &[
    ("no body", "9113 8.1", post![], None, &[Sees("POST /@ | host: h | content-length: 0"), Next]),
    ("a body without a length", "9113 8.1", post![], Data(&["abc"]), SEES_CHUNKS),
    (
        "a body that looks like chunks and a request",
        "9113 8.1",
        post![],
        Data(&["0\r\n\r\n", "GET /smuggled HTTP/1.1\r\n\r\n"]),
        &[
            Sees(
                "POST /@ | host: h | transfer-encoding: chunked || \
                 0\\r\\n\\r\\nGET /smuggled HTTP/1.1\\r\\n\\r\\n",
            ),
            Next,
        ],
    ),
    ("empty DATA frames", "9113 8.1", post![], Data(&["", "ab", "", "c", ""]), SEES_CHUNKS),
    (
        "an empty DATA frame alone",
        "9113 8.1",
        post![],
        Data(&[""]),
        &[Sees("POST /@ | host: h | transfer-encoding: chunked"), Next],
    ),
    (
        "a body with its length",
        "9113 8.1.1",
        post![("content-length", "3")],
        Data(&["ab", "c"]),
        SEES_LENGTH,
    ),
    (
        "a body that is shorter than its length",
        "9113 8.1.1",
        post![("content-length", "4")],
        Data(&["abc"]),
        MALFORMED,
    ),
    (
        "H2.CL: a body that is longer than its length",
        "9113 8.1.1",
        post![("content-length", "3")],
        Data(&["abcGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"]),
        MALFORMED,
    ),
    (
        "a second DATA frame beyond the length",
        "9113 8.1.1",
        post![("content-length", "3")],
        Data(&["abc", "GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"]),
        &[ResetsSurplus("POST /@ | host: h | content-length: 3 || abc"), Next],
    ),
    (
        "a length of 0 and a body",
        "9113 8.1.1",
        post![("content-length", "0")],
        Data(&["GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"]),
        &[ResetsSurplus("POST /@ | host: h | content-length: 0"), Next],
    ),
    ("a length without a body", "9113 8.1.1", post![("content-length", "3")], None, MALFORMED),
    (
        "a body that is shorter than its length, and trailers",
        "9113 8.1.1",
        post![("content-length", "4")],
        Trailers("abc", &[("x-sum", "1")]),
        MALFORMED,
    ),
    (
        "the same length twice",
        "9110 8.6",
        post![("content-length", "3"), ("content-length", "3")],
        Data(&["abc"]),
        SEES_LENGTH,
    ),
    (
        "two different lengths",
        "9110 8.6",
        post![("content-length", "3"), ("content-length", "4")],
        Data(&["abc"]),
        BAD_REQUEST,
    ),
    (
        "a list of equal lengths",
        "9110 8.6",
        post![("content-length", "3, 3")],
        Data(&["abc"]),
        SEES_LENGTH,
    ),
    (
        "a length with a sign",
        "9110 8.6",
        post![("content-length", "+3")],
        Data(&["abc"]),
        BAD_REQUEST,
    ),
    (
        "a hexadecimal length",
        "9110 8.6",
        post![("content-length", "0x3")],
        Data(&["abc"]),
        BAD_REQUEST,
    ),
    ("an empty length", "9110 8.6", post![("content-length", "")], None, BAD_REQUEST),
    (
        "2^64 + 3, which wraps to 3",
        "9110 8.6",
        post![("content-length", "18446744073709551619")],
        Data(&["abc"]),
        BAD_REQUEST,
    ),
    (
        "trailers",
        "9113 8.1",
        post![],
        Trailers("abc", &[("x-sum", "1")]),
        &[Sees("POST /@ | host: h | transfer-encoding: chunked || abc || x-sum: 1"), Next],
    ),
    (
        "trailers after a body with a length",
        "9110 6.5",
        post![("content-length", "3")],
        Trailers("abc", &[("x-sum", "1")]),
        SEES_LENGTH,
    ),
    (
        "trailers that do not end the stream",
        "9113 8.1",
        post![],
        UnendedTrailers("abc", &[("x-sum", "1")]),
        MALFORMED,
    ),
    (
        "framing headers in trailers",
        "9110 6.5.1",
        post![],
        Trailers("abc", &[("content-length", "50"), ("host", "evil"), ("x-sum", "1")]),
        &[Sees("POST /@ | host: h | transfer-encoding: chunked || abc || x-sum: 1"), Next],
    ),
    (
        "transfer-encoding in trailers",
        "9113 8.2.2",
        post![],
        Trailers("abc", &[("transfer-encoding", "chunked")]),
        MALFORMED,
    ),
    (
        "a name in upper case in trailers",
        "9113 8.2.1",
        post![],
        Trailers("abc", &[("X-Sum", "1")]),
        MALFORMED,
    ),
    (
        "CR and LF in trailers",
        "9113 8.2.1",
        post![],
        Trailers("abc", &[("x-sum", "1\r\n\r\nGET /smuggled HTTP/1.1")]),
        MALFORMED,
    ),
    (
        "a space after a trailer",
        "9113 8.2.1",
        post![],
        Trailers("abc", &[("x-sum", "1 ")]),
        MALFORMED,
    ),
    (
        "fields that name the client, and cookies, in trailers",
        "9110 6.5.1",
        post![],
        Trailers("abc", &[("x-forwarded-for", "6.6.6.6"), ("cookie", "a=1"), ("te", "trailers")]),
        SEES_CHUNKS,
    ),
    (
        "pseudo-headers in trailers",
        "9113 8.1",
        post![],
        Trailers("abc", &[(":path", "/smuggled"), ("x-sum", "1")]),
        MALFORMED,
    ),
];
