//! The PROXY protocol: the address of the header is that of the client everywhere, and no two clients share a connection
//! that carries an address.

use crate::access_log::lines_after;
use crate::certificates::Authority;
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::{RawReplica, response};
use crate::replica::{Replica, Speaks};
use crate::wire::Wire;
use http::{HeaderValue, StatusCode, Version};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::{TcpSocket, TcpStream};

/// The key of a listener that expects the header from all clients of these tests.
const FROM_LOOPBACK: &str = "proxy_protocol: {from: [127.0.0.0/8]}";

/// Headers, and the address of the client by each.
const HEADERS: &[(&[u8], &str)] = &[
    (b"PROXY TCP4 192.0.2.7 192.0.2.8 56324 443\r\n", "192.0.2.7"),
    (b"PROXY TCP6 2001:db8::7 2001:db8::8 56324 443\r\n", "2001:db8::7"),
    (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    (
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0f\xc0\0\x02\x07\xc0\0\x02\x08\x12\x34\x01\xbb\x04\0\0",
        "192.0.2.7",
    ),
    (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", "127.0.0.1"),
];

/// Connects from an address of its own, so that it is not taken for a proxy.
pub(crate) async fn connect_from(host: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::from(host), 0).into()).expect("an address of loopback");
    let stream = socket.connect(to).await.expect("the proxy listens");
    stream.set_nodelay(true).expect("a TCP connection");
    stream
}

/// Connects, and sends a header in pieces of this length.
async fn connect_with(proxy: &Proxy, header: &[u8], piece_len: usize) -> TcpStream {
    let mut wire = Wire::connect(proxy.address()).await;
    for piece in header.chunks(piece_len) {
        wire.send(piece).await;
        tokio::task::yield_now().await;
    }
    wire.into_stream()
}

#[test]
fn the_address_of_the_header_is_that_of_the_client() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "").await;
        let proxy = Setup::before(&[replica.address()]).listener(FROM_LOOPBACK).start();
        for (header, address) in HEADERS {
            for (is_http2, piece_len) in [(false, header.len()), (true, header.len()), (false, 1)] {
                let stream = connect_with(&proxy, header, piece_len).await;
                let mut client = Client::over(stream, is_http2).await;
                assert_eq!(client.get("/").await.status, StatusCode::OK);
                let seen = replica.record().seen().pop().expect("a request");
                assert_eq!(seen.get("x-forwarded-for"), Some(*address));
            }
        }
    });
}

#[test]
fn trusted_proxies_and_the_access_log_take_the_address_of_the_header() {
    run(async {
        let (replica, directory) = (Replica::responding(Speaks::Http1, "").await, Directory::new());
        let file = directory.path("access.log");
        let proxy = Setup::before(&[replica.address()])
            .listener(FROM_LOOPBACK)
            .top(&format!(
                "trusted_proxies: [127.0.0.1, 10.1.0.0/16]\naccess_log: {{file: {}}}",
                file.display()
            ))
            .start();
        for (address, forwarded) in [
            // The proxy in front is not the client, though it would be a trusted one.
            ("10.2.0.1", "10.2.0.1"),
            ("10.1.0.1", "203.0.113.9, 10.1.0.1"),
        ] {
            let header = format!("PROXY TCP4 {address} 10.0.0.1 1 2\r\n");
            let stream = connect_with(&proxy, header.as_bytes(), header.len()).await;
            let mut client = Client::over(stream, false).await;
            let mut request = client.request("GET", "/");
            let claim = HeaderValue::from_static("203.0.113.9");
            request.headers_mut().insert("x-forwarded-for", claim);
            client.send(request).await;
            let seen = replica.record().seen().pop().expect("a request");
            assert_eq!(seen.get("x-forwarded-for"), Some(forwarded));
        }
        let lines = lines_after(&proxy, 2, &file).await;
        let clients: Vec<_> = lines.iter().map(|line| line["client"].as_str()).collect();
        // Behind a trusted proxy, the client is the one that it reports.
        assert_eq!(clients, [Some("10.2.0.1"), Some("203.0.113.9")]);
    });
}

