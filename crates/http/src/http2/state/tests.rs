//! Tests of the state of a connection, with frames as bytes.

use super::super::frame::{FRAME_HEAD_LEN, FrameHead, flag, kind, put_frame_head};
use super::super::hpack::encode_field;
use super::*;
use crate::head::{Known, ResponseHead};
use crate::outbound_request::OutboundRequest;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tokio::time::Instant;

const LIMITS: ProtocolLimits = ProtocolLimits {
    stream_window: 1_000,
    connection_window: 100_000,
    streams_max: 3,
    list_bytes_max: 10_000,
    resets_max: 10,
};

/// A state and the frames that the other side sends to it.
struct Connection {
    state: ConnectionState,
    written: Vec<u8>,
}

/// A frame that the state has sent: type, flags, stream, payload.
type Sent = (u8, u8, u32, Vec<u8>);

impl Connection {
    fn new(role: Role) -> Self {
        let mut connection = Self::unacknowledged(role);
        connection.receive(kind::SETTINGS, flag::ACK, 0, b"");
        connection
    }

    /// A connection whose other side has sent its settings, and not acknowledged those of the state.
    fn unacknowledged(role: Role) -> Self {
        let mut state = ConnectionState::new(role, LIMITS, 100);
        state.out.clear();
        let mut connection = Self { state, written: Vec::new() };
        if role == Role::Server {
            connection.receive_bytes(frame::PREFACE);
        }
        connection.receive(kind::SETTINGS, 0, 0, b"");
        assert_eq!(connection.sent(), [(kind::SETTINGS, flag::ACK, 0, vec![])]);
        connection
    }

    fn receive_bytes(&mut self, bytes: &[u8]) {
        self.receive_from(&mut BytesMut::from(bytes));
    }

    fn receive_from(&mut self, read: &mut BytesMut) {
        let mut frames_left = usize::MAX;
        self.state.receive(read, Instant::now(), &mut frames_left);
    }

    fn receive(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        put_frame_head(&mut bytes, payload.len(), (kind, flags), stream);
        bytes.extend_from_slice(payload);
        self.receive_bytes(&bytes);
    }

    /// Receives a header block without padding and priority.
    fn receive_head(&mut self, stream: u32, flags: u8, fields: &[(&str, &str)]) {
        let mut block = Vec::new();
        for (name, value) in fields {
            encode_field(&mut block, name.as_bytes(), value.as_bytes());
        }
        self.receive(kind::HEADERS, flags | flag::END_HEADERS, stream, &block);
    }

    fn receive_request(&mut self, stream: u32, flags: u8) {
        let fields =
            [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "h")];
        self.receive_head(stream, flags, &fields);
    }

    /// Takes the frames that the state has sent since the last call.
    fn sent(&mut self) -> Vec<Sent> {
        self.written.clear();
        self.state.take_output(&mut self.written);
        let (mut rest, mut sent) = (&*self.written, Vec::new());
        while let Some((head, after)) = rest.split_first_chunk::<FRAME_HEAD_LEN>() {
            let head = FrameHead::parse(head);
            sent.push((head.kind, head.flags, head.stream, after[..head.len].to_vec()));
            rest = &after[head.len..];
        }
        sent
    }

    fn accepted(&mut self) -> Vec<usize> {
        let key = |arrival| match arrival {
            Arrival::Respond(request) => Some(request.key),
            Arrival::Note(_) => None,
        };
        self.state.take_arrivals().into_iter().filter_map(key).collect()
    }

    /// The code of the violation that has ended the connection.
    fn violation(&self) -> Option<ErrorCode> {
        match self.state.failure() {
            Some(ConnectionError::Violation { code, .. }) => Some(*code),
            _ => None,
        }
    }

    /// Opens a stream by a `GET` without a body.
    fn get(&mut self) -> Poll<Result<usize, Error>> {
        let request = OutboundRequest::get("/", "h");
        self.state.poll_send_request(&cx(), to_send(&request, true))
    }

    fn get_key(&mut self) -> usize {
        match self.get() {
            Poll::Ready(Ok(key)) => key,
            other @ (Poll::Ready(Err(_)) | Poll::Pending) => panic!("no stream: {other:?}"),
        }
    }
}

