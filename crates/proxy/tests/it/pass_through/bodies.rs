//! Bodies in both directions: as long as they like, passed on as they come, framed as they were.

use super::{Chain, PAIRS};
use crate::body::{self, Progress};
use crate::client::{Client, FullResponse};
use crate::deadline::run;
use crate::proxy::Setup;
use crate::raw_replica::{self, RawReplica, Refusing};
use crate::replica::ok;
use crate::wire::Wire;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};
use http_body_util::BodyExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

const LONG_BYTES: u64 = 200 << 20;

/// What may lie between a sender and a receiver that does not read: the buffers of four sockets, two
/// flow-control windows and the proxy's own bounds. Far from [`LONG_BYTES`].
const BETWEEN_BYTES_MAX: u64 = 64 << 20;

/// A replica that responds before it has read the body.
async fn early() -> RawReplica {
    RawReplica::start(|mut wire, _, _| async move {
        while let Ok(Some(_)) = wire.read_head().await {
            wire.send(raw_replica::response("early")).await;
        }
    })
    .await
}

#[test]
fn a_body_that_comes_after_the_response_is_read_and_the_connection_stays_open() {
    run(async {
        let replica = early().await;
        let proxy = Setup::before(&[replica.address()]).upstream("retry: false").start();
        let mut wire = Wire::connect(proxy.address()).await;
        for _ in 0..3 {
            wire.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n").await;
            let response = wire.response().await;
            assert_eq!(
                (response.body.as_ref(), response.head.get("connection")),
                (&b"early"[..], None)
            );
            wire.send("0123456789").await;
        }
    });
}

#[test]
fn a_response_before_the_end_of_chunks_announces_that_the_connection_closes() {
    run(async {
        let replica = early().await;
        let proxy = Setup::before(&[replica.address()]).upstream("retry: false").start();
        // The proxy responds itself. Nobody reads the body, whose end has arrived.
        let whole =
            "POST / HTTP/1.1\r\nhost: a b\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n";
        let mut wire = Wire::connect(proxy.address()).await;
        for _ in 0..3 {
            wire.send(whole).await;
            let response = wire.response().await;
            assert!((400..500).contains(&response.head.status()));
            assert_eq!(response.head.get("connection"), None);
        }
        wire.send("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n").await;
        let response = wire.response().await;
        assert_eq!(response.head.get("connection").expect("it closes"), "close");
        assert_eq!(response.body, "early");
        // A long body whose length is known, although most of it has arrived.
        let mut wire = Wire::connect(proxy.address()).await;
        let head = "POST / HTTP/1.1\r\nhost: a b\r\ncontent-length: 70000\r\n\r\n";
        wire.send(format!("{head}{}", "x".repeat(66_000))).await;
        assert_eq!(wire.response().await.head.get("connection").expect("it closes"), "close");
    });
}

#[test]
fn a_body_that_does_not_come_does_not_delay_the_drain() {
    run(async {
        let replica = early().await;
        let proxy = Setup::before(&[replica.address()])
            .upstream("retry: false")
            .top("limits: {header_timeout: 1h}")
            .start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n").await;
        assert_eq!(wire.response().await.body, "early");
        // Far longer than the test may take.
        proxy.stop(Duration::from_secs(300)).await.expect("it stops");
        assert_eq!(wire.read_to_close().await, "");
    });
}

#[test]
fn a_response_before_a_long_body_announces_that_the_connection_closes() {
    run(async {
        let replica = early().await;
        let proxy = Setup::before(&[replica.address()]).upstream("retry: false").start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 100000\r\n\r\n").await;
        let response = wire.response().await;
        assert_eq!(response.body, "early");
        assert_eq!(response.head.get("connection"), Some("close"));
    });
}

#[test]
fn two_hundred_megabytes_each_way_are_streamed_and_never_buffered() {
    run(async {
        for pair in [PAIRS[0], PAIRS[3]] {
            let (up, down) = (Arc::new(Progress::default()), Arc::new(Progress::default()));
            let (handed, responses) = (Arc::clone(&up), Arc::clone(&down));
            let mut chain = Chain::start(pair, move |request| {
                let (handed, responses) = (Arc::clone(&handed), Arc::clone(&responses));
                async move {
                    // Nothing is read until nothing moves any more: all that was handed is somewhere between.
                    let between = handed.until_still().await;
                    assert!(
                        between < BETWEEN_BYTES_MAX,
                        "{between} bytes are buffered on the way up"
                    );
                    let read = body::check_long(request.into_body()).await;
                    assert_eq!(read.expect("a whole body"), LONG_BYTES);
                    Response::new(body::long(LONG_BYTES, &responses))
                }
            })
            .await;
            let request = chain.client.request_with("POST", "/", body::long(LONG_BYTES, &up));
            let response = chain.client.try_send(request).await.expect("a response");
            assert_eq!(response.status(), StatusCode::OK);
            let between = down.until_still().await;
            assert!(between < BETWEEN_BYTES_MAX, "{between} bytes are buffered on the way down");
            let read = body::check_long(response.into_body()).await;
            assert_eq!(read.expect("a whole body"), LONG_BYTES);
        }
    });
}

