//! `EndpointSlices`: a list, a watch, and an API server that is away or fails.

use super::api_server::{ApiServer, Fault};
use super::{
    Fleet, replicas, start, state, until_error, until_lookups, until_replicas, until_urls,
};
use crate::certificates::Authority;
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::logs;
use crate::proxy::{Proxy, Setup};
use crate::replica::Speaks;
use crate::steady::Steady;
use http::{StatusCode, Version};
use serde_json::json;
use std::net::SocketAddr;

/// A proxy that discovers the service at this server, with further keys of `kubernetes`.
fn setup(server: &ApiServer, keys: &str) -> Setup {
    with_keys(server, keys, "")
}

/// The same, with further keys of `discovery`.
fn with_keys(server: &ApiServer, keys: &str, further: &str) -> Setup {
    let server = server.address();
    Setup::before_urls([]).upstream(&format!(
        "discovery: {{kubernetes: {{service: search, server: \"http://{server}\"{keys}}}{further}}}"
    ))
}

async fn no_request_failed(proxy: &Proxy) {
    let metrics = proxy.metrics().await;
    assert_eq!(metrics.sum("curtail_requests_failed_total", &[]), 0, "{metrics}");
}

#[test]
fn endpoints_of_all_slices_join_and_leave_under_load_and_no_request_fails() {
    run(async {
        let fleet = Fleet::start("slices.test", 51, 3, 0).await;
        let server = ApiServer::start().await;
        let endpoint = |nth| (fleet.ip(nth), true);
        server.set("first", fleet.port, &[endpoint(0)]);
        // More than one page.
        (0..40).for_each(|nth| server.set(&format!("none-{nth}"), fleet.port, &[]));
        server.set("second", fleet.port, &[endpoint(1), (fleet.ip(2), false)]);
        let proxy = start(setup(&server, ", port: http")).await;
        until_urls(&proxy, &fleet.urls(&[0, 1])).await;
        assert_eq!(server.requests("continue=25").len(), 1, "{:?}", server.requests("limit"));
        let steady = [
            Steady::start(&proxy, Version::HTTP_11).await,
            Steady::start(&proxy, Version::HTTP_2).await,
        ];
        fleet.until_asked(0).await;
        fleet.until_asked(1).await;
        // The third becomes ready, and the second is in two slices for a while.
        server.set("second", fleet.port, &[endpoint(1), endpoint(2)]);
        fleet.until_asked(2).await;
        server.set("third", fleet.port, &[endpoint(1)]);
        server.set("second", fleet.port, &[endpoint(2)]);
        server.delete("first");
        until_urls(&proxy, &fleet.urls(&[1, 2])).await;
        fleet.replicas[0].record().until(|record| record.open_connections() == 0).await;
        server.set("third", fleet.port, &[(fleet.ip(1), false)]);
        until_urls(&proxy, &fleet.urls(&[2])).await;
        for steady in steady {
            steady.stop().await;
        }
        no_request_failed(&proxy).await;
        let discovery = state(&proxy).await["discovery"].clone();
        let source = discovery["source"].as_str().expect("text");
        assert!(source.starts_with("EndpointSlices of service search, port http, at"), "{source}");
        let summary = "42 slices: 1 endpoints ready, 1 not ready, 0 terminating and serving";
        assert_eq!(discovery["summary"], summary);
        assert_eq!(discovery["connected"], true);
        assert_eq!(discovery["endpoints"][0]["stale"], false);
        assert!(discovery["error"].is_null() && discovery["next_lookup_in_s"].is_null());
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_discovery_last_success_age_seconds", &[]), 0, "{metrics}");
    });
}

#[test]
fn an_api_server_that_is_away_is_not_noticed_and_its_changes_are_seen_later() {
    run(async {
        let fleet = Fleet::start("away.test", 52, 3, 0).await;
        let address = SocketAddr::from(([127, 0, 52, 250], 0));
        let server = ApiServer::start_at(address, Speaks::Http1).await;
        server.set("a", fleet.port, &[(fleet.ip(0), true), (fleet.ip(1), true)]);
        let proxy = start(setup(&server, "")).await;
        let before = replicas(&proxy).await;
        assert_eq!(before.len(), 2);
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        let address = server.address();
        drop(server);
        until_lookups(&proxy, "failed", 2).await;
        assert_eq!(replicas(&proxy).await, before);
        let discovery = state(&proxy).await["discovery"].clone();
        assert_eq!(discovery["connected"], false);
        assert_eq!(discovery["endpoints"][0]["stale"], true);
        let error = discovery["error"].as_str().expect("it failed");
        assert!(error.contains("not connected") && error.contains("refused"), "{error}");
        let port = address.port().to_string();
        assert!(logs::find(&["WARN", &port, "discovery failed; its last replicas stay"]).is_some());
        let server = ApiServer::start_at(address, Speaks::Http1).await;
        server.set("b", fleet.port, &[(fleet.ip(1), true), (fleet.ip(2), true)]);
        fleet.until_asked(2).await;
        until_urls(&proxy, &fleet.urls(&[1, 2])).await;
        assert_eq!(replicas(&proxy).await[0], before[1], "it keeps its number");
        steady.stop().await;
        no_request_failed(&proxy).await;
        logs::until(&["INFO", &port, "discovery succeeds again"]).await;
    });
}

