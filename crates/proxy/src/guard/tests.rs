//! Panics planted in each machine: every request still gets a response.

use super::planted::{ENCODER_PANICS, plant};
use super::{DefectLog, Guard, LOG_INTERVAL, Step};
use crate::driver::{Driver, Effects, SharedParts, Upstream};
use crate::snapshot::ProcessState;
use crate::{Config, Options, Running};
use curtail_policy::{Event, GatherEvent, LeafEvent, Request, UpstreamEvent};
use curtail_units::{Duration, Instant, Rng};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

const CALL: fn(&Step) -> bool = |step| matches!(step, Step::Call(_));
const ARRIVAL: fn(&Step) -> bool = |step| matches!(step, Step::Call(Event::Arrived));
const TIMER: fn(&Step) -> bool = |step| matches!(step, Step::Call(Event::Woke));
const GATHER: fn(&Step) -> bool = |step| matches!(step, Step::Gather(_));
const UPSTREAM: fn(&Step) -> bool = |step| matches!(step, Step::Upstream(_));
const LEAF: fn(&Step) -> bool = |step| matches!(step, Step::Leaf(_));
const READ: fn(&Step) -> bool = |step| matches!(step, Step::Read);
const EFFECTS: fn(&Step) -> bool = |step| matches!(step, Step::Effects);

/// A server that responds to a request for each permit, and to `/now` at once.
struct Server {
    address: SocketAddr,
    permits: Arc<Semaphore>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    executed: AtomicUsize,
    in_service: AtomicUsize,
    in_service_max: AtomicUsize,
    changed: Notify,
}

impl Server {
    async fn start(permits: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("it is bound");
        let permits = Arc::new(Semaphore::new(permits));
        let counts = Arc::<Counts>::default();
        let server = Self { address, permits: Arc::clone(&permits), counts: Arc::clone(&counts) };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("connections come");
                tokio::spawn(serve(stream, Arc::clone(&permits), Arc::clone(&counts)));
            }
        });
        server
    }

    /// Waits until `wanted` requests are in service.
    async fn until_in_service(&self, wanted: usize) {
        until(&self.counts.changed, || self.counts.in_service.load(Ordering::SeqCst) == wanted)
            .await;
    }

    fn executed(&self) -> usize {
        self.counts.executed.load(Ordering::SeqCst)
    }
}

async fn until(changed: &Notify, so: impl Fn() -> bool) {
    loop {
        let notified = changed.notified();
        if so() {
            return;
        }
        notified.await;
    }
}

async fn serve(mut stream: TcpStream, permits: Arc<Semaphore>, counts: Arc<Counts>) {
    while let Some(head) = read_head(&mut stream).await {
        if !head.contains(" /.curtail/load ") {
            counts.executed.fetch_add(1, Ordering::SeqCst);
        }
        let in_service = counts.in_service.fetch_add(1, Ordering::SeqCst) + 1;
        counts.in_service_max.fetch_max(in_service, Ordering::SeqCst);
        counts.changed.notify_waiters();
        if !head.contains(" /now ") {
            permits.acquire().await.expect("never closed").forget();
        }
        counts.in_service.fetch_sub(1, Ordering::SeqCst);
        counts.changed.notify_waiters();
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood";
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads up to the empty line; the requests here have no body.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).expect("text"))
}

/// Sends one request on a new connection and returns the whole response.
async fn ask(address: SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("the proxy listens");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("the proxy reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response");
    response
}

fn is_good(response: &str) -> bool {
    response.starts_with("HTTP/1.1 200 ") && response.ends_with("good")
}

fn config(yaml: &str) -> Config {
    let yaml = format!("workers: 1\nadmin: {{address: \"127.0.0.1:0\"}}\n{yaml}");
    Config::from_yaml("test.yaml", &yaml).expect("a configuration")
}

fn start(yaml: &str) -> Running {
    crate::start(config(yaml), &Options::default()).expect("loopback and threads")
}

/// A proxy in front of these servers; the upstream has the name of its machine.
fn root(name: &str, servers: &[&Server], keys: &str) -> Running {
    start(&root_yaml(name, servers, keys))
}

fn root_yaml(name: &str, servers: &[&Server], keys: &str) -> String {
    let urls: Vec<_> = servers.iter().map(|server| format!("http://{}", server.address)).collect();
    format!(
        "listeners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: {name}}}]\n\
         upstreams: {{{name}: {{replicas: [{}], {keys}}}}}",
        urls.join(", ")
    )
}

