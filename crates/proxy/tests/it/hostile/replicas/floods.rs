//! Replicas that send too much. The proxy may go on, or end the stream or the connection with `ENHANCE_YOUR_CALM` (RFC 9113,
//! section 10.5). Its memory stays bounded.

use super::super::Allowed;
use super::super::script::{
    FRAME_BYTES, HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE, Script, WHOLE, WINDOW_MAX, hpack_bomb,
};
use super::ClientGets::{self, Broken, Status};
use super::{Row, good};
use crate::frames::{
    CANCEL, COMPRESSION_ERROR, CONTINUATION, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR, GOAWAY, HEADERS, INTERNAL_ERROR, NO_ERROR, PADDED, PROTOCOL_ERROR,
    SETTINGS, STREAM_CLOSED, fields,
};
use Allowed::{Closes, Ends, Resets, Serves};

const GOOD: &[ClientGets] = &[Status(200)];

/// A flood that may end the connection, and with it the request.
const GOOD_OR_FAILED: &[ClientGets] = &[Status(200), Status(502), Broken];

const FAILED: &[ClientGets] = &[Status(502)];

/// Frames that are valid one by one.
const SERVED_OR_CALMED: &[Allowed] = &[Serves, Resets(&[ENHANCE_YOUR_CALM])];

/// The same for floods of more bytes, so that the GOAWAY may be lost with the connection.
const SERVED_OR_CLOSED: &[Allowed] = &[Serves, Resets(&[ENHANCE_YOUR_CALM]), Closes];

/// A header block that is too large for the proxy (section 10.5.1).
const HEAD_TOO_LARGE: &[Allowed] = &[
    Resets(&[ENHANCE_YOUR_CALM, PROTOCOL_ERROR, COMPRESSION_ERROR, INTERNAL_ERROR, CANCEL]),
    Closes,
];

/// The same for a block that is complete, so that the connection may go on without a reset.
const HEAD_OF_A_STREAM_TOO_LARGE: &[Allowed] = &[
    Serves,
    Resets(&[ENHANCE_YOUR_CALM, PROTOCOL_ERROR, COMPRESSION_ERROR, INTERNAL_ERROR, CANCEL]),
];

/// Frames that come before the responses to the neighbors, on the same connection.
const MANY: usize = 20_000;

/// Frames that no replica sends without reading, unless the proxy buffers what it responds.
const ENDLESS: usize = 4_000_000;

