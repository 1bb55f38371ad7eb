//! Zones: first attempts stay in the zone of the proxy while its replicas carry them.

use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::metrics::Metrics;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Speaks, ok, status};
use http::{StatusCode, Version};
use std::sync::Arc;
use tokio::sync::Notify;

fn setup(replicas: &[(&Replica, &str)], zone: &str, upstream: &str) -> Setup {
    let url = |(replica, zone): &(&Replica, &str)| match *zone {
        "" => format!("http://{}", replica.address()),
        zone => format!("http://{} zone={zone}", replica.address()),
    };
    let setup = Setup::before_urls(replicas.iter().map(url)).upstream(upstream);
    if zone.is_empty() { setup } else { setup.top(&format!("zone: {zone}")) }
}

/// Attempts in the same zone and in others.
fn zones(metrics: &Metrics) -> [u64; 2] {
    ["same", "other"].map(|zone| metrics.sum("curtail_attempt_zones_total", &[("zone", zone)]))
}

async fn send(proxy: &Proxy, version: Version, count: usize) {
    let mut client = Client::connect(proxy.address(), version).await;
    for _ in 0..count {
        assert_eq!(client.get("/").await.status, StatusCode::OK);
    }
}

#[test]
fn requests_stay_in_the_zone_of_the_proxy_and_a_reload_changes_it() {
    run(async {
        for (version, speaks, protocol) in
            [(Version::HTTP_11, Speaks::Http1, "http1"), (Version::HTTP_2, Speaks::Http2, "http2")]
        {
            let near = Replica::responding(speaks.clone(), "near").await;
            let far = Replica::responding(speaks, "far").await;
            let keys = format!("hedge: false\nconnect: {{protocol: {protocol}}}");
            let in_zone = |zone: &str| setup(&[(&near, "a"), (&far, "b")], zone, &keys);
            let counts = || [&near, &far].map(|replica| replica.record().count());
            let proxy = in_zone("a").start();
            send(&proxy, version, 20).await;
            assert_eq!(counts(), [20, 0]);
            assert_eq!(zones(&proxy.metrics().await), [20, 0]);
            let changed = proxy.reload(&in_zone("b")).expect("it is good");
            assert_eq!(changed, ["zone", "upstreams.service"]);
            send(&proxy, version, 20).await;
            assert_eq!(counts(), [20, 20]);
            let state = proxy.admin("/state").await;
            let state: serde_json::Value = serde_json::from_slice(&state.body).expect("JSON");
            assert_eq!(state["zone"], "b");
            let replicas = &state["upstreams"][0]["replicas"];
            assert_eq!(replicas[0]["zones"], serde_json::json!(["a"]));
            assert_eq!([&replicas[0]["zone"], &replicas[1]["zone"]], ["other", "same"]);
            // A zone that no replica has.
            proxy.reload(&in_zone("c")).expect("it is good");
            send(&proxy, version, 40).await;
            assert!(counts().iter().all(|count| *count > 20), "{:?}", counts());
        }
    });
}

#[test]
fn zones_do_not_count_unless_both_are_known() {
    run(async {
        let one = Replica::responding(Speaks::Http1, "one").await;
        let other = Replica::responding(Speaks::Http1, "other").await;
        let keys = "hedge: false\nbalance: round_robin";
        for (zone, zones) in [("", ["a", "b"]), ("a", ["", ""]), ("a", ["a", ""])] {
            let setup = setup(&[(&one, zones[0]), (&other, zones[1])], zone, keys).workers(1);
            let proxy = setup.start();
            let before = one.record().count();
            send(&proxy, Version::HTTP_11, 20).await;
            assert_eq!(one.record().count() - before, 10, "{zone:?}, {zones:?}");
            let has_metric =
                proxy.metrics().await.to_string().contains("curtail_attempt_zones_total{");
            assert_eq!(has_metric, zones == ["a", ""], "{zone:?}, {zones:?}");
        }
    });
}

#[test]
fn load_spills_over_to_another_zone() {
    run(async {
        let open = Arc::new(Notify::new());
        let waiting = Arc::clone(&open);
        let near = Replica::start(Speaks::Http1, move |_| {
            let waiting = Arc::clone(&waiting);
            async move {
                waiting.notified().await;
                ok("near")
            }
        })
        .await;
        let far = Replica::responding(Speaks::Http1, "far").await;
        let proxy = setup(&[(&near, "a"), (&far, "b")], "a", "hedge: false\nretry: false").start();
        let mut held = Vec::new();
        for nth in 1..=2 {
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            held.push(tokio::spawn(async move { client.get("/").await }));
            near.record().until(|record| record.count() == nth).await;
        }
        // Two attempts wait at the near replica, and none at the far one.
        send(&proxy, Version::HTTP_11, 10).await;
        assert_eq!((near.record().count(), far.record().count()), (2, 10));
        open.notify_one();
        open.notify_one();
        for request in held {
            assert_eq!(request.await.expect("it ends").status, StatusCode::OK);
        }
        assert_eq!(zones(&proxy.metrics().await), [2, 10]);
    });
}

#[test]
fn a_retry_leaves_a_zone_that_fails() {
    run(async {
        let broken =
            || Replica::start(Speaks::Http1, |_| async { status(StatusCode::SERVICE_UNAVAILABLE) });
        let (one, other) = (broken().await, broken().await);
        let far = Replica::responding(Speaks::Http1, "far").await;
        let keys = "hedge: false\nretry: {retries_max: 2}\nbudget: {ratio: 1, reserve: 1000}";
        let proxy = setup(&[(&one, "a"), (&other, "a"), (&far, "b")], "a", keys).start();
        send(&proxy, Version::HTTP_11, 10).await;
        assert_eq!(far.record().count(), 10);
    });
}

#[test]
fn zones_of_a_list_of_targets_count() {
    run(async {
        let near = Replica::responding(Speaks::Http1, "near").await;
        let far = Replica::responding(Speaks::Http1, "far").await;
        let group = |replica: &Replica, zone: &str| {
            let labels = serde_json::json!({ "__zone__": zone });
            serde_json::json!({ "targets": [replica.address().to_string()], "labels": labels })
        };
        let list = serde_json::json!([group(&near, "a"), group(&far, "b")]).to_string();
        let directory = Directory::new();
        let path = directory.write("targets.json", &list);
        let keys = format!("hedge: false\ndiscovery: {{file: {{path: {}}}}}", path.display());
        let setup = setup(&[], "a", &keys);
        let proxy = tokio::task::spawn_blocking(move || setup.start()).await.expect("it starts");
        send(&proxy, Version::HTTP_2, 20).await;
        assert_eq!((near.record().count(), far.record().count()), (20, 0));
    });
}
