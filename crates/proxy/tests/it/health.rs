//! Health checks: an unhealthy replica gets no requests of clients, and gets them again when its checks pass.

use crate::body::{self, Body};
use crate::certificates::Authority;
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::metrics::Metrics;
use crate::operation::journal::replayed;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::{RawReplica, serve};
use crate::replica::{Replica, Speaks, ok, status};
use bytes::Bytes;
use curtail_proxy::Options;
use curtail_sim::End;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A server whose path `/healthz` responds as the test says.
struct Checked {
    replica: Replica,
    is_healthy: Arc<AtomicBool>,
}

impl Checked {
    async fn start(speaks: Speaks) -> Self {
        let is_healthy = Arc::new(AtomicBool::new(true));
        let healthy = Arc::clone(&is_healthy);
        let respond = move |request: Request<Incoming>| {
            let is_failing = request.uri().path() == "/healthz" && !healthy.load(Ordering::SeqCst);
            async move { if is_failing { status(StatusCode::SERVICE_UNAVAILABLE) } else { ok("good") } }
        };
        Self { replica: Replica::start(speaks, respond).await, is_healthy }
    }

    fn set(&self, is_healthy: bool) {
        self.is_healthy.store(is_healthy, Ordering::SeqCst);
    }

    /// Requests of clients that it got.
    fn requests(&self) -> usize {
        self.replica.record().matching(|seen| seen.uri.path() != "/healthz")
    }

    /// Waits until the proxy finds it healthy, or unhealthy.
    async fn until(&self, proxy: &Proxy, is_healthy: bool) {
        let replica = self.replica.address().to_string();
        let labels = [("replica", &*replica)];
        let key = format!("curtail_replica_healthy{{upstream=\"service\",replica=\"{replica}\"}}");
        proxy
            .until(|metrics| {
                metrics.to_string().contains(&key)
                    && metrics.sum("curtail_replica_healthy", &labels) == u64::from(is_healthy)
            })
            .await;
    }
}

const CHECKS: &str = "health_check: {http: /healthz, interval: 100ms, unhealthy_after: 2, healthy_after: 2}\nbalance: {policy: round_robin}";

async fn two() -> [Checked; 2] {
    [Checked::start(Speaks::Http1).await, Checked::start(Speaks::Http1).await]
}

fn setup(servers: &[Checked]) -> Setup {
    let addresses: Vec<_> = servers.iter().map(|server| server.replica.address()).collect();
    Setup::before(&addresses).upstream(CHECKS)
}

/// Sends requests; returns how many each server gets.
async fn spread(proxy: &Proxy, servers: &[Checked], count: usize) -> Vec<usize> {
    let before: Vec<usize> = servers.iter().map(Checked::requests).collect();
    let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
    for _ in 0..count {
        assert_eq!(client.get("/").await.status, StatusCode::OK);
    }
    servers.iter().zip(before).map(|(server, before)| server.requests() - before).collect()
}

/// The replicas in `/state`.
async fn state(proxy: &Proxy) -> Vec<Value> {
    let state = proxy.admin("/state").await;
    let state: Value = serde_json::from_slice(&state.body).expect("JSON");
    state["upstreams"][0]["replicas"].as_array().expect("a list").clone()
}

#[test]
fn an_unhealthy_replica_gets_no_requests_until_its_checks_pass_again() {
    run(async {
        let servers = two().await;
        let directory = Directory::new();
        let file = directory.path("health.journal");
        let proxy = setup(&servers).journal(file.clone()).start();
        for server in &servers {
            server.until(&proxy, true).await;
        }
        assert_eq!(spread(&proxy, &servers, 20).await, [10, 10]);
        servers[1].set(false);
        servers[1].until(&proxy, false).await;
        assert_eq!(spread(&proxy, &servers, 20).await, [20, 0]);
        let shown = state(&proxy).await;
        assert_eq!(shown[0]["health"]["healthy"], true, "{shown:?}");
        assert_eq!(shown[0]["health"]["error"], Value::Null, "{shown:?}");
        assert_eq!(
            (&shown[1]["health"]["healthy"], &shown[1]["ejected"]),
            (&false.into(), &false.into())
        );
        let error = shown[1]["health"]["error"].as_str().expect("it failed");
        assert!(error.contains("503"), "{error}");
        servers[1].set(true);
        servers[1].until(&proxy, true).await;
        assert_eq!(spread(&proxy, &servers, 20).await, [10, 10]);
        proxy.stop(Duration::from_secs(5)).await.expect("it stops");
        let replayed = replayed(&file);
        assert!(matches!(replayed.end, End::Complete), "{replayed:?}");
    });
}

