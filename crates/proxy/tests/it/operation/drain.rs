//! Stopping: what is in progress ends, nothing new begins, and the admin port tells.

use super::Gated;
use crate::client::Client;
use crate::deadline::run;
use crate::frames::{ACK, END_HEADERS, END_STREAM, Frame, Frames, GOAWAY, HEADERS, PING, request};
use crate::metrics::Metrics;
use crate::proxy::{Setup, ask_admin};
use crate::raw_replica::RawReplica;
use crate::replica::Speaks;
use crate::wire::Wire;
use http::{StatusCode, Version};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Far longer than any test: what ends sooner has ended by itself.
const GRACE: Duration = Duration::from_secs(300);

#[test]
fn requests_in_progress_end_and_nothing_new_begins() {
    run(async {
        let gated = Gated::start(Speaks::Http1, "responded").await;
        let setup = Setup::before(&[gated.replica.address()]).on_own_address();
        let proxy = setup.upstream("hedge: false").start();
        let (address, admin) = (proxy.address(), proxy.admin_address());
        let ready =
            async || ask_admin(admin, "/readyz").await.map(|response| response.head.status());
        assert_eq!(ready().await, Some(200));
        let mut kept = Wire::connect(address).await;
        gated.gate.add_permits(1);
        kept.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(kept.response().await.head.status(), 200);
        // Enough that both workers have some.
        let mut pending_requests = Vec::new();
        for version in [Version::HTTP_11, Version::HTTP_2, Version::HTTP_11, Version::HTTP_2] {
            pending_requests.push(gated.ask(address, version).await);
        }
        let mut idle = Wire::connect(address).await;
        idle.send("GET /").await;
        let stopping = proxy.stop(GRACE);
        while ready().await != Some(503) {}
        while TcpStream::connect(address).await.is_ok() {}
        assert!(!stopping.is_finished(), "requests are still in progress");
        assert_eq!(kept.read_to_close().await, "", "a connection without a request is closed");
        for pending in pending_requests {
            assert_eq!(ready().await, Some(503), "it is not ready until the end");
            gated.gate.add_permits(1);
            let response = pending.await.expect("no panic");
            assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"responded"[..]));
        }
        drop(idle);
        stopping.await.expect("it stops");
        assert_eq!(ready().await, None);
    });
}

#[test]
fn connections_without_a_request_do_not_delay_the_drain() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let proxy = Setup::before(&[replica.address()]).top("limits: {header_timeout: 1h}").start();
        let silent = Wire::connect(proxy.address()).await;
        let mut begun = Wire::connect(proxy.address()).await;
        begun.send("P").await;
        let mut idle = Wire::connect(proxy.address()).await;
        idle.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(idle.response().await.body, "good");
        let mut http2 = Client::connect(proxy.address(), Version::HTTP_2).await;
        assert_eq!(http2.get("/").await.body, "good");
        proxy.until(|m| m.sum("curtail_client_connections_open", &[]) == 4).await;
        proxy.stop(GRACE).await.expect("it stops");
        for mut wire in [silent, begun, idle] {
            assert_eq!(wire.read_to_close().await, "");
        }
    });
}

/// Reads up to the next frame of one of these types.
async fn read_one_of(frames: &mut Frames, kinds: &[u8]) -> Frame {
    loop {
        let frame = frames.read_any().await.expect("the connection goes on");
        if kinds.contains(&frame.kind) {
            return frame;
        }
    }
}

#[test]
fn a_request_that_follows_the_acknowledgment_of_the_drain_is_served() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut frames = Frames::connect(proxy.address()).await;
        let get = request("GET", "/");
        frames.send(HEADERS, END_HEADERS | END_STREAM, 1, &get).await;
        assert_eq!(read_one_of(&mut frames, &[HEADERS]).await.stream, 1);
        let stopping = proxy.stop(GRACE);
        let last = |goaway: &Frame| goaway.payload[..4].to_vec();
        let first = read_one_of(&mut frames, &[GOAWAY]).await;
        assert_eq!(last(&first), 0x7fff_ffff_u32.to_be_bytes());
        let ping = read_one_of(&mut frames, &[PING]).await;
        frames.send(PING, ACK, 0, &ping.payload).await;
        // The proxy knows of the acknowledgment when it responds to the next frame.
        frames.send(PING, 0, 0, b"is taken").await;
        let response = read_one_of(&mut frames, &[PING, GOAWAY]).await;
        assert_eq!((response.kind, &*response.payload), (PING, &b"is taken"[..]));
        frames.send(HEADERS, END_HEADERS | END_STREAM, 3, &get).await;
        assert_eq!(read_one_of(&mut frames, &[HEADERS]).await.stream, 3);
        let final_one = read_one_of(&mut frames, &[GOAWAY]).await;
        assert_eq!(last(&final_one), 3_u32.to_be_bytes());
        assert!(frames.read().await.is_none());
        stopping.await.expect("it stops");
    });
}

