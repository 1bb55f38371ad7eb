//! Reloads that open, change and close sockets: listeners, leaves, the admin port, the receiver of spans.

use super::Gated;
use crate::certificates::Authority;
use crate::client::Client;
use crate::deadline::run;
use crate::proxy::{Proxy, ask_admin};
use crate::raw_replica::RawReplica;
use crate::replica::Speaks;
use crate::steady::Steady;
use crate::wire::Wire;
use curtail_proxy::Options;
use http::{StatusCode, Version};
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// A file with these listeners before one replica. Their ports are free ones of an address of this module.
fn yaml(listeners: &[&str], replica: SocketAddr, top: &str) -> String {
    let listeners: Vec<_> = listeners
        .iter()
        .map(|listener| format!("{{address: \"127.0.0.3:0\", {listener}}}"))
        .collect();
    format!(
        "workers: 2\n{top}\nlisteners: [{}]\nroutes: [{{upstream: service}}]\n\
         upstreams: {{service: {{replicas: [\"http://{replica}\"], hedge: false}}}}\n",
        listeners.join(", ")
    )
}

const GET: &str = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";

const ADMIN: &str = "admin: {address: \"127.0.0.1:0\"}";

fn start(yaml: &str) -> Proxy {
    Proxy::start(yaml, &Options::default())
}

async fn status(address: SocketAddr, version: Version) -> StatusCode {
    Client::connect(address, version).await.get("/").await.status
}

#[test]
fn listeners_open_and_close_while_another_one_serves() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let with = |listeners: &[&str]| yaml(listeners, replica.address(), ADMIN);
        let proxy = start(&with(&["name: in", "name: old"]));
        let (kept, closed) = (proxy.listener("in"), proxy.listener("old"));
        let steady = [
            Steady::start(&proxy, Version::HTTP_11).await,
            Steady::start(&proxy, Version::HTTP_2).await,
        ];
        assert_eq!(status(closed, Version::HTTP_11).await, StatusCode::OK);
        for _ in 0..10 {
            proxy.reload_yaml(&with(&["name: new", "name: in"])).expect("the reload succeeds");
            assert_eq!(proxy.listener("in"), kept, "its socket is kept");
            let opened = proxy.listener("new");
            assert_eq!(status(opened, Version::HTTP_11).await, StatusCode::OK);
            assert_eq!(status(opened, Version::HTTP_2).await, StatusCode::OK);
            proxy.reload_yaml(&with(&["name: in"])).expect("the reload succeeds");
            while TcpStream::connect(opened).await.is_ok() {}
        }
        while TcpStream::connect(closed).await.is_ok() {}
        for steady in steady {
            steady.stop().await;
        }
    });
}

#[test]
fn requests_on_a_closed_listener_end_and_its_connections_close() {
    run(async {
        let gated = Gated::start(Speaks::Http1, "responded").await;
        let with = |listeners: &[&str]| yaml(listeners, gated.replica.address(), ADMIN);
        let proxy = start(&with(&["name: in", "name: old"]));
        let old = proxy.listener("old");
        let mut idle = Wire::connect(old).await;
        let mut late = Wire::connect(old).await;
        for kept in [&mut idle, &mut late] {
            gated.gate.add_permits(1);
            kept.send(GET).await;
            assert_eq!(kept.response().await.head.status(), 200);
        }
        let pending_requests =
            [gated.ask(old, Version::HTTP_11).await, gated.ask(old, Version::HTTP_2).await];
        proxy.reload_yaml(&with(&["name: in"])).expect("the reload succeeds");
        // This request is on its way at the reload.
        late.send(GET).await;
        while TcpStream::connect(old).await.is_ok() {}
        assert_eq!(idle.read_to_close().await, "", "a connection without a request is closed");
        gated.gate.add_permits(3);
        // On a slow machine, the request comes too late and has no response.
        if let Ok(Some(last)) = late.read_head().await {
            assert_eq!((last.status(), last.get("connection")), (200, Some("close")));
        }
        for pending in pending_requests {
            assert_eq!(pending.await.expect("no panic").body, "responded");
        }
    });
}

#[test]
fn a_port_changes_between_clear_text_and_tls() {
    run(async {
        let authority = Authority::new();
        let issued = authority.issue("localhost");
        let replica = RawReplica::responding("good").await;
        let tls = format!("name: in, {}", issued.listener_keys());
        let with = |listener: &str| yaml(&[listener], replica.address(), ADMIN);
        let proxy = start(&with("name: in"));
        let address = proxy.listener("in");
        for _ in 0..2 {
            proxy.reload_yaml(&with(&tls)).expect("the reload succeeds");
            assert_eq!(proxy.listener("in"), address);
            let client = Client::connect_tls(address, authority.client(&["h2"])).await;
            assert_eq!(client.expect("a handshake").get("/").await.status, StatusCode::OK);
            proxy.reload_yaml(&with("name: in")).expect("the reload succeeds");
            assert_eq!(status(address, Version::HTTP_2).await, StatusCode::OK);
        }
    });
}

