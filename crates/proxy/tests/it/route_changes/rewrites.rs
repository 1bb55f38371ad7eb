//! Path prefixes that a route replaces.

use super::{PAIRS, chain};
use crate::client::Client;
use crate::deadline::run;
use crate::proxy::Proxy;
use crate::replica::{Replica, Speaks, echo_path};
use crate::wire::Wire;
use curtail_proxy::Options;
use http::Version;

#[test]
fn the_prefix_changes_and_the_query_stays_over_every_version() {
    run(async {
        for pair in PAIRS {
            let (mut client, _proxy, replica) =
                chain(pair, "path_prefix: /api, rewrite_prefix: /v2/", |request| {
                    echo_path(&request)
                })
                .await;
            assert_eq!(client.get("/api/x?a=/api&b").await.body, "/v2/x");
            assert_eq!(client.get("/api?a").await.body, "/v2");
            let seen = replica.record().seen();
            let targets: Vec<_> =
                seen.iter().filter_map(|seen| seen.uri.path_and_query()).collect();
            assert_eq!(targets, ["/v2/x?a=/api&b", "/v2?a"]);
        }
    });
}

#[test]
fn no_path_leads_out_of_the_new_prefix_or_to_a_leaf() {
    run(async {
        let replica =
            Replica::start(Speaks::Http1, |request| std::future::ready(echo_path(&request))).await;
        let yaml = format!(
            "workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\nlisteners: [{{address: \"127.0.0.1:0\"}}]\n\
             routes:\n  - {{path_prefix: /api, rewrite_prefix: /v2, upstream: s}}\n  - {{path_prefix: /bare, rewrite_prefix: /, upstream: s}}\n\
             upstreams: {{s: {{replicas: [\"http://{}\"]}}}}\n",
            replica.address()
        );
        let proxy = Proxy::start(&yaml, &Options::default());
        let mut wire = Wire::connect(proxy.address()).await;
        for (path, expected) in [
            ("/api/x/../y", "/v2/x/../y"),
            ("/%61pi/x", "/v2/x"),
            ("/bare", "/"),
            ("/bare/", "/"),
            ("/bare//x", "//x"),
            ("/api/../api/x", "400 ambiguous_path"),
            ("/api/%2e%2e/api/x", "400 ambiguous_path"),
            ("/api;v=1/x", "400 ambiguous_path"),
            ("/bare/.curtail/load", "404 no_route"),
            ("/bare/%2ecurtail/twin-started/1", "404 no_route"),
            ("/bare//.curtail/load", "404 no_route"),
        ] {
            wire.send(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n")).await;
            let response = wire.response().await;
            let got = match response.head.get("curtail-error") {
                Some(error) => format!("{} {error}", response.head.status()),
                None => String::from_utf8(response.body.to_vec()).expect("text"),
            };
            assert_eq!(got, expected, "{path}");
        }
        wire.send("OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(wire.response().await.head.get("curtail-error"), Some("no_route"));
        let long = format!("GET /bare/{} HTTP/1.1\r\nhost: h\r\n\r\n", "x".repeat(60_000));
        wire.send(long).await;
        assert_eq!(wire.response().await.body.len(), 60_001);
    });
}

#[test]
fn a_target_that_becomes_too_long_is_rejected() {
    run(async {
        let route = format!("rewrite_prefix: /{}", "x".repeat(100));
        let (_client, proxy, replica) =
            chain(PAIRS[1], &route, |request| echo_path(&request)).await;
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(format!("GET /{} HTTP/1.1\r\nhost: h\r\n\r\n", "y".repeat(65_450))).await;
        let response = wire.response().await;
        assert_eq!(response.head.status(), 414);
        assert_eq!(response.head.get("curtail-error"), Some("target_too_long"));
        assert_eq!(replica.record().count(), 0);
    });
}

#[test]
fn every_call_of_a_fan_out_is_changed() {
    run(async {
        let start =
            || Replica::start(Speaks::Http1, |request| std::future::ready(echo_path(&request)));
        let (a, b) = (start().await, start().await);
        let yaml = format!(
            "workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\nlisteners: [{{address: \"127.0.0.1:0\"}}]\n\
             routes: [{{path_prefix: /all, rewrite_prefix: /part, upstream: \"shard-*\", fan_out: {{}}, \
             request_headers: {{set: {{host: inner.test}}}}, response_headers: {{remove: [content-type], set: {{x-a: v}}}}}}]\n\
             upstreams: {{shard-a: {{replicas: [\"http://{}\"]}}, shard-b: {{replicas: [\"http://{}\"]}}}}\n",
            a.address(),
            b.address()
        );
        let proxy = Proxy::start(&yaml, &Options::default());
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        let response = client.get("/all/x").await;
        assert_eq!((&*response.body, response.get("x-a")), (&b"/part/x/part/x"[..], Some("v")));
        for shard in [a, b] {
            assert_eq!(shard.record().only().get("host"), Some("inner.test"));
        }
    });
}
