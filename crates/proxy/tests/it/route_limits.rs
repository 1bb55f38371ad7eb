//! Limits of routes: a request beyond one is rejected at once, reaches no replica, and counts nowhere else.

use crate::body;
use crate::client::{Client, FullResponse};
use crate::deadline::run;
use crate::directory::Directory;
use crate::metrics::Metrics;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, gated, ok};
use crate::wire::Wire;
use http::{HeaderName, HeaderValue, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const VERSIONS: [(Version, Speaks, &str); 2] = [
    (Version::HTTP_11, Speaks::Http1, ""),
    (Version::HTTP_2, Speaks::Http2, "connect: {protocol: http2}\n"),
];

async fn get(client: &mut Client, fields: &[(&'static str, &'static str)]) -> FullResponse {
    let mut request = client.request("GET", "/");
    for (name, value) in fields {
        let name = HeaderName::from_static(name);
        request.headers_mut().append(name, HeaderValue::from_static(value));
    }
    client.send(request).await
}

/// Asserts that a limit has rejected the request; returns the seconds of `retry-after`.
#[track_caller]
fn assert_limited(response: &FullResponse, status: StatusCode, error: &str) -> u64 {
    assert_eq!((response.status, response.error()), (status, Some(error)), "{response:?}");
    response.get("retry-after").expect("the time to wait").parse().expect("whole seconds")
}

fn limited(metrics: &Metrics, reason: &str) -> u64 {
    metrics.sum("curtail_requests_limited_total", &[("route", "/"), ("reason", reason)])
}

fn in_flight(metrics: &Metrics) -> u64 {
    metrics.sum("curtail_route_in_flight", &[("route", "/")])
}

/// Sends a request that stays in flight until the gate opens.
async fn ask(replica: &Replica, proxy: &Proxy, version: Version) -> JoinHandle<FullResponse> {
    let before = replica.record().count();
    let mut client = Client::connect(proxy.address(), version).await;
    let asking = tokio::spawn(async move { client.get("/").await });
    replica.record().until(|record| record.count() > before).await;
    asking
}

#[test]
fn a_request_beyond_the_rate_gets_429_and_counts_nowhere_else() {
    run(async {
        for (version, speaks, connect) in VERSIONS {
            let replica = Replica::responding(speaks, "good").await;
            let directory = Directory::new();
            let file = directory.path("access.log");
            // A token in 1,000 seconds.
            let proxy = Setup::before(&[replica.address()])
                .upstream(&format!("{connect}holdout: 0.5"))
                .route("limits: {rate: 0.001, burst: 3}")
                .top(&format!("access_log: {{file: {}}}", file.display()))
                .start();
            let mut client = Client::connect(proxy.address(), version).await;
            for _ in 0..3 {
                assert_eq!(client.get("/").await.status, StatusCode::OK);
            }
            for _ in 0..2 {
                let response = client.get("/x?y").await;
                let status = StatusCode::TOO_MANY_REQUESTS;
                let seconds = assert_limited(&response, status, "route_rate_limit");
                assert!((900..=1_000).contains(&seconds), "{seconds}");
                assert_eq!(response.body, "curtail: route_rate_limit\n");
            }
            assert_eq!(replica.record().count(), 3, "no other request reached the replica");
            let metrics =
                proxy.until(|m| m.sum("curtail_access_log_lines_written_total", &[]) >= 5).await;
            assert_eq!(limited(&metrics, "route_rate_limit"), 2);
            assert_eq!(metrics.sum("curtail_requests_limited_total", &[]), 2);
            for name in ["curtail_requests_total", "curtail_budget_requests"] {
                assert_eq!(metrics.sum(name, &[]), 3, "{name}");
            }
            assert_eq!(metrics.sum("curtail_holdout_requests_total", &[]), 3);
            let log = std::fs::read_to_string(&file).expect("the access log");
            let line: Value =
                serde_json::from_str(log.lines().nth(4).expect("five")).expect("JSON");
            for (key, value) in [
                ("status", json!(429)),
                ("error", json!("route_rate_limit")),
                ("path", json!("/x")),
                ("upstream", json!("service")),
                ("attempts", json!([])),
                ("holdout", Value::Null),
            ] {
                assert_eq!(line[key], value, "{key}: {line}");
            }
        }
    });
}

#[test]
fn a_request_beyond_those_in_flight_gets_503_until_one_has_ended() {
    run(async {
        for (version, speaks, connect) in VERSIONS {
            let (replica, gate) = gated(speaks).await;
            let proxy = Setup::before(&[replica.address()])
                .upstream(&format!("{connect}hedge: false\nretry: false"))
                .route("limits: {in_flight_max: 2}")
                .start();
            let ask = || ask(&replica, &proxy, version);
            let (first, left) = (ask().await, ask().await);
            let mut client = Client::connect(proxy.address(), version).await;
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let seconds = assert_limited(&client.get("/").await, status, "route_in_flight_limit");
            assert!((1..=60).contains(&seconds), "{seconds}");
            let metrics = proxy.metrics().await;
            assert_eq!((in_flight(&metrics), limited(&metrics, "route_in_flight_limit")), (2, 1));
            assert_eq!(metrics.sum("curtail_route_in_flight_max", &[]), 2);
            let state: Value =
                serde_json::from_slice(&proxy.admin("/state").await.body).expect("JSON");
            let state = &state["route_limits"][0];
            assert_eq!((&state["route"], &state["in_flight"]), (&json!("/"), &json!(2)), "{state}");
            assert_eq!(state["rejected"]["route_in_flight_limit"], 1, "{state}");

            // A client that leaves frees its place, and so does a response.
            left.abort();
            replica.record().until(|record| record.reset() == 1).await;
            proxy.until(|metrics| in_flight(metrics) == 1).await;
            let second = ask().await;
            gate.add_permits(2);
            for response in [first, second] {
                assert_eq!(response.await.expect("no panic").status, StatusCode::OK);
            }
            proxy.until(|metrics| in_flight(metrics) == 0).await;
            gate.add_permits(1);
            assert_eq!(client.get("/").await.status, StatusCode::OK);
            assert_eq!(replica.record().count(), 4);
        }
    });
}

#[test]
fn a_stream_counts_until_its_end() {
    run(async {
        for (version, speaks, connect) in VERSIONS {
            let (sender, streamed) = body::channel();
            let streamed = std::sync::Mutex::new(Some(streamed));
            let replica = Replica::start(speaks, move |_| {
                let streamed = streamed.lock().expect("no panic").take();
                std::future::ready(streamed.map_or_else(|| ok("good"), Response::new))
            });
            let replica = replica.await;
            let proxy = Setup::before(&[replica.address()])
                .upstream(connect)
                .route("limits: {per_client: {in_flight_max: 1}}")
                .start();
            let mut client = Client::connect(proxy.address(), version).await;
            let request = client.request("GET", "/");
            let mut stream = client.try_send(request).await.expect("a response").into_body();
            assert!(sender.data("piece").await);
            stream.frame().await.expect("a frame").expect("a good one");
            let mut other = Client::connect(proxy.address(), version).await;
            let status = StatusCode::SERVICE_UNAVAILABLE;
            assert_limited(&other.get("/").await, status, "client_in_flight_limit");
            drop(sender);
            stream.collect().await.expect("a whole response");
            while other.get("/").await.status != StatusCode::OK {
                tokio::task::yield_now().await;
            }
        }
    });
}

#[test]
fn an_upgraded_connection_counts_until_it_closes() {
    run(async {
        const ASK: &str =
            "GET /chat HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        const AGREE: &str =
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        let replica = RawReplica::start(|mut wire, record, _| async move {
            record.read(&mut wire).await;
            wire.send(AGREE).await;
            wire.read_to_close().await;
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).route("limits: {in_flight_max: 1}").start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(ASK).await;
        assert_eq!(wire.read_head().await.expect("held").expect("a response").status(), 101);
        let mut second = Wire::connect(proxy.address()).await;
        second.send(ASK).await;
        let rejected = second.response().await.head;
        let error = rejected.get("curtail-error");
        assert_eq!((rejected.status(), error), (503, Some("route_in_flight_limit")));
        drop(wire);
        proxy.until(|metrics| in_flight(metrics) == 0).await;
        second.send(ASK).await;
        assert_eq!(second.read_head().await.expect("held").expect("a response").status(), 101);
    });
}

#[test]
fn each_client_has_its_own_limit_and_cannot_choose_its_address() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "good").await;
        let setup = Setup::before(&[replica.address()])
            .route("limits: {per_client: {rate: 0.001, burst: 1}}");
        let error = "client_rate_limit";
        let status = StatusCode::TOO_MANY_REQUESTS;
        let via = |address| [("x-forwarded-for", address)];

        // A client that is no trusted proxy has the address of its connection, whatever it claims.
        let proxy = setup.start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        assert_eq!(get(&mut client, &via("10.0.0.1")).await.status, StatusCode::OK);
        assert_limited(&get(&mut client, &via("10.0.0.2")).await, status, error);
        assert_eq!(limited(&proxy.metrics().await, error), 1);

        let proxy = setup.top("trusted_proxies: [127.0.0.1]").start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        assert_eq!(get(&mut client, &via("10.0.0.1")).await.status, StatusCode::OK);
        assert_eq!(get(&mut client, &via("10.0.0.2")).await.status, StatusCode::OK);
        assert_limited(&get(&mut client, &via("10.9.9.9, 10.0.0.1")).await, status, error);
        assert_eq!(get(&mut client, &via("2001:db8::1")).await.status, StatusCode::OK);
        assert_limited(&get(&mut client, &via("2001:db8::2")).await, status, error);
        assert_eq!(replica.record().count(), 4);
    });
}

