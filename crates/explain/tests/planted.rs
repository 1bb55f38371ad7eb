//! Planted causes are found, and nothing is found where nothing was planted. `benches/planted.rs` has more runs.

#[path = "planted/world.rs"]
mod world;

use curtail_explain::{
    AttributeValue, Explanation, Question, Side, SlowTraces, SpanKind, SpanRow, Traces, explain,
};
use curtail_trace::Span;
use curtail_units::{Duration, Quantile, Rng, Task, run_serially};
use std::collections::BTreeSet;
use world::{Planted, add_traces, with_trace};

/// The time between two requests of [`add`].
const PERIOD_MS: i64 = 20;

fn explained(seed: u64, planted: &[(Planted, f64)]) -> Explanation {
    let mut traces = Traces::default();
    add_traces(&mut traces, &Rng::new(seed), 6_000, planted);
    of(&traces, seed)
}

fn of(traces: &Traces, seed: u64) -> Explanation {
    let slow = SlowTraces::AboveQuantile(Quantile::P99);
    explain(traces, &Question { slow, period_ns: 3_600_000_000_000, seed }, run_serially)
        .expect("it has a tail")
}

#[test]
fn the_result_does_not_depend_on_what_runs_the_tasks() {
    let backwards = |tasks: &mut [Task<'_>]| tasks.iter_mut().rev().for_each(|task| task());
    let on_threads = |tasks: &mut [Task<'_>]| {
        std::thread::scope(|scope| tasks.iter_mut().for_each(|task| drop(scope.spawn(task))));
    };
    let mut traces = Traces::default();
    // Numbers, values of few traces, and circles of values.
    let three = [Planted::LargePayload, Planted::Retries, Planted::SlowReplica];
    add_traces(&mut traces, &Rng::new(3), 6_000, &three.map(|cause| (cause, 1.0)));
    // The traces begin within 600 s: eight strata, in partitions of their own, and one for all traces.
    for period_s in [75, 3_600] {
        let slow = SlowTraces::AboveQuantile(Quantile::P99);
        let question = Question { slow, period_ns: period_s * 1_000_000_000, seed: 3 };
        let expected = explain(&traces, &question, run_serially).expect("it has a tail");
        assert!(!expected.findings.is_empty(), "periods of {period_s} s");
        assert_eq!(explain(&traces, &question, backwards).as_ref(), Ok(&expected));
        assert_eq!(explain(&traces, &question, on_threads).as_ref(), Ok(&expected));
    }
}

#[test]
fn a_planted_cause_is_the_first_finding() {
    for (planted, cause, subject) in Planted::ALL {
        for seed in 1..=3 {
            let explanation = explained(seed, &[(planted, 1.0)]);
            let first =
                explanation.findings.first().map(|first| (first.cause.name(), &*first.subject));
            let is_found = first.is_some_and(|(name, of)| name == cause && of.contains(subject));
            assert!(is_found, "{planted:?}, seed {seed}: {:#?}", explanation.findings);
        }
    }
}

#[test]
fn three_causes_at_once_are_the_three_findings() {
    let three = [Planted::LargePayload, Planted::Retries, Planted::SlowReplica];
    for seed in 1..=3 {
        let (mut traces, rng) = (Traces::default(), Rng::new(seed));
        // Each cause meets a third of the requests.
        for nth in 0..100_000_u32 {
            let planted = [(three[nth as usize % 3], 1.0)];
            with_trace(nth.into(), &rng, &planted, |rows| {
                traces.add(u128::from(nth) + 1, Side::Baseline, rows);
            });
        }
        let findings = of(&traces, seed).findings;
        let causes: BTreeSet<_> = findings.iter().map(|of| of.cause.name()).collect();
        assert_eq!(findings.len(), 3, "seed {seed}: {findings:#?}");
        let names = ["large_payload", "retries", "slow_replica"];
        assert_eq!(causes, BTreeSet::from(names), "seed {seed}: {findings:#?}");
    }
}

/// A stall makes the requests of one second slow. The leader of that second is the leader of all slow requests.
#[test]
fn a_value_that_met_one_stall_is_no_cause() {
    let subjects = subjects(&led(&["a", "b", "c", "a"], |turn, ms| turn == 1 && ms < 1_000));
    assert!(!subjects.iter().any(|subject| subject.starts_with("leader")), "{subjects:?}");
}

#[test]
fn a_value_that_met_every_stall_is_a_cause() {
    let mut rng = Rng::new(1);
    let leaders: Vec<_> = (0..48).map(|_| ["a", "b", "c"][rng.below(3)]).collect();
    let subjects = subjects(&led(&leaders, |turn, ms| leaders[turn] == "b" && ms < 400));
    assert_eq!(subjects.first().map(String::as_str), Some("leader = b"), "{subjects:?}");
}

/// Requests to `d` always take 60 ms longer. They are slow while two stalls add 40 ms to the requests to all leaders.
#[test]
fn a_value_that_is_always_slower_is_a_cause_although_only_stalls_make_it_slow() {
    let mut rng = Rng::new(1);
    let mut traces = Traces::default();
    for nth in 0..1_200 {
        let leader = ["a", "b", "c", "d"][rng.below(4)];
        let is_stalled = [200..215, 800..815].iter().any(|stall| stall.contains(&nth));
        let lasts_ms = 10 + if leader == "d" { 60 } else { 0 } + if is_stalled { 40 } else { 0 };
        add(&mut traces, nth, lasts_ms, &[("leader", AttributeValue::Text(leader))]);
    }
    let subjects = subjects(&traces);
    assert_eq!(subjects.first().map(String::as_str), Some("leader = d"), "{subjects:?}");
}

/// Four of five requests have version 2, and so have all slow ones, by chance: the share may be large and is hardly known.
#[test]
fn the_cause_with_the_best_evidence_is_found_before_the_one_that_may_explain_most() {
    let mut rng = Rng::new(1);
    let mut traces = Traces::default();
    for nth in 0..1_000 {
        let server = rng.below(30);
        let is_slow = server < 3 && rng.chance(0.5);
        let version = if !is_slow && rng.chance(0.2) { "1" } else { "2" };
        let server = format!("{server:02}");
        let attributes = [("server", &*server), ("version", version)];
        let attributes = attributes.map(|(key, value)| (key, AttributeValue::Text(value)));
        let lasts_ms = if is_slow { 300 } else { 10 };
        add(&mut traces, nth, lasts_ms, &attributes);
    }
    let mut first = subjects(&traces);
    first.truncate(3);
    first.sort_unstable();
    assert_eq!(first, ["server = 00", "server = 01", "server = 02"]);
}

/// Now and then, at random, a server or all servers stop for 300 ms, or a request takes as long by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stops {
    OneServer,
    AllServers,
    OneRequest,
}

