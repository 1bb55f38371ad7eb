//! The holdout: one draw for each request, obeyed by every call and by the proxies behind, and measured.

use crate::client::Client;
use crate::deadline::run_within;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Seen, Speaks, abort, ok};
use curtail_proxy::Options;
use http::{StatusCode, Version};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

const REQUESTS: usize = 200;

/// A replica that keeps first attempts waiting for a hedge, unless they are of the holdout.
async fn hanging() -> Replica {
    Replica::start(Speaks::Http1, |request| async move {
        let headers = request.headers();
        let is_holdout =
            headers.get("curtail-holdout").is_some_and(|value| value.as_bytes().starts_with(b"1"));
        if !is_holdout && !headers.contains_key("curtail-class") {
            std::future::pending::<()>().await;
        }
        ok("good")
    })
    .await
}

const HEDGED: &str =
    "retry: false\nbudget: {ratio: 1.0}\nhedge: {delay_min: 1ms, delay_max: 1ms}\n";

async fn get_all(address: SocketAddr, requests: usize) {
    let mut client = Client::connect(address, Version::HTTP_11).await;
    for nth in 0..requests {
        let mut request = client.request("GET", "/");
        let id = nth.to_string().parse().expect("digits");
        request.headers_mut().insert("x-request-id", id);
        let response = client.send(request).await;
        assert_eq!(response.status, StatusCode::OK, "{response:?}");
    }
}

/// The sides of the attempts of request `nth`.
fn sides(seen: &[Seen], nth: usize) -> Vec<&str> {
    let id = nth.to_string();
    let attempts = seen.iter().filter(|seen| seen.get("x-request-id") == Some(&id));
    attempts.map(|seen| seen.get("curtail-holdout").expect("every attempt states it")).collect()
}

#[test]
fn the_holdout_is_not_hedged_and_everything_else_is() {
    run_within(Duration::from_secs(60), async {
        let replicas = [hanging().await, hanging().await];
        let addresses = replicas.each_ref().map(Replica::address);
        let keys = format!("{HEDGED}holdout: 0.5");
        let proxy = Setup::before(&addresses).upstream(&keys).start();
        get_all(proxy.address(), REQUESTS).await;
        let seen: Vec<Seen> = replicas.iter().flat_map(|replica| replica.record().seen()).collect();
        let held = (0..REQUESTS).filter(|nth| match sides(&seen, *nth).as_slice() {
            ["1"] => true,
            ["0", "0"] => false,
            other => panic!("request {nth} has the attempts {other:?}"),
        });
        let held = held.count();
        assert!((REQUESTS / 4..REQUESTS * 3 / 4).contains(&held), "{held} of {REQUESTS}");
        let metrics = proxy.metrics().await;
        let measured = |side| metrics.sum("curtail_holdout_requests_total", &[("side", side)]);
        assert_eq!(measured("holdout"), held as u64);
        assert_eq!(measured("remedy"), (REQUESTS - held) as u64);
        assert_eq!(metrics.attempts("slower_than_cap"), (REQUESTS - held) as u64);
        let state = proxy.admin("/state").await;
        let state: serde_json::Value = serde_json::from_slice(&state.body).expect("JSON");
        assert_eq!(state["upstreams"][0]["holdout"]["ratio"], 0.5, "{state}");
    });
}

#[test]
fn a_proxy_behind_obeys_and_measures_only_for_a_trusted_proxy() {
    run_within(Duration::from_secs(60), async {
        let replicas = [hanging().await, hanging().await];
        let addresses = replicas.each_ref().map(Replica::address);
        for (trusted, measured, expected) in [
            ("", 0, ["0;chosen 0;chosen", "1;chosen"]),
            ("trusted_proxies: [127.0.0.1]", REQUESTS, ["0 0", "1"]),
        ] {
            let keys = format!("{HEDGED}holdout: 0.5");
            let behind = Setup::before(&addresses).upstream(&keys).top(trusted).start();
            let keys = "retry: false\nhedge: {delay_min: 10s, delay_max: 10s}\nholdout: 0.5";
            let front = Setup::before(&[behind.address()]).upstream(keys).start();
            let before = replicas.each_ref().map(|replica| replica.record().count());
            get_all(front.address(), REQUESTS).await;
            let seen: Vec<Seen> = std::iter::zip(&replicas, before)
                .flat_map(|(replica, before)| replica.record().seen().split_off(before))
                .collect();
            let mut all = BTreeSet::new();
            for nth in 0..REQUESTS {
                all.insert(sides(&seen, nth).join(" "));
            }
            assert_eq!(all, expected.map(str::to_owned).into());
            let requests = |metrics: &crate::metrics::Metrics| {
                metrics.sum("curtail_holdout_requests_total", &[])
            };
            assert_eq!(requests(&behind.metrics().await), measured as u64);
            assert_eq!(requests(&front.metrics().await), REQUESTS as u64);
        }
    });
}

#[test]
fn failures_of_the_holdout_are_retried_and_writes_are_not_drawn() {
    run_within(Duration::from_secs(60), async {
        let broken = Replica::start(Speaks::Http1, |_| std::future::ready(abort())).await;
        let good = Replica::responding(Speaks::Http1, "good").await;
        let keys = "balance: round_robin\nbudget: {ratio: 1.0, reserve: 1000}\nholdout: 0.5";
        let setup = Setup::before(&[broken.address(), good.address()]).upstream(keys);
        let proxy = setup.start();
        let held = |seen: &Seen| seen.get("curtail-holdout") == Some("1");
        // Until an attempt of the holdout has failed; the broken replica is ejected for some time.
        while broken.record().matching(held) == 0 {
            get_all(proxy.address(), 1).await;
        }
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        while good.record().matching(|seen| seen.method == "POST") == 0 {
            let request = client.request("POST", "/");
            client.send(request).await;
        }
        let drawn = |seen: &Seen| seen.method == "POST" && seen.get("curtail-holdout").is_some();
        assert_eq!(good.record().matching(drawn), 0);
    });
}

