//! WebSockets of HTTP/2 clients before replicas of HTTP/1.1.

use super::{Http2Client, agreement, assert_opened, echoing, handshake};
use crate::deadline::run;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use bytes::Bytes;
use curtail_proxy::Options;
use h2::Reason;
use http::{HeaderValue, StatusCode};

#[test]
fn bytes_pass_both_ways_and_each_side_ends_by_itself() {
    run(async {
        let replica = echoing().await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let mut asked = handshake();
        asked.headers_mut().insert("sec-websocket-key", HeaderValue::from_static("the client's"));
        // Data before the response waits for it.
        let (response, mut stream) = client.ask(asked, "early ").await;
        assert_opened(&response);
        stream.send("and late");
        assert_eq!(stream.read_exact(14).await, "early and late");
        let request = replica.record().requests()[0].clone();
        assert_eq!(request.head.request(), ("GET", "/chat?room=1"));
        assert_eq!(request.body, "", "the handshake has no body");
        for (name, value) in [
            ("host", "service.test"),
            ("upgrade", "websocket"),
            ("connection", "upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "chat"),
        ] {
            assert_eq!(request.head.get(name), Some(value), "{request:?}");
        }
        for gone in ["content-length", "transfer-encoding"] {
            assert_eq!(request.head.get(gone), None, "{request:?}");
        }
        stream.end();
        assert_eq!(stream.read_to_end().await, (Bytes::from("the last word"), None));
        proxy.until(|metrics| metrics.in_flight() == 0).await;
        assert_eq!(counted(&proxy, "1xx").await, 1);
    });
}

#[test]
fn each_handshake_has_a_key_of_its_own() {
    run(async {
        let replica = echoing().await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let _open = [client.open().await, client.open().await];
        let requests = replica.record().requests();
        let keys: Vec<_> = requests.iter().map(|r| r.head.get("sec-websocket-key")).collect();
        assert_eq!(keys.len(), 2);
        // 16 bytes in Base64.
        assert!(keys.iter().all(|key| key.is_some_and(|key| key.len() == 24)), "{keys:?}");
        assert_ne!(keys[0], keys[1]);
    });
}

#[test]
fn a_refusal_is_a_response_like_any_other() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            record.read(&mut wire).await;
            wire.send("HTTP/1.1 403 F\r\ncontent-length: 9\r\nx-why: rules\r\n\r\nforbidden").await;
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Http2Client::connect(proxy.address()).await;
        for _ in 0..2 {
            let (response, stream) = client.ask(handshake(), "in vain").await;
            assert_eq!(response.status(), StatusCode::FORBIDDEN);
            assert_eq!(response.headers()["x-why"], "rules");
            // The end of the response ends the stream, whatever the client has sent.
            assert_eq!(stream.read_to_end().await.0, "forbidden");
        }
        assert_eq!(counted(&proxy, "4xx").await, 2);
        assert!(replica.record().requests().iter().all(|request| request.body.is_empty()));
    });
}

#[test]
fn success_without_a_websocket_opens_none() {
    run(async {
        // Over HTTP/2 the status would tell the client that it has one.
        let replica = RawReplica::responding("a page").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let smuggled = "GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n";
        let (response, stream) = client.ask(handshake(), smuggled).await;
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        assert_eq!(response.headers()["curtail-error"], "upgrade_declined");
        assert!(stream.read_to_end().await.0.starts_with(b"curtail: upgrade_declined"));
        assert_eq!(counted(&proxy, "5xx").await, 1);
        let metrics = proxy.metrics().await;
        assert_eq!(
            metrics.sum("curtail_attempts_failed_total", &[]),
            0,
            "not its fault: {metrics}"
        );
        assert_eq!(metrics.in_flight(), 0);
        replica.record().until(|record| record.open_connections() == 0).await;
        assert_eq!(replica.record().requests().len(), 1);
    });
}

