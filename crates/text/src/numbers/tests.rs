use super::{
    bytes, counted, four_digits, latency, ms, percent, percent_to, percentile_name, rate,
    rounded_latency, short, signed_percent, thousands, utc,
};
use alloc::string::String;
use curtail_units::{Duration, Quantile};

#[test]
fn latencies_have_four_digits() {
    let ms_of_us = |us| ms(Duration::from_us(us));
    assert_eq!(ms_of_us(0), "0.000");
    assert_eq!(ms_of_us(1), "0.001");
    assert_eq!(ms_of_us(9_999), "9.999");
    assert_eq!(ms(Duration::from_ns(9_999_600)), "10.00");
    assert_eq!(ms_of_us(99_990), "99.99");
    assert_eq!(ms_of_us(999_900), "999.9");
    assert_eq!(ms_of_us(1_000_000), "1000");
    assert_eq!(ms_of_us(99_999_000), "99999");
    assert_eq!(ms_of_us(100_000_000), "100 s");
    assert_eq!(ms(Duration::MAX), "18446744074 s");
    let with_unit = [Duration::from_ms(2), Duration::from_secs(4_000)].map(latency);
    assert_eq!(with_unit, ["2.000 ms", "4000 s"]);
}

#[test]
fn one_is_singular() {
    assert_eq!(counted(1, "replica"), "1 replica");
    assert_eq!([counted(0, "call"), counted(2_000, "call")], ["0 calls", "2,000 calls"]);
}

#[test]
fn what_rounds_to_zero_has_no_sign() {
    assert_eq!([-0.0, -0.000_04, 0.000_04].map(|ratio| percent_to(ratio, 2)), ["0.00 %"; 3]);
    assert_eq!([-0.000_06, f64::NAN].map(|ratio| percent_to(ratio, 2)), ["-0.01 %", "NaN %"]);
}

#[test]
fn counts_rates_shares_and_bytes_are_written_for_people() {
    assert_eq!(
        ["1", "12", "123", "1,234", "12,345", "123,456", "1,234,567"],
        [
            thousands(1),
            thousands(12),
            thousands(123),
            thousands(1_234),
            thousands(12_345),
            thousands(123_456),
            thousands(1_234_567)
        ]
        .each_ref()
        .map(String::as_str)
    );
    assert_eq!([rate(0.25), rate(99.94), rate(1_000.4)], ["0.2", "99.9", "1,000"]);
    assert_eq!(
        [percent(0.0), percent(1e-7), percent(0.000_123), percent(0.5)],
        ["0 %", "< 0.001 %", "0.012 %", "50.0 %"]
    );
    assert_eq!([bytes(1_023), bytes(1_536), bytes(5 << 40)], ["1023 bytes", "1.5 KiB", "5.0 TiB"]);
}

#[test]
fn dates_are_those_of_the_calendar() {
    // As `date -u -d @SECONDS` has them.
    let dates = [
        (0, "1970-01-01 00:00:00 UTC"),
        (951_782_399, "2000-02-28 23:59:59 UTC"),
        (951_782_400, "2000-02-29 00:00:00 UTC"),
        (1_709_251_199, "2024-02-29 23:59:59 UTC"),
        (1_795_370_643, "2026-11-22 18:04:03 UTC"),
        (4_107_542_400, "2100-03-01 00:00:00 UTC"),
    ];
    for (seconds, expected) in dates {
        assert_eq!(utc(seconds * 1_000_000_000), expected);
    }
}

#[test]
fn differences_have_a_sign_and_no_more_digits_than_they_need() {
    let shown = [0.000_4, -0.2, 0.999_4, 1.5, 98.0].map(signed_percent);
    assert_eq!(shown, ["0.0 %", "-20.0 %", "+99.9 %", "+150 %", "+9800 %"]);
}

#[test]
fn a_display_that_changes_has_three_digits() {
    let cases = [
        (0.04, "0.0 ms"),
        (14.26, "14.3 ms"),
        (99.94, "99.9 ms"),
        (99.96, "100 ms"),
        (999.4, "999 ms"),
        (999.6, "1,000 ms"),
        (20_004.0, "20,004 ms"),
        (3_000_000.0, "3,000 s"),
    ];
    for (ms, shown) in cases {
        assert_eq!(rounded_latency(Duration::from_ns_f64(ms * 1e6)), shown);
    }
}

#[test]
fn percentiles_and_short_numbers_have_no_needless_digits() {
    let names = [0.5, 0.999, 0.999_999].map(|q| Quantile::new(q).map(percentile_name));
    assert_eq!(names.map(Result::ok).map(Option::unwrap_or_default), ["p50", "p99.9", "p99.9999"]);
    assert_eq!([short(100.0, 3), short(0.25, 3), short(7.0, 0)], ["100", "0.25", "7"]);
    assert_eq!(four_digits(0.5), "0.500");
}
