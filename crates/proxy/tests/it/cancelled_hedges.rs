//! Fifty thousand hedges cancelled over HTTP/2, and not one live request lost.
//!
//! Cancelling is a reset stream, and many of those are what an attack looks like: by default hyper and h2 end
//! the connection, on either side, with all that is alive on it. Here root, leaves and servers are connected
//! over HTTP/2, so each cancel passes the pool of the root, the listener of a leaf, and the pool of the leaf.

use crate::client::Client;
use crate::deadline::run_within;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Speaks, ok};
use http::{HeaderMap, StatusCode, Uri, Version};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const CANCELS: usize = 50_000;

/// Requests at once whose first attempt is cancelled.
const HEDGED_AT_ONCE: usize = 48;

/// Requests at once that are never hedged, and must succeed with their only attempt.
const LIVE_AT_ONCE: usize = 4;

/// A hedge is of a lower class than its first attempt: only hedges get a response.
fn hangs(uri: &Uri, headers: &HeaderMap) -> bool {
    uri.path() == "/hedged" && !headers.contains_key("curtail-class")
}

#[test]
fn fifty_thousand_cancelled_hedges_cost_no_live_request() {
    // Some 20 s of processor time for clients, root, leaves and servers together.
    run_within(Duration::from_secs(300), async {
        let server = || {
            Replica::start(Speaks::Http2, |request| async move {
                if hangs(request.uri(), request.headers()) {
                    std::future::pending::<()>().await;
                }
                ok("good")
            })
        };
        let (a, b) = (server().await, server().await);
        let leaf = |name: &str, server: &Replica| {
            let server = server.address();
            format!(
                "{{name: {name}, address: \"127.0.0.1:0\", server: \"http://{server}\", concurrency: 1000, \
                 connect: {{protocol: http2}}}}"
            )
        };
        let leaves = Proxy::of_leaves(&[leaf("a", &a), leaf("b", &b)]);
        let root = Setup::before(&[leaves.listener("a"), leaves.listener("b")])
            .upstream(
                "connect: {protocol: http2}\nbalance: round_robin\nretry: false\n\
                 budget: {ratio: 1.0}\nhedge: {delay_min: 1ms, delay_max: 1ms}",
            )
            .start();
        let left = Arc::new(AtomicUsize::new(CANCELS));
        let client = Client::connect(root.address(), Version::HTTP_2).await;
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..HEDGED_AT_ONCE {
            let (mut client, left) = (client.share(), Arc::clone(&left));
            asking.spawn(async move {
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                    .is_ok()
                {
                    let response = client.get("/hedged").await;
                    assert_eq!(response.status, StatusCode::OK, "{response:?}");
                }
            });
        }
        for _ in 0..LIVE_AT_ONCE {
            let (mut client, left) = (client.share(), Arc::clone(&left));
            asking.spawn(async move {
                while left.load(Ordering::Relaxed) > 0 {
                    let request = client.request("POST", "/live");
                    let response = client.send(request).await;
                    assert_eq!(response.status, StatusCode::OK, "{response:?}");
                }
            });
        }
        while let Some(ended) = asking.join_next().await {
            ended.expect("every request succeeds");
        }
        let metrics = root.metrics().await;
        assert_eq!(metrics.cancelled("lost"), CANCELS as u64, "{metrics}");
        // They got through to the servers: of what was left hanging there, every request was reset. (One
        // whose cancellation overtook it on the way never came.)
        for server in [a.record(), b.record()] {
            server
                .until(|record| {
                    record.reset() == record.matching(|seen| hangs(&seen.uri, &seen.headers))
                })
                .await;
            println!("{} streams were reset at a server", server.reset());
            assert!(server.reset() > 0);
        }
        for (name, metrics) in [("root", metrics), ("leaves", leaves.metrics().await)] {
            let opened = metrics.sum("curtail_connections_opened_total", &[]);
            assert!(opened <= 16, "{opened} connections were opened by the {name}");
        }
    });
}
