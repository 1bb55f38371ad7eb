//! Certificates that must not be trusted, on either side, and names that lead nowhere.

use super::with_steady_clients;
use crate::certificates::{Authority, Issued};
use crate::client::Client;
use crate::deadline::run;
use crate::logs;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks};
use crate::wire::Wire;
use http::{StatusCode, Version};
use std::path::Path;

/// Sends requests through a proxy whose only replica is at `url`; returns the log line about the failed connection.
async fn connect_failure_line(url: String, ca_file: &Path) -> String {
    let proxy = Setup::before_urls([url.clone()])
        .upstream(&format!("retry: {{backoff: 1ms}}\nconnect: {{ca_file: {}}}", ca_file.display()))
        .start();
    let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
    for method in ["GET", "POST"] {
        let request = client.request(method, "/");
        let response = client.send(request).await;
        assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE, "{response:?}");
        assert_eq!(response.error(), Some("not_sent"), "nothing was sent to it");
    }
    let parts = ["WARN", "upstream=\"service\"", "replica=", &url];
    logs::find(&parts).expect("a warning that names the upstream and the replica")
}

async fn replica_with(issued: &Issued) -> Replica {
    Replica::responding(Speaks::Tls(issued.server(&["h2", "http/1.1"])), "never given").await
}

#[test]
fn a_replica_whose_certificate_is_bad_is_not_spoken_to() {
    run(async {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let ca_file = authority.file();
        for (issued, why) in [
            (authority.issue_expired("localhost"), "expired"),
            (stranger.issue("localhost"), "UnknownIssuer"),
            (authority.issue("other.test"), "not valid for name"),
        ] {
            let replica = replica_with(&issued).await;
            let line = connect_failure_line(replica.tls_url(), &ca_file).await;
            assert!(line.contains("TLS failed"), "{line}");
            assert!(line.contains(why), "expected {why:?} in {line}");
            assert_eq!(replica.record().count(), 0, "it was spoken to");
        }
    });
}

#[test]
fn a_replica_that_speaks_no_tls_is_not_spoken_to() {
    run(async {
        let authority = Authority::new();
        let replica = RawReplica::start(|mut wire, _, _| async move {
            wire.send("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
            wire.read_to_close().await;
        })
        .await;
        let url = format!("https://localhost:{}", replica.address().port());
        let line = connect_failure_line(url, &authority.file()).await;
        assert!(line.contains("TLS failed"), "{line}");
    });
}

#[test]
fn the_log_names_a_host_that_is_not_resolved() {
    run(async {
        let authority = Authority::new();
        let line =
            connect_failure_line("http://no-such-host.invalid:80".to_owned(), &authority.file())
                .await;
        assert!(line.contains("was not resolved"), "{line}");
        assert!(line.contains("no-such-host.invalid"), "{line}");
    });
}

#[test]
fn one_bad_certificate_among_three_is_not_noticed() {
    run(async {
        let authority = Authority::new();
        let (good, expired) = (authority.issue("localhost"), authority.issue_expired("localhost"));
        let replicas = [
            Replica::responding(Speaks::Tls(good.server(&["h2"])), "good").await,
            replica_with(&expired).await,
            Replica::responding(Speaks::Tls(good.server(&["http/1.1"])), "good").await,
        ];
        let proxy = Setup::before_urls(replicas.iter().map(Replica::tls_url))
            .upstream(&format!("connect: {{ca_file: {}}}", authority.file().display()))
            .start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for nth in 0..60 {
            let method = if nth % 2 == 0 { "GET" } else { "POST" };
            let request = client.request(method, "/");
            let response = client.send(request).await;
            assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"good"[..]));
        }
        assert_eq!(replicas[1].record().count(), 0);
    });
}

#[test]
fn clients_that_do_not_complete_a_handshake_harm_no_other_client() {
    run(async {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let replica = RawReplica::responding("good").await;
        let proxy = Setup::before(&[replica.address()])
            .listener(&authority.issue("localhost").listener_keys())
            .top("limits: {header_timeout: 300ms}")
            .start();
        let mut good =
            Client::connect_tls(proxy.address(), authority.client(&["h2"])).await.expect("trust");
        assert_eq!(good.get("/").await.status, StatusCode::OK);
        for _ in 0..3 {
            // One that does not trust us, one that has no protocol in common with us, one that speaks clear
            // text, and one that says nothing.
            assert!(Client::connect_tls(proxy.address(), stranger.client(&["h2"])).await.is_err());
            assert!(
                Client::connect_tls(proxy.address(), authority.client(&["spdy/1"])).await.is_err()
            );
            let mut clear = Wire::connect(proxy.address()).await;
            clear.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
            let received = clear.read_to_close().await;
            assert!(!received.starts_with(b"HTTP"), "{received:?}");
            let mut silent = Wire::connect(proxy.address()).await;
            assert_eq!(silent.read_to_close().await, "");
            assert_eq!(good.get("/").await.status, StatusCode::OK);
        }
        assert_eq!(replica.record().requests().len(), 4);
        proxy.until(|m| m.sum("curtail_client_connections_open", &[]) == 1).await;
    });
}

