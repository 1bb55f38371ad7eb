//! Stalled streams on a shared HTTP/2 connection, towards a replica and from a client.

use crate::body::{self, Progress};
use crate::client::Client;
use crate::deadline::run;
use crate::frames::{END_HEADERS, END_STREAM, Frames, HEADERS, SETTINGS, request};
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::{self, RawReplica};
use crate::replica::{Replica, Speaks, gated, ok};
use http::{Response, StatusCode, Version};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// Far more than all windows and socket buffers between a replica and its client.
const LONG_BYTES: u64 = 64 << 20;

/// A replica whose `/long` responses never end, and the progress of each.
async fn with_long_responses() -> (Replica, Arc<Mutex<Vec<Arc<Progress>>>>) {
    let handed: Arc<Mutex<Vec<Arc<Progress>>>> = Arc::default();
    let all = Arc::clone(&handed);
    let replica = Replica::start(Speaks::Http2, move |request| {
        let response = if request.uri().path() == "/long" {
            let progress = Arc::new(Progress::default());
            all.lock().expect("no panic").push(Arc::clone(&progress));
            Response::new(body::long(LONG_BYTES, &progress))
        } else {
            ok("fast")
        };
        std::future::ready(response)
    })
    .await;
    (replica, handed)
}

/// Waits until no download makes progress.
async fn until_all_are_still(all: &[Arc<Progress>]) {
    let mut waiting = tokio::task::JoinSet::new();
    for progress in all {
        let progress = Arc::clone(progress);
        waiting.spawn(async move { progress.until_still().await });
    }
    while let Some(still) = waiting.join_next().await {
        still.expect("no panic");
    }
}

/// Checks that a replica's one connection with this many unread downloads still serves other requests.
async fn assert_downloads_starve_no_other_stream(unread: u32) {
    let (replica, handed) = with_long_responses().await;
    let proxy = Setup::before(&[replica.address()])
        .upstream(
            "connect: {protocol: http2, http2_connections_max: 1}\n\
             hedge: false\nretry: false\ntimeout: 5s",
        )
        .start();
    let mut frames = Frames::connect(proxy.address()).await;
    // SETTINGS_INITIAL_WINDOW_SIZE is zero: this client reads heads and no byte of a body.
    frames.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
    for nth in 0..unread {
        let whole = END_HEADERS | END_STREAM;
        frames.send(HEADERS, whole, 2 * nth + 1, &request("GET", "/long")).await;
        let response = frames.read().await.expect("the connection goes on");
        assert_eq!((response.kind, response.stream), (HEADERS, 2 * nth + 1), "{response:?}");
    }
    let handed = handed.lock().expect("no panic").clone();
    until_all_are_still(&handed).await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut client = Client::connect(proxy.address(), version).await;
        for _ in 0..10 {
            let response = client.get("/fast").await;
            assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"fast"[..]));
        }
    }
    // The downloads use as many connections as there are workers.
    assert!(replica.record().connections() <= 2, "{}", replica.record().connections());
}

#[test]
fn nine_unread_downloads_on_a_connection_to_a_replica_starve_no_other_stream() {
    run(assert_downloads_starve_no_other_stream(9));
}

#[test]
fn unread_downloads_that_fill_a_connection_but_for_one_stream_starve_no_other_stream() {
    run(assert_downloads_starve_no_other_stream(63));
}

#[test]
fn uploads_that_no_replica_reads_starve_no_other_stream_of_their_client() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            let head = wire.read_head().await.expect("held").expect("a request");
            if head.request().1 == "/stuck" {
                // The replica reads no byte of the body and lives as long as the proxy.
                return std::future::pending().await;
            }
            wire.read_exact(4).await.expect("a body");
            wire.send(raw_replica::response("fast")).await;
            raw_replica::serve(wire, record, "fast").await;
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).upstream("timeout: 20s").start();
        let client = Client::connect(proxy.address(), Version::HTTP_2).await;
        let mut handed = Vec::new();
        let mut uploads = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let progress = Arc::new(Progress::default());
            let mut client = client.share();
            let request = client.request_with("POST", "/stuck", body::long(LONG_BYTES, &progress));
            handed.push(progress);
            uploads.spawn(async move { client.try_send(request).await.map(drop) });
        }
        until_all_are_still(&handed).await;
        for _ in 0..10 {
            let mut client = client.share();
            let request = client.request_with("POST", "/fast", body::whole("body"));
            let sent =
                tokio::time::timeout(std::time::Duration::from_secs(5), client.send(request));
            let response = sent.await.expect("the request waits for unread uploads");
            assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"fast"[..]));
        }
        uploads.abort_all();
    });
}