fn to_send(request: &OutboundRequest, is_end: bool) -> RequestToSend<'_> {
    RequestToSend { request, is_https: false, length: None, is_end, is_connect: false }
}

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

fn reset_frame(stream: u32, code: ErrorCode) -> Sent {
    (kind::RST_STREAM, 0, stream, code.0.to_be_bytes().to_vec())
}

#[test]
fn a_stalled_stream_holds_its_own_window_and_no_other_stream_waits() {
    let mut connection = Connection::new(Role::Server);
    connection.receive_request(1, 0);
    connection.receive_request(3, 0);
    let keys = connection.accepted();
    connection.receive(kind::DATA, 0, 1, &[0; 1_000]);
    assert_eq!(connection.sent(), [], "nobody reads stream 1");
    // The other stream passes far more than the window of the connection.
    for _ in 0..400 {
        connection.receive(kind::DATA, 0, 3, &[0; 1_000]);
        let read = connection.state.poll_frame(&cx(), keys[1]);
        assert!(matches!(read, Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some()));
        let updates = connection.sent();
        assert!(updates.iter().all(|(kind, ..)| *kind == kind::WINDOW_UPDATE), "{updates:?}");
        assert!(updates.iter().any(|(.., stream, _)| *stream == 3));
    }
    assert_eq!(connection.violation(), None);
    connection.receive(kind::DATA, 0, 1, &[0]);
    assert_eq!(connection.sent(), [reset_frame(1, ErrorCode::FLOW_CONTROL_ERROR)]);
}

#[test]
fn padding_counts_and_returns_its_credit_by_itself() {
    let mut connection = Connection::new(Role::Server);
    connection.receive_request(1, 0);
    let key = connection.accepted()[0];
    let padded = [&[250][..], b"data", &[0; 250]].concat();
    for _ in 0..2 {
        connection.receive(kind::DATA, flag::PADDED, 1, &padded);
    }
    let update = (kind::WINDOW_UPDATE, 0, 1, 502_u32.to_be_bytes().to_vec());
    assert_eq!(connection.sent(), [update]);
    let Poll::Ready(Some(Ok(frame))) = connection.state.poll_frame(&cx(), key) else {
        panic!("no data")
    };
    assert_eq!(frame.data_ref().map(|data| &data[..]), Some(&b"datadata"[..]));
    connection.receive(kind::DATA, flag::PADDED, 1, &[5, 0, 0, 0, 0]);
    assert_eq!(connection.violation(), Some(ErrorCode::PROTOCOL_ERROR));
}

#[test]
fn the_length_of_a_body_is_what_was_announced() {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "h"),
        ("content-length", "5"),
    ];
    for (data, flags, is_valid) in [
        (&b"12345"[..], flag::END_STREAM, true),
        (b"123456", 0, false),
        (b"1234", flag::END_STREAM, false),
        (b"", flag::END_STREAM, false),
    ] {
        let mut connection = Connection::new(Role::Server);
        connection.receive_head(1, 0, &fields);
        connection.receive(kind::DATA, flags, 1, data);
        let want = if is_valid { vec![] } else { vec![reset_frame(1, ErrorCode::PROTOCOL_ERROR)] };
        assert_eq!(connection.sent(), want, "{data:?}");
    }
    let mut connection = Connection::new(Role::Server);
    connection.receive_head(1, flag::END_STREAM, &fields);
    assert_eq!(connection.sent(), [reset_frame(1, ErrorCode::PROTOCOL_ERROR)]);
}

