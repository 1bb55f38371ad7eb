use super::*;
use curtail_policy::{HedgeConfig, UpstreamConfig};
use serde_json::json;

const HOUR_NS: u64 = 3_600_000_000_000;

fn hedged() -> UpstreamConfig {
    UpstreamConfig { hedge: Some(HedgeConfig::default()), ..UpstreamConfig::default() }
}

fn event(hour: u64, name: &str, body: Value) -> ScorecardEvent {
    let service = "checkout".to_owned();
    ScorecardEvent { time_ns: hour * HOUR_NS, service, name: name.to_owned(), body }
}

/// A prediction for the upstreams that `upstream` names, as `curtail predict --keep` keeps it.
fn prediction(hour: u64, upstream: Option<&str>, shards: u32, p99_ms: f64) -> ScorecardEvent {
    // Further keys of the policy, as the timeout, are no part of the remedy.
    let other = UpstreamConfig { timeout: curtail_units::Duration::from_secs(9), ..hedged() };
    let remedy = |name: &str, policy: &UpstreamConfig| {
        json!({
            "name": name, "config": policy_yaml(policy), "p99_ms": p99_ms,
            "p99_band_ms": [p99_ms / 2.0, p99_ms * 2.0], "extra_requests_ratio": 0.01,
        })
    };
    let two = HedgeConfig { hedges_max: 2, ..HedgeConfig::default() };
    let remedies = [
        remedy("two hedges", &UpstreamConfig { hedge: Some(two), ..other }),
        remedy("hedge", &other),
    ];
    let prediction =
        json!({ "model": { "shards": shards }, "remedies": remedies, "recommended": "hedge" });
    event(hour, PREDICTION, json!({ "upstream": upstream, "prediction": prediction }))
}

/// An effect on an upstream, with a p99 of the requests with hedges and of those without.
fn effect(hour: u64, upstream: &str, p99_ms: Option<(f64, f64)>) -> ScorecardEvent {
    let percentiles = p99_ms.map(|(with, without)| {
        json!({
            "percentile": "p99", "latency_ms": { "holdout": without, "remedy": with },
            "interval_ms": { "holdout": [1.0, null], "remedy": [with * 0.9, with * 1.1] },
        })
    });
    event(
        hour,
        EFFECT,
        json!({
            "remedy": "hedging", "upstreams": [upstream], "policy": hedged(), "extra_ratio": 0.02,
            "percentiles": percentiles.into_iter().collect::<Vec<_>>(),
        }),
    )
}

#[track_caller]
fn only(events: &[ScorecardEvent]) -> ScorecardEntry {
    let scorecard = Scorecard::of(events);
    assert_eq!(scorecard.malformed, 0);
    let [entry] = &*scorecard.remedies else { panic!("{scorecard:#?}") };
    entry.clone()
}

#[test]
fn the_last_prediction_before_the_first_effect_counts() {
    let events = [
        prediction(1, None, 1, 500.0),
        prediction(2, None, 1, 20.0),
        effect(3, "search", Some((25.0, 400.0))),
        prediction(4, None, 1, 1_000.0),
        effect(5, "search", Some((30.0, 410.0))),
        // Without a p99, the last figures stay.
        effect(6, "search", None),
    ];
    let entry = only(&events);
    assert_eq!((&*entry.remedy, entry.verdict), ("hedge", ScoreVerdict::WithinBand));
    assert_eq!(entry.predicted.map(|of| of.p99_ms), Some(20.0));
    let measured = entry.measured.expect("it was measured");
    assert_eq!((measured.from_unix_ns, measured.to_unix_ns), (3 * HOUR_NS, 5 * HOUR_NS));
    assert_eq!((measured.p99_ms, measured.p99_without_ms), (Some(30.0), Some(410.0)));
    assert_eq!(measured.p99_interval_ms, (27.0, Some(33.0)));
}