/// A replica whose responses wait for the test, and a client of a proxy in front of it.
async fn waiting(speaks: Speaks, connect: &str) -> (Replica, Proxy, Client, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let opens = Arc::clone(&gate);
    let replica = Replica::start(speaks, move |_| {
        let opens = Arc::clone(&opens);
        async move {
            opens.acquire().await.expect("never closed").forget();
            ok("at last")
        }
    })
    .await;
    let proxy = Setup::before(&[replica.address()])
        .upstream(&format!("connect: {{protocol: http2{connect}}}\nhedge: false\nretry: false"))
        .start();
    let client = Client::connect(proxy.address(), Version::HTTP_2).await;
    (replica, proxy, client, gate)
}

#[test]
fn requests_are_spread_when_a_replica_allows_few_on_a_connection() {
    run(async {
        let (replica, _proxy, client, gate) = waiting(Speaks::Http2Streams(4), "").await;
        let mut asking = tokio::task::JoinSet::new();
        for nth in 1..=40 {
            let mut client = client.share();
            asking.spawn(async move { client.get("/").await.status });
            // Each request reaches the replica before the next one starts, so none queues.
            replica.record().until(|record| record.count() == nth).await;
        }
        gate.add_permits(40);
        while let Some(status) = asking.join_next().await {
            assert_eq!(status.expect("no panic"), StatusCode::OK);
        }
        let connections = replica.record().connections();
        assert!((10..=16).contains(&connections), "{connections} connections of 4 requests each");
    });
}

#[test]
fn requests_beyond_a_replicas_own_limit_of_streams_go_to_another_replica() {
    run(async {
        let (full, gate) = gated(Speaks::Http2Streams(1)).await;
        let free = Replica::responding(Speaks::Http2, "free").await;
        let before = |replicas: &[SocketAddr]| {
            let keys = "connect: {protocol: http2, http2_connections_max: 2}\nhedge: false";
            Setup::before(replicas).workers(1).upstream(keys)
        };
        let proxy = before(&[full.address()]).start();
        let client = Client::connect(proxy.address(), Version::HTTP_2).await;
        let mut asking = tokio::task::JoinSet::new();
        for nth in 1..=2 {
            let mut client = client.share();
            asking.spawn(async move { client.get("/").await.status });
            full.record().until(|record| record.count() == nth).await;
        }
        assert_eq!(full.record().connections(), 2, "a further connection is opened first");
        let mut client = client.share();
        let response = client.get("/").await;
        assert_eq!((response.status.as_u16(), response.error()), (503, Some("connection_limit")));

        proxy.reload(&before(&[full.address(), free.address()])).expect("it is good");
        for _ in 0..10 {
            let response = client.get("/").await;
            assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"free"[..]));
        }
        assert_eq!((full.record().count(), free.record().count()), (2, 10));
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_replica_ejections_total", &[]), 0, "{metrics}");
        gate.add_permits(2);
        while let Some(status) = asking.join_next().await {
            assert_eq!(status.expect("no panic"), StatusCode::OK);
        }
    });
}

#[test]
fn a_request_that_finds_all_connections_full_is_not_sent() {
    run(async {
        let few = ", http2_connections_max: 2, http2_streams_max: 3";
        let (replica, proxy, client, gate) = waiting(Speaks::Http2, few).await;
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let mut client = client.share();
            asking.spawn(async move { client.get("/").await.status });
        }
        replica.record().until(|record| record.count() == 6).await;
        let mut client = client.share();
        let response = client.get("/").await;
        assert_eq!((response.status.as_u16(), response.error()), (503, Some("connection_limit")));
        gate.add_permits(7);
        while let Some(status) = asking.join_next().await {
            assert_eq!(status.expect("no panic"), StatusCode::OK);
        }
        assert_eq!(client.get("/").await.status, StatusCode::OK, "there is room again");
        let rejected = [("failure", "connection_limit")];
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_attempts_failed_total", &rejected), 1, "{metrics}");
        assert_eq!(replica.record().connections(), 2);
    });
}
