use super::super::attributes::TEXT_MAX;
use super::super::decoded::{self, Span};
use super::super::sample::{CONTEXT, attempt, get, ms, trail, usual};
use super::{Encoder, split_port};
use crate::trail::{AttemptEnd, CancelReason, RequestEnd, Trail};
use curtail_http::clock::Clock;
use curtail_http::connection_counts::ConnectPhases;
use curtail_http::head::RequestHead;
use curtail_policy::{AttemptId, Choice, Class, Failure, Reason, TieRole};
use curtail_units::{Duration, Quantile, Ratio, Rng};
use http::{Request, StatusCode};
use std::sync::Arc;

const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;
const ERROR: u64 = 2;

fn encode(trail: &Trail) -> Vec<Span> {
    encode_by(trail, &Clock::start())
}

fn encode_by(trail: &Trail, clock: &Clock) -> Vec<Span> {
    let (mut out, mut scratch) = (Vec::new(), "left over".to_owned());
    let tenant_header = Some("x-tenant");
    Encoder { out: &mut out, scratch: &mut scratch, clock, tenant_header }.trail(trail);
    let mut request = decoded::Request::default();
    decoded::scope_spans(&out, &mut request);
    request.spans
}

fn end(status: u16, error: Option<&'static str>) -> Option<RequestEnd> {
    let status = Some(StatusCode::from_u16(status).expect("a status"));
    Some(RequestEnd { at: ms(20), status, error, reason: None })
}

#[test]
fn a_request_is_a_span_of_kind_server_and_its_attempt_a_child_of_kind_client() {
    let clock = Clock::start();
    let [request, attempt] = &encode_by(&usual(), &clock)[..] else { panic!("two spans") };
    assert_eq!((&*request.name, request.kind, request.status), ("GET /api", SERVER, 0));
    assert_eq!((&*attempt.name, attempt.kind, attempt.status), ("GET", CLIENT, 0));
    assert_eq!(request.trace_id, CONTEXT.trace_id);
    assert_eq!(attempt.trace_id, CONTEXT.trace_id);
    assert_eq!((&request.span_id[..], &request.parent[..]), (&[0xcd; 8][..], &[0xef; 8][..]));
    assert_eq!((&attempt.span_id[..], &attempt.parent[..]), (&[1; 8][..], &[0xcd; 8][..]));
    let times = |span: &Span| (span.start_unix_ns, span.end_unix_ns);
    assert_eq!(times(request), (clock.unix_ns(ms(10)), clock.unix_ns(ms(15))));
    assert_eq!(times(attempt), (clock.unix_ns(ms(11)), clock.unix_ns(ms(14))));
    assert!(request.events.is_empty() && attempt.events.is_empty());
    assert_eq!(
        request.lines(),
        "http.request.method: GET\n\
         url.path: /api/users/7\n\
         url.scheme: http\n\
         network.protocol.version: 1.1\n\
         server.address: api.example\n\
         server.port: 81\n\
         http.route: /api\n\
         curtail.upstream: accounts\n\
         curtail.class: interactive\n\
         curtail.attempts: 1\n\
         curtail.reason: first_accepted\n\
         http.response.status_code: 200\n"
    );
    assert_eq!(
        attempt.lines(),
        "http.request.method: GET\n\
         curtail.upstream: accounts\n\
         server.address: 10.0.0.7\n\
         server.port: 8080\n\
         url.full: http://10.0.0.7:8080/api/users/7\n\
         curtail.attempt: 0\n\
         curtail.reason: first\n\
         curtail.choice: fewer_in_flight\n\
         curtail.choice.in_flight: 2\n\
         curtail.choice.other_in_flight: 5\n\
         curtail.connection.reused: true\n\
         http.response.status_code: 200\n\
         curtail.response_after_ns: 2000000\n\
         curtail.won: true\n"
    );
}

/// A request whose first attempt is slow: a hedge is refused, then sent, and wins.
fn hedged() -> Trail {
    let mut trail = trail(get("/api"));
    let (first, hedge) = (AttemptId(0), AttemptId(1));
    let ratio = Ratio::new(0.02).expect("a ratio");
    trail.sent(attempt(1, 0, ms(10), Reason::First));
    trail.skipped(ms(30), Reason::BudgetSpent { extra: 2, requests: 99, ratio });
    let (age, delay) = (Duration::from_ms(30), Duration::from_us(12_500));
    let reason = Reason::SlowerThanQuantile { age, delay, quantile: Quantile::P99 };
    trail.sent(attempt(2, 1, ms(40), reason));
    let (lookup, tls) = (Duration::ZERO, Duration::from_us(700));
    trail.connected(hedge, ConnectPhases { lookup, tcp: Duration::from_us(90), tls });
    trail.responded(hedge, ms(44), StatusCode::OK);
    let lost = CancelReason::Policy(Reason::Lost { winner: hedge });
    trail.attempt_ended(first, ms(44), AttemptEnd::Cancelled(lost));
    trail.won(hedge);
    trail.attempt_ended(hedge, ms(46), AttemptEnd::Responded);
    trail.end = end(200, None);
    trail
}

