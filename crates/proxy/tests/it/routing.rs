//! Routing: a path prefix is a boundary, however the path is written, and the server behind a route never reads a
//! path as one of another route.

use crate::client::Client;
use crate::deadline::run;
use crate::proxy::Proxy;
use crate::raw_replica::RawReplica;
use crate::wire::Wire;
use curtail_proxy::Options;
use http::Version;

/// A replica for each of these routes, which responds with the name of its route.
async fn before(routes: &[(&'static str, &str)]) -> (Vec<RawReplica>, Proxy) {
    let mut replicas = Vec::new();
    let (mut paths, mut upstreams) = (String::new(), String::new());
    for (name, keys) in routes {
        let replica = RawReplica::responding(name).await;
        paths += &format!("  - {{{keys}, upstream: {name}}}\n");
        upstreams += &format!("  {name}: {{replicas: [\"http://{}\"]}}\n", replica.address());
        replicas.push(replica);
    }
    let yaml = format!(
        "workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\nlisteners: [{{address: \"127.0.0.1:0\"}}]\n\
         routes:\n{paths}upstreams:\n{upstreams}"
    );
    (replicas, Proxy::start(&yaml, &Options::default()))
}

/// The route that responded, or the name of the error.
async fn body_from(proxy: &Proxy, host: &str, path: &str) -> String {
    let mut wire = Wire::connect(proxy.address()).await;
    wire.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
    let response = wire.response().await;
    match response.head.get("curtail-error") {
        Some(error) => format!("{} {error}", response.head.status()),
        None => String::from_utf8(response.body.to_vec()).expect("text"),
    }
}

const AMBIGUOUS: &str = "400 ambiguous_path";

/// Paths, and the route of each with the prefixes `/api`, `/files/`, `/caf%C3%A9` and `/`.
const PATHS: &[(&str, &str)] = &[
    ("/api", "api"),
    ("/api/", "api"),
    ("/api/x", "api"),
    ("/api?x", "api"),
    ("/api/?x=/../..", "api"),
    ("/apix", "rest"),
    ("/api.x", "rest"),
    ("/ap", "rest"),
    ("/API", "rest"),
    ("/x/api", "rest"),
    // A prefix with a trailing slash matches only paths below it.
    ("/files/x", "files"),
    ("/files/", "files"),
    ("/files", "rest"),
    ("/filesx", "rest"),
    // Dot segments that stay within their route, and others that leave it.
    ("/api/x/../y", "api"),
    ("/api/./x", "api"),
    ("/api/../api/x", "api"),
    ("/x/../y", "rest"),
    ("/x/../../y", "rest"),
    ("/api/x/..", "api"),
    ("/api/...", "api"),
    ("/api/..x", "api"),
    ("/api/..", AMBIGUOUS),
    ("/api/../x", AMBIGUOUS),
    ("/api/x/../../x", AMBIGUOUS),
    ("/x/../api/x", AMBIGUOUS),
    ("/./api", AMBIGUOUS),
    ("/files/../api", AMBIGUOUS),
    // The same, percent-encoded (RFC 3986, section 6.2.2).
    ("/api/%2e%2e/x", AMBIGUOUS),
    ("/api/%2E./x", AMBIGUOUS),
    ("/x/%2e%2e/api", AMBIGUOUS),
    ("/api/%2e%2e/api/x", "api"),
    ("/%61pi/x", "api"),
    ("/%61p%69x", "rest"),
    ("/caf%c3%a9/x", "cafe"),
    ("/caf%C3%A9", "cafe"),
    ("/caf%C3%A9x", "rest"),
    ("/api/%252e%252e/x", "api"),
    // Encoded separators, which some servers decode.
    ("/api%2fx", AMBIGUOUS),
    ("/api%3b/x", AMBIGUOUS),
    ("/api%00/x", AMBIGUOUS),
    ("/api/..%2fx", AMBIGUOUS),
    ("/api/%2e%2e%2Fx", AMBIGUOUS),
    ("/api/x%2fy", "api"),
    ("/x%2fy", "rest"),
    ("/api%5cx", AMBIGUOUS),
    ("/api\\x", AMBIGUOUS),
    ("/api/..\\x", AMBIGUOUS),
    ("/x/..%5capi", AMBIGUOUS),
    ("//api/x", AMBIGUOUS),
    ("/x//api", "rest"),
    ("/api//x", "api"),
    ("/api//../../x", AMBIGUOUS),
    ("//x", "rest"),
    ("/api/..;/x", AMBIGUOUS),
    ("/api/..;a=b/x", AMBIGUOUS),
    ("/api;a=b/x", AMBIGUOUS),
    ("/api/x;a=b", "api"),
    // These stay within their route for servers that decode all separators or none, and leave it for others.
    ("/api/..%2f..%2fx/..;/..;/api/y", AMBIGUOUS),
    ("/api/..\\..\\x/..%2f..%2fapi/y", AMBIGUOUS),
    ("/api/..%2f..%2f/x/..//..//api/y", AMBIGUOUS),
    // Invalid encodings are literal.
    ("/api/%2", "api"),
    ("/api/%zz/..", "api"),
];

#[test]
fn a_prefix_ends_at_a_segment_in_every_spelling() {
    run(async {
        let (replicas, proxy) = before(&[
            ("api", "path_prefix: /api"),
            ("files", "path_prefix: /files/"),
            ("cafe", "path_prefix: /caf%C3%A9"),
            ("rest", "path_prefix: /"),
        ])
        .await;
        let mut wrong = Vec::new();
        for &(path, want) in PATHS {
            let got = body_from(&proxy, "h", path).await;
            if got != want {
                wrong.push(format!("{path}: wanted {want}, got {got}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // The proxy forwards every path unchanged.
        let seen = replicas.iter().flat_map(|replica| replica.record().requests());
        let seen: Vec<_> = seen.map(|seen| seen.head.request().1.to_owned()).collect();
        for path in ["/api/../api/x", "/api/x/../y", "/%61pi/x", "/api//x", "/x//api", "/api/x%2fy"]
        {
            assert!(seen.iter().any(|seen| seen == path), "{path} is not among {seen:?}");
        }
    });
}

#[test]
fn with_one_route_every_path_is_forwarded_unchanged() {
    run(async {
        let (replicas, proxy) = before(&[("all", "path_prefix: /")]).await;
        let paths = ["/a/../b", "/%2e%2e/", "//", "/..;/x", "/a%2f%5c\\", "/../../x", "/%", "/."];
        for path in paths {
            assert_eq!(body_from(&proxy, "h", path).await, "all", "{path}");
        }
        let seen = replicas[0].record().requests();
        let seen: Vec<_> = seen.iter().map(|seen| seen.head.request().1).collect();
        assert_eq!(seen, paths);
    });
}

#[test]
fn a_path_without_a_route_cannot_be_reached_through_another_route() {
    run(async {
        let (replicas, proxy) = before(&[("api", "path_prefix: /api")]).await;
        for (path, want) in [
            ("/secret", "404 no_route"),
            ("/apix", "404 no_route"),
            ("/api/../secret", AMBIGUOUS),
            ("/secret/../api", AMBIGUOUS),
            ("/api/%2e%2e/secret", AMBIGUOUS),
            ("/api/../.curtail/load", AMBIGUOUS),
        ] {
            assert_eq!(body_from(&proxy, "h", path).await, want, "{path}");
        }
        assert_eq!(replicas[0].record().requests().len(), 0);
    });
}

#[test]
fn paths_of_leaves_match_no_route() {
    run(async {
        let (replicas, proxy) = before(&[("all", "path_prefix: /")]).await;
        for path in
            ["/.curtail/load", "/.curtail/twin-started/1", "/.curtail/x", "/%2ecurtail/load"]
        {
            assert_eq!(body_from(&proxy, "h", path).await, "404 no_route", "{path}");
        }
        for path in
            ["/x/../.curtail/load", "//.curtail/load", "/.curtail%2fload", "/.;/.curtail/load"]
        {
            assert_eq!(body_from(&proxy, "h", path).await, AMBIGUOUS, "{path}");
        }
        assert_eq!(replicas[0].record().requests().len(), 0);
    });
}

#[test]
fn a_host_matches_with_a_port_in_any_case_and_with_a_trailing_dot() {
    run(async {
        let (_replicas, proxy) = before(&[
            ("a", "host: a.test"),
            ("b", "host: a.test, path_prefix: /b"),
            ("six", "host: \"[::1]\""),
            ("rest", "path_prefix: /b"),
        ])
        .await;
        for (host, path, want) in [
            ("a.test", "/", "a"),
            ("A.Test:81", "/", "a"),
            ("a.test.", "/x", "a"),
            ("a.test.:81", "/b/x", "b"),
            ("a.test:", "/bx", "a"),
            ("[::1]:81", "/", "six"),
            ("b.test", "/b", "rest"),
            ("b.test", "/bx", "404 no_route"),
            ("a.test", "/b/../x", AMBIGUOUS),
        ] {
            assert_eq!(body_from(&proxy, host, path).await, want, "{host} {path}");
        }
    });
}

#[test]
fn routes_match_the_same_over_http_2() {
    run(async {
        let (_replicas, proxy) =
            before(&[("api", "path_prefix: /api"), ("rest", "path_prefix: /")]).await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        for (path, want) in [("/api/x", "api"), ("/apix", "rest"), ("/api/../api", "api")] {
            assert_eq!(client.get(path).await.body, want, "{path}");
        }
        for path in ["/api/../x", "/api/%2e%2e/x", "//api", "/api%2fx"] {
            assert_eq!(client.get(path).await.error(), Some("ambiguous_path"), "{path}");
        }
    });
}

#[test]
fn a_route_has_a_timeout_of_its_own() {
    run(async {
        let silent = RawReplica::silent().await;
        let yaml = format!(
            "workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\nlisteners: [{{address: \"127.0.0.1:0\"}}]\n\
             routes: [{{upstream: silent, timeout: 20ms}}]\n\
             upstreams: {{silent: {{replicas: [\"http://{}\"], timeout: 1h}}}}\n",
            silent.address()
        );
        let proxy = Proxy::start(&yaml, &Options::default());
        assert_eq!(body_from(&proxy, "h", "/").await, "504 timed_out");
    });
}
