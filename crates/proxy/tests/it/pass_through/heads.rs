//! Methods, targets and fields, in both directions.

use super::{Chain, PAIRS};
use crate::client::{Client, HOST};
use crate::deadline::run;
use crate::metrics::Metrics;
use crate::proxy::Setup;
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, ok, status};
use crate::wire::Wire;
use http::{HeaderMap, HeaderValue, StatusCode, Version};

const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PURGE"];

#[test]
fn every_method_path_and_query_arrives_unchanged() {
    run(async {
        for pair in PAIRS {
            let mut chain = Chain::start(pair, |_| std::future::ready(ok("here"))).await;
            let path = "/a%2Fb/../c//d;e=1?q=x%20y&q=%C3%A4&empty=&=&?#";
            let sent = path.trim_end_matches('#');
            for method in METHODS {
                let request = chain.client.request(method, sent);
                let response = chain.client.send(request).await;
                assert_eq!(response.status, StatusCode::OK, "{method}");
                let want = if method == "HEAD" { "" } else { "here" };
                assert_eq!(response.body, want, "{method}");
                assert_eq!(response.get("content-length"), Some("4"), "{method}");
            }
            let seen = chain.replica.record().seen();
            let methods: Vec<_> = seen.iter().map(|seen| seen.method.as_str()).collect();
            assert_eq!(methods, METHODS);
            for seen in seen {
                assert_eq!(seen.uri.path_and_query().expect("a path").as_str(), sent);
                assert_eq!(seen.version, pair.1);
                let len = seen.get("content-length");
                assert!(matches!(len, None | Some("0")), "a body appeared: {seen:?}");
            }
        }
    });
}

#[test]
fn the_requested_host_arrives_in_the_form_of_each_version() {
    run(async {
        for pair in PAIRS {
            let mut chain = Chain::start(pair, |_| std::future::ready(ok(""))).await;
            chain.client.get("/").await;
            let seen = chain.replica.record().only();
            if pair.1 == Version::HTTP_2 {
                // RFC 9113, section 8.3.1: a request has :scheme and, when it has a host, :authority.
                let authority = seen.uri.authority().map(|authority| authority.as_str());
                assert_eq!(authority, Some(HOST), "{seen:?}");
                assert_eq!(seen.uri.scheme_str(), Some("http"), "{seen:?}");
                assert_eq!(seen.get("host"), None, "{seen:?}");
            } else {
                assert_eq!(seen.get("host"), Some(HOST), "{seen:?}");
            }
        }
    });
}

#[test]
fn an_absolute_target_goes_before_the_host_field() {
    run(async {
        let replica = RawReplica::responding("here").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET http://asked.test:81/p?q HTTP/1.1\r\nhost: other.test\r\n\r\n").await;
        assert_eq!(wire.response().await.head.status(), 200);
        let seen = &replica.record().requests()[0].head;
        assert_eq!(seen.start, "GET /p?q HTTP/1.1");
        assert_eq!(seen.get("host"), Some("asked.test:81"));
    });
}

#[test]
fn options_of_the_server_as_a_whole() {
    run(async {
        let replica = RawReplica::responding("").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("OPTIONS * HTTP/1.1\r\nhost: service.test\r\n\r\n").await;
        assert_eq!(wire.response().await.head.status(), 200);
        assert_eq!(replica.record().requests()[0].head.start, "OPTIONS * HTTP/1.1");
    });
}

#[test]
fn responses_without_a_body_keep_their_fields_and_get_none() {
    run(async {
        for pair in PAIRS {
            for code in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED] {
                let mut chain = Chain::start(pair, move |_| {
                    let mut response = status(code);
                    let etag = HeaderValue::from_static("\"v1\"");
                    response.headers_mut().insert("etag", etag);
                    std::future::ready(response)
                })
                .await;
                for _ in 0..2 {
                    let response = chain.client.get("/").await;
                    assert_eq!((response.status, response.body.len()), (code, 0));
                    assert_eq!(response.get("etag"), Some("\"v1\""));
                    assert_eq!(response.get("transfer-encoding"), None);
                }
                assert_eq!(chain.replica.record().count(), 2, "a 304 is no failure");
            }
        }
    });
}

