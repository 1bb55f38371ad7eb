//! The values of spans, and tests of a value.

use crate::columns::{int, text};
use crate::schema::Kind;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::cmp::Ordering;

/// Maximum size of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// A value of a span.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// A text; for a map or bytes, their JSON.
    Text(Cow<'a, str>),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// The ID of a trace or of a span.
    Id(u128),
    /// Several values.
    List(Vec<Value<'static>>),
}

/// A test of a value. Null passes no test. A list passes if one of its elements does;
/// [`IsNot`](Self::IsNot) and [`MatchesNot`](Self::MatchesNot) must hold for all elements.
///
/// Numbers are compared exactly, also integers with doubles; texts byte by byte.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// Any value.
    Exists,
    /// This value.
    Is(Value<'static>),
    /// Any other value.
    IsNot(Value<'static>),
    /// Less than this.
    Less(Value<'static>),
    /// Less than or equal to this.
    AtMost(Value<'static>),
    /// Greater than this.
    Greater(Value<'static>),
    /// Greater than or equal to this.
    AtLeast(Value<'static>),
    /// A text that the pattern matches as a whole.
    Matches(Pattern),
    /// A text that the pattern does not match.
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
    /// When the pattern is invalid, or needs too much memory.
    pub fn new(text: &str) -> Result<Self, regex::Error> {
        // The pattern must be valid without the group below: `a)|(b` is not.
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
        let Json::Object(mut object) = serde_json::from_slice(json).ok()? else { return None };
        Self::of_json(object.remove(key)?)
    }

    /// Reads a value in [plain JSON](curtail_otlp::plain); `null` is no value.
    pub(super) fn of_json(json: Json) -> Option<Value<'static>> {
        Some(match json {
            Json::Null => return None,
            Json::String(text) => Value::Text(Cow::Owned(text)),
            Json::Bool(is) => Value::Bool(is),
            Json::Number(number) => number
                .as_i64()
                .map_or_else(|| Value::Double(number.as_f64().unwrap_or(f64::NAN)), Value::Int),
            Json::Array(all) => Value::List(all.into_iter().filter_map(Value::of_json).collect()),
            Json::Object(object) => match object.get("@double").and_then(Json::as_str) {
                Some("Infinity") => Value::Double(f64::INFINITY),
                Some("-Infinity") => Value::Double(f64::NEG_INFINITY),
                Some(_) => Value::Double(f64::NAN),
                None => Value::Text(Cow::Owned(Json::Object(object).to_string())),
            },
        })
    }

    /// An owned copy.
    #[must_use]
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Self::Int(number) => Value::Int(number),
            Self::Double(number) => Value::Double(number),
            Self::Bool(is) => Value::Bool(is),
            Self::Id(id) => Value::Id(id),
            Self::List(all) => Value::List(all),
        }
    }

    /// The name of the kind of value.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
            Self::Bool(_) => "bool",
            Self::Id(_) => "id",
            Self::List(_) => "list",
        }
    }

    /// The value as a number.
    #[must_use]
    pub const fn number(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "measured values are doubles")]
            Self::Int(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            Self::Text(_) | Self::Bool(_) | Self::Id(_) | Self::List(_) => None,
        }
    }

    /// Whether values of this kind have an order: numbers and texts do.
    #[must_use]
    pub const fn has_order(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Double(_) | Self::Text(_))
    }

    fn equals(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Self::Bool(one), Value::Bool(other)) => one == other,
            (Self::Id(one), Value::Id(other)) => one == other,
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }

    /// The order of two numbers or two texts.
    fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(one), Value::Text(other)) => Some(one.cmp(other)),
            (Self::Int(one), Value::Int(other)) => Some(one.cmp(other)),
            (Self::Double(one), Value::Double(other)) => one.partial_cmp(other),
            (Self::Int(one), Value::Double(other)) => compare_exactly(*one, *other),
            (Self::Double(one), Value::Int(other)) => {
                compare_exactly(*other, *one).map(Ordering::reverse)
            }
            _ => None,
        }
    }
}

/// Compares without rounding the integer, which a conversion to a double would do beyond 2^53.
fn compare_exactly(int: i64, double: f64) -> Option<Ordering> {
    /// 2^63. The integer part of every double from -2^63 to below 2^63 fits an `i64`.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if double.is_nan() {
        return None;
    }
    if double >= END {
        return Some(Ordering::Less);
    }
    if double < -END {
        return Some(Ordering::Greater);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the range is checked, and the fraction is compared"
    )]
    let whole = double.trunc() as i64;
    Some(int.cmp(&whole).then_with(|| 0.0_f64.total_cmp(&(double.fract() + 0.0))))
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
            Self::List(all) => {
                let mut separator = "[";
                for each in all {
                    f.write_str(std::mem::replace(&mut separator, ","))?;
                    if let Self::Text(text) = each {
                        Json::from(&**text).fmt(f)?;
                    } else {
                        each.fmt(f)?;
                    }
                }
                f.write_str(if all.is_empty() { "[]" } else { "]" })
            }
        }
    }
}

