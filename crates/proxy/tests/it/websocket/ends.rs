//! How a WebSocket of an HTTP/2 client ends: resets, timeouts, limits, drains.

use super::{HTTP1_HANDSHAKE, Http2Client, agreement, echoing, handshake};
use crate::access_log::{lines_after, logging};
use crate::deadline::run;
use crate::directory::Directory;
use crate::metrics::Metrics;
use crate::proxy::{Setup, ask_admin};
use crate::raw_replica::RawReplica;
use crate::wire::Wire;
use h2::Reason;
use http::{Request, StatusCode};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Far longer than any test: what ends sooner has ended by itself.
const GRACE: Duration = Duration::from_secs(300);

#[test]
fn a_reset_counts_against_the_replica_only_if_it_is_the_replicas() {
    run(async {
        for (by_replica, status) in [(false, "1xx"), (true, "incomplete")] {
            let replica = RawReplica::start(move |mut wire, record, _| async move {
                let request = record.read(&mut wire).await.expect("a request");
                wire.send(agreement(&request)).await;
                if by_replica {
                    wire.read_exact(1).await.expect("a byte");
                    wire.reset();
                } else {
                    wire.read_to_close().await;
                }
            })
            .await;
            let proxy = Setup::before(&[replica.address()]).start();
            let mut client = Http2Client::connect(proxy.address()).await;
            let mut stream = client.open().await;
            if by_replica {
                stream.send("x");
                assert_eq!(stream.read_to_end().await.1, Some(Reason::CANCEL));
            } else {
                stream.sender.send_reset(Reason::CANCEL);
            }
            let counted = |m: &Metrics| m.sum("curtail_requests_total", &[("status", status)]);
            let metrics = proxy.until(|metrics| counted(metrics) == 1).await;
            let broken = metrics.sum("curtail_attempts_failed_total", &[("failure", "broken")]);
            assert_eq!(broken, u64::from(by_replica), "{metrics}");
            replica.record().until(|record| record.open_connections() == 0).await;
            // The connection goes on.
            client.sender.clone().ready().await.expect("it is open");
        }
    });
}

#[test]
fn a_client_that_leaves_after_the_end_of_its_direction_frees_its_place() {
    run(async {
        let ended = Arc::new(Notify::new());
        let has_ended = Arc::clone(&ended);
        let replica = RawReplica::start(move |mut wire, record, _| {
            let has_ended = Arc::clone(&has_ended);
            async move {
                let request = record.read(&mut wire).await.expect("a request");
                wire.send(agreement(&request)).await;
                wire.read_to_close().await;
                has_ended.notify_one();
                // It hangs: it sends nothing and keeps the connection.
                std::future::pending::<()>().await;
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let gone = |count| {
            move |metrics: &Metrics| (metrics.in_flight(), count_gone(metrics)) == (0, count)
        };

        let mut client = Http2Client::connect(proxy.address()).await;
        let mut stream = client.open().await;
        stream.end();
        ended.notified().await;
        stream.sender.send_reset(Reason::CANCEL);
        proxy.until(gone(1)).await;

        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(HTTP1_HANDSHAKE).await;
        wire.read_head().await.expect("held").expect("a response");
        wire.close_write().await;
        ended.notified().await;
        wire.reset();
        proxy.until(gone(2)).await;
    });
}

#[test]
fn a_client_that_leaves_before_the_response_takes_its_handshake_back() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            record.read(&mut wire).await;
            wire.read_to_close().await;
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let (_response, mut sender) =
            client.sender.send_request(handshake(), false).expect("it is valid");
        replica.record().until(|record| record.requests().len() == 1).await;
        sender.send_reset(Reason::CANCEL);
        replica.record().until(|record| record.open_connections() == 0).await;
        proxy.until(|metrics| metrics.in_flight() == 0).await;
    });
}

