//! EDS: assignments that change, are accepted or rejected, and a control plane that is away or fails.

use super::ads_server::{AdsServer, Fault, Sent, healthy};
use super::{
    Fleet, replicas, start, state, until_error, until_lookups, until_no_error, until_replicas,
    until_urls,
};
use crate::client::Client;
use crate::deadline::run;
use crate::logs;
use crate::proxy::{Proxy, Setup};
use crate::steady::Steady;
use http::{StatusCode, Version};
use std::net::SocketAddr;

/// A proxy that discovers the cluster at this control plane, with further keys of `discovery`.
fn setup(server: &AdsServer, keys: &str) -> Setup {
    let server = server.address();
    Setup::before_urls([]).upstream(&format!(
        "discovery: {{eds: {{server: \"http://{server}\", cluster: search, node_id: proxy-7}}{keys}}}"
    ))
}

async fn no_request_failed(proxy: &Proxy) {
    let metrics = proxy.metrics().await;
    assert_eq!(metrics.sum("curtail_requests_failed_total", &[]), 0, "{metrics}");
}

#[test]
fn endpoints_join_and_leave_under_load_and_each_version_is_accepted() {
    run(async {
        let fleet = Fleet::start("eds.test", 61, 3, 0).await;
        let server = AdsServer::start().await;
        let endpoint = |nth: usize| healthy(fleet.replicas[nth].address());
        server.set(&[&[endpoint(0), endpoint(1)]]);
        let proxy = start(setup(&server, "")).await;
        until_urls(&proxy, &fleet.urls(&[0, 1])).await;
        let first = server.requests()[0].clone();
        assert_eq!((&*first.version, &*first.nonce, first.error), ("", "", None));
        assert_eq!((&*first.cluster, &*first.node), ("search", "proxy-7"));
        let accepted = server.until_sent(|sent| sent.version == "1").await;
        assert!(accepted.nonce.starts_with("nonce-") && accepted.error.is_none(), "{accepted:?}");
        let steady = [
            Steady::start(&proxy, Version::HTTP_11).await,
            Steady::start(&proxy, Version::HTTP_2).await,
        ];
        server.set(&[&[endpoint(0), endpoint(1), endpoint(2)]]);
        fleet.until_asked(2).await;
        // DRAINING, and then another priority.
        let (host, port, _) = endpoint(0);
        server.set(&[&[(host, port, 3), endpoint(2)], &[endpoint(1)]]);
        until_urls(&proxy, &fleet.urls(&[2])).await;
        let summary = "version \"3\": 1 endpoints of priority 0, 1 left out by health status";
        assert_eq!(state(&proxy).await["discovery"]["summary"], summary);
        server.set(&[&[], &[endpoint(1)], &[endpoint(0)]]);
        until_urls(&proxy, &fleet.urls(&[1])).await;
        for steady in steady {
            steady.stop().await;
        }
        no_request_failed(&proxy).await;
        server.until_sent(|sent| sent.version == "4").await;
        assert_eq!(server.requests().len(), 5, "one request for each response, and the first");
    });
}

#[test]
fn an_assignment_that_cannot_be_used_is_rejected_and_the_last_one_stays() {
    run(async {
        let fleet = Fleet::start("rejected.test", 62, 2, 0).await;
        let server = AdsServer::start().await;
        let endpoint = |nth: usize| healthy(fleet.replicas[nth].address());
        server.set(&[&[endpoint(0)]]);
        let proxy = start(setup(&server, "")).await;
        until_replicas(&proxy, 1).await;
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        server.set(&[&[endpoint(1), ("web.test".to_owned(), 80, 1)]]);
        let rejected = server.until_sent(|sent| sent.error.is_some()).await;
        assert_eq!(rejected.version, "1", "the last accepted version");
        let error = rejected.error.expect("it is rejected");
        assert_eq!(error, "lb_endpoints[1]: address \"web.test\": expected an IP address");
        until_error(&proxy, "version \"2\" is rejected: lb_endpoints[1]: address").await;
        let discovery = state(&proxy).await["discovery"].clone();
        assert_eq!(discovery["endpoints"][0]["stale"], true, "{discovery}");
        assert_eq!(discovery["connected"], true);
        assert_eq!(replicas(&proxy).await[0].1, fleet.urls(&[0])[0]);
        server.set(&[&[endpoint(1)]]);
        until_urls(&proxy, &fleet.urls(&[1])).await;
        server.until_sent(|sent| sent.version == "3" && sent.error.is_none()).await;
        until_no_error(&proxy).await;
        steady.stop().await;
        no_request_failed(&proxy).await;
    });
}