#[test]
fn without_a_healthy_replica_all_get_requests() {
    run(async {
        let servers = two().await;
        servers.iter().for_each(|server| server.set(false));
        let proxy = setup(&servers).start();
        for server in &servers {
            server.until(&proxy, false).await;
        }
        let spread = spread(&proxy, &servers, 20).await;
        assert!(spread.iter().all(|requests| *requests >= 5), "all get some of the 20: {spread:?}");
    });
}

#[test]
fn a_process_that_takes_over_knows_an_unhealthy_replica() {
    run(async {
        let servers = two().await;
        servers[1].set(false);
        let directory = Directory::new();
        let keys = format!("restart: {{socket: {}}}", directory.path("restart.sock").display());
        let setup = setup(&servers).top(&keys);
        let old = setup.start();
        servers[1].until(&old, false).await;
        // The servers respond on this thread.
        let yaml = setup.yaml_at(&old);
        let starting =
            tokio::task::spawn_blocking(move || Proxy::start(&yaml, &Options::default()));
        let new = starting.await.expect("it starts");
        old.replaced().await;
        assert_eq!(spread(&new, &servers, 20).await, [20, 0]);
        old.stop(Duration::from_secs(60)).await.expect("it stops");
    });
}

#[test]
fn a_replica_that_joins_gets_requests_after_its_first_check() {
    run(async {
        let servers = two().await;
        servers[1].set(false);
        let proxy = setup(&servers[..1]).start();
        servers[0].until(&proxy, true).await;
        proxy.reload(&setup(&servers)).expect("it is good");
        // Also before the first check has ended.
        assert_eq!(spread(&proxy, &servers, 20).await, [20, 0]);
        servers[1].until(&proxy, false).await;
        assert_eq!(spread(&proxy, &servers, 20).await, [20, 0]);
        servers[1].set(true);
        servers[1].until(&proxy, true).await;
        assert_eq!(spread(&proxy, &servers, 20).await, [10, 10]);
    });
}

#[test]
fn a_reload_ends_and_begins_the_checks() {
    run(async {
        let servers = two().await;
        servers[1].set(false);
        let proxy = setup(&servers).start();
        servers[1].until(&proxy, false).await;
        let unchecked = setup(&servers).upstream("balance: {policy: round_robin}");
        proxy.reload(&unchecked).expect("it is good");
        assert_eq!(spread(&proxy, &servers, 20).await, [10, 10]);
        assert!(!proxy.metrics().await.to_string().contains("curtail_replica_healthy{"));
        let shown = state(&proxy).await;
        assert!(shown.iter().all(|replica| replica["health"].is_null()), "{shown:?}");
        proxy.reload(&setup(&servers)).expect("it is good");
        servers[1].until(&proxy, false).await;
        assert_eq!(spread(&proxy, &servers, 20).await, [20, 0]);
    });
}

#[test]
fn a_check_names_the_host_of_its_key() {
    run(async {
        for speaks in [Speaks::Http1, Speaks::Http2] {
            let protocol = if matches!(speaks, Speaks::Http1) { "http1" } else { "http2" };
            let server = Checked::start(speaks).await;
            let keys = format!(
                "connect: {{protocol: {protocol}}}\nhealth_check: {{http: \"/healthz?full\", host: search.test, interval: 100ms}}"
            );
            let proxy = Setup::before(&[server.replica.address()]).upstream(&keys).start();
            server.until(&proxy, true).await;
            server.replica.record().until(|record| record.count() >= 3).await;
            let seen = server.replica.record().seen();
            let host = |seen: &crate::replica::Seen| {
                seen.uri
                    .authority()
                    .map_or_else(|| seen.get("host").map(str::to_owned), |at| Some(at.to_string()))
            };
            assert!(
                seen.iter().all(|seen| host(seen).as_deref() == Some("search.test")),
                "{seen:?}"
            );
            assert_eq!(
                seen[0].uri.path_and_query().map(ToString::to_string).as_deref(),
                Some("/healthz?full")
            );
            assert_eq!(server.replica.record().connections(), 1, "the connection is kept");
        }
    });
}