#[test]
fn tenants_and_keys_have_limits_of_their_own() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "good").await;
        let proxy = Setup::before(&[replica.address()])
            .route("limits: {per_client: {header: X-Api-Key, rate: 0.001, burst: 2}, per_tenant: {rate: 0.001, burst: 3}}")
            .top("tenants: {header: X-Tenant}")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let mut outcomes = Vec::new();
        for (key, tenant) in
            [("a", "s"), ("a", "s"), ("a", "s"), ("b", "s"), ("b", "s"), ("b", "t")]
        {
            let response = get(&mut client, &[("x-api-key", key), ("x-tenant", tenant)]).await;
            outcomes.push(response.error().map(str::to_owned));
        }
        let (by_key, by_tenant) = (Some("client_rate_limit"), Some("tenant_rate_limit"));
        // A rejected request takes no token: the key b has one for the tenant t.
        let expected = [None, None, by_key, None, by_tenant, None];
        assert_eq!(outcomes.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
        let metrics = proxy.metrics().await;
        assert_eq!(limited(&metrics, "client_rate_limit"), 1);
        assert_eq!(limited(&metrics, "tenant_rate_limit"), 1);
        let labels = ["x-api-key", "\"a\"", "\"s\""];
        let page = metrics.to_string();
        let lines = page.lines().filter(|line| line.starts_with("curtail_requests_limited"));
        assert!(!lines.clone().any(|line| labels.iter().any(|label| line.contains(label))));
        assert_eq!(lines.count(), 8, "one series for each reason, not for each client");
    });
}