/// The cause and the subject of the first finding among 6,000 requests to four servers. Servers without spans are known from
/// the calls of a proxy.
fn first_of(stops: Stops, has_spans: bool, seed: u64) -> (&'static str, String) {
    const LASTS_MS: i64 = 300;
    let mut rng = Rng::new(seed);
    let mut traces = Traces::default();
    let mut stop: (i64, Option<usize>) = (0, None);
    for nth in 0..6_000 {
        let now_ms = nth * PERIOD_MS;
        if stop.0 < now_ms && rng.chance(0.006) {
            let server = (stops == Stops::OneServer).then(|| rng.below(4));
            stop = (now_ms + LASTS_MS, server);
        }
        let server = rng.below(4);
        let is_stopped = match stops {
            Stops::OneServer => stop.1 == Some(server) && now_ms < stop.0,
            Stops::AllServers => now_ms < stop.0,
            Stops::OneRequest => false,
        };
        let is_slow = stops == Stops::OneRequest && rng.chance(0.01);
        let added_ms = if is_slow { LASTS_MS } else { 0 };
        let lasts_ms = 10 + if is_stopped { stop.0 - now_ms } else { added_ms };
        if has_spans {
            let server = format!("server-{server}");
            add(&mut traces, nth, lasts_ms, &[("k8s.pod.name", AttributeValue::Text(&server))]);
        } else {
            add_call(&mut traces, nth, lasts_ms, 9_000.0 + server as f64);
        }
    }
    let first = of(&traces, seed).findings.into_iter().next();
    let first = first.unwrap_or_else(|| panic!("{stops:?}, seed {seed}: nothing is found"));
    (first.cause.name(), first.subject)
}

