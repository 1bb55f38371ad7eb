//! Spans at a receiver: what was cancelled is no error, and a request encloses its calls and attempts.

use crate::access_log::lines_after;
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::proxy::Proxy;
use crate::replica::{Replica, Speaks, ok};
use curtail_proxy::Options;
use decoded::Span;
use http::{StatusCode, Version};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, Semaphore};

#[path = "../../src/spans/decoded.rs"]
mod decoded;

const ERROR: u64 = 2;

/// A receiver of spans, over HTTP.
struct Receiver {
    replica: Replica,
    received: Arc<(Mutex<Vec<Span>>, Notify)>,
}

impl Receiver {
    async fn start() -> Self {
        let received = Arc::<(Mutex<Vec<Span>>, Notify)>::default();
        let receives = Arc::clone(&received);
        let replica = Replica::start(Speaks::Http1, move |request| {
            let receives = Arc::clone(&receives);
            async move {
                let batch = request.into_body().collect().await.expect("a whole batch").to_bytes();
                let (spans, changed) = &*receives;
                let mut spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
                spans.extend(decoded::request(&batch).spans);
                changed.notify_one();
                ok("")
            }
        })
        .await;
        Self { replica, received }
    }

    /// The key of a configuration that sends spans to this receiver.
    fn key(&self) -> String {
        format!("spans: {{endpoint: \"http://{}\"}}\n", self.replica.address())
    }

    /// Waits for this many spans.
    async fn spans(&self, count: usize) -> Vec<Span> {
        let (spans, changed) = &*self.received;
        loop {
            let spans = spans.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if spans.len() >= count {
                assert_eq!(spans.len(), count, "{spans:?}");
                return spans;
            }
            changed.notified().await;
        }
    }
}

fn start(yaml: &str) -> Proxy {
    Proxy::start(yaml, &Options { journal: None, seed: 7, ..Options::default() })
}

/// A proxy of one worker that sends spans to `receiver`; `keys` are its upstreams and further keys.
fn proxy(receiver: &Receiver, route: &str, keys: &str) -> Proxy {
    let route = format!("routes: [{{{route}}}]\n");
    let listen = "listeners: [{address: \"127.0.0.1:0\"}]\n";
    start(&[&*top(receiver), listen, &route, keys].concat())
}

fn top(receiver: &Receiver) -> String {
    format!("workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\n{}", receiver.key())
}

fn shards(addresses: &[&Replica], keys: &str) -> String {
    let shards = addresses.iter().enumerate().map(|(nth, replica)| {
        let address = replica.address();
        format!("  shard-{nth}: {{replicas: [\"http://{address}\"], retry: false{keys}}}\n")
    });
    format!("upstreams:\n{}", shards.collect::<String>())
}

/// The span whose attribute has this value, and whose parent is `parent` if there is one.
fn find<'s>(spans: &'s [Span], (key, value): (&str, &str), parent: Option<&Span>) -> &'s Span {
    let is_wanted = |span: &&Span| {
        span.text(key) == Some(value) && parent.is_none_or(|parent| span.parent == parent.span_id)
    };
    spans.iter().find(is_wanted).unwrap_or_else(|| panic!("{key} {value}: {spans:?}"))
}

fn root(spans: &[Span]) -> &Span {
    let is_child = |span: &Span| spans.iter().any(|parent| parent.span_id == span.parent);
    spans.iter().find(|span| !is_child(span)).expect("a span without a parent")
}

/// Fails unless every span encloses its children.
fn assert_enclosed(spans: &[Span]) {
    for span in spans {
        let Some(parent) = spans.iter().find(|parent| parent.span_id == span.parent) else {
            continue;
        };
        let is_enclosed =
            parent.start_unix_ns <= span.start_unix_ns && span.end_unix_ns <= parent.end_unix_ns;
        assert!(is_enclosed, "{span:?} in {parent:?}");
    }
}

fn assert_cancelled(span: &Span, reason: &str) {
    assert_eq!(span.text("curtail.cancelled"), Some(reason), "{}", span.lines());
    assert_eq!((span.status, span.get("error.type")), (0, None), "{}", span.lines());
    assert_eq!(span.get("http.response.status_code"), None, "{}", span.lines());
}