#[test]
fn a_hedge_tells_why_it_was_sent_and_the_loser_is_marked_but_no_error() {
    let clock = Clock::start();
    let [request, first, hedge] = &encode_by(&hedged(), &clock)[..] else { panic!("three spans") };
    assert_eq!(request.int("curtail.attempts"), Some(2));
    let [event] = &request.events[..] else { panic!("one event") };
    assert_eq!((&*event.name, event.unix_ns), ("curtail.skipped", clock.unix_ns(ms(30))));
    assert_eq!(
        decoded::lines(&event.attributes),
        "curtail.reason: budget_spent\n\
         curtail.reason.detail: budget spent: 2 extra of 99 requests, allowed 0.02\n"
    );
    assert_eq!(
        first.lines().lines().skip(5).collect::<Vec<_>>(),
        [
            "curtail.attempt: 0",
            "curtail.reason: first",
            "curtail.choice: turn",
            "curtail.won: false",
            "curtail.cancelled: lost",
            "curtail.cancelled.detail: attempt 1 responded first",
        ]
    );
    assert_eq!((first.status, hedge.status), (0, 0));
    assert_eq!(
        hedge.lines().lines().skip(2).collect::<Vec<_>>(),
        [
            "server.address: ::1",
            "server.port: 443",
            "url.full: https://[::1]:443/api",
            "curtail.attempt: 1",
            "http.request.resend_count: 1",
            "curtail.reason: slower_than_quantile",
            "curtail.reason.detail: waited 30 ms, longer than 12.5 ms (quantile 0.99)",
            "curtail.choice: turn",
            "curtail.connect.lookup_ns: 0",
            "curtail.connect.tcp_ns: 90000",
            "curtail.connect.tls_ns: 700000",
            "curtail.connection.reused: false",
            "http.response.status_code: 200",
            "curtail.response_after_ns: 4000000",
            "curtail.won: true",
        ]
    );
}

#[test]
fn a_request_shows_the_sizes_of_its_bodies_its_wait_and_its_tenant() {
    let keys = ["http.request.body.size", "http.response.body.size", "curtail.leaf.wait_ns"];
    let mut trail = trail(get("/api"));
    trail.end = end(200, None);
    let [bare] = &encode(&trail)[..] else { panic!("one span") };
    assert!(keys.iter().all(|key| bare.get(key).is_none()), "{}", bare.lines());
    assert_eq!(bare.get("curtail.tenant"), None);

    let mut head = RequestHead::clone(&trail.request_head);
    head.fields.append(b"x-tenant", b"acme");
    trail.request_head = Arc::new(head);
    trail.request_body_bytes = Some(0x8_0000_0000);
    trail.response_body(700);
    trail.response_body(0);
    trail.response_body(24);
    trail.leaf_wait = Some(Duration::from_us(1_500));
    let [span] = &encode(&trail)[..] else { panic!("one span") };
    assert_eq!(keys.map(|key| span.int(key)), [Some(0x8_0000_0000), Some(724), Some(1_500_000)]);
    assert_eq!(span.text("curtail.tenant"), Some("acme"));
}

#[test]
fn a_request_shows_what_the_client_sent_and_an_attempt_what_the_replica_gets() {
    let mut trail = trail(get("/api"));
    trail.sent(attempt(1, 0, ms(11), Reason::First));
    trail.end = end(200, None);
    let mut head = RequestHead::clone(&trail.request_head);
    head.target = curtail_http::head::Target::own("/v2");
    head.fields.append(b"x-tenant", b"acme");
    trail.unchanged_head = Some(std::mem::replace(&mut trail.request_head, Arc::new(head)));
    let [request, attempt] = &encode(&trail)[..] else { panic!("two spans") };
    assert_eq!(request.text("url.path"), Some("/api"));
    assert_eq!(request.text("curtail.tenant"), Some("acme"));
    let url = attempt.text("url.full").expect("a URL");
    assert!(url.ends_with("/v2"), "{url}");
}

