//! Percentiles by tenant: `/tenants`, and the decades in `/metrics`.

use crate::client::Client;
use crate::deadline::run_within;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Speaks, ok, status};
use curtail_proxy::Options;
use http::{HeaderValue, StatusCode, Version};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A replica that fails requests for `/fails`.
async fn replica() -> Replica {
    Replica::start(Speaks::Http1, |request| async move {
        match request.uri().path() {
            "/fails" => status(StatusCode::INTERNAL_SERVER_ERROR),
            _ => ok("good"),
        }
    })
    .await
}

/// Sends requests of a tenant on a new connection; an empty name stands for none.
async fn send(address: SocketAddr, (tenant, path): (&str, &str), requests: usize) {
    let mut client = Client::connect(address, Version::HTTP_11).await;
    for _ in 0..requests {
        let mut request = client.request("GET", path);
        if !tenant.is_empty() {
            let tenant = HeaderValue::from_bytes(tenant.as_bytes()).expect("a value");
            request.headers_mut().insert("X-Tenant", tenant);
        }
        client.send(request).await;
    }
}

async fn tenants_page(proxy: &Proxy) -> Value {
    let page = proxy.admin("/tenants").await;
    assert_eq!(
        (page.head.status(), page.head.get("content-type")),
        (200, Some("application/json"))
    );
    serde_json::from_slice(&page.body).expect("JSON")
}

/// The name and the number of requests of each tenant.
fn sizes(page: &Value) -> Vec<(&str, u64)> {
    let rows = page["tenants"].as_array().expect("a list").iter();
    rows.map(|row| {
        (row["tenant"].as_str().expect("text"), row["requests"].as_u64().expect("a number"))
    })
    .collect()
}

/// A sample of the text format: its name, labels and value. Anything else fails.
fn sample(line: &str) -> (&str, BTreeMap<&str, &str>, f64) {
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let value = value.parse().unwrap_or_else(|_| panic!("{line:?} has no number"));
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line:?}");
    let labels = labels.strip_suffix('}').expect("the labels end");
    let label = |label| {
        let (key, value): (&str, &str) = str::split_once(label, "=\"").expect("a quoted value");
        (key, value.strip_suffix('"').expect("the quote ends"))
    };
    (name, labels.split(',').filter(|label| !label.is_empty()).map(label).collect(), value)
}

#[test]
fn tenants_and_decades_have_percentiles_over_all_workers() {
    run_within(Duration::from_secs(60), async {
        let replica = replica().await;
        let setup = Setup::before(&[replica.address()]).upstream("retry: false");
        let proxy = setup.clone().top("tenants: {header: X-Tenant}").start();
        for _ in 0..4 {
            send(proxy.address(), ("acme", "/"), 5).await;
        }
        send(proxy.address(), ("zoë \"1\"", "/"), 2).await;
        send(proxy.address(), ("zoë \"1\"", "/fails"), 1).await;
        send(proxy.address(), ("", "/"), 2).await;

        let page = tenants_page(&proxy).await;
        assert_eq!(
            (&page["schema"], &page["header"]),
            (&json!("curtail.tenants/1"), &json!("x-tenant"))
        );
        assert_eq!(sizes(&page), [("acme", 20), ("zoë \"1\"", 3)]);
        assert_eq!(page["unnamed_requests"], 2);
        assert_eq!(
            (&page["tenants"][0]["errors"], &page["tenants"][1]["errors"]),
            (&json!(0), &json!(1))
        );
        let ms = ["p50_ms", "p99_ms", "p999_ms"].map(|key| page["tenants"][0][key].as_f64());
        assert!(ms[0] > Some(0.0) && ms.is_sorted(), "{page}");

        let metrics = proxy.metrics().await.to_string();
        let lines = metrics.lines().filter(|line| line.starts_with("curtail_tenant"));
        let samples: Vec<_> = lines.map(sample).collect();
        let value = |wanted: &str, decade: &str| {
            let is_wanted = |(name, labels, _): &&(&str, BTreeMap<&str, &str>, f64)| {
                *name == wanted && labels.get("decade") == Some(&decade)
            };
            samples.iter().filter(is_wanted).map(|(_, _, value)| *value).collect::<Vec<_>>()
        };
        assert_eq!(
            (value("curtail_tenants", "1"), value("curtail_tenants", "10")),
            (vec![1.0], vec![1.0])
        );
        assert_eq!(value("curtail_tenant_requests", "1"), [3.0]);
        assert_eq!(value("curtail_tenant_requests", "10"), [20.0]);
        assert_eq!(value("curtail_tenant_errors", "1"), [1.0]);
        let latencies = value("curtail_tenant_latency_seconds", "10");
        assert!(
            latencies.len() == 3 && latencies.is_sorted() && latencies[0] > 0.0,
            "{latencies:?}"
        );
        assert_eq!(samples.len(), 2 * 6, "two decades, and nothing for each tenant: {samples:?}");

        // A reload keeps the requests, unless it changes the key.
        let same = setup.clone().top("tenants: {header: x-tenant}\ntrusted_proxies: [10.0.0.1]");
        assert_eq!(proxy.reload(&same).expect("it is good"), ["trusted_proxies"]);
        assert_eq!(sizes(&tenants_page(&proxy).await).len(), 2);
        let other = setup.clone().top("tenants: {header: x-tenant, max: 5}");
        assert_eq!(proxy.reload(&other).expect("it is good"), ["trusted_proxies", "tenants"]);
        assert_eq!(sizes(&tenants_page(&proxy).await), []);
        send(proxy.address(), ("acme", "/"), 1).await;
        assert_eq!(sizes(&tenants_page(&proxy).await), [("acme", 1)]);
        proxy.reload(&setup).expect("it is good");
        let page = proxy.admin("/tenants").await;
        assert_eq!(
            (page.head.status(), &*page.body),
            (404, &b"the key tenants is not configured\n"[..])
        );
        assert!(!proxy.metrics().await.to_string().contains("curtail_tenant"));
    });
}

#[test]
fn a_request_counts_once_however_many_calls_and_attempts_it_has() {
    run_within(Duration::from_secs(60), async {
        let server = replica().await;
        let options = Options { journal: None, seed: 7, ..Options::default() };
        let top = "workers: 1\nadmin: {address: \"127.0.0.1:0\"}\ntenants: {header: x-tenant}\n";
        let leaf = format!("{{address: \"127.0.0.1:0\", server: \"http://{}\"}}", server.address());
        let leaf = Proxy::start(&format!("{top}leaves: [{leaf}]\n"), &options);
        let upstream = format!("{{replicas: [\"http://{}\"]}}", leaf.listener("leaf"));
        let root = Proxy::start(
            &format!(
                "{top}listeners: [{{address: \"127.0.0.1:0\"}}]\n\
                 routes: [{{upstream: shard-*, fan_out: {{}}}}]\n\
                 upstreams:\n  shard-a: {upstream}\n  shard-b: {upstream}\n"
            ),
            &options,
        );
        send(root.address(), ("acme", "/"), 3).await;
        assert_eq!(server.record().count(), 6, "each request has two calls");
        assert_eq!(sizes(&tenants_page(&root).await), [("acme", 3)]);
        assert_eq!(sizes(&tenants_page(&leaf).await), []);
    });
}
