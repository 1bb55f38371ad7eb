//! Figures in words: how reports write latencies, counts, shares and instants.

use curtail_units::Duration;

#[cfg(test)]
mod tests;

/// What the two clocks are.
pub(super) const CLOCKS: &str = "response: from when a request was to be sent to the end of its answer, what a user \
waits; service: from when it was sent. They part when the server holds requests back. lag: how late the generator was.";

/// What the marks are.
pub(super) const MARKS: &str = "~ fewer than 100 requests are longer; n/a fewer than 10 are; a request that failed is \
longer than every answer.";

/// Milliseconds with four digits; from 100 s on, seconds.
pub(super) fn ms(latency: Duration) -> String {
    let ms = latency.as_ms_f64();
    match ms {
        0.0..9.9995 => format!("{ms:.3}"),
        0.0..99.995 => format!("{ms:.2}"),
        0.0..999.95 => format!("{ms:.1}"),
        0.0..99_999.5 => format!("{ms:.0}"),
        _ => format!("{:.0} s", latency.as_secs_f64()),
    }
}

/// A latency with its unit.
pub(super) fn latency(latency: Duration) -> String {
    let text = ms(latency);
    if text.ends_with('s') { text } else { format!("{text} ms") }
}

/// The number of columns of a text on the screen, for the letters of names.
pub(super) fn width(text: &str) -> usize {
    text.chars().count()
}

/// Wraps a long text between words into lines of at most `columns`: the first one after `indent`, the others indented
/// further. A word that is longer than a line is cut into several lines.
#[must_use]
pub fn wrapped(indent: &str, text: &str, columns: usize) -> Vec<String> {
    let further = format!("{indent}    ");
    let word_max = columns.saturating_sub(further.len()).max(1);
    let mut lines = Vec::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for (nth, part) in letters.chunks(word_max).enumerate() {
            let is_first_of_line = line.trim().is_empty();
            let space = usize::from(nth == 0 && !is_first_of_line);
            if width(&line) + space + part.len() > columns && !is_first_of_line {
                lines.push(std::mem::replace(&mut line, further.clone()));
            } else if space > 0 {
                line.push(' ');
            }
            line.extend(part);
        }
    }
    lines.push(line);
    lines
}

/// A text without what would end its line.
pub(super) fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// A count with its digits in groups of three.
pub(super) fn thousands(count: u64) -> String {
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

/// Requests a second: whole ones from 100 on.
pub(super) fn rate(rate: f64) -> String {
    if rate < 99.95 {
        return format!("{rate:.1}");
    }
    thousands(Duration::from_ns_f64(rate).as_ns())
}

/// A share in percent, with so many decimals that a small one does not read as none.
pub(super) fn percent(ratio: f64) -> String {
    let percent = 100.0 * ratio;
    match percent {
        0.0 => "0 %".to_owned(),
        0.0..0.001 => "< 0.001 %".to_owned(),
        0.0..0.1 => format!("{percent:.3} %"),
        0.0..10.0 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

/// Bytes in the largest binary unit that leaves a whole part.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1_024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1_024.0;
    let mut units = UNITS.into_iter();
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if value < 1_024.0 {
            break;
        }
        (value, unit) = (value / 1_024.0, next);
    }
    format!("{value:.1} {unit}")
}

/// An instant as a date and a time of day, in UTC.
///
/// **Source** of the calendar: Hinnant, "chrono-compatible low-level date algorithms" (2013), `civil_from_days`; years
/// begin in March there, so that the day that is only sometimes there is the last one.
pub(super) fn utc(unix_ns: u64) -> String {
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
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}
