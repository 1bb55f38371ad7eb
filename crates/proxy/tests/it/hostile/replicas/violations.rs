//! Replicas that break a rule of RFC 9113 or RFC 7541.

use super::super::Allowed;
use super::super::script::{
    ENABLE_PUSH, FRAME_BYTES, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, Script, WHOLE, WINDOW_MAX,
};
use super::ClientGets::{self, Broken, Status};
use super::{Row, good};
use crate::frames::{
    CANCEL, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR, GOAWAY, HEADERS, NO_ERROR, PADDED, PING, PROTOCOL_ERROR, PUSH_PROMISE,
    RST_STREAM, SETTINGS, STREAM_CLOSED, WINDOW_UPDATE, fields,
};
use Allowed::{Ends, Resets, Serves};

const GOOD: &[ClientGets] = &[Status(200)];
const FAILED: &[ClientGets] = &[Status(502)];
const BROKEN: &[ClientGets] = &[Broken, Status(502)];

const PROTOCOL: &[Allowed] = &[Ends(&[PROTOCOL_ERROR])];
const STREAM_PROTOCOL: &[Allowed] = &[Resets(&[PROTOCOL_ERROR])];
const FRAME_SIZE: &[Allowed] = &[Ends(&[FRAME_SIZE_ERROR])];
const STREAM_FRAME_SIZE: &[Allowed] = &[Resets(&[FRAME_SIZE_ERROR])];
const FLOW_CONTROL: &[Allowed] = &[Ends(&[FLOW_CONTROL_ERROR])];
const COMPRESSION: &[Allowed] = &[Ends(&[COMPRESSION_ERROR])];

/// A malformed response (section 8.1.1) that ends its stream, so a reset is not needed.
const MALFORMED: &[Allowed] = &[Serves, Resets(&[PROTOCOL_ERROR])];

/// Frames after the end of a response.
const AFTER_THE_END: &[Allowed] = &[Serves, Resets(&[STREAM_CLOSED, PROTOCOL_ERROR])];

