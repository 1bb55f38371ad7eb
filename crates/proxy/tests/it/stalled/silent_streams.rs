//! Streams on which both sides may be silent for long: watches, subscriptions, gRPC calls.

use crate::body;
use crate::certificates::Authority;
use crate::client::Client;
use crate::deadline::run;
use crate::frames::{ACK, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, fields};
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks};
use crate::wire::Wire;
use http::{Response, StatusCode, Version};
use http_body_util::BodyExt;
use tokio::net::TcpListener;

/// A replica that echoes each piece of a request body.
async fn echoing(speaks: Speaks) -> Replica {
    Replica::start(speaks, |request| async move {
        let (sender, body) = body::channel();
        tokio::spawn(async move {
            let mut request_body = request.into_body();
            while let Some(Ok(frame)) = request_body.frame().await {
                let Ok(data) = frame.into_data() else { continue };
                if !sender.data(data).await {
                    return;
                }
            }
        });
        Response::new(body)
    })
    .await
}

/// Waits for the proxy's body timeout: until a client that starts a body now and pauses is rejected.
async fn body_timeout_passes(proxy: &Proxy) {
    let mut wire = Wire::connect(proxy.address()).await;
    wire.send("POST /slow HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nb").await;
    let rejection = wire.response().await.head;
    assert_eq!((rejection.status(), rejection.get("curtail-error")), (408, Some("client_slow")));
}

#[test]
fn a_stream_outlives_silence_once_its_response_has_begun() {
    run(async {
        let pairs = [
            (Version::HTTP_11, Speaks::Http1),
            (Version::HTTP_11, Speaks::Http2),
            (Version::HTTP_2, Speaks::Http1),
            (Version::HTTP_2, Speaks::Http2),
        ];
        for (before, behind) in pairs {
            let protocol = if matches!(behind, Speaks::Http2) { "http2" } else { "http1" };
            println!("{before:?} before, {protocol} behind");
            let echoing = echoing(behind).await;
            let silent = RawReplica::silent().await;
            let proxy = Proxy::start(
                &format!(
                    "workers: 2\nlisteners: [{{address: \"127.0.0.1:0\"}}]\n\
                     admin: {{address: \"127.0.0.1:0\"}}\nlimits: {{body_timeout: 200ms}}\n\
                     routes: [{{path_prefix: /slow, upstream: silent}}, {{upstream: echo}}]\n\
                     upstreams:\n  silent: {{replicas: [\"http://{}\"]}}\n  \
                     echo: {{replicas: [\"http://{}\"], connect: {{protocol: {protocol}}}}}\n",
                    silent.address(),
                    echoing.address(),
                ),
                &curtail_proxy::Options::default(),
            );
            let mut client = Client::connect(proxy.address(), before).await;
            let (sender, body) = body::channel();
            let request = client.request_with("POST", "/", body);
            let mut response = client.try_send(request).await.expect("a response").into_body();
            for nth in 0..3 {
                let message = format!("message {nth}");
                assert!(sender.data(message.clone()).await, "the proxy reads on");
                let frame = response.frame().await.expect("a frame").expect("a good one");
                assert_eq!(frame.into_data().expect("data"), message);
                body_timeout_passes(&proxy).await;
            }
            drop(sender);
            let rest = response.collect().await.expect("a good end");
            assert_eq!(rest.to_bytes(), "");
        }
    });
}

#[test]
fn a_stream_ends_after_the_configured_idle_timeout() {
    run(async {
        for (before, speaks, protocol) in
            [(Version::HTTP_11, Speaks::Http1, "http1"), (Version::HTTP_2, Speaks::Http2, "http2")]
        {
            let replica = echoing(speaks).await;
            let proxy = Setup::before(&[replica.address()])
                .top("limits: {stream_idle_timeout: 300ms}")
                .upstream(&format!("connect: {{protocol: {protocol}}}"))
                .start();
            let mut client = Client::connect(proxy.address(), before).await;
            let (sender, body) = body::channel();
            let request = client.request_with("POST", "/", body);
            let mut response = client.try_send(request).await.expect("a response").into_body();
            assert!(sender.data("message").await);
            let frame = response.frame().await.expect("a frame").expect("a good one");
            assert_eq!(frame.into_data().expect("data"), "message");
            assert!(
                response.frame().await.expect("an end").is_err(),
                "the body ends with an error"
            );
            assert_eq!(idle(&proxy).await, 1);
        }
    });
}

