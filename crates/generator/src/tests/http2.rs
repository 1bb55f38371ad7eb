//! The generator against servers of HTTP/2 that return streams unprocessed (RFC 9113, section 8.7).

use super::{Load, Recording, all_failed, load, sent, server};
use crate::flight::RESENDS_MAX;
use crate::target::Protocol;
use curtail_load::Failure;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

const ACK: u8 = 1;
const END_STREAM_AND_HEADERS: u8 = 5;

const REFUSED_STREAM: u32 = 7;

/// `:status: 200`, as HPACK has it in its static table.
const STATUS_200: &[u8] = &[0x88];

const PREFACE_LEN: usize = 24;

/// The server's side of a connection.
struct Peer(TcpStream);

impl Peer {
    fn new(mut stream: TcpStream) -> Self {
        stream.read_exact(&mut [0; PREFACE_LEN]).expect("a preface");
        let mut peer = Self(stream);
        peer.send(SETTINGS, 0, 0, &[]);
        peer
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let len = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
        let head = [&len[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        // The client may be gone.
        drop(self.0.write_all(&[&head, payload].concat()));
    }

    /// The stream of the next request, which has no body.
    fn request(&mut self) -> Option<u32> {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).ok()?;
            let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = head;
            let len = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            self.0.read_exact(&mut vec![0; len]).ok()?;
            match kind {
                HEADERS => return Some(u32::from_be_bytes([s0, s1, s2, s3])),
                SETTINGS if flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]),
                _ => {}
            }
        }
    }

    /// The streams of this many requests.
    fn requests(&mut self, count: usize) -> Vec<u32> {
        (0..count).map_while(|_| self.request()).collect()
    }

    fn respond(&mut self, stream: u32) {
        self.send(HEADERS, END_STREAM_AND_HEADERS, stream, STATUS_200);
    }

    fn respond_to_all(&mut self) {
        while let Some(stream) = self.request() {
            self.respond(stream);
        }
    }

    fn refuse(&mut self, stream: u32) {
        self.send(RST_STREAM, 0, stream, &REFUSED_STREAM.to_be_bytes());
    }

    /// Announces the end of the connection: no stream beyond `last` is processed.
    fn go_away(&mut self, last: u32) {
        self.send(GOAWAY, 0, 0, &(u64::from(last) << 32).to_be_bytes());
    }

    /// Closes its own direction, then waits for the client to close.
    fn close(self) {
        self.0.shutdown(Shutdown::Write).expect("it is open");
        self.finish();
    }

    /// Waits for the client to close.
    fn finish(mut self) {
        while self.request().is_some() {}
    }
}

/// A server whose first connection is served by `first`; it responds to every request on later ones.
fn first_connection(first: impl Fn(Peer) + Send + Sync + 'static) -> SocketAddr {
    let connections = AtomicUsize::new(0);
    server(move |stream| {
        let mut peer = Peer::new(stream);
        match connections.fetch_add(1, Ordering::Relaxed) {
            0 => first(peer),
            _ => peer.respond_to_all(),
        }
    })
}

/// What is seen of this many requests over one connection at a time.
fn over_one_connection(address: SocketAddr, requests: f64) -> Recording {
    let load = load(address, requests);
    sent(Load { protocol: Protocol::Http2, connections_max: 1, ..load })
}

/// The requests, those that failed, those sent again, and the connections.
fn counts(seen: &Recording) -> [u64; 4] {
    [seen.count(), seen.merged().failures.total(), seen.resent, seen.connections]
}

#[test]
fn requests_beyond_a_goaway_are_sent_again_on_a_new_connection() {
    let address = first_connection(|mut peer| {
        let streams = peer.requests(10);
        streams[..4].iter().for_each(|stream| peer.respond(*stream));
        peer.go_away(streams[3]);
        peer.finish();
    });
    let seen = over_one_connection(address, 10.0);
    assert_eq!(counts(&seen), [10, 0, 6, 2], "{:?}", seen.examples);
}

#[test]
fn accepted_requests_of_a_closed_connection_fail_and_are_not_sent_again() {
    let address = first_connection(|mut peer| {
        let streams = peer.requests(10);
        streams[..4].iter().for_each(|stream| peer.respond(*stream));
        peer.go_away(streams[5]);
        peer.close();
    });
    let seen = over_one_connection(address, 10.0);
    assert_eq!(counts(&seen), [10, 2, 4, 2], "{:?}", seen.examples);
    assert_eq!(seen.merged().failures.of(Failure::Closed), 2);
}

#[test]
fn a_refused_stream_is_sent_again_even_when_nothing_else_is_left_to_send() {
    let address = first_connection(|mut peer| {
        let streams = peer.requests(10);
        streams[..7].iter().for_each(|stream| peer.respond(*stream));
        streams[7..].iter().for_each(|stream| peer.refuse(*stream));
        peer.respond_to_all();
    });
    let seen = over_one_connection(address, 10.0);
    assert_eq!(counts(&seen), [10, 0, 3, 1], "{:?}", seen.examples);
}

#[test]
fn a_connection_that_goes_away_holds_no_other_request_back() {
    let (all_others, responded) = mpsc::sync_channel(1);
    let responded = Mutex::new(responded);
    let connections = AtomicUsize::new(0);
    let address = server(move |stream| {
        let mut peer = Peer::new(stream);
        if connections.fetch_add(1, Ordering::Relaxed) == 0 {
            let streams = peer.requests(10);
            peer.go_away(streams[0]);
            // The first response comes after all others.
            let responded = responded.lock().expect("one connection waits").recv();
            responded.expect("the second connection");
            peer.respond(streams[0]);
            peer.finish();
        } else {
            for stream in peer.requests(9) {
                peer.respond(stream);
            }
            all_others.send(()).expect("the first connection waits");
            peer.finish();
        }
    });
    let load = load(address, 10.0);
    let seen = sent(Load { protocol: Protocol::Http2, connections_max: 2, ..load });
    assert_eq!(counts(&seen), [10, 0, 9, 2], "{:?}", seen.examples);
}

#[test]
fn a_server_that_processes_nothing_fails_each_request_after_a_bounded_number_of_resends() {
    let resent = 20 * u64::from(RESENDS_MAX);
    let refuses = server(|stream| {
        let mut peer = Peer::new(stream);
        while let Some(stream) = peer.request() {
            peer.refuse(stream);
        }
    });
    let seen = over_one_connection(refuses, 20.0);
    all_failed(&seen, 20, Failure::Closed);
    assert_eq!((seen.resent, seen.connections), (resent, 1));
    let goes_away = server(|stream| {
        let mut peer = Peer::new(stream);
        if peer.request().is_some() {
            peer.go_away(0);
        }
        peer.finish();
    });
    let seen = over_one_connection(goes_away, 20.0);
    all_failed(&seen, 20, Failure::Closed);
    assert_eq!(seen.resent, resent);
}
