//! Routes that override their upstream and `limits`: retries, idle timeouts of streams, and gRPC deadlines.

use crate::access_log::{lines_after, logging};
use crate::body;
use crate::client::{Client, FullResponse};
use crate::deadline::run;
use crate::directory::Directory;
use crate::frames::{CANCEL, DATA, END_HEADERS, Frames, HEADERS, RST_STREAM, fields};
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::{RawReplica, Refusing};
use crate::replica::{Replica, Speaks, ok, status};
use crate::wire::Wire;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// The status and the number of attempts of a request to two replicas that respond with this status.
async fn attempts(keys: &str, code: StatusCode, upstream: &str) -> (u16, usize) {
    let start = || Replica::start(Speaks::Http1, move |_| std::future::ready(status(code)));
    let (a, b) = (start().await, start().await);
    let proxy = Setup::before(&[a.address(), b.address()])
        .upstream(&format!("hedge: false\n{upstream}"))
        .route(keys)
        .start();
    let response = Client::connect(proxy.address(), Version::HTTP_11).await.get("/").await;
    (response.status.as_u16(), a.record().count() + b.record().count())
}

#[test]
fn a_route_decides_which_statuses_are_retried_and_how_often() {
    run(async {
        let (unavailable, error) =
            (StatusCode::SERVICE_UNAVAILABLE, StatusCode::INTERNAL_SERVER_ERROR);
        let retries = "retry: {retries_max: 3, backoff: 1ms}";
        for (keys, upstream, code, expected) in [
            ("idempotent: false", retries, unavailable, 4),
            ("idempotent: false", retries, error, 1),
            ("retry: {}", retries, unavailable, 4),
            ("retry: {statuses: [500, 429]}", retries, error, 4),
            ("retry: {statuses: [500, 429]}", retries, unavailable, 1),
            ("retry: {statuses: []}", retries, unavailable, 1),
            ("retry: {retries_max: 0}", retries, unavailable, 1),
            ("retry: {retries_max: 1}", retries, unavailable, 2),
            ("retry: {retries_max: 7}", retries, unavailable, 4),
            ("retry: {retries_max: 7}", "retry: false", unavailable, 1),
        ] {
            let got = attempts(keys, code, upstream).await;
            assert_eq!(got, (code.as_u16(), expected), "{keys}, {upstream}, {code}");
        }
    });
}

/// Waits until a stream has timed out.
async fn idle(proxy: &Proxy) {
    let reason = [("reason", "stream_idle")];
    proxy.until(|metrics| metrics.sum("curtail_client_timeouts_total", &reason) == 1).await;
}

#[test]
fn a_route_has_an_idle_timeout_of_its_own_for_streams_and_upgraded_connections() {
    run(async {
        let setup = |address| {
            Setup::before(&[address])
                .top("limits: {stream_idle_timeout: 1h}")
                .route("stream_idle_timeout: 20ms")
        };
        let replica = Replica::start(Speaks::Http2, |_| {
            let (sender, body) = body::channel();
            tokio::spawn(async move {
                sender.data("begun").await;
                sender.closed().await;
            });
            std::future::ready(Response::new(body))
        })
        .await;
        let proxy = setup(replica.address()).upstream("connect: {protocol: http2}").start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        let request = client.request("GET", "/");
        let response = client.try_send(request).await.expect("a response");
        assert!(response.into_body().collect().await.is_err(), "the stream ends");
        idle(&proxy).await;

        let replica = RawReplica::start(|mut wire, record, _| async move {
            if record.read(&mut wire).await.is_some() {
                wire.send(
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
                )
                .await;
                wire.read_to_close().await;
            }
        })
        .await;
        let proxy = setup(replica.address()).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await;
        assert_eq!(wire.read_head().await.expect("held").expect("a response").status(), 101);
        assert_eq!(wire.read_to_close().await, "");
        idle(&proxy).await;
    });
}

/// Sends a gRPC call with this `grpc-timeout`.
async fn call(proxy: &Proxy, version: Version, timeout: &'static str) -> FullResponse {
    let mut client = Client::connect(proxy.address(), version).await;
    let request = call_of(&client, timeout);
    client.send(request).await
}

