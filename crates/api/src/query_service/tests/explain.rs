//! `GET /api/v1/explain`: the same result as from the spans that were sent, and clear errors.

use super::*;
use crate::{SpanTable, SpanTableError, explanation_json};
use curtail_explain::{Question, Side, SlowTraces, Traces, explain};
use curtail_threads::run_on_all_processors;
use curtail_units::Quantile;

fn target(parameters: &str) -> String {
    format!("/api/v1/explain?service=front&start=0&{parameters}")
}

#[test]
fn the_result_is_that_of_the_spans_that_were_sent() {
    let all = all();
    let service = TestService::with_traces(&all);
    let mut table = SpanTable::new(usize::MAX, usize::MAX);
    all.iter().for_each(|sent| assert_eq!(table.add(&batch(sent)), Ok(())));
    let mut traces = Traces::default();
    table.add_to(&mut traces, Side::Baseline);
    assert_eq!(traces.len(), TRACES);
    let slow = SlowTraces::AboveQuantile(Quantile::P90);
    let explained = explain(
        &traces,
        &Question { slow, period_ns: 3_600_000_000_000, seed: 7 },
        run_on_all_processors,
    );
    assert!(explained.is_ok());
    // The other half of the traces is in a run, where spans are sorted by trace.
    let (status, json) = service.get(&target("quantile=0.9&seed=7"));
    assert_eq!((status, json), (StatusCode::OK, explanation_json(&explained)));
    let request = Request::get(target("quantile=0.9&seed=7&width=70"));
    let (_, text) = service.send_empty(request.header("accept", "text/plain"), "GET");
    assert!(text.contains("Where the time went"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 70), "{text}");
}

#[test]
fn only_traces_of_the_time_and_the_operation_count() {
    let all = all();
    let service = TestService::with_traces(&all);
    let slow_and_others = |parameters: &str| {
        let json = service.json(&target(parameters));
        ["slow", "baseline"].map(|side| json[side]["traces"].as_u64().expect("a number"))
    };
    let sum = |parameters| slow_and_others(parameters).iter().sum::<u64>();
    assert_eq!(sum("operation=GET%20/cart"), TRACES as u64);
    // The first hundred traces began within 100 seconds.
    let end = (BASE_NS + 100 * SECOND_NS).to_string();
    assert_eq!(sum(&format!("end={end}")), 100);
    let longer = all.iter().filter(|sent| sent.root_ns > 450_000_000).count() as u64;
    assert_eq!(slow_and_others("objective=450ms"), [longer, TRACES as u64 - longer]);
}

#[test]
fn the_end_of_the_time_may_be_a_time_before_now() {
    let now_ns = crate::query_request::now_ns();
    let mut all = all();
    // One trace a minute, the first one half a minute ago.
    for (nth, sent) in (0..).zip(&mut all) {
        sent.start_ns = now_ns - (30 + 60 * nth) * SECOND_NS;
    }
    let service = TestService::with_traces(&all);
    let traces = |parameters: &str| {
        let question = "service=front&objective=450ms";
        let json = service.json(&format!("/api/v1/explain?{question}&{parameters}"));
        let traces = |side: &str| json[side]["traces"].as_u64().expect("a number");
        traces("baseline") + traces("slow")
    };
    // The traces are at least half a minute from these times.
    assert_eq!(traces("since=200m&until=80m"), 120);
    assert_eq!(traces("until=100m"), 60, "by default an hour");
    assert_eq!(traces("start=0&until=200m"), 100);
    for (parameters, message) in [
        ("since=1h&until=1h", "since: expected a longer time before now than until"),
        ("until=1h&end=9000000000", "expected end or until, found both"),
        ("baseline=2h..1h&slow=1h..now&until=1h", "expected until, or time ranges"),
    ] {
        let target = format!("/api/v1/explain?service=front&{parameters}");
        let (status, body) = service.get(&target);
        assert_eq!(status, StatusCode::BAD_REQUEST, "{parameters}: {body}");
        assert!(body.contains(message), "{parameters}: {body}");
    }
}

#[test]
fn two_times_or_two_values_are_compared() {
    let service = TestService::with_traces(&all());
    let front = |parameters: &str| format!("/api/v1/explain?service=front&{parameters}");
    let counts = |target: &str| {
        let json = service.json(target);
        let sides =
            ["slow", "baseline"].map(|side| json[side]["traces"].as_u64().expect("a number"));
        (sides, json["unused"]["not_compared"].as_u64().expect("a number"))
    };
    let [start, middle, end] = [0, 100, 150].map(|seconds| BASE_NS + seconds * SECOND_NS);
    let times = format!("baseline={start}..{middle}&slow={middle}..{end}");
    assert_eq!(counts(&front(&times)), ([50, 100], 0));
    let (status, body) = service.get(&target(&times));
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    assert!(body.contains("expected start, or time ranges"), "{body}");
    // Each trace has both services.
    let (status, body) =
        service.get(&target("baseline=service.name%3Dcart&slow=service.name%3Dfront"));
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    assert!(body.contains("every trace with service.name=cart is in both"), "{body}");
}