#[test]
fn a_watch_goes_on_at_its_version_and_lists_again_when_that_is_gone() {
    run(async {
        let fleet = Fleet::start("watched.test", 53, 2, 0).await;
        let server = ApiServer::start().await;
        server.set("a", fleet.port, &[(fleet.ip(0), true)]);
        let proxy = start(setup(&server, "")).await;
        server.until_requests("watch=true", 1).await;
        // The time of a watch is over: the next one begins at the version of the bookmark.
        let version = server.bookmark();
        server.end_watches();
        server.until_requests(&format!("resourceVersion={version}"), 1).await;
        assert_eq!(server.requests("limit").len(), 1);
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        server.set("a", fleet.port, &[(fleet.ip(1), true)]);
        until_urls(&proxy, &fleet.urls(&[1])).await;
        // The watch reports that it cannot go on.
        let gone = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "old" });
        server.send("ERROR", &gone);
        server.until_requests("limit", 2).await;
        server.until_requests("watch=true", 3).await;
        // The next watch cannot begin.
        server.set("a", fleet.port, &[(fleet.ip(0), true), (fleet.ip(1), true)]);
        until_urls(&proxy, &fleet.urls(&[0, 1])).await;
        server.forget_events();
        server.end_watches();
        server.until_requests("limit", 3).await;
        server.set("a", fleet.port, &[(fleet.ip(0), true)]);
        until_urls(&proxy, &fleet.urls(&[0])).await;
        steady.stop().await;
        let metrics = proxy.metrics().await;
        let failed = metrics.sum("curtail_discovery_lookups_total", &[("result", "failed")]);
        assert_eq!(failed, 0, "{metrics}");
    });
}

#[test]
fn an_api_server_that_fails_at_the_start_is_named_and_asked_again() {
    run(async {
        let fleet = Fleet::start("faulty.test", 54, 1, 0).await;
        let faults = [
            (
                Fault::Status(403),
                "list: status 403: this server fails (the proxy needs list and watch",
            ),
            (
                Fault::Nonsense,
                "list: expected an EndpointSliceList: expected value at line 1 column 1",
            ),
            (Fault::Endless, "the response has more than 16777216 bytes"),
        ];
        for (fault, says) in faults {
            let server = ApiServer::start().await;
            server.set("a", fleet.port, &[(fleet.ip(0), true)]);
            server.set_fault(Some(fault));
            let proxy = start(setup(&server, "")).await;
            until_error(&proxy, says).await;
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            assert_eq!(client.get("/").await.error(), Some("no_replica"));
            let address = server.address().to_string();
            let log = logs::until(&["WARN", &address, "there are no replicas"]).await;
            assert!(log.contains(says), "{log}");
            server.set_fault(None);
            until_replicas(&proxy, 1).await;
            assert_eq!(client.get("/").await.status, StatusCode::OK);
            assert!(server.endless_bytes() < 64 << 20, "{}", server.endless_bytes());
        }
    });
}

#[test]
fn a_watch_that_fails_costs_no_replica_and_little_memory() {
    run(async {
        let fleet = Fleet::start("broken.test", 55, 1, 0).await;
        let server = ApiServer::start().await;
        server.set("a", fleet.port, &[(fleet.ip(0), true)]);
        let proxy = start(setup(&server, "")).await;
        until_replicas(&proxy, 1).await;
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        server.until_requests("watch=true", 1).await;
        server.set_fault(Some(Fault::Endless));
        until_error(&proxy, "watch: expected events of at most 8 MiB, found a longer line").await;
        assert!(server.endless_bytes() < 64 << 20, "{}", server.endless_bytes());
        server.set_fault(None);
        for (kind, object, says) in [
            ("MOVED", json!({}), "watch: an event has the unknown type \"MOVED\""),
            ("ERROR", json!({ "code": 500, "message": "etcd" }), "watch: the server reports: etcd"),
        ] {
            let watches = server.requests("watch=true").len();
            server.until_requests("watch=true", watches + 1).await;
            server.send(kind, &object);
            until_error(&proxy, says).await;
            assert_eq!(replicas(&proxy).await.len(), 1);
        }
        steady.stop().await;
        no_request_failed(&proxy).await;
    });
}