#[test]
fn a_connection_without_a_valid_header_closes_and_is_counted() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "").await;
        let setup = Setup::before(&[replica.address()]).listener(FROM_LOOPBACK);
        let patient = setup.start();
        let impatient = setup.top("limits: {header_timeout: 200ms}").start();
        let header_failed = "curtail_client_proxy_header_failed_total";
        for (sent, name, reason) in [
            (&b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"[..], header_failed, "absent"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", header_failed, "absent"),
            (b"PROXY TCP4 192.0.2.7 192.0.2.8 56324\r\n", header_failed, "malformed"),
            (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff", header_failed, "malformed"),
            (b"PROXY TCP4 192.0.2.7 192", "curtail_client_timeouts_total", "header"),
            (b"", "curtail_client_timeouts_total", "header"),
        ] {
            let count =
                |metrics: &crate::metrics::Metrics| metrics.sum(name, &[("reason", reason)]);
            let proxy = if reason == "header" { &impatient } else { &patient };
            let before = count(&proxy.metrics().await);
            let mut wire = Wire::connect(proxy.address()).await;
            wire.send(sent).await;
            assert_eq!(wire.read_to_close().await, "", "{}", sent.escape_ascii());
            proxy.until(|metrics| count(metrics) == before + 1).await;
        }
        let mut wire = Wire::connect(patient.address()).await;
        wire.send("PROXY").await;
        wire.close_write().await;
        assert_eq!(wire.read_to_close().await, "");
        let incomplete = [("reason", "incomplete"), ("listener", "in")];
        patient.until(|metrics| metrics.sum(header_failed, &incomplete) == 1).await;
        assert_eq!(replica.record().count(), 0);
        // Others are served.
        let stream = connect_with(&patient, HEADERS[0].0, 100).await;
        assert_eq!(Client::over(stream, false).await.get("/").await.status, StatusCode::OK);
    });
}

#[test]
fn only_the_proxies_of_the_key_may_send_the_header() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "").await;
        let proxy = Setup::before(&[replica.address()])
            .listener("proxy_protocol: {from: [127.0.0.9]}")
            .start();
        for (host, is_served) in [([127, 0, 0, 1], false), ([127, 0, 0, 9], true)] {
            let mut wire = Wire::new(connect_from(host, proxy.address()).await);
            let request = [HEADERS[0].0, b"GET / HTTP/1.0\r\nhost: h\r\n\r\n"].concat();
            // The proxy may close the connection before it reads this.
            wire.write(request).await.ok();
            assert_eq!(!wire.read_to_close().await.is_empty(), is_served, "{host:?}");
        }
        let untrusted = [("reason", "untrusted")];
        let name = "curtail_client_proxy_header_failed_total";
        assert_eq!(proxy.metrics().await.sum(name, &untrusted), 1);
    });
}

#[test]
fn a_reload_can_require_the_header() {
    run(async {
        let replica = Replica::responding(Speaks::Http1, "").await;
        let setup = Setup::before(&[replica.address()]);
        let proxy = setup.start();
        let mut before = Client::connect(proxy.address(), Version::HTTP_2).await;
        assert_eq!(before.get("/").await.status, StatusCode::OK);
        let changed = proxy.reload(&setup.listener(FROM_LOOPBACK)).expect("the reload succeeds");
        assert_eq!(changed, ["listeners.in"]);
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(wire.read_to_close().await, "");
        let stream = connect_with(&proxy, HEADERS[0].0, 100).await;
        assert_eq!(Client::over(stream, false).await.get("/").await.status, StatusCode::OK);
    });
}