#[test]
fn an_idle_websocket_is_reset_after_the_configured_timeout() {
    run(async {
        let replica = echoing().await;
        let proxy =
            Setup::before(&[replica.address()]).top("limits: {stream_idle_timeout: 300ms}").start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let mut stream = client.open().await;
        stream.send("ping");
        assert_eq!(stream.read_exact(4).await, "ping");
        assert_eq!(stream.read_to_end().await.1, Some(Reason::CANCEL));
        let metrics = proxy.until(|metrics| metrics.in_flight() == 0).await;
        assert_eq!(timeouts(&metrics, "stream_idle"), 1, "{metrics}");
        assert_eq!(metrics.sum("curtail_attempts_failed_total", &[]), 0, "{metrics}");
    });
}

#[test]
fn a_client_that_does_not_read_its_websocket_is_cut_off() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            let request = record.read(&mut wire).await.expect("a request");
            wire.send(agreement(&request)).await;
            while wire.write("x".repeat(10_000)).await.is_ok() {}
        })
        .await;
        let setup = Setup::before(&[replica.address()]).top("limits: {write_timeout: 300ms}");
        let proxy = setup.start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let stream = client.open().await;
        let metrics = proxy.until(|metrics| timeouts(metrics, "write") == 1).await;
        assert_eq!(metrics.sum("curtail_attempts_failed_total", &[]), 0, "{metrics}");
        replica.record().until(|record| record.open_connections() == 0).await;
        assert_eq!(stream.read_to_end().await.1, Some(Reason::CANCEL));
    });
}

#[test]
fn a_websocket_is_in_flight_until_it_ends() {
    run(async {
        let replica = echoing().await;
        let proxy = Setup::before(&[replica.address()]).route("limits: {in_flight_max: 1}").start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let mut stream = client.open().await;
        let (rejected, _) = client.ask(handshake(), "").await;
        assert_eq!(rejected.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(rejected.headers()["curtail-error"], "route_in_flight_limit");
        stream.end();
        assert_eq!(stream.read_to_end().await.0, "the last word");
        proxy.until(|metrics| metrics.sum("curtail_route_in_flight", &[]) == 0).await;
        client.open().await;
    });
}

#[test]
fn the_access_log_has_a_line_with_the_bytes_of_both_directions() {
    run(async {
        let replica = echoing().await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let setup = Setup::before(&[replica.address()]);
        let proxy = logging(&setup, &file, ", sample: 1").start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let mut stream = client.open().await;
        stream.send("ping");
        assert_eq!(stream.read_exact(4).await, "ping");
        stream.end();
        stream.read_to_end().await;
        let line = lines_after(&proxy, 1, &file).await.remove(0);
        for (field, value) in [
            ("method", json!("GET")),
            ("status", json!(101)),
            ("request_bytes", json!(4)),
            ("response_bytes", json!("ping".len() + "the last word".len())),
        ] {
            assert_eq!(line[field], value, "{line}");
        }
        assert_eq!(line.get("error"), None, "{line}");
    });
}

#[test]
fn a_drain_leaves_a_websocket_to_end_by_itself() {
    run(async {
        let replica = echoing().await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Http2Client::connect(proxy.address()).await;
        let mut stream = client.open().await;
        let admin = proxy.admin_address();
        let stopping = proxy.stop(GRACE);
        while ask_admin(admin, "/readyz").await.expect("it responds").head.status() != 503 {}
        // The GOAWAY takes effect.
        while let Ok(mut sender) = client.sender.clone().ready().await {
            // The proxy itself responds. Requests that are given up would count as a flood.
            let request = Request::options("http://service.test/").header("max-forwards", "0");
            let request = request.body(()).expect("valid");
            let Ok((response, _)) = sender.send_request(request, true) else { break };
            response.await.ok();
        }
        stream.send("still here");
        assert_eq!(stream.read_exact(10).await, "still here");
        assert!(!stopping.is_finished());
        stream.end();
        assert_eq!(stream.read_to_end().await.0, "the last word");
        stopping.await.expect("it stops");
    });
}

/// The number of clients that left during a WebSocket.
fn count_gone(metrics: &Metrics) -> u64 {
    metrics.sum("curtail_requests_total", &[("status", "1xx")])
}

fn timeouts(metrics: &Metrics, reason: &str) -> u64 {
    metrics.sum("curtail_client_timeouts_total", &[("reason", reason)])
}
