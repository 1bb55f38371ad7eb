//! Abuse of HTTP/2: streams opened and reset, more of them than allowed, heads without end.

use super::with_steady_clients;
use crate::deadline::run;
use crate::frames::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, REFUSED_STREAM,
    RST_STREAM, fields, request,
};
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, ok};

/// A proxy and a replica that responds except to requests that ask it to hang.
async fn hanging() -> (Replica, Proxy) {
    let replica = Replica::start(Speaks::Http1, |request| async move {
        if request.uri().path() == "/hang" {
            std::future::pending::<()>().await;
        }
        ok("good")
    })
    .await;
    let proxy = Setup::before(&[replica.address()])
        .top("limits: {http2_streams_max: 1000}")
        .upstream("retry: false\nhedge: false\nconnect: {connections_max: 2000}")
        .start();
    (replica, proxy)
}

const WHOLE: u8 = END_HEADERS | END_STREAM;

#[test]
fn streams_that_are_opened_and_reset_at_once_end_their_connection_alone() {
    run(async {
        let (replica, proxy) = hanging().await;
        with_steady_clients(&proxy, async {
            let mut frames = Frames::connect(proxy.address()).await;
            let head = request("GET", "/hang");
            let cancel = CANCEL.to_be_bytes();
            // Far more than the bound, in as few packets as they fit in.
            for stream in (1..20_000).step_by(2) {
                let opened = frames.write(HEADERS, WHOLE, stream, &head).await;
                if opened.is_err() || frames.write(RST_STREAM, 0, stream, &cancel).await.is_err() {
                    break;
                }
            }
            let mut gone_away = false;
            while let Some(frame) = frames.read().await {
                gone_away |= frame.kind == GOAWAY;
            }
            println!("received GOAWAY: {gone_away}");
        })
        .await;
        let metrics = proxy.until(|metrics| metrics.in_flight() == 0).await;
        let attempts =
            replica.record().seen().iter().filter(|seen| seen.uri.path() == "/hang").count();
        assert!(attempts < 10_000, "every one of them was passed on: {metrics}");
    });
}

#[test]
fn streams_beyond_the_bound_are_refused_and_those_within_go_on() {
    run(async {
        let (replica, proxy) = hanging().await;
        with_steady_clients(&proxy, async {
            let mut frames = Frames::connect(proxy.address()).await;
            let (hang, good) = (request("GET", "/hang"), request("GET", "/good"));
            for nth in 0..1_000 {
                frames.send(HEADERS, WHOLE, 2 * nth + 1, &hang).await;
            }
            let hanging = |record: &crate::replica::Record| {
                record.seen().iter().filter(|seen| seen.uri.path() == "/hang").count()
            };
            replica.record().until(|record| hanging(record) == 1_000).await;
            for nth in 1_000..1_100 {
                frames.send(HEADERS, WHOLE, 2 * nth + 1, &good).await;
            }
            for _ in 0..100 {
                let frame = frames.read().await.expect("the connection goes on");
                assert_eq!(
                    (frame.kind, &*frame.payload),
                    (RST_STREAM, &REFUSED_STREAM.to_be_bytes()[..])
                );
                assert!(frame.stream > 2_000, "{frame:?}");
            }
            // One place becomes free.
            frames.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()).await;
            frames.send(HEADERS, WHOLE, 2_201, &good).await;
            let response = frames.read().await.expect("the connection goes on");
            assert_eq!((response.kind, response.stream), (HEADERS, 2_201), "{response:?}");
            let body = frames.read().await.expect("the connection goes on");
            assert_eq!((body.kind, &*body.payload), (DATA, &b"good"[..]));
        })
        .await;
        proxy.until(|metrics| metrics.in_flight() == 0).await;
        replica.record().until(|record| record.reset() == 1_000).await;
    });
}

