use super::{BATCH_MAX, MANY, WAITING_BYTES_MAX, write_all};
use crate::Config;
use crate::discovery::Discoveries;
use crate::guard::planted::ENCODER_PANICS;
use crate::health::HealthChecks;
use crate::snapshot::{ConfigSnapshot, ProcessState};
use crate::spans::sample::{get, trail, usual};
use crate::trail::Trail;
use crate::worker::Shared;
use arc_swap::ArcSwap;
use curtail_metrics::Gauge;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

/// A proxy of one worker, with a receiver of spans in this configuration.
fn shared(keys: &str) -> Shared {
    let yaml = format!(
        "listeners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: a}}]\n\
         upstreams: {{a: {{replicas: [\"http://127.0.0.1:1\"]}}}}\n{keys}\n"
    );
    let config = Config::from_yaml("f", &yaml).expect("a configuration");
    let process_state = ProcessState::for_tests();
    let (snapshot, _) = ConfigSnapshot::new(config, &process_state, None).expect("no files");
    Shared {
        snapshot: ArcSwap::from_pointee(snapshot),
        process_state,
        discoveries: Discoveries::default(),
        health_checks: HealthChecks::default(),
        drain: Arc::default(),
    }
}

/// Records a request of the only worker.
fn record(shared: &Shared, trail: Trail) {
    super::record(shared, &shared.snapshot.load(), 0, Box::new(trail));
}

const SPANS: &str = "spans: {endpoint: \"http://127.0.0.1:4318\"}";

fn recorded(shared: &Shared) -> u64 {
    shared.snapshot.load().spans.as_ref().expect("a receiver").counts().recorded
}

fn waiting(shared: &Shared) -> usize {
    shared.process_state.finished.lock(0).requests.len()
}

#[test]
fn requests_wait_and_are_written_together() {
    let shared = shared(SPANS);
    let spans = 1 + usual().attempts.len() as u64;
    (0..BATCH_MAX + 1).for_each(|_| record(&shared, usual()));
    assert_eq!((waiting(&shared), recorded(&shared)), (BATCH_MAX + 1, 0));
    write_all(&shared);
    assert_eq!((waiting(&shared), recorded(&shared)), (0, spans * (BATCH_MAX as u64 + 1)));
    assert_eq!(shared.process_state.finished.lock(0).bytes, 0);
}

#[test]
fn a_worker_with_too_many_requests_writes_some_and_loses_none() {
    const REQUESTS: u64 = 1_000;
    let shared = shared(SPANS);
    // The long heads come when the queue has many short ones.
    for nth in 0..REQUESTS {
        let long = "x".repeat(if nth < REQUESTS / 2 { 0 } else { 1 << 14 });
        let request =
            Trail { request_head: trail(get(&format!("/{long}"))).request_head, ..usual() };
        record(&shared, request);
        let queue = shared.process_state.finished.lock(0);
        let memory: usize = queue.requests.iter().map(|request| request.trail.memory()).sum();
        assert_eq!(queue.bytes, memory);
        assert!(memory < WAITING_BYTES_MAX, "{memory}");
    }
    assert!(recorded(&shared) > 0, "{REQUESTS} requests are too many");
    write_all(&shared);
    assert_eq!(recorded(&shared), REQUESTS * (1 + usual().attempts.len() as u64));
}

#[test]
fn the_worker_is_notified_of_the_first_request_and_of_many() {
    let shared = shared(SPANS);
    let is_notified = || {
        let notified = pin!(shared.process_state.finished.by_worker[0].waiting.notified());
        notified.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    let notified = (1..=MANY + 1).filter(|_| {
        record(&shared, usual());
        is_notified()
    });
    assert_eq!(notified.collect::<Vec<_>>(), [1, MANY]);
}

#[test]
fn a_request_of_which_nothing_is_written_does_not_wait() {
    let unsampled = || {
        let mut trail = usual();
        trail.context.sampled = false;
        trail
    };
    let waits = |keys: &str, trail: Trail| {
        let shared = shared(keys);
        record(&shared, trail);
        waiting(&shared) == 1
    };
    assert!(!waits("", usual()));
    assert!(!waits(SPANS, unsampled()));
    assert!(waits(SPANS, usual()));
    assert!(waits("access_log: {file: f}", unsampled()));
    assert!(!waits("access_log: {file: f}", Trail { is_call: true, ..unsampled() }));
}

#[test]
fn a_request_that_waits_is_not_in_flight() {
    let shared = shared(SPANS);
    let gauge = Gauge::default();
    let mut trail = usual();
    trail.upstream_permit = Some(Arc::new(gauge.enter()));
    assert_eq!(gauge.get(), 1);
    record(&shared, trail);
    assert_eq!((waiting(&shared), gauge.get()), (1, 0));
}

#[test]
fn a_request_is_written_as_the_configuration_wanted_it_when_it_ended() {
    let shared = shared(SPANS);
    record(&shared, usual());
    let before = shared.snapshot.swap(self::shared("").snapshot.load_full());
    record(&shared, usual());
    write_all(&shared);
    let spans = 1 + usual().attempts.len() as u64;
    assert_eq!(before.spans.as_ref().expect("a receiver").counts().recorded, spans);
}

#[test]
fn a_request_whose_encoders_panic_costs_only_its_own_spans_and_line() {
    let shared = shared(&format!("{SPANS}\naccess_log: {{file: f}}"));
    for path in ["/before", ENCODER_PANICS, "/after"] {
        let request_head = trail(get(path)).request_head;
        record(&shared, Trail { request_head, ..usual() });
    }
    write_all(&shared);
    let spans = 1 + usual().attempts.len() as u64;
    let counts = shared.snapshot.load().spans.as_ref().expect("a receiver").counts();
    assert_eq!((counts.recorded, counts.encoder_panicked), (2 * spans, spans));
    let buffers = &shared.process_state.access_lines;
    assert_eq!(buffers.counts().encoder_panicked, 1);
    let lines = buffers.text();
    let paths = lines.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        line["path"].as_str().expect("a path").to_owned()
    });
    assert_eq!(paths.collect::<Vec<_>>(), ["/before", "/after"]);
}
