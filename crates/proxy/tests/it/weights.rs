//! Weights of replicas: from the file and from discovery, and how they change without a restart.

use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Speaks};
use curtail_testbed::{NameRecord, NameServer};
use http::{StatusCode, Version};

const ROUND_ROBIN: &str = "balance: round_robin\nhedge: false";

/// A proxy with one worker, so that each replica has one connection.
fn setup(replicas: &[(&Replica, &str)], upstream: &str) -> Setup {
    let url =
        |(replica, options): &(&Replica, &str)| format!("http://{}{options}", replica.address());
    Setup::before_urls(replicas.iter().map(url)).workers(1).upstream(upstream)
}

/// How many of `count` requests come to each replica.
async fn counts(client: &mut Client, count: usize, replicas: &[&Replica]) -> Vec<usize> {
    let before: Vec<usize> = replicas.iter().map(|replica| replica.record().count()).collect();
    for _ in 0..count {
        assert_eq!(client.get("/").await.status, StatusCode::OK);
    }
    replicas.iter().zip(before).map(|(replica, before)| replica.record().count() - before).collect()
}

/// The weight of each replica, and the number of the first.
async fn weights(proxy: &Proxy) -> (Vec<f64>, u64) {
    let state = proxy.admin("/state").await;
    let state: serde_json::Value = serde_json::from_slice(&state.body).expect("JSON");
    let replicas = state["upstreams"][0]["replicas"].as_array().expect("a list").clone();
    let weights = replicas.iter().map(|replica| replica["weight"].as_f64().expect("a number"));
    (weights.collect(), replicas[0]["id"].as_u64().expect("a number"))
}

async fn until_weights(proxy: &Proxy, expected: &[f64]) {
    loop {
        let mut found = weights(proxy).await.0;
        found.sort_by(f64::total_cmp);
        if found == expected {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn requests_follow_the_weights_of_the_file_and_a_reload_changes_them() {
    run(async {
        for (version, speaks, protocol) in
            [(Version::HTTP_11, Speaks::Http1, "http1"), (Version::HTTP_2, Speaks::Http2, "http2")]
        {
            let heavy = Replica::responding(speaks.clone(), "heavy").await;
            let light = Replica::responding(speaks, "light").await;
            let keys = format!("{ROUND_ROBIN}\nconnect: {{protocol: {protocol}}}");
            let with = |one: &str, other: &str| setup(&[(&heavy, one), (&light, other)], &keys);
            let proxy = with(" weight=3", "").start();
            let mut client = Client::connect(proxy.address(), version).await;
            assert_eq!(counts(&mut client, 40, &[&heavy, &light]).await, [30, 10]);
            assert_eq!(weights(&proxy).await, (vec![3.0, 1.0], 0));
            let changed = proxy.reload(&with(" weight=0", " weight=0.5")).expect("it is good");
            assert_eq!(changed, ["upstreams.service"]);
            assert_eq!(counts(&mut client, 10, &[&heavy, &light]).await, [0, 10]);
            proxy.reload(&with("", "")).expect("it is good");
            assert_eq!(counts(&mut client, 10, &[&heavy, &light]).await, [5, 5]);
            assert_eq!(weights(&proxy).await, (vec![1.0, 1.0], 0));
            let connections = [&heavy, &light].map(|replica| replica.record().connections());
            assert_eq!(connections, [1, 1], "a change of weights closes no connection");
        }
    });
}

#[test]
fn without_a_replica_that_has_weight_a_request_fails_at_once() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "good").await;
        let other = Replica::responding(Speaks::Http1, "good").await;
        let proxy = setup(&[(&replica, " weight=0"), (&other, " weight=0")], "").start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let response = client.get("/").await;
        let status = StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!((response.status, response.error()), (status, Some("no_replica")));
        let served = [&replica, &other].map(|replica| replica.record().count());
        assert_eq!(served, [0, 0]);
    });
}