#[test]
fn times_far_from_each_other_are_read_apart() {
    const DAY_NS: i64 = 86_400 * SECOND_NS;
    let mut all = all();
    // A hundred traces each of three days.
    for (nth, sent) in (0..).zip(&mut all) {
        sent.start_ns = BASE_NS + nth / 100 * DAY_NS + nth % 100 * SECOND_NS;
    }
    let service = TestService::with_traces(&all);
    let explained = |parameters: &str| {
        let json = service.json(&format!("/api/v1/explain?service=front&{parameters}"));
        let traces = |side: &str| json[side]["traces"].as_u64().expect("a number");
        let unused = json["unused"]["not_compared"].as_u64().expect("a number");
        [traces("baseline"), traces("slow"), unused]
    };
    let day = |nth: i64| {
        let from = BASE_NS + nth * DAY_NS;
        format!("{from}..{}", from + 100 * SECOND_NS)
    };
    // The day between them is not read.
    assert_eq!(explained(&format!("baseline={}&slow={}", day(0), day(2))), [100, 100, 0]);
    // The first day has the range, and the last one is the time of the request.
    let requested = BASE_NS + 2 * DAY_NS;
    let with_attribute = format!(
        "baseline={}&slow=http.response.status_code%3D503&start={requested}&end={}",
        day(0),
        requested + DAY_NS
    );
    let is_bad = |nth: usize| u64::from(all[nth].is_error);
    let bad = |of: std::ops::Range<usize>| of.map(is_bad).sum::<u64>();
    // Bad traces of the first day are in both, and good ones of the last day in neither.
    let unused = bad(0..100) + 100 - bad(200..300);
    assert_eq!(explained(&with_attribute), [100 - bad(0..100), bad(200..300), unused]);
    let (status, body) =
        service.get(&format!("/api/v1/explain?service=front&baseline={}&slow={}", day(0), day(9)));
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    assert!(body.contains("no trace began in this time"), "{body}");
}

#[test]
fn a_table_of_spans_is_bounded() {
    let all = all();
    let mut few = SpanTable::new(3, usize::MAX);
    assert_eq!(few.add(&batch(&all[0])), Ok(()));
    assert_eq!(few.add(&batch(&all[1])), Err(SpanTableError::TooManySpans));
    let mut small = SpanTable::new(usize::MAX, 100);
    assert_eq!(small.add(&batch(&all[0])), Ok(()));
    assert_eq!(small.add(&batch(&all[1])), Err(SpanTableError::TooManyBytes));
}

#[test]
fn what_is_wrong_with_a_question_is_named() {
    let service = TestService::with_traces(&all()[..60]);
    for (target, status, message) in [
        ("/api/v1/explain".to_owned(), 400, "service: expected"),
        (target("quantile=2"), 400, "quantile: expected a quantile from 0 to 1, found"),
        (target("quantile=0.9&objective=1s"), 400, "found both"),
        (target("period=0s"), 400, "period: expected more than 0"),
        (target("objective=soon"), 400, "objective: expected a length of time"),
        (target("baseline=a%3Db"), 400, "expected both baseline and slow"),
        (target("baseline=a%3Db&slow=a%3Dc&quantile=0.9"), 400, "found two of them"),
        (target("baseline=a%3Db&slow=1.4"), 400, "expected ATTRIBUTE=VALUE or a time range"),
        (target("baseline=a%3Db&slow=a%3Dc"), 404, "no span has the attribute a"),
        (target("operation=none"), 404, "operation \"none\": expected only GET /cart"),
        (target("operation=GET%20/crat"), 404, "did you mean GET /cart?"),
        // It is the operation of a call.
        (target("operation=lookup"), 404, "operation \"lookup\": expected only GET /cart"),
        ("/api/v1/explain?service=fornt&operation=x&start=0".to_owned(), 404, "mean front?"),
        (target("sinse=1h"), 400, "unknown parameter \"sinse\": did you mean since?"),
        (target("upstream=a"), 400, "\"upstream\": expected one of service, operation, start"),
        (target("seed=1&seed=2"), 400, "seed: expected once, found twice"),
        (target("seed=1&seed="), 400, "seed: expected once, found twice"),
        (target("since=1h"), 400, "expected start or since, found both"),
        ("/api/v1/explain?service=fornt&start=0".to_owned(), 404, "did you mean front?"),
        // It has spans, but no trace begins there.
        ("/api/v1/explain?service=cart&start=0".to_owned(), 404, "expected only front"),
        ("/api/v1/explain?service=front".to_owned(), 404, "no trace begins in this time"),
    ] {
        let (got, body) = service.get(&target);
        assert_eq!(got.as_u16(), status, "{target}: {body}");
        assert!(body.replace("\\\"", "\"").contains(message), "{target}: {body}");
    }
    let json = service.json(&target("objective=1h"));
    assert_eq!(json["findings"], serde_json::json!([]));
    assert!(json["why"].as_str().expect("a text").contains("no trace is slow"), "{json}");
}