impl Test {
    /// Whether a value passes.
    #[must_use]
    pub fn accepts(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (Self::Exists, _) => true,
            (Self::IsNot(_) | Self::MatchesNot(_), Value::List(all)) => {
                all.iter().all(|each| self.accepts(each))
            }
            (_, Value::List(all)) => all.iter().any(|each| self.accepts(each)),
            (Self::Is(is), _) => is.equals(value),
            (Self::IsNot(is), _) => !is.equals(value),
            (Self::Less(than), _) => value.compare(than).is_some_and(Ordering::is_lt),
            (Self::AtMost(than), _) => value.compare(than).is_some_and(Ordering::is_le),
            (Self::Greater(than), _) => value.compare(than).is_some_and(Ordering::is_gt),
            (Self::AtLeast(than), _) => value.compare(than).is_some_and(Ordering::is_ge),
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
            // Go's regular expressions also have scripts and general categories.
            (r"\p{Greek}+", "αβγ", true),
            (r"\p{Greek}+", "abc", false),
            (r"\pL\p{Nd}", "é7", true),
            (r"\P{Lu}[[:digit:]]", "a7", true),
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

    #[test]
    fn integers_and_doubles_are_compared_exactly() {
        let beyond = 9_007_199_254_740_993_i64;
        let end = 9_223_372_036_854_775_808.0;
        for (int, double, order) in [
            (beyond, 9_007_199_254_740_992.0, Some(Ordering::Greater)),
            (beyond - 1, 9_007_199_254_740_992.0, Some(Ordering::Equal)),
            (i64::MAX, end, Some(Ordering::Less)),
            (i64::MIN, -end, Some(Ordering::Equal)),
            (i64::MIN, f64::NEG_INFINITY, Some(Ordering::Greater)),
            (i64::MAX, f64::INFINITY, Some(Ordering::Less)),
            (1, 1.5, Some(Ordering::Less)),
            (-1, -1.5, Some(Ordering::Greater)),
            (0, -0.0, Some(Ordering::Equal)),
            (0, 0.5, Some(Ordering::Less)),
            (0, -0.5, Some(Ordering::Greater)),
            (0, f64::NAN, None),
        ] {
            let (one, other) = (Value::Int(int), Value::Double(double));
            assert_eq!(one.compare(&other), order, "{int} {double}");
            assert_eq!(other.compare(&one), order.map(Ordering::reverse), "{double} {int}");
        }
        assert!(!Test::Is(Value::Int(beyond)).accepts(&Value::Int(beyond - 1)));
        assert!(Test::Greater(Value::Int(beyond - 1)).accepts(&Value::Int(beyond)));
        assert!(!Test::Is(Value::Double(9_007_199_254_740_992.0)).accepts(&Value::Int(beyond)));
    }

    #[test]
    fn a_list_passes_if_one_element_does_and_a_negation_if_all_do() {
        let of = |json: &str| {
            Value::of_json(serde_json::from_str(json).expect("JSON")).expect("a value")
        };
        let list = of(r#"["a","b",3,null]"#);
        let pattern = || Pattern::new("b|c").expect("a pattern");
        for (test, accepts) in [
            (Test::Exists, true),
            (Test::Is("b".into()), true),
            (Test::Is("c".into()), false),
            (Test::IsNot("b".into()), false),
            (Test::IsNot("c".into()), true),
            (Test::Matches(pattern()), true),
            (Test::AtLeast(Value::Int(3)), true),
            (Test::Greater(Value::Int(3)), false),
        ] {
            assert_eq!(test.accepts(&list), accepts, "{test:?}");
        }
        assert!(Test::MatchesNot(pattern()).accepts(&of(r#"["a","d"]"#)));
        assert!(!Test::Is("a".into()).accepts(&of("[]")) && Test::Exists.accepts(&of("[]")));
        assert_eq!(list.to_string(), r#"["a","b",3]"#);
        assert_eq!(of(r#"{"@double":"Infinity"}"#), Value::Double(f64::INFINITY));
        assert_eq!(of(r#"{"a":1}"#), Value::from(r#"{"a":1}"#));
    }
}
