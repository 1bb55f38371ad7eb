//! Groups: upstreams that share a budget and recent latencies.

use crate::client::Client;
use crate::deadline::run_within;
use crate::proxy::Proxy;
use crate::replica::{Replica, Speaks, ok};
use curtail_proxy::Options;
use http::{StatusCode, Version};
use std::time::Duration;

/// Two shards with two replicas each, and a route to each shard.
async fn shards(keys: &str) -> (Proxy, [Replica; 2]) {
    let server = || {
        Replica::start(Speaks::Http1, |request| async move {
            // The replica responds only to hedges, and identifies them.
            if request.uri().path() == "/b/hangs"
                && !request.headers().contains_key("curtail-class")
            {
                std::future::pending::<()>().await;
            }
            ok("good")
        })
    };
    let servers = [server().await, server().await];
    let [one, other] = servers.each_ref().map(Replica::address);
    let upstream = format!("{{replicas: [\"http://{one}\", \"http://{other}\"], {keys}}}");
    let yaml = format!(
        "workers: 1\n\
         listeners: [{{address: \"127.0.0.1:0\"}}]\n\
         admin: {{address: \"127.0.0.1:0\"}}\n\
         routes: [{{path_prefix: /a, upstream: a}}, {{path_prefix: /b, upstream: b}}]\n\
         upstreams:\n  a: {upstream}\n  b: {upstream}\n"
    );
    (Proxy::start(&yaml, &Options { journal: None, seed: 7, ..Options::default() }), servers)
}

#[test]
fn a_stalled_replica_of_a_quiet_shard_is_hedged_from_the_group_budget() {
    run_within(Duration::from_secs(60), async {
        // The caps are so long that only a known quantile can hedge within the test.
        let keys = "group: data, retry: false, timeout: 50s, hedge: {delay_max: 40s}";
        let (proxy, _servers) = shards(keys).await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        // These give the group enough latencies and enough budget for a hedge.
        loop {
            for _ in 0..50 {
                assert_eq!(client.get("/a").await.status, StatusCode::OK);
            }
            let state = proxy.admin("/state").await;
            let state: serde_json::Value = serde_json::from_slice(&state.body).expect("JSON");
            if state["upstreams"][1]["hedge_delay_ms"].as_f64() < Some(10_000.0) {
                break;
            }
        }
        assert_eq!(client.get("/b/hangs").await.status, StatusCode::OK, "the hedge got a response");
        let metrics = proxy.metrics().await;
        let of_b = [("upstream", "b"), ("reason", "slower_than_quantile")];
        assert_eq!(metrics.sum("curtail_attempts_total", &of_b), 1, "{metrics}");
        let state = proxy.admin("/state").await;
        let state: serde_json::Value = serde_json::from_slice(&state.body).expect("JSON");
        assert_eq!(state["upstreams"][1]["group"], "data", "{state}");
        assert_eq!(state["upstreams"][0]["budget"], state["upstreams"][1]["budget"], "{state}");
    });
}