async fn admin(proxy: &Running, path: &str) -> String {
    ask(proxy.admin().expect("it has one"), "GET", path).await
}

/// Waits until this many machines have panicked.
async fn until_panics(proxy: &Running, count: &str) {
    while panics(proxy).await != count {
        tokio::task::yield_now().await;
    }
}

/// The number of machine panics so far.
async fn panics(proxy: &Running) -> String {
    let metrics = admin(proxy, "/metrics").await;
    let line =
        metrics.lines().find(|line| line.starts_with("curtail_policy_invariants_broken_total"));
    line.expect("it is always shown").split(' ').next_back().expect("a count").to_owned()
}

#[tokio::test]
async fn a_request_whose_machine_panics_on_its_arrival_gets_a_response() {
    let server = Server::start(0).await;
    let proxy = root("arrival", &[&server], "retry: false");
    let address = proxy.listeners()[0].1;
    for method in ["GET", "POST"] {
        plant("arrival", CALL);
        assert!(is_good(&ask(address, method, "/now").await));
        assert!(is_good(&ask(address, method, "/now").await), "the next one");
    }
    assert_eq!((panics(&proxy).await, server.executed()), ("2".to_owned(), 4));
    assert!(admin(&proxy, "/state").await.contains("\"in_flight\": 0"));
}

/// The rules of the balance and the budget run in the event of an arrival.
#[tokio::test]
async fn a_panic_or_an_impossible_decision_at_any_step_of_a_request_costs_only_its_remedies() {
    let ended: fn(&Step) -> bool = |step| matches!(step, Step::Call(Event::Ended { .. }));
    let responded: fn(&Step) -> bool = |step| matches!(step, Step::Call(Event::Responded { .. }));
    let servers = [Server::start(0).await, Server::start(0).await];
    for (name, is_at, keys) in [
        ("random", ARRIVAL, "balance: random"),
        ("round-robin", ARRIVAL, "balance: round_robin"),
        ("least-request", ARRIVAL, "balance: least_request"),
        ("peak-ewma", ARRIVAL, "balance: peak_ewma"),
        ("prequal", ARRIVAL, "balance: prequal"),
        ("in-a-group", ARRIVAL, "group: shards"),
        ("responded", responded, "retry: false"),
        ("ended", ended, "retry: false"),
        ("impossible", EFFECTS, "retry: false"),
    ] {
        let proxy = root(name, &[&servers[0], &servers[1]], keys);
        plant(name, is_at);
        for nth in ["first", "next"] {
            let response = ask(proxy.listeners()[0].1, "POST", "/now").await;
            assert!(is_good(&response), "{name}, {nth}: {response}");
        }
        assert_eq!(panics(&proxy).await, "1", "{name}");
        // Only attempts that a machine has decided, and that could be sent, count by their reason.
        let sent = if matches!(name, "responded" | "ended") { 2 } else { 1 };
        let first =
            format!("curtail_attempts_total{{upstream=\"{name}\",reason=\"first\"}} {sent}\n");
        assert!(admin(&proxy, "/metrics").await.contains(&first), "{name}");
    }
    let executed: usize = servers.iter().map(Server::executed).sum();
    assert_eq!(executed, 18, "no request is executed twice");
}

#[test]
fn two_reports_of_one_machine_replace_it_once() {
    let yaml = "routes: [{upstream: late}]\nlisteners: [{address: \"127.0.0.1:0\"}]\n\
                upstreams: {late: {replicas: [\"http://127.0.0.1:1\"]}}";
    let process_state = ProcessState::for_tests();
    let config = config(yaml);
    let upstream =
        Upstream::new(&config.upstreams[0], 1, Rng::new(1), &process_state, SharedParts::default());
    let upstream = Arc::new(upstream.expect("no TLS"));
    let request = Request::READ;
    let arrive = || Driver::arrive(Arc::clone(&upstream), request, None, &mut Effects::new()).0;
    let mut requests = [arrive(), arrive()];
    requests.iter_mut().for_each(|request| request.fail_open("planted"));
    let generation = upstream.handle(UpstreamEvent::Woke, &mut Effects::new());
    assert_eq!(generation, 1, "the second report is about the machine before");
}