#[test]
fn frames_on_streams_are_judged_by_the_state_of_the_stream() {
    let data =
        |connection: &mut Connection, stream| connection.receive(kind::DATA, 0, stream, b"x");
    let update = [0, 0, 0, 1];
    type Step<'a> = &'a dyn Fn(&mut Connection);
    let cases: [(&str, Option<ErrorCode>, Step<'_>); 9] = [
        ("idle", Some(ErrorCode::PROTOCOL_ERROR), &|c| data(c, 9)),
        ("of the server", Some(ErrorCode::PROTOCOL_ERROR), &|c| data(c, 2)),
        ("idle", Some(ErrorCode::PROTOCOL_ERROR), &|c| c.receive(kind::RST_STREAM, 0, 9, &update)),
        ("idle", Some(ErrorCode::PROTOCOL_ERROR), &|c| {
            c.receive(kind::WINDOW_UPDATE, 0, 9, &update)
        }),
        ("reset by the client", Some(ErrorCode::STREAM_CLOSED), &|c| {
            c.receive(kind::RST_STREAM, 0, 5, &update);
            data(c, 5);
        }),
        ("late update", None, &|c| {
            c.receive(kind::RST_STREAM, 0, 5, &update);
            c.receive(kind::WINDOW_UPDATE, 0, 5, &update);
        }),
        ("reset by the server", None, &|c| {
            let key = c.accepted()[0];
            c.state.reset(key, ErrorCode::CANCEL, Error::Cancelled);
            data(c, 5);
            c.receive_request(5, 0);
        }),
        ("skipped", Some(ErrorCode::PROTOCOL_ERROR), &|c| c.receive_request(3, 0)),
        ("even", Some(ErrorCode::PROTOCOL_ERROR), &|c| c.receive_request(6, 0)),
    ];
    for (stream, want, act) in cases {
        let mut connection = Connection::new(Role::Server);
        connection.receive_request(5, 0);
        act(&mut connection);
        assert_eq!(connection.violation(), want, "{stream}");
    }
}

#[test]
fn a_request_beyond_the_limit_of_streams_is_refused() {
    let mut connection = Connection::new(Role::Server);
    for stream in [1, 3, 5, 7] {
        connection.receive_request(stream, flag::END_STREAM);
    }
    assert_eq!(connection.sent(), [reset_frame(7, ErrorCode::REFUSED_STREAM)]);
    let keys = connection.accepted();
    assert_eq!(keys.len(), 3);
    connection.state.release(keys[0]);
    connection.receive_request(9, flag::END_STREAM);
    assert_eq!(connection.sent(), [reset_frame(1, ErrorCode::CANCEL)], "no further one is refused");
}

#[test]
fn floods_end_the_connection() {
    type Flooding = fn(&mut Connection, u32);
    let cases: [(&str, u32, Flooding); 10] = [
        ("entries of settings", 5, |c, _| {
            c.receive(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1].repeat(2_500))
        }),
        ("header lists", 1, |c, nth| c.receive_head(2 * nth + 1, 0, &[("x", ""); 1_300])),
        ("resets", 11, |c, nth| {
            c.receive_request(2 * nth + 1, 0);
            c.receive(kind::RST_STREAM, 0, 2 * nth + 1, &[0; 4]);
        }),
        ("resets of this side", 11, |c, nth| {
            c.receive_request(2 * nth + 1, 0);
            c.receive(kind::WINDOW_UPDATE, 0, 2 * nth + 1, &[0; 4]);
        }),
        ("malformed requests", 11, |c, nth| c.receive_head(2 * nth + 1, 0, &[("x", "1")])),
        ("empty data", 10_001, |c, nth| {
            if nth == 0 {
                c.receive_request(1, 0);
            }
            c.receive(kind::DATA, 0, 1, b"");
        }),
        ("pings", 10_001, |c, _| c.receive(kind::PING, 0, 0, &[0; 8])),
        ("settings", 10_001, |c, _| c.receive(kind::SETTINGS, 0, 0, b"")),
        ("priorities", 10_001, |c, _| c.receive(kind::PRIORITY, 0, 1, &[0; 5])),
        ("continuations", 130, |c, nth| {
            let kind = if nth == 0 { kind::HEADERS } else { kind::CONTINUATION };
            c.receive(kind, 0, 1, b"");
        }),
    ];
    for (name, count, flood) in cases {
        let mut connection = Connection::new(Role::Server);
        // The allowance also grows with time, which a test cannot rely on to be short.
        for nth in 0..10 * count {
            flood(&mut connection, nth);
            connection.sent();
            assert!(nth + 10 >= count || connection.violation().is_none(), "{name}: {nth}");
        }
        assert_eq!(connection.violation(), Some(ErrorCode::ENHANCE_YOUR_CALM), "{name}");
    }
}

