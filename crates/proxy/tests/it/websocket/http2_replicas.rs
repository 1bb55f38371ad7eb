//! WebSockets before replicas of HTTP/2, of clients of both versions.

use super::{HTTP1_ACCEPT, HTTP1_HANDSHAKE, Http2Client, assert_opened, handshake};
use crate::body::Body;
use crate::certificates::Authority;
use crate::deadline::run;
use crate::metrics::Metrics;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Seen, Speaks, ok, status};
use crate::wire::Wire;
use bytes::Bytes;
use h2::Reason;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Opens a WebSocket that sends every byte back, and a last word when the client has ended; other requests get a
/// response.
async fn respond(mut request: Request<Incoming>) -> Response<Body> {
    if request.method() != Method::CONNECT && !request.headers().contains_key("upgrade") {
        return ok("plain");
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgrade.await.expect("the proxy agrees"));
        while let Ok(byte) = io.read_u8().await {
            io.write_u8(byte).await.expect("the proxy reads");
        }
        io.write_all(b"the last word").await.expect("the proxy reads");
        io.shutdown().await.expect("the proxy reads");
    });
    let mut response = status(StatusCode::OK);
    response.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("chat"));
    response
}

fn before(replica: &Replica) -> Proxy {
    Setup::before(&[replica.address()]).upstream("connect: {protocol: http2}").start()
}

fn assert_connect(seen: &Seen) {
    assert_eq!((&seen.method, seen.protocol.as_deref()), (&Method::CONNECT, Some("websocket")));
    assert_eq!(seen.uri, "http://service.test/chat?room=1");
    assert_eq!(seen.get("sec-websocket-version"), Some("13"));
    for gone in ["sec-websocket-key", "upgrade", "connection", "content-length"] {
        assert_eq!(seen.get(gone), None, "{seen:?}");
    }
}

/// Opens a WebSocket over HTTP/1.1, whose response it checks.
async fn open_http1(proxy: &Proxy) -> Wire {
    let mut wire = Wire::connect(proxy.address()).await;
    wire.send(format!("{HTTP1_HANDSHAKE}early ")).await;
    let agreed = wire.read_head().await.expect("held").expect("a response");
    assert_eq!(agreed.status(), 101, "{agreed:?}");
    assert_eq!(agreed.get("connection").map(str::to_lowercase).as_deref(), Some("upgrade"));
    assert_eq!(agreed.get("upgrade"), Some("websocket"));
    assert_eq!(agreed.get("sec-websocket-accept"), Some(HTTP1_ACCEPT));
    assert_eq!(agreed.get("content-length"), None);
    wire
}

#[test]
fn a_client_of_http_1_1_has_its_key_signed_by_the_proxy() {
    run(async {
        let replica = Replica::start(Speaks::Http2WebSockets, respond).await;
        let proxy = before(&replica);
        let mut wire = open_http1(&proxy).await;
        wire.send("and late").await;
        assert_eq!(wire.read_exact(14).await.expect("an echo"), "early and late");
        assert_connect(&replica.record().only());
        wire.close_write().await;
        assert_eq!(wire.read_to_close().await, "the last word");
        let metrics = proxy.until(|metrics| metrics.in_flight() == 0).await;
        assert_eq!(metrics.sum("curtail_requests_total", &[("status", "1xx")]), 1, "{metrics}");
    });
}

#[test]
fn both_sides_may_be_http_2() {
    run(async {
        let replica = Replica::start(Speaks::Http2WebSockets, respond).await;
        let proxy = before(&replica);
        let mut client = Http2Client::connect(proxy.address()).await;
        let (response, mut stream) = client.ask(handshake(), "early ").await;
        assert_opened(&response);
        stream.send("and late");
        assert_eq!(stream.read_exact(14).await, "early and late");
        assert_connect(&replica.record().only());
        stream.end();
        assert_eq!(stream.read_to_end().await, (Bytes::from("the last word"), None));
        proxy.until(|metrics| metrics.in_flight() == 0).await;
        // The connection to the replica carries further requests.
        assert_eq!(client.get().await.0.status(), StatusCode::OK);
        assert_eq!(replica.record().connections(), 1);
    });
}

