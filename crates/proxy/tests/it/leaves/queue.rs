//! One leaf: its load, the order of its queue, and its bound.

use super::{Gated, ask, order};
use crate::access_log::{lines_after, logging};
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::proxy::{Proxy, Setup};
use crate::refused_streams::{Refusing, RefusingReplica};
use crate::replica::{Replica, Speaks};
use crate::wire::Wire;
use curtail_proxy::Options;
use http::{HeaderValue, StatusCode, Version};
use serde_json::json;
use tokio::task::JoinHandle;

#[test]
fn a_probe_is_rejected_with_the_load() {
    run(async {
        let gated = Gated::start("a", "").await;
        let mut prober = Client::connect(gated.address(), Version::HTTP_11).await;
        let idle = prober.get("/.curtail/load").await;
        assert_eq!(idle.status, StatusCode::NO_CONTENT);
        assert!(idle.get("curtail-load").expect("a load").starts_with("in_flight=0;latency_ns="));
        let busy = gated.keep_busy().await;
        let waiting = ask(gated.address(), "waiting", &[]).await;
        gated.until_queued(1).await;
        let loaded = prober.get("/.curtail/load").await;
        assert!(loaded.get("curtail-load").expect("a load").starts_with("in_flight=2;"));
        gated.respond_once();
        gated.respond_once();
        busy.await.expect("no panic");
        waiting.await.expect("no panic");
        let load = prober.get("/.curtail/load").await;
        let latency =
            load.get("curtail-load").expect("a load").strip_prefix("in_flight=0;latency_ns=");
        let latency_ns: u64 = latency.expect("nothing in flight").parse().expect("a number");
        assert!(latency_ns > 0, "two requests took some time");
        assert_eq!(gated.server.record().count(), 2, "a probe reached the server");
    });
}

#[test]
fn classes_are_served_in_their_order_and_first_come_first_served_within() {
    run(async {
        let gated = Gated::start("a", "").await;
        let mut pending_requests = vec![gated.keep_busy().await];
        let queued = [
            ("background 1", "background"),
            ("batch 1", "batch"),
            ("interactive 1", "interactive"),
            ("batch 2", "batch"),
            ("interactive 2", "interactive"),
            ("background 2", "background"),
        ];
        for ((id, class), len) in queued.into_iter().zip(1..) {
            pending_requests.push(ask(gated.address(), id, &[("curtail-class", class)]).await);
            gated.until_queued(len).await;
        }
        for _ in &pending_requests {
            gated.respond_once();
        }
        for pending in pending_requests {
            assert_eq!(pending.await.expect("no panic").status, StatusCode::OK);
        }
        let want = [
            "blocker",
            "interactive 1",
            "interactive 2",
            "batch 1",
            "batch 2",
            "background 1",
            "background 2",
        ];
        assert_eq!(order(&gated.server), want);
    });
}