#[test]
fn bodies_of_unknown_length_and_trailers_pass_both_ways() {
    run(async {
        for pair in PAIRS {
            let mut chain = Chain::start(pair, |request| async move {
                let collected = request.into_body().collect().await.expect("a whole body");
                let sum = collected.trailers().and_then(|t| t.get("x-sum")).cloned();
                let (sender, body) = body::channel();
                tokio::spawn(async move {
                    for piece in ["a", "bc", "def"] {
                        assert!(sender.data(piece).await);
                    }
                    let sum = sum.unwrap_or(HeaderValue::from_static("no trailers"));
                    sender
                        .trailers(HeaderMap::from_iter([("x-seen".parse().expect("name"), sum)]))
                        .await;
                });
                let mut response = Response::new(body);
                response.headers_mut().insert("trailer", HeaderValue::from_static("x-seen"));
                let body = String::from_utf8(collected.to_bytes().to_vec()).expect("text");
                response.headers_mut().insert("x-body", body.parse().expect("text"));
                response
            })
            .await;
            let (sender, body) = body::channel();
            let feeding = tokio::spawn(async move {
                for piece in ["12", "3", "456"] {
                    assert!(sender.data(piece).await);
                }
                let sum = HeaderMap::from_iter([(
                    "x-sum".parse().expect("name"),
                    HeaderValue::from_static("21"),
                )]);
                sender.trailers(sum).await;
            });
            let mut request = chain.client.request_with("POST", "/", body);
            request.headers_mut().insert("trailer", HeaderValue::from_static("x-sum"));
            request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
            let response = chain.client.send(request).await;
            feeding.await.expect("fed");
            assert_eq!(response.get("x-body"), Some("123456"));
            assert_eq!(response.body, "abcdef");
            let trailers = response.trailers.expect("trailers");
            assert_eq!(trailers.get("x-seen").expect("named"), "21");
        }
    });
}

#[test]
fn trailers_go_to_clients_that_understand_them() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            while record.read(&mut wire).await.is_some() {
                let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                wire.send(format!("{head}4\r\nbody\r\n0\r\nx-seen: 1\r\n\r\n")).await;
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        for (te, trailers) in [("te: trailers\r\n", "x-seen: 1\r\n\r\n"), ("", "\r\n")] {
            wire.send(format!("GET / HTTP/1.1\r\nhost: h\r\n{te}\r\n")).await;
            wire.read_head().await.expect("held").expect("a response");
            assert_eq!(wire.read_chunk().await.expect("held"), "body");
            assert_eq!(wire.read_chunk().await.expect("held"), "");
            assert_eq!(wire.read_exact(trailers.len()).await.expect("held"), trailers);
        }
    });
}

