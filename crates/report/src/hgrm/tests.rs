use super::render;
use crate::sample;
use curtail_load::{Failure, Latencies, LatencyKind};
use curtail_units::Duration;
use expect_test::expect;

fn ms(range: std::ops::RangeInclusive<u64>) -> Latencies {
    let mut latencies = Latencies::new();
    for ms in range {
        latencies.response.record(Duration::from_ms(ms));
    }
    latencies
}

/// The lines that a plotter reads: four numbers.
fn rows(text: &str) -> Vec<[f64; 4]> {
    let numbers = |line: &str| -> Vec<f64> {
        line.split_whitespace().map_while(|word| word.parse().ok()).collect()
    };
    text.lines().filter_map(|line| <[f64; 4]>::try_from(numbers(line)).ok()).collect()
}

#[test]
fn a_small_distribution() {
    expect![[r#"
        #[A, response]
               Value     Percentile TotalCount 1/(1-Percentile)

            1.000000 0.000000000000          1           1.00
            1.000000 0.100000000000          1           1.11
            2.000384 0.200000000000          2           1.25
            2.999296 0.300000000000          3           1.43
            4.000768 0.400000000000          4           1.67
            4.000768 0.500000000000          4           2.00
            4.999168 0.550000000000          5           2.22
            4.999168 0.600000000000          5           2.50
            5.998592 0.650000000000          6           2.86
            5.998592 0.700000000000          6           3.33
            5.998592 0.750000000000          6           4.00
            6.998016 0.775000000000          7           4.44
            6.998016 0.800000000000          7           5.00
            6.998016 0.825000000000          7           5.71
            6.998016 0.850000000000          7           6.67
            6.998016 0.875000000000          7           8.00
            8.000000 0.887500000000          8           8.89
            8.000000 1.000000000000          8
        #[Mean    =        4.500, Responses        =            8]
        #[Max     =        8.000, Total count    =            8]
        #[Failed  =            0, longer than every response]
    "#]]
    .assert_eq(&render(&ms(1..=8), LatencyKind::Response, "A, response"));
    let mut failing = ms(1..=6);
    failing.failures.add_n(Failure::Timeout, 2);
    expect![[r#"
        #[A,\nresponse]
               Value     Percentile TotalCount 1/(1-Percentile)

            1.000000 0.000000000000          1           1.00
            1.000000 0.100000000000          1           1.11
            2.000384 0.200000000000          2           1.25
            2.999296 0.300000000000          3           1.43
            4.000768 0.400000000000          4           1.67
            4.000768 0.500000000000          4           2.00
            4.999168 0.550000000000          5           2.22
            4.999168 0.600000000000          5           2.50
            6.000000 0.650000000000          6           2.86
            6.000000 0.700000000000          6           3.33
            6.000000 0.750000000000          6           4.00
        #[Mean    =        3.500, Responses        =            6]
        #[Max     =        6.000, Total count    =            8]
        #[Failed  =            2, longer than every response]
    "#]]
    .assert_eq(&render(&failing, LatencyKind::Response, "A,\nresponse"));
    expect![[r#"
        #[nothing]
               Value     Percentile TotalCount 1/(1-Percentile)

        #[Mean    =        0.000, Responses        =            0]
        #[Max     =        0.000, Total count    =            0]
        #[Failed  =            0, longer than every response]
    "#]]
    .assert_eq(&render(&Latencies::new(), LatencyKind::Response, "nothing"));
}

#[test]
fn rows_rise_and_say_what_the_histogram_says() {
    let latencies = Latencies::merged(&sample::compared(1).of_arm(1));
    let rows = rows(&render(&latencies, LatencyKind::Response, "hedged"));
    assert!(rows.len() > 60, "{} rows", rows.len());
    let count = latencies.count() as f64;
    for pair in rows.windows(2) {
        assert!(pair[0].iter().zip(&pair[1]).all(|(before, after)| before <= after), "{pair:?}");
    }
    for [value, share, no_longer, rarity] in rows {
        assert!(no_longer >= share * count - 0.5, "{no_longer} of {count} at {share}");
        assert!((rarity * (1.0 - share) - 1.0).abs() < 0.01);
        let longer = latencies.response.count_above(Duration::from_ns_f64(value * 1e6));
        let failed = latencies.failures.total();
        assert_eq!(no_longer, count - (longer + failed) as f64);
    }
}
