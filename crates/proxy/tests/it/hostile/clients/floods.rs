//! Clients that send or ask for too much. The proxy may serve them, or end the connection with `ENHANCE_YOUR_CALM` (RFC
//! 9113, section 10.5). Its memory stays bounded, and so do the requests that reach a replica.

use super::super::script::{
    FRAME_BYTES, HEADER_TABLE_SIZE, INITIAL_WINDOW_SIZE, Script, WHOLE, WINDOW_MAX, hpack_bomb,
    request_block,
};
use super::super::{Allowed, Reads};
use super::Row;
use crate::frames::{
    CANCEL, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, GOAWAY, HEADERS, NO_ERROR, PADDED, PRIORITY,
    PROTOCOL_ERROR, REFUSED_STREAM, SETTINGS, STREAM_CLOSED,
};
use Allowed::{Closes, Ends, Resets, Responds, Serves};

/// Frames that are valid one by one.
const SERVED_OR_CALMED: &[Allowed] = &[Serves, Ends(&[ENHANCE_YOUR_CALM])];

/// The same for floods of more bytes, so that the GOAWAY may be lost with the connection.
const SERVED_OR_CLOSED: &[Allowed] = &[Serves, Ends(&[ENHANCE_YOUR_CALM]), Closes];

const CLOSES: &[Allowed] = &[Closes];

/// Requests beyond the number that a client may have open.
const REFUSED: &[Allowed] = &[Serves, Resets(&[REFUSED_STREAM, PROTOCOL_ERROR, ENHANCE_YOUR_CALM])];

/// A header block that is too large for the proxy (section 10.5.1).
const HEAD_TOO_LARGE: &[Allowed] = &[
    Responds(&[431]),
    Resets(&[ENHANCE_YOUR_CALM, PROTOCOL_ERROR, REFUSED_STREAM, COMPRESSION_ERROR]),
    Closes,
];

/// Frames of a flood whose frames are small.
const MANY: usize = 50_000;

/// Frames that no client sends without reading, unless the proxy buffers what it responds.
const ENDLESS: usize = 4_000_000;

/// Frames of [`FRAME_BYTES`]: 128 MiB.
const LARGE: usize = 8 << 10;

/// Streams that are opened and ended one after the other.
const STREAMS: u32 = 20_000;

/// Streams that the proxy is made to reset.
const RESET_STREAMS: u32 = 5_000;