#[test]
fn forbidden_trailers_are_removed_and_others_forwarded_over_any_version() {
    const TRAILERS: &str = "0\r\nconnection: x\r\nkeep-alive: 5\r\nte: gzip\r\nx-sum: 21\r\n\r\n";
    run(async {
        for behind in [Version::HTTP_11, Version::HTTP_2] {
            let chain = Chain::start((Version::HTTP_11, behind), |request| async move {
                let collected = request.into_body().collect().await.expect("a whole body");
                let trailers = collected.trailers().expect("trailers");
                let names: Vec<_> = trailers.keys().map(http::HeaderName::as_str).collect();
                assert_eq!(names, ["x-sum"]);
                ok("taken")
            })
            .await;
            let mut wire = Wire::connect(chain.proxy.address()).await;
            let head = "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n";
            wire.send(format!("{head}4\r\nbody\r\n{TRAILERS}")).await;
            let response = wire.response().await;
            assert_eq!((response.head.status(), &*response.body), (200, &b"taken"[..]));
        }
        let replica = RawReplica::start(|mut wire, record, _| async move {
            while record.read(&mut wire).await.is_some() {
                let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                wire.send(format!("{head}4\r\nbody\r\n{TRAILERS}")).await;
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let response = Client::connect(proxy.address(), Version::HTTP_2).await.get("/").await;
        assert_eq!(response.body, "body");
        let trailers = response.trailers.expect("trailers");
        let names: Vec<_> = trailers.keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["x-sum"]);
    });
}

#[test]
fn a_body_of_known_length_keeps_it() {
    run(async {
        for pair in PAIRS {
            let mut chain = Chain::start(pair, |request| async move {
                let read = request.into_body().collect().await.expect("a whole body").to_bytes();
                let len = HeaderValue::from(read.len());
                let mut response = Response::new(body::whole(read));
                response.headers_mut().insert("content-length", len);
                response
            })
            .await;
            for text in ["", "hello"] {
                let mut request = chain.client.request_with("PUT", "/", body::whole(text));
                let len = HeaderValue::from(text.len());
                request.headers_mut().insert("content-length", len.clone());
                let response = chain.client.send(request).await;
                assert_eq!(response.body, text);
                assert_eq!(response.headers.get("content-length"), Some(&len));
                let seen = chain.replica.record().seen().pop().expect("a request");
                assert_eq!(seen.headers.get("content-length"), Some(&len), "{seen:?}");
                assert_eq!(seen.get("transfer-encoding"), None, "{seen:?}");
            }
        }
    });
}

#[test]
fn pieces_are_passed_on_as_they_come_in_both_directions() {
    run(async {
        for pair in PAIRS {
            // Each side sends its next piece only after the other has got the one before.
            let (got, mut heard) = mpsc::channel::<bytes::Bytes>(1);
            let (respond_with, responses) = oneshot::channel::<body::Body>();
            let responses = Mutex::new(Some(responses));
            let mut chain = Chain::start(pair, move |request| {
                let responses = responses.lock().expect("no panic").take().expect("one request");
                let got = got.clone();
                async move {
                    let mut body = request.into_body();
                    tokio::spawn(async move {
                        while let Some(Ok(frame)) = body.frame().await {
                            let Ok(data) = frame.into_data() else { continue };
                            got.send(data).await.expect("the test listens");
                        }
                        got.send(bytes::Bytes::new()).await.expect("the test listens");
                    });
                    Response::new(responses.await.expect("a body"))
                }
            })
            .await;
            let (up, body) = body::channel();
            let request = chain.client.request_with("POST", "/", body);
            let (down, response) = body::channel();
            assert!(respond_with.send(response).is_ok(), "the replica waits");
            let asking = chain.client.try_send(request);
            let (response, ()) = tokio::join!(asking, async {
                assert!(up.data("up 0").await);
                assert_eq!(heard.recv().await.expect("a piece"), "up 0");
            });
            let mut response = response.expect("a response").into_body();
            for nth in 1..10 {
                let piece = format!("down {nth}");
                assert!(down.data(piece.clone()).await);
                let frame = response.frame().await.expect("a frame").expect("a good one");
                assert_eq!(frame.into_data().expect("data"), piece);
                let piece = format!("up {nth}");
                assert!(up.data(piece.clone()).await);
                assert_eq!(heard.recv().await.expect("a piece"), piece);
            }
            drop((up, down));
            let rest = response.collect().await.expect("a good end").to_bytes();
            assert_eq!(rest, "");
            assert_eq!(heard.recv().await.expect("the end"), "");
        }
    });
}

#[test]
fn a_client_that_expects_continue_is_draining() {
    run(async {
        let replica = RawReplica::responding("done").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("PUT / HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n")
            .await;
        let go_on = wire.read_head().await.expect("held").expect("an interim response");
        assert_eq!(go_on.status(), 100);
        wire.send("body").await;
        assert_eq!(wire.response().await.body, "done");
        let seen = &replica.record().requests()[0];
        assert_eq!((seen.head.get("expect"), &*seen.body), (None, &b"body"[..]));
    });
}

#[test]
fn a_response_that_comes_before_the_body_was_read_is_the_response() {
    run(async {
        for pair in PAIRS {
            let mut chain = Chain::start(pair, |request| async move {
                // RFC 9112, section 9.6: a server that responds early keeps reading, or its response may be lost.
                tokio::spawn(body::check_long(request.into_body()));
                let mut response = ok("too much");
                *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
                response
            })
            .await;
            let handed = Arc::new(Progress::default());
            let request = chain.client.request_with("POST", "/", body::long(8 << 20, &handed));
            let response = chain.client.try_send(request).await.expect("a response");
            let response = FullResponse::read(response).await.expect("a whole response");
            assert_eq!((response.status.as_u16(), &*response.body), (413, &b"too much"[..]));
            assert_eq!(chain.replica.record().count(), 1);
        }
    });
}

#[test]
fn a_client_may_finish_its_upload_before_it_reads_an_early_response() {
    run(async {
        let refusing = Refusing::new();
        let proxy = Setup::before(&[refusing.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        let body = vec![b'x'; 1 << 20];
        wire.send(format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", body.len()))
            .await;
        // The proxy has responded, and would close.
        proxy
            .until(|metrics| metrics.sum("curtail_requests_total", &[("status", "5xx")]) == 1)
            .await;
        wire.send(body).await;
        assert_eq!(wire.response().await.head.status(), 503);
        wire.close_write().await;
        assert!(wire.read_head().await.expect("closed in order, not reset").is_none());
    });
}

#[test]
fn interim_responses_of_a_replica_are_not_the_response() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            while record.read(&mut wire).await.is_some() {
                wire.send("HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n").await;
                wire.send("HTTP/1.1 100 Continue\r\n\r\n").await;
                wire.send(raw_replica::response("final")).await;
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        for _ in 0..2 {
            wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
            let interim = wire.read_head().await.expect("the connection holds").expect("a head");
            assert_eq!(interim.status(), 103);
            let response = wire.response().await;
            assert_eq!((response.head.status(), &*response.body), (200, &b"final"[..]));
            assert_eq!(response.head.get("link"), None);
        }
    });
}
