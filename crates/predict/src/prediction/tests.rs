use super::Prediction;
use crate::fit::{Fit, FitOverrides};
use crate::lab::Lab;
use crate::recording::{Recording as ServiceRecording, SpanReader};
use crate::world::QUANTILES;
use curtail_sim::{Arm, Recording, RequestRecord, Scenario, SpanWriter, run, run_recorded};
use curtail_units::Duration;
use std::sync::atomic::AtomicBool;

const SEED: u64 = 5;

/// The scenario of a service of three replicas without remedies.
fn scenario(service: &str, requests_max: u64) -> Scenario {
    let yaml = format!(
        "model:
{service}
  replicas: 3
  concurrency: 4
  message_delay: {{shape: constant, value: 100us}}
arms: {{plain: {{balance: random, hedge: false, retry: false}}}}
requests_max: {requests_max}
"
    );
    Scenario::read("service", &yaml, &[]).expect("no errors")
}

/// Records the service without remedies, and predicts it.
fn predicted(service: &str) -> Prediction {
    let scenario = scenario(service, 12_000);
    let mut records: Vec<RequestRecord> = Vec::new();
    let recording =
        Recording { requests_max: 8_000, record: &mut |_, _, record| records.push(record) };
    run_recorded(&scenario, SEED, |_| {}, recording);
    let policy = scenario.arms[0].policy;
    let recording = ServiceRecording::from_records(&records, 3, policy, false);
    let fit = Fit::new(&recording, FitOverrides::default()).expect("enough requests");
    Prediction::new(&recording, fit, SEED)
}

const PAUSES: &str = "  service: {shape: lognormal, median: 10ms, sigma: 0.5}
  arrivals: {requests_per_second: 150}
  faults: [{recipe: stall, every: {shape: exponential, mean: 2s}, lasts: {shape: constant, value: 150ms}}]";

#[test]
fn bands_hold_what_the_service_then_does_with_the_remedy() {
    let prediction = predicted(PAUSES);
    assert_eq!(prediction.difference(), None);
    let chosen = prediction.recommendation.remedy.expect("a second attempt avoids a pause");
    assert!(prediction.remedies[chosen].p99_ratio.band.1 < 1.0);
    let mut truth = scenario(PAUSES, 200_000);
    let policies =
        prediction.remedies.iter().filter(|one| one.candidate.is_policy(&prediction.fit));
    let policies: Vec<_> = policies.collect();
    truth.arms = policies
        .iter()
        .map(|one| Arm::new(one.candidate.name.clone(), one.candidate.policy))
        .collect();
    let report = run(&truth, SEED + 1, |_| {});
    let mut outside = Vec::new();
    for (predicted, arm) in policies.iter().zip(&report.arms) {
        let measured = arm.quantile_ns(QUANTILES[1]).expect("a p99").value;
        let (low, high) = predicted.latencies[1].band;
        if !(low..=high).contains(&measured) {
            outside.push((&predicted.candidate.name, measured, (low, high)));
        }
        let extra = (predicted.extra_requests - arm.extra_work_ratio).abs();
        assert!(extra < 0.01, "{}: {extra}", predicted.candidate.name);
    }
    // Of nine bands of 95 %, more than two are outside in less than 1 % of all cases.
    assert!(outside.len() <= 2, "{outside:?}");
}

#[test]
fn slow_requests_that_are_slow_everywhere_call_for_no_hedge() {
    let service = "  service: {shape: constant, value: 10ms}
  request_factor: {shape: lognormal, median: 1, sigma: 1}
  arrivals: {requests_per_second: 50}";
    let mut scenario = scenario(service, 12_000);
    // Without second attempts, nothing shows how many requests take equally long on every replica.
    let yaml = "a: {hedge: {delay_min: 20ms, delay_max: 20ms}, budget: {ratio: 1}, retry: false, balance: random}";
    let policy = curtail_config::read("policy", yaml, |s| {
        s.section("a", "The policy.", curtail_config::policy::upstream)
    });
    let policy = policy.expect("no errors");
    scenario.arms = vec![Arm::new("hedged", policy)];
    let mut records: Vec<RequestRecord> = Vec::new();
    let recording =
        Recording { requests_max: 8_000, record: &mut |_, _, record| records.push(record) };
    run_recorded(&scenario, SEED, |_| {}, recording);
    let recording = ServiceRecording::from_records(&records, 3, policy, false);
    let fit = Fit::new(&recording, FitOverrides::default()).expect("enough requests");
    let prediction = Prediction::new(&recording, fit, SEED);
    assert!(prediction.fit.intrinsic.ratio > 0.9, "{:?}", prediction.fit.intrinsic);
    assert_eq!(prediction.recommendation.remedy, None, "{:?}", prediction.recommendation);
    assert!(
        prediction.recommendation.why.starts_with("do not hedge"),
        "{}",
        prediction.recommendation.why
    );
}

