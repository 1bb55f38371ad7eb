//! Requests that violate HTTP/1.1, above all requests that a server behind the proxy could read differently.

use super::with_steady_clients;
use crate::client::Client;
use crate::deadline::run;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks};
use crate::wire::{Message, Wire};
use http::Version;
use http_body_util::BodyExt;

async fn before_a_good_replica() -> (RawReplica, Proxy) {
    let replica = RawReplica::responding("good").await;
    let proxy = Setup::before(&[replica.address()]).start();
    (replica, proxy)
}

/// The response to these bytes.
async fn response_to(proxy: &Proxy, bytes: &str) -> Message {
    let mut wire = Wire::connect(proxy.address()).await;
    wire.send(bytes).await;
    wire.response().await
}

/// The requests that reached the replica, but for the steady ones.
fn reached(replica: &RawReplica) -> Vec<Message> {
    let all = replica.record().requests().into_iter();
    all.filter(|request| request.head.request().1 != "/steady").collect()
}

#[test]
fn what_is_no_request_is_rejected_with_400_and_goes_nowhere() {
    run(async {
        let (replica, proxy) = before_a_good_replica().await;
        let mut malformed = 0;
        with_steady_clients(&proxy, async {
            for bad in [
                "GARBAGE\r\n\r\n",
                "GET\r\n\r\n",
                "GET /\r\n\r\n",
                "GET / HTTP/2.0\r\nhost: h\r\n\r\n",
                "GET /a b HTTP/1.1\r\nhost: h\r\n\r\n",
                "GET /\x01 HTTP/1.1\r\nhost: h\r\n\r\n",
                "G@T / HTTP/1.1\r\nhost: h\r\n\r\n",
                "\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n",
                "GET / HTTP/1.1\r\nhost : h\r\n\r\n",
                "GET / HTTP/1.1\r\nhost: h\r\nno colon\r\n\r\n",
                "GET / HTTP/1.1\r\nhost: h\r\nx y: z\r\n\r\n",
                "GET / HTTP/1.1\r\nhost: h\r\nx: a\r\n folded: b\r\n\r\n",
                "GET / HTTP/1.1\r\nhost: h\r\nx: \0\r\n\r\n",
                "GET / HTTP/1.1\r\n\r\n",
                "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
                "GET http://a/ HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
                "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
                "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3, 4\r\n\r\nabcd",
                "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3,\r\n\r\nabc",
                "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: -1\r\n\r\n",
                "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: +3\r\n\r\nabc",
                "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 0x3\r\n\r\nabc",
                "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 99999999999999999999\r\n\r\n",
                "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
                "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
                "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
                "POST / HTTP/1.0\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            ] {
                let response = response_to(&proxy, bad).await;
                assert_eq!(response.head.status(), 400, "{bad:?}");
                malformed += 1;
                let error = response.head.get("curtail-error").expect("the name of what is wrong");
                assert!(matches!(error, "bad_request" | "bad_host"), "{bad:?}: {error}");
                let reason = format!("curtail: {error}: ");
                assert!(response.body.starts_with(reason.as_bytes()), "{bad:?}: {response:?}");
            }
        })
        .await;
        let metrics = proxy.metrics().await;
        assert_eq!(
            metrics.sum("curtail_requests_malformed_total", &[("listener", "in")]),
            malformed
        );
        assert_eq!(reached(&replica).len(), 0, "{:?}", reached(&replica));
    });
}

#[test]
fn codings_that_are_not_understood_are_not_passed_on_under_another_name() {
    run(async {
        let (replica, proxy) = before_a_good_replica().await;
        for coding in ["gzip, chunked", "chunked, chunked", "chunked\r\ntransfer-encoding: chunked"]
        {
            let bad = format!(
                "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: {coding}\r\n\r\n0\r\n\r\n"
            );
            let response = response_to(&proxy, &bad).await.head;
            let rejection = (response.status(), response.get("curtail-error"));
            assert_eq!(rejection, (501, Some("bad_transfer_encoding")), "{coding:?}");
        }
        assert_eq!(reached(&replica).len(), 0, "{:?}", reached(&replica));
    });
}

#[test]
fn two_ways_to_frame_a_body_become_one() {
    run(async {
        // RFC 9112, section 6.1: the chunks count, and the length goes. A server that believed the length would take
        // what follows for a request of its own.
        let smuggled = "GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n";
        for fields in [
            "content-length: 5\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 5",
        ] {
            let (replica, proxy) = before_a_good_replica().await;
            let bytes = format!(
                "POST / HTTP/1.1\r\nhost: h\r\n{fields}\r\n\r\n{:x}\r\n{smuggled}\r\n0\r\n\r\n",
                smuggled.len()
            );
            let response = response_to(&proxy, &bytes).await;
            assert_eq!(response.head.status(), 200);
            let reached = reached(&replica);
            assert_eq!(reached.len(), 1, "{reached:?}");
            assert_eq!(reached[0].head.get("content-length"), None, "{:?}", reached[0].head);
            assert_eq!(reached[0].head.get("transfer-encoding"), Some("chunked"));
            assert_eq!(reached[0].body, smuggled);
        }
    });
}

#[test]
fn a_body_with_two_framings_has_one_for_an_http_2_replica() {
    run(async {
        let replica = Replica::start(Speaks::Http2, |request| async move {
            let body = request.into_body().collect().await.expect("a whole body").to_bytes();
            http::Response::new(crate::body::whole(body))
        })
        .await;
        let proxy =
            Setup::before(&[replica.address()]).upstream("connect: {protocol: http2}").start();
        let bytes = "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\
                     transfer-encoding: chunked\r\n\r\n9\r\nall of it\r\n0\r\n\r\n";
        let response = response_to(&proxy, bytes).await;
        assert_eq!((response.head.status(), &*response.body), (200, &b"all of it"[..]));
        assert_eq!(replica.record().only().get("content-length"), None);
    });
}

