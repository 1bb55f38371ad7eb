//! Numbers with their units, for all reports, tables and pages.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::{String, ToString as _};
use curtail_units::{Duration, Quantile};

#[cfg(test)]
mod tests;

/// A number with four digits; from 1,000 on, a whole number.
#[must_use]
pub fn four_digits(number: f64) -> String {
    match number {
        0.0..9.9995 => format!("{number:.3}"),
        0.0..99.995 => format!("{number:.2}"),
        0.0..999.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// Milliseconds with four digits; from 100 s on, whole seconds.
#[must_use]
pub fn ms(latency: Duration) -> String {
    let ms = latency.as_ms_f64();
    if ms < 99_999.5 { four_digits(ms) } else { format!("{:.0} s", latency.as_secs_f64()) }
}

/// A latency with its unit.
#[must_use]
pub fn latency(latency: Duration) -> String {
    let text = ms(latency);
    if text.ends_with('s') { text } else { format!("{text} ms") }
}

/// A latency with its unit, for a display that changes: tenths of milliseconds below 100 ms, then whole numbers.
#[must_use]
pub fn rounded_latency(latency: Duration) -> String {
    let ms = latency.as_ms_f64();
    match ms {
        0.0..99.95 => format!("{ms:.1} ms"),
        0.0..99_999.5 => format!("{} ms", thousands(whole(ms))),
        _ => format!("{} s", thousands(whole(latency.as_secs_f64()))),
    }
}

/// A count with its digits in groups of three.
#[must_use]
pub fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count with its noun, which takes an `s` in the plural: `1 replica`, `2,000 replicas`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(count))
}

/// Requests a second: one decimal below 100, then whole numbers.
#[must_use]
pub fn rate(rate: f64) -> String {
    if rate < 99.95 {
        return format!("{rate:.1}");
    }
    thousands(whole(rate))
}

/// A share in percent, with enough decimals that a small one is not printed as zero.
#[must_use]
pub fn percent(ratio: f64) -> String {
    let of_hundred = 100.0 * ratio;
    match of_hundred {
        // Also negative zero, and what rounds to it.
        -0.001..=0.0 => "0 %".to_owned(),
        ..0.0 => format!("-{}", percent(-ratio)),
        0.0..0.001 => "< 0.001 %".to_owned(),
        0.0..0.1 => format!("{of_hundred:.3} %"),
        0.0..10.0 => format!("{of_hundred:.2} %"),
        _ => format!("{of_hundred:.1} %"),
    }
}

/// A share in percent with `decimals` decimals, for a column of shares.
#[must_use]
pub fn percent_to(ratio: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$} %", 100.0 * ratio);
    let is_zero = !text.contains(|c: char| matches!(c, '1'..='9' | 'a'..='z'));
    // A small negative number rounds to negative zero.
    if is_zero { text.trim_start_matches('-').to_owned() } else { text }
}

/// A difference in percent, with its sign unless it rounds to zero.
#[must_use]
pub fn signed_percent(difference: f64) -> String {
    let percent = 100.0 * difference;
    match percent {
        -0.05..0.05 => "0.0 %".to_owned(),
        -99.95..99.95 => format!("{percent:+.1} %"),
        _ => format!("{percent:+.0} %"),
    }
}

/// The name of a quantile: `p99.9`.
#[must_use]
pub fn percentile_name(quantile: Quantile) -> String {
    // Six digits hide the rounding of binary fractions.
    format!("p{}", short(100.0 * quantile.get(), 6))
}

/// A number with at most `decimals` decimals, without zeros at their end.
#[must_use]
pub fn short(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Bytes in the largest binary unit that leaves a whole part.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1_024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1_024.0;
    let mut units = UNITS.into_iter();
    while value >= 1_024.0 && units.len() > 1 {
        value /= 1_024.0;
        units.next();
    }
    format!("{value:.1} {}", units.next().unwrap_or_default())
}

/// An instant as a date and a time of day, in UTC.
#[must_use]
pub fn utc(unix_ns: u64) -> String {
    let [year, month, day, hour, minute, second] = date_and_time(unix_ns);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The year, month, day, hour, minute and second of an instant, in UTC.
///
/// **Source** of the calendar: Hinnant, "chrono-compatible low-level date algorithms" (2013), `civil_from_days`. Its years
/// begin in March, so the leap day is the last one.
#[must_use]
pub const fn date_and_time(unix_ns: u64) -> [u64; 6] {
    let seconds = unix_ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468; // From the first of March of the year 0 to 1970.
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = year + era * 400 + next;
    [year, month, day, second / 3_600, second / 60 % 60, second % 60]
}

/// The nearest whole number; 0 for a negative number.
fn whole(number: f64) -> u64 {
    Duration::from_ns_f64(number).as_ns()
}
