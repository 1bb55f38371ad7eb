//! Routes that redirect.

use crate::body;
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::proxy::Proxy;
use crate::replica::{Replica, Speaks};
use curtail_proxy::Options;
use http::{HeaderValue, Version};
use serde_json::{Value, json};

/// A proxy with these routes, whose clients are trusted proxies, and the replica of `s`.
async fn start(routes: &str, top: &str) -> (Proxy, Replica) {
    let replica = Replica::responding(Speaks::Http1, "served").await;
    let yaml = format!(
        "workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\nlisteners: [{{address: \"127.0.0.1:0\"}}]\n\
         trusted_proxies: [127.0.0.1]\n{top}\nroutes:\n{routes}\n\
         upstreams: {{s: {{replicas: [\"http://{}\"]}}}}\n",
        replica.address()
    );
    (Proxy::start(&yaml, &Options::default()), replica)
}

/// Status and target of the response to a request that a trusted proxy has received with this scheme.
async fn location(client: &mut Client, scheme: &'static str, path: &str) -> String {
    let mut request = client.request_with("POST", path, body::whole("question"));
    request.headers_mut().insert("x-forwarded-proto", HeaderValue::from_static(scheme));
    let response = client.send(request).await;
    let to = response.get("location").or(response.error());
    let to =
        to.map_or_else(|| String::from_utf8(response.body.to_vec()).expect("text"), str::to_owned);
    format!("{} {to}", response.status.as_u16())
}

#[test]
fn requests_are_redirected_unless_they_are_at_the_target() {
    run(async {
        let (proxy, replica) = start(
            "  - {redirect: {scheme: https, status: 308}, upstream: s}\n\
             \x20 - {path_prefix: /old, redirect: {prefix: /new}}\n\
             \x20 - {path_prefix: /www, redirect: {host: www.service.test, status: 301}}\n\
             \x20 - {path_prefix: /secure, redirect: {scheme: https, host: \"www.service.test:8443\", prefix: /, status: 303}}",
            "",
        )
        .await;
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let mut client = Client::connect(proxy.address(), version).await;
            for (scheme, path, expected) in [
                ("http", "/x?q=1", "308 https://service.test/x?q=1"),
                ("https", "/x?q=1", "200 served"),
                ("https, http", "/x", "200 served"),
                ("http", "/old/x/../y?q", "307 http://service.test/new/x/../y?q"),
                ("https", "/old", "307 https://service.test/new"),
                ("https", "/old/../old", "400 ambiguous_path"),
                ("https", "/www/x", "301 https://www.service.test/www/x"),
                ("http", "/secure/x", "303 https://www.service.test:8443/x"),
            ] {
                assert_eq!(location(&mut client, scheme, path).await, expected, "{scheme} {path}");
            }
        }
        assert_eq!(replica.record().count(), 4, "redirected requests reach no replica");
    });
}

#[test]
fn a_redirect_is_a_response_of_the_proxy() {
    run(async {
        let directory = Directory::new();
        let file = directory.path("access.log");
        let (proxy, _replica) = start(
            "  - {redirect: {scheme: https}, response_headers: {set: {x-for: \"{host}\"}}}",
            &format!("access_log: {{file: {}}}", file.display()),
        )
        .await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let response = client.get("/x").await;
        assert_eq!((response.status.as_u16(), response.get("x-for")), (307, Some("service.test")));
        assert_eq!((response.get("content-length"), response.error()), (Some("0"), None));
        // Without an upstream, nobody serves the requests that are at the target.
        assert_eq!(location(&mut client, "https", "/x").await, "404 no_route");
        let metrics = proxy
            .until(|metrics| metrics.sum("curtail_access_log_lines_written_total", &[]) == 2)
            .await;
        assert_eq!(metrics.sum("curtail_requests_redirected_total", &[("listener", "in")]), 1);
        assert_eq!(metrics.sum("curtail_requests_unrouted_total", &[]), 1);
        let text = std::fs::read_to_string(&file).expect("the access log");
        let line: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        for (key, value) in [
            ("status", json!(307)),
            ("route", json!("/")),
            ("path", json!("/x")),
            ("upstream", Value::Null),
            ("error", Value::Null),
            ("attempts", json!([])),
        ] {
            assert_eq!(line[key], value, "{key} of {line}");
        }
    });
}