/// A proxy that starts again, an hour that begins, and a second instance of the proxy have fewer requests at first.
#[test]
fn a_new_period_keeps_the_verdicts_on_the_others() {
    let of_period = |hour, (period, from_hour): (&str, u64), p99_ms| {
        let mut effect = effect(hour, "search", Some((p99_ms, 400.0)));
        effect.body["period"] = json!(period);
        effect.body["period_from_unix_ns"] = json!(from_hour * HOUR_NS);
        effect
    };
    // The band is 10 to 40 ms.
    let events = [
        prediction(1, None, 1, 20.0),
        of_period(3, ("hour", 2), 43.0),
        of_period(4, ("hour", 2), 90.0),
        // The first day begins with the first hour, and states a p99 before the next hour does.
        of_period(5, ("day", 2), 25.0),
        of_period(6, ("hour", 4), 25.0),
        of_period(7, ("hour", 2), 80.0),
        of_period(8, ("hour", 6), 43.0),
        of_period(9, ("hour", 7), 21.0),
        effect(10, "search", None),
    ];
    let entry = only(&events);
    assert_eq!(entry.verdict, ScoreVerdict::WithinBand);
    let measured = entry.measured.expect("it was measured");
    let counts = VerdictCounts { within_band: 1, missed_band: 1, undecided: 1 };
    assert_eq!((measured.p99_ms, measured.other_periods), (Some(21.0), Some(counts)));
    let of_day = only(&events[..4]).measured.expect("it was measured");
    assert_eq!(of_day.other_periods, Some(VerdictCounts::default()));
    let back = only(&events[..6]).measured.expect("it was measured");
    let counts = VerdictCounts { within_band: 1, ..VerdictCounts::default() };
    assert_eq!(back.other_periods, Some(counts), "the first hour again");
    let alone = only(&events[1..3]).measured.expect("it was measured");
    assert_eq!(alone.other_periods, None, "nothing was predicted");
}

#[test]
fn the_last_prediction_is_an_entry_until_its_remedy_is_on() {
    let predictions = [prediction(1, None, 1, 500.0), prediction(2, None, 1, 20.0)];
    let entry = only(&predictions);
    assert_eq!((&*entry.remedy, entry.verdict), ("hedge", ScoreVerdict::NotMeasured));
    assert_eq!(entry.predicted.map(|of| of.p99_ms), Some(20.0));
    let mut other = effect(3, "search", Some((25.0, 400.0)));
    let two = HedgeConfig { hedges_max: 2, ..HedgeConfig::default() };
    other.body["policy"] = json!(UpstreamConfig { hedge: Some(two), ..hedged() });
    let scorecard = Scorecard::of(&[&predictions[..], &[other]].concat());
    let names: Vec<_> =
        scorecard.remedies.iter().map(|entry| (&*entry.remedy, entry.verdict)).collect();
    assert_eq!(
        names,
        [("two hedges", ScoreVerdict::WithinBand), ("hedge", ScoreVerdict::NotMeasured)]
    );
}

/// The proxy also sends the effect of a holdout that withholds nothing: both sides are balanced by the same rule.
#[test]
fn a_holdout_cannot_measure_a_remedy_without_hedges_and_ties() {
    let balanced = UpstreamConfig { hedge: None, tie: None, ..hedged() };
    let mut predicted = prediction(1, None, 1, 20.0);
    let remedy = &mut predicted.body["prediction"]["remedies"][1];
    remedy["config"] = json!(policy_yaml(&balanced));
    let entry = only(&[predicted.clone()]);
    assert_eq!((&*entry.remedy, entry.verdict), ("hedge", ScoreVerdict::NotMeasurableByHoldout));
    let mut measured = effect(2, "search", Some((20.0, 20.0)));
    measured.body["policy"] = json!(balanced);
    let entry = only(&[predicted, measured]);
    assert_eq!((&*entry.remedy, entry.verdict), ("hedge", ScoreVerdict::NotMeasurableByHoldout));
    assert_eq!(entry.measured, None);
    assert_eq!(json!(entry)["verdict"], "not_measurable_by_holdout");
}

#[test]
fn a_switchback_has_a_verdict_on_all_requests() {
    let on_all = |verdict: &str| {
        let mut measured = effect(2, "search", Some((20.0, 400.0)));
        measured.body["switchback"] = json!({ "percentiles": [{
            "percentile": "p99", "latency_ms": { "holdout": 390.0, "remedy": 30.0 }, "verdict": verdict,
        }]});
        only(&[measured]).measured.and_then(|measured| measured.on_all_requests)
    };
    let verdict = |text| on_all(text).map(|of| of.verdict);
    assert_eq!(verdict("worse"), Some(EffectVerdict::Worse));
    assert_eq!(json!(on_all("undecided"))["verdict"], "undecided");
    assert_eq!(verdict("unheard of"), None);
}

#[test]
fn the_json_has_no_negative_zero() {
    let mut predicted = prediction(1, None, 1, 20.0);
    predicted.body["prediction"]["remedies"][1]["extra_requests_ratio"] = json!(-0.0);
    let json = Scorecard::of(&[predicted]).json().expect("JSON");
    assert!(json.contains("\"extra_requests_ratio\": 0.0"), "{json}");
}