#[tokio::test]
async fn a_panic_at_a_timer_leaves_the_open_attempt_alone() {
    for (name, keys) in [
        ("hedge-timer", "hedge: {delay_min: 1ms, delay_max: 1ms}"),
        ("tie-timer", "hedge: false, tie: {delay: 1ms}"),
    ] {
        let servers = [Server::start(0).await, Server::start(0).await];
        let proxy = root(name, &[&servers[0], &servers[1]], keys);
        let address = proxy.listeners()[0].1;
        plant(name, TIMER);
        let waiting = tokio::spawn(async move { ask(address, "GET", "/").await });
        until_panics(&proxy, "1").await;
        servers.iter().for_each(|server| server.permits.add_permits(1));
        let response = waiting.await.expect("no panic");
        assert!(is_good(&response), "{name}: {response}");
        assert!(is_good(&ask(address, "GET", "/now").await), "{name}, the next one");
        assert_eq!(panics(&proxy).await, "1", "{name}");
    }
}

#[tokio::test]
async fn a_machine_that_cannot_start_anew_is_replaced_by_a_plain_one() {
    let server = Server::start(0).await;
    let proxy = root("restart", &[&server], "balance: prequal");
    plant("restart", ARRIVAL);
    plant("restart", |step| matches!(step, Step::Restart));
    for _ in 0..2 {
        assert!(is_good(&ask(proxy.listeners()[0].1, "POST", "/now").await));
    }
    assert_eq!((panics(&proxy).await, server.executed()), ("2".to_owned(), 2));
}

#[tokio::test]
async fn a_panic_at_a_join_or_a_leave_starts_a_machine_with_the_new_replicas() {
    let servers = [Server::start(0).await, Server::start(0).await, Server::start(0).await];
    let [one, two, three] = servers.each_ref();
    let proxy = root("members", &[one, two], "balance: round_robin");
    plant("members", |step| matches!(step, Step::Upstream(UpstreamEvent::ReplicaLeft { .. })));
    let reload = |servers: &[&Server]| {
        let yaml = root_yaml("members", servers, "balance: round_robin");
        proxy.reload(config(&yaml)).expect("only replicas change");
    };
    reload(&[two, three]);
    let address = proxy.listeners()[0].1;
    for _ in 0..2 {
        assert!(is_good(&ask(address, "GET", "/now").await));
    }
    assert_eq!(servers.each_ref().map(Server::executed), [0, 1, 1]);
    plant("members", |step| matches!(step, Step::Upstream(UpstreamEvent::ReplicaJoined { .. })));
    reload(&[one, two, three]);
    for _ in 0..3 {
        assert!(is_good(&ask(address, "GET", "/now").await));
    }
    assert_eq!(servers.each_ref().map(Server::executed), [1, 2, 2]);
    assert_eq!(panics(&proxy).await, "2");
}

#[tokio::test]
async fn attempts_that_are_open_when_the_machine_panics_go_on() {
    let server = Server::start(0).await;
    let proxy = root("open", &[&server], "hedge: false");
    let address = proxy.listeners()[0].1;
    let mut waiting = tokio::task::JoinSet::new();
    for method in ["POST", "GET"] {
        waiting.spawn(async move { ask(address, method, "/").await });
    }
    server.until_in_service(2).await;
    // A panic in another request's event replaces the machine of these two.
    plant("open", CALL);
    assert!(is_good(&ask(address, "GET", "/now").await));
    server.permits.add_permits(2);
    for response in waiting.join_all().await {
        assert!(is_good(&response), "{response}");
    }
    assert_eq!((panics(&proxy).await, server.executed()), ("1".to_owned(), 3));
}

#[tokio::test]
async fn a_panic_at_a_response_does_not_lose_the_response() {
    let server = Server::start(0).await;
    let proxy = root("response", &[&server], "hedge: false");
    let address = proxy.listeners()[0].1;
    let waiting = tokio::spawn(async move { ask(address, "POST", "/").await });
    server.until_in_service(1).await;
    plant("response", CALL);
    server.permits.add_permits(1);
    assert!(is_good(&waiting.await.expect("no panic")));
    assert_eq!((panics(&proxy).await, server.executed()), ("1".to_owned(), 1));
}

#[tokio::test]
async fn an_upstream_that_panics_at_a_probe_or_a_read_goes_on() {
    let server = Server::start(0).await;
    let other = Server::start(0).await;
    let proxy =
        root("probes", &[&server, &other], "balance: {policy: prequal, idle_interval: 1ms}");
    let address = proxy.listeners()[0].1;
    plant("probes", UPSTREAM);
    assert!(is_good(&ask(address, "GET", "/now").await));
    until_panics(&proxy, "1").await;
    plant("probes", READ);
    until_panics(&proxy, "2").await;
    assert!(is_good(&ask(address, "GET", "/now").await));
    assert!(admin(&proxy, "/state").await.contains("\"probes\""));
    assert_eq!(panics(&proxy).await, "2");
}

