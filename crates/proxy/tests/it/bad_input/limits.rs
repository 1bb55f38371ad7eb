//! Clients that want too much or are too slow: each bound ends in an error of its own.

use super::with_steady_clients;
use crate::body;
use crate::client::{Client, FullResponse};
use crate::deadline::run;
use crate::frames::{END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, request};
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::wire::Wire;
use http::{StatusCode, Version};

async fn hasty() -> (RawReplica, Proxy) {
    let replica = RawReplica::responding("good").await;
    let proxy = Setup::before(&[replica.address()])
        .top("limits: {header_timeout: 300ms, body_timeout: 200ms, headers: 16KiB}")
        .start();
    (replica, proxy)
}

#[test]
fn a_head_that_is_too_long_is_rejected_with_431_and_a_target_with_414() {
    run(async {
        let (replica, proxy) = hasty().await;
        with_steady_clients(&proxy, async {
            let long = format!("x: {}\r\n", "y".repeat(20_000));
            let many: String = (0..200).map(|nth| format!("x-{nth}: y\r\n")).collect();
            for fields in [long, many] {
                let mut wire = Wire::connect(proxy.address()).await;
                wire.send(format!("GET / HTTP/1.1\r\nhost: h\r\n{fields}\r\n")).await;
                let response = wire.response().await.head;
                let rejection = (response.status(), response.get("curtail-error"));
                assert_eq!(rejection, (431, Some("head_too_long")));
            }
            let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
            let mut request = client.request("GET", "/");
            let long = "y".repeat(20_000).parse().expect("text");
            request.headers_mut().insert("x", long);
            let response = client.send(request).await;
            assert_eq!(response.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
            // The connection goes on.
            assert_eq!(client.get("/steady").await.status, StatusCode::OK);
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).top("limits: {headers: 128KiB}").start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(format!("GET /{} HTTP/1.1\r\nhost: h\r\n\r\n", "y".repeat(70_000))).await;
        let response = wire.response().await.head;
        let rejection = (response.status(), response.get("curtail-error"));
        assert_eq!(rejection, (414, Some("target_too_long")));
        let targets = replica.record().requests();
        assert!(targets.iter().all(|request| request.head.request().1 == "/steady"));
    });
}

#[test]
fn a_client_that_is_too_slow_to_ask_is_sent_away() {
    run(async {
        let (_replica, proxy) = hasty().await;
        with_steady_clients(&proxy, async {
            for begun in ["", "PRI", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
                let mut wire = Wire::connect(proxy.address()).await;
                wire.send(begun).await;
                let received = wire.read_to_close().await;
                assert!(!received.starts_with(b"HTTP/1.1"), "{begun:?}: {received:?}");
            }
            let after_another = "GET / HTTP/1.1\r\nhost: h\r\n\r\nGET /";
            for (begun, is_kept) in
                [("G", false), ("GET / HTTP/1.1\r\nhost: h\r\n", false), (after_another, true)]
            {
                let mut wire = Wire::connect(proxy.address()).await;
                wire.send(begun).await;
                if is_kept {
                    assert_eq!(wire.response().await.head.status(), 200);
                }
                let response = wire.response().await.head;
                let rejection = (response.status(), response.get("curtail-error"));
                assert_eq!(rejection, (408, Some("client_slow")), "{begun:?}");
                assert_eq!(response.get("connection"), Some("close"));
                assert_eq!(wire.read_to_close().await, "");
            }
        })
        .await;
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_requests_malformed_total", &[]), 3);
        proxy.until(|m| m.sum("curtail_client_connections_open", &[]) == 0).await;
    });
}

#[test]
fn a_client_may_pause_between_requests_for_longer_than_within_one() {
    run(async {
        const GET: &str = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
        let replica = RawReplica::responding("good").await;
        let before = |limits| Setup::before(&[replica.address()]).top(limits).start();
        let proxy = before("limits: {header_timeout: 200ms, idle_timeout: 1h}");
        let mut paused = Wire::connect(proxy.address()).await;
        for _ in 0..2 {
            paused.send(GET).await;
            assert_eq!(paused.response().await.head.status(), 200);
            let mut slow = Wire::connect(proxy.address()).await;
            slow.send("GET /").await;
            assert_eq!(slow.response().await.head.status(), 408);
        }
        paused.send("GET /").await;
        assert_eq!(paused.response().await.head.status(), 408, "within a head it may not");
        let proxy = before("limits: {header_timeout: 1h, idle_timeout: 200ms}");
        let mut idle = Wire::connect(proxy.address()).await;
        idle.send(GET).await;
        assert_eq!(idle.response().await.head.status(), 200);
        assert_eq!(idle.read_to_close().await, "", "it has done nothing wrong");
    });
}

/// Reads to the end of a connection, and responds to nothing. Returns the types of the frames, and the payload of the
/// last one.
async fn read_to_end(mut frames: Frames) -> (Vec<u8>, Vec<u8>) {
    let (mut kinds, mut last) = (Vec::new(), Vec::new());
    while let Ok(frame) = frames.read_any().await {
        kinds.push(frame.kind);
        last = frame.payload;
    }
    (kinds, last)
}

#[test]
fn a_client_of_http_2_may_pause_before_its_first_request() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let before = |limits| Setup::before(&[replica.address()]).top(limits).start();
        let proxy = before("limits: {header_timeout: 200ms, idle_timeout: 1h}");
        let mut paused = Frames::connect(proxy.address()).await;
        for _ in 0..2 {
            let mut slow = Wire::connect(proxy.address()).await;
            slow.send("GET /").await;
            assert_eq!(slow.response().await.head.status(), 408);
        }
        let head = request("GET", "/");
        paused.send(HEADERS, END_HEADERS | END_STREAM, 1, &head).await;
        let response = paused.read().await.expect("the connection goes on");
        assert_eq!((response.kind, response.stream), (HEADERS, 1), "{response:?}");
        let mut slow = Frames::connect(proxy.address()).await;
        slow.send(HEADERS, END_STREAM, 1, &head).await;
        let (kinds, last) = read_to_end(slow).await;
        assert_eq!(
            (kinds.last(), &*last),
            (Some(&GOAWAY), &[0; 8][..]),
            "within a head it may not"
        );
        let proxy = before("limits: {header_timeout: 1h, idle_timeout: 200ms}");
        let (kinds, last) = read_to_end(Frames::connect(proxy.address()).await).await;
        assert!(kinds.ends_with(&[PING, GOAWAY]) && last == [0; 8], "{kinds:?} {last:?}");
    });
}

