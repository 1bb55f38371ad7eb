//! Certificates that are renewed while the proxy runs: a reload reads them again or reports an error.

use crate::certificates::{Authority, Issued};
use crate::client::Client;
use crate::deadline::run;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks};
use http::{StatusCode, Version};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Replaces the certificate and key of `old` by those of `new`.
fn renew(old: &Issued, new: &Issued) {
    copy(&new.certificate_file, &old.certificate_file);
    copy(&new.key_file, &old.key_file);
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("temporary files");
}

/// Whether a client that trusts only this authority gets a response.
async fn is_trusted(proxy: &Proxy, authority: &Authority) -> bool {
    let Ok(mut client) = Client::connect_tls(proxy.address(), authority.client(&["h2"])).await
    else {
        return false;
    };
    assert_eq!(client.get("/").await.status, StatusCode::OK);
    true
}

#[test]
fn a_renewed_certificate_is_used_after_a_reload_and_old_connections_stay_open() {
    run(async {
        let (first, second) = (Authority::new(), Authority::new());
        let issued = first.issue("localhost");
        let replica = RawReplica::responding("good").await;
        let setup = Setup::before(&[replica.address()]).listener(&issued.listener_keys());
        let proxy = setup.start();
        let mut old = Client::connect_tls(proxy.address(), first.client(&["h2"]))
            .await
            .expect("the first certificate");
        assert!(!is_trusted(&proxy, &second).await);
        renew(&issued, &second.issue("localhost"));
        assert!(is_trusted(&proxy, &first).await, "files are read only at a reload");
        proxy.reload(&setup).expect("the reload succeeds");
        assert!(is_trusted(&proxy, &second).await, "the old certificate is still in use");
        assert!(!is_trusted(&proxy, &first).await);
        assert_eq!(old.get("/").await.status, StatusCode::OK);
        // Other certificate files do not make another listener.
        let third = Authority::new();
        let elsewhere = third.issue("localhost");
        let moved = Setup::before(&[replica.address()]).listener(&elsewhere.listener_keys());
        proxy.reload(&moved).expect("the reload succeeds");
        assert!(is_trusted(&proxy, &third).await);
    });
}

#[test]
fn certificates_are_renewed_under_load_without_a_failed_handshake() {
    run(async {
        let authority = Authority::new();
        let issued = authority.issue("localhost");
        let replica = RawReplica::responding("good").await;
        let setup = Setup::before(&[replica.address()]).listener(&issued.listener_keys());
        let proxy = setup.start();
        let (address, stop) = (proxy.address(), Arc::<AtomicBool>::default());
        let clients = ["h2", "http/1.1", "h2", "http/1.1"].map(|protocol| {
            let (config, stop) = (authority.client(&[protocol]), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut kept =
                    Client::connect_tls(address, Arc::clone(&config)).await.expect("TLS");
                while !stop.load(Ordering::Relaxed) {
                    let new = Client::connect_tls(address, Arc::clone(&config)).await;
                    let mut new = new.expect("a certificate of the authority");
                    assert_eq!(new.get("/").await.body, "good");
                    assert_eq!(kept.get("/").await.body, "good");
                }
            })
        });
        for renewal in 1..=5 {
            renew(&issued, &authority.issue("localhost"));
            proxy.reload(&setup).expect("the reload succeeds");
            proxy.until(|m| m.sum("curtail_requests_total", &[]) > 50 * renewal).await;
        }
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.expect("no request failed");
        }
    });
}

