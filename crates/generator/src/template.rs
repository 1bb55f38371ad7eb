//! Texts with placeholders: `/search?q={word}&user={tenant}`.
//!
//! A placeholder is a column of the request's data, `tenant`, or `nth` (the number of the request, from 0). `{{` and
//! `}}` are braces. Values in a path are percent-encoded.

use curtail_text::expectation;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::io::Write as _;

/// Escapes all but unreserved characters (RFC 3986, section 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A text with placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Placeholder { value: Placeholder, is_escaped: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    Column(usize),
    Tenant,
    Nth,
}

/// The values of the placeholders of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceholderValues<'a> {
    /// A row of the data; empty when there is none.
    pub(crate) row: &'a [String],
    /// The tenant; empty without tenants.
    pub(crate) tenant: &'a str,
    /// The number of the request in the plan.
    pub(crate) nth: u64,
}

impl Template {
    /// Parses a text whose placeholders are `columns`, `tenant` and `nth`; `is_escaped` for a path.
    pub(crate) fn parse(text: &str, columns: &[String], is_escaped: bool) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            plain.push_str(before);
            if from.starts_with("{{") || from.starts_with("}}") {
                plain.push_str(&from[..1]);
                rest = &from[2..];
                continue;
            }
            let name = from.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let Some((name, after)) = name else {
                return Err(format!(
                    "the brace at byte {} has no partner: expected {{name}}, or {{{{ for a brace",
                    text.len() - from.len()
                ));
            };
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Placeholder { value: placeholder(name, columns)?, is_escaped });
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// The template of a text without placeholders.
    pub(crate) fn of_text(text: String) -> Self {
        if text.is_empty() { Self::default() } else { Self(vec![Piece::Text(text)]) }
    }

    /// Whether the text is the same for all requests.
    pub(crate) fn is_fixed(&self) -> bool {
        self.0.iter().all(|piece| matches!(piece, Piece::Text(_)))
    }

    /// Appends the text with its values to `out`.
    pub(crate) fn fill(&self, values: &PlaceholderValues<'_>, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Placeholder { value: Placeholder::Nth, .. } => {
                    write!(out, "{}", values.nth).expect("a vector takes all");
                }
                Piece::Placeholder { value, is_escaped } => {
                    let text = match value {
                        Placeholder::Column(nth) => values.row[*nth].as_str(),
                        Placeholder::Tenant | Placeholder::Nth => values.tenant,
                    };
                    if *is_escaped {
                        for part in utf8_percent_encode(text, ESCAPED) {
                            out.extend_from_slice(part.as_bytes());
                        }
                    } else {
                        out.extend_from_slice(text.as_bytes());
                    }
                }
            }
        }
    }

    /// The text with its values.
    pub(crate) fn filled(&self, values: &PlaceholderValues<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        self.fill(values, &mut out);
        out
    }
}

fn placeholder(name: &str, columns: &[String]) -> Result<Placeholder, String> {
    // A column may be named like one of ours; then the writer means the column.
    if let Some(nth) = columns.iter().position(|column| column == name) {
        return Ok(Placeholder::Column(nth));
    }
    match name {
        "tenant" => Ok(Placeholder::Tenant),
        "nth" => Ok(Placeholder::Nth),
        _ => {
            let known: Vec<&str> =
                columns.iter().map(String::as_str).chain(["tenant", "nth"]).collect();
            Err(format!("{{{name}}} is unknown: {}", expectation(name, &known, "")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PlaceholderValues, Template};

    fn filled(text: &str, is_escaped: bool) -> Result<String, String> {
        let template = Template::parse(text, &["word".to_owned(), "id".to_owned()], is_escaped)?;
        let row = ["a b&c".to_owned(), "7".to_owned()];
        let values = PlaceholderValues { row: &row, tenant: "big/1", nth: 42 };
        Ok(String::from_utf8(template.filled(&values)).expect("text"))
    }

    #[test]
    fn places_are_filled_in_and_escaped_where_they_must_be() {
        assert_eq!(
            filled("/q?w={word}&t={tenant}#{nth}", true).as_deref(),
            Ok("/q?w=a%20b%26c&t=big%2F1#42")
        );
        assert_eq!(
            filled(r#"{{"id": {id}, "w": "{word}"}}"#, false).as_deref(),
            Ok(r#"{"id": 7, "w": "a b&c"}"#)
        );
        assert_eq!(filled("", false).as_deref(), Ok(""));
    }

    #[test]
    fn what_cannot_be_filled_in_is_named() {
        let unknown = filled("/{wrod}", true).expect_err("unknown");
        assert_eq!(unknown, "{wrod} is unknown: did you mean word?");
        assert!(filled("/a{b", true).expect_err("open").contains("byte 2"));
        assert!(filled("/a}b", true).expect_err("open").contains("byte 2"));
    }
}
