//! Records that are added and removed, and reloads: no request notices.

use super::{Fleet, replicas, state, until_replicas};
use crate::client::{Client, HOST};
use crate::deadline::run;
use crate::directory::Directory;
use crate::logs;
use crate::operation::journal::replayed;
use crate::proxy::Setup;
use crate::raw_replica::RawReplica;
use crate::steady::Steady;
use curtail_sim::End;
use http::{StatusCode, Version};
use std::time::{Duration, Instant};

#[test]
fn all_addresses_of_a_name_get_requests() {
    run(async {
        let fleet = Fleet::start("all.test", 11, 3, 3).await;
        let proxy = fleet.setup().start();
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        for nth in 0..3 {
            fleet.until_asked(nth).await;
        }
        steady.stop().await;
        let urls: Vec<String> = replicas(&proxy).await.into_iter().map(|(_, url)| url).collect();
        let url = |nth: usize| format!("http://{}", fleet.replicas[nth].address());
        assert_eq!(urls, [url(0), url(1), url(2)]);
        let asked = &fleet.replicas[0].record().requests()[0];
        assert_eq!(asked.head.get("host"), Some(HOST), "as the client sent it");
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_discovery_endpoints", &[]), 3, "{metrics}");
        let first = fleet.replicas[0].address().to_string();
        assert_eq!(metrics.sum("curtail_replica_ejected", &[("replica", &*first)]), 0, "{metrics}");
    });
}

#[test]
fn an_address_joins_and_leaves_within_its_ttl_under_load_and_no_request_fails() {
    run(async {
        let fleet = Fleet::start("moving.test", 12, 3, 2).await;
        fleet.set(1, &[0, 1]);
        let directory = Directory::new();
        let file = directory.path("discovery.journal");
        let proxy = fleet.setup().journal(file.clone()).start();
        let steady = [
            Steady::start(&proxy, Version::HTTP_11).await,
            Steady::start(&proxy, Version::HTTP_11).await,
            Steady::start(&proxy, Version::HTTP_2).await,
        ];
        proxy.until(|metrics| metrics.sum("curtail_requests_total", &[]) >= 100).await;
        let lookups = || fleet.names.queries_for("moving.test", "A");
        for round in 0..2 {
            let (before, since) = (lookups(), Instant::now());
            fleet.set(1, &[0, 1, 2]);
            fleet.until_asked(2).await;
            println!("round {round}: joined after {:?}", since.elapsed());
            assert!(lookups() <= before + 1, "the first lookup after the change has it");
            let ids: Vec<u64> = replicas(&proxy).await.into_iter().map(|(id, _)| id).collect();
            assert_eq!(ids, [0, 1, 2 + round], "the others keep their numbers");
            let state = state(&proxy).await;
            assert!(state["recent"]["p50_ms"].is_number(), "and the latencies stay: {state}");

            let (before, since) = (lookups(), Instant::now());
            fleet.set(1, &[0, 1]);
            until_replicas(&proxy, 2).await;
            println!("round {round}: left after {:?}", since.elapsed());
            assert!(lookups() <= before + 1, "the first lookup after the change has it");
            fleet.replicas[2].record().until(|record| record.open_connections() == 0).await;
        }
        for steady in steady {
            steady.stop().await;
        }
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_requests_failed_total", &[]), 0, "{metrics}");
        assert_eq!(metrics.sum("curtail_attempts_failed_total", &[]), 0, "{metrics}");
        let third = fleet.replicas[2].address().to_string();
        assert!(logs::find(&["discovered replicas changed", "joined", &third]).is_some());
        proxy.stop(Duration::from_secs(10)).await.expect("it stops");
        assert_eq!(replayed(&file).end, End::Complete);
    });
}

#[test]
fn a_reload_keeps_the_discovered_replicas_and_what_was_learned() {
    run(async {
        let fleet = Fleet::start("kept.test", 13, 3, 2).await;
        let proxy = fleet.setup().start();
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        let before = replicas(&proxy).await;
        let queries = *fleet.names.queries().borrow();
        // Other keys of the file, of the lookup, and of the upstream, whose policies then begin anew.
        let other = fleet.setup().upstream(&format!(
            "discovery: {{dns: \"http://kept.test:{}\"}}\nhedge: false",
            fleet.port
        ));
        let setups = [
            fleet.setup().route("idempotent: true"),
            fleet.setup().top(&fleet.dns(", refresh_max: 2m")),
            other,
            fleet.setup(),
        ];
        for setup in &setups {
            proxy.reload(setup).expect("it is good");
            assert_eq!(replicas(&proxy).await, before);
        }
        fleet.names.queries().wait_for(|count| *count > queries + 4).await.expect("it runs");
        // Each discovery goes on after it.
        fleet.set(0, &[0, 1, 2]);
        fleet.until_asked(2).await;
        steady.stop().await;
    });
}

#[test]
fn the_replicas_of_before_stay_until_a_new_name_has_a_response() {
    run(async {
        let fleet = Fleet::start("next.test", 14, 2, 0).await;
        let old = RawReplica::responding("good").await;
        let listed = Setup::before(&[old.address()]).top(&fleet.dns(""));
        let proxy = listed.start();
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        proxy.reload(&fleet.setup()).expect("it is good");
        old.record().until(|record| !record.requests().is_empty()).await;
        super::until_lookups(&proxy, "empty", 2).await;
        let url = format!("http://{}", old.address());
        assert_eq!(
            replicas(&proxy).await,
            [(0, url)],
            "a name without records changes nothing yet"
        );
        fleet.set(0, &[0]);
        fleet.until_asked(0).await;
        assert_eq!(replicas(&proxy).await.len(), 1);
        // Another name.
        let port = fleet.port;
        let renamed = format!("discovery: {{dns: \"http://other.next.test:{port}\"}}");
        proxy.reload(&fleet.setup().upstream(&renamed)).expect("it is good");
        let address = curtail_testbed::NameRecord::Address(fleet.ip(1));
        fleet.names.set("other.next.test", 0, &[address]);
        fleet.until_asked(1).await;
        // And back to a list.
        proxy.reload(&listed).expect("it is good");
        let asked = old.record().requests().len();
        old.record().until(|record| record.requests().len() > asked).await;
        assert!(state(&proxy).await["discovery"].is_null());
        steady.stop().await;
    });
}

#[test]
fn a_listed_replica_is_used_beside_the_discovered_ones() {
    run(async {
        let fleet = Fleet::start("beside.test", 15, 2, 2).await;
        // The second one is also discovered: it is one replica.
        let listed = RawReplica::responding("good").await;
        let second = fleet.replicas[1].address();
        let upstream = format!("discovery: {{dns: \"http://beside.test:{}\"}}", fleet.port);
        let setup = Setup::before(&[listed.address(), second]);
        let proxy = setup.upstream(&upstream).top(&fleet.dns("")).start();
        assert_eq!(replicas(&proxy).await.len(), 3);
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        fleet.until_asked(0).await;
        fleet.until_asked(1).await;
        fleet.set(0, &[]);
        steady.stop().await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
    });
}
