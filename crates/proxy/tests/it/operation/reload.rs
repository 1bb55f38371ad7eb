//! New configurations: whole or not at all, and no request in flight notices.

use super::Gated;
use super::journal::replayed;
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::Speaks;
use crate::steady::Steady;
use curtail_sim::End;
use http::{StatusCode, Version};
use serde_json::Value;
use std::time::Duration;

async fn ask(proxy: &Proxy) -> String {
    let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
    let response = client.get("/").await;
    assert_eq!(response.status, StatusCode::OK, "{response:?}");
    String::from_utf8(response.body.to_vec()).expect("text")
}

#[test]
fn new_requests_go_where_the_new_configuration_says_and_old_ones_end_where_they_are() {
    run(async {
        let gated = Gated::start(Speaks::Http1, "old").await;
        let new = RawReplica::responding("new").await;
        let before = Setup::before(&[gated.replica.address()]).upstream("hedge: false");
        let proxy = before.start();
        let mut kept = Client::connect(proxy.address(), Version::HTTP_11).await;
        gated.gate.add_permits(1);
        assert_eq!(kept.get("/").await.body, "old");
        let asking = gated.ask(proxy.address(), Version::HTTP_11).await;
        let changed = proxy.reload(&Setup::before(&[new.address()])).expect("it is good");
        assert_eq!(changed, ["upstreams.service"]);
        assert_eq!(ask(&proxy).await, "new");
        assert_eq!(kept.get("/").await.body, "new", "on a connection of before as well");
        gated.gate.add_permits(1);
        assert_eq!(asking.await.expect("no panic").body, "old");
        proxy.reload(&before).expect("it is good");
        gated.gate.add_permits(1);
        assert_eq!(ask(&proxy).await, "old");
        let reloads = |metrics: crate::metrics::Metrics| {
            metrics.sum("curtail_config_reloads_total", &[("result", "ok")])
        };
        assert_eq!(reloads(proxy.metrics().await), 2);
    });
}

#[test]
fn an_upstream_that_stays_as_it_is_keeps_what_it_has_learned() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let setup = Setup::before(&[replica.address()]);
        let proxy = setup.start();
        assert_eq!(ask(&proxy).await, "good");
        // Another route, the same upstream: counts and connections go on.
        let changed = proxy.reload(&setup.clone().route("idempotent: true")).expect("it is good");
        assert_eq!(changed, ["routes"]);
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_requests_total", &[("status", "2xx")]), 1, "{metrics}");
        proxy.reload(&setup).expect("it is good");
        ask(&proxy).await;
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_requests_total", &[("status", "2xx")]), 2, "{metrics}");
    });
}

#[test]
fn what_cannot_be_taken_is_not_taken_in_part() {
    run(async {
        let (old, new) = (RawReplica::responding("old").await, RawReplica::responding("new").await);
        let setup = Setup::before(&[old.address()]);
        let proxy = setup.start();
        let elsewhere = Setup::before(&[new.address()]);
        let missing = Directory::new().path("missing.pem");
        let bad = [
            (elsewhere.clone().workers(3), "workers has changed"),
            (
                Setup::before_urls([
                    format!("http://{}", new.address()),
                    "https://h.test".to_owned(),
                ])
                .upstream(&format!("connect: {{ca_file: {}}}", missing.display())),
                "missing.pem",
            ),
        ];
        for (bad, says) in bad {
            let error = proxy.reload(&bad).expect_err("it cannot be taken").to_string();
            assert!(error.contains(says), "{error}");
            assert_eq!(ask(&proxy).await, "old");
        }
        assert_eq!(new.record().requests().len(), 0);
    });
}

#[test]
fn limits_are_for_the_connections_that_follow() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let setup = Setup::before(&[replica.address()]);
        let proxy = setup.start();
        let mut old = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(old.get("/").await.status, StatusCode::OK);
        proxy.reload(&setup.clone().top("limits: {headers: 8KiB}")).expect("it is good");
        let mut new = Client::connect(proxy.address(), Version::HTTP_11).await;
        let ask = async |client: &mut Client| {
            let mut request = client.request("GET", "/");
            request.headers_mut().insert("x-long", "y".repeat(10_000).parse().expect("text"));
            client.send(request).await.status
        };
        assert_eq!(ask(&mut new).await, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert_eq!(ask(&mut old).await, StatusCode::OK);
    });
}

