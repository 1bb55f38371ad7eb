//! Connections that are opened ahead of requests (`connect.idle_min`).

use crate::certificates::Authority;
use crate::client::Client;
use crate::deadline::run;
use crate::proxy::Setup;
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks};
use curtail_proxy::Config;
use http::{StatusCode, Version};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc, watch};

fn setup(replicas: &[SocketAddr], keys: &str) -> Setup {
    Setup::before(replicas).workers(1).upstream(&format!("hedge: false\n{keys}"))
}

/// A server that responds with the number of the connection.
async fn numbering() -> RawReplica {
    RawReplica::start(|mut wire, record, nth| async move {
        while record.read(&mut wire).await.is_some() {
            wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{nth}")).await;
        }
    })
    .await
}

/// The same, but it closes its first `refills` connections, one for each notification.
async fn closing(refills: usize) -> (RawReplica, Arc<Notify>) {
    let close = Arc::new(Notify::new());
    let notify = Arc::clone(&close);
    let replica = RawReplica::start(move |mut wire, record, nth| {
        let notify = Arc::clone(&notify);
        async move {
            if nth < refills {
                return notify.notified().await;
            }
            while record.read(&mut wire).await.is_some() {
                wire.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    });
    (replica.await, close)
}

/// Waits for the first connection and for `refills` more. A later refill begins at least a tick after the one before.
async fn refilled((replica, close): &(RawReplica, Arc<Notify>), refills: usize) {
    for connections in 1..=refills {
        replica.record().until(|record| record.connections() == connections).await;
        close.notify_one();
    }
    replica.record().until(|record| record.connections() == refills + 1).await;
}

#[test]
fn connections_are_open_before_the_first_request_and_after_a_join() {
    run(async {
        let (first, second) = (numbering().await, numbering().await);
        let keys = "connect: {idle_min: 2}";
        let proxy = setup(&[first.address()], keys).start();
        first.record().until(|record| record.open_connections() == 2).await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let body = client.get("/").await.body;
        assert!(body == "0" || body == "1", "{body:?}: a connection that was open before");
        proxy.reload(&setup(&[first.address(), second.address()], keys)).expect("it is good");
        second.record().until(|record| record.open_connections() == 2).await;
        assert!(second.record().requests().is_empty());
    });
}

#[test]
fn a_server_that_closes_connections_at_once_gets_fewer_and_fewer() {
    run(async {
        let (accepted, mut times) = mpsc::channel(3);
        let replica = RawReplica::start(move |mut wire, record, nth| {
            accepted.try_send(Instant::now()).expect("three connections");
            async move {
                // The first two close at once.
                while nth >= 2 && record.read(&mut wire).await.is_some() {}
            }
        })
        .await;
        let _proxy = setup(&[replica.address()], "connect: {idle_min: 1}").start();
        let mut before = times.recv().await.expect("a connection");
        // A connection closes after it was accepted, however slow this machine is, and the wait begins later still.
        for seconds in [1, 2] {
            let next = times.recv().await.expect("a connection");
            assert!((next - before).as_secs() >= seconds, "{:?}", next - before);
            before = next;
        }
        replica.record().until(|record| record.open_connections() == 1).await;
    });
}

#[test]
fn an_idle_connection_has_a_successor() {
    run(async {
        for (speaks, keys) in [(Speaks::Http1, ""), (Speaks::Http2, ", protocol: http2")] {
            let replica = Replica::responding(speaks, "good").await;
            let keys = format!("connect: {{idle_min: 1, idle_max: 2, idle_timeout: 8s{keys}}}");
            let proxy = setup(&[replica.address()], &keys).start();
            proxy.until(|metrics| metrics.sum("curtail_connections_opened_total", &[]) == 2).await;
        }
    });
}

/// A relay to a server: bytes pass when the gate has a permit for the connection. The receiver counts connections.
async fn gated_relay(server: SocketAddr) -> (u16, Arc<Semaphore>, watch::Receiver<usize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback");
    let port = listener.local_addr().expect("it is bound").port();
    let gate = Arc::new(Semaphore::new(0));
    let (accepted, count) = watch::channel(0);
    let opens = Arc::clone(&gate);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.expect("connections come");
            accepted.send_modify(|count| *count += 1);
            let gate = Arc::clone(&opens);
            tokio::spawn(async move {
                gate.acquire().await.expect("never closed").forget();
                let mut server = TcpStream::connect(server).await.expect("the server listens");
                // It ends as the proxy or the server ends it.
                tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
            });
        }
    });
    (port, gate, count)
}

