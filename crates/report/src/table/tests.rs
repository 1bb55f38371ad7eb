use super::render;
use crate::Results;
use crate::difference::Comparison;
use crate::results::{Series, State};
use crate::sample;
use curtail_load::Failure;
use curtail_load::compare::{Difference, Percentile, Verdict};
use curtail_units::{Duration, Quantile};
use expect_test::{Expect, expect};

fn check(results: &Results, comparisons: &[Comparison], expected: &Expect) {
    let table = render(results, comparisons);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    expected.assert_eq(&table);
}

pub(crate) fn comparison() -> Comparison {
    let percentile = |name, quantile, ratio, interval, verdict| Percentile {
        name,
        quantile: Quantile::new(quantile).expect("a quantile"),
        a: None,
        b: None,
        difference: Some(Difference {
            ratio,
            interval,
            confidence: 0.95,
            p_value: 0.01,
            design_effect: 1.0,
        }),
        exceedances: 1_000,
        blocks: 20,
        verdict,
    };
    Comparison {
        base: "direct".to_owned(),
        other: "hedged".to_owned(),
        of: None,
        percentiles: vec![
            percentile("p50", 0.5, 1.049, (1.041, 1.057), Verdict::Worse),
            percentile("p90", 0.9, 1.004, (0.991, 1.017), Verdict::Equivalent),
            percentile("p99", 0.99, 0.652, (0.571, 0.744), Verdict::Better),
            percentile("p99.9", 0.999, 0.81, (0.4, 1.64), Verdict::Undecided { blocks: 24 }),
        ],
        numbers: Vec::new(),
        primary: Quantile::P99,
        method: "4 pairs of blocks; at most 5.00 % false alarms".to_owned(),
    }
}

#[test]
fn long_urls_that_end_differently_stay_different() {
    let mut results = sample::compared(1);
    let base = format!("http://{}.example:8080/search", "a".repeat(60));
    for (arm, end) in results.arms.iter_mut().zip(["first", "second"]) {
        arm.about = format!("{base}?index={end}");
    }
    let table = render(&results, &[]);
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    for end in ["first", "second"] {
        assert!(table.contains(&format!("?index={end}\n")), "{table}");
    }
}