#[test]
fn a_certificate_that_cannot_be_used_is_named_before_anything_listens() {
    let authority = Authority::new();
    let (one, other) = (authority.issue("localhost"), authority.issue("localhost"));
    let yaml = |certificate: &Path, key: &Path| {
        format!(
            "listeners: [{{address: \"127.0.0.1:0\", tls: {{certificate_file: {}, key_file: {}}}}}]\n\
             routes: [{{upstream: s}}]\nupstreams: {{s: {{replicas: [http://127.0.0.1:9]}}}}\n",
            certificate.display(),
            key.display()
        )
    };
    let start = |yaml: &str| {
        let config = curtail_proxy::Config::from_yaml("test.yaml", yaml).expect("no errors");
        let checked = curtail_proxy::check(&config);
        let started = curtail_proxy::start(config, &curtail_proxy::Options::default());
        let error = started.expect_err("it cannot start").to_string();
        let checked: Vec<String> = checked.iter().map(ToString::to_string).collect();
        assert_eq!(checked.first(), Some(&error), "a check reports the error of a start");
        error
    };
    let missing = one.certificate_file.with_file_name("missing.pem");
    for (certificate, key, names, of) in [
        (&missing, &one.key_file, &missing, "certificate_file"),
        (&one.certificate_file, &missing, &missing, "key_file"),
        (&one.key_file, &one.key_file, &one.key_file, "certificate_file"),
        (&one.certificate_file, &other.key_file, &one.certificate_file, "certificate_file"),
    ] {
        let error = start(&yaml(certificate, key));
        assert!(error.contains(&names.display().to_string()), "{error}");
        assert!(error.starts_with(&format!("listeners[0].tls.{of}: ")), "{error}");
    }
    let mismatch = start(&yaml(&one.certificate_file, &other.key_file));
    assert!(mismatch.contains("belongs to another certificate"), "{mismatch}");
    let elsewhere = |key: &str, value: &str| {
        let ca_file = missing.display();
        format!(
            "listeners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: s}}]\n\
             upstreams: {{s: {{replicas: [{}], connect: {{ca_file: {}}}}}}}\n\
             leaves: [{{address: \"127.0.0.1:0\", server: http://127.0.0.1:9{}}}]\n{}",
            if key == "replica" { value } else { "http://127.0.0.1:9" },
            if key == "upstream" {
                ca_file.to_string()
            } else {
                authority.file().display().to_string()
            },
            if key == "leaf" {
                format!(", connect: {{ca_file: {ca_file}}}")
            } else {
                String::new()
            },
            if key == "spans" { format!("spans: {{endpoint: {value}}}\n") } else { String::new() },
        )
    };
    for (key, value, section) in [
        ("upstream", "", "upstreams.s.connect.ca_file: "),
        ("leaf", "", "leaves[0].connect.ca_file: "),
        (
            "replica",
            "https://under_score..dots:9",
            "upstreams.s.replicas: https://under_score..dots:9: ",
        ),
        ("spans", "https://under_score..dots:9", "spans.endpoint: https://under_score..dots:9: "),
        ("spans", "http://127.0.0.1:9, ca_file: /nowhere", "spans.ca_file: /nowhere: "),
        ("spans", "http://127.0.0.1:9, token_file: /nowhere", "spans.token_file: /nowhere: "),
    ] {
        let error = start(&elsewhere(key, value));
        assert!(error.starts_with(section), "{error}");
    }
}

#[test]
fn bad_certificates_cost_requests_to_others_nothing() {
    run(async {
        let authority = Authority::new();
        let bad = replica_with(&authority.issue_expired("localhost")).await;
        let good = RawReplica::responding("good").await;
        let yaml = format!(
            "workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\n\
             listeners: [{{address: \"127.0.0.1:0\"}}]\n\
             routes: [{{path_prefix: /bad, upstream: bad}}, {{upstream: good}}]\n\
             upstreams:\n  bad: {{replicas: [\"{}\"], connect: {{ca_file: {}}}}}\n  \
             good: {{replicas: [\"http://{}\"]}}\n",
            bad.tls_url(),
            authority.file().display(),
            good.address()
        );
        let proxy = Proxy::start(&yaml, &curtail_proxy::Options::default());
        with_steady_clients(&proxy, async {
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            for _ in 0..20 {
                assert_eq!(client.get("/bad").await.error(), Some("not_sent"));
            }
        })
        .await;
    });
}
