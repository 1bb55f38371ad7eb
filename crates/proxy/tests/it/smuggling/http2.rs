//! Cases over HTTP/2: tables by topic, and the client that writes their frames by hand, because no library sends them.

// Before the modules, which use it.
/// A POST with these headers.
macro_rules! post {
    ($(($name:literal, $value:literal)),*) => {
        &[
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "h"),
            (":path", "/@"),
            $(($name, $value)),*
        ]
    };
}

mod bodies;
mod fields;
mod pseudo_headers;

use super::{Received, Step, bytes};
use crate::frames::{
    DATA, END_HEADERS, END_STREAM, Frames, HEADERS, PROTOCOL_ERROR, RST_STREAM, fields as block,
};
use std::net::SocketAddr;

/// Name, RFC section, fields with pseudo-headers, body and outcome.
pub(super) type Http2Case = (&'static str, &'static str, &'static [Field], Body, &'static [Step]);

type Field = (&'static str, &'static str);

/// What follows the headers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    /// The headers end the stream.
    None,
    /// DATA frames; the last one ends the stream.
    Data(&'static [&'static str]),
    /// A DATA frame and trailers, which end the stream.
    Trailers(&'static str, &'static [Field]),
    /// A DATA frame, and trailers that do not end the stream.
    UnendedTrailers(&'static str, &'static [Field]),
}

/// The next request on the connection.
const NEXT: &[Field] =
    &[(":method", "GET"), (":scheme", "http"), (":authority", "next"), (":path", "/next")];

const WHOLE: u8 = END_HEADERS | END_STREAM;

pub(super) fn tables() -> [&'static [Http2Case]; 5] {
    [
        pseudo_headers::PATHS,
        pseudo_headers::OTHERS,
        fields::NAMES_AND_VALUES,
        fields::MEANINGS,
        bodies::BODIES,
    ]
}

/// The start of a HEADERS frame of a response with this status (RFC 7541): an entry of the static table, or a literal.
const STATUSES: [(&[u8], u16); 4] =
    [(&[0x88], 200), (&[0x8c], 400), (&[0x8d], 404), (b"\x08\x03501", 501)];

/// Sends a request and, after its end, the next one on the same connection; returns what comes back.
pub(super) async fn exchange(
    address: SocketAddr,
    number: usize,
    head: &[Field],
    body: Body,
) -> Vec<Received> {
    let mut frames = Frames::connect(address).await;
    let encoded = |fields: &[Field]| {
        let fields = fields.iter().map(|(name, value)| (bytes(name, number), bytes(value, number)));
        block(&fields.collect::<Vec<_>>())
    };
    let head = encoded(head);
    let to_send: Vec<(u8, u8, Vec<u8>)> = match body {
        Body::None => vec![(HEADERS, WHOLE, head)],
        Body::Data(pieces) => {
            let mut to_send = vec![(HEADERS, END_HEADERS, head)];
            to_send.extend(pieces.iter().map(|piece| (DATA, 0, bytes(piece, number))));
            to_send.last_mut().expect("the headers").1 |= END_STREAM;
            to_send
        }
        Body::Trailers(data, trailers) => vec![
            (HEADERS, END_HEADERS, head),
            (DATA, 0, bytes(data, number)),
            (HEADERS, WHOLE, encoded(trailers)),
        ],
        Body::UnendedTrailers(data, trailers) => vec![
            (HEADERS, END_HEADERS, head),
            (DATA, 0, bytes(data, number)),
            (HEADERS, END_HEADERS, encoded(trailers)),
        ],
    };
    let mut received = Vec::new();
    for (stream, to_send) in [(1, to_send), (3, vec![(HEADERS, WHOLE, encoded(NEXT))])] {
        for (kind, flags, payload) in to_send {
            // A proxy that closes the connection may do so before the last frame.
            frames.write(kind, flags, stream, &payload).await.ok();
        }
        match read_end(&mut frames, stream).await {
            Some(response) => received.push(response),
            None => {
                received.push(Received::Other("closes".to_owned()));
                break;
            }
        }
    }
    received
}

/// Reads until the stream ends; [`None`] when the connection ends before.
async fn read_end(frames: &mut Frames, stream: u32) -> Option<Received> {
    let (mut status, mut text) = (0, String::new());
    loop {
        let frame = frames.read().await?;
        if frame.stream != stream {
            continue;
        }
        match frame.kind {
            HEADERS => {
                let known = STATUSES.iter().find(|(start, _)| frame.payload.starts_with(start));
                status = known.map_or(0, |(_, status)| *status);
            }
            DATA => text += &String::from_utf8_lossy(&frame.payload),
            RST_STREAM => {
                let code = frame.payload.try_into().map_or(0, u32::from_be_bytes);
                let text = match code {
                    PROTOCOL_ERROR => "resets".to_owned(),
                    code => format!("resets with code {code}"),
                };
                return Some(Received::Other(text));
            }
            _ => {}
        }
        if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
            return Some(response(status, text));
        }
    }
}

fn response(status: u16, text: String) -> Received {
    match text.strip_prefix("curtail: ") {
        Some(error) => {
            let error = error.split([':', '\n']).next().unwrap_or_default();
            Received::Other(format!("rejects {status} {error}"))
        }
        None if status == 200 => Received::Response(text),
        None => Received::Other(format!("status {status} {text:?}")),
    }
}
