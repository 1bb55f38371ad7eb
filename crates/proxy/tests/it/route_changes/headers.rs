//! Headers that a route sets, adds and removes.

use super::{PAIRS, chain};
use crate::body;
use crate::client::{Client, HOST};
use crate::deadline::run;
use crate::directory::Directory;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, ok};
use crate::wire::Wire;
use curtail_proxy::Options;
use http::{HeaderMap, HeaderName, HeaderValue, Response, Version};
use serde_json::{Value, json};

const CHANGES: &str = "request_headers: {set: {Host: \"inner.test:81\", x-client: \"{client}\", x-url: \"{scheme}://{host}\", \
     x-trace: \"id={trace_id};{{}}\"}, add: {x-a: two, cookie: b=2}, remove: [X-Debug]}, \
     response_headers: {set: {server: edge, x-trace: \"{trace_id}\"}, add: {vary: b}, remove: [x-powered-by]}";

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn values<'m>(headers: &'m HeaderMap, name: &str) -> Vec<&'m str> {
    headers.get_all(name).iter().map(|value| value.to_str().expect("text")).collect()
}

fn described() -> Response<body::Body> {
    let mut response = ok("here");
    for (name, value) in [("server", "inner"), ("vary", "a"), ("x-powered-by", "1"), ("x-b", "1")] {
        response.headers_mut().append(name, HeaderValue::from_static(value));
    }
    response
}

#[test]
fn headers_change_over_every_version() {
    run(async {
        for pair in PAIRS {
            let (mut client, _proxy, replica) = chain(pair, CHANGES, |_| described()).await;
            let mut request = client.request("GET", "/x");
            for (name, value) in
                [("x-a", "one"), ("x-debug", "1"), ("cookie", "a=1"), ("traceparent", TRACEPARENT)]
            {
                request.headers_mut().append(name, HeaderValue::from_static(value));
            }
            let response = client.send(request).await;
            let seen = replica.record().only();
            let host = seen.uri.authority().map(|host| host.as_str()).or(seen.get("host"));
            assert_eq!(host, Some("inner.test:81"));
            assert_eq!(seen.headers.contains_key("host"), pair.1 == Version::HTTP_11);
            assert_eq!(seen.get("x-client"), Some("127.0.0.1"));
            assert_eq!(seen.get("x-url"), Some(&*format!("http://{HOST}")));
            assert_eq!(seen.get("x-trace"), Some("id=0af7651916cd43dd8448eb211c80319c;{}"));
            assert_eq!(values(&seen.headers, "x-a"), ["one", "two"]);
            assert_eq!(seen.get("cookie"), Some("a=1; b=2"), "HTTP/1.1 allows one field");
            assert_eq!(seen.get("x-debug"), None);
            assert_eq!(seen.get("x-forwarded-for"), Some("127.0.0.1"));
            assert_eq!(response.get("server"), Some("edge"));
            assert_eq!(response.get("x-trace"), Some("0af7651916cd43dd8448eb211c80319c"));
            assert_eq!(values(&response.headers, "vary"), ["a", "b"]);
            assert_eq!((response.get("x-powered-by"), response.get("x-b")), (None, Some("1")));
            assert_eq!(response.body, "here");
        }
    });
}

#[test]
fn responses_of_the_proxy_itself_change_once_a_route_matches() {
    run(async {
        let route = |prefix: &str, keys: &str| {
            format!(
                "{{path_prefix: {prefix}, response_headers: {{set: {{x-edge: \"1\"}}}}, {keys}}}"
            )
        };
        let routes = [
            route("/a", "upstream: gone"),
            route("/limited", "upstream: gone, limits: {rate: 0.001, burst: 1}"),
            route("/old", "upstream: gone, rewrite_prefix: /new"),
            route("/only", "redirect: {prefix: /only/this}"),
        ];
        let yaml = format!(
            "workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\nlisteners: [{{address: \"127.0.0.1:0\"}}]\n\
             routes: [{}]\nupstreams: {{gone: {{replicas: [\"http://127.0.0.1:1\"]}}}}\n",
            routes.join(", ")
        );
        let proxy = Proxy::start(&yaml, &Options::default());
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/limited").await.error(), Some("not_sent"), "the only token");
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut client = Client::connect(proxy.address(), version).await;
            for (path, error, edge) in [
                ("/a", "not_sent", Some("1")),
                ("/limited", "route_rate_limit", Some("1")),
                ("/old/../old/x", "ambiguous_path", Some("1")),
                ("/only/this", "no_route", Some("1")),
                ("/b", "no_route", None),
            ] {
                let response = client.get(path).await;
                let found = (response.error(), response.get("x-edge"));
                assert_eq!(found, (Some(error), edge), "{path}");
            }
        }
    });
}