/// A request waits for five shards, so it meets a pause five times as often as a call.
#[test]
fn a_fan_out_is_predicted_from_its_spans() {
    let service = "model:
  service: {shape: lognormal, median: 4ms, sigma: 0.5}
  arrivals: {requests_per_second: 60}
  fan_out: 5
  shards: 5
  replicas: 3
  concurrency: 8
  faults: [{recipe: stall, every: {shape: exponential, mean: 8s}, lasts: {shape: constant, value: 400ms}}]
arms: {plain: {balance: random, hedge: false, retry: false}}
";
    let read = |requests: u64| {
        let yaml = format!("{service}requests_max: {requests}\n");
        Scenario::read("service", &yaml, &[]).expect("no errors")
    };
    let scenario = read(4_000);
    let mut writer = SpanWriter::new(&scenario.variants[0], &scenario.arms[0], SEED);
    let mut reader = SpanReader::new();
    let record = &mut |_: &_, _: &_, record: RequestRecord| {
        writer.write(&record);
        reader.add(&writer.take_batch()).expect("a batch");
    };
    run_recorded(&scenario, SEED, |_| {}, Recording { requests_max: 3_000, record });
    let recording = reader.finish(None).expect("spans of the proxy");
    let fit = Fit::new(&recording, FitOverrides::default()).expect("enough requests");
    assert_eq!((fit.shards, fit.calls, fit.replicas), (5, 5, 3));
    let prediction = Prediction::new(&recording, fit, SEED);
    assert_eq!(prediction.difference(), None);
    let chosen =
        prediction.recommendation.remedy.unwrap_or_else(|| panic!("{}", prediction.table()));
    let chosen = &prediction.remedies[chosen];
    assert!(chosen.candidate.yaml(&prediction.fit).ends_with("group: shards\n"));
    let mut truth = read(60_000);
    let group = Some("shards".to_owned());
    truth.arms = vec![Arm { group, ..Arm::new("chosen".to_owned(), chosen.candidate.policy) }];
    let report = run(&truth, SEED + 1, |_| {});
    let measured = report.arms[0].quantile_ns(QUANTILES[1]).expect("a p99").value;
    let (low, high) = chosen.latencies[1].band;
    assert!((low..=high).contains(&measured), "{measured} is not in {low} to {high}");
    let extra = (chosen.extra_requests - report.arms[0].extra_work_ratio).abs();
    assert!(extra < 0.01, "{extra}");
}

fn small_recording() -> ServiceRecording {
    Lab::small(SEED).record()
}

#[test]
fn a_cancelled_prediction_ends_without_a_result() {
    let recording = small_recording();
    let fit = || Fit::new(&recording, FitOverrides::default()).expect("enough requests");
    let predicted = |is_cancelled| {
        let is_cancelled = AtomicBool::new(is_cancelled);
        Prediction::unless_cancelled(&recording, fit(), Vec::new(), SEED, &is_cancelled).is_some()
    };
    assert!(predicted(false));
    assert!(!predicted(true));
}

#[test]
fn a_recording_with_too_few_slow_periods_checks_nothing() {
    let recording = small_recording();
    let fit = Fit::new(&recording, FitOverrides::default()).expect("enough requests");
    let mut prediction = Prediction::of(&recording, fit, Vec::new(), SEED);
    let difference = |prediction: &mut Prediction, ratio: f64, by_chance: f64| {
        prediction.measured[1] =
            Some(Duration::from_ns_f64(prediction.modelled.latencies[1].value / ratio));
        prediction.by_chance[1] = by_chance;
        prediction.difference()
    };
    assert_eq!(difference(&mut prediction, 1.2, 0.2), None);
    let too_far = difference(&mut prediction, 1.2, 0.1).expect("chance explains less");
    assert_eq!(too_far, "p99 is off by +20 %");
    // A model so noisy that chance would explain a factor of two.
    assert_eq!(difference(&mut prediction, 1.05, 0.7), None);
    let unknown = difference(&mut prediction, 1.2, 0.7).expect("nothing is checked");
    assert!(unknown.contains("p99 is off by +20 %, and the recording has too few"), "{unknown}");
}