#[test]
fn neither_hedges_nor_retries_go_to_a_drained_replica() {
    run(async {
        let broken = Replica::start(Speaks::Http1, |_| async {
            crate::replica::status(StatusCode::SERVICE_UNAVAILABLE)
        })
        .await;
        let drained = Replica::responding(Speaks::Http1, "good").await;
        let keys = "hedge: {delay_max: 1ms}\nretry: {retries_max: 2}";
        let proxy = setup(&[(&broken, ""), (&drained, " weight=0")], keys).start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for _ in 0..5 {
            assert_eq!(client.get("/").await.status, StatusCode::SERVICE_UNAVAILABLE);
        }
        assert_eq!(drained.record().count(), 0);
        assert!(broken.record().count() >= 5);
    });
}

#[test]
fn weights_of_a_list_of_targets_change_without_new_connections() {
    run(async {
        let one = Replica::responding(Speaks::Http1, "one").await;
        let other = Replica::responding(Speaks::Http1, "other").await;
        let list = |weights: [&str; 2]| {
            let group = |replica: &Replica, weight: &str| {
                let labels = serde_json::json!({ "__weight__": weight, "env": "test" });
                serde_json::json!({ "targets": [replica.address().to_string()], "labels": labels })
            };
            serde_json::json!([group(&one, weights[0]), group(&other, weights[1])]).to_string()
        };
        let directory = Directory::new();
        let path = directory.write("targets.json", &list(["4", "1"]));
        let replace = |text: &str| {
            let new = directory.write("new.json", text);
            std::fs::rename(new, &path).expect("the same folder");
        };
        let discovery = format!("discovery: {{file: {{path: {}}}}}", path.display());
        let setup = setup(&[], &format!("{ROUND_ROBIN}\n{discovery}"));
        let proxy = tokio::task::spawn_blocking(move || setup.start()).await.expect("it starts");
        until_weights(&proxy, &[1.0, 4.0]).await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(counts(&mut client, 20, &[&one, &other]).await, [16, 4]);
        replace(&list(["0", "2.5"]));
        until_weights(&proxy, &[0.0, 2.5]).await;
        assert_eq!(counts(&mut client, 20, &[&one, &other]).await, [0, 20]);
        replace(&list(["1", "1"]));
        until_weights(&proxy, &[1.0, 1.0]).await;
        assert_eq!(counts(&mut client, 20, &[&one, &other]).await, [10, 10]);
        assert_eq!([&one, &other].map(|replica| replica.record().connections()), [1, 1]);
    });
}

#[test]
fn weights_of_srv_records_are_divided_among_the_addresses_of_a_target() {
    run(async {
        let names = NameServer::start().expect("loopback");
        let server = |target: &str, weight| NameRecord::Server {
            priority: 0,
            weight,
            port: 9,
            target: target.to_owned(),
        };
        let address = |text: &str| NameRecord::Address(text.parse().expect("an address"));
        names.set("two.weights.test", 0, &[address("127.0.91.1"), address("127.0.91.2")]);
        names.set("one.weights.test", 0, &[address("127.0.91.3")]);
        let service = "_http._tcp.weights.test";
        let servers = |two, one| [server("two.weights.test", two), server("one.weights.test", one)];
        names.set(service, 0, &servers(0, 0));
        let dns = format!(
            "dns: {{servers: [\"{}\"], refresh_min: 100ms, timeout: 100ms}}",
            names.address()
        );
        let setup = setup(&[], &format!("discovery: {{srv: \"http://{service}\"}}")).top(&dns);
        let proxy = setup.start();
        until_weights(&proxy, &[1.0, 1.0, 1.0]).await;
        names.set(service, 0, &servers(30, 10));
        until_weights(&proxy, &[10.0, 15.0, 15.0]).await;
        // Not drained: RFC 2782 gives such a record a very small chance.
        names.set(service, 0, &servers(0, 65_535));
        until_weights(&proxy, &[0.001, 0.001, 65_535.0]).await;
    });
}