/// One of the servers stops more often than the others, by chance: in one run of a hundred, that is a finding.
#[test]
fn pauses_and_slow_requests_differ_in_what_begins_meanwhile() {
    for (stops, cause, without_spans) in [
        (Stops::OneServer, "pause", "pause"),
        (Stops::AllServers, "slow_together", "slow_together"),
        (Stops::OneRequest, "slow_service", "dependency"),
    ] {
        let expected = |has_spans| match has_spans {
            true => (cause, "shop: GET /"),
            false => (without_spans, "shop -> untraced service: GET"),
        };
        for has_spans in [true, false] {
            let firsts = (1..=20).map(|seed| first_of(stops, has_spans, seed));
            let others: Vec<_> =
                firsts.filter(|(found, of)| (*found, &**of) != expected(has_spans)).collect();
            assert!(others.len() <= 1, "{stops:?}, {has_spans}: {others:?}");
        }
    }
}

/// 1,200 requests, a trace each, while the leaders take turns. `is_stalled` has the turn and the milliseconds since it began.
fn led(leaders: &[&str], is_stalled: impl Fn(usize, i64) -> bool) -> Traces {
    let mut traces = Traces::default();
    let per_turn = 1_200 / leaders.len();
    for (nth, turn) in (0..).zip((0..1_200).map(|nth| nth / per_turn)) {
        let since_turn_ms = nth * PERIOD_MS % (24_000 / i64::try_from(leaders.len()).expect("few"));
        let lasts_ms = if is_stalled(turn, since_turn_ms) { 300 } else { 10 };
        add(&mut traces, nth, lasts_ms, &[("leader", AttributeValue::Text(leaders[turn]))]);
    }
    traces
}

/// Adds the request with a number, a span.
fn add(traces: &mut Traces, nth: i64, lasts_ms: i64, attributes: &[(&str, AttributeValue<'_>)]) {
    traces.add(
        u128::from(nth.unsigned_abs()) + 1,
        Side::Baseline,
        &[row(nth, lasts_ms, attributes)],
    );
}

/// Adds the request with a number, to a proxy that calls a server without spans at this port.
fn add_call(traces: &mut Traces, nth: i64, lasts_ms: i64, port: f64) {
    let of_proxy = [("server.port", AttributeValue::Number(80.0))];
    let of_call = [("server.port", AttributeValue::Number(port))];
    let mut call = row(nth, lasts_ms, &of_call);
    (call.span.id, call.span.parent_id, call.operation, call.kind) =
        (2, 1, "GET", SpanKind::Client);
    let spans = [row(nth, lasts_ms, &of_proxy), call];
    traces.add(u128::from(nth.unsigned_abs()) + 1, Side::Baseline, &spans);
}

fn row<'a>(
    nth: i64,
    lasts_ms: i64,
    attributes: &'a [(&'a str, AttributeValue<'a>)],
) -> SpanRow<'a> {
    let start_ns = nth * PERIOD_MS * 1_000_000;
    let end_ns = start_ns + lasts_ms * 1_000_000;
    SpanRow {
        span: Span { id: 1, parent_id: 0, start_ns, end_ns },
        service: "shop",
        operation: "GET /",
        kind: SpanKind::Server,
        is_abandoned: false,
        attributes,
    }
}