#[test]
fn what_counts_as_an_error_of_an_attempt() {
    let age = Duration::from_ms(1);
    let responded = AttemptEnd::Responded;
    let cancelled = |reason| Some(AttemptEnd::Cancelled(CancelReason::Policy(reason)));
    for (status, end, error) in [
        (Some(200), Some(responded), None),
        (Some(304), Some(responded), None),
        (Some(404), Some(responded), Some("404")),
        (Some(503), Some(responded), Some("503")),
        (None, Some(AttemptEnd::Failed(Failure::NotSent)), Some("not_sent")),
        (Some(200), Some(AttemptEnd::Failed(Failure::Broken)), Some("broken")),
        (None, cancelled(Reason::ClientGone), None),
        (None, Some(AttemptEnd::Cancelled(CancelReason::TwinStarted)), None),
        (Some(502), Some(AttemptEnd::Failed(Failure::BadResponse)), Some("502")),
        (Some(200), Some(AttemptEnd::Failed(Failure::BadResponse)), Some("bad_response")),
        (None, cancelled(Reason::RequestTimeout { age }), Some("request_timeout")),
        (None, None, None),
    ] {
        let mut trail = trail(get("/api"));
        trail.sent(attempt(1, 0, ms(11), Reason::First));
        trail.end = self::end(200, None);
        if let Some(status) = status {
            let status = StatusCode::from_u16(status).expect("a status");
            trail.responded(AttemptId(0), ms(12), status);
        }
        if let Some(end) = end {
            trail.attempt_ended(AttemptId(0), ms(13), end);
        }
        let spans = encode(&trail);
        let case = format!("{status:?} {end:?}");
        assert_eq!(spans[1].text("error.type"), error, "{case}");
        assert_eq!(spans[1].status, if error.is_some() { ERROR } else { 0 }, "{case}");
    }
}

#[test]
fn what_counts_as_an_error_of_a_request() {
    for (ended, error_type, is_error) in [
        (end(200, None), None, false),
        (end(404, None), None, false),
        (end(404, Some("no_route")), Some("no_route"), false),
        (end(500, None), Some("500"), true),
        (end(504, Some("timed_out")), Some("timed_out"), true),
        (end(200, Some("broken")), Some("broken"), true),
        (None, Some("unfinished"), true),
    ] {
        let mut trail = trail(get("/api"));
        trail.end = ended;
        let spans = encode(&trail);
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0].text("error.type"), error_type, "{ended:?}");
        assert_eq!(spans[0].status, if is_error { ERROR } else { 0 }, "{ended:?}");
        let status = ended.and_then(|end| end.status).map(|status| i64::from(status.as_u16()));
        assert_eq!(spans[0].int("http.response.status_code"), status);
    }
    for (http, grpc, error_type) in
        [(200, 14, Some("UNAVAILABLE")), (200, 5, None), (404, 14, None), (503, 14, Some("503"))]
    {
        let mut trail = trail(get("/api"));
        (trail.end, trail.grpc_status) = (end(http, None), Some(grpc));
        let spans = encode(&trail);
        assert_eq!(spans[0].text("error.type"), error_type, "{http}, {grpc}");
        assert_eq!(spans[0].status, if error_type.is_some() { ERROR } else { 0 }, "{http}, {grpc}");
        assert_eq!(spans[0].int("rpc.grpc.status_code"), Some(grpc.into()));
    }
}

#[test]
fn what_a_root_cancels_is_no_error_at_its_leaf() {
    for (status, error, is_error) in [
        (None, "client_gone", false),
        (Some(StatusCode::SERVICE_UNAVAILABLE), "twin_started", false),
        (Some(StatusCode::SERVICE_UNAVAILABLE), "queue_full", true),
    ] {
        let end = RequestEnd { at: ms(20), status, error: Some(error), reason: None };
        let mut trail = Trail { end: Some(end), ..trail(get("/api")) };
        let [elsewhere] = &encode(&trail)[..] else { panic!("one span") };
        assert_eq!(
            (elsewhere.status, elsewhere.get("curtail.cancelled")),
            (ERROR, None),
            "{error}"
        );
        trail.is_at_leaf = true;
        let [span] = &encode(&trail)[..] else { panic!("one span") };
        assert_eq!(span.status, if is_error { ERROR } else { 0 }, "{error}");
        let cancelled = (!is_error).then_some(error);
        assert_eq!(span.text("curtail.cancelled"), cancelled, "{}", span.lines());
        assert_eq!(span.text("error.type"), is_error.then_some(error), "{}", span.lines());
        let status = span.int("http.response.status_code");
        assert_eq!(status, is_error.then_some(503), "{}", span.lines());
    }
}