#[test]
fn a_flood_of_changes_is_applied_together() {
    run(async {
        let fleet = Fleet::start("flooding.test", 56, 2, 0).await;
        let server = ApiServer::start().await;
        server.set("a", fleet.port, &[(fleet.ip(0), true)]);
        let proxy = start(setup(&server, "")).await;
        server.until_requests("watch=true", 1).await;
        let since = std::time::Instant::now();
        for nth in 0..5_000 {
            server.set("a", fleet.port, &[(fleet.ip(nth % 2), true)]);
        }
        server.set("b", fleet.port, &[(fleet.ip(0), true), (fleet.ip(1), true)]);
        until_replicas(&proxy, 2).await;
        let tenths = since.elapsed().as_millis() / 100;
        let metrics = proxy.metrics().await;
        let applied = metrics.sum("curtail_discovery_lookups_total", &[("result", "found")]);
        assert!(u128::from(applied) <= tenths + 3, "{applied} in {tenths} tenths of a second");
    });
}

#[test]
fn a_token_is_read_again_and_the_authority_is_checked() {
    run(async {
        let fleet = Fleet::start("token.test", 57, 1, 0).await;
        let authority = Authority::new();
        let tls = authority.issue("127.0.0.1").server(&["http/1.1"]);
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = ApiServer::start_at(local, Speaks::Tls(tls)).await;
        server.set("a", fleet.port, &[(fleet.ip(0), true)]);
        server.require_token("one");
        let directory = Directory::new();
        let token = directory.write("token", "one\n");
        let keys = |ca: &Authority| {
            let (token, ca) = (token.display(), ca.file());
            let server = server.address();
            Setup::before_urls([]).upstream(&format!(
                "discovery: {{kubernetes: {{service: search, namespace: default, server: \"https://{server}\", token_file: {token}, ca_file: {}}}}}",
                ca.display()
            ))
        };
        let proxy = start(keys(&authority)).await;
        until_replicas(&proxy, 1).await;
        server.until_requests("watch=true", 1).await;
        // A watch that is open goes on with the old token; the next one has the new one.
        server.require_token("two");
        directory.write("token", "two\n");
        server.bookmark();
        server.end_watches();
        server.until_requests("watch=true", 2).await;
        server.set("a", fleet.port, &[(fleet.ip(0), false)]);
        until_error(&proxy, "no endpoints: 1 slices").await;
        directory.write("token", "three\n");
        server.end_watches();
        until_error(&proxy, "watch: status 401: Unauthorized (check token_file").await;
        std::fs::remove_file(&token).expect("it is ours");
        until_error(&proxy, "token: No such file").await;
        directory.write("token", "two\n");
        // Its file has to be there when the next session begins.
        let stranger = Authority::new();
        proxy.reload(&keys(&stranger)).expect("it is good");
        until_error(&proxy, "TLS failed").await;
    });
}

#[test]
fn stale_endpoints_leave_and_a_service_without_endpoints_keeps_the_last_ones_for_a_while() {
    run(async {
        let fleet = Fleet::start("stale-slices.test", 58, 1, 0).await;
        let address = SocketAddr::from(([127, 0, 58, 250], 0));
        let server = ApiServer::start_at(address, Speaks::Http1).await;
        server.set("a", fleet.port, &[(fleet.ip(0), true)]);
        let proxy = start(with_keys(&server, "", ", stale_max: 1s, empty_max: 2s")).await;
        until_replicas(&proxy, 1).await;
        let since = std::time::Instant::now();
        server.delete("a");
        until_error(&proxy, "no endpoints: 0 slices").await;
        until_replicas(&proxy, 0).await;
        assert!(since.elapsed() >= std::time::Duration::from_secs(2), "{:?}", since.elapsed());
        server.set("a", fleet.port, &[(fleet.ip(0), true)]);
        until_replicas(&proxy, 1).await;
        drop(server);
        until_replicas(&proxy, 0).await;
    });
}

#[test]
fn a_reload_keeps_the_watch_unless_the_source_changes() {
    run(async {
        let fleet = Fleet::start("reloaded.test", 59, 2, 0).await;
        let server = ApiServer::start().await;
        server.set("a", fleet.port, &[(fleet.ip(0), true)]);
        let keys = setup(&server, "");
        let proxy = start(keys.clone()).await;
        server.until_requests("watch=true", 1).await;
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        proxy.reload(&keys.clone().route("idempotent: true")).expect("it is good");
        proxy.reload(&keys).expect("it is good");
        server.set("a", fleet.port, &[(fleet.ip(1), true)]);
        until_urls(&proxy, &fleet.urls(&[1])).await;
        assert_eq!(server.requests("limit").len(), 1, "the watch went on");
        // Another port is another source: its list is empty-handed, so the replica of before stays.
        proxy.reload(&setup(&server, ", port: other")).expect("it is good");
        server.until_requests("watch=true", 2).await;
        until_error(&proxy, "expected other with TCP").await;
        assert_eq!(replicas(&proxy).await.len(), 1);
        proxy.reload(&Setup::before(&[fleet.replicas[0].address()])).expect("it is good");
        assert!(state(&proxy).await["discovery"].is_null());
        fleet.until_asked(0).await;
        steady.stop().await;
        no_request_failed(&proxy).await;
    });
}