#[test]
fn a_response_that_can_have_no_content_has_a_length_only_where_that_means_something() {
    run(async {
        for pair in PAIRS {
            for (method, code, want) in [
                ("GET", 204, None),
                ("HEAD", 204, None),
                ("GET", 304, Some("7")),
                ("HEAD", 200, Some("7")),
            ] {
                // hyper's server removes the length of a 204 over HTTP/1.1, so there the bytes are ours.
                let raw = RawReplica::start(move |mut wire, record, _| async move {
                    while record.read(&mut wire).await.is_some() {
                        wire.send(format!("HTTP/1.1 {code} A\r\ncontent-length: 7\r\n\r\n")).await;
                    }
                })
                .await;
                let over_http2 = Replica::start(Speaks::Http2, move |_| {
                    let mut response = status(StatusCode::from_u16(code).expect("a status"));
                    response.headers_mut().insert("content-length", HeaderValue::from_static("7"));
                    std::future::ready(response)
                })
                .await;
                let setup = match pair.1 {
                    Version::HTTP_2 => Setup::before(&[over_http2.address()])
                        .upstream("connect: {protocol: http2}"),
                    _ => Setup::before(&[raw.address()]),
                };
                let proxy = setup.start();
                let mut client = Client::connect(proxy.address(), pair.0).await;
                let request = client.request(method, "/");
                let response = client.send(request).await;
                let seen = (response.status.as_u16(), response.get("content-length"));
                assert_eq!(seen, (code, want), "{pair:?}: {method}");
            }
        }
    });
}

#[test]
fn every_status_arrives_and_only_those_of_an_unable_server_are_tried_again() {
    run(async {
        let mut chain = Chain::start(PAIRS[0], |request| {
            let code = request.uri().path().trim_start_matches('/').parse().expect("a number");
            std::future::ready(status(StatusCode::from_u16(code).expect("a status")))
        })
        .await;
        for code in [200, 201, 206, 301, 308, 400, 401, 404, 409, 418, 429, 499, 500, 501, 505, 599]
        {
            let before = chain.replica.record().count();
            let response = chain.client.get(&format!("/{code}")).await;
            assert_eq!(response.status.as_u16(), code);
            assert_eq!(chain.replica.record().count(), before + 1, "{code} was tried again");
        }
    });
}

#[test]
fn fields_of_one_connection_stop_here() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            while record.read(&mut wire).await.is_some() {
                wire.send(
                    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nkeep-alive: timeout=9\r\n\
                     connection: keep-alive, x-hop\r\nx-hop: 1\r\nproxy-connection: a\r\n\
                     upgrade: h3\r\nx-end: 1\r\n\r\n",
                )
                .await;
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send(
            "GET / HTTP/1.1\r\nhost: h\r\nconnection: x-mine, host\r\nConnection: Keep-Alive, te\r\n\
             x-mine: 1\r\nkeep-alive: timeout=5\r\nproxy-connection: keep-alive\r\nte: trailers, gzip\r\n\
             upgrade: websocket\r\nx-end: 1\r\n\r\n",
        )
        .await;
        let response = wire.response().await.head;
        let seen = &replica.record().requests()[0].head;
        for head in [&response, seen] {
            assert_eq!(head.get("x-end"), Some("1"), "{head:?}");
            for gone in ["x-hop", "x-mine", "keep-alive", "proxy-connection", "upgrade"] {
                assert_eq!(head.get(gone), None, "{head:?}");
            }
        }
        assert_eq!(seen.get("te"), Some("trailers"));
        assert_eq!(seen.get("host"), Some("h"), "a client named it as a field of its connection");
    });
}

#[test]
fn whitespace_around_a_value_is_no_part_of_it() {
    run(async {
        for pair in PAIRS {
            let mut chain = Chain::start(pair, |_| {
                let mut response = ok("here");
                response.headers_mut().insert("x-padded", HeaderValue::from_static(" \ta b\t "));
                response.headers_mut().insert("x-blank", HeaderValue::from_static(" \t"));
                std::future::ready(response)
            })
            .await;
            let response = chain.client.get("/").await;
            assert_eq!(
                (response.get("x-padded"), response.get("x-blank")),
                (Some("a b"), Some(""))
            );
            assert_eq!(response.body, "here");
        }
    });
}

#[test]
fn the_last_hop_that_max_forwards_allows_responds_itself() {
    run(async {
        for pair in PAIRS {
            let mut chain = Chain::start(pair, |_| std::future::ready(ok("here"))).await;
            let huge = "9".repeat(30);
            let forwarded = [
                ("OPTIONS", "2", "1"),
                ("TRACE", "1", "0"),
                ("OPTIONS", &huge, "18446744073709551614"),
                // Not a number, and a method without this rule.
                ("OPTIONS", "-1", "-1"),
                ("GET", "0", "0"),
            ];
            for (method, sent, _) in forwarded {
                let mut request = chain.client.request(method, "/");
                let value = HeaderValue::from_str(sent).expect("text");
                request.headers_mut().insert("max-forwards", value);
                assert_eq!(chain.client.send(request).await.body, "here", "{method} {sent}");
            }
            for (method, status, error) in
                [("OPTIONS", 200, None), ("TRACE", 501, Some("trace_unsupported"))]
            {
                let mut request = chain.client.request(method, "/");
                request.headers_mut().insert("max-forwards", HeaderValue::from_static("0"));
                let response = chain.client.send(request).await;
                assert_eq!(
                    (response.status.as_u16(), response.error()),
                    (status, error),
                    "{method}"
                );
            }
            let seen = chain.replica.record().seen();
            let seen: Vec<_> = seen.iter().map(|seen| seen.get("max-forwards")).collect();
            assert_eq!(seen, forwarded.map(|(_, _, want)| Some(want)));
            let counted = |metrics: &Metrics| {
                ["2xx", "5xx"]
                    .map(|status| metrics.sum("curtail_requests_total", &[("status", status)]))
            };
            chain.proxy.until(|metrics| counted(metrics) == [forwarded.len() as u64 + 1, 1]).await;
        }
    });
}

