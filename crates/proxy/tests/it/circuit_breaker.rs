//! Circuit breakers: ejections of replicas, and limits of upstreams and connections. Each one is in the log, in the metrics
//! and in `/state`.

use crate::access_log::lines_after;
use crate::certificates::Authority;
use crate::client::{Client, FullResponse};
use crate::deadline::run;
use crate::directory::Directory;
use crate::logs;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, gated, ok, status};
use http::{StatusCode, Version};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

async fn upstream_state(proxy: &Proxy) -> Value {
    let state = proxy.admin("/state").await;
    let state: Value = serde_json::from_slice(&state.body).expect("JSON");
    state["upstreams"][0].clone()
}

/// Sends a request on a connection of its own.
async fn ask(proxy: SocketAddr, version: Version) -> JoinHandle<FullResponse> {
    let mut client = Client::connect(proxy, version).await;
    tokio::spawn(async move { client.get("/").await })
}

#[test]
fn an_ejection_and_its_end_are_logged_counted_and_shown() {
    run(async {
        let is_failing = Arc::new(AtomicBool::new(true));
        let fails = Arc::clone(&is_failing);
        let bad = Replica::start(Speaks::Http1, move |_| {
            let is_failing = fails.load(Ordering::SeqCst);
            let response = if is_failing { status(StatusCode::BAD_GATEWAY) } else { ok("good") };
            std::future::ready(response)
        });
        let bad = bad.await;
        let proxy = Setup::before(&[bad.address()]).upstream("retry: false\nhedge: false").start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let circuit = async || upstream_state(&proxy).await["replicas"][0]["circuit"].clone();
        let closed = json!({ "state": "closed", "failures": 0, "open_for_ms": 0.0 });
        assert_eq!(circuit().await, closed);
        let ejections = |metrics: &crate::metrics::Metrics| {
            metrics.sum("curtail_replica_ejections_total", &[("reason", "bad_response")])
        };
        for failures in 1..=3 {
            assert_eq!(client.get("/").await.status, StatusCode::BAD_GATEWAY);
            assert_eq!(circuit().await["failures"], failures);
        }
        assert_eq!(ejections(&proxy.metrics().await), 1);
        let address = bad.address().to_string();
        let line = logs::until(&["replica is ejected after failures", &address]).await;
        for part in
            ["WARN", "upstream=\"service\"", "bad_response", "failures=3", "duration=100 ms"]
        {
            assert!(line.contains(part), "{part}: {line}");
        }
        // With no other replica, it gets requests even so. After the ejection, the next failure ejects it again.
        while circuit().await["state"] != "half_open" {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.get("/").await.status, StatusCode::BAD_GATEWAY);
        let again = circuit().await;
        assert!(again["failures"] == 4 && again["state"] != "closed", "{again}");
        let metrics = proxy.metrics().await;
        assert_eq!(
            (ejections(&metrics), metrics.sum("curtail_replica_ejections_total", &[])),
            (2, 2)
        );

        is_failing.store(false, Ordering::SeqCst);
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        logs::until(&["replica succeeds again after an ejection", &address]).await;
        assert_eq!(circuit().await, closed);
    });
}

#[test]
fn an_upstream_at_its_limit_rejects_requests_until_others_end() {
    run(async {
        for (version, speaks, connect, max) in [
            (Version::HTTP_11, Speaks::Http1, "", 2),
            (Version::HTTP_2, Speaks::Http2, "\nconnect: {protocol: http2}", 3),
        ] {
            let (replica, gate) = gated(speaks).await;
            let keys =
                format!("hedge: false\nretry: false\nholdout: 0.5\nin_flight_max: {max}{connect}");
            let proxy = Setup::before(&[replica.address()]).upstream(&keys).start();
            let mut asking = Vec::new();
            for nth in 1..=max {
                asking.push(ask(proxy.address(), version).await);
                replica.record().until(|record| record.count() == nth).await;
            }
            let mut client = Client::connect(proxy.address(), version).await;
            let mut rejections = 0;
            // The breaker closes after a second without a rejection, which can be over before it is seen.
            let (metrics, state) = loop {
                for _ in 0..2 {
                    let rejected = client.get("/").await;
                    let error = Some("upstream_in_flight_limit");
                    assert_eq!((rejected.status.as_u16(), rejected.error()), (503, error));
                    assert_eq!(rejected.get("retry-after"), Some("1"));
                    rejections += 1;
                }
                let metrics = proxy.metrics().await;
                let state = upstream_state(&proxy).await["in_flight_limit"].clone();
                if metrics.sum("curtail_upstream_at_limit", &[]) == 1 && state["state"] == "open" {
                    break (metrics, state);
                }
            };
            for (name, value) in [
                ("curtail_upstream_in_flight", max as u64),
                ("curtail_upstream_in_flight_remaining", 0),
                ("curtail_upstream_requests_rejected_total", rejections),
                ("curtail_budget_requests", max as u64),
                ("curtail_requests_total", 0),
            ] {
                assert_eq!(metrics.sum(name, &[("upstream", "service")]), value, "{name}");
            }
            let expected =
                json!({ "state": "open", "rejected": rejections, "in_flight": max, "max": max });
            assert_eq!(state, expected);
            let max_field = format!("in_flight_max={max}");
            logs::until(&["upstream is at its limit of requests in flight", &max_field]).await;

            gate.add_permits(max);
            for asked in asking {
                assert_eq!(asked.await.expect("no panic").status, StatusCode::OK);
            }
            proxy.until(|m| m.sum("curtail_upstream_in_flight", &[]) == 0).await;
            gate.add_permits(1);
            assert_eq!(client.get("/").await.status, StatusCode::OK);
            proxy.until(|m| m.sum("curtail_upstream_at_limit", &[]) == 0).await;
            logs::until(&["upstream is below its limit of requests in flight again"]).await;
            let metrics = proxy.metrics().await;
            assert_eq!(metrics.sum("curtail_requests_total", &[]), max as u64 + 1);
            assert_eq!(metrics.sum("curtail_holdout_requests_total", &[]), max as u64 + 1);
        }
    });
}