#[test]
fn a_full_queue_refuses_and_says_so() {
    run(async {
        let gated = Gated::start("a", ", queue_len_max: 1").await;
        let busy = gated.keep_busy().await;
        let waiting = ask(gated.address(), "waiting", &[("curtail-class", "batch")]).await;
        gated.until_queued(1).await;
        let rejected = ask(gated.address(), "refused", &[("curtail-class", "batch")]).await;
        let rejected = rejected.await.expect("no panic");
        assert_eq!(rejected.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(rejected.error(), Some("queue_full"));
        assert_eq!(rejected.get("curtail-leaf"), Some("refused"));
        // A more urgent request takes the place of one that waits.
        let urgent = ask(gated.address(), "urgent", &[]).await;
        let pushed_out = waiting.await.expect("no panic");
        assert_eq!(pushed_out.error(), Some("queue_full"));
        gated.respond_once();
        gated.respond_once();
        for pending in [busy, urgent] {
            assert_eq!(pending.await.expect("no panic").status, StatusCode::OK);
        }
        assert_eq!(order(&gated.server), ["blocker", "urgent"]);
        let metrics = gated.until(|m| m.sum("curtail_leaf_in_service", &[]) == 0).await;
        assert_eq!(metrics.sum("curtail_leaf_refused_total", &[("reason", "queue_full")]), 1);
        assert_eq!(metrics.sum("curtail_leaf_refused_total", &[("reason", "pushed_out")]), 1);
    });
}

#[test]
fn what_one_leaf_refuses_another_takes() {
    run(async {
        let full = Gated::start("full", ", queue_len_max: 0").await;
        let free = Gated::start("free", ", queue_len_max: 8").await;
        let _busy = full.keep_busy().await;
        let root = Setup::before(&[full.address(), free.address()])
            .upstream("balance: round_robin\nhedge: false")
            .start();
        for nth in 0..6 {
            free.respond_once();
            let id = nth.to_string();
            let mut client = Client::connect(root.address(), Version::HTTP_11).await;
            // A POST too: a leaf that refuses has not let the server see it.
            let mut request = client.request("POST", "/");
            request.headers_mut().insert("x-request-id", id.parse().expect("plain text"));
            let response = client.send(request).await;
            assert_eq!(
                (response.status, &*response.body),
                (StatusCode::OK, &b"free"[..]),
                "{response:?}"
            );
            assert_eq!(free.server.record().executions(&id), 1);
        }
        assert_eq!(order(&full.server), ["blocker"]);
        let metrics = root.metrics().await;
        let rejected_count =
            metrics.sum("curtail_attempts_responded_total", &[("outcome", "refused")]);
        assert!(rejected_count > 0, "the full leaf got no request: {metrics}");
    });
}

#[test]
fn when_every_leaf_refuses_the_client_and_the_access_log_learn_why() {
    run(async {
        let (a, b) = (
            Gated::start("a", ", queue_len_max: 0").await,
            Gated::start("b", ", queue_len_max: 0").await,
        );
        let _busy = (a.keep_busy().await, b.keep_busy().await);
        let directory = Directory::new();
        let log = directory.path("access.log");
        let setup = Setup::before(&[a.address(), b.address()])
            .upstream("hedge: false\nretry: {backoff: 1ms}");
        let root = logging(&setup, &log, "").start();
        let response = ask(root.address(), "x", &[]).await.await.expect("no panic");
        assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!((response.error(), response.get("curtail-leaf")), (Some("queue_full"), None));
        let mut client = Client::connect(root.address(), Version::HTTP_2).await;
        let mut call = client.request("POST", "/pkg.Service/Method");
        call.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        let response = client.send(call).await;
        assert_eq!((response.status, response.error()), (StatusCode::OK, Some("queue_full")));
        assert_eq!((response.get("grpc-status"), response.body.len()), (Some("14"), 0));
        for line in lines_after(&root, 2, &log).await {
            let found = (&line["status"], &line["error"]);
            assert_eq!(found, (&json!(503), &json!("queue_full")), "{line}");
        }
    });
}

/// Sends a read under an id from a client that goes away when the task is aborted.
async fn ask_until_gone(gated: &Gated, id: &'static str, version: Version) -> JoinHandle<()> {
    let mut client = Client::connect(gated.address(), version).await;
    let mut request = client.request("GET", "/");
    request.headers_mut().insert("x-request-id", HeaderValue::from_static(id));
    tokio::spawn(async move { drop(client.try_send(request).await) })
}

#[test]
fn a_root_that_goes_away_leaves_the_queue_and_frees_the_slot() {
    run(async {
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let gated = Gated::start("a", "").await;
            let in_service = ask_until_gone(&gated, "in service", version).await;
            gated.server.record().until(|record| record.executions("in service") == 1).await;
            let queued = ask_until_gone(&gated, "queued", version).await;
            gated.until_queued(1).await;
            let last = ask(gated.address(), "last", &[]).await;
            gated.until_queued(2).await;
            queued.abort();
            gated.until_queued(1).await;
            in_service.abort();
            // The one that is left gets the slot, and the one that was queued never reached the server.
            gated.server.record().until(|record| record.executions("last") == 1).await;
            gated.respond_once();
            assert_eq!(last.await.expect("no panic").status, StatusCode::OK);
            assert_eq!(order(&gated.server), ["in service", "last"]);
            gated.until(|metrics| metrics.sum("curtail_leaf_in_service", &[]) == 0).await;
        }
    });
}

#[test]
fn the_age_of_a_request_that_is_cancelled_in_service_is_not_its_latency() {
    run(async {
        let gated = Gated::start("a", "").await;
        let mut prober = Client::connect(gated.address(), Version::HTTP_11).await;
        gated.serve_slowly(&mut prober).await;
        let load = prober.get("/.curtail/load").await;
        let in_service = ask_until_gone(&gated, "in service", Version::HTTP_11).await;
        gated.server.record().until(|record| record.executions("in service") == 1).await;
        in_service.abort();
        gated.until(|metrics| metrics.sum("curtail_leaf_in_service", &[]) == 0).await;
        let after = prober.get("/.curtail/load").await;
        assert_eq!(after.get("curtail-load"), load.get("curtail-load"));
    });
}

