//! Clients that do not finish their request bodies: they hold at most half of the connections or streams to a replica.

use crate::access_log::{lines_after, logging};
use crate::body;
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::frames::{CANCEL, DATA, END_HEADERS, Frames, HEADERS, RST_STREAM, request};
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, ok};
use crate::wire::{Message, Wire};
use bytes::Bytes;
use http::{Response, StatusCode, Version};
use http_body_util::BodyExt;
use std::io;
use std::net::SocketAddr;

/// The length of an upload that no replay buffer holds.
const LONG: usize = 100_000;

/// Four requests at a time to a replica of HTTP/1.1.
const FOUR_CONNECTIONS: &str = "connections_max: 4";

/// Four requests at a time to a replica of HTTP/2.
const FOUR_STREAMS: &str = "protocol: http2, http2_connections_max: 2, http2_streams_max: 2";

/// A replica that responds after the end of a body.
async fn start(speaks: Speaks) -> Replica {
    let replica = Replica::start(speaks, |request| async {
        request.into_body().collect().await.map_or_else(|_| ok("broken"), |_| ok("whole"))
    });
    replica.await
}

/// A replica whose response is the body, as it arrives.
async fn start_echo(speaks: Speaks) -> Replica {
    let replica = Replica::start(speaks, |request| {
        let echo = request.into_body().map_err(io::Error::other).boxed_unsync();
        std::future::ready(Response::new(echo))
    });
    replica.await
}

fn setup(replica: SocketAddr, connect: &str) -> Setup {
    Setup::before(&[replica])
        .workers(1)
        .upstream(&format!("hedge: false\nretry: false\nconnect: {{{connect}}}"))
}

/// Sends a head and the first part of a body.
async fn begin(proxy: &Proxy, framing: &str, part: &str) -> Wire {
    let mut wire = Wire::connect(proxy.address()).await;
    wire.send(format!("POST / HTTP/1.1\r\nhost: h\r\n{framing}\r\n\r\n{part}")).await;
    wire
}

/// Begins an upload, which the replica gets as the request of this number.
async fn upload(proxy: &Proxy, replica: &Replica, number: usize) -> Wire {
    let wire = begin(proxy, &format!("content-length: {LONG}"), "x").await;
    replica.record().until(|record| record.count() == number).await;
    wire
}

#[test]
fn complete_requests_are_served_beside_uploads_that_do_not_end() {
    run(assert_complete_requests_are_served(Speaks::Http1, FOUR_CONNECTIONS));
}

#[test]
fn complete_requests_are_served_over_http_2_beside_uploads_that_do_not_end() {
    run(assert_complete_requests_are_served(Speaks::Http2, FOUR_STREAMS));
}

/// Checks a replica that may get four requests at a time.
async fn assert_complete_requests_are_served(speaks: Speaks, connect: &str) {
    let replica = start(speaks).await;
    let proxy = setup(replica.address(), connect).start();
    let mut first = upload(&proxy, &replica, 1).await;
    let second = upload(&proxy, &replica, 2).await;
    for (framing, part) in
        [("content-length: 65537", "x"), ("transfer-encoding: chunked", "2\r\nx")]
    {
        let rejected = begin(&proxy, framing, part).await.response().await;
        let found = (rejected.head.status(), rejected.head.get("curtail-error"));
        assert_eq!(found, (503, Some("connection_limit")), "{framing}");
    }
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut client = Client::connect(proxy.address(), version).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        let post = client.request_with("POST", "/", body::whole("body"));
        assert_eq!(client.send(post).await.status, StatusCode::OK, "{version:?}");
    }
    // A body that fits into the replay buffer waits there for its end.
    let mut short = begin(&proxy, "content-length: 2", "x").await;
    proxy.until(|m| m.in_flight() == 3).await;
    assert_eq!(replica.record().count(), 6);
    short.send("y").await;
    assert_eq!(short.response().await.head.status(), 200);

    first.send(vec![b'x'; LONG - 1]).await;
    assert_eq!(first.response().await.head.status(), 200);
    let third = upload(&proxy, &replica, 8).await;
    drop((second, third));
    proxy.until(|m| m.in_flight() == 0).await;
    let _uploads = (upload(&proxy, &replica, 9).await, upload(&proxy, &replica, 10).await);
}

#[test]
fn requests_with_a_response_may_use_all_streams_of_http_2() {
    run(async {
        let replica = start_echo(Speaks::Http2).await;
        let proxy = setup(replica.address(), FOUR_STREAMS).start();
        let mut streams = Vec::new();
        for _ in 0..4 {
            let mut wire = begin(&proxy, "transfer-encoding: chunked", "1\r\nx\r\n").await;
            let head = wire.read_head().await.expect("it is connected").expect("a response");
            assert_eq!(head.status(), 200);
            streams.push(wire);
        }
    });
}

#[test]
fn a_malformed_upload_is_the_fault_of_the_client_also_after_the_response_began() {
    run(async {
        for (speaks, connect) in [(Speaks::Http1, FOUR_CONNECTIONS), (Speaks::Http2, FOUR_STREAMS)]
        {
            let replica = start_echo(speaks).await;
            let directory = Directory::new();
            let file = directory.path("access.log");
            let proxy = logging(&setup(replica.address(), connect), &file, "").start();
            let mut wire = begin(&proxy, "transfer-encoding: chunked", "1\r\nx\r\n").await;
            let head = wire.read_head().await.expect("it is connected").expect("a response");
            assert_eq!(head.status(), 200);
            wire.send("no size\r\n").await;
            let line = &lines_after(&proxy, 1, &file).await[0];
            assert_eq!(line["error"], "client_broken", "{line}");
            let attempt = &line["attempts"][0];
            let outcome = (attempt["outcome"].as_str(), attempt["outcome_reason"].as_str());
            assert_eq!(outcome, (Some("cancelled"), Some("client_broken")), "{line}");
            let metrics = proxy.metrics().await;
            assert_eq!(metrics.sum("curtail_attempts_failed_total", &[]), 0, "{metrics}");
        }
    });
}