#[test]
fn a_reload_changes_the_limit_of_an_upstream_that_stays() {
    run(async {
        let (replica, gate) = gated(Speaks::Http1).await;
        let setup = |limit: &str| {
            let keys = format!("hedge: false\nretry: false{limit}");
            Setup::before(&[replica.address()]).upstream(&keys)
        };
        let proxy = setup("\nin_flight_max: 1").start();
        let first = ask(proxy.address(), Version::HTTP_11).await;
        replica.record().until(|record| record.count() == 1).await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.error(), Some("upstream_in_flight_limit"));
        let changed = proxy.reload(&setup("\nin_flight_max: 2")).expect("it is good");
        assert_eq!(changed, ["upstreams.service"]);
        let second = ask(proxy.address(), Version::HTTP_11).await;
        replica.record().until(|record| record.count() == 2).await;
        assert_eq!(client.get("/").await.error(), Some("upstream_in_flight_limit"));
        proxy.reload(&setup("")).expect("it is good");
        gate.add_permits(3);
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        for asked in [first, second] {
            assert_eq!(asked.await.expect("no panic").status, StatusCode::OK);
        }
        assert_eq!(upstream_state(&proxy).await["in_flight_limit"], Value::Null);
    });
}

#[test]
fn a_call_of_a_fan_out_counts_at_its_upstream() {
    run(async {
        let (replica, gate) = gated(Speaks::Http1).await;
        let proxy = Setup::before(&[replica.address()])
            .upstream("hedge: false\nretry: false\nin_flight_max: 1")
            .route("fan_out: {}")
            .start();
        let first = ask(proxy.address(), Version::HTTP_11).await;
        replica.record().until(|record| record.count() == 1).await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let rejected = client.get("/").await;
        assert_eq!((rejected.status.as_u16(), rejected.error()), (502, Some("shards_failed")));
        gate.add_permits(1);
        assert_eq!(first.await.expect("no panic").status, StatusCode::OK);
        let metrics = proxy.until(|m| m.sum("curtail_upstream_in_flight", &[]) == 0).await;
        assert_eq!(metrics.sum("curtail_upstream_requests_rejected_total", &[]), 1);
        assert_eq!(metrics.sum("curtail_requests_total", &[]), 1);
    });
}

/// A replica whose connections from a worker can carry one request.
struct LimitedReplica {
    url: String,
    /// The keys of `connect`.
    connect: String,
    /// The limit that a second request finds.
    limit: &'static str,
    /// Lets the requests end; without it, they wait for their handshake.
    gate: Option<Arc<Semaphore>>,
    _servers: (Option<Replica>, Option<(RawReplica, Authority)>),
}

impl LimitedReplica {
    async fn all() -> [Self; 4] {
        let one_connection = "protocol: http2, http2_connections_max: 1";
        let one_stream = format!("{one_connection}, http2_streams_max: 1");
        [
            Self::of_connections(Speaks::Http1, "connections_max: 1").await,
            Self::of_connections(Speaks::Http2, &one_stream).await,
            Self::of_connections(Speaks::Http2Streams(1), one_connection).await,
            Self::of_waiting().await,
        ]
    }

    async fn of_connections(speaks: Speaks, connect: &str) -> Self {
        let (replica, gate) = gated(speaks).await;
        Self {
            url: format!("http://{}", replica.address()),
            connect: connect.to_owned(),
            limit: "connections",
            gate: Some(gate),
            _servers: (Some(replica), None),
        }
    }

