//! Errors of a configuration: position, key, value and expectation.
//!
//! Reading does not stop at the first error. At most [`CONFIG_ERRORS_MAX`] errors are kept, in the order of the file;
//! further errors are only counted.

use std::fmt;

/// Maximum number of errors that are kept.
pub const CONFIG_ERRORS_MAX: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourcePosition {
    /// A position in the file. Both numbers count from 1; a column is a character.
    File { line: usize, column: usize },
    /// The `--set` with this index.
    Set(usize),
}

impl SourcePosition {
    pub(crate) const START: Self = Self::File { line: 1, column: 1 };
}

#[derive(Clone, Debug)]
struct ConfigError {
    place: SourcePosition,
    /// The full key; empty if the error is not about a key.
    path: String,
    /// The full paths of further keys that the error is about.
    others: Vec<String>,
    text: String,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The value could not be read.
    Unreadable,
    /// The value was read, but is not valid.
    Invalid,
    /// A check beyond the text failed.
    Check,
}

/// An error about the value of a key, which a check beyond the text has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyError {
    /// The path of the key: `listeners[0].tls.key_file`; empty if the error is not about a key.
    pub key: String,
    /// The error without its key.
    pub text: String,
}

impl KeyError {
    /// An error about the value of `key`.
    #[must_use]
    pub fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { key: key.into(), text: text.into() }
    }
}

/// All errors of one configuration, one per line. Without a file (`file` is empty), lines and columns are omitted.
#[derive(Clone, Debug)]
pub struct ConfigErrors {
    file: String,
    sets: Vec<String>,
    kept: Vec<ConfigError>,
    not_kept: usize,
    /// The full paths of absent keys that the file has under a mistyped name.
    mistyped: Vec<String>,
}

impl ConfigErrors {
    pub(crate) fn none(file: &str, sets: &[String]) -> Self {
        Self {
            file: file.to_owned(),
            sets: sets.to_vec(),
            kept: Vec::new(),
            not_kept: 0,
            mistyped: Vec::new(),
        }
    }

    /// Adds an error about a value that could not be read.
    pub(crate) fn push(&mut self, place: SourcePosition, path: &str, text: String) {
        self.keep(place, (path, Vec::new()), text, Cause::Unreadable);
    }

    /// Adds an error about a value that is not valid, alone or beside the values at the paths `others`.
    pub(crate) fn push_invalid(
        &mut self,
        place: SourcePosition,
        (path, others): (&str, Vec<String>),
        text: String,
    ) {
        self.keep(place, (path, others), text, Cause::Invalid);
    }

    /// Adds an error of a check beyond the text.
    pub(crate) fn push_of_check(&mut self, place: SourcePosition, path: &str, text: String) {
        self.keep(place, (path, Vec::new()), text, Cause::Check);
    }

    /// Drops the errors about the absent key at `path`, now and from now on: the file has it under a mistyped name, which
    /// is the one error to report.
    pub(crate) fn forget_absent(&mut self, path: String) {
        let is_about = |error: &ConfigError| {
            let mut about = error.others.iter().chain([&error.path]);
            about.any(|about| is_in(about, &path))
        };
        self.kept.retain(|error| !is_about(error));
        if self.mistyped.len() < CONFIG_ERRORS_MAX {
            self.mistyped.push(path);
        }
    }

    fn keep(
        &mut self,
        place: SourcePosition,
        (path, others): (&str, Vec<String>),
        text: String,
        cause: Cause,
    ) {
        let error = ConfigError { place, path: path.to_owned(), others, text, cause };
        if self.kept.len() < CONFIG_ERRORS_MAX {
            self.kept.push(error);
        } else {
            self.not_kept += 1;
        }
    }

    /// Drops the errors after the first `count`; returns whether there were any.
    pub(crate) fn forget_after(&mut self, count: usize) -> bool {
        let has_more = self.count() > count;
        self.kept.truncate(count);
        self.not_kept = count.saturating_sub(CONFIG_ERRORS_MAX);
        has_more
    }

    /// Whether `path`, a value below it or a section around it could not be read.
    pub(crate) fn is_unread(&self, path: &str) -> bool {
        let unreadable = self.kept.iter().filter(|known| known.cause == Cause::Unreadable);
        let mut unread = unreadable.map(|known| &known.path).chain(&self.mistyped);
        unread.any(|known| is_in(known, path) || is_in(path, known))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns `value`, or the errors if there are any.
    pub(crate) fn or<T>(mut self, value: T) -> Result<T, Self> {
        if self.is_empty() {
            return Ok(value);
        }
        self.kept.sort_by_key(|error| error.place);
        Err(self)
    }

    /// Whether the text has no error: all errors are of checks beyond it.
    #[must_use]
    pub fn are_of_checks(&self) -> bool {
        self.kept.iter().all(|error| error.cause == Cause::Check)
    }

    /// The number of errors.
    #[must_use]
    pub fn count(&self) -> usize {
        self.kept.len() + self.not_kept
    }

    fn line(&self, error: &ConfigError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = error.path.as_str();
        match error.place {
            SourcePosition::File { line, column } => {
                if !self.file.is_empty() {
                    write!(f, "{}:{line}:{column}: ", self.file)?;
                }
                if !path.is_empty() {
                    write!(f, "{path}: ")?;
                }
            }
            SourcePosition::Set(index) => {
                let set = self.sets.get(index).map_or("", String::as_str);
                write!(f, "--set {}: ", crate::scalar::shorten(set))?;
                // The argument already names its own key.
                if !path.is_empty() && set.split('=').next() != Some(path) {
                    write!(f, "{path}: ")?;
                }
            }
        }
        f.write_str(&error.text)
    }
}

/// Whether the path `inner` is `outer` or a path below it.
fn is_in(inner: &str, outer: &str) -> bool {
    let rest = inner.strip_prefix(outer);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.kept.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            self.line(error, f)?;
        }
        match self.not_kept {
            0 => Ok(()),
            more => write!(f, "\n{}: and {more} more errors", self.file),
        }
    }
}

impl std::error::Error for ConfigErrors {}