/// A proxy that sends the header to another one, which requires it, before a replica.
#[test]
fn a_replica_gets_the_address_of_the_client_over_every_protocol() {
    run(async {
        let authority = Authority::new();
        let (issued, ca_file) = (authority.issue("localhost"), authority.file());
        let replica = Replica::responding(Speaks::Http1, "").await;
        let setup = Setup::before(&[replica.address()]).listener(FROM_LOOPBACK);
        let tls = format!("{FROM_LOOPBACK}, {}", issued.listener_keys());
        let (plain, tls) = (setup.clone().start(), setup.listener(&tls).start());
        let http1 = format!("http://{}", plain.address());
        let https = format!("https://localhost:{}", tls.address().port());
        for (url, protocol) in [(&http1, "http1"), (&http1, "http2"), (&https, "auto")] {
            for (before, version) in [(false, "v1"), (true, "v2"), (false, "v2")] {
                println!("{url} {protocol}, HTTP/2 before: {before}, {version}");
                let connect = format!(
                    "connect: {{protocol: {protocol}, proxy_protocol: {version}, ca_file: {}}}\n\
                     health_check: {{http: /healthz}}",
                    ca_file.display()
                );
                let front = Setup::before_urls([url.clone()]).upstream(&connect).start();
                let stream = connect_from([127, 0, 0, 3], front.address()).await;
                let mut client = Client::over(stream, before).await;
                assert_eq!(client.get("/").await.status, StatusCode::OK);
                let seen = replica.record().seen();
                let seen = seen.iter().rfind(|seen| seen.uri.path() == "/").expect("a request");
                assert_eq!(seen.get("x-forwarded-for"), Some("127.0.0.3"));
                // The check is not a client's.
                let passed = [("result", "passed")];
                front.until(|m| m.sum("curtail_health_checks_total", &passed) > 0).await;
                assert_eq!(front.metrics().await.sum("curtail_replica_healthy", &[]), 1);
            }
        }
    });
}

/// Keeps the header of each connection as a field of its requests.
pub(crate) async fn recording() -> RawReplica {
    RawReplica::start(|mut wire, record, _| async move {
        let header = wire.read_line().await.expect("a header of version 1");
        while let Ok(Some(mut request)) = wire.read_message().await {
            request.head.fields.push(("header".to_owned(), header.clone()));
            record.executes(request);
            if wire.write(response("good")).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[test]
fn a_connection_with_the_address_of_one_client_carries_no_request_of_another() {
    run(async {
        let replica = recording().await;
        // A single connection is allowed: the idle one of a client makes room for that of the next.
        for connections_max in [100, 1] {
            let opened = replica.record().connections();
            let proxy = Setup::before(&[replica.address()])
                .workers(1)
                .upstream(&format!(
                    "connect: {{proxy_protocol: v1, connections_max: {connections_max}}}"
                ))
                .start();
            let mut clients = Vec::new();
            for _ in 0..2 {
                let stream = connect_from([127, 0, 0, 1], proxy.address()).await;
                let address = stream.local_addr().expect("it is connected");
                clients.push((address, Client::over(stream, false).await));
            }
            for (address, client) in &mut clients {
                for _ in 0..2 {
                    assert_eq!(client.get("/").await.status, StatusCode::OK);
                    let request = replica.record().requests().pop().expect("a request");
                    let (server, port) = (proxy.address(), address.port());
                    let want = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {}", server.port());
                    assert_eq!(request.head.get("header"), Some(&*want));
                }
            }
            // Each client has used its own connection again.
            assert_eq!(replica.record().connections() - opened, 2);
            // The first one's is still open, or has made room.
            assert_eq!(clients[0].1.get("/").await.status, StatusCode::OK);
            let again = usize::from(connections_max == 1);
            assert_eq!(replica.record().connections() - opened, 2 + again);
        }
    });
}

#[test]
fn a_new_client_at_the_limit_closes_the_idle_connection_of_one_other_client() {
    run(async {
        let replica = recording().await;
        let proxy = Setup::before(&[replica.address()])
            .workers(1)
            .upstream("connect: {proxy_protocol: v1, connections_max: 3}")
            .start();
        let mut clients = Vec::new();
        for _ in 0..4 {
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            assert_eq!(client.get("/").await.status, StatusCode::OK);
            clients.push(client);
        }
        proxy.until(|metrics| metrics.sum("curtail_connections_idle", &[]) == 3).await;
        assert_eq!(replica.record().connections(), 4);
    });
}