/// What the findings name. Slow are the requests that last 100 ms.
fn subjects(traces: &Traces) -> Vec<String> {
    let slow = SlowTraces::LongerThan { duration_ns: 100_000_000 };
    let question = Question { slow, period_ns: 3_600_000_000_000, seed: 1 };
    let findings =
        explain(traces, &question, run_serially).expect("there are slow traces").findings;
    findings.into_iter().map(|finding| finding.subject).collect()
}

#[test]
fn nothing_stands_out_where_nothing_is_planted() {
    let alarms: Vec<_> =
        (1..=40).filter(|seed| !explained(*seed, &[]).findings.is_empty()).collect();
    // Of 40 runs with at most 5 % false alarms, more than 5 have one in 1.4 % of all cases.
    assert!(alarms.len() <= 5, "seeds with findings: {alarms:?}");
}

/// A retry is a second call, and only its span has the name of the host. All of these spans have the same one.
#[test]
fn an_attribute_with_one_value_is_not_the_cause() {
    let mut traces = Traces::default();
    for nth in 0..1_200 {
        let is_retried = nth % 100 == 7;
        let host = [("host.name", AttributeValue::Text("root-0"))];
        let retries = [("http.request.resend_count", AttributeValue::Number(1.0)), host[0]];
        let lasts_ms = if is_retried { 110 } else { 10 };
        let mut spans = vec![row(nth, lasts_ms, &[])];
        for call in 0..1 + i64::from(is_retried) {
            let mut span = row(nth, lasts_ms, if call == 1 { &retries } else { &[] });
            (span.span.id, span.span.parent_id, span.operation, span.kind) =
                (2 + call.unsigned_abs(), 1, "GET", SpanKind::Client);
            span.span.start_ns += call * 50_000_000;
            spans.push(span);
        }
        traces.add(u128::from(nth.unsigned_abs()) + 1, Side::Baseline, &spans);
    }
    let slow = SlowTraces::LongerThan { duration_ns: 100_000_000 };
    let question = Question { slow, period_ns: 3_600_000_000_000, seed: 1 };
    let first = explain(&traces, &question, run_serially)
        .expect("there are slow traces")
        .findings
        .swap_remove(0);
    assert_eq!(first.cause.name(), "retries", "{first:#?}");
    assert!(first.same_as.iter().all(|other| !other.starts_with("host.name")), "{first:#?}");
}

/// A time in whole nanoseconds.
fn whole(ns: f64) -> i64 {
    i64::try_from(Duration::from_ns_f64(ns).as_ns()).expect("a short time")
}

/// One server with a queue at 85 % load, and sessions whose requests come in a row: neither has to do with the other.
#[test]
fn sessions_are_no_cause_of_a_queue() {
    let mut alarms = Vec::new();
    for seed in 1..=40 {
        let mut rng = Rng::new(seed);
        let (mut traces, mut wait, mut at, mut session) = (Traces::default(), 0.0_f64, 0.0, 0);
        for nth in 0..6_000_u32 {
            if nth == 0 || rng.below(40) == 0 {
                session = rng.below(30);
            }
            let (gap, service) = (rng.exponential() / 0.85, rng.exponential());
            // Busy periods are long, and requests short.
            at += gap * 50.0;
            wait = (wait - gap).max(0.0);
            wait += service;
            let name = format!("s{session}");
            let attributes = [("session", AttributeValue::Text(&name))];
            let mut span = row(0, 0, &attributes);
            span.span.start_ns = whole(at * 1e6);
            span.span.end_ns = span.span.start_ns + whole(wait * 4e6);
            traces.add(u128::from(nth) + 1, Side::Baseline, &[span]);
        }
        let findings = of(&traces, seed).findings;
        alarms.extend(
            findings
                .into_iter()
                .filter(|of| of.p_value.is_some())
                .map(|of| (seed, of.subject, of.traces, of.share)),
        );
    }
    assert!(alarms.len() <= 4, "{} {alarms:#?}", alarms.len());
}