#[test]
fn a_request_without_a_route_and_with_a_method_of_its_own() {
    let request = Request::builder().method("BREW").uri("https://tea.example/pot");
    let mut trail = trail(request.body(()).expect("a request"));
    trail.destination = None;
    trail.context.parent = None;
    trail.end = end(501, None);
    let [span] = &encode(&trail)[..] else { panic!("one span") };
    assert_eq!((&*span.name, &span.parent[..]), ("HTTP", &[][..]));
    assert_eq!(span.text("http.request.method"), Some("_OTHER"));
    assert_eq!(span.text("http.request.method_original"), Some("BREW"));
    assert_eq!(span.text("server.address"), Some("tea.example"));
    assert_eq!(span.get("server.port"), None);
    assert_eq!(span.get("http.route"), None);
}

#[test]
fn flags_say_whether_the_parent_is_of_another_process() {
    let mut trail = usual();
    let flags = |trail: &Trail| encode(trail).iter().map(|span| span.flags).collect::<Vec<_>>();
    assert_eq!(flags(&trail), [0x301, 0x101]);
    trail.context.random = true;
    assert_eq!(flags(&trail), [0x303, 0x103]);
}

#[test]
fn a_call_of_a_fan_out_is_a_span_of_kind_internal_below_its_request() {
    let mut trail = usual();
    (trail.context, trail.is_call) = (trail.context.child([7; 8]), true);
    let spans = encode(&trail);
    assert_eq!((spans[0].kind, spans[0].flags), (INTERNAL, 0x101));
    assert_eq!((&spans[0].span_id[..], &spans[0].parent[..]), (&[7; 8][..], &[0xcd; 8][..]));
    assert_eq!((spans[1].kind, &spans[1].parent[..]), (CLIENT, &[7; 8][..]));
}

#[test]
fn long_texts_are_cut_between_characters_and_queries_never_shown() {
    let path = format!("/{}", "ä".repeat(TEXT_MAX));
    let mut trail = trail(get(&format!("{path}?secret=1")));
    trail.sent(attempt(1, 0, ms(11), Reason::First));
    trail.end = end(200, None);
    let spans = encode(&trail);
    let shown = spans[0].text("url.path").expect("a path");
    assert!(path.starts_with(shown), "{shown}");
    let full = spans[1].text("url.full").expect("a URL");
    assert!(format!("http://10.0.0.7:8080{path}").starts_with(full), "{full}");
    // A character takes two bytes here: the last one may not fit.
    for cut in [shown, full] {
        assert!((TEXT_MAX - 1..=TEXT_MAX).contains(&cut.len()), "{} bytes", cut.len());
    }
    assert!(!format!("{spans:?}").contains("secret"));
}

/// Where the lengths within an attribute take one byte or two, and where a text is cut.
#[test]
fn texts_of_any_length_come_out_as_they_went_in() {
    for len in (1..300).chain([TEXT_MAX - 1, TEXT_MAX, TEXT_MAX + 1, 0x4000]) {
        let path = format!("/{}", "a".repeat(len - 1));
        let mut trail = trail(get(&path));
        trail.sent(attempt(1, 0, ms(11), Reason::First));
        trail.end = end(200, None);
        let spans = encode(&trail);
        assert_eq!(spans[0].text("url.path"), Some(&path[..len.min(TEXT_MAX)]), "{len} bytes");
        let full = format!("http://10.0.0.7:8080{path}");
        let shown = &full[..full.len().min(TEXT_MAX)];
        assert_eq!(spans[1].text("url.full"), Some(shown), "{len} bytes");
    }
}

#[test]
fn an_attempt_that_goes_on_ends_with_its_request_and_none_ends_before_it_began() {
    let clock = Clock::start();
    let mut trail = trail(get("/api"));
    trail.sent(attempt(1, 0, ms(12), Reason::First));
    trail.sent(attempt(2, 0, ms(25), Reason::TieFirst));
    trail.end = end(200, None);
    let spans = encode_by(&trail, &clock);
    assert_eq!(spans[1].end_unix_ns, clock.unix_ns(ms(20)));
    assert_eq!(spans[2].end_unix_ns, clock.unix_ns(ms(25)));
}