#[test]
fn a_refusal_passes_with_its_body() {
    run(async {
        let replica = Replica::start(Speaks::Http2WebSockets, |_| async {
            let mut response = ok("forbidden");
            *response.status_mut() = StatusCode::FORBIDDEN;
            response
        })
        .await;
        let proxy = before(&replica);
        let mut client = Http2Client::connect(proxy.address()).await;
        let (response, stream) = client.ask(handshake(), "in vain").await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(stream.read_to_end().await.0, "forbidden");
        let mut wire = Wire::connect(proxy.address()).await;
        for _ in 0..2 {
            wire.send(HTTP1_HANDSHAKE).await;
            let response = wire.response().await;
            assert_eq!((response.head.status(), &*response.body), (403, &b"forbidden"[..]));
        }
        assert_eq!(replica.record().connections(), 2, "one for each worker");
    });
}

#[test]
fn a_replica_without_websockets_gets_a_plain_request() {
    run(async {
        let replica = Replica::responding(Speaks::Http2, "a page").await;
        let proxy = before(&replica);
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(HTTP1_HANDSHAKE).await;
        let response = wire.response().await;
        assert_eq!((response.head.status(), &*response.body), (200, &b"a page"[..]));
        let mut client = Http2Client::connect(proxy.address()).await;
        let (response, _) = client.ask(handshake(), "").await;
        // The status 200 would open the WebSocket.
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        assert_eq!(response.headers()["curtail-error"], "upgrade_declined");
        for seen in replica.record().seen() {
            assert_eq!((&seen.method, &seen.protocol), (&Method::GET, &None));
        }
    });
}

#[test]
fn a_replica_of_http_2_alone_without_websockets_does_not_fail_under_tls() {
    run(async {
        let authority = Authority::new();
        let issued = authority.issue("localhost");
        let replica = Replica::responding(Speaks::Tls(issued.server(&["h2"])), "a page").await;
        let keys = format!("connect: {{ca_file: {}}}", authority.file().display());
        let proxy = Setup::before_urls([replica.tls_url()]).upstream(&keys).start();
        let mut wire = Wire::connect(proxy.address()).await;
        let mut client = Http2Client::connect(proxy.address()).await;
        for _ in 0..5 {
            wire.send(HTTP1_HANDSHAKE).await;
            let response = wire.response().await;
            assert_eq!((response.head.status(), &*response.body), (200, &b"a page"[..]));
            let (response, _) = client.ask(handshake(), "").await;
            assert_eq!(response.headers()["curtail-error"], "upgrade_declined");
        }
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_attempts_failed_total", &[]), 0, "{metrics}");
        assert_eq!(metrics.sum("curtail_replica_ejections_total", &[]), 0, "{metrics}");
    });
}

#[test]
fn only_a_handshake_becomes_connect() {
    run(async {
        let replica = Replica::start(Speaks::Http2WebSockets, respond).await;
        let proxy = before(&replica);
        let other = HTTP1_HANDSHAKE.replacen("websocket", "other", 1);
        let post = HTTP1_HANDSHAKE.replacen("GET", "POST", 1);
        let no_key = HTTP1_HANDSHAKE.replacen("sec-websocket-key", "x-key", 1);
        let with_body = HTTP1_HANDSHAKE.replacen("\r\n\r\n", "\r\ncontent-length: 1\r\n\r\nx", 1);
        let mut wire = Wire::connect(proxy.address()).await;
        for request in [other, post, no_key, with_body] {
            wire.send(&request).await;
            assert_eq!(wire.response().await.body, "plain", "{request}");
        }
    });
}