/// A server that responds once for each permit.
async fn server(permits: usize) -> (Replica, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(permits));
    let opens = Arc::clone(&gate);
    let server = Replica::start(Speaks::Http1, move |_| {
        let opens = Arc::clone(&opens);
        async move {
            opens.acquire().await.expect("never closed").forget();
            ok("good")
        }
    });
    (server.await, gate)
}

#[test]
fn a_call_that_is_not_needed_any_more_is_no_error_and_ends_within_its_request() {
    run(async {
        let receiver = Receiver::start().await;
        let [(good, _), (hangs, _)] = [server(1).await, server(0).await];
        let route = "upstream: \"shard-*\", fan_out: {needed: 1}";
        let proxy = proxy(&receiver, route, &shards(&[&good, &hangs], ""));
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        let spans = receiver.spans(5).await;
        assert!(spans.iter().all(|span| span.status != ERROR), "{spans:?}");
        assert_enclosed(&spans);
        let call = find(&spans, ("curtail.upstream", "shard-1"), Some(root(&spans)));
        assert_cancelled(call, "enough");
        assert_eq!(
            call.text("curtail.cancelled.detail"),
            Some("1 calls succeeded, 1 needed"),
            "{}",
            call.lines()
        );
        assert_cancelled(find(&spans, ("curtail.upstream", "shard-1"), Some(call)), "enough");
        let good = find(&spans, ("curtail.upstream", "shard-0"), Some(root(&spans)));
        assert_eq!(good.get("curtail.cancelled"), None, "{}", good.lines());
        assert_eq!(good.int("http.response.status_code"), Some(200), "{}", good.lines());
    });
}

#[test]
fn the_calls_of_a_client_that_leaves_end_within_its_request() {
    run(async {
        let (receiver, (hangs, _)) = (Receiver::start().await, server(0).await);
        let keys = shards(&[&hangs], "");
        let proxy = proxy(&receiver, "upstream: \"shard-*\", fan_out: {}", &keys);
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let request = client.request("GET", "/");
        tokio::select! {
            response = client.try_send(request) => panic!("the shard hangs: {response:?}"),
            () = hangs.record().until(|record| record.count() == 1) => {}
        }
        drop(client);
        let spans = receiver.spans(3).await;
        assert_enclosed(&spans);
        let request = root(&spans);
        let call = find(&spans, ("curtail.upstream", "shard-0"), Some(request));
        for span in [request, call] {
            let error = (span.status, span.text("error.type"));
            assert_eq!(error, (ERROR, Some("client_gone")), "{}", span.lines());
        }
    });
}

