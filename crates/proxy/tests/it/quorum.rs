//! Routes that send one request to every replica of an upstream, and calls that outlive their request.

use crate::access_log::{lines_after, logging};
use crate::body;
use crate::client::{Client, FullResponse};
use crate::deadline::run_within;
use crate::directory::Directory;
use crate::proxy::{Proxy, Setup, ask_admin};
use crate::replica::{Replica, Speaks, abort, ok, status};
use curtail_proxy::Options;
use http::{Request, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

const LIMIT: Duration = Duration::from_secs(60);

/// Responds with the number of the replica and the request's body; replica 2 as the path says.
async fn respond(
    nth: usize,
    gate: Arc<Semaphore>,
    request: Request<Incoming>,
) -> Response<body::Body> {
    match (request.uri().path(), nth) {
        ("/waits", 2) => gate.acquire().await.expect("never closed").forget(),
        ("/streams", 2) => {
            let (sender, body) = body::channel();
            tokio::spawn(async move {
                gate.acquire().await.expect("never closed").forget();
                // Longer than `response_max`.
                for _ in 0..8 {
                    assert!(sender.data("x".repeat(1_024)).await, "the proxy reads to the end");
                }
            });
            return Response::new(body);
        }
        ("/fails", 2) | ("/most-fail", 1 | 2) => return status(StatusCode::INTERNAL_SERVER_ERROR),
        ("/breaks", 2) => return abort(),
        _ => {}
    }
    let Ok(sent) = request.into_body().collect().await else { return abort() };
    Response::new(body::whole(format!("{nth}{};", String::from_utf8_lossy(&sent.to_bytes()))))
}

/// Three replicas; the last one waits at a gate.
struct Members {
    replicas: Vec<Replica>,
    gate: Arc<Semaphore>,
}

impl Members {
    async fn start() -> Self {
        let (mut replicas, gate) = (Vec::new(), Arc::new(Semaphore::new(0)));
        for nth in 0..3 {
            let gate = Arc::clone(&gate);
            let response = move |request| respond(nth, Arc::clone(&gate), request);
            replicas.push(Replica::start(Speaks::Http1, response).await);
        }
        Self { replicas, gate }
    }

    fn urls(&self) -> impl Iterator<Item = String> {
        let named = self.replicas.iter().enumerate();
        named.map(|(nth, replica)| format!("replica-{nth}=http://{}", replica.address()))
    }

    fn setup(&self, fan_out: &str) -> Setup {
        Setup::before_urls(self.urls()).route(&format!("fan_out: {{to: replicas, {fan_out}}}"))
    }

    fn slow(&self) -> &Replica {
        &self.replicas[2]
    }
}

async fn get(proxy: &Proxy, path: &str) -> FullResponse {
    Client::connect(proxy.address(), Version::HTTP_11).await.get(path).await
}

fn text(response: &FullResponse) -> &str {
    std::str::from_utf8(&response.body).expect("text")
}

fn rest(metrics: &crate::metrics::Metrics, result: &str) -> u64 {
    metrics.sum("curtail_fan_out_rest_calls_total", &[("result", result)])
}

#[test]
fn a_broadcast_reaches_every_replica_once_under_every_rule() {
    run_within(LIMIT, async {
        for rule in ["round_robin", "random", "least_request", "peak_ewma", "prequal"] {
            let members = Members::start().await;
            let proxy = members.setup("").upstream(&format!("balance: {rule}")).start();
            let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
            for _ in 0..20 {
                let request = client.request_with("POST", "/purge", body::whole("!"));
                let response = client.send(request).await;
                assert_eq!((response.status, text(&response)), (StatusCode::OK, "0!;1!;2!;"));
                assert_eq!(response.get("curtail-replicas"), Some("3/3"), "{rule}");
                assert_eq!(response.get("curtail-shards"), None, "{rule}");
            }
            for replica in &members.replicas {
                assert_eq!(replica.record().matching(|seen| seen.method == "POST"), 20, "{rule}");
            }
        }
    });
}

#[test]
fn a_quorum_needs_as_many_replicas_as_it_says_and_names_the_failed() {
    run_within(LIMIT, async {
        let members = Members::start().await;
        let proxy = members.setup("needed: 2").upstream("retry: false").start();
        let response = get(&proxy, "/waits").await;
        assert_eq!((response.status, text(&response)), (StatusCode::OK, "0;1;"));
        assert_eq!(response.get("curtail-replicas"), Some("2/3"));
        members.slow().record().until(|record| record.reset() == 1).await;
        let response = get(&proxy, "/most-fail").await;
        assert_eq!(response.status, StatusCode::BAD_GATEWAY);
        assert_eq!(response.error(), Some("replicas_failed"));
        assert_eq!(response.get("curtail-replicas-failed"), Some("replica-1, replica-2"));
        let metrics = proxy.metrics().await;
        assert_eq!((rest(&metrics, "finished"), rest(&metrics, "cancelled")), (0, 0), "{metrics}");
    });
}

#[test]
fn a_retry_goes_to_the_replica_that_failed() {
    run_within(LIMIT, async {
        let members = Members::start().await;
        let keys = "retry: {backoff: 1ms}\nhedge: {delay_max: 1ms}";
        let directory = Directory::new();
        let file = directory.path("access.log");
        let proxy = logging(&members.setup("").upstream(keys), &file, "").start();
        let response = get(&proxy, "/breaks").await;
        assert_eq!(response.get("curtail-replicas-failed"), Some("replica-2"));
        let counts = members.replicas.iter().map(|replica| replica.record().count());
        assert_eq!(counts.collect::<Vec<_>>(), [1, 1, 3], "a first attempt, and two retries");
        let line = &lines_after(&proxy, 1, &file).await[0];
        assert_eq!(line["retries"], 2, "{line}");
    });
}

#[test]
fn the_calls_follow_the_members_of_the_upstream() {
    run_within(LIMIT, async {
        let members = Members::start().await;
        let setup = members.setup("");
        let proxy = setup.start();
        assert_eq!(text(&get(&proxy, "/any").await), "0;1;2;");
        let without_first =
            Setup::before_urls(members.urls().skip(1)).route("fan_out: {to: replicas}");
        proxy.reload(&without_first).expect("it is good");
        let response = get(&proxy, "/any").await;
        assert_eq!((text(&response), response.get("curtail-replicas")), ("1;2;", Some("2/2")));
        proxy.reload(&setup).expect("it is good");
        assert_eq!(text(&get(&proxy, "/any").await), "1;2;0;", "it is the newest one now");
        assert_eq!(members.replicas[0].record().count(), 2);
    });
}

#[test]
fn the_rest_finishes_after_its_client_has_left() {
    run_within(LIMIT, async {
        let members = Members::start().await;
        let proxy = members.setup("needed: 2, rest: finish, response_max: 1KiB").start();
        for (nth, path) in ["/waits", "/streams", "/fails"].into_iter().enumerate() {
            let response = get(&proxy, path).await;
            assert_eq!((response.status, text(&response)), (StatusCode::OK, "0;1;"), "{path}");
            members.gate.add_permits(usize::from(path != "/fails"));
            proxy.until(|metrics| rest(metrics, "finished") == nth as u64 + 1).await;
        }
        assert_eq!(members.slow().record().reset(), 0, "nothing is cancelled");
        let metrics = proxy.metrics().await;
        let complete = [("upstream", "service"), ("status", "2xx")];
        assert_eq!(metrics.sum("curtail_requests_total", &complete), 8, "{metrics}");
        assert_eq!(rest(&metrics, "cancelled"), 0, "{metrics}");
    });
}

#[test]
fn a_failure_does_not_keep_a_broadcast_from_the_other_replicas() {
    run_within(LIMIT, async {
        let members = Members::start().await;
        let mut setup = members.setup("rest: finish").upstream("retry: false");
        let down = Replica::responding(Speaks::Http1, "").await.address();
        setup = setup.and_replica(down);
        let proxy = setup.start();
        let response = get(&proxy, "/waits").await;
        assert_eq!(response.error(), Some("replicas_failed"));
        members.gate.add_permits(1);
        proxy
            .until(|metrics| metrics.sum("curtail_requests_total", &[("status", "2xx")]) == 3)
            .await;
        assert_eq!(members.slow().record().reset(), 0);
    });
}

#[test]
fn a_client_that_leaves_before_the_request_is_done_cancels_every_call() {
    run_within(LIMIT, async {
        let members = Members::start().await;
        let proxy = members.setup("rest: finish").start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let request = client.request("GET", "/waits");
        tokio::select! {
            response = client.try_send(request) => panic!("a replica waits: {response:?}"),
            () = members.slow().record().until(|record| record.count() == 1) => {}
        }
        drop(client);
        members.slow().record().until(|record| record.reset() == 1).await;
        let gone = [("result", "client_gone")];
        let metrics =
            proxy.until(|metrics| metrics.sum("curtail_fan_out_requests_total", &gone) == 1).await;
        assert_eq!((rest(&metrics, "finished"), rest(&metrics, "cancelled")), (0, 0), "{metrics}");
    });
}

#[test]
fn a_drain_waits_for_the_rest_within_its_limit() {
    run_within(LIMIT, async {
        for is_released in [true, false] {
            let members = Members::start().await;
            let setup = members.setup("needed: 2, rest: finish").on_own_address();
            let proxy = setup.start();
            assert_eq!(text(&get(&proxy, "/waits").await), "0;1;");
            members.slow().record().until(|record| record.count() == 1).await;
            let (address, admin) = (proxy.address(), proxy.admin_address());
            let grace = if is_released { LIMIT } else { Duration::ZERO };
            let stopped = proxy.stop(grace);
            if is_released {
                while TcpStream::connect(address).await.is_ok() {
                    tokio::task::yield_now().await;
                }
                // The admin port closes when the workers are drained.
                for _ in 0..100 {
                    ask_admin(admin, "/healthz").await.expect("a call is open");
                }
                members.gate.add_permits(1);
            }
            stopped.await.expect("it stops");
            // The replica notices the end of the connection some time after the proxy has stopped.
            let resets = usize::from(!is_released);
            members.slow().record().until(|record| record.reset() == resets).await;
        }
    });
}

#[test]
fn the_rest_of_a_request_is_cancelled_when_too_many_calls_are_open() {
    const SHARDS: u64 = 120;
    run_within(LIMIT, async {
        let fast = Replica::responding(Speaks::Http1, "fast").await;
        let hung = Replica::start(Speaks::Http2, |_| async {
            std::future::pending::<()>().await;
            ok("")
        })
        .await;
        let upstream = |nth: u64, address: SocketAddr, keys: &str| {
            format!("  shard-{nth}: {{replicas: [\"http://{address}\"], {keys}}}\n")
        };
        let mut upstreams = upstream(0, fast.address(), "");
        for nth in 1..SHARDS {
            upstreams += &upstream(nth, hung.address(), "connect: {protocol: http2}");
        }
        let yaml = format!(
            "workers: 1\n\
             listeners: [{{address: \"127.0.0.1:0\"}}]\n\
             admin: {{address: \"127.0.0.1:0\"}}\n\
             routes: [{{upstream: \"shard-*\", fan_out: {{needed: 1, rest: finish}}}}]\n\
             upstreams:\n{upstreams}"
        );
        let proxy = Proxy::start(&yaml, &Options { journal: None, seed: 7, ..Options::default() });
        // 4,096 calls of a worker may be open.
        let (fit, rest_calls) = (4_096 / (SHARDS - 1), SHARDS - 1);
        for nth in 1..=fit + 2 {
            assert_eq!(get(&proxy, "/any").await.get("curtail-shards"), Some("1/120"));
            let metrics = proxy.metrics().await;
            let expected = nth.saturating_sub(fit) * rest_calls;
            assert_eq!(rest(&metrics, "cancelled"), expected, "after {nth}: {metrics}");
        }
        assert_eq!(rest(&proxy.metrics().await, "finished"), 0);
        proxy.stop(Duration::ZERO).await.expect("it stops");
    });
}
