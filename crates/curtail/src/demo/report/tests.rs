//! The report as people and programs get it.

use super::{Circumstances, P99Reduction, Report};
use crate::demo::cpu::CoresUsed;
use crate::demo::measurement::ArmMeasurement;
use curtail_load::{Failure, Latencies, Timing};
use curtail_units::{Duration, Instant};
use expect_test::expect;

const QUIET: CoresUsed = CoresUsed { own: Some(0.45), others: Some(0.05) };
const CIRCUMSTANCES: Circumstances =
    Circumstances { seed: 1, rate: 20.0, measured: Duration::from_secs(60), cores_used: QUIET };

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

/// Direct reads, every eleventh slow; `hedged` reads, one failed tied read, and no prequal read.
fn report(lag: Duration, hedged: impl Fn(u64) -> Duration, circumstances: Circumstances) -> Report {
    let direct = |nth: u64| Duration::from_ms(if nth.is_multiple_of(11) { 600 + nth } else { 14 });
    let direct: Vec<_> = (0..1_200).map(|nth| (direct(nth), None)).collect();
    let hedged: Vec<_> = (0..1_200).map(|nth| (hedged(nth), None)).collect();
    let tied = [(Duration::from_ms(1), Some(Failure::Status))];
    let arms = [
        measured(&direct, lag, 0.0),
        measured(&hedged, lag, 0.00833),
        measured(&tied, lag, 0.0),
        measured(&[], lag, 0.0),
    ];
    Report::new(&arms, circumstances)
}

/// The usual case: hedged reads take 14 to 26 ms.
fn usual() -> Report {
    report(Duration::ZERO, |nth| Duration::from_us(14_000 + nth * 10), CIRCUMSTANCES)
}

fn text(report: &Report) -> String {
    let mut lines = report.table();
    lines.push(Report::marks());
    lines.extend(report.conclusion());
    lines.extend(report.warnings(2.0));
    lines.extend(report.cpu(2.0));
    lines.push(report.line());
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    lines.join("\n") + "\n"
}

