//! The report as people and programs get it.

use super::{Circumstances, Measured, P99Reduction, Report};
use crate::demo::cpu::CoresUsed;
use crate::demo::measurement::ArmMeasurement;
use crate::demo::proxies::Arm;
use curtail_load::{Failure, Latencies, Timing};
use curtail_units::{Duration, Instant};
use expect_test::expect;
use serde_json::{Value, json};

const QUIET: CoresUsed = CoresUsed { own: Some(0.45), others: Some(0.05) };

/// Reads of a minute in 20 blocks, one in each 50 ms.
fn measured(reads: &[(Duration, Option<Failure>)], lag: Duration, extra: f64) -> ArmMeasurement {
    let mut blocks = vec![Latencies::new(); 20];
    for (nth, (latency, failure)) in reads.iter().enumerate() {
        let intended = Instant::ZERO + Duration::from_ms(nth as u64 * 50);
        let sent = intended + lag;
        let timing = Timing { intended, ready: sent, sent, ended: intended + *latency };
        blocks[nth / 60].record(&timing, *failure);
    }
    let latencies = Latencies::merged(&blocks);
    ArmMeasurement { latencies, blocks, extra_requests_ratio: Some(extra) }
}

fn arms(names: &[&str], arms: Vec<ArmMeasurement>, cores_used: CoresUsed) -> Measured {
    Measured {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        arms,
        circumstances: Circumstances { measured: Duration::from_secs(60), cores_used },
    }
}

/// Every eleventh read is slow.
fn direct(lag: Duration) -> ArmMeasurement {
    let latency = |nth: u64| Duration::from_ms(if nth.is_multiple_of(11) { 600 + nth } else { 14 });
    let reads: Vec<_> = (0..1_200).map(|nth| (latency(nth), None)).collect();
    measured(&reads, lag, 0.0)
}

/// A verified report; a read with the remedy takes `remedied`.
fn report(lag: Duration, remedied: impl Fn(u64) -> Duration, cores_used: CoresUsed) -> Report {
    let alone = arms(&["direct"], vec![direct(Duration::ZERO)], QUIET);
    let mut report = Report::new(1, 20.0, alone);
    report.explained = Ok(explained());
    report.predicted = Ok(predicted());
    let remedied: Vec<_> = (0..1_200).map(|nth| (remedied(nth), None)).collect();
    let both = vec![direct(lag), measured(&remedied, lag, 0.00833)];
    report.verify(arms(&["direct", "hedge-p95"], both, cores_used));
    report
}

/// The usual case: reads with the remedy take 14 to 26 ms.
fn usual() -> Report {
    report(Duration::ZERO, |nth| Duration::from_us(14_000 + nth * 10), QUIET)
}

fn explained() -> Value {
    json!({
        "findings": [
            {"text": "server.port = 1 explains 40 % of the slow requests", "interval": [0.3, 0.5]},
            {"text": "server.port = 2 explains 30 % of the slow requests", "interval": [0.2, 0.4]},
            {"text": "server.port = 3 explains 20 % of the slow requests", "interval": [0.1, 0.3]},
            {"text": "server.port = 4 explains 5 % of the slow requests", "interval": [0.01, 0.09]},
        ],
        "unexplained_ratio": 0.05,
    })
}

fn predicted() -> Value {
    json!({
        "measured": {"p50_ms": 14.0, "p99_ms": 1_600.0},
        "modelled": {"p50_ms": 14.1, "p99_ms": 1_580.0, "p99_band_ms": [900.0, 1_900.0]},
        "remedies": [{
            "name": "hedge p95", "p50_ms": 14.0, "p99_ms": 24.0, "p99_band_ms": [20.0, 28.0],
            "extra_requests_ratio": 0.01, "config": "hedge: {quantile: 0.95}\nretry: false\n",
        }],
        "recommended": "hedge p95",
        "why": "hedge p95 would cut p99 from 1580 ms to 24 ms",
    })
}

fn verified(report: &Report) -> String {
    report.verify_step(2.0).join(" ")
}

