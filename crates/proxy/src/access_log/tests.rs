use super::buffers::{AccessLogCounts, LineBuffers};
use super::{AccessLog, AccessRecord, line};
use crate::Config;
use crate::client::Client;
use crate::config::{ClientRange, Network, ReplicaUrl};
use crate::spans::prepared::{PreparedReplica, PreparedRoute};
use crate::spans::sample::{attempt, client, ms, trail, usual};
use crate::trail::{AttemptEnd, CancelReason, Destination, FanOutTrail, RequestEnd, Trail};
use curtail_http::clock::Clock;
use curtail_http::connection_counts::ConnectPhases;
use curtail_policy::{AttemptId, Class, Failure, Reason};
use curtail_text::numbers::date_and_time;
use curtail_units::{Duration, Quantile, Rng};
use http::{HeaderValue, Request, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

fn config(keys: &str) -> Result<Config, String> {
    let yaml = format!(
        "listeners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: a}}]\n\
         upstreams: {{a: {{replicas: [\"http://127.0.0.1:1\"]}}}}\n{keys}\n"
    );
    Config::from_yaml("f", &yaml).map_err(|errors| errors.to_string())
}

/// An access log with these keys beside the file, and what it writes.
struct Logger {
    log: AccessLog,
    buffers: Arc<LineBuffers>,
}

impl Logger {
    fn new(keys: &str) -> Self {
        Self::with_top(keys, "")
    }

    fn with_top(keys: &str, top: &str) -> Self {
        let config = config(&format!("access_log: {{file: f{keys}}}\n{top}")).expect(keys);
        let buffers = Arc::new(LineBuffers::new(1));
        buffers.set_current(1);
        Self { log: AccessLog::new(&config, &buffers).expect("it is configured"), buffers }
    }

    fn record(&self, trail: &Trail) {
        let end = trail.end_or_unfinished(ms(20));
        self.log.record(0, &AccessRecord::of_request(trail, end), &Clock::start());
    }

    fn take(&self) -> String {
        let mut batch = Vec::new();
        self.buffers.take(1, &mut batch);
        let bytes: Vec<u8> = batch.into_iter().flat_map(|lines| lines.bytes).collect();
        String::from_utf8(bytes).expect("lines are UTF-8")
    }

    /// The only line, without its end.
    fn line(&self, trail: &Trail) -> String {
        self.record(trail);
        let line = self.take();
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        line.trim_end_matches('\n').to_owned()
    }

    fn json(&self, trail: &Trail) -> Value {
        let line = self.line(trail);
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn logs(&self, trail: &Trail) -> bool {
        self.record(trail);
        !self.take().is_empty()
    }
}

/// A request whose hedge won.
fn hedged() -> Trail {
    let mut trail = usual();
    let (first, second) = (AttemptId(0), AttemptId(1));
    trail.attempts.clear();
    trail.sent(attempt(1, 0, ms(11), Reason::First));
    let reason = Reason::SlowerThanQuantile {
        age: Duration::from_ms(4),
        delay: Duration::from_ms(3),
        quantile: Quantile::P99,
    };
    trail.sent(attempt(2, 1, ms(15), reason));
    let phases = ConnectPhases {
        lookup: Duration::ZERO,
        tcp: Duration::from_ns(1_500),
        tls: Duration::ZERO,
    };
    trail.connected(second, phases);
    trail.responded(second, ms(17), StatusCode::OK);
    trail.won(second);
    let lost = CancelReason::Policy(Reason::Lost { winner: second });
    trail.attempt_ended(first, ms(17), AttemptEnd::Cancelled(lost));
    trail.attempt_ended(second, ms(18), AttemptEnd::Responded);
    trail.response_begun = Some(ms(17));
    trail.response_body(12);
    trail.end = trail.end.map(|end| RequestEnd { at: ms(18), ..end });
    trail
}

fn ended(at_ms: u64, status: Option<StatusCode>, error: Option<&'static str>) -> Trail {
    let mut trail = usual();
    trail.end = Some(RequestEnd { at: ms(at_ms), status, error, reason: None });
    trail
}

#[test]
fn a_json_line_has_the_attempts_of_the_request_with_their_reasons() {
    let mut line = Logger::new("").json(&hedged());
    let time = line["time"].take();
    assert!(time.as_str().is_some_and(|time| time.len() == 27 && time.ends_with('Z')), "{time}");
    let detail = line["attempts"][1]["reason_detail"].take();
    assert!(detail.as_str().is_some_and(|detail| detail.contains("longer than")), "{detail}");
    let expected = json!({
        "time": null, "client": "192.0.2.7", "listener": "in", "method": "GET", "scheme": "http",
        "host": "api.example:81", "path": "/api/users/7", "protocol": "HTTP/1.1", "route": "/api",
        "upstream": "accounts", "class": "interactive", "status": 200, "reason": "first_accepted",
        "response_bytes": 12, "duration_ms": 8.0, "first_byte_ms": 7.0, "replica": "[::1]:443",
        "hedges": 1, "retries": 0, "trace_id": "ab".repeat(16),
        "attempts": [
            {
                "replica": "10.0.0.7:8080", "reason": "first", "start_ms": 1.0, "duration_ms": 6.0,
                "outcome": "cancelled", "outcome_reason": "lost", "won": false,
            },
            {
                "replica": "[::1]:443", "reason": "slower_than_quantile", "reason_detail": null,
                "start_ms": 5.0, "duration_ms": 3.0, "lookup_ms": 0.0, "tcp_ms": 0.001,
                "tls_ms": 0.0, "first_byte_ms": 2.0, "status": 200, "outcome": "responded",
                "won": true,
            },
        ],
    });
    assert_eq!(line, expected);
}

#[test]
fn a_text_line_has_the_fields_of_its_format_and_dashes_for_absent_values() {
    let format = "{{{client}}} \\\"{method} {path}\\\"\\t{status} {error} {duration_ms} {replica} \
                  {attempts} {tcp_ms} {queue_ms} {holdout} {header.Missing}";
    let logger = Logger::new(&format!(", format: \"{format}\""));
    assert_eq!(
        logger.line(&hedged()),
        "{192.0.2.7} \"GET /api/users/7\"\t200 - 8.000 [::1]:443 2 0.001 - - -"
    );
}

#[test]
fn a_line_says_why_the_last_extra_attempt_was_not_sent() {
    let mut trail = hedged();
    trail.skipped(ms(12), Reason::NoOtherReplica);
    trail.skipped(ms(13), Reason::MayNotRepeat);
    assert_eq!(Logger::new("").json(&trail)["skipped"], "may_not_repeat");
    assert_eq!(Logger::new(", format: \"{skipped}\"").line(&trail), "may_not_repeat");
}

#[test]
fn failed_grpc_calls_are_always_logged() {
    let logger = Logger::new(", sample: 0");
    for (status, is_logged) in [(0, false), (5, false), (13, true), (14, true)] {
        let mut trail = usual();
        trail.grpc_status = Some(status);
        assert_eq!(logger.logs(&trail), is_logged, "{status}");
        assert_eq!(Logger::new("").json(&trail)["grpc_status"], status);
    }
}

#[test]
fn the_query_is_logged_on_demand_only() {
    let path = |keys| Logger::new(keys).json(&usual())["path"].clone();
    assert_eq!(path(""), "/api/users/7");
    assert_eq!(path(", query: true"), "/api/users/7?token=secret");
}

#[test]
fn a_line_has_the_id_that_header_changes_send_also_without_spans() {
    let mut own = usual();
    own.context.parent = None;
    assert_eq!(Logger::new("").json(&own)["trace_id"], "ab".repeat(16));
}

#[test]
fn behind_a_trusted_proxy_the_client_and_the_scheme_are_those_that_it_reports() {
    let request = Request::get("/").header("x-forwarded-for", "203.0.113.9, 192.0.2.7");
    let request = request.header("x-forwarded-proto", "https").body(()).expect("a request");
    let mut trail = trail(request);
    trail.end = usual().end;
    let proxy = ClientRange::Network(Network::parse("192.0.2.7").expect("an address"));
    let trusted = [proxy].into();
    trail.client = Arc::new(Client { is_trusted: true, trusted, ..client() });
    let line = Logger::new("").json(&trail);
    assert_eq!((&line["client"], &line["scheme"]), (&json!("203.0.113.9"), &json!("https")));
}

#[test]
fn a_tenant_a_failed_attempt_and_a_fan_out_have_their_fields() {
    let mut trail = usual();
    trail.attempts[0].won = false;
    trail.attempts[0].end = Some((ms(14), AttemptEnd::Failed(Failure::Broken)));
    let missing_detail = Some("b: deadline, d: broken".into());
    let fan_out = FanOutTrail { calls: 5, missing: 2, missing_detail, hedges: 3, retries: 4 };
    trail.fan_out = Some(Box::new(fan_out));
    trail.leaf_wait = Some(Duration::from_ns(2_345_678));
    let logger = Logger::with_top("", "tenants: {header: host}");
    let line = logger.json(&trail);
    assert_eq!(line["tenant"], "api.example:81");
    assert_eq!((&line["shards"], &line["shards_missing"]), (&json!(5), &json!(2)));
    assert_eq!(line["shards_missing_detail"], "b: deadline, d: broken");
    assert_eq!((&line["hedges"], &line["retries"]), (&json!(3), &json!(4)));
    assert_eq!((&line["queue_ms"], line.get("replica")), (&json!(2.345), None));
    let attempt = &line["attempts"][0];
    assert_eq!(
        (&attempt["outcome"], &attempt["outcome_reason"]),
        (&json!("failed"), &json!("broken"))
    );
}

/// A request with a header of these bytes.
fn with_header(value: &[u8]) -> Trail {
    let value = HeaderValue::from_bytes(value).expect("a value");
    let request: Request<()> =
        Request::get("/").header("host", "a").header("x", value).body(()).expect("a request");
    let mut trail = trail(request);
    trail.end = ended(15, Some(StatusCode::OK), None).end;
    trail
}

#[test]
fn no_byte_of_a_client_ends_a_line_or_a_text() {
    let json_log = Logger::new(", headers: [X]");
    let text_log = Logger::new(", format: '\"{header.x}\"'");
    for (value, json, text) in [
        (&b"a\"b\\c"[..], "a\"b\\c", r"a\x22b\x5cc"),
        (b"tab\there", "tab\there", r"tab\x09here"),
        ("ü".as_bytes(), "ü", r"\xc3\xbc"),
        (b"\xff\xfe.\xc3", "\u{fffd}\u{fffd}.\u{fffd}", r"\xff\xfe.\xc3"),
        ("\u{9b}31m".as_bytes(), "\u{9b}31m", r"\xc2\x9b31m"),
        (b"", "", "-"),
    ] {
        let trail = with_header(value);
        let line = json_log.line(&trail);
        assert!(!line.chars().any(char::is_control), "{line:?}");
        let parsed: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(parsed["headers"]["x"], json);
        assert_eq!(text_log.line(&trail), format!("\"{text}\""));
    }
    // Headers cannot contain these bytes today. The line does not depend on that.
    let mut out = Vec::new();
    let all: Vec<u8> = (0..=255).collect();
    line::write_text_value(&mut out, &all);
    let parsed: String = serde_json::from_slice(&out).expect("JSON");
    assert!(parsed.starts_with("\0\u{1}") && !out.iter().any(u8::is_ascii_control));
}

#[test]
fn long_texts_are_cut_off() {
    let trail = with_header(&[b'x'; 5_000]);
    let line = Logger::new(", headers: [x]").json(&trail);
    let len = |value: &Value| value.as_str().map(str::len);
    assert_eq!(len(&line["headers"]["x"]), Some(line::TEXT_BYTES_MAX));
    assert_eq!(Logger::new(", format: \"{header.x}\"").line(&trail).len(), line::TEXT_BYTES_MAX);
    let method = "X".repeat(5_000);
    let request = Request::builder().method(&*method).uri("/").header("host", "a").body(());
    let mut trail = self::trail(request.expect("a request"));
    let prefix = format!("/{method}");
    let route = Arc::new(PreparedRoute::new(&prefix, Some(&method)));
    trail.destination = Some(Destination { route, class: Class::Interactive });
    let (line, texts) = (Logger::new("").json(&trail), ["method", "route", "upstream"]);
    assert_eq!(texts.map(|text| len(&line[text])), [Some(line::TEXT_BYTES_MAX); 3]);
    let format = ", format: \"{method}{route}{upstream}\"";
    assert_eq!(Logger::new(format).line(&trail).len(), 3 * line::TEXT_BYTES_MAX);
}

#[test]
fn texts_of_the_configuration_are_escaped() {
    let mut trail = usual();
    let route = Arc::new(PreparedRoute::new("/a\"b", Some("")));
    trail.destination = Some(Destination { route, class: Class::Interactive });
    let url = ReplicaUrl::parse("http://unix:/run/a\"b.sock").expect("an address");
    trail.attempts[0].replica = Arc::new(PreparedReplica::new("", &url));
    let line = Logger::new("").json(&trail);
    assert_eq!((&line["route"], &line["upstream"]), (&json!("/a\"b"), &json!("")));
    assert_eq!(line["replica"], "unix:/run/a\"b.sock");
    assert_eq!(line["attempts"][0]["replica"], "unix:/run/a\"b.sock");
    let line = Logger::new(", format: \"{route} {upstream} {replica}\"").line(&trail);
    assert_eq!(line, r"/a\x22b - unix:/run/a\x22b.sock");
}

#[test]
fn a_host_that_is_no_text_is_logged() {
    let value = HeaderValue::from_bytes(b"\xff.example").expect("a value");
    let request = Request::get("/").header("host", value).body(()).expect("a request");
    let mut trail = trail(request);
    trail.end = ended(15, Some(StatusCode::BAD_REQUEST), None).end;
    assert_eq!(Logger::new("").json(&trail)["host"], "\u{fffd}.example");
    assert_eq!(Logger::new(", format: \"{host}\"").line(&trail), r"\xff.example");
}

#[test]
fn errors_are_always_logged_and_slow_requests_on_demand() {
    let ok = Some(StatusCode::OK);
    let requests = [
        ("fast", ended(15, ok, None)),
        ("slow", ended(61, ok, None)),
        ("not found", ended(15, Some(StatusCode::NOT_FOUND), None)),
        ("failed", ended(15, Some(StatusCode::BAD_GATEWAY), None)),
        ("broken off", ended(15, ok, Some("broken"))),
        ("gone", ended(15, None, Some("client_gone"))),
        ("gone at a leaf", { Trail { is_at_leaf: true, ..ended(15, None, Some("client_gone")) } }),
        ("dropped at a leaf", {
            let status = Some(StatusCode::SERVICE_UNAVAILABLE);
            Trail { is_at_leaf: true, ..ended(15, status, Some("twin_started")) }
        }),
    ];
    let logged = |keys| {
        let logger = Logger::new(keys);
        let logged = requests.iter().filter(|(_, trail)| logger.logs(trail));
        logged.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    assert_eq!(logged("").len(), requests.len());
    assert_eq!(logged(", sample: 0"), ["failed", "broken off", "gone"]);
    assert_eq!(logged(", slower_than: 50ms"), ["slow", "failed", "broken off", "gone"]);
    assert_eq!(logged(", slower_than: 50ms, sample: 1").len(), requests.len());
}

#[test]
fn a_sample_is_the_same_at_every_proxy_and_has_its_share() {
    let (first, second) = (Logger::new(", sample: 0.1"), Logger::new(", sample: 0.1"));
    let mut request = usual();
    let mut logged = 0;
    for nth in 0..20_000_u64 {
        // Consecutive numbers are the worst IDs.
        request.context.trace_id[8..].copy_from_slice(&nth.to_be_bytes());
        let is_logged = first.logs(&request);
        assert_eq!(is_logged, second.logs(&request));
        logged += u32::from(is_logged);
    }
    // Five standard deviations are 212.
    assert!((1_788..=2_212).contains(&logged), "{logged}");
}

#[test]
fn a_malformed_request_has_a_line() {
    let logger = Logger::new("");
    let status = Some(StatusCode::BAD_REQUEST);
    let end = RequestEnd { at: ms(3), status, error: Some("bad_request"), reason: None };
    logger.log.record(
        0,
        &AccessRecord::of_malformed(&client(), end, ("no host", 1)),
        &Clock::start(),
    );
    let mut line: Value = serde_json::from_str(&logger.take()).expect("JSON");
    line["time"].take();
    assert_eq!(
        line,
        json!({
            "time": null, "client": "192.0.2.7", "listener": "in", "scheme": "http", "status": 400,
            "error": "bad_request", "error_detail": "no host", "reason": "bad_request",
        })
    );
}

#[test]
fn full_buffers_drop_lines_and_count_them() {
    let logger = Logger::new("");
    let trail = hedged();
    while logger.buffers.counts().buffer_full == 0 {
        logger.record(&trail);
    }
    let lines = logger.take();
    assert!((8 << 20..(8 << 20) + 4_096).contains(&lines.len()), "{}", lines.len());
    assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert!(logger.logs(&trail), "there is room again");
    let expected =
        AccessLogCounts { written: 0, buffer_full: 1, write_failed: 0, encoder_panicked: 0 };
    assert_eq!(logger.buffers.counts(), expected);
}

#[test]
fn a_wrong_format_is_an_error_with_similar_names() {
    for (keys, expected) in [
        ("format: \"{statsu}\"", "\"statsu\" is not a field: did you mean status?"),
        (
            "format: \"{user_agent}\"",
            "\"user_agent\" is not a field: expected one of time, client,",
        ),
        ("format: jsn", "\"jsn\" has no field: expected json, or a text with fields"),
        ("format: \"{status\"", "{ stands alone"),
        ("format: \"{status}}\"", "} stands alone"),
        ("format: \"{status}\\n\"", "the format has a control character"),
        ("format: \"{header.a b}\"", "\"a b\" is not the name of a header"),
        ("headers: [\"a b\"]", "access_log.headers[0]: \"a b\" is not the name of a header"),
        ("headers: [x, X]", "access_log.headers[1]: x is there twice"),
        ("format: \"{status}\", headers: [x]", "access_log.headers: only for format: json"),
        ("sample: 2", "access_log.sample"),
        ("fields: [x]", "access_log.fields: unknown key"),
    ] {
        let errors = config(&format!("access_log: {{file: f, {keys}}}")).expect_err(keys);
        assert!(errors.contains(expected) && errors.lines().count() == 1, "{errors}");
    }
    assert!(config("access_log: {}").is_err_and(|errors| errors.contains("access_log.file")));
}

#[test]
fn numbers_have_all_their_digits() {
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = b"before".to_vec();
        write(&mut out);
        String::from_utf8(out).expect("ASCII").split_off("before".len())
    };
    let mut rng = Rng::new(7);
    let some = [0, 7, 9, 10, 99, 100, 101, 999, 1_000, 1_001, 12_345, 999_999, u64::MAX];
    let random = (0..10_000).map(|_| rng.next_u64() >> rng.below(64));
    for number in some.into_iter().chain(random) {
        assert_eq!(written(&|out| line::write_digits(out, number)), number.to_string());
        let us = number / 1_000;
        let ms = format!("{}.{:03}", us / 1_000, us % 1_000);
        assert_eq!(written(&|out| line::write_ms(out, Duration::from_ns(number))), ms);
    }
}

#[test]
fn times_are_those_of_their_second_in_any_order() {
    let (mut rng, mut second) = (Rng::new(8), line::SecondText::default());
    let mut unix_ns = 0_u64;
    for nth in 0..10_000 {
        // Most lines follow within a second, and some jump, also back.
        unix_ns = match nth % 10 {
            0 => rng.next_u64() >> rng.below(64),
            1 => unix_ns.saturating_sub(1_000_000_000),
            _ => unix_ns.saturating_add(rng.next_u64() % 300_000_000),
        };
        let mut out = Vec::new();
        line::write_time((&mut out, &mut second), unix_ns);
        let [year, month, day, hour, minute, of_minute] = date_and_time(unix_ns);
        let us = unix_ns / 1_000 % 1_000_000;
        let expected =
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{of_minute:02}.{us:06}Z");
        assert_eq!(String::from_utf8(out).expect("ASCII"), expected, "{unix_ns}");
    }
}

/// Texts of all lengths, in which each byte occurs at each place of a word.
#[test]
fn a_json_parser_reads_every_text_as_it_was() {
    let mut rng = Rng::new(9);
    let check = |text: &[u8]| {
        let mut out = Vec::new();
        line::write_text_value(&mut out, text);
        assert!(!out.iter().any(u8::is_ascii_control), "{text:?}");
        let parsed: String = serde_json::from_slice(&out).expect("JSON");
        let kept = &text[..text.len().min(line::TEXT_BYTES_MAX)];
        assert_eq!(parsed, String::from_utf8_lossy(kept), "{text:?}");
        // Whatever needs no escape is written as it is.
        let is_clean = std::str::from_utf8(kept).is_ok_and(|text| {
            !text.chars().any(|char| char.is_control() || matches!(char, '"' | '\\'))
        });
        assert_eq!(out[1..out.len() - 1] == *kept, is_clean, "{text:?}");
    };
    for byte in 0..=255 {
        for len in 1..=20 {
            for at in 0..len {
                let mut text = vec![b'~'; len];
                text[at] = byte;
                check(&text);
            }
        }
    }
    for _ in 0..2_000 {
        let len = rng.below(100).saturating_pow(if rng.chance(0.1) { 2 } else { 1 });
        let mut byte = || {
            let [byte, ..] = rng.next_u64().to_le_bytes();
            if rng.chance(0.9) { b' ' + byte % 95 } else { byte }
        };
        let text: Vec<u8> = (0..len).map(|_| byte()).collect();
        check(&text);
    }
}