#[tokio::test]
async fn a_fan_out_that_panics_asks_every_shard_and_waits_for_all() {
    let servers = [Server::start(0).await, Server::start(0).await];
    let [one, other] = servers.each_ref().map(|server| server.address);
    let proxy = start(&format!(
        "listeners: [{{address: \"127.0.0.1:0\"}}]\n\
         routes: [{{path_prefix: /now, upstream: \"shard-*\", fan_out: {{canaries: 1}}}}]\n\
         upstreams: {{shard-0: {{replicas: [\"http://{one}\"]}}, shard-1: {{replicas: [\"http://{other}\"]}}}}"
    ));
    let address = proxy.listeners()[0].1;
    let call_ended: fn(&Step) -> bool =
        |step| matches!(step, Step::Gather(GatherEvent::CallEnded { .. }));
    for (nth, is_at) in [GATHER, call_ended, EFFECTS].into_iter().enumerate() {
        plant("/now", is_at);
        for _ in 0..2 {
            let response = ask(address, "GET", "/now").await;
            assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("goodgood"));
        }
        assert_eq!(panics(&proxy).await, (nth + 1).to_string());
    }
    assert_eq!(servers.map(|server| server.executed()), [6, 6]);
}

#[tokio::test]
async fn a_call_that_is_pinned_stays_at_its_replica_when_its_machine_panics() {
    let servers = [Server::start(0).await, Server::start(0).await, Server::start(0).await];
    let [one, two, three] = servers.each_ref();
    let yaml = root_yaml("pinned", &[one, two, three], "retry: false");
    let proxy = start(&yaml.replace("pinned}]", "pinned, fan_out: {to: replicas}}]"));
    for round in 1..=5 {
        plant("pinned", ARRIVAL);
        let response = ask(proxy.listeners()[0].1, "POST", "/now").await;
        assert!(response.ends_with("goodgoodgood"), "{response}");
        assert_eq!(servers.each_ref().map(Server::executed), [round; 3]);
    }
    assert_eq!(panics(&proxy).await, "5");
}

#[tokio::test]
async fn the_journal_has_the_event_of_a_panic_and_then_a_machine_of_its_own() {
    let file = std::env::temp_dir().join(format!("curtail-guard-{}.journal", std::process::id()));
    let server = Server::start(0).await;
    let yaml = root_yaml("journaled", &[&server], "retry: false");
    let options = Options { journal: Some(file.clone()), seed: 1, ..Options::default() };
    let proxy = crate::start(config(&yaml), &options).expect("loopback and threads");
    let address = proxy.listeners()[0].1;
    assert!(is_good(&ask(address, "GET", "/now").await));
    plant("journaled", CALL);
    assert!(is_good(&ask(address, "GET", "/now").await));
    assert!(is_good(&ask(address, "GET", "/now").await));
    tokio::task::spawn_blocking(|| proxy.stop(std::time::Duration::ZERO)).await.expect("it stops");
    let text = std::fs::read_to_string(&file).expect("the journal");
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!(text.matches("\"entry\":\"upstream\"").count(), 2, "{text}");
    let replayed = curtail_sim::replay(text.as_bytes()).expect("a journal");
    let curtail_sim::End::Different(difference) = replayed.end else { panic!("{replayed:?}") };
    assert!(difference.event.contains("\"arrived\""), "{difference:?}");
    assert_eq!((replayed.requests, &*difference.expected), (2, "[]"));
}

/// A leaf with one slot in front of a server, and its listener.
fn leaf(name: &str, server: &Server) -> (Running, SocketAddr) {
    let proxy = start(&format!(
        "leaves: [{{name: {name}, address: \"127.0.0.1:0\", server: \"http://{}\", concurrency: 1}}]",
        server.address
    ));
    let address = proxy.listeners()[0].1;
    (proxy, address)
}

