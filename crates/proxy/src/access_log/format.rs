//! The format of lines: JSON, or a text with fields in braces.

use super::field::Field;
use crate::template;
use curtail_text::expectation;

/// The prefix of a field that is a request header: `{header.user-agent}`.
const HEADER: &str = "header.";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Format {
    /// An object with all fields.
    Json,
    Text(Vec<FormatPart>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FormatPart {
    Literal(String),
    Field(Field),
    /// The request header of this name, in lower case.
    Header(String),
}

impl Format {
    /// Reads `json`, or a text. `{{` and `}}` stand for braces.
    ///
    /// # Errors
    /// The message, when the text has an unknown field, no field, a single brace, or a line break.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "json" {
            return Ok(Self::Json);
        }
        if text.contains(|char: char| char.is_control() && char != '\t') {
            return Err("the format has a control character: expected one line".to_owned());
        }
        let (parts, fields) =
            template::parse(text, "{status}", FormatPart::Literal, FormatPart::parse)?;
        if fields == 0 {
            return Err(format!(
                "{text:?} has no field: expected json, or a text with fields such as {{status}}"
            ));
        }
        Ok(Self::Text(parts))
    }
}

impl FormatPart {
    fn parse(name: &str) -> Result<Self, String> {
        if let Some(header) = name.strip_prefix(HEADER) {
            return header_name(header).map(Self::Header);
        }
        Field::from_name(name).map(Self::Field).ok_or_else(|| {
            let known: Vec<_> = Field::names().chain(["header.NAME"]).collect();
            format!("{name:?} is not a field: {}", expectation(name, &known, ""))
        })
    }
}

/// The name of a header in lower case.
///
/// # Errors
/// The message, when no header can have this name.
pub(crate) fn header_name(name: &str) -> Result<String, String> {
    match http::HeaderName::try_from(name) {
        Ok(name) => Ok(name.as_str().to_owned()),
        Err(_) => {
            Err(format!("{name:?} is not the name of a header: expected one such as user-agent"))
        }
    }
}