#[test]
fn interim_responses_and_trailers_stay_as_they_are() {
    run(async {
        let changes = "response_headers: {set: {link: none, grpc-message: none}}, request_headers: {set: {x-a: v}}";
        let replica = RawReplica::start(|mut wire, record, _| async move {
            while record.read(&mut wire).await.is_some() {
                wire.send("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n").await;
                wire.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab").await;
            }
        })
        .await;
        let setup = Setup::before(&[replica.address()]).upstream("hedge: false");
        let proxy = setup.route(changes).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        let hints = wire.read_head().await.expect("held").expect("hints");
        assert_eq!((hints.status(), hints.all("link")), (103, vec!["</a>"]));
        assert_eq!(wire.response().await.head.get("link"), Some("none"));

        let (mut client, _proxy, _replica) = chain(PAIRS[3], changes, |_| {
            let (sender, body) = body::channel();
            tokio::spawn(async move {
                sender.data("message").await;
                let of = |name: &'static str| HeaderName::from_static(name);
                let value = HeaderValue::from_static;
                let trailers =
                    [(of("grpc-status"), value("3")), (of("grpc-message"), value("bad"))];
                sender.trailers(HeaderMap::from_iter(trailers)).await;
            });
            Response::new(body)
        })
        .await;
        let mut request =
            client.request_with("POST", "/pkg.Service/Method", body::whole("question"));
        request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
        let response = client.send(request).await;
        let trailers = response.trailers.expect("trailers");
        assert_eq!(values(&trailers, "grpc-message"), ["bad"]);
        assert_eq!(values(&trailers, "grpc-status"), ["3"]);
    });
}

#[test]
fn an_upgraded_connection_works_with_changed_headers() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            if record.read(&mut wire).await.is_some() {
                wire.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nserver: inner\r\n\r\n").await;
                while let Ok(byte) = wire.read_exact(1).await {
                    wire.send(byte).await;
                }
            }
        })
        .await;
        let setup =
            Setup::before(&[replica.address()]).route(&format!("{CHANGES}, rewrite_prefix: /ws"));
        let proxy = setup.start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(
            "GET /chat HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        )
        .await;
        let agreed = wire.read_head().await.expect("held").expect("a response");
        assert_eq!((agreed.status(), agreed.get("server")), (101, Some("edge")));
        assert_eq!(agreed.get("upgrade"), Some("websocket"));
        wire.send("to and fro").await;
        assert_eq!(wire.read_exact(10).await.expect("an echo"), "to and fro");
        let head = replica.record().requests()[0].head.clone();
        assert_eq!(head.request(), ("GET", "/ws/chat"));
        assert_eq!(
            (head.get("host"), head.get("upgrade")),
            (Some("inner.test:81"), Some("websocket"))
        );
    });
}

#[test]
fn every_attempt_is_changed_and_the_log_has_what_the_client_asked() {
    run(async {
        let (a, b) =
            (Replica::for_hedges(Speaks::Http2).await, Replica::for_hedges(Speaks::Http2).await);
        let directory = Directory::new();
        let file = directory.path("access.log");
        let proxy = Setup::before(&[a.address(), b.address()])
            .upstream(
                "connect: {protocol: http2}\nbalance: round_robin\nretry: false\n\
                 budget: {ratio: 1.0}\nhedge: {delay_min: 1ms, delay_max: 1ms}",
            )
            .route("path_prefix: /api, rewrite_prefix: /v2, request_headers: {set: {host: inner.test, x-tenant: shop}}")
            .top(&format!(
                "access_log: {{file: {}, headers: [x-tenant]}}\ntenants: {{header: x-tenant}}",
                file.display()
            ))
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/api/x?q=1").await.body, "good");
        for replica in [&a, &b] {
            let seen = replica.record().only();
            assert_eq!(seen.uri.to_string(), "http://inner.test/v2/x?q=1");
            assert_eq!(seen.get("x-tenant"), Some("shop"));
        }
        proxy
            .until(|metrics| metrics.sum("curtail_access_log_lines_written_total", &[]) == 1)
            .await;
        let line = std::fs::read_to_string(&file).expect("the access log");
        let line: Value = serde_json::from_str(&line).expect("one line");
        for (key, value) in [
            ("path", json!("/api/x")),
            ("host", json!(HOST)),
            ("route", json!("/api")),
            // The tenant and the logged headers are those that the replicas get.
            ("tenant", json!("shop")),
            ("headers", json!({"x-tenant": "shop"})),
        ] {
            assert_eq!(line[key], value, "{key} of {line}");
        }
    });
}

#[test]
fn changes_apply_after_a_reload() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "here").await;
        let setup = Setup::before(&[replica.address()]);
        let proxy = setup.start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for (keys, expected) in [
            ("idempotent: false", None),
            ("response_headers: {set: {x-a: one}}", Some("one")),
            ("response_headers: {set: {x-a: two}}", Some("two")),
            ("idempotent: true", None),
        ] {
            proxy.reload(&setup.clone().route(keys)).expect("a good configuration");
            assert_eq!(client.get("/").await.get("x-a"), expected, "{keys}");
        }
    });
}