#[test]
fn a_request_that_waits_for_the_handshake_of_a_refill_uses_its_connection() {
    run(async {
        let authority = Authority::new();
        let server = authority.issue("localhost").server(&["http/1.1"]);
        let replica = Replica::responding(Speaks::Tls(server), "good").await;
        let (port, gate, mut count) = gated_relay(replica.address()).await;
        let keys = format!("connect: {{idle_min: 1, ca_file: {}}}", authority.file().display());
        let proxy = Setup::before_urls([format!("https://localhost:{port}")])
            .workers(1)
            .upstream(&format!("hedge: false\n{keys}"))
            .start();
        count.wait_for(|count| *count == 1).await.expect("connections come");
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let asking = tokio::spawn(async move { client.get("/").await.status });
        proxy.until(|metrics| metrics.sum("curtail_connections_waiting", &[]) == 1).await;
        gate.add_permits(10);
        assert_eq!(asking.await.expect("no panic"), StatusCode::OK);
        assert_eq!(*count.borrow(), 1);
    });
}

#[test]
fn one_connection_of_http_2_is_enough() {
    run(async {
        let replica = Replica::responding(Speaks::Http2, "good").await;
        let keys = "connect: {protocol: http2, idle_min: 3}";
        let proxy = setup(&[replica.address()], keys).start();
        replica.record().until(|record| record.connections() == 1).await;
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        for _ in 0..100 {
            assert_eq!(client.get("/").await.status, StatusCode::OK);
        }
        assert_eq!(replica.record().connections(), 1);
    });
}

#[test]
fn a_drained_replica_gets_connections_when_it_has_weight_again() {
    run(async {
        let (drained, other) = (numbering().await, closing(2).await);
        let with = |weight: &str| {
            let drained = format!("http://{}{weight}", drained.address());
            let urls = [drained, format!("http://{}", other.0.address())];
            Setup::before_urls(urls).workers(1).upstream("connect: {idle_min: 1}")
        };
        let proxy = with(" weight=0").start();
        // A refill of the drained one that began with the first of the other one would have ended by now.
        refilled(&other, 2).await;
        assert_eq!(drained.record().connections(), 0);
        proxy.reload(&with("")).expect("it is good");
        drained.record().until(|record| record.open_connections() == 1).await;
    });
}

#[test]
fn a_server_that_refuses_connections_costs_other_replicas_nothing() {
    run(async {
        let refusing = ([127, 0, 0, 1], 1).into();
        let good = closing(2).await;
        let began = Instant::now();
        let proxy = setup(&[good.0.address(), refusing], "connect: {idle_min: 1}").start();
        refilled(&good, 2).await;
        let failed = proxy.metrics().await.sum("curtail_connections_failed_total", &[]);
        // A second after the first, two seconds after the second, and so on.
        let earliest = (1_u64 << failed.saturating_sub(1).min(60)) - 1;
        let elapsed = began.elapsed();
        assert!(
            failed > 0 && elapsed.as_secs() >= earliest,
            "{failed} have failed after {elapsed:?}"
        );
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for _ in 0..20 {
            assert_eq!(client.get("/").await.status, StatusCode::OK);
        }
    });
}

#[test]
fn the_minimum_is_at_most_the_maximum() {
    let yaml =
        setup(&[], "connect: {idle_min: 9, idle_max: 8}").and_replica(([127, 0, 0, 1], 1).into());
    let errors = Config::from_yaml("f.yaml", &yaml.yaml()).expect_err("it contradicts itself");
    assert!(errors.to_string().contains("idle_min: 9 is above idle_max (8)"), "{errors}");
}
