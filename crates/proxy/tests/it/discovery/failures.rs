//! Name servers that fail, and names without records.

use super::{Fleet, replicas, state, until_lookups, until_replicas};
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::logs;
use crate::proxy::{Proxy, Setup};
use crate::steady::Steady;
use curtail_proxy::Options;
use curtail_testbed::{NameRecord, NameServerFault};
use http::{StatusCode, Version};
use std::net::IpAddr;
use std::time::Duration;

#[test]
fn a_name_server_that_fails_in_any_way_is_not_noticed() {
    run(async {
        let fleet = Fleet::start("failing.test", 21, 3, 2).await;
        let proxy = fleet.setup().start();
        let steady = [
            Steady::start(&proxy, Version::HTTP_11).await,
            Steady::start(&proxy, Version::HTTP_2).await,
        ];
        for fault in [NameServerFault::Silent, NameServerFault::Fails] {
            let before = replicas(&proxy).await;
            fleet.names.set_fault(Some(fault));
            until_lookups(&proxy, "failed", 2).await;
            assert_eq!(replicas(&proxy).await, before, "{fault:?}");
            let discovery = state(&proxy).await["discovery"].clone();
            assert!(discovery["error"].is_string(), "{fault:?}: {discovery}");
            assert_eq!(discovery["endpoints"][0]["stale"], true, "{fault:?}: {discovery}");
            fleet.names.set_fault(None);
            until_lookups(&proxy, "found", 2).await;
            assert!(state(&proxy).await["discovery"]["error"].is_null());
        }
        fleet.set(0, &[2]);
        until_replicas(&proxy, 1).await;
        fleet.until_asked(2).await;
        assert!(logs::find(&["WARN", "failing.test", "discovery failed"]).is_some());
        assert!(logs::find(&["INFO", "failing.test", "again"]).is_some());
        // The server is gone, with its port.
        let Fleet { names, .. } = fleet;
        drop(names);
        until_lookups(&proxy, "failed", 2).await;
        assert_eq!(replicas(&proxy).await.len(), 1);
        for steady in steady {
            steady.stop().await;
        }
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_requests_failed_total", &[]), 0, "{metrics}");
    });
}

#[test]
fn a_process_without_replicas_does_not_take_over_from_one_that_has_them() {
    run(async {
        let fleet = Fleet::start("taken.test", 39, 1, 1).await;
        let directory = Directory::new();
        let socket = directory.path("restart.sock");
        let keys = format!("{}\nrestart: {{socket: {}}}", fleet.dns(""), socket.display());
        let setup = fleet.setup().top(&keys);
        let old = setup.start();
        assert_eq!(replicas(&old).await.len(), 1);
        fleet.names.set_fault(Some(NameServerFault::Fails));
        let start = || Proxy::try_start(&setup.yaml_at(&old), &Options::default());
        let failed = start().expect_err("the name server fails").to_string();
        assert!(failed.starts_with("upstreams.service.discovery: "), "{failed}");
        assert!(failed.contains("serves on"), "{failed}");
        let mut client = Client::connect(old.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.get("connection"), None);
        fleet.names.set_fault(None);
        let new = start().expect("the name server responds");
        old.replaced().await;
        assert_eq!(replicas(&new).await.len(), 1);
        old.stop(Duration::from_secs(60)).await.expect("it stops");
    });
}

#[test]
fn stale_replicas_leave_after_their_time() {
    run(async {
        let fleet = Fleet::start("stale.test", 22, 1, 1).await;
        let proxy = fleet.setup().top(&fleet.dns(", stale_max: 1s")).start();
        assert_eq!(replicas(&proxy).await.len(), 1);
        fleet.names.set_fault(Some(NameServerFault::Fails));
        until_replicas(&proxy, 0).await;
        fleet.names.set_fault(None);
        until_replicas(&proxy, 1).await;
    });
}

#[test]
fn a_proxy_starts_before_its_name_has_records() {
    run(async {
        for (name, x, fault) in
            [("later.test", 23, None), ("silent.test", 24, Some(NameServerFault::Silent))]
        {
            let fleet = Fleet::start(name, x, 1, 0).await;
            fleet.names.set_fault(fault);
            let proxy = fleet.setup().start();
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            let response = client.get("/").await;
            assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.error(), Some("no_replica"));
            let state = state(&proxy).await;
            assert_eq!(state["replicas"].as_array().map(Vec::len), Some(0), "{state}");
            assert!(state["discovery"]["last_success_age_s"].is_null() == fault.is_some());
            assert!(logs::find(&["WARN", name]).is_some());
            fleet.names.set_fault(None);
            fleet.set(0, &[0]);
            until_replicas(&proxy, 1).await;
            assert_eq!(client.get("/").await.status, StatusCode::OK);
        }
    });
}