#[test]
fn refused_streams_count_as_resets_once_the_client_knows_the_limit() {
    let mut connection = Connection::unacknowledged(Role::Server);
    let mut streams = (1..).step_by(2);
    let mut open = |connection: &mut Connection, count| {
        for stream in streams.by_ref().take(count) {
            connection.receive_request(stream, flag::END_STREAM);
        }
    };
    open(&mut connection, 3 + 1_000);
    assert_eq!((connection.accepted().len(), connection.violation()), (3, None));
    let refused = connection.sent();
    assert_eq!((refused.len(), &refused[0]), (1_000, &reset_frame(7, ErrorCode::REFUSED_STREAM)));
    connection.receive(kind::SETTINGS, flag::ACK, 0, b"");
    open(&mut connection, 5);
    assert_eq!(connection.violation(), None);
    open(&mut connection, 20);
    assert_eq!(connection.violation(), Some(ErrorCode::ENHANCE_YOUR_CALM));
    // Without an acknowledgment, they are frames that carry nothing.
    let mut connection = Connection::unacknowledged(Role::Server);
    for stream in (1..60_000).step_by(2) {
        connection.receive_request(stream, flag::END_STREAM);
        connection.sent();
    }
    assert_eq!(connection.violation(), Some(ErrorCode::ENHANCE_YOUR_CALM));
}

#[test]
fn nothing_is_read_while_acknowledgments_wait() {
    let mut connection = Connection::new(Role::Server);
    let mut pings = Vec::new();
    for _ in 0..9_000 {
        put_ping(&mut pings, 0, [0; 8]);
    }
    let mut read = BytesMut::from(&*pings);
    connection.receive_from(&mut read);
    assert!(connection.state.is_output_full() && !read.is_empty());
    assert!(connection.state.out.len() <= OUT_BYTES_MAX + CONTROL_BYTES_MAX + 17);
    connection.sent();
    connection.receive_from(&mut read);
    assert!(read.is_empty());
}

#[test]
fn a_graceful_end_accepts_requests_until_a_grace_after_the_ping_returns() {
    let mut connection = Connection::new(Role::Server);
    connection.receive_request(1, flag::END_STREAM);
    connection.state.begin_shutdown();
    let goaway = |last: u32| (kind::GOAWAY, 0, 0, [last.to_be_bytes(), [0; 4]].concat());
    let ping = (kind::PING, 0, 0, SHUTDOWN_PING.to_vec());
    assert_eq!(connection.sent(), [goaway(STREAM_MAX), ping]);
    connection.receive_request(3, flag::END_STREAM);
    assert!(!connection.state.is_shutdown_acknowledged());
    connection.receive(kind::PING, flag::ACK, 0, &SHUTDOWN_PING);
    assert!(connection.state.is_shutdown_acknowledged());
    connection.receive_request(5, flag::END_STREAM);
    assert_eq!(connection.sent(), []);
    let keys = connection.accepted();
    assert_eq!(keys.len(), 3, "two were on their way");
    connection.state.finish_shutdown();
    connection.receive_request(7, flag::END_STREAM);
    assert_eq!((connection.sent(), connection.accepted()), (vec![goaway(5)], vec![]));
    assert!(!connection.state.is_shutdown_acknowledged());
    for key in keys {
        assert!(!connection.state.is_over());
        connection.state.release(key);
    }
    assert!(connection.state.is_over());
}