#[test]
fn a_dropped_copy_of_a_tie_is_no_error_and_has_a_span_at_its_leaf() {
    run(async {
        let (at_root, at_leaf) = (Receiver::start().await, Receiver::start().await);
        let servers = [server(0).await, server(0).await];
        let leaves = servers.each_ref().map(|(server, _)| {
            let server = server.address();
            let leaf = format!(
                "{{name: leaf, address: \"127.0.0.1:0\", server: \"http://{server}\", concurrency: 1}}"
            );
            start(&format!("{}leaves: [{leaf}]\n", top(&at_leaf)))
        });
        let replicas =
            leaves.each_ref().map(|leaf| format!("\"http://{}\"", leaf.listener("leaf")));
        let keys = "hedge: false, balance: round_robin, tie: {delay: 1ms}";
        let directory = Directory::new();
        let file = directory.path("access.log");
        let keys = format!(
            "access_log: {{file: {}}}\nupstreams: {{service: {{replicas: [{}], {keys}}}}}\n",
            file.display(),
            replicas.join(", ")
        );
        let proxy = proxy(&at_root, "upstream: service", &keys);
        // The first server is busy for the whole test, the second one until both copies are queued.
        for ((server, _), leaf) in servers.iter().zip(&leaves) {
            let mut client = Client::connect(leaf.listener("leaf"), Version::HTTP_11).await;
            tokio::spawn(async move { client.get("/busy").await });
            server.record().until(|record| record.count() == 1).await;
        }
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let tied = tokio::spawn(async move { client.get("/tied").await });
        for leaf in &leaves {
            leaf.until(|metrics| metrics.sum("curtail_leaf_queue_len", &[]) == 1).await;
        }
        servers[1].1.add_permits(1);
        let dropped = ("curtail_attempts_responded_total", [("outcome", "twin_started")]);
        proxy.until(|metrics| metrics.sum(dropped.0, &dropped.1) == 1).await;
        servers[1].1.add_permits(1);
        assert_eq!(tied.await.expect("no panic").status, StatusCode::OK);

        let spans = at_root.spans(3).await;
        assert!(spans.iter().all(|span| span.status != ERROR), "{spans:?}");
        assert_enclosed(&spans);
        let dropped = find(&spans, ("curtail.tie", "first"), None);
        assert_cancelled(dropped, "twin_started");
        let line = &lines_after(&proxy, 1, &file).await[0];
        let copy = &line["attempts"][0];
        let outcome = (&copy["outcome"], &copy["outcome_reason"], copy.get("status"));
        assert_eq!(outcome, (&json!("cancelled"), &json!("twin_started"), None), "{line}");
        let ms = |value: &Value| value.as_f64().expect("a number");
        let ended = ms(&copy["start_ms"]) + ms(&copy["duration_ms"]);
        assert!(ended < ms(&line["first_byte_ms"]), "it ended when it was dropped: {line}");
        // The first request of the second server and the copy there have two spans each, the dropped copy has one.
        let spans = at_leaf.spans(5).await;
        assert!(spans.iter().all(|span| span.status != ERROR), "{spans:?}");
        let at_leaf = spans.iter().find(|span| span.parent == dropped.span_id);
        let at_leaf = at_leaf.expect("the span of the dropped copy at its leaf");
        assert_cancelled(at_leaf, "twin_started");
        assert!(at_leaf.int("curtail.leaf.wait_ns").is_some(), "{}", at_leaf.lines());
    });
}

#[test]
fn a_response_that_cannot_be_merged_is_named_with_its_reason() {
    run(async {
        let (receiver, (good, _)) = (Receiver::start().await, server(2).await);
        let directory = Directory::new();
        let file = directory.path("access.log");
        let log = format!("access_log: {{file: {}}}\n", file.display());
        let route = "upstream: \"shard-*\", fan_out: {merge: json_array}";
        let keys = log + &shards(&[&good], "");
        let proxy = proxy(&receiver, route, &keys);
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let response = client.get("/").await;
        assert_eq!(response.error(), Some("shards_failed"));
        assert_eq!(response.body, "curtail: shards_failed: shard-0: not_a_json_array\n");

        let spans = receiver.spans(3).await;
        let request = root(&spans);
        assert_eq!(request.text("error.type"), Some("shards_failed"), "{}", request.lines());
        let detail = request.text("curtail.error.detail");
        assert_eq!(detail, Some("shard-0: not_a_json_array"), "{}", request.lines());
        assert_eq!(request.get("http.response.body.size"), None, "it is the proxy's own");
        let call = find(&spans, ("curtail.upstream", "shard-0"), Some(request));
        assert_eq!(call.text("error.type"), Some("not_a_json_array"), "{}", call.lines());
        assert_eq!((call.status, call.int("http.response.status_code")), (ERROR, Some(200)));
        let attempt = find(&spans, ("curtail.upstream", "shard-0"), Some(call));
        assert_eq!(attempt.status, 0, "the replica responded well: {}", attempt.lines());

        let lines = lines_after(&proxy, 1, &file).await;
        assert_eq!(lines[0]["error"], "shards_failed", "{}", lines[0]);
        assert_eq!(lines[0]["error_detail"], "shard-0: not_a_json_array", "{}", lines[0]);
        assert_eq!(lines[0].get("response_bytes"), None, "{}", lines[0]);
        let head = client.request("HEAD", "/");
        assert_eq!(client.send(head).await.status, StatusCode::OK);
        let lines = lines_after(&proxy, 2, &file).await;
        assert_eq!(lines[1]["response_bytes"], json!(0), "a merged response: {}", lines[1]);
    });
}