#[test]
fn a_client_that_sends_its_head_drop_by_drop_is_sent_away() {
    run(async {
        let (replica, proxy) = hasty().await;
        with_steady_clients(&proxy, async {
            let mut wire = Wire::connect(proxy.address()).await;
            wire.send("GET / HTTP/1.1\r\nhost: h\r\n").await;
            // As fast as it may drip, the time is that of the whole head.
            let mut drops = 0;
            while wire.write("x").await.is_ok() && drops < 1_000_000 {
                drops += 1;
                let look =
                    tokio::time::timeout(std::time::Duration::from_millis(10), wire.read_exact(1));
                if look.await.is_ok() {
                    break;
                }
            }
            assert!(drops < 1_000, "{drops} drops, 10 ms each, and still listened to");
        })
        .await;
        assert!(replica.record().requests().iter().all(|r| r.head.request().1 == "/steady"));
    });
}

#[test]
fn the_preface_of_http_2_may_come_byte_by_byte() {
    run(async {
        let (_replica, proxy) = hasty().await;
        let mut wire = Wire::connect(proxy.address()).await;
        for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
            wire.send([*byte]).await;
            tokio::task::yield_now().await;
        }
        // The server's own SETTINGS frame begins with its length, and its type is the fourth byte.
        let settings = wire.read_exact(9).await.expect("the server's preface");
        assert_eq!(settings[3], 4, "{settings:?}");
    });
}

#[test]
fn a_body_that_pauses_for_too_long_is_rejected_with_408() {
    run(async {
        for behind in ["", "connect: {protocol: http2}"] {
            let replica = crate::replica::Replica::start(
                if behind.is_empty() {
                    crate::replica::Speaks::Http1
                } else {
                    crate::replica::Speaks::Http2
                },
                |request| async move {
                    if request.method() == "POST" {
                        let read = http_body_util::BodyExt::collect(request.into_body()).await;
                        assert!(read.is_err(), "a part was given for the whole");
                    }
                    crate::replica::ok("good")
                },
            )
            .await;
            let proxy = Setup::before(&[replica.address()])
                .upstream(behind)
                .top("limits: {body_timeout: 200ms}")
                .start();
            with_steady_clients(&proxy, async {
                for version in [Version::HTTP_11, Version::HTTP_2] {
                    let mut client = Client::connect(proxy.address(), version).await;
                    let (sender, body) = body::channel();
                    let request = client.request_with("POST", "/", body);
                    let (response, _) = tokio::join!(client.try_send(request), sender.data("half"));
                    let response =
                        FullResponse::read(response.expect("a response")).await.expect("whole");
                    assert_eq!(response.status, StatusCode::REQUEST_TIMEOUT, "{response:?}");
                    assert_eq!(response.error(), Some("client_slow"));
                    drop(sender);
                }
            })
            .await;
            proxy.until(|metrics| metrics.in_flight() == 0).await;
        }
    });
}

#[test]
fn a_client_beyond_connections_max_waits_until_another_leaves() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let proxy = Setup::before(&[replica.address()]).top("limits: {connections_max: 3}").start();
        let mut first = Wire::connect(proxy.address()).await;
        first.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(first.response().await.head.status(), 200);
        // The two steady clients take the other two connections.
        with_steady_clients(&proxy, async {
            let mut waiting = Wire::connect(proxy.address()).await;
            waiting.send("GET /waited HTTP/1.1\r\nhost: h\r\n\r\n").await;
            proxy.until(|m| m.sum("curtail_client_connections_waited_total", &[]) > 0).await;
            let has_reached_replica = |path: &str| {
                replica.record().requests().iter().any(|request| request.head.request().1 == path)
            };
            assert!(
                !has_reached_replica("/waited"),
                "a fourth client is served although connections_max is 3"
            );
            drop(first);
            assert_eq!(waiting.response().await.head.status(), 200);
            assert!(has_reached_replica("/waited"));
        })
        .await;
    });
}
