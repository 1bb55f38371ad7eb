//! Connections that change their protocol: bytes in both directions until both sides have ended.

use crate::certificates::Authority;
use crate::deadline::run;
use crate::metrics::Metrics;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, ok, status};
use crate::wire::Wire;
use http::{HeaderValue, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;

const ASK: &str = "GET /chat HTTP/1.1\r\nhost: h\r\nconnection: keep-alive, Upgrade\r\n\
                   upgrade: websocket\r\nsec-websocket-key: k\r\n\r\n";

const AGREE: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                     upgrade: websocket\r\nsec-websocket-accept: a\r\n\r\n";

/// A replica that agrees and then sends every byte back, and a last word when the client has ended.
async fn echoing() -> (RawReplica, Proxy) {
    let replica = RawReplica::start(|mut wire, record, _| async move {
        let Some(_) = record.read(&mut wire).await else { return };
        wire.send(AGREE).await;
        while let Ok(byte) = wire.read_exact(1).await {
            wire.send(byte).await;
        }
        wire.send("the last word").await;
    })
    .await;
    let proxy = Setup::before(&[replica.address()]).start();
    (replica, proxy)
}

#[test]
fn an_upgraded_connection_counts_until_its_end() {
    run(async {
        let (replica, _) = echoing().await;
        let keys = "connect: {connections_max: 1}\nretry: false";
        let proxy = Setup::before(&[replica.address()]).workers(1).upstream(keys).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(ASK).await;
        assert_eq!(wire.read_head().await.expect("held").expect("a response").status(), 101);
        wire.send("ping").await;
        assert_eq!(wire.read_exact(4).await.expect("an echo"), "ping");
        let open = "curtail_connections_open";
        assert_eq!(proxy.metrics().await.sum(open, &[]), 1);
        let mut other = Wire::connect(proxy.address()).await;
        other.send(ASK).await;
        let rejected = other.response().await.head;
        assert_eq!(
            (rejected.status(), rejected.get("curtail-error")),
            (503, Some("connection_limit"))
        );
        wire.close_write().await;
        assert_eq!(wire.read_to_close().await, "the last word");
        proxy.until(|metrics| metrics.sum(open, &[]) == 0).await;
        other.send(ASK).await;
        assert_eq!(other.read_head().await.expect("held").expect("a response").status(), 101);
    });
}

#[test]
fn bytes_pass_both_ways_and_each_side_ends_by_itself() {
    run(async {
        let (replica, proxy) = echoing().await;
        let mut wire = Wire::connect(proxy.address()).await;
        // The first bytes of the new protocol may come with the request.
        wire.send(format!("{ASK}early ")).await;
        let agreed = wire.read_head().await.expect("held").expect("a response");
        assert_eq!(agreed.status(), 101);
        assert_eq!(agreed.get("upgrade"), Some("websocket"));
        assert_eq!(agreed.get("sec-websocket-accept"), Some("a"));
        wire.send("and late").await;
        assert_eq!(wire.read_exact(14).await.expect("an echo"), "early and late");
        let request_head = replica.record().requests()[0].head.clone();
        assert_eq!(request_head.get("upgrade"), Some("websocket"));
        assert_eq!(
            request_head.get("connection").map(str::to_lowercase).as_deref(),
            Some("upgrade")
        );
        wire.close_write().await;
        assert_eq!(wire.read_to_close().await, "the last word");
        proxy.until(|metrics| metrics.in_flight() == 0).await;
    });
}

#[test]
fn a_connection_counts_for_as_long_as_it_is_open_whatever_it_speaks() {
    run(async {
        let (_replica, proxy) = echoing().await;
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(ASK).await;
        assert_eq!(wire.read_head().await.expect("held").expect("a response").status(), 101);
        wire.send("x").await;
        assert_eq!(wire.read_exact(1).await.expect("an echo"), "x");
        let open = proxy.metrics().await.sum("curtail_client_connections_open", &[]);
        assert_eq!(open, 1);
        drop(wire);
        proxy.until(|m| m.sum("curtail_client_connections_open", &[]) == 0).await;
    });
}

#[test]
fn a_reset_counts_against_the_replica_only_if_it_is_the_replicas() {
    run(async {
        for (by_replica, status) in [(false, "1xx"), (true, "incomplete")] {
            let replica = RawReplica::start(move |mut wire, record, _| async move {
                record.read(&mut wire).await;
                wire.send(AGREE).await;
                if by_replica {
                    wire.read_exact(1).await.expect("a byte");
                    wire.reset();
                } else {
                    wire.read_to_close().await;
                }
            })
            .await;
            let proxy = Setup::before(&[replica.address()]).start();
            let mut wire = Wire::connect(proxy.address()).await;
            wire.send(ASK).await;
            assert_eq!(wire.read_head().await.expect("held").expect("a response").status(), 101);
            if by_replica {
                wire.send("x").await;
            } else {
                wire.reset();
            }
            let counted = |m: &Metrics| m.sum("curtail_requests_total", &[("status", status)]);
            let metrics = proxy.until(|metrics| counted(metrics) == 1).await;
            let broken = metrics.sum("curtail_attempts_failed_total", &[("failure", "broken")]);
            assert_eq!(broken, u64::from(by_replica), "{metrics}");
        }
    });
}

#[test]
fn a_replica_may_decline_and_the_connection_goes_on_as_it_was() {
    run(async {
        let replica = RawReplica::responding("not today").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        for _ in 0..2 {
            wire.send(ASK).await;
            let response = wire.response().await;
            assert_eq!((response.head.status(), &*response.body), (200, &b"not today"[..]));
        }
    });
}

#[test]
fn no_upgrade_without_a_request_for_it() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            while record.read(&mut wire).await.is_some() {
                wire.send(AGREE).await;
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).upstream("retry: false").start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        let response = wire.response().await.head;
        assert_eq!((response.status(), response.get("curtail-error")), (502, Some("broken")));
    });
}