pub(super) const ROWS: &[Row] = &[
    // What a server must not send.
    Row::new(
        "replica: PUSH_PROMISE",
        "8.4",
        |s| {
            let promised = [&[0, 0, 0, 2][..], &crate::frames::request("GET", "/pushed")].concat();
            s.frame(PUSH_PROMISE, END_HEADERS, 1, &promised);
        },
        FAILED,
        PROTOCOL,
    ),
    Row::new("replica: ENABLE_PUSH of 1", "6.5.2", |s| s.setting(ENABLE_PUSH, 1), FAILED, PROTOCOL),
    Row::new(
        "replica: a response on a stream of its own",
        "5.1.1",
        |s| s.bytes(&good(2)),
        FAILED,
        PROTOCOL,
    ),
    Row::new(
        "replica: a response to no request",
        "5.1",
        |s| s.bytes(&good(9_999_999)),
        FAILED,
        PROTOCOL,
    ),
    // SETTINGS and windows.
    Row::new(
        "replica: SETTINGS on a stream",
        "6.5",
        |s| s.frame(SETTINGS, 0, 1, &[]),
        FAILED,
        PROTOCOL,
    ),
    Row::new(
        "replica: SETTINGS of five bytes",
        "6.5",
        |s| s.frame(SETTINGS, 0, 0, &[0; 5]),
        FAILED,
        FRAME_SIZE,
    ),
    Row::new(
        "replica: a window size of 2^31",
        "6.5.2",
        |s| {
            s.setting(INITIAL_WINDOW_SIZE, WINDOW_MAX + 1);
        },
        FAILED,
        FLOW_CONTROL,
    ),
    Row::new(
        "replica: a frame size of 2^24",
        "6.5.2",
        |s| s.setting(MAX_FRAME_SIZE, 1 << 24),
        FAILED,
        PROTOCOL,
    ),
    Row::new(
        "replica: a window overflow of a stream",
        "6.9.1",
        |s| s.window(1, WINDOW_MAX),
        FAILED,
        &[Resets(&[FLOW_CONTROL_ERROR])],
    ),
    Row::new(
        "replica: a window overflow of the connection",
        "6.9.1",
        |s| s.window(0, WINDOW_MAX),
        FAILED,
        FLOW_CONTROL,
    ),
    Row::new(
        "replica: a window update of zero for a stream",
        "6.9",
        |s| s.window(1, 0),
        FAILED,
        STREAM_PROTOCOL,
    ),
    Row::new(
        "replica: a window update of zero for the connection",
        "6.9",
        |s| s.window(0, 0),
        FAILED,
        PROTOCOL,
    ),
    Row::new(
        "replica: a window update of three bytes",
        "6.9",
        |s| {
            s.frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1]);
        },
        FAILED,
        FRAME_SIZE,
    ),
    // Other frames.
    Row::new(
        "replica: PING on a stream",
        "6.7",
        |s| s.frame(PING, 0, 1, &[0; 8]),
        FAILED,
        PROTOCOL,
    ),
    Row::new(
        "replica: PING of seven bytes",
        "6.7",
        |s| s.frame(PING, 0, 0, &[0; 7]),
        FAILED,
        FRAME_SIZE,
    ),
    Row::new(
        "replica: GOAWAY on a stream",
        "6.8",
        |s| s.frame(GOAWAY, 0, 1, &[0; 8]),
        FAILED,
        PROTOCOL,
    ),
    Row::new(
        "replica: RST_STREAM of three bytes",
        "6.4",
        |s| s.frame(RST_STREAM, 0, 1, &[0; 3]),
        FAILED,
        FRAME_SIZE,
    ),
    Row::new(
        "replica: RST_STREAM of the connection",
        "6.4",
        |s| s.reset(0, CANCEL),
        FAILED,
        PROTOCOL,
    ),
    Row::new(
        "replica: RST_STREAM without an error and without a response",
        "8.1",
        |s| {
            s.reset(1, NO_ERROR);
        },
        FAILED,
        &[Serves],
    ),
    Row::new(
        "replica: CONTINUATION without a head",
        "6.10",
        |s| {
            s.frame(CONTINUATION, END_HEADERS, 1, &[]);
        },
        FAILED,
        PROTOCOL,
    ),
    Row::new(
        "replica: PING within a head",
        "4.3",
        |s| {
            s.frame(HEADERS, END_STREAM, 1, &[0x88]);
            s.ping();
        },
        FAILED,
        PROTOCOL,
    ),
    Row::new(
        "replica: DATA on the connection",
        "6.1",
        |s| s.frame(DATA, 0, 0, b"more"),
        FAILED,
        PROTOCOL,
    ),
    Row::new(
        "replica: DATA longer than the frame size",
        "4.2",
        |s| {
            s.frame(HEADERS, END_HEADERS, 1, &[0x88]);
            s.data(1, 0, &[0; FRAME_BYTES + 1]);
        },
        BROKEN,
        STREAM_FRAME_SIZE,
    ),
    Row::new(
        "replica: DATA with more padding than bytes",
        "6.1",
        |s| {
            s.frame(HEADERS, END_HEADERS, 1, &[0x88]);
            s.frame(DATA, PADDED, 1, &[9, 0, 0, 0]);
        },
        BROKEN,
        PROTOCOL,
    ),
    Row::new(
        "replica: the start of a frame of 16 MiB",
        "4.2",
        |s| {
            s.bytes(&[0xff, 0xff, 0xff, HEADERS, END_HEADERS, 0, 0, 0, 1]);
        },
        FAILED,
        FRAME_SIZE,
    ),
    // Responses.
    Row::new(
        "replica: DATA before the head",
        "8.1",
        |s| s.data(1, END_STREAM, b"good"),
        FAILED,
        MALFORMED,
    ),
    Row::new(
        "replica: a head without a status",
        "8.3.2",
        |s| whole(s, &[("x", "y")]),
        FAILED,
        MALFORMED,
    ),
    Row::new(
        "replica: two statuses",
        "8.3.2",
        |s| {
            whole(s, &[(":status", "200"), (":status", "200")]);
        },
        FAILED,
        MALFORMED,
    ),
    Row::new(
        "replica: a status of letters",
        "8.3.2",
        |s| whole(s, &[(":status", "abc")]),
        FAILED,
        MALFORMED,
    ),
    Row::new(
        "replica: a status after a field",
        "8.3",
        |s| {
            whole(s, &[("x", "y"), (":status", "200")]);
        },
        FAILED,
        MALFORMED,
    ),
    Row::new(
        "replica: a pseudo-header of a request",
        "8.3",
        |s| {
            whole(s, &[(":status", "200"), (":path", "/")]);
        },
        FAILED,
        MALFORMED,
    ),
    Row::new(
        "replica: a field name with capital letters",
        "8.2.1",
        |s| {
            whole(s, &[(":status", "200"), ("X-Upper", "y")]);
        },
        FAILED,
        MALFORMED,
    ),
    Row::new(
        "replica: a field of HTTP/1.1 connections",
        "8.2.2",
        |s| {
            whole(s, &[(":status", "200"), ("connection", "close")]);
        },
        FAILED,
        MALFORMED,
    ),
    Row::new(
        "replica: a value with a line end",
        "8.2.1",
        |s| {
            whole(s, &[(":status", "200"), ("x", "a\r\nb: c")]);
        },
        FAILED,
        MALFORMED,
    ),
    Row::new(
        "replica: \"101 Switching Protocols\"",
        "8.6",
        |s| {
            s.frame(HEADERS, END_HEADERS, 1, &fields(&[(":status", "101")]));
        },
        FAILED,
        STREAM_PROTOCOL,
    ),
    Row::new(
        "replica: an interim response that ends the stream",
        "8.1",
        |s| {
            whole(s, &[(":status", "103")]);
        },
        FAILED,
        MALFORMED,
    ),
    Row::new(
        "replica: a body shorter than announced",
        "8.1.1",
        |s| {
            s.frame(
                HEADERS,
                END_HEADERS,
                1,
                &fields(&[(":status", "200"), ("content-length", "9")]),
            );
            s.data(1, END_STREAM, b"good");
        },
        BROKEN,
        &[Serves, Resets(&[PROTOCOL_ERROR])],
    ),
    Row::new(
        "replica: a body longer than announced",
        "8.1.1",
        |s| {
            s.frame(
                HEADERS,
                END_HEADERS,
                1,
                &fields(&[(":status", "200"), ("content-length", "2")]),
            );
            s.data(1, END_STREAM, b"good");
        },
        BROKEN,
        STREAM_PROTOCOL,
    ),
    Row::new(
        "replica: trailers that do not end the stream",
        "8.1",
        |s| {
            s.frame(HEADERS, END_HEADERS, 1, &[0x88]);
            s.frame(HEADERS, END_HEADERS, 1, &fields(&[("x", "y")]));
        },
        BROKEN,
        STREAM_PROTOCOL,
    ),
    Row::new(
        "replica: a pseudo-header in trailers",
        "8.1",
        |s| {
            s.frame(HEADERS, END_HEADERS, 1, &[0x88]);
            whole(s, &[(":status", "200")]);
        },
        BROKEN,
        MALFORMED,
    ),
    Row::new(
        "replica: DATA after the end",
        "5.1",
        |s| {
            s.bytes(&good(1));
            s.data(1, 0, b"more");
        },
        GOOD,
        AFTER_THE_END,
    ),
    Row::new(
        "replica: a second response",
        "5.1",
        |s| {
            s.bytes(&good(1));
            s.bytes(&good(1));
        },
        GOOD,
        AFTER_THE_END,
    ),
    Row::new(
        "replica: frames after its own reset",
        "5.1",
        |s| {
            s.reset(1, CANCEL);
            s.bytes(&good(1));
        },
        FAILED,
        AFTER_THE_END,
    ),
    // HPACK.
    Row::new(
        "replica: HPACK: index 0",
        "RFC 7541, 6.1",
        |s| s.head(1, WHOLE, &[0x80]),
        FAILED,
        COMPRESSION,
    ),
    Row::new(
        "replica: HPACK: an index beyond the table",
        "RFC 7541, 2.3.3",
        |s| {
            s.head(1, WHOLE, &[0xff, 0x80, 1]);
        },
        FAILED,
        COMPRESSION,
    ),
    Row::new(
        "replica: HPACK: a table larger than allowed",
        "RFC 7541, 4.2",
        |s| {
            s.head(1, WHOLE, &[0x3f, 0xe2, 0xff, 0x7f, 0x88]);
        },
        FAILED,
        COMPRESSION,
    ),
    Row::new(
        "replica: HPACK: a block that ends within a field",
        "RFC 7541, 5.2",
        |s| {
            s.head(1, WHOLE, &[0x88, 0, 1, b'x', 9, b'y']);
        },
        FAILED,
        COMPRESSION,
    ),
];

fn whole(s: &mut Script, head: &[(&str, &str)]) {
    s.frame(HEADERS, WHOLE, 1, &fields(head));
}
