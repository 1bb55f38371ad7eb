//! Ties over two leaves: one copy is executed, and whatever is lost costs at most one execution more.

use super::{Gated, ask, order};
use crate::deadline::run;
use crate::proxy::{Proxy, Setup};
use crate::wire::Wire;
use curtail_units::Rng;
use http::StatusCode;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// A root that ties every read, before two replicas.
fn tying(replicas: [SocketAddr; 2]) -> Proxy {
    Setup::before(&replicas)
        .upstream("hedge: false\nbalance: round_robin\ntie: {delay: 1ms}\nretry: {backoff: 1ms}")
        .start()
}

/// Two leaves whose only slot is taken.
async fn both_busy() -> [Gated; 2] {
    let both = [Gated::start("a", "").await, Gated::start("b", "").await];
    for gated in &both {
        drop(gated.keep_busy().await);
    }
    both
}

fn executions(both: &[Gated; 2], id: &str) -> usize {
    both.iter().map(|gated| gated.server.record().executions(id)).sum()
}

#[test]
fn one_copy_is_executed_and_the_other_dropped_whichever_starts_first() {
    run(async {
        let both = both_busy().await;
        let root = tying([both[0].address(), both[1].address()]);
        let seed = 7;
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for nth in 0..30 {
            let id = format!("tied {nth}");
            let pending = ask(root.address(), &id, &[]).await;
            both[0].until_queued(1).await;
            both[1].until_queued(1).await;
            let (first, other) = if rng.chance(0.5) { (0, 1) } else { (1, 0) };
            // One slot becomes free; the copy there starts and its twin is dropped.
            both[first].respond_once();
            both[first].server.record().until(|record| record.executions(&id) == 1).await;
            both[other].until_queued(0).await;
            both[first].respond_once();
            let response = pending.await.expect("no panic");
            assert_eq!(response.status, StatusCode::OK, "{response:?}");
            assert_eq!(response.body, if first == 0 { "a" } else { "b" });
            assert_eq!(executions(&both, &id), 1, "{id}");
            drop(both[first].keep_busy().await);
        }
        let dropped = |metrics: crate::metrics::Metrics| {
            metrics.sum("curtail_leaf_dropped_total", &[("reason", "twin_started")])
        };
        assert_eq!(
            dropped(both[0].leaf.metrics().await) + dropped(both[1].leaf.metrics().await),
            30
        );
        let metrics = root.metrics().await;
        let responded =
            metrics.sum("curtail_attempts_responded_total", &[("outcome", "twin_started")]);
        let cancelled = metrics.cancelled("lost");
        assert_eq!(responded + cancelled, 30, "{metrics}");
    });
}

#[test]
fn a_leaf_responses_for_the_copy_that_it_drops() {
    run(async {
        let gated = Gated::start("a", "").await;
        let busy = gated.keep_busy().await;
        let tie = "00000000000000aa;second;127.0.0.1:9";
        let queued = ask(gated.address(), "queued", &[("curtail-tie", tie)]).await;
        gated.until_queued(1).await;
        let mut twin = Wire::connect(gated.address()).await;
        let mut tell = async |tie: &str| {
            let request = format!("GET /.curtail/twin-started/{tie} HTTP/1.1\r\nhost: h\r\n\r\n");
            twin.send(request).await;
            twin.response().await.head
        };
        assert_eq!(tell("00000000000000aa").await.status(), 204);
        let dropped = queued.await.expect("no panic");
        assert_eq!(dropped.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(dropped.error(), Some("twin_started"));
        assert_eq!(dropped.get("curtail-leaf"), Some("twin-started"));
        // The news may come before the copy that it is about.
        assert_eq!(tell("00000000000000bb").await.status(), 204);
        let tie = "00000000000000bb;second;127.0.0.1:9";
        let late = ask(gated.address(), "late", &[("curtail-tie", tie)]).await;
        assert_eq!(late.await.expect("no panic").get("curtail-leaf"), Some("twin-started"));
        assert_eq!(tell("not-a-tie").await.status(), 400);
        gated.respond_once();
        busy.await.expect("no panic");
        assert_eq!(order(&gated.server), ["blocker"]);
    });
}

#[test]
fn a_leaf_that_crashes_after_its_twin_was_dropped_costs_no_response() {
    run(async {
        let [a, b] = both_busy().await;
        let root = tying([a.address(), b.address()]);
        let pending = ask(root.address(), "tied", &[]).await;
        a.until_queued(1).await;
        b.until_queued(1).await;
        a.respond_once();
        a.server.record().until(|record| record.executions("tied") == 1).await;
        b.until_queued(0).await;
        // The copy at `a` is being worked on, the one at `b` is gone: now `a` goes as well.
        a.leaf.stop(Duration::ZERO).await.expect("it stops");
        b.respond_once();
        b.server.record().until(|record| record.executions("tied") == 1).await;
        b.respond_once();
        let response = pending.await.expect("no panic");
        assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"b"[..]), "{response:?}");
        assert_eq!(root.metrics().await.attempts("tie_started_lost"), 1);
    });
}

