//! Certificates by the name that a client requests, and certificates of clients, on both sides of the proxy.

use crate::certificates::{Authority, Issued};
use crate::client::{Client, tls_stream};
use crate::deadline::run;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks};
use http::{StatusCode, Version};
use rustls::ClientConfig;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[test]
fn a_client_gets_the_certificate_of_the_name_that_it_requests() {
    run(async {
        let authority = Authority::new();
        let issued =
            ["*.a.test", "x.a.test", "*.b.test", "x.b.test"].map(|name| authority.issue(name));
        let [first, further @ ..] = &issued;
        let further: String = further.iter().map(|one| format!("{{{}}}, ", one.files())).collect();
        let tls = format!("tls: {{{}, further_certificates: [{further}]}}", first.files());
        let replica = RawReplica::responding("good").await;
        let proxy = Setup::before(&[replica.address()]).listener(&tls).start();
        // The client checks that the certificate is valid for the name.
        let shown = async |name| {
            let stream = tls_stream(proxy.address(), name, authority.client(&[])).await.ok()?;
            Some(stream.get_ref().1.peer_certificates()?[0].clone())
        };
        for (name, expected) in [
            ("y.a.test", Some(0)),
            // The wildcard of the first one does not hide it.
            ("x.a.test", Some(1)),
            ("X.a.test", Some(1)),
            ("y.b.test", Some(2)),
            // The first further one that is valid.
            ("x.b.test", Some(2)),
            // These get the first one, which is not valid for them.
            ("a.test", None),
            ("127.0.0.1", None),
        ] {
            let expected = expected.map(|nth: usize| issued[nth].certificate().clone());
            assert_eq!(shown(name).await, expected, "{name}");
        }
    });
}

/// Whether the proxy responds to a client.
async fn is_served(proxy: &Proxy, config: Arc<ClientConfig>) -> bool {
    let get = async {
        let mut stream = tls_stream(proxy.address(), "localhost", config).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").await?;
        let mut response = String::new();
        // In TLS 1.3, a client only learns now that its certificate was not accepted.
        stream.read_to_string(&mut response).await?;
        std::io::Result::Ok(response)
    };
    get.await.is_ok_and(|response| response.starts_with("HTTP/1.1 200 "))
}

#[test]
fn a_listener_with_client_authorities_serves_their_clients_only() {
    run(async {
        let [servers, clients, others] = [(); 3].map(|()| Authority::new());
        let issued = servers.issue("localhost");
        let client_ca_file = clients.file();
        let tls =
            format!("tls: {{{}, client_ca_file: {}}}", issued.files(), client_ca_file.display());
        let replica = RawReplica::responding("good").await;
        let setup = Setup::before(&[replica.address()]).listener(&tls);
        let proxy = setup.start();
        let of = |issued: &Issued| servers.client_with(issued);
        let (good, other) = (of(&clients.issue("c.test")), of(&others.issue("c.test")));
        assert!(is_served(&proxy, Arc::clone(&good)).await);
        assert!(!is_served(&proxy, Arc::clone(&other)).await);
        assert!(!is_served(&proxy, of(&clients.issue_expired("c.test"))).await);
        assert!(!is_served(&proxy, servers.client(&[])).await);
        assert_eq!(replica.record().requests().len(), 1, "a rejected request was sent");
        proxy.until(|metrics| metrics.sum("curtail_client_tls_failed_total", &[]) == 3).await;
        // A reload reads the file again. Sessions of clients of the earlier authority cannot be resumed.
        std::fs::copy(others.file(), &client_ca_file).expect("temporary files");
        proxy.reload(&setup).expect("the reload succeeds");
        assert!(!is_served(&proxy, good).await);
        assert!(is_served(&proxy, other).await);
        std::fs::write(&client_ca_file, "no certificate").expect("a temporary file");
        let error = proxy.reload(&setup).expect_err("the reload fails").to_string();
        assert!(error.contains(&client_ca_file.display().to_string()), "{error}");
    });
}

#[test]
fn the_proxy_presents_its_certificate_to_replicas() {
    run(async {
        let [servers, clients, others] = [(); 3].map(|()| Authority::new());
        let server = servers.issue("localhost").server_for_clients_of(&clients);
        let replica = Replica::responding(Speaks::Tls(server), "good").await;
        let setup = |certificate: &str| {
            Setup::before_urls([replica.tls_url()]).upstream(&format!(
                "retry: false\nhedge: false\nconnect: {{idle_max: 0, ca_file: {}{certificate}}}",
                servers.file().display()
            ))
        };
        let status = async |proxy: &Proxy| {
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            client.get("/").await.status
        };
        assert_ne!(status(&setup("").start()).await, StatusCode::OK);
        let issued = others.issue("proxy.test");
        let setup = setup(&format!(", client_certificate: {{{}}}", issued.files()));
        let proxy = setup.start();
        assert_ne!(status(&proxy).await, StatusCode::OK);
        // A reload reads the files again.
        let good = clients.issue("proxy.test");
        std::fs::copy(&good.certificate_file, &issued.certificate_file).expect("temporary files");
        let error = proxy.reload(&setup).expect_err("the key belongs to the old one").to_string();
        assert!(error.contains(&issued.certificate_file.display().to_string()), "{error}");
        std::fs::copy(&good.key_file, &issued.key_file).expect("temporary files");
        proxy.reload(&setup).expect("the reload succeeds");
        assert_eq!(status(&proxy).await, StatusCode::OK);
    });
}
