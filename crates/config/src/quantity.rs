//! Numbers with a unit: durations in nanoseconds and sizes in bytes.
//!
//! A quantity is digits, an optional fraction, an optional space (as in our own output) and a unit: `10ms`, `1.5 s`,
//! `64KiB`. A number without a unit, and a fraction of a nanosecond or of a byte, are rejected.

use crate::scalar::shorten;
use crate::value::ScalarError;

/// The units of a quantity, the smallest first: name, and value in the smallest unit.
pub(crate) type Units = &'static [(&'static str, u64)];

pub(crate) const DURATION_UNITS: Units = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

pub(crate) const SIZE_UNITS: Units =
    &[("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Maximum number of digits: more than any exact quantity needs, and few enough for arithmetic in 128 bits.
const DIGITS_MAX: usize = 18;

/// Parses `text`; returns its value in the smallest unit.
pub(crate) fn read(text: &str, units: Units) -> Result<u64, ScalarError> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(ScalarError::Kind)?;
    let (number, unit) = text.split_at(unit_at);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let (_, worth) = units.iter().find(|(name, _)| *name == unit).ok_or(ScalarError::Kind)?;
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return Err(ScalarError::Kind),
        Some(parts) => parts,
        None => (number, ""),
    };
    if whole.is_empty() || fraction.contains('.') {
        return Err(ScalarError::Kind);
    }
    if whole.len() > DIGITS_MAX || fraction.len() > DIGITS_MAX {
        return Err(ScalarError::Range);
    }
    let digits = |text: &str| text.bytes().fold(0, |sum, b| sum * 10 + u128::from(b - b'0'));
    let scale = digits(&format!("1{}", "0".repeat(fraction.len())));
    let parts = digits(fraction) * u128::from(*worth);
    if parts % scale != 0 {
        return Err(ScalarError::Range);
    }
    u64::try_from(digits(whole) * u128::from(*worth) + parts / scale)
        .map_err(|_| ScalarError::Range)
}

/// The defect of a text that [`read`] rejects; absent: it is no number.
pub(crate) fn defect(text: &str, units: Units) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim();
    let is_known = |unit: &str| units.iter().any(|(name, _)| *name == unit);
    if let Some(positive) = text.strip_prefix('-') {
        return positive
            .starts_with(|c: char| c.is_ascii_digit())
            .then(|| "is negative".to_owned());
    }
    if number.is_empty() || is_known(unit) {
        return None;
    }
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    let (last, first) = names.split_last().expect("there is at least one unit");
    let names = format!("{} or {last}", first.join(", "));
    Some(match unit {
        "" => format!("has no unit ({names})"),
        _ => format!("has the unit {}, not {names}", shorten(unit)),
    })
}

/// Writes `worth` in the largest unit that divides `worth`.
pub(crate) fn write(worth: u64, units: Units) -> String {
    let (name, unit) = units
        .iter()
        .rev()
        .find(|(_, unit)| worth >= *unit && worth.is_multiple_of(*unit))
        .unwrap_or(&units[0]);
    format!("{}{name}", worth / unit)
}

/// Returns a regular expression of the texts that [`read`] accepts.
pub(crate) fn pattern(units: Units) -> String {
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    format!("^[0-9]+(\\.[0-9]+)? ?({})$", names.join("|"))
}

#[cfg(test)]
mod tests {
    use super::{DURATION_UNITS, SIZE_UNITS, read, write};
    use crate::value::ScalarError;

    #[test]
    fn durations_are_read_exactly() {
        for (text, ns) in [
            ("0ns", 0),
            ("10ms", 10_000_000),
            ("1.5s", 1_500_000_000),
            ("1.5 s", 1_500_000_000),
            ("0.000001ms", 1),
            ("90m", 5_400_000_000_000),
            ("2h", 7_200_000_000_000),
            ("007us", 7_000),
        ] {
            assert_eq!(read(text, DURATION_UNITS), Ok(ns), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_in_binary_units() {
        for (text, bytes) in [("512B", 512), ("64KiB", 65_536), ("1.5MiB", 1_572_864)] {
            assert_eq!(read(text, SIZE_UNITS), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_has_no_unit_or_a_foreign_one_is_of_the_wrong_kind() {
        for text in [
            "", "10", "ms", "-10ms", "10  ms", " 10ms", "10ms ", "1.ms", ".5s", "1.2.3s", "10MS",
            "1e3ms",
        ] {
            assert_eq!(read(text, DURATION_UNITS), Err(ScalarError::Kind), "{text}");
        }
        for text in ["64KB", "64K", "64kib", "64"] {
            assert_eq!(read(text, SIZE_UNITS), Err(ScalarError::Kind), "{text}");
        }
    }

    #[test]
    fn what_is_too_long_or_too_fine_is_out_of_range() {
        for text in ["1.5ns", "0.0001us", "9999999h", "99999999999999999999s"] {
            assert_eq!(read(text, DURATION_UNITS), Err(ScalarError::Range), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for units in [DURATION_UNITS, SIZE_UNITS] {
            for worth in [0, 1, 999, 1_000, 1_024, 65_536, 90_000_000_000, 1 << 40, u64::MAX] {
                let text = write(worth, units);
                // The largest u64 needs 20 digits of nanoseconds, more than a person may write.
                let expected = if worth == u64::MAX { Err(ScalarError::Range) } else { Ok(worth) };
                assert_eq!(read(&text, units), expected, "{text}");
            }
        }
    }
}