#[test]
fn a_dry_run_counts_a_hedge_and_sends_none() {
    run_within(Duration::from_secs(60), async {
        // The first request, at one replica, has a response at once; the second one, at the other, waits.
        let gate = Arc::new(Semaphore::new(1));
        let gated = || {
            let gate = Arc::clone(&gate);
            Replica::start(Speaks::Http1, move |_| {
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await.expect("never closed").forget();
                    ok("good")
                }
            })
        };
        let replicas = [gated().await, gated().await];
        let addresses = replicas.each_ref().map(Replica::address);
        let keys = format!("{HEDGED}remedy: dry_run\nbalance: round_robin");
        let proxy = Setup::before(&addresses).upstream(&keys).start();
        let began = Instant::now();
        get_all(proxy.address(), 1).await;
        let first = began.elapsed();
        let address = proxy.address();
        let late = tokio::spawn(async move { get_all(address, 1).await });
        let dry_run = [("reason", "dry_run")];
        while proxy.metrics().await.sum("curtail_remedies_skipped_total", &dry_run) == 0 {}
        // The hedge would respond after the time of the first request, at most.
        let due = Instant::now();
        while due.elapsed() <= first {
            proxy.metrics().await;
        }
        gate.add_permits(1);
        late.await.expect("a response");
        let sent = replicas.each_ref().map(|replica| replica.record().count());
        assert_eq!(sent, [1, 1], "no hedge was sent");
        assert_eq!(proxy.metrics().await.sum("curtail_dry_run_hedges_won_total", &[]), 1);
        let state = proxy.admin("/state").await;
        let state: serde_json::Value = serde_json::from_slice(&state.body).expect("JSON");
        let dry_run = &state["upstreams"][0]["dry_run"];
        assert_eq!((&dry_run["hedges"], &dry_run["hedges_won"]), (&1.into(), &1.into()));
    });
}

#[test]
fn auto_begins_with_a_dry_run_and_a_reload_overrides_it() {
    run_within(Duration::from_secs(60), async {
        let replicas = [(); 2].map(|()| Replica::responding(Speaks::Http1, "good"));
        let [a, b] = replicas;
        let (a, b) = (a.await, b.await);
        let addresses = [a.address(), b.address()];
        let setup = |mode: &str| Setup::before(&addresses).upstream(&format!("remedy: {mode}"));
        let proxy = setup("auto").start();
        get_all(proxy.address(), 10).await;
        let metrics = proxy.metrics().await;
        let state = |state| metrics.sum("curtail_remedy_state", &[("state", state)]);
        assert_eq!(["dry_run", "trial", "on", "off"].map(state), [1, 0, 0, 0]);
        assert_eq!(metrics.sum("curtail_holdout_requests_total", &[]), 0, "nothing is drawn");
        let remedy = async || {
            let state = proxy.admin("/state").await;
            let state: serde_json::Value = serde_json::from_slice(&state.body).expect("JSON");
            let upstream = &state["upstreams"][0];
            (upstream["remedy"].clone(), upstream["hedge_delay_ms"].clone())
        };
        let (json, delay) = remedy().await;
        assert_eq!((&json["mode"], &json["state"]), (&"auto".into(), &"dry_run".into()));
        assert!(delay.is_number(), "a dry run has a hedge delay: {delay}");
        let changed = proxy.reload(&setup("off")).expect("it is good");
        assert_eq!(changed, ["upstreams.service"]);
        let (json, delay) = remedy().await;
        assert_eq!((json, delay), (serde_json::json!({"mode": "off"}), serde_json::Value::Null));
    });
}

#[test]
fn all_calls_of_a_request_that_fans_out_are_on_one_side() {
    run_within(Duration::from_secs(60), async {
        let replicas = [hanging().await, hanging().await];
        let [a, b] = replicas.each_ref().map(Replica::address);
        let upstream = format!(
            "{{replicas: [\"http://{a}\", \"http://{b}\"], holdout: 0.5, retry: false, \
             budget: {{ratio: 1.0}}, hedge: {{delay_min: 1ms, delay_max: 1ms}}}}"
        );
        let yaml = format!(
            "workers: 1\n\
             listeners: [{{address: \"127.0.0.1:0\"}}]\n\
             admin: {{address: \"127.0.0.1:0\"}}\n\
             routes: [{{upstream: shard-*, fan_out: {{}}}}]\n\
             upstreams:\n  shard-a: {upstream}\n  shard-b: {upstream}\n"
        );
        let proxy = Proxy::start(&yaml, &Options { journal: None, seed: 7, ..Options::default() });
        get_all(proxy.address(), REQUESTS).await;
        let seen: Vec<Seen> = replicas.iter().flat_map(|replica| replica.record().seen()).collect();
        let mut all = BTreeSet::new();
        for nth in 0..REQUESTS {
            all.insert(sides(&seen, nth).join(" "));
        }
        assert_eq!(all, BTreeSet::from(["0 0 0 0".to_owned(), "1 1".to_owned()]));
        let state = proxy.admin("/state").await;
        let state: serde_json::Value = serde_json::from_slice(&state.body).expect("JSON");
        assert_eq!(state["fan_outs"][0]["holdout"]["remedy"], "hedging", "{state}");
    });
}