#[test]
fn a_long_upload_goes_to_a_replica_that_may_get_another_one() {
    run(async {
        let replicas = [start(Speaks::Http1).await, start(Speaks::Http1).await];
        let proxy = Setup::before(&replicas.each_ref().map(Replica::address))
            .workers(1)
            .upstream("hedge: false\nbalance: round_robin\nconnect: {connections_max: 2}")
            .start();
        // One upload for each replica. One of the two ends.
        let framing = format!("content-length: {LONG}");
        let (_full, mut ending) =
            (begin(&proxy, &framing, "x").await, begin(&proxy, &framing, "x").await);
        for replica in &replicas {
            replica.record().until(|record| record.count() == 1).await;
        }
        ending.send(vec![b'x'; LONG - 1]).await;
        assert_eq!(ending.response().await.head.status(), 200);
        for _ in 0..2 {
            let mut wire = begin(&proxy, &framing, &"x".repeat(LONG)).await;
            assert_eq!(wire.response().await.head.status(), 200);
        }
        let metrics = proxy.metrics().await;
        let limited = [("failure", "connection_limit")];
        assert!(metrics.sum("curtail_attempts_failed_total", &limited) > 0, "{metrics}");
    });
}

#[test]
fn an_upload_that_outlasts_the_timeout_ejects_no_replica() {
    run(async {
        let replica = start(Speaks::Http1).await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let setup = Setup::before(&[replica.address()])
            .workers(1)
            .upstream("hedge: false\nretry: false\ntimeout: 300ms");
        let proxy = logging(&setup, &file, "").start();
        for _ in 0..5 {
            let mut wire = begin(&proxy, &format!("content-length: {LONG}"), "x").await;
            let response = wire.response().await;
            let found = (response.head.status(), response.head.get("curtail-error"));
            assert_eq!(found, (408, Some("client_slow")));
        }
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_replica_ejections_total", &[]), 0, "{metrics}");
        for line in lines_after(&proxy, 5, &file).await {
            let attempt = &line["attempts"][0];
            let outcome = (attempt["outcome"].as_str(), attempt["outcome_reason"].as_str());
            assert_eq!(outcome, (Some("cancelled"), Some("client_slow")), "{line}");
        }
    });
}

#[test]
fn a_body_that_waits_in_the_replay_buffer_has_the_body_timeout() {
    run(async {
        let replica = RawReplica::start(|mut wire, _, _| async move {
            wire.read_head().await.ok();
            wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            wire.read_to_close().await;
        })
        .await;
        let proxy =
            setup(replica.address(), FOUR_CONNECTIONS).top("limits: {body_timeout: 300ms}").start();
        // Their responses have begun, so the body timeout does not end them.
        let mut uploads = Vec::new();
        for _ in 0..2 {
            let mut wire = begin(&proxy, &format!("content-length: {LONG}"), "x").await;
            let head = wire.read_head().await.expect("it is connected").expect("a response");
            assert_eq!(head.status(), 200);
            uploads.push(wire);
        }
        let response = begin(&proxy, "content-length: 2", "x").await.response().await;
        let found = (response.head.status(), response.head.get("curtail-error"));
        assert_eq!(found, (408, Some("client_slow")));
        assert_eq!(replica.record().connections(), 2);
    });
}

#[test]
fn a_client_that_leaves_within_its_upload_has_gone() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            let Ok(Some(head)) = wire.read_head().await else { return };
            let is_begun = head.request().1 == "/begun";
            record.executes(Message { head, body: Bytes::new() });
            if is_begun {
                wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            }
            wire.read_to_close().await;
        })
        .await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let proxy = logging(&setup(replica.address(), FOUR_CONNECTIONS), &file, "").start();
        let arrived =
            |count| replica.record().until(move |record| record.requests().len() == count);

        let wire = begin(&proxy, &format!("content-length: {LONG}"), "x").await;
        arrived(1).await;
        drop(wire);
        lines_after(&proxy, 1, &file).await;

        let mut frames = Frames::connect(proxy.address()).await;
        for (stream, count) in [(1, 2), (3, 3)] {
            frames.send(HEADERS, END_HEADERS, stream, &request("POST", "/")).await;
            frames.send(DATA, 0, stream, b"x").await;
            arrived(count).await;
            if stream == 1 {
                frames.send(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()).await;
                lines_after(&proxy, 2, &file).await;
            }
        }
        drop(frames);
        lines_after(&proxy, 3, &file).await;

        let mut begun = Wire::connect(proxy.address()).await;
        begun
            .send(format!("POST /begun HTTP/1.1\r\nhost: h\r\ncontent-length: {LONG}\r\n\r\nx"))
            .await;
        assert_eq!(begun.read_head().await.expect("held").expect("a response").status(), 200);
        drop(begun);

        let lines = lines_after(&proxy, 4, &file).await;
        for (line, status) in lines.iter().zip([None, None, None, Some(200)]) {
            assert_eq!(
                (line["status"].as_u64(), &line["error"]),
                (status, &"client_gone".into()),
                "{line}"
            );
            let attempt = &line["attempts"][0];
            let outcome = (attempt["outcome"].as_str(), attempt["outcome_reason"].as_str());
            assert_eq!(outcome, (Some("cancelled"), Some("client_gone")), "{line}");
        }
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_attempts_failed_total", &[]), 0, "{metrics}");
    });
}