#[test]
fn a_control_plane_that_restarts_with_other_endpoints_of_the_same_version_is_followed() {
    run(async {
        let fleet = Fleet::start("restarted.test", 63, 2, 0).await;
        let server = AdsServer::start_at(SocketAddr::from(([127, 0, 63, 250], 0))).await;
        let endpoint = |nth: usize| healthy(fleet.replicas[nth].address());
        server.set(&[&[endpoint(0)]]);
        let proxy = start(setup(&server, "")).await;
        until_replicas(&proxy, 1).await;
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        server.until_sent(|sent| sent.version == "1").await;
        let address = server.address();
        drop(server);
        until_lookups(&proxy, "failed", 2).await;
        assert_eq!(replicas(&proxy).await[0].1, fleet.urls(&[0])[0]);
        assert_eq!(state(&proxy).await["discovery"]["connected"], false);
        let server = AdsServer::start_at(address).await;
        server.set(&[&[endpoint(1)]]);
        until_urls(&proxy, &fleet.urls(&[1])).await;
        let first = server.requests()[0].clone();
        assert_eq!((&*first.version, &*first.nonce), ("", ""), "a stream begins without a version");
        steady.stop().await;
        no_request_failed(&proxy).await;
    });
}

#[test]
fn a_stream_that_the_control_plane_ends_is_followed_by_another_and_is_no_failure() {
    run(async {
        let fleet = Fleet::start("ended.test", 66, 2, 0).await;
        let server = AdsServer::start().await;
        let endpoint = |nth: usize| healthy(fleet.replicas[nth].address());
        server.set(&[&[endpoint(0)]]);
        let proxy = start(setup(&server, "")).await;
        until_replicas(&proxy, 1).await;
        for nth in [1, 0] {
            server.set_fault(Some(Fault::OneEnd));
            server.set(&[&[endpoint(nth)]]);
            until_urls(&proxy, &fleet.urls(&[nth])).await;
        }
        let is_first = |sent: &Sent| sent.nonce.is_empty();
        assert_eq!(server.requests().iter().filter(|sent| is_first(sent)).count(), 3);
        let failed = [("result", "failed")];
        assert_eq!(proxy.metrics().await.sum("curtail_discovery_lookups_total", &failed), 0);
        assert!(logs::find(&["WARN", &server.address().to_string()]).is_none());
    });
}

#[test]
fn a_control_plane_that_fails_costs_no_replica_and_little_memory() {
    run(async {
        let fleet = Fleet::start("eds-faults.test", 64, 2, 0).await;
        let server = AdsServer::start().await;
        let endpoint = |nth: usize| healthy(fleet.replicas[nth].address());
        server.set(&[&[endpoint(0)]]);
        let proxy = start(setup(&server, "")).await;
        until_replicas(&proxy, 1).await;
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        for (fault, says) in [
            (Fault::Status(14), "gRPC status 14: this server fails"),
            (Fault::Status(12), "the server has no aggregated discovery service"),
            (Fault::Status(0), "the control plane has ended the stream"),
            (Fault::Gigabyte, "a response has 1073741824 bytes: expected at most 16 MiB"),
            (Fault::Nonsense, "the DiscoveryResponse is malformed at byte 0"),
        ] {
            server.set_fault(Some(fault));
            until_error(&proxy, says).await;
            assert_eq!(replicas(&proxy).await.len(), 1, "{fault:?}");
            server.set_fault(None);
            until_no_error(&proxy).await;
        }
        server.set(&[&[endpoint(1)]]);
        until_urls(&proxy, &fleet.urls(&[1])).await;
        steady.stop().await;
        no_request_failed(&proxy).await;
    });
}

#[test]
fn a_cluster_that_the_control_plane_does_not_know_is_named_and_an_empty_one_leaves_after_its_time()
{
    run(async {
        let fleet = Fleet::start("unknown.test", 65, 1, 0).await;
        let server = AdsServer::start().await;
        let proxy = start(setup(&server, ", empty_max: 1s")).await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.error(), Some("no_replica"));
        let says = "no assignment within 15 s: the control plane has no cluster \"search\" for node \"proxy-7\"";
        until_error(&proxy, says).await;
        server.set(&[&[healthy(fleet.replicas[0].address())]]);
        until_replicas(&proxy, 1).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        server.set(&[]);
        server.until_sent(|sent| sent.version == "2" && sent.error.is_none()).await;
        until_error(&proxy, "no endpoints: version \"2\"").await;
        until_replicas(&proxy, 0).await;
    });
}