#[test]
fn each_step_has_80_columns() {
    let report = usual();
    let server = "http://127.0.0.1:65535";
    let arm = report.recommended().expect("a remedy");
    let lines: Vec<String> = [
        report.measure_step(),
        report.explain_step(server),
        report.predict_step(server),
        report.cut_step(&arm),
        report.verify_step(2.0),
    ]
    .concat();
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    expect![[r#"

        1 MEASURE  20 reads a second for 60 s, without a remedy
                               p50       p95       p99  more requests   reads  errors
        direct             14.0 ms ~1,139 ms ~1,667 ms         0.00 %    1200       0
        ~ fewer than 100 reads are longer; n/a fewer than 10 are.

        2 EXPLAIN  curtail explain --service direct --server http://127.0.0.1:65535
          - server.port = 1 explains 40 % of the slow requests (30 % to 50 %)
          - server.port = 2 explains 30 % of the slow requests (20 % to 40 %)
          - server.port = 3 explains 20 % of the slow requests (10 % to 30 %)
          - and 1 more
          unexplained: 5 % of the slow reads

        3 PREDICT  curtail predict --service direct --server http://127.0.0.1:65535
                                     p50       p99              95 % band  more requests
        measured                 14.0 ms  1,600 ms
        modelled                 14.1 ms  1,580 ms     900 ms to 1,900 ms
        hedge p95                14.0 ms   24.0 ms     20.0 ms to 28.0 ms         1.00 %
        Recommended: hedge p95 would cut p99 from 1580 ms to 24 ms.

        4 CUT  a second proxy, with the recommended keys for each shard
          hedge: {quantile: 0.95}
          retry: false

        5 VERIFY  reads through both proxies at the same time
                               p50       p95       p99  more requests   reads  errors
        direct             14.0 ms ~1,139 ms ~1,667 ms         0.00 %    1200       0
        hedge-p95          20.0 ms  ~25.4 ms  ~25.9 ms         0.83 %    1200       0
        ~ fewer than 100 reads are longer; n/a fewer than 10 are.
        hedge-p95 cut p99 64 times (95 % interval: 61 to 68), for 0.83 % more requests:
            ~1,667 ms to ~25.9 ms.

        SCORECARD hedge p95: p99 predicted 24.0 ms (20.0 ms to 28.0 ms), measured 25.9
            ms: within its band; more requests predicted 1.00 %, measured 0.83 %
        CPU: 0.45 of 2 cores, everything included.
    "#]]
    .assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn programs_get_the_results_of_all_steps() {
    let mut json = usual().json();
    assert_eq!((&json["explain"], &json["predict"]), (&explained(), &predicted()));
    let object = json.as_object_mut().expect("an object");
    object.remove("explain");
    object.remove("predict");
    expect![[r#"
        {
          "arms": [
            {
              "errors": 0,
              "extra_requests_ratio": 0.0,
              "name": "direct",
              "p50_ms": 14.0,
              "p95_ms": 1139.277824,
              "p999_ms": null,
              "p99_ms": 1666.711552,
              "requests": 1200
            },
            {
              "errors": 0,
              "extra_requests_ratio": 0.00833,
              "name": "hedge-p95",
              "p50_ms": 19.996672,
              "p95_ms": 25.387008,
              "p999_ms": null,
              "p99_ms": 25.862144,
              "requests": 1200
            }
          ],
          "cpu_cores": 0.45,
          "measure": {
            "errors": 0,
            "extra_requests_ratio": 0.0,
            "name": "direct",
            "p50_ms": 14.0,
            "p95_ms": 1139.277824,
            "p999_ms": null,
            "p99_ms": 1666.711552,
            "requests": 1200
          },
          "other_cpu_cores": 0.05,
          "reads_per_second": 20.0,
          "schema": "curtail.demo/3",
          "scorecard": {
            "is_within_band": true,
            "measured_extra_requests_ratio": 0.00833,
            "measured_p99_ms": 25.862144,
            "predicted_extra_requests_ratio": 0.01,
            "predicted_p99_band_ms": [
              20.0,
              28.0
            ],
            "predicted_p99_ms": 24.0,
            "remedy": "hedge p95"
          },
          "seconds": 60.0,
          "seed": 1,
          "verify": {
            "confidence": 0.95,
            "factor": 64.44585180493984,
            "interval_high": 68.47928322535451,
            "interval_low": 60.81268693872832
          },
          "void": null
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&json).expect("JSON"));
}

#[test]
fn steps_without_a_result_say_why() {
    let mut report = usual();
    report.explained =
        Ok(json!({"findings": [], "why": "nothing stands out", "unexplained_ratio": 1.0}));
    report.predicted = Err("24 requests succeeded: expected at least 1000".to_owned());
    let explained = report.explain_step("http://127.0.0.1:1").join("\n");
    assert!(explained.ends_with("\n  nothing stands out"), "{explained}");
    let predicted = report.predict_step("http://127.0.0.1:1").join("\n");
    assert!(predicted.ends_with("Not predicted: 24 requests succeeded: expected at least 1000."));
    assert_eq!(report.recommended(), None);
    assert!(report.cut_step(&Arm::defaults()).join("\n").contains("the defaults of Curtail"));
    let verified = verified(&report);
    assert!(verified.contains("no prediction of a p99"), "{verified}");
    assert_eq!(report.json()["scorecard"], Value::Null);
}

#[test]
fn the_conclusion_says_when_the_remedy_did_not_help() {
    let slow = |nth: u64| Duration::from_ms(if nth % 11 == 5 { 600 + nth } else { 14 });
    let same = verified(&report(Duration::ZERO, slow, QUIET));
    assert!(same.contains("No difference in p99 is shown") && same.contains("MISSED"), "{same}");
    let worse = |nth: u64| Duration::from_ms(5_000 + nth);
    let worse = verified(&report(Duration::ZERO, worse, QUIET));
    assert!(worse.contains("hedge-p95 increased p99"), "{worse}");
    let mut empty = usual();
    let none = vec![ArmMeasurement::default(), ArmMeasurement::default()];
    empty.verify(arms(&["direct", "hedge-p95"], none, QUIET));
    let empty = verified(&empty);
    assert!(empty.contains("Too few reads"), "{empty}");
}

#[test]
fn a_result_is_void_when_the_client_was_late() {
    let late = report(Duration::from_ms(10), |_| Duration::from_ms(14), QUIET);
    assert!(late.is_void() && !usual().is_void());
    let verified = verified(&late);
    assert!(verified.contains("VOID, DO NOT USE: direct reads: the generator was"), "{verified}");
    assert!(!verified.contains("cut p99"));
}

#[test]
fn a_busy_machine_causes_a_warning() {
    let cores_used = CoresUsed { own: Some(1.5), others: Some(1.2) };
    let busy = verified(&report(Duration::ZERO, |_| Duration::from_ms(9), cores_used));
    assert!(busy.contains("Other programs use 1.2 of 2 cores"), "{busy}");
    assert!(busy.contains("lower --rate"), "{busy}");
    assert!(!verified(&usual()).contains("busy"));
}

#[test]
fn a_factor_has_only_the_digits_that_coarse_histograms_support() {
    let shown = [1.043, 1.3, 2.04, 9.94, 64.4, 123.6, 187.0].map(super::times);
    assert_eq!(shown, ["1.04", "1.3", "2.0", "9.9", "64", "124", "190"]);
    let cut =
        P99Reduction { factor: 1.0, interval_low: 1.0, interval_high: None, confidence: 0.95 };
    let of = |factor, interval_low, interval_high| {
        let cut = P99Reduction { factor, interval_low, interval_high, ..cut };
        super::effect(("a", "1 %"), ["90 ms", "9 ms"], &cut)
    };
    let within = of(1.004, 1.002, Some(1.006));
    assert!(within.starts_with("No difference in p99 is shown"), "{within}");
    let unbounded = of(60.0, 9.0, None);
    assert!(unbounded.contains("60 times (95 % interval: 9.0 or more)"), "{unbounded}");
}