#[test]
fn two_arms_by_query_and_tenant_with_a_comparison() {
    let expected = expect![[r#"
        search, 2026-11-22 18:04:03 UTC, seed 1
        load: 1,000 requests/s, Poisson, 8 blocks of 10 s
        generator: 4 cores, Imaginary 3000, Linux 6.1

        ms                          p50     p90     p95     p99   p99.9  p99.99     max
        direct: http://127.0.0.1:8983
          39,944 requests, 996 of 1,000 a second
          response                8.933   24.63   32.15   51.59  ~78.15     n/a  failed
          service                 8.933   24.63   32.15   51.59  ~78.15     n/a  failed
          generator lag                                   0.091   0.135
          FAILED: 9 (0.023 %): closed 3, timeout 6
          the longest response took 125.7 ms
          CPU time in ms a request: generator 0.012, servers 0.901
          76.3 MiB received over 256 connections
        hedged: through the proxy
          39,694 requests, 989 of 1,000 a second
          response                9.597   27.55   37.80   627.8  ~976.5     n/a  failed
          service                 9.384   25.34   32.51   52.05  ~180.0     n/a  failed
          generator lag                                   0.091   0.139
          FAILED: 9 (0.023 %): closed 6, timeout 3
          the longest response took 1030 ms
          CPU time in ms a request: generator 0.012, servers 0.907
          76.3 MiB received over 256 connections

        by query, response in ms              requests  failed     p50     p99   p99.9
        term
          direct                                20,132       7   4.954   31.97  ~63.23
          hedged                                19,831       3   5.261   612.1  ~970.7
        facet
          direct                                19,812       2   14.75   57.52  ~83.20
          hedged                                19,863       6   15.66   646.2  ~982.3

        by tenant, response in ms             requests  failed     p50     p99   p99.9
        large, size 1,000,000
          direct                                13,215       3   13.91   60.31  ~86.93
          hedged                                13,050       1   14.98   629.4  ~967.0
        medium, size 50,000
          direct                                13,369       4   7.158   35.47  ~64.14
          hedged                                13,289       4   7.649   659.3  ~979.1
        small, size 1,000
          direct                                13,360       2   6.978   38.16  ~66.11
          hedged                                13,355       4   7.617   599.5  ~974.9

        servers                                  CPU      memory        GC   longest
        node 1
          direct                                0.64     2.1 GiB    1.65 %     60.00
          hedged                                0.63     2.1 GiB    0.69 %     25.00
        CPU: mean CPUs in use; memory: maximum resident memory; GC: share of time in
            pauses of the garbage collector; longest: its longest pause in ms.

        at 43.5 s: node 2 paused for 1000 ms

        response: from when a request was to be sent to the end of its response, what a
            user waits; service: from when it was sent. They part when the server holds
            requests back. lag: how late the generator was.
        ~ fewer than 100 requests are longer; n/a fewer than 10 are; a request that
            failed is longer than every response.

        hedged against direct, response (4 pairs of blocks; at most 5.00 % false alarms)
          p50          +4.9 %  +4.1 % to +5.7 %       worse
          p90          +0.4 %  -0.9 % to +1.7 %       equivalent
          p99         -34.8 %  -42.9 % to -25.6 %     better
          p99.9       -19.0 %  -60.0 % to +64.0 %     undecided: about 24 more blocks
    "#]];
    check(&sample::compared(1), &[comparison()], &expected);
}

#[test]
fn a_partial_run_with_failures_says_so_first() {
    let mut run = sample::single(1);
    run.state = State::Partial { why: "interrupted (SIGINT) after 13.2 s of 100 s".to_owned() };
    run.name =
        "a name of a suite that is much longer than any line of the terminal can hold".to_owned();
    run.arms[0].rate = None;
    run.series = vec![run.series[0].clone()];
    for block in &mut run.blocks {
        block.latencies.truncate(1);
        for failure in Failure::ALL {
            block.latencies[0].failures.add_n(failure, 40);
        }
        block.servers_cpu = None;
        block.resent = 1_204;
    }
    let expected = expect![[r#"
        PARTIAL RUN: interrupted (SIGINT) after 13.2 s of 100 s
        a name of a suite that is much longer than any line of the terminal can hold,
            2026-11-22 18:04:03 UTC, seed 1
        load: 1,000 requests/s, Poisson, 8 blocks of 10 s
        generator: 4 cores, Imaginary 3000, Linux 6.1

        ms                          p50     p90     p95     p99   p99.9  p99.99     max
        direct: 1,993 requests, 199 a second
          response                8.843  failed  failed  failed  failed  failed  failed
          service                 8.843  failed  failed  failed  failed  failed  failed
          generator lag                                   0.100   0.162
          FAILED: 321 (16.1 %): connect 40, closed 41, timeout 40, malformed 40,
              too_long 40, status 40, check 40, ended 40
          the longest response took 67.39 ms
          CPU time in ms a request: generator 0.060
          19.1 MiB received over 64 connections
          1,204 resends of requests that the server did not process

        response: from when a request was to be sent to the end of its response, what a
            user waits; service: from when it was sent. They part when the server holds
            requests back. lag: how late the generator was.
        ~ fewer than 100 requests are longer; n/a fewer than 10 are; a request that
            failed is longer than every response.
    "#]];
    check(&run, &[], &expected);
}

#[test]
fn a_void_run_says_so_first_and_extremes_stay_in_their_columns() {
    let mut run = sample::single(1);
    run.state = State::Void {
        why: "the generator was 12.5 ms late at p99.9, more than a tenth of the median response of 20 ms".to_owned(),
    };
    run.arms[0].name =
        "an arm with a name that nobody would want to type twice in one day".to_owned();
    run.series.truncate(2);
    run.series[0] = Series { query: "q".repeat(60), tenant: String::new(), tenant_size: 0 };
    run.series[1] = Series { query: "slow".to_owned(), tenant: String::new(), tenant_size: 0 };
    for block in &mut run.blocks {
        block.latencies.truncate(2);
        block.latencies[1].response.record_n(Duration::from_secs(4_000), 5_000);
        block.latencies[1].service.record_n(Duration::from_secs(3), 5_000);
    }
    let expected = expect![[r#"
        VOID, DO NOT USE: the generator was 12.5 ms late at p99.9, more than a tenth of
            the median response of 20 ms
        search, 2026-11-22 18:04:03 UTC, seed 1
        load: 1,000 requests/s, Poisson, 8 blocks of 10 s
        generator: 4 cores, Imaginary 3000, Linux 6.1

        ms                          p50     p90     p95     p99   p99.9  p99.99     max
        an arm with a name that nobody would wa…: 8,355 requests, 834 of 1,000 a second
          response               4000 s  4000 s  4000 s ~4000 s     n/a     n/a  failed
          service                  3000    3000    3000   ~3000     n/a     n/a  failed
          generator lag                                   0.095   0.183
          FAILED: 2 (0.024 %): closed 1, timeout 1
          the longest response took 4000 s
          CPU time in ms a request: generator 0.014, servers 1.077
          19.1 MiB received over 64 connections

        by query, response in ms              requests  failed     p50     p99   p99.9
        qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq…      1,673       1   8.051  ~24.72     n/a
        slow                                     6,682       1  4000 s ~4000 s     n/a

        response: from when a request was to be sent to the end of its response, what a
            user waits; service: from when it was sent. They part when the server holds
            requests back. lag: how late the generator was.
        ~ fewer than 100 requests are longer; n/a fewer than 10 are; a request that
            failed is longer than every response.
    "#]];
    check(&run, &[], &expected);
}

#[test]
fn a_run_that_found_nothing_has_a_table() {
    let mut run = sample::single(1);
    run.blocks.clear();
    let expected = expect![[r#"
        search, 2026-11-22 18:04:03 UTC, seed 1
        load: 1,000 requests/s, Poisson, 8 blocks of 10 s
        generator: 4 cores, Imaginary 3000, Linux 6.1

        ms                          p50     p90     p95     p99   p99.9  p99.99     max
        direct: 0 requests, 0.0 of 1,000 a second
          response                  n/a     n/a     n/a     n/a     n/a     n/a     n/a
          service                   n/a     n/a     n/a     n/a     n/a     n/a     n/a
          generator lag                                     n/a     n/a

        by query, response in ms              requests  failed     p50     p99   p99.9
        term                                         0       0     n/a     n/a     n/a
        facet                                        0       0     n/a     n/a     n/a

        by tenant, response in ms             requests  failed     p50     p99   p99.9
        large, size 1,000,000                        0       0     n/a     n/a     n/a
        medium, size 50,000                          0       0     n/a     n/a     n/a
        small, size 1,000                            0       0     n/a     n/a     n/a

        response: from when a request was to be sent to the end of its response, what a
            user waits; service: from when it was sent. They part when the server holds
            requests back. lag: how late the generator was.
        ~ fewer than 100 requests are longer; n/a fewer than 10 are; a request that
            failed is longer than every response.
    "#]];
    check(&run, &[], &expected);
}
