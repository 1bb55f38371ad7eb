//! Unused connections: closed by the other side, or idle for too long.

use crate::client::Client;
use crate::deadline::run;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::{self, RawReplica};
use crate::replica::{Replica, Speaks};
use crate::wire::Wire;
use http::{StatusCode, Version};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc};

/// A server that serves one request per connection, closes its side on `close`, and reports when the proxy has
/// closed the other side. It responds to `/stream` without an end.
async fn closing(close: &Arc<Notify>) -> (RawReplica, mpsc::Receiver<()>) {
    let (closed, all_closed) = mpsc::channel(4);
    let close = Arc::clone(close);
    let server = RawReplica::start(move |mut wire, record, _| {
        let (closed, close) = (closed.clone(), Arc::clone(&close));
        async move {
            let request = record.read(&mut wire).await.expect("a request");
            if request.head.request().1 == "/stream" {
                wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n").await;
                wire.read_to_close().await;
                return;
            }
            let response = if request.head.request().1.starts_with("/.curtail/") {
                "HTTP/1.1 204 No Content\r\n\r\n".to_owned()
            } else {
                raw_replica::response("once")
            };
            wire.send(response).await;
            close.notified().await;
            wire.close_write().await;
            assert!(record.read(&mut wire).await.is_none(), "it got another request");
            closed.send(()).await.expect("the test listens");
        }
    })
    .await;
    (server, all_closed)
}

#[test]
fn a_leaf_closes_connections_that_other_leaves_have_closed() {
    run(async {
        let close = Arc::new(Notify::new());
        let (twin, mut closed) = closing(&close).await;
        let server = RawReplica::responding("good").await;
        let leaf = Proxy::of_leaves(&[format!(
            "{{name: leaf, address: \"127.0.0.1:0\", server: \"http://{}\"}}",
            server.address()
        )]);
        let mut wire = Wire::connect(leaf.listener("leaf")).await;
        let tie = format!("00000000000000aa;first;{}", twin.address());
        wire.send(format!("GET / HTTP/1.1\r\nhost: h\r\ncurtail-tie: {tie}\r\n\r\n")).await;
        assert_eq!(wire.response().await.head.status(), 200);
        twin.record().until(|record| record.requests().len() == 1).await;
        close.notify_one();
        closed.recv().await.expect("the leaf closes its side as well");
    });
}

#[test]
fn a_replaced_upstream_closes_its_unused_connections() {
    run(async {
        let close = Arc::new(Notify::new());
        let (old, mut closed) = closing(&close).await;
        let new = RawReplica::responding("new").await;
        let proxy = Setup::before(&[old.address()]).upstream("hedge: false").start();
        // Both requests run on one worker, which owns the connections.
        let mut streaming = Client::connect(proxy.address(), Version::HTTP_2).await;
        let request = streaming.request("GET", "/stream");
        let stream = streaming.try_send(request).await.expect("a response");
        assert_eq!(streaming.get("/").await.body, "once");
        proxy.reload(&Setup::before(&[new.address()])).expect("the reload succeeds");
        assert_eq!(streaming.get("/").await.body, "new");
        close.notify_one();
        closed.recv().await.expect("it is closed while the stream goes on");
        assert_eq!(stream.status(), StatusCode::OK);
    });
}

#[test]
fn an_idle_http_2_connection_is_closed() {
    run(async {
        let replica = Replica::responding(Speaks::Http2, "good").await;
        let proxy = Setup::before(&[replica.address()])
            .upstream("connect: {protocol: http2, idle_timeout: 100ms}")
            .start();
        for nth in 1..3 {
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            assert_eq!(client.get("/").await.status, StatusCode::OK);
            proxy.until(|metrics| metrics.sum("curtail_connections_open", &[]) == 0).await;
            assert_eq!(replica.record().connections(), nth);
        }
    });
}
