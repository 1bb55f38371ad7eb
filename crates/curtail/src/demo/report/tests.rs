//! The report as people and programs get it.

use super::{Circumstances, Report, shown_ms};
use crate::demo::arm::Arm;
use crate::demo::tally::Tallies;
use curtail_units::Duration;
use expect_test::expect;

const CIRCUMSTANCES: Circumstances =
    Circumstances { seed: 1, rate: 17.0, measured: Duration::from_secs(60), cpu_cores: Some(0.45) };

/// A direct arm with a tail, a hedged one without, a tied one with an error, a prequal one without reads.
fn tallies() -> Tallies {
    let mut tallies = Tallies::new();
    for nth in 1..=1_000 {
        tallies.sent(Arm::Direct, 100, Duration::from_us(60));
        let ms = if nth > 900 { nth * 2 } else { 14 };
        tallies.answered(Arm::Direct, Duration::from_ms(ms), 1);
        tallies.sent(Arm::Hedged, 100, Duration::from_us(60));
        tallies.answered(Arm::Hedged, Duration::from_us(14_000 + nth * 10), 1);
    }
    tallies.sent(Arm::Tied, 100, Duration::from_us(60));
    tallies.failed(Arm::Tied, || "shard 1: status 503".to_owned());
    tallies
}

fn report() -> Report {
    let executions = |arm| match arm {
        Arm::Direct => 100_000,
        Arm::Hedged => 100_830,
        Arm::Tied | Arm::Prequal => 0,
    };
    Report::new(&tallies(), executions, CIRCUMSTANCES)
}

#[test]
fn people_get_a_table_of_80_columns() {
    let mut lines = report().table();
    lines.extend(report().verdict());
    lines.extend(report().doubts(2.0));
    lines.extend(report().cpu(2.0));
    lines.push(report().line());
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    expect![[r#"
                       p50       p95       p99     p99.9  more requests   reads  errors
        direct     14.0 ms  1,899 ms  1,980 ms  1,998 ms         0.00 %    1000       0
        hedged     19.0 ms   23.5 ms   23.9 ms   24.0 ms         0.83 %    1000       0
        tied             -         -         -         -         0.00 %       1       1
        prequal          -         -         -         -         0.00 %       0       0
        Hedging: p99.9 from 1,998 ms to 24.0 ms (1/83), for 0.83 % more requests.
        Under 1,000 reads, p99.9 is the longest read: tied, prequal.
        CPU: 0.45 of 2 cores, everything included.
          60 s  p99.9:  direct 1,998 ms  hedged 24.0 ms  tied -  prequal -
    "#]]
    .assert_eq(&(lines.join("\n") + "\n"));
}

#[test]
fn programs_get_every_figure_and_null_where_there_is_none() {
    let json = serde_json::to_string_pretty(&report()).expect("plain numbers and words");
    expect![[r#"
        {
          "schema": "curtail.demo/1",
          "seed": 1,
          "reads_per_second": 17.0,
          "seconds": 60.0,
          "arms": [
            {
              "name": "direct",
              "p50_ms": 14.0,
              "p95_ms": 1899.495424,
              "p99_ms": 1980.235776,
              "p999_ms": 1998.061568,
              "extra_requests_ratio": 0.0,
              "requests": 1000,
              "errors": 0
            },
            {
              "name": "hedged",
              "p50_ms": 18.997248,
              "p95_ms": 23.502848,
              "p99_ms": 23.896064,
              "p999_ms": 23.994368,
              "extra_requests_ratio": 0.008299999999999974,
              "requests": 1000,
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
          "client_lag_p999_ms": 0.06,
          "cpu_cores": 0.45
        }"#]]
    .assert_eq(&json);
}

#[test]
fn a_late_client_and_a_busy_machine_are_reasons_to_doubt() {
    let mut tallies = tallies();
    for _ in 0..10 {
        tallies.sent(Arm::Direct, 100, Duration::from_ms(40));
    }
    let busy = Circumstances { cpu_cores: Some(1.5), ..CIRCUMSTANCES };
    let doubts = Report::new(&tallies, |_| 0, busy).doubts(2.0);
    assert!(doubts[0].contains("client itself was late"), "{doubts:?}");
    assert!(doubts[1].contains("lower --rate"), "{doubts:?}");
}

#[test]
fn a_hedge_that_did_not_help_is_not_praised() {
    let mut tallies = Tallies::new();
    for arm in [Arm::Direct, Arm::Hedged] {
        tallies.sent(arm, 100, Duration::ZERO);
        tallies.answered(arm, Duration::from_ms(20), 1);
    }
    let verdict = Report::new(&tallies, |_| 100, CIRCUMSTANCES).verdict();
    let expected = "Hedging: p99.9 from 20.0 ms to 20.0 ms, for 0.00 % more requests.";
    assert_eq!(verdict.as_deref(), Some(expected));
}

#[test]
fn milliseconds_are_shown_as_people_read_them() {
    for (ms, shown) in [
        (0.04, "0.0 ms"),
        (14.26, "14.3 ms"),
        (99.94, "99.9 ms"),
        (99.96, "100 ms"),
        (100.4, "100 ms"),
        (999.4, "999 ms"),
        (999.6, "1,000 ms"),
        (1_799.6, "1,800 ms"),
        (20_004.0, "20,004 ms"),
    ] {
        assert_eq!(shown_ms(Some(ms)), shown);
    }
    assert_eq!(shown_ms(None), "-");
}