#[test]
fn an_address_in_use_changes_nothing() {
    run(async {
        let (old, new) = (RawReplica::responding("old").await, RawReplica::responding("new").await);
        let proxy = start(&yaml(&["name: in"], old.address(), ADMIN));
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let taken = taken.local_addr().expect("it is bound");
        let admin = format!("admin: {{address: \"{taken}\"}}");
        let error = proxy.reload_yaml(&yaml(&["name: in", "name: two"], new.address(), &admin));
        let error = error.expect_err("the port is taken").to_string();
        assert!(
            error.contains(&format!("listener \"admin\": cannot listen on {taken}")),
            "{error}"
        );
        let mut client = Client::connect(proxy.listener("in"), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.body, "old");
        let page = proxy.metrics().await;
        assert!(!page.to_string().contains("listener=\"two\""), "{page}");
    });
}

#[test]
fn the_admin_port_moves_opens_and_closes() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let with = |top: &str| yaml(&["name: in"], replica.address(), top);
        let proxy = start(&with(ADMIN));
        let first = proxy.admin_address();
        proxy.reload_yaml(&with("")).expect("the reload succeeds");
        while ask_admin(first, "/readyz").await.is_some() {}
        proxy.reload_yaml(&with(ADMIN)).expect("the reload succeeds");
        let second = proxy.admin_now().expect("it is open again");
        let ready = ask_admin(second, "/readyz").await.expect("it responds");
        assert_eq!(ready.head.status(), 200);
        let metrics = ask_admin(second, "/metrics").await.expect("it responds");
        let metrics = String::from_utf8(metrics.body.to_vec()).expect("text");
        assert!(metrics.contains("curtail_config_reloads_total{result=\"ok\"} 2"), "{metrics}");
    });
}

#[test]
fn spans_go_to_the_receiver_of_the_last_configuration() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let receivers = [RawReplica::responding("").await, RawReplica::responding("").await];
        let with =
            |spans: &str| yaml(&["name: in"], replica.address(), &format!("{ADMIN}\n{spans}"));
        let to = |receiver: &RawReplica| {
            format!("spans: {{endpoint: \"http://{}\"}}", receiver.address())
        };
        let [first, second] = receivers.each_ref().map(|receiver| with(&to(receiver)));
        let proxy = start(&with(""));
        let ask = async || {
            assert_eq!(status(proxy.listener("in"), Version::HTTP_11).await, StatusCode::OK);
        };
        ask().await;
        let recorded = async || proxy.metrics().await.sum("curtail_spans_recorded_total", &[]);
        assert_eq!(recorded().await, 0);
        for (nth, yaml) in [&first, &second].into_iter().enumerate() {
            proxy.reload_yaml(yaml).expect("the reload succeeds");
            ask().await;
            receivers[nth].record().until(|record| !record.requests().is_empty()).await;
        }
        assert_eq!(receivers[0].record().requests().len(), 1, "the first one gets no more");
        // Two spans for each of the two requests: that of the request and that of its attempt.
        assert_eq!(recorded().await, 4, "the count goes on");
        proxy.reload_yaml(&with("")).expect("the reload succeeds");
        ask().await;
        assert_eq!(recorded().await, 0, "spans are off");
    });
}

#[test]
fn a_leaf_changes_its_limit_and_its_requests_end() {
    run(async {
        let gated = Gated::start(Speaks::Http1, "responded").await;
        let with = |limits: &str| {
            format!(
                "workers: 1\n{ADMIN}\nleaves: [{{name: leaf, address: \"127.0.0.1:0\", server: \"http://{}\", {limits}}}]",
                gated.replica.address()
            )
        };
        let proxy = start(&with("concurrency: 1"));
        let address = proxy.listener("leaf");
        let mut pending_requests = vec![gated.ask(address, Version::HTTP_11).await];
        proxy.reload_yaml(&with("concurrency: 2, queue_len_max: 1")).expect("the reload succeeds");
        assert_eq!(proxy.listener("leaf"), address, "its socket is kept");
        for _ in 0..2 {
            pending_requests.push(gated.ask(address, Version::HTTP_11).await);
        }
        let mut queued = Client::connect(address, Version::HTTP_11).await;
        pending_requests.push(tokio::spawn(async move { queued.get("/").await }));
        proxy.until(|metrics| metrics.sum("curtail_leaf_queue_len", &[]) == 1).await;
        assert_eq!(gated.replica.record().count(), 3, "one of before, two since");
        assert_eq!(status(address, Version::HTTP_11).await, StatusCode::SERVICE_UNAVAILABLE);
        gated.gate.add_permits(4);
        for pending in pending_requests {
            assert_eq!(pending.await.expect("no panic").body, "responded");
        }
    });
}