/// Waits until the leaf's state page contains `wanted`.
async fn until_state(proxy: &Running, wanted: &str) {
    while !admin(proxy, "/state").await.contains(wanted) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_leaf_that_panics_on_an_arrival_keeps_its_requests_in_service_and_queued() {
    let server = Server::start(0).await;
    let (proxy, address) = leaf("arrivals", &server);
    let mut waiting = tokio::task::JoinSet::new();
    for queued in 0..4 {
        waiting.spawn(async move { ask(address, "POST", "/").await });
        until_state(&proxy, &format!("\"queued\": {queued}")).await;
        server.until_in_service(1).await;
    }
    plant("arrivals", LEAF);
    // This request goes straight to the server, although the slot is taken and three requests wait.
    assert!(is_good(&ask(address, "POST", "/now").await));
    until_state(&proxy, "\"in_service\": 1").await;
    until_state(&proxy, "\"queued\": 3").await;
    server.permits.add_permits(4);
    for response in waiting.join_all().await {
        assert!(is_good(&response), "{response}");
    }
    until_state(&proxy, "\"in_service\": 0").await;
    assert_eq!((panics(&proxy).await, server.executed()), ("1".to_owned(), 5));
    assert_eq!(server.counts.in_service_max.load(Ordering::SeqCst), 2, "one slot, one straight");
}

#[tokio::test]
async fn a_leaf_that_decides_the_impossible_lets_the_request_pass() {
    let server = Server::start(0).await;
    let (proxy, address) = leaf("impossible-leaf", &server);
    let arrived: fn(&Step) -> bool = |step| matches!(step, Step::Leaf(LeafEvent::Arrived { .. }));
    for (nth, is_at) in [EFFECTS, arrived].into_iter().enumerate() {
        plant("impossible-leaf", is_at);
        for _ in 0..2 {
            assert!(is_good(&ask(address, "POST", "/now").await));
        }
        until_state(&proxy, "\"in_service\": 0").await;
        assert_eq!((panics(&proxy).await, server.executed()), ((nth + 1).to_string(), 2 * nth + 2));
    }
}

#[tokio::test]
async fn a_leaf_that_panics_at_the_end_of_a_request_starts_the_next_one() {
    let server = Server::start(0).await;
    let (proxy, address) = leaf("ends", &server);
    let mut waiting = tokio::task::JoinSet::new();
    for queued in 0..3 {
        waiting.spawn(async move { ask(address, "GET", "/").await });
        until_state(&proxy, &format!("\"queued\": {queued}")).await;
    }
    server.until_in_service(1).await;
    plant("ends", LEAF);
    server.permits.add_permits(3);
    for response in waiting.join_all().await {
        assert!(is_good(&response), "{response}");
    }
    until_state(&proxy, "\"in_service\": 0").await;
    assert_eq!((panics(&proxy).await, server.executed()), ("1".to_owned(), 3));
    assert_eq!(server.counts.in_service_max.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_leaf_that_panics_again_while_it_restarts_lets_all_requests_pass() {
    let server = Server::start(0).await;
    let (proxy, address) = leaf("twice", &server);
    let mut waiting = tokio::task::JoinSet::new();
    for queued in 0..3 {
        waiting.spawn(async move { ask(address, "GET", "/").await });
        until_state(&proxy, &format!("\"queued\": {queued}")).await;
    }
    plant("twice", LEAF);
    plant("twice", LEAF);
    assert!(is_good(&ask(address, "GET", "/now").await));
    server.until_in_service(3).await;
    server.permits.add_permits(3);
    for response in waiting.join_all().await {
        assert!(is_good(&response), "{response}");
    }
    until_state(&proxy, "\"in_service\": 0").await;
    assert_eq!((panics(&proxy).await, server.executed()), ("2".to_owned(), 4));
}

#[tokio::test]
async fn a_leaf_that_panics_at_a_read_still_returns_a_result() {
    let server = Server::start(0).await;
    let (proxy, address) = leaf("question", &server);
    plant("question", READ);
    assert!(ask(address, "GET", crate::probe::PATH).await.starts_with("HTTP/1.1 204 "));
    assert!(is_good(&ask(address, "GET", "/now").await));
    assert_eq!(panics(&proxy).await, "1");
}

#[tokio::test]
async fn a_fresh_machine_that_panics_at_the_question_as_well_is_survived() {
    let server = Server::start(0).await;
    let proxy = root("questions", &[&server], "retry: false");
    plant("questions", READ);
    plant("questions", READ);
    assert!(admin(&proxy, "/state").await.contains("curtail.state/1"));
    assert!(is_good(&ask(proxy.listeners()[0].1, "GET", "/now").await));
    assert_eq!(panics(&proxy).await, "2");

    let (proxy, address) = leaf("leaf-questions", &server);
    plant("leaf-questions", READ);
    plant("leaf-questions", READ);
    assert!(ask(address, "GET", crate::probe::PATH).await.starts_with("HTTP/1.1 204 "));
    assert!(is_good(&ask(address, "GET", "/now").await));
    assert_eq!(panics(&proxy).await, "2");
}

/// A panic at a question is not in the journal: what is decided after it must follow from the journal all the same.
#[tokio::test]
async fn a_journal_across_a_panic_at_a_question_of_a_member_of_a_group_replays_equal() {
    let file = std::env::temp_dir().join(format!("curtail-ask-{}.journal", std::process::id()));
    let servers = [Server::start(0).await, Server::start(0).await];
    let yaml = root_yaml("member", &[&servers[0], &servers[1]], "group: shards, retry: false");
    let options = Options { journal: Some(file.clone()), seed: 1, ..Options::default() };
    let proxy = crate::start(config(&yaml), &options).expect("loopback and threads");
    let address = proxy.listeners()[0].1;
    for _ in 0..150 {
        assert!(is_good(&ask(address, "GET", "/now").await));
    }
    plant("member", READ);
    admin(&proxy, "/state").await;
    // The group still has the 150 latencies: there is a hedge delay, and the second server gets a hedge after it.
    let waiting = tokio::spawn(async move { ask(address, "GET", "/").await });
    for server in &servers {
        server.until_in_service(1).await;
    }
    servers.iter().for_each(|server| server.permits.add_permits(1));
    assert!(is_good(&waiting.await.expect("no panic")));
    assert_eq!(panics(&proxy).await, "1");
    tokio::task::spawn_blocking(|| proxy.stop(std::time::Duration::ZERO)).await.expect("it stops");
    let text = std::fs::read_to_string(&file).expect("the journal");
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!(text.matches("\"entry\":\"upstream\"").count(), 2);
    let replayed = curtail_sim::replay(text.as_bytes()).expect("a journal");
    assert!(matches!(replayed.end, curtail_sim::End::Complete), "{:?}", replayed.end);
}

#[test]
fn panics_are_logged_at_most_once_an_interval_with_their_count() {
    let mut log = DefectLog::default();
    let begin = Instant::from_ns(1);
    let soon = begin + Duration::from_secs(1);
    assert_eq!([begin, soon, soon].map(|now| log.count_defect(now)), [Some(1), None, None]);
    assert_eq!(log.count_defect(begin + LOG_INTERVAL), Some(3));
}

#[test]
fn a_guarded_panic_is_caught_counted_and_kept_for_the_log() {
    let process = Arc::default();
    let guard = Guard::new("alone", &process);
    assert_eq!(guard.run(Instant::ZERO, Step::Read, || 1), Some(1));
    plant("alone", READ);
    assert_eq!(guard.run(Instant::ZERO, Step::Restart, || 1), Some(1), "another step");
    assert_eq!(guard.run(Instant::ZERO, Step::Read, || 1), None);
    assert_eq!(guard.run(Instant::ZERO, Step::Read, || 1), Some(1), "once");
    assert_eq!(process.read().invariants_broken, 1);
}

#[tokio::test]
async fn a_panic_of_an_encoder_costs_no_request_and_is_counted() {
    let server = Server::start(1).await;
    let file = std::env::temp_dir().join(format!("curtail-encoder-{}.log", std::process::id()));
    let yaml = root_yaml("encoder", &[&server], "retry: false");
    let proxy = start(&format!("{yaml}\naccess_log: {{file: {}}}", file.display()));
    let address = proxy.listeners()[0].1;
    for path in ["/now", ENCODER_PANICS, "/now"] {
        assert!(is_good(&ask(address, "GET", path).await), "{path}");
    }
    let expected = [
        "curtail_access_log_lines_written_total 2",
        "curtail_access_log_lines_dropped_total{cause=\"encoder_panicked\"} 1",
    ];
    loop {
        let metrics = admin(&proxy, "/metrics").await;
        if expected.iter().all(|line| metrics.lines().any(|shown| shown == *line)) {
            break;
        }
        tokio::task::yield_now().await;
    }
    let lines = std::fs::read_to_string(&file).expect("the access log");
    std::fs::remove_file(&file).expect("it is there");
    assert_eq!((lines.lines().count(), lines.matches("\"path\":\"/now\"").count()), (2, 2));
}
