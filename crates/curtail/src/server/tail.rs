//! Shares as people write them: `1%` or `0.01`.

use curtail_units::Ratio;
use std::num::NonZeroU32;

/// A share.
pub(super) fn share(text: &str) -> Result<Ratio, String> {
    let (number, whole) = match text.strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text, 1.0),
    };
    let number: Result<f64, _> = number.parse();
    let share = number.ok().and_then(|number| Ratio::new(number / whole).ok());
    share.ok_or_else(|| "expected a share, as 1% or 0.01".to_owned())
}

/// A share of which one comes out of a whole number.
pub(super) fn one_in(text: &str) -> Result<NonZeroU32, String> {
    let one_in = (1.0 / share(text)?.get()).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from float to integer saturates"
    )]
    let whole = NonZeroU32::new(one_in as u32).filter(|_| one_in <= f64::from(u32::MAX));
    whole.ok_or_else(|| "expected a share above zero, as 1% or 0.01".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{one_in, share};

    #[test]
    fn shares_are_read_as_people_write_them() {
        for (text, want) in
            [("1%", 0.01), ("0.01", 0.01), ("12.5 %", 0.125), ("100%", 1.0), ("0", 0.0)]
        {
            assert!((share(text).expect(text).get() - want).abs() < 1e-12, "{text}");
        }
        for text in ["", "%", "1 percent", "-1%", "101%", "2", "NaN"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_sample_is_one_in_a_whole_number() {
        for (text, want) in
            [("1%", 100), ("3%", 33), ("100%", 1), ("60%", 2), ("0.0001%", 1_000_000)]
        {
            assert_eq!(one_in(text).expect(text).get(), want, "{text}");
        }
        for text in ["0", "0%", "1e-12", "x"] {
            assert!(one_in(text).is_err(), "{text}");
        }
    }
}