#[test]
fn http_2_in_clear_text_is_not_negotiated_past_the_proxy() {
    run(async {
        // A replica that agreed would then be spoken to by the client directly: every route and every limit
        // would be passed by.
        let replica = RawReplica::responding("over HTTP/1.1").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(
            "GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n\
             http2-settings: AAMAAABkAAQAAP__\r\n\r\n",
        )
        .await;
        assert_eq!(wire.response().await.body, "over HTTP/1.1");
        let seen = &replica.record().requests()[0].head;
        for gone in ["upgrade", "http2-settings"] {
            assert_eq!(seen.get(gone), None, "{seen:?}");
        }
    });
}

#[test]
fn over_http_2_no_upgrade_is_requested() {
    run(async {
        let replica = Replica::responding(Speaks::Http2, "as it was").await;
        let proxy =
            Setup::before(&[replica.address()]).upstream("connect: {protocol: http2}").start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(ASK).await;
        assert_eq!(wire.response().await.body, "as it was");
        let seen = replica.record().only();
        assert_eq!((seen.get("upgrade"), seen.get("connection")), (None, None));
        assert_eq!(seen.get("sec-websocket-key"), Some("k"));
    });
}

#[test]
fn under_tls_http_1_1_is_negotiated_for_a_change() {
    run(async {
        let authority = Authority::new();
        let issued = authority.issue("localhost");
        let speaks = Speaks::Tls(issued.server(&["h2", "http/1.1"]));
        let replica = Replica::start(speaks, |mut request| async move {
            let wants_upgrade = request.headers().contains_key("upgrade");
            if !wants_upgrade {
                return ok("over HTTP/2");
            }
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut io = TokioIo::new(upgrade.await.expect("the proxy agrees"));
                io.write_all(b"hello").await.expect("the proxy is there");
                io.shutdown().await.expect("the proxy is there");
            });
            let mut response = status(StatusCode::SWITCHING_PROTOCOLS);
            let headers = response.headers_mut();
            headers.insert("connection", HeaderValue::from_static("upgrade"));
            headers.insert("upgrade", HeaderValue::from_static("websocket"));
            response
        })
        .await;
        let proxy = Setup::before_urls([replica.tls_url()])
            .upstream(&format!("connect: {{ca_file: {}}}", authority.file().display()))
            .start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(wire.response().await.body, "over HTTP/2");
        wire.send(ASK).await;
        assert_eq!(wire.read_head().await.expect("held").expect("a response").status(), 101);
        wire.close_write().await;
        assert_eq!(wire.read_to_close().await, "hello");
        let versions: Vec<_> = replica.record().seen().iter().map(|seen| seen.version).collect();
        assert_eq!(versions, [Version::HTTP_2, Version::HTTP_11]);
    });
}