#[test]
fn the_table_has_80_columns_and_a_conclusion() {
    expect![[r#"
                       p50       p95       p99     p99.9  more requests   reads  errors
        direct     14.0 ms ~1,139 ms ~1,667 ms       n/a         0.00 %    1200       0
        hedged     20.0 ms  ~25.4 ms  ~25.9 ms       n/a         0.83 %    1200       0
        tied           n/a       n/a       n/a       n/a         0.00 %       1       1
        prequal        n/a       n/a       n/a       n/a         0.00 %       0       0
        ~ fewer than 100 reads are longer; n/a fewer than 10 are.
        Hedging cut p99 64 times (95 % interval: 61 to 68), for 0.83 % more requests:
            ~1,667 ms to ~25.9 ms.
        CPU: 0.45 of 2 cores, everything included.
          60 s  p95:  direct ~1,139 ms  hedged ~25.4 ms  tied n/a  prequal n/a
    "#]]
    .assert_eq(&text(&usual()));
}

#[test]
fn programs_get_every_figure_and_null_where_there_is_none() {
    let json = serde_json::to_string_pretty(&usual()).expect("plain numbers and words");
    expect![[r#"
        {
          "schema": "curtail.demo/2",
          "seed": 1,
          "reads_per_second": 20.0,
          "seconds": 60.0,
          "arms": [
            {
              "name": "direct",
              "p50_ms": 14.0,
              "p95_ms": 1139.277824,
              "p99_ms": 1666.711552,
              "p999_ms": null,
              "extra_requests_ratio": 0.0,
              "requests": 1200,
              "errors": 0
            },
            {
              "name": "hedged",
              "p50_ms": 19.996672,
              "p95_ms": 25.387008,
              "p99_ms": 25.862144,
              "p999_ms": null,
              "extra_requests_ratio": 0.00833,
              "requests": 1200,
              "errors": 0
            },
            {
              "name": "tied",
              "p50_ms": null,
              "p95_ms": null,
              "p99_ms": null,
              "p999_ms": null,
              "extra_requests_ratio": 0.0,
              "requests": 1,
              "errors": 1
            },
            {
              "name": "prequal",
              "p50_ms": null,
              "p95_ms": null,
              "p99_ms": null,
              "p999_ms": null,
              "extra_requests_ratio": 0.0,
              "requests": 0,
              "errors": 0
            }
          ],
          "hedged_p99": {
            "factor": 64.44585180493984,
            "interval_low": 60.81268693872832,
            "interval_high": 68.47928322535451,
            "confidence": 0.95
          },
          "void": null,
          "cpu_cores": 0.45,
          "other_cpu_cores": 0.05
        }"#]]
    .assert_eq(&json);
}

#[test]
fn the_conclusion_says_when_hedging_did_not_help() {
    let slow = |nth: u64| Duration::from_ms(if nth % 11 == 5 { 600 + nth } else { 14 });
    let same = report(Duration::ZERO, slow, CIRCUMSTANCES);
    let conclusion = same.conclusion().join(" ");
    assert!(conclusion.starts_with("No difference in p99 is shown"), "{conclusion}");
    let worse = |nth: u64| Duration::from_ms(5_000 + nth);
    let worse = report(Duration::ZERO, worse, CIRCUMSTANCES);
    let conclusion = worse.conclusion().join(" ");
    assert!(conclusion.starts_with("Hedging increased p99"), "{conclusion}");
    let empty = Report::new(&[(); 4].map(|()| ArmMeasurement::default()), CIRCUMSTANCES);
    let conclusion = empty.conclusion().join(" ");
    assert!(conclusion.starts_with("Too few reads"), "{conclusion}");
    assert_eq!(empty.table()[1].split_whitespace().collect::<Vec<_>>()[5], "n/a");
}

#[test]
fn a_result_is_void_when_the_client_was_late() {
    let late = report(Duration::from_ms(10), |_| Duration::from_ms(14), CIRCUMSTANCES);
    assert!(late.is_void() && !usual().is_void());
    let conclusion = late.conclusion().join(" ");
    assert!(
        conclusion.starts_with("VOID, DO NOT USE: direct reads: the generator was"),
        "{conclusion}"
    );
    assert!(!text(&late).contains("cut p99"));
}

#[test]
fn a_busy_machine_causes_a_warning() {
    let cores_used = CoresUsed { own: Some(1.5), others: Some(1.2) };
    let busy = Circumstances { cores_used, ..CIRCUMSTANCES };
    let warnings = report(Duration::ZERO, |_| Duration::from_ms(9), busy).warnings(2.0);
    assert!(warnings[0].contains("Other programs use 1.2 of 2 cores"), "{warnings:?}");
    assert!(warnings.iter().any(|line| line.contains("lower --rate")), "{warnings:?}");
    assert!(usual().warnings(2.0).is_empty());
}

#[test]
fn a_factor_has_only_the_digits_that_coarse_histograms_support() {
    let shown = [1.043, 1.3, 2.04, 9.94, 64.4, 123.6, 187.0].map(super::times);
    assert_eq!(shown, ["1.04", "1.3", "2.0", "9.9", "64", "124", "190"]);
    let mut report = usual();
    let within = P99Reduction {
        factor: 1.004,
        interval_low: 1.002,
        interval_high: Some(1.006),
        confidence: 0.95,
    };
    report.hedged_p99 = Some(within);
    let conclusion = report.conclusion().join(" ");
    assert!(conclusion.starts_with("No difference in p99 is shown"), "{conclusion}");
}

#[test]
fn an_interval_without_an_upper_end_says_so() {
    let mut report = usual();
    let cut =
        P99Reduction { factor: 60.0, interval_low: 9.0, interval_high: None, confidence: 0.95 };
    report.hedged_p99 = Some(cut);
    let conclusion = report.conclusion().join(" ");
    assert!(conclusion.contains("60 times (95 % interval: 9.0 or more)"), "{conclusion}");
}