#[test]
fn spans_have_the_trace_state_of_the_client() {
    let request = Request::get("/api").header("host", "api.example");
    let request = request.header("tracestate", "a=1,b=2").header("tracestate", "c=3");
    let mut trail = trail(request.body(()).expect("a request"));
    trail.sent(attempt(1, 0, ms(12), Reason::First));
    trail.end = end(200, None);
    for span in encode(&trail) {
        assert_eq!(span.trace_state, "a=1,b=2,c=3");
    }
    assert_eq!(encode(&usual())[0].trace_state, "");
    let long = Request::get("/api").header("host", "h").header("tracestate", "a".repeat(513));
    let mut trail = self::trail(long.body(()).expect("a request"));
    trail.end = end(200, None);
    assert_eq!(encode(&trail)[0].trace_state, "");
}

#[test]
fn every_choice_shows_the_numbers_that_were_compared() {
    let (cost, other) = (Duration::from_ns(7), Duration::from_ns(8));
    let shown = |choice: Choice| {
        let mut trail = trail(get("/api"));
        let attempt = attempt(1, 0, ms(11), Reason::First);
        trail.sent(crate::trail::AttemptTrail {
            choice,
            tie: Some(TieRole::Second),
            class: Class::Batch,
            ..attempt
        });
        trail.end = end(200, None);
        let span = encode(&trail).pop().expect("the attempt");
        assert_eq!(span.text("curtail.tie"), Some("second"));
        assert_eq!(span.text("curtail.class"), Some("batch"));
        let lines = span.lines();
        let choice = lines.lines().filter_map(|line| line.strip_prefix("curtail.choice"));
        choice.map(|line| line.trim_start_matches(['.', ':', ' ']).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(shown(Choice::Only), ["only"]);
    assert_eq!(shown(Choice::Chance), ["chance"]);
    assert_eq!(
        shown(Choice::LowerPeakEwma { cost, other }),
        ["lower_peak_ewma", "cost_ns: 7", "other_cost_ns: 8"]
    );
    assert_eq!(
        shown(Choice::ColdLowestLatency { latency: cost, in_flight: 3, threshold: Some(4) }),
        ["cold_lowest_latency", "latency_ns: 7", "in_flight: 3", "threshold: 4"]
    );
    assert_eq!(
        shown(Choice::AllHotFewestInFlight { in_flight: 3, threshold: 2 }),
        ["all_hot_fewest_in_flight", "in_flight: 3", "threshold: 2"]
    );
    assert_eq!(
        shown(Choice::OtherZone { in_flight: 1, near: 4 }),
        ["other_zone", "in_flight: 1", "other_in_flight: 4"]
    );
    assert_eq!(shown(Choice::PoolTooSmall { len: 1 }), ["pool_too_small", "pool_len: 1"]);
}

#[test]
fn a_host_is_split_from_its_port() {
    for (host, address, port) in [
        ("a.example", "a.example", None),
        ("a.example:8080", "a.example", Some(8080)),
        ("a.example:99999", "a.example", None),
        ("127.0.0.1:1", "127.0.0.1", Some(1)),
        ("[::1]:443", "::1", Some(443)),
        ("[::1]", "::1", None),
        ("[::1]:", "::1", None),
        ("h:", "h", None),
        ("::1", "::1", None),
        ("", "", None),
    ] {
        assert_eq!(split_port(host), (address, port), "{host:?}");
    }
}

/// Integers of every length, in every order, decode to what went in.
#[test]
fn numbers_of_any_size_come_out_as_they_went_in() {
    const SEED: u64 = 3;
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    for _ in 0..2_000 {
        let nanoseconds: [u64; 3] = std::array::from_fn(|_| rng.next_u64() >> rng.below(64));
        let mut trail = trail(get("/api"));
        trail.sent(attempt(1, 0, ms(11), Reason::First));
        let [lookup, tcp, tls] = nanoseconds.map(Duration::from_ns);
        trail.connected(AttemptId(0), ConnectPhases { lookup, tcp, tls });
        trail.end = end(200, None);
        let span = encode(&trail).pop().expect("the attempt");
        let shown = ["lookup_ns", "tcp_ns", "tls_ns"]
            .map(|phase| span.int(&format!("curtail.connect.{phase}")).expect("a phase"));
        let largest = i64::MAX.cast_unsigned();
        assert_eq!(shown.map(i64::cast_unsigned), nanoseconds.map(|ns| ns.min(largest)));
    }
}