#[test]
fn a_request_that_was_not_written_may_be_sent_elsewhere() {
    let mut connection = Connection::new(Role::Client);
    let first = connection.get_key();
    connection.sent();
    connection.sent();
    let second = connection.get_key();
    connection.state.fail(ConnectionError::Closed);
    let failure =
        |connection: &mut Connection, key| match connection.state.poll_response(&cx(), key) {
            Poll::Ready(Err(error)) => error,
            other @ (Poll::Ready(Ok(_)) | Poll::Pending) => panic!("no failure: {other:?}"),
        };
    let of_first = failure(&mut connection, first);
    assert!(matches!(of_first, Error::Connection(_)) && !of_first.is_unprocessed());
    let of_second = failure(&mut connection, second);
    assert!(matches!(of_second, Error::Unwritten(_)) && of_second.is_unprocessed());
    assert!(matches!(connection.get(), Poll::Ready(Err(Error::Unwritten(_)))));
}

#[test]
fn a_request_that_was_written_in_part_is_not_sent_elsewhere() {
    let mut connection = Connection::new(Role::Client);
    let keys = [connection.get_key(), connection.get_key()];
    let output = connection.sent();
    // The connection has accepted the first request and a byte of the second one.
    let first = FRAME_HEAD_LEN + output[0].3.len();
    connection.state.note_written(connection.written.len() - first - 1);
    connection.receive(kind::PUSH_PROMISE, 0, 1, b"");
    for key in keys {
        let response = connection.state.poll_response(&cx(), key);
        assert!(matches!(response, Poll::Ready(Err(error)) if !error.is_unprocessed()));
    }
}

#[test]
fn continue_is_sent_even_if_much_waits_to_be_written() {
    let mut connection = Connection::new(Role::Server);
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "h"),
        ("expect", "100-continue"),
    ];
    connection.receive_head(1, 0, &fields);
    let key = connection.accepted()[0];
    connection.state.out.resize(OUT_BYTES_MAX, 0);
    let before = connection.state.out.len();
    assert!(connection.state.poll_frame(&cx(), key).is_pending());
    assert!(connection.state.out.len() > before);
}

#[test]
fn a_server_without_a_limit_of_streams_has_none() {
    let connection = Connection::new(Role::Client);
    assert_eq!(connection.state.streams_allowed(), usize::MAX);
    let mut connection = Connection::new(Role::Client);
    connection.receive(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 5]);
    connection.receive(kind::SETTINGS, 0, 0, b"");
    assert_eq!(connection.state.streams_allowed(), 5);
}