pub(super) const ROWS: &[Row] = &[
    // Frames of the connection.
    Row::new("a flood of PING", "6.7, 10.5", |s| s.repeat(MANY, Script::ping), SERVED_OR_CALMED),
    Row::new(
        "a flood of PING whose responses are not read",
        "6.7, 10.5",
        |s| {
            s.repeat(ENDLESS, Script::ping);
        },
        CLOSES,
    )
    .reads(Reads::Nothing),
    Row::new(
        "a flood of SETTINGS",
        "6.5, 10.5",
        |s| s.repeat(MANY, empty_settings),
        SERVED_OR_CALMED,
    ),
    Row::new(
        "a flood of SETTINGS whose responses are not read",
        "6.5, 10.5",
        |s| {
            s.repeat(ENDLESS, empty_settings);
        },
        CLOSES,
    )
    .reads(Reads::Nothing),
    Row::new(
        "a flood of long SETTINGS",
        "6.5, 10.5",
        |s| {
            s.repeat(2_000, |s| s.frame(SETTINGS, 0, 0, &[0xf0, 0, 0, 0, 0, 1].repeat(2_730)));
        },
        SERVED_OR_CLOSED,
    ),
    Row::new(
        "a flood of window sizes for 99 open streams",
        "6.9.2, 10.5",
        |s| {
            s.on_streams(99, |s, stream| s.get(stream, "/hang"));
            s.repeat(MANY / 10, |s| {
                s.setting(INITIAL_WINDOW_SIZE, 0);
                s.setting(INITIAL_WINDOW_SIZE, WINDOW_MAX);
            });
        },
        SERVED_OR_CALMED,
    ),
    Row::new(
        "a flood of header table sizes",
        "RFC 7541, 4.2",
        |s| {
            s.repeat(MANY / 10, |s| {
                s.setting(HEADER_TABLE_SIZE, 0);
                s.setting(HEADER_TABLE_SIZE, u32::MAX);
                s.setting(HEADER_TABLE_SIZE, 4_096);
            });
        },
        SERVED_OR_CALMED,
    ),
    Row::new(
        "a flood of WINDOW_UPDATE for the connection",
        "6.9, 10.5",
        |s| {
            s.repeat(MANY, |s| s.window(0, 1));
        },
        SERVED_OR_CALMED,
    ),
    Row::new(
        "a flood of GOAWAY",
        "6.8, 10.5",
        |s| {
            s.repeat(MANY, |s| s.frame(GOAWAY, 0, 0, &[0; 8]));
        },
        &[Serves, Ends(&[NO_ERROR, ENHANCE_YOUR_CALM]), Closes],
    ),
    Row::new(
        "a flood of short frames of an unknown type",
        "5.5, 10.5",
        |s| {
            s.repeat(MANY, |s| s.frame(0xbe, 0xff, 77, b""));
        },
        SERVED_OR_CALMED,
    ),
    Row::new(
        "a flood of long frames of an unknown type",
        "5.5, 10.5",
        |s| {
            s.repeat(LARGE, |s| s.frame(0xbe, 0xff, 77, &[0; FRAME_BYTES]));
        },
        SERVED_OR_CLOSED,
    ),
    // Frames of a stream.
    Row::new(
        "a flood of PRIORITY",
        "5.3.2, 10.5",
        |s| s.repeat(MANY, |s| s.priority(3, 0)),
        SERVED_OR_CALMED,
    ),
    Row::new(
        "a flood of PRIORITY for a tree of streams",
        "5.3.2, 10.5",
        |s| {
            s.on_streams(50_000, |s, stream| s.priority(stream + 4, stream + 2));
        },
        SERVED_OR_CALMED,
    ),
    Row::new(
        "a flood of WINDOW_UPDATE for a stream",
        "6.9, 10.5",
        |s| {
            s.get(1, "/hang");
            s.repeat(MANY, |s| s.window(1, 1));
        },
        SERVED_OR_CALMED,
    ),
    Row::new(
        "a flood of RST_STREAM for a closed stream",
        "5.1, 10.5",
        |s| {
            s.get(1, "/hang");
            s.repeat(MANY, |s| s.reset(1, CANCEL));
        },
        &[Serves, Ends(&[ENHANCE_YOUR_CALM, STREAM_CLOSED])],
    ),
    Row::new(
        "a flood of empty DATA",
        "6.1, 10.5",
        |s| {
            s.post(1, "/read");
            s.repeat(MANY, |s| s.data(1, 0, b""));
            s.data(1, END_STREAM, b"");
        },
        &[Serves, Resets(&[ENHANCE_YOUR_CALM])],
    ),
    Row::new(
        "a little DATA of padding only",
        "6.1",
        |s| {
            s.post(1, "/read");
            s.repeat(20, padding);
            s.frame(DATA, END_STREAM, 1, b"");
        },
        &[Serves],
    )
    .waits(),
    Row::new(
        "a flood of padding beyond the window",
        "6.1, 10.5",
        |s| {
            s.post(1, "/read");
            s.repeat(MANY, padding);
            s.frame(DATA, END_STREAM, 1, b"");
        },
        &[Serves, Resets(&[FLOW_CONTROL_ERROR, ENHANCE_YOUR_CALM]), Closes],
    ),
    Row::new(
        "DATA far beyond the windows",
        "6.9",
        |s| {
            s.post(1, "/hang");
            s.repeat(4_096, |s| s.data(1, 0, &[0; FRAME_BYTES]));
            s.data(1, 0, b"");
        },
        &[Resets(&[FLOW_CONTROL_ERROR]), Closes],
    ),
    // Requests.
    Row::new(
        "a flood of requests beyond the limit of streams",
        "5.1.2",
        |s| {
            s.on_streams(STREAMS, |s, stream| s.get(stream, "/steady"));
        },
        REFUSED,
    ),
    Row::new(
        "a flood of requests whose responses are not read",
        "10.5",
        |s| {
            s.on_streams(3 * STREAMS, |s, stream| s.get(stream, "/steady"));
        },
        CLOSES,
    )
    .reads(Reads::Nothing),
    Row::new(
        "a request beyond the limit of streams",
        "5.1.2",
        |s| {
            s.on_streams(101, |s, stream| s.get(stream, "/hang"));
            // There is room for the next request.
            s.reset(1, CANCEL);
        },
        &[Resets(&[REFUSED_STREAM, PROTOCOL_ERROR])],
    ),
    Row::new(
        "rapid reset",
        "10.5",
        |s| {
            s.on_streams(STREAMS, |s, stream| {
                s.get(stream, "/hang");
                s.reset(stream, CANCEL);
            });
        },
        REFUSED,
    ),
    Row::new(
        "rapid reset of uploads",
        "10.5",
        |s| {
            s.on_streams(STREAMS, |s, stream| {
                s.post(stream, "/hang");
                s.data(stream, 0, b"more");
                s.reset(stream, CANCEL);
            });
        },
        REFUSED,
    ),
    // CVE-2025-8671 ("MadeYouReset"): the client makes the proxy reset its streams.
    Row::new(
        "streams that end by a window overflow",
        "6.9.1",
        |s| {
            s.on_streams(RESET_STREAMS, |s, stream| {
                s.get(stream, "/hang");
                s.window(stream, WINDOW_MAX);
            });
        },
        &[Resets(&[FLOW_CONTROL_ERROR, ENHANCE_YOUR_CALM])],
    ),
    Row::new(
        "streams that end by a window update of zero",
        "6.9",
        |s| {
            s.on_streams(RESET_STREAMS, |s, stream| {
                s.get(stream, "/hang");
                s.window(stream, 0);
            });
        },
        &[Resets(&[PROTOCOL_ERROR, ENHANCE_YOUR_CALM])],
    ),
    Row::new(
        "streams that end by DATA after their end",
        "5.1",
        |s| {
            s.on_streams(RESET_STREAMS, |s, stream| {
                s.get(stream, "/hang");
                s.data(stream, 0, b"more");
            });
        },
        &[Resets(&[STREAM_CLOSED, ENHANCE_YOUR_CALM])],
    ),
    Row::new(
        "streams that end by a second head",
        "5.1",
        |s| {
            s.on_streams(RESET_STREAMS, |s, stream| {
                s.get(stream, "/hang");
                s.get(stream, "/hang");
            });
        },
        &[Resets(&[STREAM_CLOSED, PROTOCOL_ERROR, ENHANCE_YOUR_CALM])],
    ),
    Row::new(
        "streams that depend on themselves",
        "RFC 9113, 5.3.2; RFC 7540, 5.3.1",
        |s| {
            s.on_streams(RESET_STREAMS, |s, stream| {
                s.get(stream, "/hang");
                s.priority(stream, stream);
            });
        },
        &[Serves, Resets(&[PROTOCOL_ERROR, REFUSED_STREAM, ENHANCE_YOUR_CALM])],
    ),
    Row::new(
        "streams that end by a short PRIORITY",
        "6.3",
        |s| {
            s.on_streams(RESET_STREAMS, |s, stream| {
                s.get(stream, "/hang");
                s.frame(PRIORITY, 0, stream, &[0; 4]);
            });
        },
        &[Resets(&[FRAME_SIZE_ERROR, ENHANCE_YOUR_CALM])],
    ),
    Row::new(
        "streams that end by a body longer than announced",
        "8.1.1",
        |s| {
            s.on_streams(RESET_STREAMS, |s, stream| {
                s.request(stream, END_HEADERS, ("POST", "/hang"), &[("content-length", "1")]);
                s.data(stream, 0, b"longer");
            });
        },
        &[Resets(&[PROTOCOL_ERROR, ENHANCE_YOUR_CALM])],
    ),
    Row::new(
        "streams that begin with a malformed head",
        "8.1.1",
        |s| {
            s.on_streams(RESET_STREAMS, |s, stream| s.head(stream, WHOLE, &[]));
        },
        &[Responds(&[400]), Resets(&[PROTOCOL_ERROR, ENHANCE_YOUR_CALM])],
    ),
    Row::new(
        "a flood of trailers",
        "8.1",
        |s| {
            s.on_streams(RESET_STREAMS, |s, stream| {
                s.post(stream, "/read");
                s.head(stream, WHOLE, &[]);
            });
        },
        REFUSED,
    ),
    // Header blocks.
    Row::new(
        "a head without end in long CONTINUATION frames",
        "10.5.1",
        |s| {
            s.frame(HEADERS, END_STREAM, 1, &request_block("GET", "/steady"));
            s.repeat(LARGE, |s| s.frame(CONTINUATION, 0, 1, &[0x90; FRAME_BYTES]));
        },
        HEAD_TOO_LARGE,
    ),
    Row::new(
        "a head without end in empty CONTINUATION frames",
        "10.5.1",
        |s| {
            s.frame(HEADERS, END_STREAM, 1, &request_block("GET", "/steady"));
            s.repeat(ENDLESS, |s| s.frame(CONTINUATION, 0, 1, &[]));
        },
        HEAD_TOO_LARGE,
    ),
    Row::new(
        "a head without end in short CONTINUATION frames",
        "10.5.1",
        |s| {
            s.frame(HEADERS, END_STREAM, 1, &request_block("GET", "/steady"));
            s.repeat(MANY, |s| s.frame(CONTINUATION, 0, 1, &[0x90]));
        },
        HEAD_TOO_LARGE,
    ),
    Row::new(
        "one field without end",
        "10.5.1",
        |s| {
            // A literal whose value has 2^28 bytes.
            let mut block = request_block("GET", "/steady");
            block.extend_from_slice(&[0, 1, b'x', 0x7f, 0x81, 0xff, 0xff, 0x7f]);
            s.frame(HEADERS, END_STREAM, 1, &block);
            s.repeat(LARGE, |s| s.frame(CONTINUATION, 0, 1, &[b'y'; FRAME_BYTES]));
        },
        HEAD_TOO_LARGE,
    ),
    Row::new(
        "an HPACK bomb",
        "10.5.1",
        |s| {
            s.head(1, WHOLE, &hpack_bomb(&request_block("GET", "/steady"), 12_000));
        },
        HEAD_TOO_LARGE,
    )
    .waits(),
    Row::new(
        "fifty HPACK bombs",
        "10.5.1",
        |s| {
            s.on_streams(50, |s, stream| {
                s.head(stream, WHOLE, &hpack_bomb(&request_block("GET", "/steady"), 12_000));
            });
        },
        HEAD_TOO_LARGE,
    )
    .waits(),
    Row::new(
        "a flood of HPACK entries",
        "RFC 7541, 4.4",
        |s| {
            // Each block replaces the entries of the one before.
            s.on_streams(1_000, |s, stream| {
                s.head(stream, WHOLE, &hpack_bomb(&request_block("GET", "/steady"), 0));
            });
        },
        REFUSED,
    ),
    Row::new(
        "a flood of changes of the HPACK table in one block",
        "RFC 7541, 4.2",
        |s| {
            let mut block = [0x20_u8, 0x3f, 0xe1, 0x1f].repeat(2_000);
            block.extend(request_block("GET", "/steady"));
            s.head(1, WHOLE, &block);
        },
        &[Serves, Resets(&[COMPRESSION_ERROR, PROTOCOL_ERROR, ENHANCE_YOUR_CALM])],
    ),
];

fn empty_settings(s: &mut Script) {
    s.frame(SETTINGS, 0, 0, &[]);
}

/// 255 bytes of padding and none of data.
fn padding(s: &mut Script) {
    s.frame(DATA, PADDED, 1, &[&[255][..], &[0; 255]].concat());
}