#[test]
fn a_server_that_fails_after_the_twin_was_dropped_costs_no_response() {
    run(async {
        let [a, b] = both_busy().await;
        let root = tying([a.address(), b.address()]);
        let pending = ask(root.address(), "tied", &[]).await;
        a.until_queued(1).await;
        b.until_queued(1).await;
        a.respond_once();
        a.server.record().until(|record| record.executions("tied") == 1).await;
        b.until_queued(0).await;
        drop(a.server);
        b.respond_once();
        b.respond_once();
        let response = pending.await.expect("no panic");
        assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"b"[..]), "{response:?}");
    });
}

/// Passes connections on, but swallows those on which leaves tell each other what has started.
async fn losing_messages(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.expect("connections come");
            tokio::spawn(async move {
                let mut first = [0; 24];
                // Requests are longer than that and come in one piece.
                let seen = client.peek(&mut first).await.expect("a request");
                if first[..seen].starts_with(b"GET /.curtail/twin-start") {
                    return;
                }
                let mut leaf = TcpStream::connect(to).await.expect("the leaf listens");
                // Either side may end it: that is no matter of the relay.
                tokio::io::copy_bidirectional(&mut client, &mut leaf).await.ok();
            });
        }
    });
    address
}

#[test]
fn a_lost_message_costs_at_most_one_execution_and_no_response() {
    run(async {
        let both = both_busy().await;
        let relays =
            [losing_messages(both[0].address()).await, losing_messages(both[1].address()).await];
        let root = tying(relays);
        let pending = ask(root.address(), "tied", &[]).await;
        both[0].until_queued(1).await;
        both[1].until_queued(1).await;
        // Both servers become free, and neither leaf hears of the other's start.
        for gated in &both {
            gated.respond_once();
            gated.server.record().until(|record| record.executions("tied") == 1).await;
        }
        both[1].respond_once();
        let response = pending.await.expect("no panic");
        assert_eq!((response.status, &*response.body), (StatusCode::OK, &b"b"[..]), "{response:?}");
        assert_eq!(executions(&both, "tied"), 2);
        // The other execution is stopped, and its slot is free again.
        both[0].server.record().until(|record| record.reset() == 1).await;
        both[0].until(|metrics| metrics.sum("curtail_leaf_in_service", &[]) == 0).await;
        let cancels = both[1].leaf.metrics().await.sum("curtail_leaf_twin_cancels_total", &[]);
        assert_eq!(cancels, 1, "the message was sent, and lost");
    });
}

#[test]
fn on_idle_leaves_the_copy_that_starts_at_once_is_the_only_one() {
    run(async {
        let both = [Gated::start("a", "").await, Gated::start("b", "").await];
        let root = Setup::before(&[both[0].address(), both[1].address()])
            .upstream("hedge: false\nbalance: round_robin\ntie: {delay: 50ms}")
            .start();
        for nth in 0..10 {
            both[0].respond_once();
            both[1].respond_once();
            let id = nth.to_string();
            let response = ask(root.address(), &id, &[]).await.await.expect("no panic");
            assert_eq!(response.status, StatusCode::OK);
            assert_eq!(executions(&both, &id), 1);
            both[usize::from(response.body == "a")].gate.forget_permits(1);
        }
    });
}