#[test]
fn a_connection_header_that_names_a_framing_field_is_rejected() {
    run(async {
        for protocol in ["http1", "http2"] {
            let replica = RawReplica::responding("never given").await;
            let proxy = Setup::before(&[replica.address()])
                .upstream(&format!("connect: {{protocol: {protocol}}}"))
                .start();
            for (named, body) in [
                (
                    "transfer-encoding",
                    "content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                ),
                ("Transfer-Encoding", "transfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
                ("close, Content-Length", "content-length: 3\r\n\r\nabc"),
                ("keep-alive\r\nconnection: x, content-length", "\r\n"),
            ] {
                let bad = format!("POST / HTTP/1.1\r\nhost: h\r\nconnection: {named}\r\n{body}");
                let response = response_to(&proxy, &bad).await;
                let rejection = (response.head.status(), response.head.get("curtail-error"));
                assert_eq!(rejection, (400, Some("bad_request")), "{named:?}: {response:?}");
            }
            assert_eq!(replica.record().connections(), 0, "a bad request was forwarded");
        }
    });
}

#[test]
fn the_same_length_twice_is_forwarded_once() {
    run(async {
        for lengths in ["3\r\ncontent-length: 3", "3, 3", "3 ,\t3\r\ncontent-length: 3"] {
            let (replica, proxy) = before_a_good_replica().await;
            let bytes =
                format!("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {lengths}\r\n\r\nabc");
            assert_eq!(response_to(&proxy, &bytes).await.head.status(), 200, "{lengths:?}");
            let reached = reached(&replica);
            assert_eq!(reached[0].head.get("content-length"), Some("3"));
            assert_eq!(reached[0].body, "abc");
        }
    });
}

#[test]
fn a_body_that_is_no_body_is_the_clients_fault() {
    run(async {
        let (replica, proxy) = before_a_good_replica().await;
        with_steady_clients(&proxy, async {
            for chunks in [
                "zz\r\nabc\r\n",
                "ffffffffffffffffff\r\nabc",
                "3\r\nabcd\r\n0\r\n\r\n",
                "-3\r\nabc\r\n",
            ] {
                // What follows a malformed chunk is no request, even if it looks like one.
                let bad = format!(
                    "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n\
                     GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"
                );
                let mut wire = Wire::connect(proxy.address()).await;
                wire.send(bad).await;
                let response = wire.response().await.head;
                let rejection = (response.status(), response.get("curtail-error"));
                assert_eq!(rejection, (400, Some("client_broken")), "{chunks:?}");
                assert_eq!(response.get("connection"), Some("close"), "{chunks:?}");
                assert!(wire.read_head().await.is_ok_and(|next| next.is_none()), "{chunks:?}");
            }
        })
        .await;
        assert_eq!(reached(&replica).len(), 0, "{:?}", reached(&replica));
    });
}

#[test]
fn a_client_that_closes_in_the_middle_is_forgotten() {
    run(async {
        let (replica, proxy) = before_a_good_replica().await;
        with_steady_clients(&proxy, async {
            for begun in [
                "",
                "G",
                "GET / HTTP/1.1\r\nho",
                "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nhalf",
                "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf",
            ] {
                for hard in [false, true] {
                    let mut wire = Wire::connect(proxy.address()).await;
                    wire.send(begun).await;
                    if hard {
                        wire.reset();
                    } else {
                        wire.close_write().await;
                        wire.read_to_close().await;
                    }
                }
            }
        })
        .await;
        proxy
            .until(|m| m.in_flight() == 0 && m.sum("curtail_client_connections_open", &[]) == 0)
            .await;
        assert_eq!(reached(&replica).len(), 0, "{:?}", reached(&replica));
    });
}

#[test]
fn a_client_that_closes_its_half_has_gone() {
    run(async {
        // A half-close and a full one look alike from here, and a client that has gone must free its place
        // in every queue: so it is taken for the latter.
        let replica = RawReplica::silent().await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        replica.record().until(|record| record.requests().len() == 1).await;
        wire.close_write().await;
        assert_eq!(wire.read_to_close().await, "");
        proxy.until(|metrics| metrics.in_flight() == 0).await;
    });
}

#[test]
fn what_has_no_route_or_no_meaning_here_is_named() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let proxy = Setup::before(&[replica.address()]).route("host: served.test").start();
        for (request, status, error) in [
            ("GET / HTTP/1.1\r\nhost: other.test\r\n\r\n", 404, "no_route"),
            ("GET http://other.test/ HTTP/1.1\r\nhost: served.test\r\n\r\n", 404, "no_route"),
            (
                "CONNECT served.test:443 HTTP/1.1\r\nhost: served.test\r\n\r\n",
                501,
                "connect_unsupported",
            ),
            ("CONNECT / HTTP/1.1\r\nhost: served.test\r\n\r\n", 501, "connect_unsupported"),
        ] {
            let response = response_to(&proxy, request).await;
            assert_eq!(response.head.status(), status, "{request:?}");
            assert_eq!(response.head.get("curtail-error"), Some(error), "{request:?}");
            assert_eq!(response.body, format!("curtail: {error}\n"), "for people");
        }
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        assert_eq!(client.get("/").await.error(), Some("no_route"));
        assert_eq!(replica.record().requests().len(), 0);
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_requests_unrouted_total", &[("listener", "in")]), 3);
    });
}
