//! Clients that stop: they send no more, grant no window, or do not read. A limit of the proxy ends each of them.

use super::super::script::{INITIAL_WINDOW_SIZE, WINDOW_MAX};
use super::super::{Allowed, Reads};
use super::Row;
use crate::frames::{
    CANCEL, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, INTERNAL_ERROR, NO_ERROR, PREFACE,
    PROTOCOL_ERROR, SETTINGS, SETTINGS_TIMEOUT, frame_bytes,
};
use Allowed::{Closes, Ends, Resets, Responds};

/// The stream ends before its response is complete, by a decision of the proxy.
const STREAM_CUT_OFF: &[Allowed] = &[Resets(&[CANCEL, INTERNAL_ERROR, ENHANCE_YOUR_CALM])];

/// The request ends before it is complete.
const REQUEST_CUT_OFF: &[Allowed] =
    &[Responds(&[408]), Resets(&[CANCEL, INTERNAL_ERROR, ENHANCE_YOUR_CALM])];

/// The proxy closes a connection, with or without a reason (RFC 9113, section 5.4.1).
const CLOSED: &[Allowed] =
    &[Closes, Ends(&[NO_ERROR, PROTOCOL_ERROR, SETTINGS_TIMEOUT, ENHANCE_YOUR_CALM])];

const CLOSES: &[Allowed] = &[Closes];

/// The proxy ends a connection without an error.
const GOES_AWAY: &[Allowed] = &[Ends(&[NO_ERROR])];

/// A stream of a client may carry this many requests beside the next one.
const STREAMS: u32 = 99;

/// A CONTINUATION without `END_HEADERS`, of a field of the static table.
const CONTINUATION: &[u8] = b"\0\0\x01\x09\0\0\0\0\x03\x90";

pub(super) const ROWS: &[Row] = &[
    // Windows.
    Row::new(
        "a window of zero for a response",
        "6.9.2",
        |s| {
            s.setting(INITIAL_WINDOW_SIZE, 0);
            s.get(1, "/long");
        },
        STREAM_CUT_OFF,
    )
    .waits(),
    Row::new(
        "a window of zero for 99 responses",
        "6.9.2",
        |s| {
            s.setting(INITIAL_WINDOW_SIZE, 0);
            s.on_streams(STREAMS, |s, stream| s.get(stream, "/long"));
        },
        STREAM_CUT_OFF,
    )
    .waits(),
    Row::new(
        "no window update for a connection",
        "6.9",
        |s| {
            s.get(1, "/long");
            s.get(3, "/long");
        },
        STREAM_CUT_OFF,
    )
    .waits(),
    Row::new(
        "a window of one byte at a time",
        "6.9",
        |s| {
            s.setting(INITIAL_WINDOW_SIZE, 1);
            s.get(1, "/long");
        },
        STREAM_CUT_OFF,
    )
    .waits()
    .reads(Reads::ByteByByte),
    Row::new(
        "a window that shrinks below zero",
        "6.9.2",
        |s| {
            s.get(1, "/long");
            s.setting(INITIAL_WINDOW_SIZE, 0);
            s.window(1, 1);
        },
        STREAM_CUT_OFF,
    )
    .waits(),
    // Sockets.
    Row::new("a client that reads nothing", "5.4.1", wide_open, CLOSES).reads(Reads::Nothing),
    Row::new("a client that reads a byte at a time", "5.4.1", wide_open, CLOSES)
        .reads(Reads::Slowly),
    // Requests.
    Row::new("a request body that never begins", "8.1", |s| s.post(1, "/read"), REQUEST_CUT_OFF)
        .waits(),
    Row::new(
        "a request body that pauses for ever",
        "8.1",
        |s| {
            s.post(1, "/read");
            s.data(1, 0, b"half");
        },
        REQUEST_CUT_OFF,
    )
    .waits(),
    Row::new(
        "99 request bodies that never begin",
        "8.1",
        |s| {
            s.on_streams(STREAMS, |s, stream| s.post(stream, "/read"));
        },
        REQUEST_CUT_OFF,
    )
    .waits(),
    Row::new(
        "a stream that is silent in both directions",
        "8.1",
        |s| s.post(1, "/begin"),
        STREAM_CUT_OFF,
    )
    .waits(),
    // Connections without a request.
    Row::new("not a byte", "3.4", |_| {}, CLOSED).without_start().reads(Reads::Deaf).then_silence(),
    Row::new("half a preface", "3.4", |s| s.bytes(&PREFACE[..12]), CLOSED)
        .without_start()
        .reads(Reads::Deaf)
        .then_silence(),
    Row::new("a preface without settings", "3.4", |s| s.bytes(PREFACE), CLOSED)
        .without_start()
        .reads(Reads::Deaf)
        .then_silence(),
    Row::new(
        "half of the first settings",
        "3.4",
        |s| {
            s.bytes(PREFACE);
            s.bytes(&frame_bytes(SETTINGS, 0, 0, &[0; 6])[..11]);
        },
        CLOSED,
    )
    .without_start()
    .reads(Reads::Deaf)
    .then_silence(),
    Row::new("settings and no request, nor a response to a ping", "6.8", |_| {}, GOES_AWAY)
        .then_silence()
        .reads(Reads::Deaf),
    // Incomplete frames.
    Row::new("half a frame header", "4.1", |s| s.bytes(&[0, 0, 4, HEADERS]), CLOSED)
        .reads(Reads::Deaf)
        .then_silence(),
    Row::new("half a HEADERS frame", "4.1", half_headers, CLOSED).reads(Reads::Deaf).then_silence(),
    Row::new(
        "a head without its end",
        "6.10",
        |s| s.frame(HEADERS, END_STREAM, 3, &[0x82]),
        CLOSED,
    )
    .reads(Reads::Deaf)
    .then_silence(),
    Row::new(
        "a head that goes on drop by drop",
        "6.10",
        |s| {
            s.frame(HEADERS, END_STREAM, 3, &[0x82]);
        },
        CLOSED,
    )
    .reads(Reads::Deaf)
    .then_silence()
    .drips(CONTINUATION),
    // The same after a request, when the proxy expects none.
    Row::new(
        "half a HEADERS frame after a request",
        "4.1",
        |s| {
            s.get(1, "/steady");
            half_headers(s);
        },
        CLOSED,
    )
    .then_silence()
    .reads(Reads::Deaf),
    Row::new(
        "a head without its end after a request",
        "6.10",
        |s| {
            s.get(1, "/steady");
            s.frame(HEADERS, END_STREAM, 3, &[0x82]);
        },
        CLOSED,
    )
    .then_silence()
    .reads(Reads::Deaf),
    Row::new(
        "a head that goes on drop by drop after a request",
        "6.10",
        |s| {
            s.get(1, "/steady");
            s.frame(HEADERS, END_STREAM, 3, &[0x82]);
        },
        CLOSED,
    )
    .then_silence()
    .reads(Reads::Deaf)
    .drips(CONTINUATION),
    Row::new("an idle client that responds to no ping", "6.8", |s| s.get(1, "/steady"), GOES_AWAY)
        .then_silence()
        .reads(Reads::Deaf),
];

/// The windows are as wide as they can be, so only the socket stops the proxy.
fn wide_open(s: &mut super::Script) {
    s.setting(INITIAL_WINDOW_SIZE, WINDOW_MAX);
    s.window(0, WINDOW_MAX - 65_535);
    s.get(1, "/long");
}

fn half_headers(s: &mut super::Script) {
    let mut whole = super::Script::default();
    whole.get(3, "/steady");
    s.bytes(&whole.parts()[0].0[..30]);
}