#[test]
fn a_request_that_names_its_client_or_tenant_twice_is_rejected() {
    run(async {
        for (version, speaks, connect) in VERSIONS {
            let replica = Replica::responding(speaks, "good").await;
            let proxy = Setup::before(&[replica.address()])
                .upstream(connect)
                .route(
                    "limits: {per_client: {header: x-api-key, rate: 100}, per_tenant: {rate: 100}}",
                )
                .top("tenants: {header: x-tenant}")
                .start();
            let mut client = Client::connect(proxy.address(), version).await;
            for (fields, error) in [
                ([("x-api-key", "a"), ("x-api-key", "b"), ("x-tenant", "s")], "ambiguous_client"),
                ([("x-tenant", "s"), ("x-tenant", "s"), ("x-api-key", "a")], "ambiguous_tenant"),
            ] {
                let response = get(&mut client, &fields).await;
                let found = (response.status, response.error(), response.get("retry-after"));
                assert_eq!(found, (StatusCode::BAD_REQUEST, Some(error), None));
                assert_eq!(limited(&proxy.metrics().await, error), 1);
            }
            let list = [("x-api-key", "a, b"), ("x-tenant", "s")];
            assert_eq!(get(&mut client, &list).await.status, StatusCode::OK);
            assert_eq!(replica.record().count(), 1, "only the last one");
        }
    });
}

#[test]
fn hedges_and_calls_are_no_requests_of_clients() {
    run(async {
        let replicas =
            [Replica::for_hedges(Speaks::Http1).await, Replica::for_hedges(Speaks::Http1).await];
        let proxy = Setup::before(&replicas.each_ref().map(Replica::address))
            .upstream("balance: round_robin\nretry: false\nbudget: {ratio: 1.0}\nhedge: {delay_min: 1ms, delay_max: 1ms}")
            .route("limits: {in_flight_max: 1, rate: 0.001, burst: 2}")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for _ in 0..2 {
            assert_eq!(client.get("/").await.status, StatusCode::OK);
        }
        assert_eq!(client.get("/").await.error(), Some("route_rate_limit"));
        assert_eq!(proxy.metrics().await.attempts("slower_than_cap"), 2);

        let server = || Replica::responding(Speaks::Http1, "good");
        let servers = [server().await, server().await];
        let proxy = Setup::before(&servers.each_ref().map(Replica::address))
            .route("fan_out: {to: replicas}, limits: {in_flight_max: 1, rate: 0.001, burst: 1}")
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        assert_eq!(client.get("/").await.error(), Some("route_rate_limit"));
        proxy.until(|metrics| in_flight(metrics) == 0).await;
    });
}

#[test]
fn a_reload_keeps_the_counts_and_other_routes_have_no_limit() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "good").await;
        let setup = Setup::before(&[replica.address()]);
        let limits = |burst| format!("limits: {{rate: 0.001, burst: {burst}}}");
        let proxy: Proxy = setup.clone().route(&limits(1)).start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        assert_eq!(client.get("/").await.error(), Some("route_rate_limit"));
        let changed = proxy.reload(&setup.clone().route(&limits(3))).expect("it is good");
        assert_eq!(changed, ["routes"]);
        let statuses = [client.get("/").await.status, client.get("/").await.status];
        assert_eq!(statuses, [StatusCode::OK; 2], "one token of the three was taken before");
        assert_eq!(client.get("/").await.error(), Some("route_rate_limit"));
        assert_eq!(limited(&proxy.metrics().await, "route_rate_limit"), 2);
        proxy.reload(&setup).expect("it is good");
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        assert!(!proxy.metrics().await.to_string().contains("curtail_requests_limited_total{"));
    });
}