/// The number of streams ended by the idle timeout, once no request is in progress.
async fn idle(proxy: &Proxy) -> u64 {
    let metrics = proxy.until(|metrics| metrics.in_flight() == 0).await;
    assert_eq!(metrics.sum("curtail_attempts_failed_total", &[]), 0, "{metrics}");
    metrics.sum("curtail_client_timeouts_total", &[("reason", "stream_idle")])
}

#[test]
fn an_upgraded_connection_closes_after_the_configured_idle_timeout() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            record.read(&mut wire).await;
            let head =
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n";
            wire.send(head).await;
            let heard = wire.read_exact(4).await.expect("the client speaks first");
            wire.send(heard).await;
            wire.read_to_close().await;
        })
        .await;
        let proxy =
            Setup::before(&[replica.address()]).top("limits: {stream_idle_timeout: 300ms}").start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n")
            .await;
        assert_eq!(wire.read_head().await.expect("held").expect("a response").status(), 101);
        wire.send("ping").await;
        assert_eq!(wire.read_exact(4).await.expect("held"), "ping");
        assert_eq!(wire.read_to_close().await, "");
        assert_eq!(idle(&proxy).await, 1);
    });
}

#[test]
fn a_replica_is_pinged_while_its_streams_are_silent() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let proxy = Setup::before(&[address])
            .upstream("connect: {protocol: http2, http2_ping_interval: 100ms}\nhedge: false")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        let asking = tokio::spawn(async move { client.get("/").await });
        let (stream, _) = listener.accept().await.expect("the proxy connects");
        let mut replica = Frames::accept(stream).await.expect("over HTTP/2");
        while replica.read().await.expect("a request").kind != HEADERS {}
        // The response begins, and then only pings are sent.
        replica.send(HEADERS, END_HEADERS, 1, &fields(&[(":status", "200")])).await;
        for _ in 0..3 {
            let ping = loop {
                let frame = replica.read_any().await.expect("the connection goes on");
                if frame.kind == PING && frame.flags & ACK == 0 {
                    break frame;
                }
            };
            replica.send(PING, ACK, 0, &ping.payload).await;
        }
        replica.send(DATA, END_STREAM, 1, b"event").await;
        assert_eq!(asking.await.expect("no panic").body, "event");
    });
}

#[test]
fn a_connection_ends_with_its_requests_when_pings_get_no_response() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let connect = "connect: {protocol: http2, http2_ping_interval: 100ms}";
        let proxy = Setup::before(&[address])
            .upstream(&format!("{connect}\nhedge: false\nretry: false\ntimeout: 10m"))
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let asking = tokio::spawn(async move { client.get("/").await });
        let (stream, _) = listener.accept().await.expect("the proxy connects");
        let mut replica = Frames::accept(stream).await.expect("over HTTP/2");
        // The replica acknowledges nothing.
        let mut last = None;
        while let Ok(frame) = replica.read_any().await {
            last = Some(frame.kind);
        }
        assert_eq!(last, Some(GOAWAY));
        let response = asking.await.expect("no panic");
        assert_eq!(
            (response.status, response.get("curtail-error")),
            (StatusCode::BAD_GATEWAY, Some("broken"))
        );
    });
}

#[test]
fn a_stalled_tls_handshake_is_cut_off_and_counted() {
    run(async {
        let authority = Authority::new();
        let issued = authority.issue("localhost");
        let proxy = Setup::before_urls(["http://127.0.0.1:9".to_owned()])
            .top("limits: {header_timeout: 200ms}")
            .listener(&issued.listener_keys())
            .start();
        for begun in ["", "\x16\x03\x01"] {
            let mut wire = Wire::connect(proxy.address()).await;
            wire.send(begun).await;
            assert_eq!(wire.read_to_close().await, "");
        }
        let metrics = proxy.metrics().await;
        let header = [("reason", "header")];
        assert_eq!(metrics.sum("curtail_client_timeouts_total", &header), 2, "{metrics}");
    });
}