#[test]
fn a_goaway_excludes_later_streams_only() {
    let mut connection = Connection::new(Role::Client);
    let keys = [connection.get_key(), connection.get_key()];
    connection.sent();
    connection.receive(kind::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let excluded = connection.state.poll_response(&cx(), keys[1]);
    assert!(matches!(excluded, Poll::Ready(Err(error)) if error.is_unprocessed()));
    assert!(connection.state.poll_response(&cx(), keys[0]).is_pending());
    connection.receive_head(1, flag::END_STREAM, &[(":status", "200")]);
    let response = connection.state.poll_response(&cx(), keys[0]);
    assert!(matches!(response, Poll::Ready(Ok(ResponseEvent::Final(_, Some(0))))));
    assert!(connection.state.is_closed() && !connection.state.is_over());
    for key in keys {
        connection.state.release(key);
    }
    assert!(connection.state.is_over());
}

#[test]
fn a_complete_response_survives_the_reset_that_follows_it() {
    for code in [ErrorCode::NO_ERROR, ErrorCode::CANCEL] {
        let mut connection = Connection::new(Role::Client);
        let request = OutboundRequest::get("/", "h");
        let opened = connection.state.poll_send_request(&cx(), to_send(&request, false));
        let Poll::Ready(Ok(key)) = opened else { panic!("no stream") };
        connection.receive_head(1, 0, &[(":status", "200")]);
        connection.receive(kind::DATA, flag::END_STREAM, 1, b"body");
        connection.receive(kind::RST_STREAM, 0, 1, &code.0.to_be_bytes());
        let sent = connection.state.poll_send_data(&cx(), key, &mut Bytes::from_static(b"x"), true);
        assert!(matches!(sent, Poll::Ready(Err(Error::Reset(_)))), "no more of the request");
        let response = connection.state.poll_response(&cx(), key);
        assert!(matches!(response, Poll::Ready(Ok(ResponseEvent::Final(..)))));
        let read = connection.state.poll_frame(&cx(), key);
        assert!(matches!(read, Poll::Ready(Some(Ok(frame))) if frame.data_ref().is_some()));
        assert!(matches!(connection.state.poll_frame(&cx(), key), Poll::Ready(None)));
    }
}

#[test]
fn an_incomplete_response_is_an_error_whatever_the_code_of_its_reset() {
    for code in [ErrorCode::NO_ERROR, ErrorCode::CANCEL] {
        let mut connection = Connection::new(Role::Client);
        let keys = [connection.get_key(), connection.get_key()];
        connection.receive_head(1, 0, &[(":status", "200")]);
        let response = connection.state.poll_response(&cx(), keys[0]);
        assert!(matches!(response, Poll::Ready(Ok(ResponseEvent::Final(..)))));
        connection.receive(kind::RST_STREAM, 0, 1, &code.0.to_be_bytes());
        let read = connection.state.poll_frame(&cx(), keys[0]);
        assert!(matches!(read, Poll::Ready(Some(Err(Error::Reset(_))))));
        // Where the response is still unread, it is no response.
        connection.receive_head(3, 0, &[(":status", "200")]);
        connection.receive(kind::RST_STREAM, 0, 3, &code.0.to_be_bytes());
        let response = connection.state.poll_response(&cx(), keys[1]);
        assert!(matches!(response, Poll::Ready(Err(Error::Reset(_)))));
    }
}

#[test]
fn an_unread_response_with_less_data_than_announced_is_an_error() {
    let mut connection = Connection::new(Role::Client);
    let key = connection.get_key();
    connection.receive_head(1, 0, &[(":status", "200"), ("content-length", "9")]);
    connection.receive(kind::DATA, 0, 1, b"body");
    connection.receive(kind::DATA, flag::END_STREAM, 1, b"body");
    let response = connection.state.poll_response(&cx(), key);
    assert!(matches!(response, Poll::Ready(Err(Error::Malformed(_)))), "{response:?}");
}

#[test]
fn a_response_that_has_arrived_completely_has_its_length_only_if_announced() {
    for (fields, data, trailers, length) in [
        (&[(":status", "200"), ("content-length", "4")][..], &b"body"[..], false, Some(4)),
        (&[(":status", "200")], b"body", false, None),
        (&[(":status", "200")], b"", true, None),
        (&[(":status", "200")], b"", false, Some(0)),
    ] {
        let mut connection = Connection::new(Role::Client);
        let key = connection.get_key();
        connection.receive_head(1, 0, fields);
        connection.receive(kind::DATA, if trailers { 0 } else { flag::END_STREAM }, 1, data);
        if trailers {
            connection.receive_head(1, flag::END_STREAM, &[("x", "1")]);
        }
        let response = connection.state.poll_response(&cx(), key);
        let Poll::Ready(Ok(ResponseEvent::Final(_, found))) = response else { panic!("none") };
        assert_eq!(found, length, "{fields:?}");
    }
}

#[test]
fn responses_that_are_not_valid_end_their_stream() {
    let status = |status| (":status", status);
    let length = ("content-length", "5");
    for (fields, flags, is_valid) in [
        (vec![status("200"), length], flag::END_STREAM, false),
        (vec![status("304"), length], flag::END_STREAM, true),
        (vec![status("101")], 0, false),
        (vec![status("103")], flag::END_STREAM, false),
        (vec![status("103")], 0, true),
        (vec![length], 0, false),
    ] {
        let mut connection = Connection::new(Role::Client);
        let key = connection.get_key();
        connection.sent();
        connection.receive_head(1, flags, &fields);
        let response = connection.state.poll_response(&cx(), key);
        assert_eq!(matches!(response, Poll::Ready(Ok(_))), is_valid, "{fields:?}: {response:?}");
        assert_eq!(connection.sent().is_empty(), is_valid, "{fields:?}");
    }
}

#[test]
fn data_waits_for_both_windows_and_for_room() {
    let mut connection = Connection::new(Role::Server);
    connection.receive_request(1, flag::END_STREAM);
    connection.receive_request(3, flag::END_STREAM);
    let keys = connection.accepted();
    let send = |connection: &mut Connection, key: usize, piece: &mut Bytes| {
        connection.state.poll_send_data(&cx(), key, piece, true)
    };
    let mut piece = Bytes::from(vec![0; 70_000]);
    assert!(send(&mut connection, keys[0], &mut piece).is_pending());
    assert_eq!(piece.len(), 70_000 - 65_535, "the window of the stream and of the connection");
    let mut other = Bytes::from_static(b"other");
    assert!(send(&mut connection, keys[1], &mut other).is_pending());
    connection.sent();
    connection.receive(kind::WINDOW_UPDATE, 0, 0, &100_000_u32.to_be_bytes());
    assert!(send(&mut connection, keys[1], &mut other).is_ready(), "its own window is open");
    assert!(send(&mut connection, keys[0], &mut piece).is_pending());
    connection.sent();
    connection.receive(kind::WINDOW_UPDATE, 0, 1, &100_000_u32.to_be_bytes());
    assert!(send(&mut connection, keys[0], &mut piece).is_ready());
    let sent = connection.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].1, sent[0].3.len()), (flag::END_STREAM, 70_000 - 65_535));
}