#[test]
fn repeated_many_and_odd_fields_arrive_unchanged_in_both_directions() {
    run(async {
        for pair in PAIRS {
            let mut chain = Chain::start(pair, |request| {
                let mut response = ok("");
                for (name, value) in request.headers() {
                    if name.as_str().starts_with("x-") {
                        response.headers_mut().append(name.clone(), value.clone());
                    }
                }
                std::future::ready(response)
            })
            .await;
            let mut fields = HeaderMap::new();
            for nth in 0..80 {
                let name = http::HeaderName::try_from(format!("x-field-{nth}")).expect("a name");
                fields
                    .insert(name, HeaderValue::try_from(format!("{nth}").repeat(9)).expect("text"));
            }
            for value in ["first", "second", "third"] {
                fields.append("x-repeated", HeaderValue::from_static(value));
            }
            fields.insert("x-latin", HeaderValue::from_bytes(b"caf\xe9 \xc3\xa4").expect("opaque"));
            fields.insert("x-empty", HeaderValue::from_static(""));
            fields.insert("x-long", HeaderValue::try_from("l".repeat(8_000)).expect("text"));
            let mut request = chain.client.request("GET", "/");
            request.headers_mut().extend(fields.clone());
            let response = chain.client.send(request).await;
            let seen = chain.replica.record().only();
            for headers in [&response.headers, &seen.headers] {
                for name in fields.keys() {
                    let all = |headers: &HeaderMap| {
                        headers.get_all(name).iter().cloned().collect::<Vec<_>>()
                    };
                    assert_eq!(all(headers), all(&fields), "{name}");
                }
            }
        }
    });
}

#[test]
fn a_long_head_of_a_response_arrives_over_both_versions() {
    run(async {
        for pair in PAIRS {
            let mut chain = Chain::start(pair, |_| {
                let mut response = ok("");
                let cookie = HeaderValue::try_from("c".repeat(10_000)).expect("text");
                for _ in 0..4 {
                    response.headers_mut().append("set-cookie", cookie.clone());
                }
                std::future::ready(response)
            })
            .await;
            let mut request = chain.client.request("GET", "/");
            request.headers_mut().insert("x-request-id", HeaderValue::from_static("long"));
            // The client's own limit is 16 KiB over HTTP/2: what the proxy itself took is in its metrics.
            let response = chain.client.try_send(request).await;
            if pair.0 == Version::HTTP_11 {
                let response = response.expect("a response");
                assert_eq!(response.status(), StatusCode::OK, "{pair:?}");
                assert_eq!(response.headers().get_all("set-cookie").iter().count(), 4);
            }
            assert_eq!(chain.replica.record().executions("long"), 1, "{pair:?}: tried again");
        }
    });
}

#[test]
fn pipelined_requests_are_responded_to_in_their_order() {
    run(async {
        let replica =
            Replica::start(
                Speaks::Http1,
                |request| async move { crate::replica::echo_path(&request) },
            )
            .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        let mut all = String::new();
        for nth in 0..20 {
            all += &format!("GET /{nth} HTTP/1.1\r\nhost: h\r\n\r\n");
            all += &format!("POST /p{nth} HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc");
        }
        wire.send(all).await;
        for nth in 0..20 {
            assert_eq!(wire.response().await.body, format!("/{nth}"));
            assert_eq!(wire.response().await.body, format!("/p{nth}"));
        }
    });
}

#[test]
fn a_client_of_http_1_0_has_responded_in_its_own_version() {
    run(async {
        let replica = RawReplica::responding("here").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.0\r\n\r\n").await;
        let response = wire.response().await;
        assert_eq!((response.head.status(), &*response.body), (200, &b"here"[..]));
        assert!(response.head.start.starts_with("HTTP/1.0"), "{:?}", response.head);
        assert_eq!(wire.read_to_close().await, "", "HTTP/1.0 closes after its response");
        let seen = &replica.record().requests()[0].head;
        assert_eq!(seen.start, "GET / HTTP/1.1");
        // It named no host, and HTTP/1.1 must.
        assert_eq!(seen.get("host"), Some(&*replica.address().to_string()));
    });
}

#[test]
fn a_client_of_http_1_0_that_wants_to_go_on_may() {
    run(async {
        let replica = RawReplica::responding("here").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        for _ in 0..2 {
            wire.send("GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n").await;
            let response = wire.response().await;
            assert_eq!(&*response.body, b"here");
            assert_eq!(response.head.get("connection"), Some("keep-alive"));
        }
    });
}