#[test]
fn a_band_is_missed_only_if_the_interval_of_the_measured_p99_is_apart() {
    // The band is 10 to 40 ms, and each interval a tenth to both sides.
    for (p99_ms, verdict) in [
        (20.0, ScoreVerdict::WithinBand),
        (10.0, ScoreVerdict::WithinBand),
        (40.0, ScoreVerdict::WithinBand),
        (9.5, ScoreVerdict::Undecided),
        (43.0, ScoreVerdict::Undecided),
        (9.0, ScoreVerdict::MissedBand),
        (45.0, ScoreVerdict::MissedBand),
    ] {
        let events = [prediction(1, None, 1, 20.0), effect(2, "search", Some((p99_ms, 400.0)))];
        assert_eq!(only(&events).verdict, verdict, "{p99_ms} ms");
    }
    // Without an upper end.
    assert_eq!(ScoreVerdict::on([1.0, 2.0], None, (1.5, None)), ScoreVerdict::Undecided);
    assert_eq!(ScoreVerdict::on([1.0, 2.0], None, (2.5, None)), ScoreVerdict::MissedBand);
}

#[test]
fn a_remedy_of_late_has_its_prediction_of_long_ago() {
    let events = [
        prediction(1, None, 1, 20.0),
        effect(100, "search", Some((20.0, 400.0))),
        effect(200, "search", None),
    ];
    let since = |hour: u64| Scorecard::since(&events, hour * HOUR_NS).remedies;
    let verdicts: Vec<_> = since(150).iter().map(|entry| entry.verdict).collect();
    assert_eq!(verdicts, [ScoreVerdict::WithinBand]);
    assert_eq!(since(201), []);
}

#[test]
fn only_the_first_remedies_of_a_kept_prediction_are_looked_at() {
    let mut long = prediction(1, None, 1, 20.0);
    let remedies = &mut long.body["prediction"]["remedies"];
    let hedge = remedies[1].clone();
    let others = |count| std::iter::repeat_n(remedies[0].clone(), count);
    let with = |count| json!(others(count).chain([hedge.clone()]).collect::<Vec<_>>());
    let (fitting, too_long) = (with(REMEDIES_MAX - 1), with(REMEDIES_MAX));
    for (remedies, verdict) in
        [(fitting, ScoreVerdict::WithinBand), (too_long, ScoreVerdict::NotPredicted)]
    {
        long.body["prediction"]["remedies"] = remedies;
        let entry = only(&[long.clone(), effect(2, "search", Some((20.0, 400.0)))]);
        assert_eq!(entry.verdict, verdict);
    }
}

#[test]
fn a_prediction_is_of_its_upstreams_and_of_its_keys() {
    let measured = |upstream: &str| effect(2, upstream, Some((20.0, 400.0)));
    for (predicted, upstream, is_of) in [
        (prediction(1, Some("search"), 1, 20.0), "search", true),
        (prediction(1, Some("search"), 1, 20.0), "cart", false),
        (prediction(1, Some("sea*"), 1, 20.0), "search", true),
        (prediction(1, Some("car*"), 1, 20.0), "search", false),
        // Of whole requests that fan out: the effect on one shard is another quantity.
        (prediction(1, None, 50, 20.0), "search", false),
        // After the first effect.
        (prediction(3, None, 1, 20.0), "search", false),
    ] {
        let scorecard = Scorecard::of(&[predicted, measured(upstream)]);
        let entry = scorecard.remedies.iter().find(|entry| entry.measured.is_some());
        let verdict = entry.expect("it was measured").verdict;
        assert_eq!(verdict == ScoreVerdict::WithinBand, is_of, "{scorecard:#?}");
        assert_eq!(verdict == ScoreVerdict::NotPredicted, !is_of, "{scorecard:#?}");
    }
}

#[test]
fn a_route_that_fans_out_has_the_prediction_of_its_shards() {
    let mut of_route = effect(2, "shard-0", Some((20.0, 400.0)));
    of_route.body["upstreams"] = json!(["shard-0", "shard-1"]);
    of_route.body["route"] = json!("/keys");
    let entry = only(&[prediction(1, Some("shard-*"), 2, 20.0), of_route]);
    assert_eq!(entry.upstream.as_deref(), Some("/keys"));
    assert_eq!(entry.verdict, ScoreVerdict::WithinBand);
}

#[test]
fn what_is_no_event_of_the_scorecard_is_counted() {
    let events = [
        event(1, PREDICTION, json!({})),
        event(1, EFFECT, json!({ "policy": 1 })),
        event(1, "checkout.started", json!(null)),
        effect(2, "search", None),
    ];
    let scorecard = Scorecard::of(&events);
    assert_eq!((scorecard.malformed, scorecard.remedies.len()), (3, 1));
    assert_eq!(scorecard.remedies[0].verdict, ScoreVerdict::NotMeasured);
}
