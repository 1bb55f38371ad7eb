//! Replicas that stop, or end a connection in an unusual way.

use super::super::Allowed;
use super::super::script::{INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, Script};
use super::ClientGets::{self, Broken, Status};
use super::{Row, good};
use crate::frames::{
    CANCEL, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, INTERNAL_ERROR,
    NO_ERROR, REFUSED_STREAM, fields,
};
use Allowed::{Closes, Ends, Resets, Serves};

/// The proxy gives the request up, and only its stream.
const CANCELLED: &[Allowed] = &[Resets(&[CANCEL, INTERNAL_ERROR, ENHANCE_YOUR_CALM])];

/// The connection itself is blocked.
const ANYTHING: &[Allowed] =
    &[Serves, Closes, Resets(&[CANCEL, INTERNAL_ERROR]), Ends(&[NO_ERROR, CANCEL])];

/// The replica announces that it will close the connection.
const LEAVING: &[Allowed] = &[Serves, Closes, Ends(&[NO_ERROR])];

const TIMEOUT: &[ClientGets] = &[Status(504)];
const GOOD: &[ClientGets] = &[Status(200)];

pub(super) const ROWS: &[Row] = &[
    Row::new("replica: no response", "8.1", |_| {}, TIMEOUT, CANCELLED),
    Row::new("replica: a head and no body", "8.1", head, &[Broken], CANCELLED),
    Row::new(
        "replica: a body that pauses for ever",
        "8.1",
        |s| {
            head(s);
            s.data(1, 0, b"half");
        },
        &[Broken],
        CANCELLED,
    ),
    Row::new(
        "replica: no end of the body",
        "8.1",
        |s| {
            s.frame(
                HEADERS,
                END_HEADERS,
                1,
                &fields(&[(":status", "200"), ("content-length", "4")]),
            );
            s.data(1, 0, b"good");
        },
        &[Status(200), Status(504), Broken],
        &[Serves, Resets(&[CANCEL, INTERNAL_ERROR, ENHANCE_YOUR_CALM])],
    ),
    Row::new("replica: no window for an upload", "6.9", |_| {}, TIMEOUT, CANCELLED).uploads(),
    Row::new(
        "replica: a window of zero for an upload",
        "6.9.2",
        |s| {
            s.setting(INITIAL_WINDOW_SIZE, 0);
        },
        TIMEOUT,
        CANCELLED,
    )
    .uploads(),
    Row::new(
        "replica: a window of one byte for an upload",
        "6.9",
        |s| {
            s.setting(INITIAL_WINDOW_SIZE, 0);
            s.window(0, 1);
            s.window(1, 1);
        },
        TIMEOUT,
        CANCELLED,
    )
    .uploads(),
    Row::new(
        "replica: it reads nothing of an upload",
        "6.9",
        |s| {
            s.window(0, 1 << 30);
            s.window(1, 1 << 30);
        },
        TIMEOUT,
        ANYTHING,
    )
    .uploads()
    .reads_nothing(),
    Row::new("replica: it reads nothing", "5.4.1", |_| {}, TIMEOUT, ANYTHING).reads_nothing(),
    Row::new(
        "replica: half a frame header",
        "4.1",
        |s| s.bytes(&[0, 0, 4, HEADERS]),
        TIMEOUT,
        ANYTHING,
    )
    .blocks_its_connection(),
    Row::new(
        "replica: half a DATA frame",
        "4.1",
        |s| {
            head(s);
            s.bytes(&[0, 0, 9, DATA, 0, 0, 0, 0, 1, 0, 0]);
        },
        &[Broken],
        ANYTHING,
    )
    .blocks_its_connection(),
    Row::new(
        "replica: a head without its end",
        "6.10",
        |s| {
            s.frame(HEADERS, END_STREAM, 1, &[0x88]);
        },
        TIMEOUT,
        ANYTHING,
    )
    .blocks_its_connection(),
    Row::new(
        "replica: no further stream",
        "5.1.2",
        |s| {
            s.setting(MAX_CONCURRENT_STREAMS, 0);
            s.bytes(&good(1));
        },
        GOOD,
        LEAVING,
    ),
    Row::new(
        "replica: a refused stream",
        "8.7",
        |s| s.reset(1, REFUSED_STREAM),
        GOOD,
        &[Serves, Resets(&[])],
    ),
    Row::new(
        "replica: a GOAWAY that includes the request",
        "6.8",
        |s| {
            s.frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
            s.bytes(&good(1));
        },
        GOOD,
        LEAVING,
    ),
    Row::new(
        "replica: a GOAWAY that excludes the request",
        "6.8",
        |s| {
            s.frame(GOAWAY, 0, 0, &[0; 8]);
        },
        GOOD,
        &[Serves, Closes, Ends(&[NO_ERROR]), Resets(&[CANCEL])],
    ),
    Row::new(
        "replica: a GOAWAY with an error that includes the request",
        "6.8",
        |s| {
            s.frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 2]);
        },
        &[Status(502), Status(504)],
        &[Serves, Closes, Ends(&[NO_ERROR]), Resets(&[CANCEL])],
    ),
    Row::new(
        "replica: a GOAWAY whose connection stays open",
        "6.8",
        |s| {
            s.frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        },
        TIMEOUT,
        &[Closes, Ends(&[NO_ERROR]), Resets(&[CANCEL])],
    ),
];

fn head(s: &mut Script) {
    s.frame(HEADERS, END_HEADERS, 1, &[0x88]);
}