#[test]
fn what_roots_and_leaves_say_to_each_other_is_not_taken_from_clients() {
    run(async {
        let gated = Gated::start("a", "").await;
        let root = Setup::before(&[gated.address()]).start();
        let mut wire = Wire::connect(root.address()).await;
        for path in ["/.curtail/load", "/.curtail/twin-started/00000000000000aa"] {
            wire.send(format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n")).await;
            let response = wire.response().await.head;
            assert_eq!((response.status(), response.get("curtail-error")), (404, Some("no_route")));
        }
        gated.respond_once();
        wire.send(
            "GET / HTTP/1.1\r\nhost: h\r\ncurtail-tie: 00000000000000aa;first;127.0.0.1:1\r\n\r\n",
        )
        .await;
        assert_eq!(wire.response().await.head.status(), 200);
        let metrics = gated.leaf.metrics().await;
        assert_eq!(
            metrics.sum("curtail_leaf_twin_cancels_total", &[]),
            0,
            "a client's tie was taken"
        );
    });
}

/// A leaf whose server does not listen.
async fn leaf_without_server() -> Proxy {
    let server = Replica::responding(Speaks::Http1, "").await.address();
    Proxy::of_leaves(&[format!(
        "{{name: leaf, address: \"127.0.0.1:0\", server: \"http://{server}\"}}"
    )])
}

#[test]
fn what_a_leaf_cannot_send_to_its_server_another_leaf_takes() {
    run(async {
        let (down, free) = (leaf_without_server().await, Gated::start("free", "").await);
        let root = Setup::before(&[down.listener("leaf"), free.address()])
            .upstream("balance: round_robin\nhedge: false")
            .start();
        let mut client = Client::connect(root.address(), Version::HTTP_11).await;
        for _ in 0..6 {
            free.respond_once();
            let response = client.send(client.request("POST", "/")).await;
            assert_eq!(
                (response.status, &*response.body),
                (StatusCode::OK, &b"free"[..]),
                "{response:?}"
            );
        }
        let metrics = root.metrics().await;
        let not_sent = [("failure", "not_sent")];
        assert!(metrics.sum("curtail_attempts_failed_total", &not_sent) > 0, "{metrics}");
    });
}

#[test]
fn a_leaf_that_cannot_reach_its_server_is_ejected_as_the_server_would_be() {
    run(async {
        let down = leaf_without_server().await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let setup = Setup::before(&[down.listener("leaf")]).upstream("retry: false");
        let root = logging(&setup, &file, "").start();
        let mut client = Client::connect(root.address(), Version::HTTP_11).await;
        for _ in 0..3 {
            let response = client.get("/").await;
            assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(
                (response.error(), response.get("curtail-leaf")),
                (Some("not_sent"), None),
                "{response:?}"
            );
        }
        for line in lines_after(&root, 3, &file).await {
            let attempt = &line["attempts"][0];
            let outcome = (&attempt["outcome"], &attempt["outcome_reason"], &attempt["status"]);
            assert_eq!(outcome, (&json!("failed"), &json!("not_sent"), &json!(503)), "{line}");
        }
        let metrics = root.metrics().await;
        for (name, label, count) in [
            ("curtail_attempts_failed_total", ("failure", "not_sent"), 3),
            ("curtail_attempts_responded_total", ("outcome", "bad"), 0),
            ("curtail_replica_ejections_total", ("reason", "not_sent"), 1),
        ] {
            assert_eq!(metrics.sum(name, &[label]), count, "{name}: {metrics}");
        }
    });
}

#[test]
fn requests_that_the_server_did_not_get_have_no_latency() {
    run(async {
        let gated = Gated::start("a", "").await;
        let mut client = Client::connect(gated.address(), Version::HTTP_11).await;
        gated.serve_slowly(&mut client).await;
        let before = client.get("/.curtail/load").await;
        let Gated { leaf, server, gate: _ } = gated;
        drop(server);
        leaf.until(|metrics| metrics.sum("curtail_connections_open", &[]) == 0).await;
        for _ in 0..3 {
            assert_eq!(client.get("/").await.error(), Some("not_sent"));
        }
        let after = client.get("/.curtail/load").await;
        assert_eq!(after.get("curtail-load"), before.get("curtail-load"));
    });
}

#[test]
fn a_leaf_whose_server_refuses_streams_refuses_and_is_not_ejected() {
    run(async {
        let server = RefusingReplica::start(Refusing::EachStream).await;
        let (address, connect) = (server.address(), "connect: {protocol: http2}");
        let leaf = format!(
            "leaves: [{{address: \"127.0.0.1:0\", server: \"http://{address}\", {connect}}}]\n\
             admin: {{address: \"127.0.0.1:0\"}}\n"
        );
        let leaf = Proxy::start(&leaf, &Options { seed: 7, ..Options::default() });
        let root = Setup::before(&[leaf.listener("leaf")]).upstream("retry: false").start();
        let mut client = Client::connect(root.address(), Version::HTTP_11).await;
        for _ in 0..10 {
            assert_eq!(client.get("/").await.error(), Some("unprocessed"));
        }
        let metrics = root.metrics().await;
        let responded = "curtail_attempts_responded_total";
        assert_eq!(metrics.sum(responded, &[("outcome", "refused")]), 10, "{metrics}");
        assert_eq!(metrics.sum("curtail_replica_ejections_total", &[]), 0, "{metrics}");
    });
}

#[test]
fn a_leaf_at_its_limit_of_connections_refuses_and_is_not_ejected() {
    run(async {
        let gated = Gated::with_concurrency("a", 2, ", connect: {connections_max: 1}").await;
        let root = Setup::before(&[gated.address()]).upstream("retry: false").start();
        let busy = gated.keep_busy().await;
        let mut client = Client::connect(root.address(), Version::HTTP_11).await;
        for _ in 0..10 {
            let refused = client.get("/").await;
            assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(refused.error(), Some("connection_limit"));
        }
        let metrics = root.metrics().await;
        let responded = "curtail_attempts_responded_total";
        assert_eq!(metrics.sum(responded, &[("outcome", "refused")]), 10, "{metrics}");
        assert_eq!(metrics.sum("curtail_replica_ejections_total", &[]), 0, "{metrics}");
        gated.respond_once();
        busy.await.expect("no panic");
    });
}
