use super::{Figure, Percentiles, of_arms};
use crate::sample;
use curtail_load::{Failure, Latencies, LatencyKind};
use curtail_units::{Duration, Quantile};

/// Responses of 1 ms, 2 ms, …, and then failures.
fn latencies(responses: u64, failed: u64) -> Latencies {
    let mut latencies = Latencies::new();
    for ms in 1..=responses {
        latencies.response.record(Duration::from_ms(ms));
        latencies.service.record(Duration::from_ms(ms));
    }
    latencies.failures.add_n(Failure::Timeout, failed);
    latencies
}

fn p99(responses: u64, failed: u64) -> Figure {
    Figure::of(&latencies(responses, failed), LatencyKind::Response, Quantile::P99)
}

#[test]
fn the_marks_follow_from_how_many_requests_are_longer() {
    assert!(matches!(p99(10_000, 0), Figure::Value(_)), "100 are longer");
    assert!(matches!(p99(9_999, 0), Figure::Indicative(_)), "99 are longer");
    assert!(matches!(p99(1_000, 0), Figure::Indicative(_)), "10 are longer");
    assert_eq!(p99(999, 0), Figure::TooFew, "9 are longer");
    assert_eq!(p99(0, 0), Figure::TooFew);
}

#[test]
fn failures_push_every_percentile_up_and_are_no_number() {
    assert_eq!(p99(9_899, 101), Figure::Failed);
    let Figure::Value(latency) = p99(9_900, 100) else { panic!("it is the longest response") };
    assert_eq!(latency, Duration::from_ms(9_900));
    assert_eq!(p99(100, 10), Figure::Failed, "one in ten failed: it is known where p99 lies");
    assert_eq!(p99(100, 9), Figure::TooFew, "chance may have put it there");
    assert_eq!(Figure::longest(&latencies(10, 1), LatencyKind::Service), Figure::Failed);
    let longest = Figure::longest(&latencies(10, 0), LatencyKind::Service);
    assert_eq!(longest, Figure::Value(Duration::from_ms(10)));
}

#[test]
fn programs_find_each_figure_and_its_mark_under_its_name() {
    let percentiles = Percentiles::of(&latencies(1_000, 4), LatencyKind::Response);
    let json = serde_json::to_value(&percentiles).expect("JSON");
    assert_eq!(json["p50_ns"].as_f64().map(|ns| (ns / 1e6).round()), Some(502.0));
    assert_eq!(json["p99_9_ns"], serde_json::Value::Null);
    assert_eq!(json["indicative"], serde_json::json!(["p95_ns", "p99_ns"]));
    assert_eq!(json["too_few"], serde_json::json!(["p99_9_ns", "p99_99_ns"]));
    assert_eq!(json["failed"], serde_json::json!(["max_ns"]));
}

#[test]
fn an_arm_is_its_blocks_without_those_for_warming_up() {
    let results = sample::compared(1);
    let figures = of_arms(&results);
    let requests = |arm: usize, is_warm_up: bool| -> u64 {
        let blocks = results.blocks.iter();
        let mine = blocks.filter(|block| block.arm == arm && block.is_warm_up == is_warm_up);
        mine.map(|block| block.merged().count()).sum()
    };
    for (nth, arm) in figures.iter().enumerate() {
        assert!(requests(nth, true) > 0);
        assert_eq!(arm.latencies.count(), requests(nth, false));
        let wanted = arm.rate_wanted.expect("it was wanted");
        assert!((arm.rate() / wanted - 1.0).abs() < 0.05, "{} of {wanted}", arm.rate());
    }
}
