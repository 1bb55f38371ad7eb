//! Splits a query into tokens.

use crate::{Fault, QueryError};

/// Maximum length of a query.
const BYTES_MAX: usize = 16 << 10;

/// A word, and the position of its first byte in the query.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) at: usize,
    pub(crate) word: Word,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    /// A word without letters: `{`, `&&`, `>=`.
    Sign(&'static str),
    /// A name with points and colons, such as `span.http.method`; quoted parts are stored without quotes.
    Name(Vec<Part>),
    Text(String),
    Int(i64),
    Double(f64),
    Duration(i64),
    End,
}

/// A part of a name, and the sign before the part: none, `.` or `:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) before: Option<char>,
    pub(crate) text: String,
}

/// All signs, the longest first, because some signs begin like shorter signs.
const SIGNS: [&str; 38] = [
    "!>>", "!<<", "&>>", "&<<", "!~", "=~", "!=", "<=", ">=", "&&", "||", ">>", "<<", "&>", "&<",
    "!>", "!<", "&~", "{", "}", "(", ")", ",", "|", "=", "<", ">", "!", "+", "-", "*", "/", "%",
    "^", "~", "[", "]", ";",
];

/// The escapes of a text, for errors.
const ESCAPES: &str = r#"\\, \", \a, \b, \f, \n, \r, \t, \v, \x41, \101, \u00e9 or \U0001f980 (a text in backquotes has no escapes)"#;

/// Splits a query into tokens; the last token is the end.
pub(crate) fn tokens(query: &str) -> Result<Vec<Token>, QueryError> {
    if query.len() > BYTES_MAX {
        return Err(QueryError { at: BYTES_MAX, fault: Fault::Too("long") });
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
    fn word(&mut self) -> Result<Word, QueryError> {
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

    /// Reads a text in quotes, with the escapes of Go's strings, as in Tempo; a text in backquotes has no escapes.
    fn quoted(&mut self, quote: char) -> Result<String, QueryError> {
        let whole = self.rest;
        let mut text = Vec::new();
        self.rest = &whole[1..];
        while let Some(char) = self.rest.chars().next() {
            if char == '\\' && quote == '"' {
                self.escaped(&mut text)?;
                continue;
            }
            if char == '\n' && quote == '"' {
                return Err(self.expected("\\n for the end of a line, or a text in backquotes"));
            }
            self.rest = &self.rest[char.len_utf8()..];
            if char == quote {
                return String::from_utf8(text).map_err(|_| {
                    self.rest = whole;
                    self.expected("a text whose escaped bytes are UTF-8")
                });
            }
            // Go drops carriage returns in backquotes.
            if char != '\r' || quote == '"' {
                text.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        self.rest = whole;
        Err(self.expected("a text that ends with its quote"))
    }

    /// Reads an escape: a character by its name or number, or a byte by its number.
    fn escaped(&mut self, text: &mut Vec<u8>) -> Result<(), QueryError> {
        let digits = &self.rest[1..];
        let number = |from: usize, len: usize, radix: u32| {
            let digits = digits.get(from..from + len)?;
            let is_number = digits.chars().all(|char| char.is_digit(radix));
            is_number.then(|| u32::from_str_radix(digits, radix).ok()).flatten()
        };
        let byte = |number: Option<u32>| u8::try_from(number?).ok().map(|byte| vec![byte]);
        let char =
            |number: Option<u32>| char::from_u32(number?).map(|char| char.to_string().into());
        let (len, escaped) = match digits.as_bytes().first() {
            Some(b'a') => (1, Some(vec![0x07])),
            Some(b'b') => (1, Some(vec![0x08])),
            Some(b'f') => (1, Some(vec![0x0C])),
            Some(b'n') => (1, Some(vec![b'\n'])),
            Some(b'r') => (1, Some(vec![b'\r'])),
            Some(b't') => (1, Some(vec![b'\t'])),
            Some(b'v') => (1, Some(vec![0x0B])),
            Some(&same @ (b'\\' | b'"')) => (1, Some(vec![same])),
            Some(b'x') => (3, byte(number(1, 2, 16))),
            Some(b'0'..=b'7') => (3, byte(number(0, 3, 8))),
            Some(b'u') => (5, char(number(1, 4, 16))),
            Some(b'U') => (9, char(number(1, 8, 16))),
            _ => (0, None),
        };
        let Some(escaped) = escaped else {
            let escape: String = self.rest.chars().take(2).collect();
            return Err(self.instead(ESCAPES, escape));
        };
        text.extend(escaped);
        self.rest = &digits[len..];
        Ok(())
    }

    /// Reads a number, or a duration: numbers with units.
    fn number(&mut self) -> Result<Word, QueryError> {
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

    /// Reads a name: parts, separated by points or colons. After a point, a part may be in quotes.
    fn name(&mut self) -> Result<Word, QueryError> {
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

    fn expected(&self, expected: &'static str) -> QueryError {
        let found = match self.rest.chars().next() {
            Some(char) => format!("{char:?}"),
            None => "the end".to_owned(),
        };
        self.instead(expected, found)
    }

    fn instead(&self, expected: &'static str, found: String) -> QueryError {
        let at = self.query.len() - self.rest.len();
        QueryError { at, fault: Fault::Expected { expected, found } }
    }
}

fn is_letter(char: char) -> bool {
    char.is_alphabetic() || char == '_'
}

/// Converts a number of units to nanoseconds, exactly if the number is whole.
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
