//! The lines of a journal, one at a time, with their checksums verified.
//!
//! **Limits**: lines of at most [`LINE_BYTES_MAX`].

use curtail_policy::journal::{Checksum, Entry, SCHEMA};
use serde::de::{DeserializeOwned, IgnoredAny};
use std::io::{self, BufRead, Read as _};

/// Maximum length of a line: an event of a gather has at most one effect for each of 100,000 calls.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// An error that prevents reading a journal.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The journal could not be read.
    #[error("the journal cannot be read")]
    Io(#[source] io::Error),
    /// A line that a journal cannot have at its place.
    #[error("line {line} is not of a journal: {text}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// The error and the expectation.
        text: String,
    },
}

/// The lines of a journal, one at a time.
#[expect(missing_debug_implementations, reason = "a reader has none")]
pub struct JournalLines<'j> {
    journal: &'j mut dyn BufRead,
    line: u64,
    /// The entry of the line, without its checksum.
    text: String,
    checksum: Checksum,
}

impl<'j> JournalLines<'j> {
    /// The lines after the first one, whose schema must be [`SCHEMA`].
    ///
    /// # Errors
    /// When the first line cannot be read, or is not the first line of a journal of this version.
    pub fn begin(journal: &'j mut dyn BufRead) -> Result<Self, Unreadable> {
        let mut lines =
            Self { journal, line: 0, text: String::new(), checksum: Checksum::default() };
        if !lines.advance()? {
            return Err(lines.wrong("the journal is empty"));
        }
        let Entry::Journal { schema } = lines.parse::<IgnoredAny>()? else {
            return Err(lines.wrong("expected the schema first"));
        };
        if schema != SCHEMA {
            return Err(lines.wrong(format!("schema is {schema}: expected {SCHEMA}")));
        }
        Ok(lines)
    }

    /// Reads the next line; false at the end and before an unfinished line.
    ///
    /// # Errors
    /// When the line cannot be read, is too long, or does not match its checksum.
    pub fn advance(&mut self) -> Result<bool, Unreadable> {
        self.line += 1;
        let mut line = String::new();
        let mut bounded = (&mut *self.journal).take(LINE_BYTES_MAX + 1);
        let read = bounded.read_line(&mut line).map_err(Unreadable::Io)?;
        if read as u64 > LINE_BYTES_MAX {
            return Err(self.wrong(format!("expected at most {LINE_BYTES_MAX} bytes")));
        }
        let Some(line) = line.strip_suffix('\n') else { return Ok(false) };
        self.text = self.open(line)?;
        Ok(true)
    }

    fn open(&mut self, line: &str) -> Result<String, Unreadable> {
        if let Some(entry) = self.checksum.open(line) {
            return Ok(entry);
        }
        // A journal of another version has other checksums or none.
        if self.line == 1
            && let Ok(Entry::Journal { schema }) = parse::<IgnoredAny>(line)
            && schema != SCHEMA
        {
            return Err(self.wrong(format!("schema is {schema}: expected {SCHEMA}")));
        }
        Err(self.wrong(
            "checksum does not match: this line was changed, or an earlier line was moved or removed",
        ))
    }

    /// The number of the line, from 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.line
    }

    /// The entry of the line as text, without its checksum.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The entry of the line, whose effects have the type `F`.
    ///
    /// # Errors
    /// When the line is no entry of a journal.
    pub fn parse<F: DeserializeOwned>(&self) -> Result<Entry<F>, Unreadable> {
        parse(&self.text).map_err(|error| self.wrong(error.to_string()))
    }

    /// An error at this line.
    #[must_use]
    pub fn wrong(&self, text: impl Into<String>) -> Unreadable {
        Unreadable::Line { line: self.line, text: text.into() }
    }
}

fn parse<F: DeserializeOwned>(entry: &str) -> serde_json::Result<Entry<F>> {
    serde_json::from_str(entry)
}
