//! Values that spans have, and what may be asked of one.

use crate::columns::{int, text};
use crate::schema::Kind;
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// A compiled pattern takes no more memory.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A value of a span.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A text; of a list, a map or bytes, their JSON.
    Text(Cow<'a, str>),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// The ID of a trace or of a span.
    Id(u128),
}

/// What a value must be. One that is not there is nothing of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// It is there.
    Exists,
    /// It is this.
    Is(Value<'static>),
    /// It is something else.
    IsNot(Value<'static>),
    /// It is a number in this range.
    Within(RangeInclusive<f64>),
    /// It is a text, and the pattern matches all of it.
    Matches(Pattern),
    /// It is a text, and the pattern does not.
    MatchesNot(Pattern),
}

/// A regular expression that must match a whole text.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: regex::Regex,
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it is none, or takes too much memory.
    pub fn new(text: &str) -> Result<Self, regex::Error> {
        // Alone it must be one as well: `a)|(b` is none.
        regex::Regex::new(text)?;
        let whole = format!("^(?s:{text})$");
        let regex = regex::RegexBuilder::new(&whole).size_limit(PATTERN_BYTES_MAX).build()?;
        Ok(Self { text: text.to_owned(), regex })
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<'a> Value<'a> {
    /// A value of a dictionary.
    pub(super) fn of(kind: Kind, bytes: &'a [u8]) -> Self {
        match kind {
            Kind::Int | Kind::Long => Self::Int(int(bytes)),
            Kind::Double => Self::Double(f64::from_bits(int(bytes).cast_unsigned())),
            Kind::Bool => Self::Bool(bytes != [0]),
            Kind::Text | Kind::Wide | Kind::Narrow => Self::Text(Cow::Borrowed(text(bytes))),
        }
    }

    /// A member of an object in plain JSON.
    pub(super) fn member(json: &[u8], key: &str) -> Option<Value<'static>> {
        let object: serde_json::Value = serde_json::from_slice(json).ok()?;
        Some(match object.get(key)? {
            serde_json::Value::Null => return None,
            serde_json::Value::String(text) => Value::Text(Cow::Owned(text.clone())),
            serde_json::Value::Bool(is) => Value::Bool(*is),
            serde_json::Value::Number(number) => number
                .as_i64()
                .map_or_else(|| Value::Double(number.as_f64().unwrap_or(f64::NAN)), Value::Int),
            list @ (serde_json::Value::Array(_) | serde_json::Value::Object(_)) => {
                Value::Text(Cow::Owned(list.to_string()))
            }
        })
    }

    /// The same, borrowed from nobody.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Int(number) => Value::Int(number),
            Self::Double(number) => Value::Double(number),
            Self::Bool(is) => Value::Bool(is),
            Self::Id(id) => Value::Id(id),
        }
    }

    /// What kind of value it is.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
            Self::Bool(_) => "bool",
            Self::Id(_) => "id",
        }
    }

    /// The number that it is.
    #[must_use]
    pub const fn number(&self) -> Option<f64> {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "numbers are compared as they are written"
            )]
            Self::Int(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            Self::Text(_) | Self::Bool(_) | Self::Id(_) => None,
        }
    }

    /// Whole numbers and others are compared as numbers.
    fn equals(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Self::Text(one), Value::Text(other)) => one == other,
            (Self::Bool(one), Value::Bool(other)) => one == other,
            (Self::Int(one), Value::Int(other)) => one == other,
            (Self::Id(one), Value::Id(other)) => one == other,
            _ => self.number().is_some_and(|number| Some(number) == other.number()),
        }
    }
}

impl From<&str> for Value<'static> {
    fn from(text: &str) -> Self {
        Self::Text(Cow::Owned(text.to_owned()))
    }
}

impl std::fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Int(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
            Self::Bool(is) => is.fmt(f),
            Self::Id(id) => write!(f, "{id:x}"),
        }
    }
}

impl Test {
    /// Whether a value meets it.
    #[must_use]
    pub fn accepts(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Self::Exists, _) => true,
            (Self::Is(is), _) => is.equals(value),
            (Self::IsNot(is), _) => !is.equals(value),
            (Self::Within(range), _) => {
                value.number().is_some_and(|number| range.contains(&number))
            }
            (Self::Matches(pattern), Value::Text(text)) => pattern.regex.is_match(text),
            (Self::MatchesNot(pattern), Value::Text(text)) => !pattern.regex.is_match(text),
            (Self::Matches(_) | Self::MatchesNot(_), _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_whole_text() {
        for (pattern, text, matches) in [
            ("GET /.*", "GET /cart", true),
            ("GET", "GET /cart", false),
            ("a|b", "ab", false),
            ("a|b", "b", true),
            ("a.b", "a\nb", true),
            ("(?i)get", "GET", true),
        ] {
            let pattern = Pattern::new(pattern).expect("a pattern");
            let value = Value::from(text);
            assert_eq!(Test::Matches(pattern.clone()).accepts(&value), matches, "{pattern:?}");
            assert_eq!(Test::MatchesNot(pattern).accepts(&value), !matches, "{text}");
        }
        assert!(!Test::MatchesNot(Pattern::new("a").expect("a pattern")).accepts(&Value::Int(1)));
    }

    #[test]
    fn what_is_no_pattern_or_too_large_is_refused() {
        for wrong in ["(", "a)|(b", "[z-a]", "(?:a{1000}){1000}"] {
            assert!(Pattern::new(wrong).is_err(), "{wrong}");
        }
    }
}