#[test]
fn a_head_that_goes_on_without_end_ends_its_connection_alone() {
    run(async {
        let (replica, proxy) = hanging().await;
        with_steady_clients(&proxy, async {
            let mut frames = Frames::connect(proxy.address()).await;
            frames.send(HEADERS, END_STREAM, 1, &request("GET", "/hang")).await;
            let more = fields(&[("x-more", &"y".repeat(10_000))]);
            let mut written = 0;
            while written < 10_000 && frames.write(CONTINUATION, 0, 1, &more).await.is_ok() {
                written += 1;
            }
            assert!(written < 10_000, "100 MB of head were read");
            // The stream is over, whatever the server sends.
            while frames.read().await.is_some() {}
        })
        .await;
        let requests = replica.record().seen();
        assert!(requests.iter().all(|seen| seen.uri.path() == "/steady"), "it was passed on");
    });
}

#[test]
fn heads_that_are_no_requests_are_reset_and_go_nowhere() {
    run(async {
        let (replica, proxy) = hanging().await;
        with_steady_clients(&proxy, async {
            let scheme = (":scheme", "http");
            let path = (":path", "/bad");
            let authority = (":authority", "service.test");
            for bad in [
                // No method, no path, a path twice, a pseudo-header after a header, an unknown pseudo-header.
                &[scheme, authority, path][..],
                &[(":method", "GET"), scheme, authority],
                &[(":method", "GET"), scheme, authority, path, path],
                &[(":method", "GET"), scheme, ("x", "y"), authority, path],
                &[(":method", "GET"), scheme, authority, path, (":odd", "y")],
                // Fields of HTTP/1.1 connections, and names that are not lower case.
                &[(":method", "GET"), scheme, authority, path, ("connection", "close")],
                &[(":method", "GET"), scheme, authority, path, ("transfer-encoding", "chunked")],
                &[(":method", "GET"), scheme, authority, path, ("X-Upper", "y")],
            ] {
                let mut frames = Frames::connect(proxy.address()).await;
                frames.send(HEADERS, WHOLE, 1, &fields(bad)).await;
                let end = frames.read().await.expect("a response of some kind");
                assert!(matches!(end.kind, RST_STREAM | GOAWAY), "{bad:?}: {end:?}");
            }
        })
        .await;
        let requests = replica.record().seen();
        assert!(requests.iter().all(|seen| seen.uri.path() == "/steady"), "one was passed on");
    });
}

#[test]
fn a_body_that_is_not_as_long_as_announced_is_reset() {
    run(async {
        let (_replica, proxy) = hanging().await;
        with_steady_clients(&proxy, async {
            let head = fields(&[
                (":method", "POST"),
                (":scheme", "http"),
                (":authority", "service.test"),
                (":path", "/steady"),
                ("content-length", "3"),
            ]);
            for body in ["ab", "abcd"] {
                let mut frames = Frames::connect(proxy.address()).await;
                frames.send(HEADERS, END_HEADERS, 1, &head).await;
                frames.send(DATA, END_STREAM, 1, body.as_bytes()).await;
                let mut kinds = Vec::new();
                while let Some(frame) = frames.read().await {
                    kinds.push(frame.kind);
                    if matches!(frame.kind, RST_STREAM | GOAWAY) {
                        break;
                    }
                }
                assert!(matches!(kinds.last(), Some(&(RST_STREAM | GOAWAY))), "{body}: {kinds:?}");
            }
        })
        .await;
        proxy.until(|metrics| metrics.in_flight() == 0).await;
    });
}

#[test]
fn pseudo_headers_in_trailers_do_not_reach_the_server() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let proxy = Setup::before(&[replica.address()]).upstream("hedge: false").start();
        let mut frames = Frames::connect(proxy.address()).await;
        frames.send(HEADERS, END_HEADERS, 1, &request("POST", "/")).await;
        frames.send(DATA, 0, 1, b"abc").await;
        let trailers = fields(&[(":path", "/other"), ("x-sum", "1")]);
        frames.send(HEADERS, WHOLE, 1, &trailers).await;
        let frame = frames.read().await.expect("the connection goes on");
        let reset = (RST_STREAM, 1_u32.to_be_bytes().to_vec());
        assert_eq!((frame.kind, frame.payload.to_vec()), reset);
        assert_eq!(replica.record().requests().len(), 0, "the server gets no complete request");
    });
}
