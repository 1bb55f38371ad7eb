//! Forwarded headers: the server gets those of the proxy and of trusted proxies in front of it, and never those of
//! a client.

use super::PAIRS;
use crate::client::Client;
use crate::deadline::run;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, ok};
use crate::wire::{Head, Wire};
use http::{HeaderName, HeaderValue, Version};

/// Headers that a client may forge.
const CLAIMS: &[(&str, &str)] = &[
    ("x-forwarded-for", "10.0.0.1"),
    ("x-forwarded-for", "10.0.0.2, 10.0.0.3"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-host", "inner.test"),
    ("x-forwarded-port", "443"),
    ("forwarded", "for=10.0.0.1;proto=https"),
    ("x-real-ip", "10.0.0.1"),
    // Servers that map headers to variables (CGI, WSGI) read these as the ones above.
    ("x_forwarded_for", "10.0.0.1"),
    ("X_Forwarded-Proto", "https"),
];

/// Sends a request with these headers and returns the head that the replica got.
async fn seen(replica: &RawReplica, proxy: &Proxy, fields: &[(&str, &str)]) -> Head {
    let mut wire = Wire::connect(proxy.address()).await;
    let fields: String =
        fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    wire.send(format!("GET / HTTP/1.1\r\nhost: h\r\n{fields}x-end: 1\r\n\r\n")).await;
    assert_eq!(wire.response().await.head.status(), 200);
    replica.record().requests().pop().expect("a request").head
}

/// The headers that name the client of a forwarded request.
fn forwarded(head: &Head) -> Vec<(&str, &str)> {
    let names_client = |name: &str| name.contains("forwarded") || name == "x-real-ip";
    let headers = head.fields.iter().filter(|(name, _)| names_client(&name.to_ascii_lowercase()));
    let mut headers: Vec<_> =
        headers.map(|(name, value)| (name.as_str(), value.as_str())).collect();
    headers.sort_unstable();
    headers
}

#[test]
fn forwarded_headers_of_a_client_are_replaced() {
    run(async {
        let replica = RawReplica::responding("").await;
        let other = "trusted_proxies: [10.0.0.0/8, \"::1\", 127.0.0.2]";
        for top in ["", "trusted_proxies: []", other] {
            let proxy = Setup::before(&[replica.address()]).top(top).start();
            for claims in [&[][..], CLAIMS] {
                let head = seen(&replica, &proxy, claims).await;
                let want = [("x-forwarded-for", "127.0.0.1"), ("x-forwarded-proto", "http")];
                assert_eq!(forwarded(&head), want, "{top:?} {claims:?}");
                assert_eq!(head.get("x-end"), Some("1"));
            }
        }
    });
}

#[test]
fn forwarded_headers_are_replaced_over_every_version() {
    run(async {
        for (before, behind) in PAIRS {
            let speaks = if behind == Version::HTTP_2 { Speaks::Http2 } else { Speaks::Http1 };
            let protocol = if behind == Version::HTTP_2 { "http2" } else { "http1" };
            let replica = Replica::start(speaks, |_| std::future::ready(ok(""))).await;
            let proxy = Setup::before(&[replica.address()])
                .upstream(&format!("connect: {{protocol: {protocol}}}"))
                .start();
            let mut client = Client::connect(proxy.address(), before).await;
            let mut request = client.request("GET", "/");
            for (name, value) in CLAIMS {
                let name = HeaderName::try_from(name.to_ascii_lowercase()).expect("a name");
                request.headers_mut().append(name, HeaderValue::from_static(value));
            }
            client.send(request).await;
            let seen = replica.record().only();
            let mut names: Vec<_> = seen.headers.keys().map(HeaderName::as_str).collect();
            names.retain(|name| name.contains("forwarded") || *name == "x-real-ip");
            names.sort_unstable();
            assert_eq!(names, ["x-forwarded-for", "x-forwarded-proto"], "{before:?} {behind:?}");
            assert_eq!(seen.get("x-forwarded-for"), Some("127.0.0.1"));
            assert_eq!(seen.get("x-forwarded-proto"), Some("http"));
        }
    });
}

#[test]
fn headers_of_a_trusted_proxy_are_kept_and_its_address_is_appended() {
    run(async {
        let replica = RawReplica::responding("").await;
        for trusted in ["127.0.0.0/8", "127.0.0.1", "\"::/0\", 0.0.0.0/0"] {
            let proxy = Setup::before(&[replica.address()])
                .top(&format!("trusted_proxies: [{trusted}]"))
                .start();
            let head = seen(&replica, &proxy, CLAIMS).await;
            let mut want = vec![
                ("forwarded", "for=10.0.0.1;proto=https, for=127.0.0.1;proto=http"),
                ("x-forwarded-for", "10.0.0.1, 10.0.0.2, 10.0.0.3, 127.0.0.1"),
                ("x-forwarded-host", "inner.test"),
                ("x-forwarded-port", "443"),
                ("x-forwarded-proto", "https"),
                ("x-real-ip", "10.0.0.1"),
                ("x_forwarded-proto", "https"),
                ("x_forwarded_for", "10.0.0.1"),
            ];
            want.sort_unstable();
            assert_eq!(forwarded(&head), want, "{trusted}");
            // A trusted proxy need not send any.
            let head = seen(&replica, &proxy, &[]).await;
            let want = [("x-forwarded-for", "127.0.0.1"), ("x-forwarded-proto", "http")];
            assert_eq!(forwarded(&head), want, "{trusted}");
        }
    });
}

#[test]
fn a_leaf_trusts_its_roots() {
    run(async {
        let replica = RawReplica::responding("").await;
        let leaf = Proxy::of_leaves(&[format!(
            "{{name: l, address: \"127.0.0.1:0\", server: \"http://{}\"}}",
            replica.address()
        )]);
        let root = Setup::before(&[leaf.listener("l")]).start();
        let head = seen(&replica, &root, CLAIMS).await;
        let want = [("x-forwarded-for", "127.0.0.1, 127.0.0.1"), ("x-forwarded-proto", "http")];
        assert_eq!(forwarded(&head), want);
    });
}

#[test]
fn trusted_proxies_can_be_reloaded() {
    run(async {
        let replica = RawReplica::responding("").await;
        let setup = Setup::before(&[replica.address()]);
        let proxy = setup.start();
        let claims = &[("x-forwarded-for", "10.0.0.1")];
        let head = seen(&replica, &proxy, claims).await;
        assert_eq!(head.get("x-forwarded-for"), Some("127.0.0.1"));
        proxy.reload(&setup.top("trusted_proxies: [127.0.0.1]")).expect("the reload succeeds");
        let head = seen(&replica, &proxy, claims).await;
        assert_eq!(head.get("x-forwarded-for"), Some("10.0.0.1, 127.0.0.1"));
    });
}
