use super::{bytes, latency, ms, percent, rate, thousands, utc, wrapped};
use curtail_units::Duration;

#[test]
fn latencies_have_four_digits() {
    let said = |us| ms(Duration::from_us(us));
    assert_eq!(said(0), "0.000");
    assert_eq!(said(1), "0.001");
    assert_eq!(said(9_999), "9.999");
    assert_eq!(ms(Duration::from_ns(9_999_600)), "10.00");
    assert_eq!(said(99_990), "99.99");
    assert_eq!(said(999_900), "999.9");
    assert_eq!(said(1_000_000), "1000");
    assert_eq!(said(99_999_000), "99999");
    assert_eq!(said(100_000_000), "100 s");
    assert_eq!(ms(Duration::MAX), "18446744074 s");
    let with_unit = [Duration::from_ms(2), Duration::from_secs(4_000)].map(latency);
    assert_eq!(with_unit, ["2.000 ms", "4000 s"]);
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
fn long_texts_wrap_between_words_and_within_a_word_that_is_longer_than_a_line() {
    assert_eq!(wrapped("", "", 8), [""]);
    assert_eq!(wrapped("  ", "one two three", 12), ["  one two", "      three"]);
    assert_eq!(wrapped("", "a: http://host/b c", 10), ["a: http:/", "    /host/", "    b c"]);
}