#[test]
fn a_client_whose_connection_the_drain_closes_is_not_counted_as_slow() {
    run(async {
        let gated = Gated::start(Speaks::Http1, "responded").await;
        let proxy = Setup::before(&[gated.replica.address()])
            .upstream("hedge: false")
            .top("limits: {header_timeout: 1h}")
            .start();
        let admin = proxy.admin_address();
        let pending = gated.ask(proxy.address(), Version::HTTP_11).await;
        let mut silent = Wire::connect(proxy.address()).await;
        proxy.until(|m| m.sum("curtail_client_connections_open", &[]) == 2).await;
        let stopping = proxy.stop(GRACE);
        assert_eq!(silent.read_to_close().await, "");
        let page = ask_admin(admin, "/metrics").await.expect("a request is in progress");
        let metrics = Metrics::new(String::from_utf8_lossy(&page.body).into_owned());
        assert_eq!(metrics.sum("curtail_client_timeouts_total", &[]), 0, "{metrics}");
        gated.gate.add_permits(1);
        assert_eq!(pending.await.expect("no panic").status, StatusCode::OK);
        stopping.await.expect("it stops");
    });
}

#[test]
fn a_request_that_does_not_end_is_cut_off_after_the_grace() {
    run(async {
        let gated = Gated::start(Speaks::Http1, "never").await;
        let proxy = Setup::before(&[gated.replica.address()]).start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let request = client.request("GET", "/");
        let asking = tokio::spawn(async move { client.try_send(request).await.map(|_| ()) });
        gated.replica.record().until(|record| record.count() == 1).await;
        let (begun, grace) = (Instant::now(), Duration::from_millis(100));
        proxy.stop(grace).await.expect("it stops");
        assert!(begun.elapsed() >= grace, "after {:?}", begun.elapsed());
        assert!(asking.await.expect("no panic").is_err());
        gated.replica.record().until(|record| record.reset() == 1).await;
    });
}

#[test]
fn what_streams_and_what_has_changed_its_protocol_ends_by_itself() {
    run(async {
        let go_on = Arc::new(Notify::new());
        let waits = Arc::clone(&go_on);
        let replica = RawReplica::start(move |mut wire, record, _| {
            let waits = Arc::clone(&waits);
            async move {
                let Some(request) = record.read(&mut wire).await else { return };
                if request.head.get("upgrade").is_some() {
                    wire.send("HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await;
                } else {
                    wire.send("HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n").await;
                    wire.send("a".repeat(100_000)).await;
                    waits.notified().await;
                    wire.send("a".repeat(100_000)).await;
                    return;
                }
                while let Ok(byte) = wire.read_exact(1).await {
                    wire.send(byte).await;
                }
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut tunnel = Wire::connect(proxy.address()).await;
        tunnel
            .send("GET /t HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")
            .await;
        assert_eq!(tunnel.read_head().await.expect("held").expect("a response").status(), 101);
        let mut long = Wire::connect(proxy.address()).await;
        long.send("GET /l HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(long.read_head().await.expect("held").expect("a response").status(), 200);
        let admin = proxy.admin_address();
        let stopping = proxy.stop(GRACE);
        while ask_admin(admin, "/readyz").await.expect("it responds").head.status() != 503 {}
        tunnel.send("still here").await;
        assert_eq!(tunnel.read_exact(10).await.expect("an echo"), "still here");
        assert!(!stopping.is_finished());
        go_on.notify_one();
        assert_eq!(long.read_exact(200_000).await.expect("all of it").len(), 200_000);
        drop(tunnel);
        stopping.await.expect("it stops");
    });
}

#[test]
fn a_leaf_lets_what_is_queued_be_served() {
    run(async {
        let gated = Gated::start(Speaks::Http1, "served").await;
        let leaf = crate::proxy::Proxy::of_leaves(&[format!(
            "{{name: leaf, address: \"127.0.0.1:0\", server: \"http://{}\", concurrency: 1}}",
            gated.replica.address()
        )]);
        let address = leaf.listener("leaf");
        let first = gated.ask(address, Version::HTTP_11).await;
        let mut client = Client::connect(address, Version::HTTP_11).await;
        let second = tokio::spawn(async move { client.get("/").await });
        leaf.until(|metrics| metrics.sum("curtail_leaf_queue_len", &[]) == 1).await;
        let stopping = leaf.stop(GRACE);
        gated.gate.add_permits(2);
        for pending in [first, second] {
            assert_eq!(pending.await.expect("no panic").body, "served");
        }
        stopping.await.expect("it stops");
    });
}