#[test]
fn a_hundred_reloads_under_load_cost_no_request() {
    run(async {
        let (one, two) = (RawReplica::responding("1").await, RawReplica::responding("2").await);
        let setups = [
            Setup::before(&[one.address()]),
            Setup::before(&[two.address()]).upstream("connect: {idle_max: 1}"),
            Setup::before(&[one.address(), two.address()]).upstream("balance: round_robin"),
        ];
        let proxy = setups[0].start();
        let steady = [
            Steady::start(&proxy, Version::HTTP_11).await,
            Steady::start(&proxy, Version::HTTP_2).await,
            Steady::start(&proxy, Version::HTTP_2).await,
        ];
        for nth in 0..100 {
            proxy.reload(&setups[nth % 3]).expect("it is good");
            ask(&proxy).await;
        }
        for steady in steady {
            steady.stop().await;
        }
    });
}

/// The number and the URL of each replica.
fn numbered(upstream: &Value) -> Vec<(u64, String)> {
    let replicas = upstream["replicas"].as_array().expect("a list");
    let text = |url: &Value| url.as_str().expect("text").to_owned();
    replicas.iter().map(|r| (r["id"].as_u64().expect("a number"), text(&r["url"]))).collect()
}

#[test]
fn replicas_join_leave_and_move_under_load_and_the_others_keep_what_was_learned() {
    run(async {
        let servers = ["1", "2", "3"].map(RawReplica::responding);
        let [one, two, three] = servers;
        let [one, two, three] = [one.await, two.await, three.await];
        let url = |server: &RawReplica| format!("http://{}", server.address());
        let named = |name: &str, server: &RawReplica| format!("{name}={}", url(server));
        let joined = [named("a", &one), named("b", &two), url(&three)];
        let left = [url(&three), named("a", &one)];
        let moved = [named("a", &two), url(&three)];
        let directory = Directory::new();
        let file = directory.path("root.journal");
        let first = Setup::before_urls([named("a", &one), named("b", &two)]);
        let proxy = first.journal(file.clone()).start();
        let steady = [
            Steady::start(&proxy, Version::HTTP_11).await,
            Steady::start(&proxy, Version::HTTP_2).await,
        ];
        let state = async || -> Value {
            let state = proxy.admin("/state").await;
            let state: Value = serde_json::from_slice(&state.body).expect("JSON");
            state["upstreams"][0].clone()
        };
        // Enough latencies for an estimate, before anything changes.
        proxy.until(|metrics| metrics.sum("curtail_requests_total", &[]) >= 100).await;
        let mut highest = 1;
        for round in 0..20 {
            for (nth, replicas) in [&joined[..], &left, &moved].into_iter().enumerate() {
                let spent = state().await["budget"]["requests"].as_u64().expect("a number");
                proxy.reload(&Setup::before_urls(replicas.to_vec())).expect("it is good");
                ask(&proxy).await;
                let upstream = state().await;
                assert!(upstream["recent"]["p50_ms"].is_number(), "latencies are kept: {upstream}");
                let requests = upstream["budget"]["requests"].as_u64().expect("a number");
                assert!(spent > 0 && requests > 0, "the budget is kept: {upstream}");
                let numbered = numbered(&upstream);
                let at = if nth == 2 { url(&two) } else { url(&one) };
                assert!(numbered.contains(&(0, at)), "a stays, moved or not: {numbered:?}");
                if nth == 0 {
                    let last = numbered.iter().map(|(id, _)| *id).max().expect("a replica");
                    assert!(last > highest, "round {round}: a number twice: {numbered:?}");
                    highest = last;
                }
            }
        }
        for steady in steady {
            steady.stop().await;
        }
        let metrics = proxy.metrics().await;
        assert_eq!(metrics.sum("curtail_requests_failed_total", &[]), 0, "{metrics}");
        proxy.stop(Duration::from_secs(10)).await.expect("it stops");
        let replayed = replayed(&file);
        assert_eq!(replayed.end, End::Complete);
        let journal = std::fs::read_to_string(&file).expect("text");
        let named_a = journal.matches("\"a\"").count();
        assert_eq!(named_a, 1, "an identity is written once, at the join");
        assert_eq!(
            journal.matches("\"replica_joined\"").count(),
            20,
            "c once, b in each later round"
        );
    });
}