#[test]
fn a_reset_of_the_replica_counts_against_it_and_one_of_the_client_reaches_it() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let proxy = Setup::before(&[address]).upstream("connect: {protocol: http2}").start();
        let (client, broken) = (Http2Client::connect(proxy.address()), |m: &Metrics| {
            m.sum("curtail_attempts_failed_total", &[("failure", "broken")])
        });
        let mut client = client.await;
        let opening = tokio::spawn(async move { (client.open().await, client) });
        let (stream, _) = listener.accept().await.expect("the proxy connects");
        let mut builder = h2::server::Builder::new();
        let handshake = builder.enable_connect_protocol().handshake::<_, Bytes>(stream).await;
        let mut replica = handshake.expect("an HTTP/2 connection");
        let (request, mut respond) = replica.accept().await.expect("a request").expect("valid");
        // The rest of the connection.
        let (accepted, mut requests) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(Ok(request)) = replica.accept().await {
                accepted.send(request).await.expect("the test goes on");
            }
        });
        let _sender = respond.send_response(Response::new(()), false).expect("it is open");
        let (mut left, mut client) = opening.await.expect("no panic");
        left.sender.send_reset(Reason::CANCEL);
        let reset = request.into_body().data().await.expect("a reset").expect_err("a reset");
        assert_eq!(reset.reason(), Some(Reason::CANCEL));
        let metrics = proxy.until(|metrics| metrics.in_flight() == 0).await;
        assert_eq!(broken(&metrics), 0, "{metrics}");

        let opening = tokio::spawn(async move { client.open().await });
        let (_request, mut respond) = requests.recv().await.expect("a request");
        let mut sender = respond.send_response(Response::new(()), false).expect("it is open");
        let stream = opening.await.expect("no panic");
        sender.send_reset(Reason::INTERNAL_ERROR);
        assert_eq!(stream.read_to_end().await.1, Some(Reason::CANCEL));
        let metrics = proxy.until(|metrics| metrics.in_flight() == 0).await;
        assert_eq!(broken(&metrics), 1, "{metrics}");
    });
}

#[test]
fn under_tls_an_open_http_2_connection_carries_websockets() {
    run(async {
        let authority = Authority::new();
        let issued = authority.issue("localhost");
        let speaks = Speaks::TlsWebSockets(issued.server(&["h2", "http/1.1"]));
        let replica = Replica::start(speaks, respond).await;
        let proxy = Setup::before_urls([replica.tls_url()])
            .workers(1)
            .upstream(&format!("connect: {{ca_file: {}}}", authority.file().display()))
            .start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(wire.response().await.body, "plain");
        let mut wire = open_http1(&proxy).await;
        assert_eq!(wire.read_exact(6).await.expect("an echo"), "early ");
        let versions: Vec<_> = replica.record().seen().iter().map(|seen| seen.version).collect();
        assert_eq!(versions, [Version::HTTP_2, Version::HTTP_2]);
        assert_eq!(replica.record().connections(), 1);
    });
}

/// The proxy does not know yet which protocols the replica speaks.
#[test]
fn under_tls_the_first_request_may_be_a_websocket() {
    run(async {
        for alpn in [&["h2"][..], &["h2", "http/1.1"]] {
            let authority = Authority::new();
            let issued = authority.issue("localhost");
            let replica = Replica::start(Speaks::TlsWebSockets(issued.server(alpn)), respond).await;
            let proxy = Setup::before_urls([replica.tls_url()])
                .workers(1)
                .upstream(&format!("connect: {{ca_file: {}}}", authority.file().display()))
                .start();
            let mut wire = open_http1(&proxy).await;
            assert_eq!(wire.read_exact(6).await.expect("an echo"), "early ");
            assert_eq!(replica.record().seen()[0].version, Version::HTTP_2, "{alpn:?}");
            assert_eq!(replica.record().connections(), 1, "{alpn:?}");
            let metrics = proxy.metrics().await;
            assert_eq!(metrics.sum("curtail_attempts_failed_total", &[]), 0, "{metrics}");
        }
    });
}

#[test]
fn two_proxies_in_a_row_speak_http_2_to_each_other() {
    run(async {
        let replica = super::echoing().await;
        let inner = Setup::before(&[replica.address()]).start();
        let outer =
            Setup::before(&[inner.address()]).upstream("connect: {protocol: http2}").start();
        let mut wire = open_http1(&outer).await;
        assert_eq!(wire.read_exact(6).await.expect("an echo"), "early ");
        wire.close_write().await;
        assert_eq!(wire.read_to_close().await, "the last word");
        let key = replica.record().requests()[0].head.get("sec-websocket-key").map(str::to_owned);
        assert_ne!(key.as_deref(), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    });
}