fn call_of(client: &Client, timeout: &'static str) -> Request<body::Body> {
    let mut request = client.request_with("POST", "/pkg.Service/Method", body::whole("question"));
    for (name, value) in
        [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", timeout)]
    {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    request
}

#[test]
fn a_call_ends_at_the_deadline_of_its_client() {
    run(async {
        let replica = Replica::start(Speaks::Http2, |request: Request<_>| async move {
            if request.headers()["grpc-timeout"] != "2H" {
                std::future::pending::<()>().await;
            }
            ok("response")
        })
        .await;
        let setup = Setup::before(&[replica.address()]).upstream("connect: {protocol: http2}");
        let proxy = setup.clone().route("grpc_timeout: true").start();
        for version in [Version::HTTP_2, Version::HTTP_11] {
            let response = call(&proxy, version, "2H").await;
            assert_eq!(response.error(), None);
            assert_eq!(response.body, "response");
            let response = call(&proxy, version, "20m").await;
            assert_eq!((response.status, response.get("grpc-status")), (StatusCode::OK, Some("4")));
            assert_eq!(response.get("content-type"), Some("application/grpc"));
            assert_eq!((response.error(), response.body.len()), (Some("timed_out"), 0));
            assert!(response.trailers.is_none());
        }
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_requests_total", &[("status", "5xx")]), 2, "{metrics}");

        // The smaller limit counts. Without a valid `grpc-timeout`, or without the key, only the timeout does.
        let by_route = |key: &str| setup.clone().route(&format!("{key}timeout: 20ms")).start();
        let response = call(&by_route("grpc_timeout: true, "), Version::HTTP_2, "1H").await;
        assert_eq!(response.get("grpc-status"), Some("4"));
        for (key, timeout) in [("grpc_timeout: true, ", "1h"), ("", "1m")] {
            let response = call(&by_route(key), Version::HTTP_2, timeout).await;
            assert_eq!(
                (response.get("grpc-status"), response.error()),
                (Some("14"), Some("timed_out"))
            );
        }
    });
}

/// A replica that resets the stream of each call with `CANCEL`, at once or, after a message, on a signal.
async fn start_resetting_replica(signal: Option<Arc<Notify>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let signal = signal.clone();
            tokio::spawn(async move {
                let Ok(mut frames) = Frames::accept(stream).await else { return };
                while let Some(frame) = frames.read().await {
                    if frame.kind != HEADERS {
                        continue;
                    }
                    if let Some(signal) = &signal {
                        let head = fields(&[(":status", "200")]);
                        frames.send(HEADERS, END_HEADERS, frame.stream, &head).await;
                        frames.send(DATA, 0, frame.stream, b"message").await;
                        signal.notified().await;
                    }
                    frames.send(RST_STREAM, 0, frame.stream, &CANCEL.to_be_bytes()).await;
                }
            });
        }
    });
    address
}

#[test]
fn a_replica_that_resets_a_call_at_its_deadline_has_neither_failed_nor_succeeded() {
    run(async {
        let ejections = "curtail_replica_ejections_total";
        let setup = Setup::before(&[start_resetting_replica(None).await])
            .upstream("connect: {protocol: http2}");
        let proxy = setup.start();
        for _ in 0..4 {
            let response = call(&proxy, Version::HTTP_2, "1n").await;
            assert_eq!((response.status, response.get("grpc-status")), (StatusCode::OK, Some("4")));
            assert_eq!(response.error(), Some("timed_out"));
        }
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_requests_total", &[("status", "5xx")]), 4, "{metrics}");
        assert_eq!(metrics.sum(ejections, &[]), 0, "{metrics}");
        // Before the deadline, a reset is a failure. Three in a row eject the replica, whatever is between them.
        for (timeout, status) in [("1H", "14"), ("1H", "14"), ("1n", "4"), ("1H", "14")] {
            let response = call(&proxy, Version::HTTP_2, timeout).await;
            assert_eq!(response.get("grpc-status"), Some(status), "{timeout}");
        }
        assert_eq!(proxy.metrics().await.sum(ejections, &[]), 1);
    });
}

#[test]
fn a_stream_that_its_replica_resets_at_the_deadline_ends_with_a_status() {
    run(async {
        let signal = Arc::new(Notify::new());
        let replica = start_resetting_replica(Some(Arc::clone(&signal))).await;
        let proxy = Setup::before(&[replica]).upstream("connect: {protocol: http2}").start();
        for _ in 0..4 {
            let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
            let request = call_of(&client, "1n");
            let mut response = client.try_send(request).await.expect("a response").into_body();
            let frame = response.frame().await.expect("a frame").expect("a good one");
            assert_eq!(frame.into_data().expect("data"), "message");
            signal.notify_one();
            let frame = response.frame().await.expect("a frame").expect("a good one");
            assert_eq!(frame.into_trailers().expect("trailers")["grpc-status"], "4");
        }
        let metrics = proxy.metrics().await;
        let failed = metrics.sum("curtail_requests_total", &[("status", "grpc_failure")]);
        let ejected = metrics.sum("curtail_replica_ejections_total", &[]);
        assert_eq!((failed, ejected), (4, 0), "{metrics}");
    });
}

#[test]
fn a_grpc_call_gets_errors_of_the_proxy_as_statuses_of_grpc_and_other_requests_do_not() {
    run(async {
        let refusing = Refusing::new();
        let directory = Directory::new();
        let log = directory.path("access.log");
        let setup = Setup::before(&[refusing.address()])
            .upstream("connect: {protocol: http2}\nretry: false");
        let proxy = logging(&setup, &log, "").start();
        for version in [Version::HTTP_2, Version::HTTP_11] {
            let response = call(&proxy, version, "1H").await;
            assert_eq!(response.status, StatusCode::OK);
            assert_eq!(response.get("grpc-status"), Some("14"));
            assert_eq!(response.get("grpc-message"), Some("curtail: not_sent"));
            assert_eq!((response.error(), response.body.len()), (Some("not_sent"), 0));
            // A cache would take its status for that of a page.
            let mut client = Client::connect(proxy.address(), version).await;
            let mut get = client.request("GET", "/pkg.Service/Method");
            get.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
            let response = client.send(get).await;
            assert_eq!((response.status.as_u16(), response.get("grpc-status")), (503, None));
        }
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_requests_total", &[("status", "5xx")]), 4, "{metrics}");
        let lines = lines_after(&proxy, 4, &log).await;
        assert!(lines.iter().all(|line| line["status"] == 503), "{lines:?}");
    });
}