    async fn of_waiting() -> Self {
        let authority = Authority::new();
        let silent = RawReplica::start(|mut wire, _, _| async move {
            wire.read_to_close().await;
        })
        .await;
        let ca_file = authority.file();
        Self {
            url: format!("https://localhost:{}", silent.address().port()),
            connect: format!("waiting_max: 1, timeout: 300s, ca_file: {}", ca_file.display()),
            limit: "waiting",
            gate: None,
            _servers: (None, Some((silent, authority))),
        }
    }

    /// Starts a proxy with `keys` of the upstream, and sends the request that reaches the limit.
    async fn reach_limit(&self, setup: Setup, keys: &str) -> (Proxy, JoinHandle<FullResponse>) {
        let keys = format!("hedge: false\n{keys}\nconnect: {{{}}}", self.connect);
        let proxy = setup.workers(1).upstream(&keys).start();
        let first = ask(proxy.address(), Version::HTTP_11).await;
        let is_waiting = self.gate.is_none();
        proxy
            .until(|m| {
                m.in_flight() == 1
                    && (!is_waiting || m.sum("curtail_connections_waiting", &[]) == 1)
                    && (is_waiting || m.sum("curtail_connections_open", &[]) == 1)
            })
            .await;
        (proxy, first)
    }
}

#[test]
fn limits_of_connections_eject_no_replica() {
    run(async {
        let directory = Directory::new();
        for (nth, limited) in LimitedReplica::all().await.into_iter().enumerate() {
            let file = directory.path(&format!("{nth}.log"));
            let log = format!("access_log: {{file: {}}}", file.display());
            let setup = Setup::before_urls([limited.url.clone()]).top(&log);
            let (proxy, first) = limited.reach_limit(setup, "retry: {retries_max: 1}").await;
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            for _ in 0..5 {
                let rejected = client.get("/").await;
                let found = (rejected.status.as_u16(), rejected.error());
                assert_eq!(found, (503, Some("connection_limit")), "{}", limited.connect);
                assert_eq!(rejected.get("retry-after"), Some("1"));
            }
            let closed = json!({ "state": "closed", "failures": 0, "open_for_ms": 0.0 });
            assert_eq!(upstream_state(&proxy).await["replicas"][0]["circuit"], closed);
            let metrics = proxy.metrics().await;
            assert_eq!(metrics.sum("curtail_replica_ejections_total", &[]), 0, "{metrics}");
            for (failure, count) in [("connection_limit", 10), ("not_sent", 0)] {
                let labels = [("failure", failure)];
                let failed = metrics.sum("curtail_attempts_failed_total", &labels);
                assert_eq!(failed, count, "{failure}, {}", limited.connect);
            }
            first.abort();
            let lines = lines_after(&proxy, 5, &file).await;
            let rejected = lines.iter().filter(|line| line["error"] == "connection_limit");
            assert_eq!(rejected.count(), 5, "{lines:?}");
        }
    });
}

#[test]
fn limits_of_connections_are_logged_counted_and_shown() {
    run(async {
        for limited in LimitedReplica::all().await {
            let setup = Setup::before_urls([limited.url.clone()]);
            let (proxy, first) = limited.reach_limit(setup, "retry: false").await;
            let LimitedReplica { url, connect, limit, gate, .. } = limited;
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            let at_limit = "curtail_connections_at_limit";
            let mut rejections = 0;
            // As above: the breaker closes after a second.
            let (metrics, state) = loop {
                let rejected = client.get("/").await;
                let found = (rejected.status.as_u16(), rejected.error());
                assert_eq!(found, (503, Some("connection_limit")), "{connect}");
                rejections += 1;
                let metrics = proxy.metrics().await;
                let state = upstream_state(&proxy).await["replicas"][0].clone();
                if metrics.sum(at_limit, &[]) == 1 && state["limits"][limit]["state"] == "open" {
                    break (metrics, state);
                }
            };
            for (name, value) in [(at_limit, 1), ("curtail_connections_rejected_total", rejections)]
            {
                let found =
                    ["connections", "waiting"].map(|of| metrics.sum(name, &[("limit", of)]));
                let expected =
                    ["connections", "waiting"].map(|of| if of == limit { value } else { 0 });
                assert_eq!(found, expected, "{name}, {connect}");
            }
            assert_eq!(state["limits"][limit]["rejected"], rejections, "{state}");
            let address = url.rsplit('/').next().expect("an address").to_owned();
            logs::until(&["limit of connections reached", &address]).await;
            logs::until(&["limit of connections rejects no more requests", &address, limit]).await;
            proxy.until(|m| m.sum("curtail_connections_at_limit", &[]) == 0).await;
            if let Some(gate) = gate {
                gate.add_permits(1);
                assert_eq!(first.await.expect("no panic").status, StatusCode::OK);
            } else {
                first.abort();
            }
        }
    });
}