/// The response of a server with this `ServingStatus`.
fn serving(status: u8) -> Response<Body> {
    let trailers = HeaderMap::from_iter([(
        HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let (sender, body) = body::channel();
    tokio::spawn(async move {
        sender.data(Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, status])).await;
        sender.trailers(trailers).await;
    });
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

#[test]
fn the_health_protocol_of_grpc_is_asked_for_the_service() {
    run(async {
        let is_serving = Arc::new(AtomicBool::new(true));
        let serves = Arc::clone(&is_serving);
        let respond = move |request: Request<Incoming>| {
            let status = if serves.load(Ordering::SeqCst) { 1 } else { 2 };
            async move {
                assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
                assert_eq!(request.headers()["content-type"], "application/grpc");
                assert_eq!(request.headers()["te"], "trailers");
                let body = request.into_body().collect().await.expect("it is whole").to_bytes();
                assert_eq!(body, &b"\0\0\0\0\x06\x0a\x04shop"[..]);
                serving(status)
            }
        };
        let server = Checked {
            replica: Replica::start(Speaks::Http2, respond).await,
            is_healthy: Arc::clone(&is_serving),
        };
        let keys = "connect: {protocol: http2}\nhealth_check: {grpc: shop, interval: 100ms, unhealthy_after: 1}";
        let proxy = Setup::before(&[server.replica.address()]).upstream(keys).start();
        server.until(&proxy, true).await;
        server.set(false);
        server.until(&proxy, false).await;
        let shown = state(&proxy).await;
        let error = shown[0]["health"]["error"].as_str().expect("it failed");
        assert!(error.contains("NOT_SERVING"), "{error}");
    });
}

#[test]
fn a_connection_passes_a_check_only_with_its_tls_handshake() {
    run(async {
        let (authority, other) = (Authority::new(), Authority::new());
        let server = authority.issue("localhost").server(&["http/1.1"]);
        let server = Replica::responding(Speaks::Tls(server), "good").await;
        let health = |authority: &Authority| {
            let ca_file = authority.file();
            let keys = format!(
                "connect: {{ca_file: {:?}}}\nhealth_check: {{tcp: true, interval: 100ms}}",
                ca_file.display().to_string()
            );
            Setup::before_urls([server.tls_url()]).upstream(&keys)
        };
        let proxy = health(&authority).start();
        let passed = |result: &'static str| {
            move |metrics: &Metrics| {
                metrics.sum("curtail_health_checks_total", &[("result", result)]) >= 2
            }
        };
        let metrics = proxy.until(passed("passed")).await;
        assert_eq!(metrics.sum("curtail_health_checks_total", &[("result", "failed")]), 0);
        let proxy = health(&other).start();
        let metrics = proxy.until(passed("failed")).await;
        assert_eq!(metrics.sum("curtail_health_checks_total", &[("result", "passed")]), 0);
    });
}

#[test]
fn a_check_without_a_response_fails_and_does_not_stop_the_others() {
    run(async {
        let silent = RawReplica::start(|mut wire, record, _| async move {
            // Requests are read, and none gets a response.
            while record.read(&mut wire).await.is_some() {}
        })
        .await;
        let good = RawReplica::start(|wire, record, _| serve(wire, record, "good")).await;
        let keys =
            "health_check: {http: /healthz, interval: 100ms, timeout: 50ms, unhealthy_after: 1}";
        let proxy = Setup::before(&[silent.address(), good.address()]).upstream(keys).start();
        let count = |result| {
            move |metrics: &Metrics| {
                metrics.sum("curtail_health_checks_total", &[("result", result)]) >= 3
            }
        };
        proxy.until(count("failed")).await;
        proxy.until(count("passed")).await;
        let shown = state(&proxy).await;
        let healthy: Vec<_> = shown.iter().map(|replica| &replica["health"]["healthy"]).collect();
        assert_eq!(healthy, [false, true]);
        let error = shown[0]["health"]["error"].as_str().expect("it failed");
        assert!(error.contains("no complete response within 50 ms"), "{error}");
    });
}

#[test]
fn checks_that_hang_delay_no_other_upstream() {
    run(async {
        // More replicas than the proxy checks at once.
        let (mut silent, mut urls) = (Vec::new(), Vec::new());
        for _ in 0..70 {
            let replica = RawReplica::silent().await;
            urls.push(format!("http://{}", replica.address()));
            silent.push(replica);
        }
        let good = RawReplica::start(|wire, record, _| serve(wire, record, "good")).await;
        let check = "health_check: {http: /healthz, interval: 100ms, timeout: 50ms}";
        let yaml = Setup::before(&[good.address()]).upstream(check).yaml();
        let hanging = format!(
            "  hanging:\n    replicas: [{}]\n    health_check: {{http: /healthz, timeout: 1m, interval: 1m}}\n",
            urls.join(", ")
        );
        let proxy = Proxy::start(&(yaml + &hanging), &Options::default());
        let checked = || silent.iter().filter(|one| one.record().open_connections() > 0).count();
        let count = |metrics: &Metrics, result| {
            metrics.sum("curtail_health_checks_total", &[("result", result)])
        };
        let metrics = proxy.until(|_| checked() >= 64).await;
        let before = count(&metrics, "passed");
        let metrics = proxy.until(|metrics| count(metrics, "passed") >= before + 3).await;
        assert_eq!(count(&metrics, "failed"), 0, "those of the others still hang");
    });
}
