use super::{Draw, DrawnBy, Holdout, HoldoutSnapshot, remedy_name};
use crate::metrics::ResponseClass;
use curtail_policy::{TieConfig, UpstreamConfig};
use curtail_units::{Duration, Instant, Ratio};
use expect_test::expect;
use http::StatusCode;

const OK: ResponseClass = ResponseClass::Status(StatusCode::OK);

pub(crate) fn drawn(is_holdout: bool) -> Draw {
    Draw { is_holdout, by: DrawnBy::Request }
}

fn holdout() -> Holdout {
    Holdout::new(Ratio::new(0.1).expect("a ratio"), &UpstreamConfig::default())
}

/// 12,000 requests in a minute, of which one in ten goes without the remedy. These take 1 to 100 ms, the others 1 to 50
/// ms, and one in a hundred of the others is hedged.
pub(crate) fn sample() -> HoldoutSnapshot {
    let holdout = holdout();
    for nth in 0..12_000_u64 {
        let now = Instant::ZERO + Duration::from_ms(5 * nth);
        let is_holdout = nth % 10 == 0;
        let range = if is_holdout { 100 } else { 50 };
        let latency = Duration::from_ms(1 + (nth / 10) % range);
        let attempts = 1 + usize::from(!is_holdout && nth % 100 == 1);
        holdout.record(now, drawn(is_holdout), (OK, latency), attempts);
    }
    holdout.read(Instant::ZERO + Duration::from_secs(60))
}

/// 12,000 requests in a minute that take 1 to 100 ms. One in a hundred would have been hedged, and saved half of its time.
pub(crate) fn dry_run_sample() -> HoldoutSnapshot {
    let dry_run = Holdout::dry_run();
    for nth in 0..12_000_u64 {
        let now = Instant::ZERO + Duration::from_ms(5 * nth);
        let latency = Duration::from_ms(1 + nth % 100);
        let saved = (latency == Duration::from_ms(100)).then(|| Duration::from_ms(50));
        dry_run.record_dry_run(now, (OK, latency), (1, saved));
    }
    dry_run.read(Instant::ZERO + Duration::from_secs(60))
}

#[test]
fn a_dry_run_counts_each_request_on_both_sides() {
    let sample = dry_run_sample();
    assert_eq!(sample.requests.without, sample.requests.with);
    let state = sample.to_json();
    assert_eq!(state["ratio"], serde_json::Value::Null);
    let extra = state["periods"][0]["extra_ratio"].as_f64().expect("requests on both sides");
    assert!((extra - 0.01).abs() < 1e-9, "{extra}");
    let p99 = &state["periods"][0]["percentiles"][2];
    // Of 100 ms, 99 is the slowest left; the p99 of 1 to 99 ms and one of 50 ms is 98 ms.
    let ms = |side: &str| p99["latency_ms"][side].as_f64().expect("stated");
    assert!((ms("holdout") / 99.0 - 1.0).abs() < 0.01, "{p99}");
    assert!((ms("remedy") / 98.0 - 1.0).abs() < 0.01, "{p99}");
    // A failure stays one.
    let dry_run = Holdout::dry_run();
    let failed = ResponseClass::Status(StatusCode::GATEWAY_TIMEOUT);
    for nth in 0..1_000 {
        let now = Instant::ZERO + Duration::from_ms(nth);
        dry_run.record_dry_run(
            now,
            (failed, Duration::from_ms(9)),
            (1, Some(Duration::from_ms(8))),
        );
    }
    let state = dry_run.read(Instant::ZERO + Duration::from_secs(60)).to_json();
    assert_eq!(
        state["periods"][0]["percentiles"][0]["latency_ms"]["remedy"],
        serde_json::Value::Null
    );
}

#[test]
fn the_state_page_has_both_sides_with_their_intervals() {
    let state = sample().to_json();
    assert_eq!(state["ratio"], 0.1);
    let effect = state["effect"].as_str().expect("a percentile is stated");
    expect!["hedging: p90 89.92 ms → 44.96 ms (44.83 ms to 46.14 ms) for 1.11 % extra, this hour, better"].assert_eq(effect);
    let hour = &state["periods"][0];
    assert_eq!((&hour["period"], &hour["complete"]), (&"hour".into(), &false.into()));
    let percentile = &hour["percentiles"][1];
    expect![[r#"
        {
          "interval_ms": {
            "holdout": [
              87.556096,
              93.323264
            ],
            "remedy": [
              44.826624,
              46.137344
            ]
          },
          "latency_ms": {
            "holdout": 89.915392,
            "remedy": 44.957696
          },
          "long_run_interval_ms": {
            "holdout": null,
            "remedy": null
          },
          "percentile": "p90",
          "quantile": 0.9,
          "ratio": 0.5,
          "ratio_interval": [
            0.4803370786516854,
            0.5269461077844312
          ],
          "verdict": "better"
        }
    "#]]
    .assert_eq(&format!("{percentile:#}\n"));
    assert_eq!(hour["percentiles"].as_array().map(Vec::len), Some(2), "too few for a p99");
}

#[test]
fn only_requests_with_a_random_side_are_measured() {
    let holdout = holdout();
    for by in [DrawnBy::Client, DrawnBy::Block] {
        let draw = Draw { by, ..drawn(true) };
        holdout.record(Instant::ZERO, draw, (OK, Duration::from_ms(1)), 1);
    }
    holdout.record(Instant::ZERO, drawn(false), (OK, Duration::from_ms(1)), 1);
    let snapshot = holdout.read(Instant::ZERO);
    assert_eq!((snapshot.requests.without, snapshot.requests.with), (0, 1));
    assert_eq!(snapshot.to_json()["effect"], serde_json::Value::Null);
}

#[test]
fn an_error_counts_as_longer_than_all_responses_and_a_client_that_leaves_as_its_wait() {
    let holdout = holdout();
    let failed = ResponseClass::Status(StatusCode::GATEWAY_TIMEOUT);
    for nth in 0..4_000_u64 {
        let now = Instant::ZERO + Duration::from_ms(5 * nth);
        let (response, ms) = match nth / 2 % 10 {
            0 | 1 if nth % 2 == 0 => (failed, 1),
            0 | 1 => (ResponseClass::None, 700),
            _ => (OK, 10),
        };
        holdout.record(now, drawn(nth % 2 == 0), (response, Duration::from_ms(ms)), 1);
    }
    let state = holdout.read(Instant::ZERO + Duration::from_secs(60)).to_json();
    let percentile = &state["periods"][0]["percentiles"][1];
    assert_eq!(percentile["latency_ms"]["holdout"], serde_json::Value::Null, "{percentile}");
    let left = percentile["latency_ms"]["remedy"].as_f64().expect("a latency");
    assert!((left / 700.0 - 1.0).abs() < 0.01, "{left}");
}

#[test]
fn the_sentence_names_the_remedies_that_are_on() {
    let tie = Some(TieConfig::default());
    let both = UpstreamConfig { tie, ..UpstreamConfig::default() };
    assert_eq!(remedy_name(&both), "hedging and ties");
    assert_eq!(remedy_name(&UpstreamConfig { hedge: None, ..both }), "ties");
    assert_eq!(remedy_name(&UpstreamConfig { hedge: None, tie: None, ..both }), "no remedy");
}
