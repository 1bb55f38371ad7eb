//! TLS on either side, and the version of HTTP that it negotiates.

use crate::body;
use crate::certificates::Authority;
use crate::client::{Client, HOST};
use crate::deadline::run;
use crate::proxy::Setup;
use crate::replica::{Replica, Speaks, ok};
use http::{StatusCode, Version};
use http_body_util::BodyExt;

#[test]
fn each_side_speaks_what_it_negotiates() {
    run(async {
        let authority = Authority::new();
        let issued = authority.issue("localhost");
        let ca_file = authority.file();
        for (behind, behind_version) in [
            (&["h2", "http/1.1"][..], Version::HTTP_2),
            (&["http/1.1"][..], Version::HTTP_11),
            (&[][..], Version::HTTP_11),
        ] {
            let speaks = Speaks::Tls(issued.server(behind));
            let replica = Replica::start(speaks, |request| async move {
                let body = request.into_body().collect().await.expect("a whole body").to_bytes();
                http::Response::new(body::whole(body))
            })
            .await;
            let proxy = Setup::before_urls([replica.tls_url()])
                .upstream(&format!("connect: {{ca_file: {}}}", ca_file.display()))
                .listener(&issued.listener_keys())
                .start();
            for (before, before_version) in [
                (&["h2", "http/1.1"][..], Version::HTTP_2),
                (&["http/1.1"][..], Version::HTTP_11),
                (&["http/1.0"][..], Version::HTTP_11),
                (&["http/1.0", "http/1.1"][..], Version::HTTP_11),
                (&[][..], Version::HTTP_11),
            ] {
                let config = authority.client(before);
                let client = Client::connect_tls(proxy.address(), config).await;
                let mut client = client.expect("a good certificate");
                assert_eq!(client.version(), before_version);
                let request = client.request_with("POST", "/p?q", body::whole("there and back"));
                let response = client.send(request).await;
                assert_eq!(
                    (response.status, &*response.body),
                    (StatusCode::OK, &b"there and back"[..])
                );
                let seen = replica.record().seen().pop().expect("a request");
                assert_eq!(seen.version, behind_version);
                assert_eq!(seen.get("x-forwarded-proto"), Some("https"));
                if behind_version == Version::HTTP_2 {
                    assert_eq!(seen.uri.to_string(), format!("https://{HOST}/p?q"));
                }
            }
        }
    });
}

#[test]
fn a_replica_that_must_speak_http_2_and_does_not_is_no_replica() {
    run(async {
        let authority = Authority::new();
        let issued = authority.issue("localhost");
        let replica =
            Replica::responding(Speaks::Tls(issued.server(&["http/1.1"])), "never given").await;
        let proxy = Setup::before_urls([replica.tls_url()])
            .upstream(&format!(
                "connect: {{protocol: http2, ca_file: {}}}",
                authority.file().display()
            ))
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let response = client.get("/").await;
        assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE, "{response:?}");
        assert_eq!(response.error(), Some("not_sent"));
        assert_eq!(replica.record().count(), 0);
    });
}

#[test]
fn many_first_requests_at_once_stay_within_the_connections_allowed() {
    run(async {
        let authority = Authority::new();
        let issued = authority.issue("localhost");
        let speaks = Speaks::Tls(issued.server(&["h2", "http/1.1"]));
        let replica = Replica::start(speaks, |_| std::future::ready(ok("here"))).await;
        let proxy = Setup::before_urls([replica.tls_url()])
            .upstream(&format!(
                "hedge: false\nconnect: {{http2_connections_max: 2, ca_file: {}}}",
                authority.file().display()
            ))
            .start();
        // One client connection, so one worker.
        let client = Client::connect(proxy.address(), Version::HTTP_2).await;
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let mut client = client.share();
            asking.spawn(async move { client.get("/").await.status });
        }
        while let Some(status) = asking.join_next().await {
            assert_eq!(status.expect("no panic"), StatusCode::OK);
        }
        let connections = replica.record().connections();
        assert!(connections <= 2, "{connections} connections, and two are allowed");
    });
}