#[test]
fn a_replica_must_prove_that_it_speaks_the_protocol() {
    run(async {
        for change in [("sec-websocket-accept: ", "sec-websocket-accept: x"), ("websocket", "x")] {
            let replica = RawReplica::start(move |mut wire, record, _| async move {
                let request = record.read(&mut wire).await.expect("a request");
                wire.send(agreement(&request).replacen(change.0, change.1, 1)).await;
                wire.read_to_close().await;
            })
            .await;
            let proxy = Setup::before(&[replica.address()]).start();
            let mut client = Http2Client::connect(proxy.address()).await;
            let (response, _) = client.ask(handshake(), "").await;
            assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
            assert_eq!(response.headers()["curtail-error"], "broken");
            let metrics = proxy.until(|metrics| metrics.in_flight() == 0).await;
            let broken = [("failure", "broken")];
            assert_eq!(metrics.sum("curtail_attempts_failed_total", &broken), 1, "{metrics}");
            replica.record().until(|record| record.open_connections() == 0).await;
        }
    });
}

#[test]
fn a_stream_that_is_not_read_holds_a_window_and_stops_no_other() {
    run(async {
        const LEN: usize = 4 << 20;
        let replica = RawReplica::start(|mut wire, record, _| async move {
            while let Some(request) = record.read(&mut wire).await {
                if request.head.get("upgrade").is_some() {
                    wire.send(agreement(&request)).await;
                    let all = wire.read_exact(LEN).await.expect("all of it");
                    wire.send(&all).await;
                    wire.read_to_close().await;
                    return;
                }
                wire.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nplain").await;
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).workers(1).start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let mut stream = client.open().await;
        let sent: Bytes = (0..LEN).map(|at| at.to_le_bytes()[at % 3]).collect();
        // More than all windows and buffers on the way.
        stream.send(sent.clone());
        for _ in 0..20 {
            let (response, other) = client.get().await;
            let body = other.read_to_end().await.0;
            assert_eq!((response.status(), body), (StatusCode::OK, "plain".into()));
        }
        assert_eq!(stream.read_exact(LEN).await, sent);
    });
}

#[test]
fn other_protocols_and_a_fan_out_have_no_tunnel() {
    run(async {
        let replica = echoing().await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let mut other = handshake();
        other.extensions_mut().insert(h2::ext::Protocol::from_static("connect-udp"));
        let (response, stream) = client.ask(other, "").await;
        assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED);
        let text = stream.read_to_end().await.0;
        assert_eq!(text, "curtail: connect_unsupported: `:protocol` is not `websocket`\n");
        let address = replica.address();
        let yaml = format!(
            "workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\n\
             listeners: [{{address: \"127.0.0.1:0\"}}]\n\
             routes: [{{upstream: \"shard-*\", fan_out: {{}}}}]\n\
             upstreams: {{shard-0: {{replicas: [\"http://{address}\"]}}}}\n"
        );
        let options = Options { journal: None, seed: 1, ..Options::default() };
        let proxy = Proxy::start(&yaml, &options);
        let mut client = Http2Client::connect(proxy.address()).await;
        let (response, stream) = client.ask(handshake(), "").await;
        assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED);
        let text = stream.read_to_end().await.0;
        assert_eq!(text, "curtail: connect_unsupported: the route is a fan-out\n");
        assert_eq!(replica.record().requests().len(), 0);
    });
}

#[test]
fn headers_after_the_handshake_end_the_stream() {
    run(async {
        let replica = echoing().await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let mut stream = client.open().await;
        stream.sender.send_trailers(http::HeaderMap::new()).expect("the stream is open");
        assert_eq!(stream.read_to_end().await.1, Some(Reason::PROTOCOL_ERROR));
        replica.record().until(|record| record.open_connections() == 0).await;
    });
}

/// The number of requests with this status, once one has it.
async fn counted(proxy: &Proxy, status: &str) -> u64 {
    let count = |metrics: &crate::metrics::Metrics| {
        metrics.sum("curtail_requests_total", &[("status", status)])
    };
    count(&proxy.until(|metrics| count(metrics) > 0).await)
}
