//! The words of a query.

use crate::{Fault, NotAnswered};

/// More is not read.
const BYTES_MAX: usize = 16 << 10;

/// A word, and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) at: usize,
    pub(crate) word: Word,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    /// `{`, `&&`, `>=` and all others that are no letters.
    Sign(&'static str),
    /// A name with the points and colons in it, as `span.http.method`; quoted parts are without quotes, and
    /// say that they were.
    Name(Vec<Part>),
    Text(String),
    Int(i64),
    Double(f64),
    Duration(i64),
    End,
}

/// A part of a name, and the sign before it: none, `.` or `:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) before: Option<char>,
    pub(crate) text: String,
}

/// The longest first, so that none is taken for the beginning of another.
const SIGNS: [&str; 38] = [
    "!>>", "!<<", "&>>", "&<<", "!~", "=~", "!=", "<=", ">=", "&&", "||", ">>", "<<", "&>", "&<",
    "!>", "!<", "&~", "{", "}", "(", ")", ",", "|", "=", "<", ">", "!", "+", "-", "*", "/", "%",
    "^", "~", "[", "]", ";",
];

/// All words of a query, and its end.
pub(crate) fn tokens(query: &str) -> Result<Vec<Token>, NotAnswered> {
    if query.len() > BYTES_MAX {
        return Err(NotAnswered { at: BYTES_MAX, fault: Fault::Too("long") });
    }
    let mut tokens = Vec::new();
    let mut rest = query.trim_start();
    while !rest.is_empty() {
        let at = query.len() - rest.len();
        let mut reader = Reader { query, rest };
        let word = reader.word()?;
        tokens.push(Token { at, word });
        rest = reader.rest.trim_start();
    }
    tokens.push(Token { at: query.len(), word: Word::End });
    Ok(tokens)
}

struct Reader<'a> {
    query: &'a str,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn word(&mut self) -> Result<Word, NotAnswered> {
        let mut begins = self.rest.chars();
        let (first, second) = (begins.next().unwrap_or(' '), begins.next().unwrap_or(' '));
        match first {
            '"' | '`' => self.quoted(first).map(Word::Text),
            '0'..='9' => self.number(),
            '.' if second.is_ascii_digit() => self.number(),
            '.' => self.name(),
            _ if is_letter(first) => self.name(),
            _ => {
                let sign = SIGNS.iter().find(|sign| self.rest.starts_with(**sign));
                let Some(sign) = sign else { return Err(self.expected("a word of TraceQL")) };
                self.rest = &self.rest[sign.len()..];
                Ok(Word::Sign(sign))
            }
        }
    }

    /// A text in quotes; in backquotes nothing is escaped.
    fn quoted(&mut self, quote: char) -> Result<String, NotAnswered> {
        let mut text = String::new();
        let mut chars = self.rest[1..].char_indices();
        while let Some((at, char)) = chars.next() {
            if char == quote {
                self.rest = &self.rest[1 + at + 1..];
                return Ok(text);
            }
            if char != '\\' || quote == '`' {
                text.push(char);
                continue;
            }
            match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, 'r')) => text.push('\r'),
                // In regular expressions many others are escaped: they are for them to read.
                Some((_, escaped)) if escaped != '"' && escaped != '\\' => {
                    text.extend(['\\', escaped]);
                }
                Some((_, escaped)) => text.push(escaped),
                None => break,
            }
        }
        Err(self.expected("a text that ends with its quote"))
    }

    /// A number, or a duration: numbers with units.
    fn number(&mut self) -> Result<Word, NotAnswered> {
        let digits = self.take(|char| char.is_ascii_digit() || char == '.');
        if !self.rest.starts_with(is_letter) && !self.rest.starts_with('µ') {
            if let Ok(int) = digits.parse() {
                return Ok(Word::Int(int));
            }
            return digits.parse().map(Word::Double).map_err(|_| self.expected("a number"));
        }
        let (mut ns, mut digits) = (0_i128, digits);
        loop {
            let unit = self.take(|char| char.is_alphabetic());
            let unit = unit_ns(unit).ok_or_else(|| self.expected("ns, us, ms, s, m, h or d"))?;
            let part = nanoseconds(digits, unit).ok_or_else(|| self.expected("a number"))?;
            ns = ns.saturating_add(part);
            digits = self.take(|char| char.is_ascii_digit() || char == '.');
            if digits.is_empty() {
                // A longer duration becomes the maximum.
                return Ok(Word::Duration(i64::try_from(ns).unwrap_or(i64::MAX)));
            }
        }
    }

    /// A name: parts with points or colons before them. One that ends with a point goes on in quotes.
    fn name(&mut self) -> Result<Word, NotAnswered> {
        let mut parts = Vec::new();
        loop {
            let before = self.rest.chars().next().filter(|char| matches!(char, '.' | ':'));
            if before.is_some() {
                self.rest = &self.rest[1..];
            } else if !parts.is_empty() {
                return Ok(Word::Name(parts));
            }
            let text = if self.rest.starts_with('"') {
                self.quoted('"')?
            } else {
                self.take(|char| is_letter(char) || char.is_ascii_digit() || "-/@$#".contains(char))
                    .to_owned()
            };
            if text.is_empty() {
                return Err(self.expected("the name of an attribute"));
            }
            parts.push(Part { before, text });
        }
    }

    fn take(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|char| !is_part(char)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn expected(&self, expected: &'static str) -> NotAnswered {
        let found = match self.rest.chars().next() {
            Some(char) => format!("{char:?}"),
            None => "the end".to_owned(),
        };
        let at = self.query.len() - self.rest.len();
        NotAnswered { at, fault: Fault::Expected { expected, found } }
    }
}

fn is_letter(char: char) -> bool {
    char.is_alphabetic() || char == '_'
}

/// Converts a number of units, exactly if the number is whole.
fn nanoseconds(digits: &str, unit_ns: u64) -> Option<i128> {
    if let Ok(whole) = digits.parse::<i64>() {
        return Some(i128::from(whole) * i128::from(unit_ns));
    }
    #[expect(clippy::cast_precision_loss, reason = "units are small")]
    let ns = (digits.parse::<f64>().ok()? * unit_ns as f64).round();
    #[expect(clippy::cast_possible_truncation, reason = "a longer duration becomes the maximum")]
    Some(ns as i128)
}

fn unit_ns(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    })
}
