//! The generator against real servers on loopback: ones that respond, and ones that do not.

mod http2;

use super::{Load, Recording, Share, Stop, run};
use crate::Clock;
use crate::expect::Expect;
use crate::target::{Protocol, Target};
use crate::workload::{RequestConfig, Workload, WorkloadConfig};
use curtail_load::schedule::Spacing;
use curtail_load::{Failure, Schedule};
use curtail_units::{Duration, Rng};
use socket2::{Domain, Socket, Type};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

const SEED: u64 = 3;

/// A server that hands each of its connections to `serve`, on a thread each, as long as the test runs.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Responds to each request, which has no body, with `response`.
fn respond_with(mut stream: TcpStream, response: &[u8]) {
    let mut request = Vec::new();
    let mut piece = [0; 1_024];
    while let Ok(n @ 1..) = stream.read(&mut piece) {
        request.extend_from_slice(&piece[..n]);
        while let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            request.drain(..end + 4);
            if stream.write_all(response).is_err() {
                return;
            }
        }
    }
}

pub(super) fn load(address: SocketAddr, requests: f64) -> Load {
    let target = Target::look_up(&format!("http://{address}/")).expect("a target");
    let rng = Rng::new(SEED);
    let config = WorkloadConfig::of_one(RequestConfig::get("all"));
    let workload = Workload::prepare(&config, &target, Path::new("."), &rng).expect("no errors");
    let schedule = Schedule::constant(requests * 10.0, Duration::from_ms(100), Spacing::Even);
    let connector = target.connector(Protocol::Http1, None, false).expect("clear text");
    Load {
        target,
        connector,
        protocol: Protocol::Http1,
        keep_alive: true,
        connections_max: 8,
        timeout: Duration::from_secs(10),
        workload,
        schedule: Arc::new(schedule),
        rng,
        share: Share::ALL,
        threads: 1,
    }
}

fn sent(load: Load) -> Recording {
    run(&Arc::new(load), Clock::start(), &Stop::default(), |_, _| {}).expect("it runs")
}

/// All of the requests failed, for this reason.
fn all_failed(seen: &Recording, requests: u64, failure: Failure) {
    let latencies = seen.merged();
    assert_eq!(latencies.failures.of(failure), requests, "{:?}", seen.examples);
    assert_eq!(latencies.count(), requests);
    assert_eq!(seen.examples.len(), 1);
}

const HELLO: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

#[test]
fn every_request_of_the_plan_gets_one_response() {
    let address = server(|stream| respond_with(stream, HELLO));
    for threads in [1, 3] {
        let seen = sent(Load { threads, ..load(address, 500.0) });
        let latencies = seen.merged();
        assert_eq!(
            (latencies.count(), latencies.failures.total()),
            (500, 0),
            "{:?}",
            seen.examples
        );
        assert_eq!(seen.received_bytes, 500 * "hello".len() as u64);
        assert!(seen.connections <= 8 + threads as u64, "{} connections", seen.connections);
        assert!(!seen.is_stopped);
    }
}

#[test]
fn without_keep_alive_each_request_has_a_connection_of_its_own() {
    let address = server(|stream| respond_with(stream, HELLO));
    let seen = sent(Load { keep_alive: false, ..load(address, 50.0) });
    assert_eq!((seen.connections, seen.merged().failures.total()), (50, 0), "{:?}", seen.examples);
}

#[test]
fn shares_of_a_plan_make_up_the_whole() {
    let address = server(|stream| respond_with(stream, HELLO));
    let share = |nth| sent(Load { share: Share { nth, of: 3 }, ..load(address, 100.0) });
    let counts: Vec<u64> = (0..3).map(|nth| share(nth).count()).collect();
    assert_eq!(counts, [34, 33, 33]);
}

#[test]
fn a_server_that_is_not_there_fails_each_request() {
    // Bound, so that no other process gets the port, and not listening.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    let address = socket.local_addr().expect("bound").as_socket().expect("of IP");
    all_failed(&sent(load(address, 40.0)), 40, Failure::Connect);
}

#[test]
fn servers_that_misbehave_fail_each_request_for_their_own_reason() {
    let closes = server(drop);
    all_failed(&sent(load(closes, 40.0)), 40, Failure::Closed);
    let other = Expect { contains: vec!["other".to_owned()], ..Expect::default() };
    for (response, expect, failure) in [
        (&b"220 mail.example ESMTP\r\n"[..], Expect::default(), Failure::Malformed),
        (b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", Expect::default(), Failure::Status),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n", Expect::default(), Failure::Malformed),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nhello\r\n",
            Expect::default(),
            Failure::Malformed,
        ),
        (HELLO, other, Failure::Check),
    ] {
        let mut load = load(server(move |stream| respond_with(stream, response)), 40.0);
        load.workload.requests[0].expect = expect;
        all_failed(&sent(load), 40, failure);
    }
    let breaks_off = server(|mut stream| {
        drop(stream.read(&mut [0; 1_024]));
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel"));
    });
    all_failed(&sent(load(breaks_off, 40.0)), 40, Failure::Closed);
}

#[test]
fn a_response_is_complete_in_each_framing() {
    for (response, stays_open) in [
        (&b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"[..], true),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", false),
    ] {
        let address = server(move |mut stream| {
            if stays_open {
                return respond_with(stream, response);
            }
            drop(stream.read(&mut [0; 1_024]));
            drop(stream.write_all(response));
        });
        let mut load = load(address, 20.0);
        load.workload.requests[0].expect.contains = vec!["hello".to_owned()];
        let seen = sent(load);
        let latencies = seen.merged();
        assert_eq!((latencies.count(), latencies.failures.total()), (20, 0), "{:?}", seen.examples);
    }
}

#[test]
fn a_server_that_never_responds_times_out() {
    let address = server(|mut stream| {
        let mut nothing = Vec::new();
        drop(stream.read_to_end(&mut nothing));
    });
    let load = Load { timeout: Duration::from_ms(50), ..load(address, 20.0) };
    all_failed(&sent(load), 20, Failure::Timeout);
}

#[test]
fn an_endless_response_is_given_up() {
    let address = server(|mut stream| {
        let mut request = [0; 1_024];
        drop(stream.read(&mut request));
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n"));
        while stream.write_all(&[b'x'; 65_536]).is_ok() {}
    });
    let mut load = load(address, 4.0);
    load.workload.requests[0].expect.bytes_max = curtail_units::Bytes::from_kib(1_024);
    all_failed(&sent(load), 4, Failure::TooLong);
}

#[test]
fn a_run_that_is_stopped_counts_what_was_due() {
    let address = server(|mut stream| {
        let mut nothing = Vec::new();
        drop(stream.read_to_end(&mut nothing));
    });
    let mut load = load(address, 10.0);
    load.schedule =
        Arc::new(Schedule::constant(1_000.0, Duration::from_secs(3_600), Spacing::Even));
    let stop = Stop::default();
    let stopper = stop.clone();
    // It is stopped by its first progress.
    let seen = run(&Arc::new(load), Clock::start(), &stop, |_, _| stopper.stop()).expect("it runs");
    assert!(seen.is_stopped);
    let latencies = seen.merged();
    assert_eq!(latencies.failures.of(Failure::Ended), latencies.count());
    assert!(latencies.count() >= 400, "half a second at 1,000 a second: {}", latencies.count());
}
