//! One scalar of a YAML file, by the core schema of YAML 1.2 (section 10.3.2).
//!
//! A plain scalar is null, a boolean, a number or text; a quoted scalar is text. YAML 1.1 has no effect: `no` and
//! `1_000` are text. One deviation from the core schema: a number with a leading zero is rejected, because some readers
//! take `012` as ten and others as twelve.

/// A scalar of the file, and its meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Scalar {
    source: String,
    meaning: Meaning,
    /// Whether the scalar is also accepted as text, because a parameter was replaced.
    is_text: bool,
}

/// The meaning of a scalar in the core schema.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// `null`, `~` or an empty plain scalar.
    Nothing,
    /// `true` or `false`.
    Truth(bool),
    /// A whole number: decimal, octal (`0o14`) or hexadecimal (`0xC`). A number that does not fit becomes the largest.
    Whole(i128),
    /// A number with a point or an exponent, an infinity or NaN.
    Number(f64),
    /// A whole number with a leading zero, which is ambiguous.
    LeadingZero,
    /// Any other word, and any text in quotes.
    Text(String),
}

impl Scalar {
    /// A word without quotes.
    #[must_use]
    pub fn plain(word: &str) -> Self {
        Self { source: word.to_owned(), meaning: meaning(word), is_text: false }
    }

    /// A scalar with replaced parameters: it has the meaning of its word, and is also accepted as text.
    pub(crate) fn filled_in(text: String) -> Self {
        Self { meaning: meaning(&text), source: text, is_text: true }
    }

    /// A text in quotes, or in a block.
    #[must_use]
    pub fn quoted(text: &str) -> Self {
        let meaning = Meaning::Text(text.to_owned());
        Self { source: format!("\"{text}\""), meaning, is_text: true }
    }

    /// The meaning of the scalar.
    #[must_use]
    pub fn meaning(&self) -> &Meaning {
        &self.meaning
    }

    /// The text, if the scalar is text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.meaning {
            Meaning::Text(text) => Some(text),
            _ if self.is_text => Some(&self.source),
            Meaning::Nothing
            | Meaning::Truth(_)
            | Meaning::Whole(_)
            | Meaning::Number(_)
            | Meaning::LeadingZero => None,
        }
    }

    /// The text, or the number or word as it was written.
    #[must_use]
    pub fn word(&self) -> &str {
        if let Meaning::Text(text) = &self.meaning { text } else { &self.source }
    }

    pub(crate) fn shown(&self) -> String {
        if self.meaning == Meaning::Nothing {
            "an empty value".to_owned()
        } else {
            shorten(&self.source)
        }
    }

    /// The type in messages: "99 is *a number*".
    pub(crate) fn kind(&self) -> &'static str {
        match self.meaning {
            Meaning::Nothing => "nothing",
            Meaning::Truth(_) => "a truth value",
            Meaning::Whole(_) => "a number",
            Meaning::Number(_) => "a number with a point or an exponent",
            Meaning::LeadingZero => "a number with a leading zero",
            Meaning::Text(_) => "text",
        }
    }
}

/// Puts `text` on one line, removes control characters, and cuts a long text.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    let mut shown = String::new();
    for (count, c) in text.chars().enumerate() {
        if count == SHOWN_MAX {
            shown.push('…');
            break;
        }
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

fn meaning(word: &str) -> Meaning {
    match word {
        "" | "~" | "null" | "Null" | "NULL" => Meaning::Nothing,
        "true" | "True" | "TRUE" => Meaning::Truth(true),
        "false" | "False" | "FALSE" => Meaning::Truth(false),
        ".nan" | ".NaN" | ".NAN" => Meaning::Number(f64::NAN),
        _ => number(word).unwrap_or_else(|| Meaning::Text(word.to_owned())),
    }
}

/// Parses a whole or fractional number of the core schema; [`None`] for any other word.
fn number(word: &str) -> Option<Meaning> {
    if let Some(digits) = word.strip_prefix("0o") {
        return whole(digits, 8);
    }
    if let Some(digits) = word.strip_prefix("0x") {
        return whole(digits, 16);
    }
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    let sign = if word.starts_with('-') { -1.0 } else { 1.0 };
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Some(Meaning::Number(sign * f64::INFINITY));
    }
    if all_digits(unsigned) {
        if unsigned.len() > 1 && unsigned.starts_with('0') {
            return Some(Meaning::LeadingZero);
        }
        let Meaning::Whole(magnitude) = whole(unsigned, 10)? else { return None };
        return Some(Meaning::Whole(if sign < 0.0 { -magnitude } else { magnitude }));
    }
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(before) || !digits(after) || before.len() + after.len() == 0 || !all_digits(exponent)
    {
        return None;
    }
    unsigned.parse().ok().map(|magnitude: f64| Meaning::Number(sign * magnitude))
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Parses a whole number in `radix`; the largest number if it does not fit, [`None`] if there are other characters.
fn whole(digits: &str, radix: u32) -> Option<Meaning> {
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    Some(Meaning::Whole(i128::from_str_radix(digits, radix).unwrap_or(i128::MAX)))
}

#[cfg(test)]
mod tests {
    use super::{Meaning, Scalar};

    fn meaning(word: &str) -> Meaning {
        Scalar::plain(word).meaning().clone()
    }

    #[test]
    fn words_that_yaml_1_1_made_into_truth_values_are_text() {
        for word in ["no", "yes", "on", "off", "y", "n", "No", "ON"] {
            assert_eq!(meaning(word), Meaning::Text(word.to_owned()));
        }
    }

    #[test]
    fn whole_numbers_are_decimal_octal_and_hexadecimal() {
        for (word, number) in
            [("0", 0), ("12", 12), ("-12", -12), ("+3", 3), ("0o14", 12), ("0xC", 12), ("-0", 0)]
        {
            assert_eq!(meaning(word), Meaning::Whole(number), "{word}");
        }
        assert_eq!(meaning(&"9".repeat(60)), Meaning::Whole(i128::MAX));
    }

    #[test]
    fn a_leading_zero_is_never_a_number() {
        for word in ["012", "-012", "00", "0128"] {
            assert_eq!(meaning(word), Meaning::LeadingZero, "{word}");
        }
    }

    #[test]
    fn a_point_or_an_exponent_makes_a_number_that_is_not_whole() {
        for (word, number) in
            [("1e3", 1000.0), ("1.", 1.0), (".5", 0.5), ("-1.5E-1", -0.15), ("0.99", 0.99)]
        {
            assert_eq!(meaning(word), Meaning::Number(number), "{word}");
        }
        assert_eq!(meaning("-.inf"), Meaning::Number(f64::NEG_INFINITY));
    }

    #[test]
    fn what_only_looks_like_a_number_is_text() {
        for word in [
            "1_000", "1e", "e3", ".", "-", "+", "0o8", "0x", "10ms", "1.2.3", "12:30", "inf",
            "nan", "infinity", "+0x1", "1e+", "--1",
        ] {
            assert_eq!(meaning(word), Meaning::Text(word.to_owned()), "{word}");
        }
    }

    #[test]
    fn nothing_has_five_spellings() {
        for word in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(meaning(word), Meaning::Nothing, "{word}");
        }
    }

    #[test]
    fn quotes_make_text_of_everything() {
        assert_eq!(Scalar::quoted("10").text(), Some("10"));
        assert_eq!(Scalar::quoted("10").shown(), "\"10\"");
        assert_eq!(Scalar::quoted("").text(), Some(""));
    }
}
