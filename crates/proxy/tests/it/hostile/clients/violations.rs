//! Clients that break a rule of RFC 9113 or RFC 7541 once, or use one that few clients use.

use super::super::Allowed;
use super::super::script::{
    ENABLE_PUSH, FRAME_BYTES, HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE, WHOLE, WINDOW_MAX, request_block,
};
use super::Row;
use crate::frames::{
    ACK, CANCEL, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, GOAWAY, HEADERS, INTERNAL_ERROR, NO_ERROR, PADDED, PING,
    PREFACE, PRIORITY, PROTOCOL_ERROR, PUSH_PROMISE, REFUSED_STREAM, RST_STREAM, SETTINGS,
    STREAM_CLOSED, WINDOW_UPDATE, fields,
};
use Allowed::{Closes, Ends, Resets, Responds, Serves};

const SERVED: &[Allowed] = &[Serves];
const PROTOCOL: &[Allowed] = &[Ends(&[PROTOCOL_ERROR])];
const STREAM_PROTOCOL: &[Allowed] = &[Resets(&[PROTOCOL_ERROR])];
const FRAME_SIZE: &[Allowed] = &[Ends(&[FRAME_SIZE_ERROR])];
const STREAM_FRAME_SIZE: &[Allowed] = &[Resets(&[FRAME_SIZE_ERROR])];
const FLOW_CONTROL: &[Allowed] = &[Ends(&[FLOW_CONTROL_ERROR])];
const COMPRESSION: &[Allowed] = &[Ends(&[COMPRESSION_ERROR])];

/// Frames for a stream that is closed (section 5.1).
const CLOSED_STREAM: &[Allowed] = &[Serves, Resets(&[STREAM_CLOSED, PROTOCOL_ERROR])];