/// Frames of [`FRAME_BYTES`]: 128 MiB.
const LARGE: usize = 8 << 10;

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "replica: a flood of PING",
        "6.7, 10.5",
        |s| {
            s.repeat(MANY, Script::ping);
            s.bytes(&good(1));
        },
        GOOD_OR_FAILED,
        SERVED_OR_CALMED,
    ),
    Row::new(
        "replica: a flood of PING whose responses are not read",
        "6.7, 10.5",
        |s| {
            s.repeat(ENDLESS, Script::ping);
        },
        &[Status(502), Status(504)],
        &[Serves, Closes],
    )
    .reads_nothing(),
    Row::new(
        "replica: a flood of SETTINGS",
        "6.5, 10.5",
        |s| {
            s.repeat(MANY, |s| s.frame(SETTINGS, 0, 0, &[]));
            s.bytes(&good(1));
        },
        GOOD_OR_FAILED,
        SERVED_OR_CALMED,
    ),
    Row::new(
        "replica: a flood of SETTINGS whose responses are not read",
        "6.5, 10.5",
        |s| {
            s.repeat(ENDLESS, |s| s.frame(SETTINGS, 0, 0, &[]));
        },
        &[Status(502), Status(504)],
        &[Serves, Closes],
    )
    .reads_nothing(),
    Row::new(
        "replica: a flood of header table and window sizes",
        "6.5, 10.5",
        |s| {
            s.repeat(MANY / 10, |s| {
                s.setting(HEADER_TABLE_SIZE, 0);
                s.setting(HEADER_TABLE_SIZE, u32::MAX);
                s.setting(INITIAL_WINDOW_SIZE, 0);
                s.setting(INITIAL_WINDOW_SIZE, WINDOW_MAX);
            });
            s.bytes(&good(1));
        },
        GOOD_OR_FAILED,
        SERVED_OR_CALMED,
    ),
    Row::new(
        "replica: a flood of WINDOW_UPDATE",
        "6.9, 10.5",
        |s| {
            s.repeat(MANY, |s| {
                s.window(0, 1);
                s.window(1, 1);
            });
            s.bytes(&good(1));
        },
        GOOD_OR_FAILED,
        SERVED_OR_CALMED,
    ),
    Row::new(
        "replica: a flood of PRIORITY",
        "5.3.2, 10.5",
        |s| {
            s.repeat(MANY, |s| s.priority(1, 0));
            s.bytes(&good(1));
        },
        GOOD_OR_FAILED,
        SERVED_OR_CALMED,
    ),
    Row::new(
        "replica: a flood of short frames of an unknown type",
        "5.5, 10.5",
        |s| {
            s.repeat(MANY, |s| s.frame(0xbe, 0xff, 1, b""));
            s.bytes(&good(1));
        },
        GOOD_OR_FAILED,
        SERVED_OR_CALMED,
    ),
    Row::new(
        "replica: a flood of long frames of an unknown type",
        "5.5, 10.5",
        |s| {
            s.repeat(LARGE, |s| s.frame(0xbe, 0xff, 1, &[0; FRAME_BYTES]));
            s.bytes(&good(1));
        },
        GOOD_OR_FAILED,
        SERVED_OR_CLOSED,
    ),
    Row::new(
        "replica: a flood of GOAWAY",
        "6.8, 10.5",
        |s| {
            s.repeat(MANY, |s| s.frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]));
            s.bytes(&good(1));
        },
        GOOD_OR_FAILED,
        &[Serves, Closes, Ends(&[NO_ERROR, ENHANCE_YOUR_CALM]), Resets(&[CANCEL])],
    ),
    Row::new(
        "replica: a flood of RST_STREAM for a closed stream",
        "5.1, 10.5",
        |s| {
            s.bytes(&good(1));
            s.repeat(MANY, |s| s.reset(1, NO_ERROR));
        },
        GOOD_OR_FAILED,
        &[Serves, Resets(&[ENHANCE_YOUR_CALM, STREAM_CLOSED])],
    ),
    Row::new(
        "replica: a flood of empty DATA",
        "6.1, 10.5",
        |s| {
            s.frame(HEADERS, END_HEADERS, 1, &[0x88]);
            s.repeat(MANY, |s| s.data(1, 0, b""));
            s.data(1, END_STREAM, b"good");
        },
        GOOD_OR_FAILED,
        SERVED_OR_CALMED,
    ),
    Row::new(
        "replica: a little DATA of padding only",
        "6.1",
        |s| {
            s.frame(HEADERS, END_HEADERS, 1, &[0x88]);
            s.repeat(20, |s| {
                s.frame(crate::frames::DATA, PADDED, 1, &[&[255][..], &[0; 255]].concat())
            });
            s.data(1, END_STREAM, b"good");
        },
        GOOD,
        &[Serves],
    ),
    Row::new(
        "replica: DATA far beyond the windows",
        "6.9",
        |s| {
            s.frame(HEADERS, END_HEADERS, 1, &[0x88]);
            s.repeat(LARGE, |s| s.data(1, 0, &[0; FRAME_BYTES]));
            s.data(1, END_STREAM, b"good");
        },
        GOOD_OR_FAILED,
        &[Serves, Resets(&[FLOW_CONTROL_ERROR]), Closes],
    ),
    Row::new(
        "replica: a few interim responses",
        "8.1",
        |s| {
            s.repeat(100, interim);
            s.bytes(&good(1));
        },
        GOOD,
        &[Serves],
    ),
    Row::new(
        "replica: interim responses without end",
        "8.1, 10.5",
        |s| {
            s.repeat(MANY, interim);
            s.bytes(&good(1));
        },
        FAILED,
        HEAD_TOO_LARGE,
    ),
    Row::new(
        "replica: \"100 Continue\" without end",
        "8.1, 10.5",
        |s| {
            s.repeat(MANY, |s| s.frame(HEADERS, END_HEADERS, 1, &fields(&[(":status", "100")])));
            s.bytes(&good(1));
        },
        FAILED,
        HEAD_TOO_LARGE,
    ),
    Row::new(
        "replica: a head of nearly the maximum size",
        "10.5.1",
        |s| {
            let value = "y".repeat(60 << 10);
            s.head(1, END_HEADERS, &fields(&[(":status", "200"), ("x", &value)]));
            s.data(1, END_STREAM, b"good");
        },
        GOOD,
        &[Serves],
    ),
    Row::new(
        "replica: a head above the maximum size",
        "10.5.1",
        |s| {
            let value = "y".repeat(70 << 10);
            s.head(1, WHOLE, &fields(&[(":status", "200"), ("x", &value)]));
        },
        FAILED,
        HEAD_OF_A_STREAM_TOO_LARGE,
    ),
    Row::new(
        "replica: trailers above the maximum size",
        "10.5.1",
        |s| {
            s.frame(HEADERS, END_HEADERS, 1, &[0x88]);
            s.data(1, 0, b"good");
            s.head(1, WHOLE, &fields(&[("x", "y".repeat(70 << 10))]));
        },
        &[Broken, Status(502)],
        HEAD_OF_A_STREAM_TOO_LARGE,
    ),
    Row::new(
        "replica: a head without end in long CONTINUATION frames",
        "10.5.1",
        |s| {
            s.frame(HEADERS, 0, 1, &[0x88]);
            s.repeat(LARGE, |s| s.frame(CONTINUATION, 0, 1, &[0x90; FRAME_BYTES]));
        },
        FAILED,
        HEAD_TOO_LARGE,
    ),
    Row::new(
        "replica: a head without end in short CONTINUATION frames",
        "10.5.1",
        |s| {
            s.frame(HEADERS, 0, 1, &[0x88]);
            s.repeat(MANY, |s| s.frame(CONTINUATION, 0, 1, &[0x90]));
        },
        FAILED,
        HEAD_TOO_LARGE,
    ),
    Row::new(
        "replica: a head without end in empty CONTINUATION frames",
        "10.5.1",
        |s| {
            s.frame(HEADERS, 0, 1, &[0x88]);
            s.repeat(ENDLESS, |s| s.frame(CONTINUATION, 0, 1, &[]));
        },
        FAILED,
        HEAD_TOO_LARGE,
    ),
    Row::new(
        "replica: an HPACK bomb",
        "10.5.1",
        |s| {
            s.head(1, WHOLE, &hpack_bomb(&[0x88], 16_000));
        },
        FAILED,
        HEAD_OF_A_STREAM_TOO_LARGE,
    ),
];

fn interim(s: &mut Script) {
    s.frame(HEADERS, END_HEADERS, 1, &fields(&[(":status", "103"), ("link", "</a>")]));
}
