//! Interim responses: those before the final one (RFC 9110, section 15.2; RFC 8297).

use crate::client::Client;
use crate::deadline::run;
use crate::frames::{self, DATA, END_HEADERS, END_STREAM, Frames, HEADERS, RST_STREAM};
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::{RawReplica, response};
use crate::wire::Wire;
use http::{StatusCode, Version};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\
                     connection: x-hop\r\nx-hop: 1\r\ncontent-length: 7\r\n\r\n";

/// A replica that sends these interim responses before its final response.
async fn hinting(interim: &'static str) -> (RawReplica, Proxy) {
    let replica = RawReplica::start(move |mut wire, record, _| async move {
        while record.read(&mut wire).await.is_some() {
            wire.send(interim).await;
            wire.send(response("here")).await;
        }
    })
    .await;
    let proxy = Setup::before(&[replica.address()]).upstream("hedge: false").start();
    (replica, proxy)
}

#[test]
fn early_hints_reach_the_client_before_the_response() {
    run(async {
        // The replica sends the final response only when the client has its hints.
        let go_on = std::sync::Arc::new(tokio::sync::Notify::new());
        let waits = std::sync::Arc::clone(&go_on);
        let replica = RawReplica::start(move |mut wire, record, _| {
            let waits = std::sync::Arc::clone(&waits);
            async move {
                while record.read(&mut wire).await.is_some() {
                    wire.send(HINTS).await;
                    waits.notified().await;
                    wire.send(response("here")).await;
                }
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).upstream("hedge: false").start();
        let mut wire = Wire::connect(proxy.address()).await;
        for _ in 0..2 {
            wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
            let hints = wire.read_head().await.expect("the connection holds").expect("hints");
            assert_eq!(hints.start, "HTTP/1.1 103 Early Hints");
            let link = ("link".to_owned(), "</style.css>; rel=preload".to_owned());
            assert_eq!(hints.fields, [link], "no hop-by-hop header and no content-length");
            go_on.notify_one();
            let response = wire.response().await;
            assert_eq!((response.head.status(), &*response.body), (200, &b"here"[..]));
        }
    });
}

#[test]
fn interim_responses_except_continue_are_forwarded_in_order() {
    run(async {
        let (_replica, proxy) = hinting(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\
             HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </b>\r\n\r\n\
             HTTP/1.1 199 Odd\r\n\r\n",
        )
        .await;
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc").await;
        let mut seen = Vec::new();
        loop {
            let head = wire.read_head().await.expect("the connection holds").expect("a head");
            let status = head.status();
            seen.push((status, head.get("link").map(str::to_owned)));
            if status >= 200 {
                break;
            }
        }
        let link = |link: &str| Some(link.to_owned());
        assert_eq!(
            seen,
            [(102, None), (103, link("</a>")), (103, link("</b>")), (199, None), (200, None)]
        );
    });
}

#[test]
fn a_client_that_waits_to_send_its_body_gets_continue_before_the_hints() {
    run(async {
        let (replica, proxy) = hinting(HINTS).await;
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(
            "POST / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\n",
        )
        .await;
        let head = wire.read_head().await.expect("the connection holds").expect("a head");
        assert_eq!(head.status(), 100);
        wire.send("abc").await;
        let head = wire.read_head().await.expect("the connection holds").expect("a head");
        assert_eq!(head.status(), 103);
        assert_eq!(wire.response().await.body, "here");
        assert_eq!(replica.record().requests()[0].body, "abc");
    });
}

#[test]
fn clients_without_interim_responses_get_none() {
    run(async {
        let (_replica, proxy) = hinting(HINTS).await;
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.0\r\n\r\n").await;
        let response = wire.response().await;
        assert_eq!((response.head.status(), &*response.body), (200, &b"here"[..]));
        // hyper's server cannot send one over HTTP/2.
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
    });
}

#[test]
fn a_failed_attempt_is_replaced_even_after_its_hints() {
    run(async {
        let failing = RawReplica::start(|mut wire, record, nth| async move {
            while record.read(&mut wire).await.is_some() {
                wire.send(HINTS).await;
                if nth == 0 {
                    return;
                }
                wire.send(response("here")).await;
            }
        })
        .await;
        let proxy = Setup::before(&[failing.address()])
            .upstream("hedge: false\nretry: {backoff: 1ms}")
            .start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        for _ in 0..2 {
            let head = wire.read_head().await.expect("the connection holds").expect("hints");
            assert_eq!(head.status(), 103);
        }
        assert_eq!(wire.response().await.body, "here");
    });
}

/// A head that a replica sends over HTTP/2.
type Head = &'static [(&'static str, &'static str)];

const PROTOCOL_ERROR: u32 = 1;
const ENHANCE_YOUR_CALM: u32 = 11;

/// A replica that sends these heads over HTTP/2 when it has read a request. It reports the reason of each stream
/// reset.
async fn over_http2(heads: &'static [Head]) -> (SocketAddr, mpsc::Receiver<u32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    let (tell, resets) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut frames = Frames::accept(stream).await.expect("the proxy is there");
                while let Some(frame) = frames.read().await {
                    match frame.kind {
                        RST_STREAM => {
                            let reason = frame.payload.first_chunk().expect("four bytes");
                            tell.send(u32::from_be_bytes(*reason)).await.ok();
                        }
                        HEADERS | DATA if frame.flags & END_STREAM != 0 => {
                            for head in heads {
                                let fields = frames::fields(head);
                                frames.send(HEADERS, END_HEADERS, frame.stream, &fields).await;
                            }
                            if heads.last().is_some_and(|head| head[0].1 == "200") {
                                frames.send(DATA, END_STREAM, frame.stream, b"here").await;
                            }
                        }
                        _ => {}
                    }
                }
            });
        }
    });
    (address, resets)
}