#[test]
fn settings_change_the_windows_of_open_streams() {
    let mut connection = Connection::new(Role::Server);
    connection.receive_request(1, flag::END_STREAM);
    let key = connection.accepted()[0];
    let mut piece = Bytes::from_static(b"12345");
    connection.receive(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 3]);
    assert!(connection.state.poll_send_data(&cx(), key, &mut piece, true).is_pending());
    assert_eq!(piece.len(), 2);
    connection.receive(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]);
    connection.receive(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 2]);
    assert!(connection.state.poll_send_data(&cx(), key, &mut piece, true).is_pending());
    connection.receive(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 2]);
    assert!(connection.state.poll_send_data(&cx(), key, &mut piece, true).is_ready());
    connection.receive(kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]);
    assert_eq!(connection.violation(), Some(ErrorCode::FLOW_CONTROL_ERROR));
}

#[test]
fn a_smaller_table_is_announced_once() {
    let mut connection = Connection::new(Role::Server);
    connection.receive_request(1, flag::END_STREAM);
    connection.receive_request(3, flag::END_STREAM);
    connection.receive(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
    connection.sent();
    let head = ResponseHead::new(StatusCode::OK);
    for key in connection.accepted() {
        let response = ResponseToSend { head: &head, length: None, date: None, is_end: true };
        connection.state.send_response(key, response);
    }
    let blocks: Vec<_> = connection.sent().into_iter().map(|(.., block)| block).collect();
    assert_eq!(blocks, [vec![0x20, 0x88], vec![0x88]]);
}

#[test]
fn the_response_has_no_field_that_concerns_one_connection() {
    let mut connection = Connection::new(Role::Server);
    connection.receive_request(1, flag::END_STREAM);
    connection.sent();
    let key = connection.accepted()[0];
    let mut head = ResponseHead::new(StatusCode::NO_CONTENT);
    head.fields.push(Known::Connection, b"close");
    head.fields.push(Known::KeepAlive, b"timeout=1");
    let response = ResponseToSend { head: &head, length: None, date: None, is_end: true };
    connection.state.send_response(key, response);
    let flags = flag::END_STREAM | flag::END_HEADERS;
    assert_eq!(connection.sent(), [(kind::HEADERS, flags, 1, vec![0x89])]);
}

#[test]
fn an_interim_response_goes_to_the_stream_that_it_is_for() {
    let mut connection = Connection::new(Role::Server);
    connection.receive_request(1, flag::END_STREAM);
    let key = connection.accepted()[0];
    let hints = ResponseHead::new(StatusCode::EARLY_HINTS);
    connection.state.send_interim((key, 1), &hints);
    assert_eq!(connection.sent().len(), 1);
    connection.state.release(key);
    connection.receive_request(3, flag::END_STREAM);
    assert_eq!(connection.accepted(), [key], "it has the same key");
    connection.sent();
    connection.state.send_interim((key, 1), &hints);
    assert_eq!(connection.sent(), []);
}

/// The payload of a SETTINGS frame about extended CONNECT.
const fn connect_setting(value: u8) -> [u8; 6] {
    [0, 8, 0, 0, 0, value]
}

#[test]
fn only_a_server_announces_extended_connect() {
    for (role, is_announced) in [(Role::Server, true), (Role::Client, false)] {
        let state = ConnectionState::new(role, LIMITS, 100);
        let frames = state.out.strip_prefix(frame::PREFACE).unwrap_or(&state.out);
        let (head, after) = frames.split_first_chunk::<FRAME_HEAD_LEN>().expect("a frame");
        let settings = &after[..FrameHead::parse(head).len];
        let has_setting = settings.chunks(6).any(|setting| setting == connect_setting(1));
        assert_eq!(has_setting, is_announced, "{role:?}");
    }
}

#[test]
fn whether_a_server_accepts_connect_is_known_from_its_first_settings() {
    for (settings, accepts) in
        [(&[][..], false), (&connect_setting(0), false), (&connect_setting(1), true)]
    {
        let mut connection = Connection {
            state: ConnectionState::new(Role::Client, LIMITS, 100),
            written: Vec::new(),
        };
        assert!(connection.state.poll_accepts_connect(&cx()).is_pending());
        connection.receive(kind::SETTINGS, 0, 0, settings);
        let known = connection.state.poll_accepts_connect(&cx());
        assert!(matches!(known, Poll::Ready(Ok(known)) if known == accepts), "{settings:?}");
    }
    let mut connection = Connection::new(Role::Client);
    connection.receive(kind::SETTINGS, 0, 0, &connect_setting(2));
    assert_eq!(connection.violation(), Some(ErrorCode::PROTOCOL_ERROR));
    let known = connection.state.poll_accepts_connect(&cx());
    assert!(matches!(known, Poll::Ready(Err(error)) if error.is_unprocessed()));
}

#[test]
fn a_length_has_no_meaning_in_a_response_that_opens_a_tunnel() {
    for (status, is_valid) in [("200", true), ("204", true), ("403", false)] {
        let mut connection = Connection::new(Role::Client);
        let request = OutboundRequest::get("/", "h");
        let connect = RequestToSend { is_connect: true, ..to_send(&request, false) };
        let opened = connection.state.poll_send_request(&cx(), connect);
        assert!(opened.is_ready());
        connection.sent();
        connection.receive_head(1, 0, &[(":status", status), ("content-length", "1")]);
        connection.receive(kind::DATA, 0, 1, b"any length");
        let want = if is_valid { vec![] } else { vec![reset_frame(1, ErrorCode::PROTOCOL_ERROR)] };
        assert_eq!(connection.sent(), want, "{status}");
    }
}