#[test]
fn a_reload_removes_a_listed_replica_while_the_name_server_is_silent() {
    run(async {
        let fleet = Fleet::start("listed.test", 29, 2, 0).await;
        fleet.names.set_fault(Some(NameServerFault::Silent));
        let setup = |count| {
            let urls = fleet.replicas.iter().map(|replica| format!("http://{}", replica.address()));
            let name = format!("discovery: {{dns: \"http://{}:{}\"}}", fleet.name, fleet.port);
            Setup::before_urls(urls.take(count)).upstream(&name).top(&fleet.dns(""))
        };
        let proxy = setup(2).start();
        assert_eq!(replicas(&proxy).await.len(), 2);
        proxy.reload(&setup(1)).expect("the reload succeeds");
        assert_eq!(replicas(&proxy).await.len(), 1);
        // The replicas of a file that becomes a name stay, also through further reloads.
        let url = format!("http://{}", fleet.replicas[0].address());
        let proxy = Setup::before_urls([url]).start();
        for _ in 0..2 {
            proxy.reload(&fleet.setup()).expect("the reload succeeds");
        }
        assert_eq!(replicas(&proxy).await.len(), 1);
    });
}

#[test]
fn an_address_that_no_server_can_have_is_no_replica() {
    run(async {
        let fleet = Fleet::start("blocked.test", 32, 1, 1).await;
        let proxy = fleet.setup().start();
        until_replicas(&proxy, 1).await;
        let record = |address: [u8; 4]| NameRecord::Address(IpAddr::from(address));
        let good = NameRecord::Address(fleet.ip(0));
        fleet.names.set(fleet.name, 0, &[record([0, 0, 0, 0]), record([224, 0, 0, 1]), good]);
        until_lookups(&proxy, "found", 3).await;
        let before = replicas(&proxy).await;
        assert_eq!(before.len(), 1, "{before:?}");
        fleet.names.set(fleet.name, 0, &[record([0, 0, 0, 0])]);
        until_lookups(&proxy, "failed", 1).await;
        assert_eq!(replicas(&proxy).await, before, "as after a failure");
        let state = state(&proxy).await;
        let error = state["discovery"]["error"].as_str().expect("it failed");
        assert!(error.contains("no server can have 0.0.0.0"), "{error}");
    });
}

#[test]
fn a_fan_out_to_replicas_that_are_not_discovered_yet_is_an_error() {
    run(async {
        let fleet = Fleet::start("gathered.test", 25, 2, 0).await;
        let proxy = fleet.setup().route("fan_out: {to: replicas}").start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let response = client.get("/").await;
        assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE, "{response:?}");
        assert_eq!(response.error(), Some("too_few_replicas"));
        fleet.set(0, &[0, 1]);
        until_replicas(&proxy, 2).await;
        assert_eq!(client.get("/").await.body, "goodgood");
    });
}

#[test]
fn a_name_that_loses_its_records_keeps_its_replicas_for_a_while() {
    run(async {
        let fleet = Fleet::start("emptied.test", 26, 2, 2).await;
        let proxy = fleet.setup().top(&fleet.dns(", empty_max: 2s")).start();
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        fleet.set(0, &[]);
        until_lookups(&proxy, "empty", 2).await;
        assert_eq!(replicas(&proxy).await.len(), 2);
        steady.stop().await;
        until_replicas(&proxy, 0).await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.error(), Some("no_replica"));
        fleet.set(0, &[1]);
        until_replicas(&proxy, 1).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
    });
}

#[test]
fn a_name_that_never_had_records_is_no_change_of_replicas() {
    run(async {
        let fleet = Fleet::start("none.test", 33, 1, 0).await;
        let proxy = fleet.setup().top(&fleet.dns(", empty_max: 100ms")).start();
        logs::until(&["WARN", "none.test", "there are no replicas"]).await;
        until_lookups(&proxy, "empty", 3).await;
        let line = logs::find(&["weights or zones of discovered replicas changed", "replicas=0"]);
        assert_eq!(line, None);
    });
}

#[test]
fn name_servers_that_fail_for_ipv6_and_truncate_and_are_slow_are_good_enough() {
    run(async {
        let fleet = Fleet::start("halting.test", 27, 2, 2).await;
        let slow = NameServerFault::Slow(curtail_units::Duration::from_ms(30));
        for (fault, result) in [
            (NameServerFault::FailsForIpv6, "partial"),
            (NameServerFault::Truncates, "found"),
            (slow, "found"),
        ] {
            fleet.set(0, &[0, 1]);
            fleet.names.set_fault(Some(fault));
            let proxy = fleet.setup().start();
            assert_eq!(replicas(&proxy).await.len(), 2, "{fault:?}");
            until_lookups(&proxy, result, 1).await;
            fleet.set(0, &[1]);
            until_replicas(&proxy, 1).await;
            proxy.stop(Duration::from_secs(1)).await.expect("it stops");
        }
    });
}

#[test]
fn a_type_without_records_is_not_asked_for_again_until_that_expires() {
    run(async {
        let fleet = Fleet::start("negative.test", 28, 1, 1).await;
        fleet.names.set_negative_ttl(3_600);
        let proxy = fleet.setup().start();
        until_lookups(&proxy, "found", 5).await;
        let queries = |kind| fleet.names.queries_for("negative.test", kind);
        assert!(queries("A") >= 5);
        assert!(queries("AAAA") <= 2, "{}", queries("AAAA"));
        let ipv6 = NameRecord::Address([0, 0, 0, 0, 0, 0xffff, 0x7f00, 28 << 8 | 1].into());
        fleet.names.set("negative.test", 0, &[NameRecord::Address(fleet.ip(0)), ipv6]);
        until_replicas(&proxy, 2).await;
    });
}