#[test]
fn a_reload_with_an_unreadable_certificate_changes_nothing() {
    run(async {
        let authority = Authority::new();
        let issued = authority.issue("localhost");
        let (old, new) = (RawReplica::responding("old").await, RawReplica::responding("new").await);
        let proxy = Setup::before(&[old.address()]).listener(&issued.listener_keys()).start();
        let elsewhere = Setup::before(&[new.address()]).listener(&issued.listener_keys());
        let other = authority.issue("localhost");
        let breaks: [(&dyn Fn(), &Path); 3] = [
            // A certificate whose key is not written yet.
            (&|| copy(&other.certificate_file, &issued.certificate_file), &issued.certificate_file),
            (
                &|| std::fs::write(&issued.key_file, "half a k").expect("a temporary file"),
                &issued.key_file,
            ),
            (
                &|| std::fs::remove_file(&issued.certificate_file).expect("a temporary file"),
                &issued.certificate_file,
            ),
        ];
        for (break_it, names) in breaks {
            break_it();
            let error = proxy.reload(&elsewhere).expect_err("the reload fails").to_string();
            assert!(error.contains(&names.display().to_string()), "{error}");
            assert!(is_trusted(&proxy, &authority).await);
        }
        assert_eq!(new.record().requests().len(), 0, "the reload was applied in part");
        renew(&issued, &other);
        proxy.reload(&elsewhere).expect("the reload succeeds");
        assert!(is_trusted(&proxy, &authority).await);
        assert_eq!(new.record().requests().len(), 1);
    });
}

/// Connections of the earlier upstream would still trust the earlier authority.
#[test]
fn renewed_authorities_are_trusted_by_an_upstream_whose_policy_changes_too() {
    run(async {
        let (first, second) = (Authority::new(), Authority::new());
        let issued = first.issue("localhost");
        let speaks = Speaks::Tls(issued.server(&["http/1.1"]));
        let replica = Replica::responding(speaks, "good").await;
        let ca_file = first.file();
        let setup = |keys: &str| {
            let connect = format!("connect: {{idle_max: 0, ca_file: {}}}", ca_file.display());
            Setup::before_urls([replica.tls_url()]).upstream(&format!("{keys}\n{connect}"))
        };
        let proxy = setup("retry: false\nhedge: false").start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        copy(&second.file(), &ca_file);
        proxy.reload(&setup("retry: false\nhedge: true")).expect("the reload succeeds");
        assert_eq!(client.get("/").await.status, StatusCode::SERVICE_UNAVAILABLE);
    });
}

#[test]
fn renewed_authorities_of_replicas_are_trusted_after_a_reload() {
    run(async {
        let (first, second) = (Authority::new(), Authority::new());
        let (one, two) = (first.issue("localhost"), second.issue("localhost"));
        let replicas = [
            Replica::responding(Speaks::Tls(one.server(&["http/1.1"])), "good").await,
            Replica::responding(Speaks::Tls(two.server(&["http/1.1"])), "good").await,
        ];
        let ca_file = first.file();
        let setup = |replica: &Replica| {
            Setup::before_urls([replica.tls_url()]).upstream(&format!(
                "retry: false\nhedge: false\nconnect: {{idle_max: 0, ca_file: {}}}",
                ca_file.display()
            ))
        };
        let proxies = [setup(&replicas[0]).start(), setup(&replicas[1]).start()];
        let status = async |proxy: &Proxy| {
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            client.get("/").await.status
        };
        assert_eq!(status(&proxies[0]).await, StatusCode::OK);
        assert_eq!(status(&proxies[1]).await, StatusCode::SERVICE_UNAVAILABLE);
        copy(&second.file(), &ca_file);
        for (proxy, replica) in proxies.iter().zip(&replicas) {
            proxy.reload(&setup(replica)).expect("the reload succeeds");
        }
        assert_eq!(status(&proxies[0]).await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status(&proxies[1]).await, StatusCode::OK);
        // The upstream keeps its state, and an unreadable file is rejected.
        let metrics = proxies[0].metrics().await;
        assert_eq!(metrics.sum("curtail_requests_total", &[("status", "2xx")]), 1, "{metrics}");
        std::fs::write(&ca_file, "no certificate").expect("a temporary file");
        let error = proxies[1].reload(&setup(&replicas[1])).expect_err("the reload fails");
        assert!(error.to_string().contains(&ca_file.display().to_string()), "{error}");
        assert_eq!(status(&proxies[1]).await, StatusCode::OK);
    });
}