pub(super) const ROWS: &[Row] = &[
    // The start of the connection.
    Row::new(
        "another preface",
        "3.4",
        |s| s.bytes(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"),
        &[Ends(&[PROTOCOL_ERROR]), Closes],
    )
    .without_start(),
    Row::new(
        "a first frame that is not SETTINGS",
        "3.4",
        |s| {
            s.bytes(PREFACE);
            s.ping();
        },
        &[Ends(&[PROTOCOL_ERROR]), Closes],
    )
    .without_start(),
    // SETTINGS.
    Row::new("SETTINGS on a stream", "6.5", |s| s.frame(SETTINGS, 0, 1, &[]), PROTOCOL),
    Row::new("SETTINGS of five bytes", "6.5", |s| s.frame(SETTINGS, 0, 0, &[0; 5]), FRAME_SIZE),
    Row::new(
        "an acknowledgment with settings",
        "6.5",
        |s| s.frame(SETTINGS, ACK, 0, &[0; 6]),
        FRAME_SIZE,
    ),
    Row::new(
        "an acknowledgment of no settings",
        "6.5.3",
        |s| s.frame(SETTINGS, ACK, 0, &[]),
        &[Serves, Ends(&[PROTOCOL_ERROR])],
    ),
    Row::new("ENABLE_PUSH of 2", "6.5.2", |s| s.setting(ENABLE_PUSH, 2), PROTOCOL),
    Row::new(
        "a window size of 2^31",
        "6.5.2",
        |s| s.setting(INITIAL_WINDOW_SIZE, WINDOW_MAX + 1),
        FLOW_CONTROL,
    ),
    Row::new(
        "a frame size below 2^14",
        "6.5.2",
        |s| s.setting(MAX_FRAME_SIZE, (1 << 14) - 1),
        PROTOCOL,
    ),
    Row::new("a frame size of 2^24", "6.5.2", |s| s.setting(MAX_FRAME_SIZE, 1 << 24), PROTOCOL),
    Row::new("an unknown setting", "6.5.2", |s| s.setting(0xface, u32::MAX), SERVED),
    Row::new("no stream for the server", "6.5.2", |s| s.setting(MAX_CONCURRENT_STREAMS, 0), SERVED),
    Row::new(
        "the largest frame size and windows",
        "6.5.2",
        |s| {
            s.setting(MAX_FRAME_SIZE, (1 << 24) - 1);
            s.setting(INITIAL_WINDOW_SIZE, WINDOW_MAX);
            s.window(0, WINDOW_MAX - 65_535);
            s.get(1, "/big");
        },
        SERVED,
    )
    .waits(),
    Row::new(
        "the largest header table",
        "RFC 7541, 4.2",
        |s| {
            s.setting(HEADER_TABLE_SIZE, u32::MAX);
            s.get(1, "/steady");
        },
        SERVED,
    )
    .waits(),
    Row::new(
        "a window size that overflows an open stream",
        "6.9.2",
        |s| {
            s.get(1, "/hang");
            s.window(1, 1);
            s.setting(INITIAL_WINDOW_SIZE, WINDOW_MAX);
        },
        FLOW_CONTROL,
    ),
    // WINDOW_UPDATE.
    Row::new(
        "a window overflow of a stream",
        "6.9.1",
        |s| {
            s.get(1, "/hang");
            s.window(1, WINDOW_MAX);
        },
        &[Resets(&[FLOW_CONTROL_ERROR])],
    ),
    Row::new(
        "a window overflow of the connection",
        "6.9.1",
        |s| s.window(0, WINDOW_MAX),
        FLOW_CONTROL,
    ),
    Row::new(
        "a window update of zero for a stream",
        "6.9",
        |s| {
            s.get(1, "/hang");
            s.window(1, 0);
        },
        STREAM_PROTOCOL,
    ),
    Row::new("a window update of zero for the connection", "6.9", |s| s.window(0, 0), PROTOCOL),
    Row::new(
        "a window update of three bytes",
        "6.9",
        |s| s.frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1]),
        FRAME_SIZE,
    ),
    Row::new("a window update for an idle stream", "5.1", |s| s.window(7, 1), PROTOCOL),
    // The states of a stream.
    Row::new(
        "DATA after the end of a request",
        "5.1",
        |s| {
            s.get(1, "/hang");
            s.data(1, 0, b"more");
        },
        &[Resets(&[STREAM_CLOSED])],
    ),
    Row::new(
        "a second head after the end of a request",
        "5.1",
        |s| {
            s.get(1, "/hang");
            s.get(1, "/hang");
        },
        &[Resets(&[STREAM_CLOSED, PROTOCOL_ERROR])],
    ),
    Row::new(
        "a second head that does not end the request",
        "8.1",
        |s| {
            s.post(1, "/read");
            s.head(1, END_HEADERS, &fields(&[("x", "y")]));
        },
        &[Responds(&[400]), Resets(&[PROTOCOL_ERROR])],
    ),
    Row::new("DATA on an idle stream", "5.1", |s| s.data(1, 0, b"more"), PROTOCOL),
    Row::new(
        "DATA on a stream that the client has reset",
        "5.1",
        |s| {
            s.post(1, "/hang");
            s.reset(1, CANCEL);
            s.data(1, 0, b"more");
        },
        CLOSED_STREAM,
    ),
    Row::new(
        "a head on a stream that the client has reset",
        "5.1",
        |s| {
            s.post(1, "/hang");
            s.reset(1, CANCEL);
            s.get(1, "/steady");
        },
        &[Resets(&[STREAM_CLOSED, PROTOCOL_ERROR])],
    ),
    Row::new("DATA on the connection", "6.1", |s| s.frame(DATA, 0, 0, b"more"), PROTOCOL),
    Row::new(
        "a head on the connection",
        "6.2",
        |s| {
            s.frame(HEADERS, WHOLE, 0, &request_block("GET", "/steady"));
        },
        PROTOCOL,
    ),
    Row::new("an even stream", "5.1.1", |s| s.get(2, "/steady"), PROTOCOL),
    Row::new(
        "a stream below an earlier one",
        "5.1.1",
        |s| {
            s.get(5, "/hang");
            s.get(3, "/steady");
        },
        &[Ends(&[PROTOCOL_ERROR, STREAM_CLOSED])],
    ),
    Row::new(
        "a set reserved bit of a stream",
        "4.1",
        |s| {
            s.frame(HEADERS, WHOLE, 1 | 1 << 31, &request_block("GET", "/steady"));
        },
        SERVED,
    ),
    Row::new(
        "unknown flags",
        "4.1",
        |s| {
            s.frame(HEADERS, WHOLE | 0xd2, 1, &request_block("GET", "/steady"));
        },
        SERVED,
    ),
    // RST_STREAM.
    Row::new("RST_STREAM of an idle stream", "6.4", |s| s.reset(1, CANCEL), PROTOCOL),
    Row::new("RST_STREAM of the connection", "6.4", |s| s.reset(0, CANCEL), PROTOCOL),
    Row::new(
        "RST_STREAM of three bytes",
        "6.4",
        |s| {
            s.get(1, "/hang");
            s.frame(RST_STREAM, 0, 1, &[0; 3]);
        },
        FRAME_SIZE,
    ),
    // PRIORITY: RFC 9113 has removed the meaning, and the error of a stream that depends on itself.
    Row::new("PRIORITY of an idle stream", "5.3.2", |s| s.priority(9, 3), SERVED),
    Row::new(
        "PRIORITY of a stream that depends on itself",
        "5.3.2",
        |s| {
            s.get(1, "/hang");
            s.priority(1, 1);
        },
        &[Serves, Resets(&[PROTOCOL_ERROR])],
    ),
    Row::new("PRIORITY of the connection", "6.3", |s| s.priority(0, 1), PROTOCOL),
    Row::new(
        "PRIORITY of four bytes",
        "6.3",
        |s| {
            s.get(1, "/hang");
            s.frame(PRIORITY, 0, 1, &[0; 4]);
        },
        STREAM_FRAME_SIZE,
    ),
    Row::new(
        "a head that depends on itself",
        "6.2",
        |s| {
            let mut payload = vec![0, 0, 0, 1, 7];
            payload.extend(request_block("GET", "/steady"));
            s.frame(HEADERS, WHOLE | 0x20, 1, &payload);
        },
        &[Serves, Resets(&[PROTOCOL_ERROR])],
    ),
    // PING, GOAWAY, PUSH_PROMISE.
    Row::new("PING on a stream", "6.7", |s| s.frame(PING, 0, 1, &[0; 8]), PROTOCOL),
    Row::new("PING of seven bytes", "6.7", |s| s.frame(PING, 0, 0, &[0; 7]), FRAME_SIZE),
    Row::new(
        "the response to no PING",
        "6.7",
        |s| s.frame(PING, ACK, 0, &[7; 8]),
        &[Serves, Ends(&[PROTOCOL_ERROR])],
    ),
    Row::new("GOAWAY on a stream", "6.8", |s| s.frame(GOAWAY, 0, 1, &[0; 8]), PROTOCOL),
    Row::new("GOAWAY of seven bytes", "6.8", |s| s.frame(GOAWAY, 0, 0, &[0; 7]), FRAME_SIZE),
    Row::new(
        "a request after GOAWAY",
        "6.8",
        |s| s.frame(GOAWAY, 0, 0, &[0; 8]),
        &[Serves, Ends(&[NO_ERROR, PROTOCOL_ERROR]), Closes],
    ),
    Row::new(
        "a GOAWAY that allows more than the one before",
        "6.8",
        |s| {
            s.frame(GOAWAY, 0, 0, &[0; 8]);
            s.frame(GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0]);
        },
        &[Serves, Ends(&[NO_ERROR, PROTOCOL_ERROR]), Closes],
    ),
    Row::new(
        "a client that pushes",
        "8.4",
        |s| {
            s.get(1, "/hang");
            let mut payload = vec![0, 0, 0, 2];
            payload.extend(request_block("GET", "/steady"));
            s.frame(PUSH_PROMISE, END_HEADERS, 1, &payload);
        },
        PROTOCOL,
    ),
    // Sizes and padding.
    Row::new(
        "DATA longer than the frame size",
        "4.2",
        |s| {
            s.post(1, "/read");
            s.data(1, 0, &[0; FRAME_BYTES + 1]);
        },
        STREAM_FRAME_SIZE,
    ),
    Row::new(
        "a head longer than the frame size",
        "4.2",
        |s| {
            s.frame(HEADERS, WHOLE, 1, &[0x90; FRAME_BYTES + 1]);
        },
        FRAME_SIZE,
    ),
    Row::new(
        "the start of a frame of 16 MiB",
        "4.2",
        |s| {
            s.bytes(&[0xff, 0xff, 0xff, HEADERS, END_HEADERS, 0, 0, 0, 1]);
        },
        FRAME_SIZE,
    )
    .then_silence(),
    Row::new(
        "the start of an unknown frame of 16 MiB",
        "4.2",
        |s| {
            s.bytes(&[0xff, 0xff, 0xff, 0xbe, 0, 0, 0, 0, 0]);
        },
        FRAME_SIZE,
    )
    .then_silence(),
    Row::new(
        "DATA with more padding than bytes",
        "6.1",
        |s| {
            s.post(1, "/read");
            s.frame(DATA, PADDED, 1, &[9, 0, 0, 0]);
        },
        PROTOCOL,
    ),
    Row::new(
        "a head with more padding than bytes",
        "6.2",
        |s| {
            s.frame(HEADERS, WHOLE | PADDED, 1, &[255, 0x82]);
        },
        PROTOCOL,
    ),
    Row::new(
        "a head with padding and priority",
        "6.2",
        |s| {
            let block = request_block("GET", "/steady");
            let payload = [&[3, 0, 0, 0, 0, 7][..], &block, &[0; 3]].concat();
            s.frame(HEADERS, WHOLE | PADDED | 0x20, 1, &payload);
        },
        SERVED,
    ),
    // Header blocks.
    Row::new(
        "CONTINUATION without a head",
        "6.10",
        |s| s.frame(CONTINUATION, END_HEADERS, 1, &[]),
        PROTOCOL,
    ),
    Row::new(
        "CONTINUATION after the end of a head",
        "6.10",
        |s| {
            s.get(1, "/hang");
            s.frame(CONTINUATION, END_HEADERS, 1, &[]);
        },
        PROTOCOL,
    ),
    Row::new(
        "CONTINUATION of another stream",
        "6.10",
        |s| {
            s.frame(HEADERS, END_STREAM, 1, &request_block("GET", "/steady"));
            s.frame(CONTINUATION, END_HEADERS, 3, &[]);
        },
        PROTOCOL,
    ),
    Row::new(
        "PING within a head",
        "4.3",
        |s| {
            s.frame(HEADERS, END_STREAM, 1, &request_block("GET", "/steady"));
            s.ping();
        },
        PROTOCOL,
    ),
    Row::new(
        "an unknown frame within a head",
        "5.5",
        |s| {
            s.frame(HEADERS, END_STREAM, 1, &request_block("GET", "/steady"));
            s.frame(0xbe, 0, 1, &[]);
        },
        PROTOCOL,
    ),
    Row::new(
        "an empty CONTINUATION",
        "6.10",
        |s| {
            s.frame(HEADERS, END_STREAM, 1, &request_block("GET", "/steady"));
            s.frame(CONTINUATION, 0, 1, &[]);
            s.frame(CONTINUATION, END_HEADERS, 1, &[]);
        },
        SERVED,
    ),
    Row::new(
        "a field split between frames",
        "4.3",
        |s| {
            let block = request_block("GET", "/steady");
            s.frame(HEADERS, END_STREAM, 1, &block[..20]);
            s.frame(CONTINUATION, END_HEADERS, 1, &block[20..]);
        },
        SERVED,
    ),
    // HPACK.
    Row::new("HPACK: index 0", "RFC 7541, 6.1", |s| s.head(1, WHOLE, &[0x80]), COMPRESSION),
    Row::new(
        "HPACK: an index beyond the table",
        "RFC 7541, 2.3.3",
        |s| s.head(1, WHOLE, &[0xff, 0x80, 1]),
        COMPRESSION,
    ),
    Row::new(
        "HPACK: an index beyond all numbers",
        "RFC 7541, 5.1",
        |s| {
            s.head(1, WHOLE, &[&[0xff; 12][..], &[0x7f]].concat());
        },
        COMPRESSION,
    ),
    Row::new(
        "HPACK: a table larger than allowed",
        "RFC 7541, 4.2",
        |s| {
            s.head(1, WHOLE, &[&[0x3f, 0xe2, 0xff, 0x7f][..], &request_block("GET", "/")].concat());
        },
        COMPRESSION,
    ),
    Row::new(
        "HPACK: a change of the table after a field",
        "RFC 7541, 4.2",
        |s| {
            s.head(1, WHOLE, &[&request_block("GET", "/")[..], &[0x20]].concat());
        },
        COMPRESSION,
    ),
    Row::new(
        "HPACK: a block that ends within a field",
        "RFC 7541, 5.2",
        |s| {
            let block = request_block("GET", "/steady");
            s.head(1, WHOLE, &block[..block.len() - 2]);
        },
        COMPRESSION,
    ),
    Row::new(
        "HPACK: padding longer than seven bits",
        "RFC 7541, 5.2",
        |s| {
            s.head(
                1,
                WHOLE,
                &[&request_block("GET", "/")[..], &[0, 1, b'x', 0x82, 0x1f, 0xff]].concat(),
            );
        },
        COMPRESSION,
    ),
    Row::new(
        "HPACK: padding with zeros",
        "RFC 7541, 5.2",
        |s| {
            s.head(1, WHOLE, &[&request_block("GET", "/")[..], &[0, 1, b'x', 0x81, 0x18]].concat());
        },
        COMPRESSION,
    ),
    Row::new(
        "HPACK: the end of string within a text",
        "RFC 7541, 5.2",
        |s| {
            let end = [0, 1, b'x', 0x84, 0xff, 0xff, 0xff, 0xff];
            s.head(1, WHOLE, &[&request_block("GET", "/")[..], &end].concat());
        },
        COMPRESSION,
    ),
    // Sizes of a head, counted as section 6.5.2 says: 32 bytes more for each field. The four fields of a request have 55.
    Row::new(
        "a head of exactly the maximum size",
        "6.5.2",
        |s| {
            let value = "y".repeat((8 << 10) - 55 - 1 - 5 * 32);
            s.request(1, WHOLE, ("GET", "/steady"), &[("x", &value)]);
        },
        SERVED,
    )
    .waits(),
    Row::new(
        "a head above the maximum size",
        "10.5.1",
        |s| {
            let value = "y".repeat((8 << 10) - 55);
            s.request(1, WHOLE, ("GET", "/steady"), &[("x", &value)]);
        },
        &[Responds(&[431]), Resets(&[PROTOCOL_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM])],
    )
    .waits(),
    Row::new(
        "trailers above the maximum size",
        "10.5.1",
        |s| {
            s.post(1, "/read");
            s.head(1, WHOLE, &fields(&[("x", "y".repeat(20 << 10))]));
        },
        &[
            Responds(&[400, 413, 431]),
            Resets(&[PROTOCOL_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM, INTERNAL_ERROR]),
        ],
    )
    .waits(),
];