#[test]
fn interim_responses_of_an_http2_replica_reach_the_client() {
    run(async {
        let (replica, _resets) = over_http2(&[
            &[(":status", "100")],
            &[(":status", "103"), ("link", "</a>")],
            &[(":status", "103"), ("link", "</b>")],
            &[(":status", "200")],
        ])
        .await;
        let proxy =
            Setup::before(&[replica]).upstream("hedge: false\nconnect: {protocol: http2}").start();
        let mut wire = Wire::connect(proxy.address()).await;
        for request in [
            "GET / HTTP/1.1\r\nhost: h\r\n\r\n",
            "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc",
        ] {
            wire.send(request).await;
            for link in ["</a>", "</b>"] {
                let hints = wire.read_head().await.expect("the connection holds").expect("hints");
                assert_eq!((hints.status(), hints.get("link")), (103, Some(link)));
            }
            let response = wire.response().await;
            assert_eq!((response.head.status(), &*response.body), (200, &b"here"[..]));
        }
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        assert_eq!(client.get("/").await.body, "here");
    });
}

#[test]
fn hints_of_an_http2_replica_reach_the_client_before_the_response() {
    run(async {
        let (replica, _resets) = over_http2(&[&[(":status", "103"), ("link", "</a>")]]).await;
        let proxy =
            Setup::before(&[replica]).upstream("hedge: false\nconnect: {protocol: http2}").start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        let hints = wire.read_head().await.expect("the connection holds").expect("hints");
        assert_eq!((hints.status(), hints.get("link")), (103, Some("</a>")));
    });
}

#[test]
fn a_replica_that_switches_protocols_over_http2_fails_at_once() {
    run(async {
        let (replica, mut resets) = over_http2(&[&[(":status", "101")]]).await;
        // Far longer than this test may take.
        let proxy = Setup::before(&[replica])
            .upstream("hedge: false\nretry: false\ntimeout: 10m\nconnect: {protocol: http2}")
            .start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        let response = wire.response().await;
        assert_eq!(
            (response.head.status(), response.head.get("curtail-error")),
            (502, Some("broken"))
        );
        assert_eq!(resets.recv().await, Some(PROTOCOL_ERROR));
    });
}

#[test]
fn endless_interim_responses_over_http2_fail_their_attempt() {
    run(async {
        let link = "x".repeat(8 << 10).leak();
        let hints: Head = vec![(":status", "103"), ("link", &*link)].leak();
        let (replica, mut resets) = over_http2(vec![hints; 9].leak()).await;
        let proxy = Setup::before(&[replica])
            .upstream("hedge: false\nretry: false\ntimeout: 10m\nconnect: {protocol: http2}")
            .start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.0\r\n\r\n").await;
        let response = wire.response().await;
        assert_eq!(
            (response.head.status(), response.head.get("curtail-error")),
            (502, Some("broken"))
        );
        assert_eq!(resets.recv().await, Some(ENHANCE_YOUR_CALM));
    });
}
