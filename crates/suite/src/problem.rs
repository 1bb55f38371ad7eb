//! The reasons for which a suite ends early.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

const TAIL_BYTES_MAX: u64 = 4_096;

const TAIL_LINES_MAX: usize = 12;

/// A failure of a suite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SuiteError {
    /// The step or process that failed.
    pub of: String,
    /// The problem, and the expected state.
    pub problem: String,
    /// The end of the log of this step or process, if it has one.
    pub tail: Option<LogExcerpt>,
}

/// The end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogExcerpt {
    /// The log.
    pub file: PathBuf,
    /// The last lines of the log.
    pub lines: Vec<String>,
}

impl fmt::Display for SuiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, problem, tail } = self;
        write!(f, "{of}: {problem}")?;
        match tail {
            None => Ok(()),
            Some(LogExcerpt { file, lines }) if lines.is_empty() => {
                write!(f, "\n  it printed nothing ({})", file.display())
            }
            Some(LogExcerpt { file, lines }) => {
                write!(f, "\n  the last lines of {}:", file.display())?;
                lines.iter().try_for_each(|line| write!(f, "\n  | {line}"))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SuiteEnd {
    /// The suite was stopped.
    Stopped,
    /// The suite failed.
    Wrong(Box<SuiteError>),
}

impl SuiteEnd {
    pub(super) fn wrong(of: &str, problem: impl Into<String>) -> Self {
        Self::Wrong(Box::new(SuiteError { of: of.to_owned(), problem: problem.into(), tail: None }))
    }

    /// A failure with the end of a log.
    pub(super) fn with_log(of: &str, problem: impl Into<String>, log: &Path) -> Self {
        let tail = Some(LogExcerpt { file: log.to_owned(), lines: last_lines(log) });
        Self::Wrong(Box::new(SuiteError { of: of.to_owned(), problem: problem.into(), tail }))
    }

    pub(super) fn io(of: &str, what: &str, error: &io::Error) -> Self {
        Self::wrong(of, format!("{what}: {error}"))
    }
}

/// The last lines of a file; none when it cannot be read.
fn last_lines(file: &Path) -> Vec<String> {
    let tail = File::open(file).and_then(|file| {
        let len = file.metadata()?.len();
        read_part(file, len.saturating_sub(TAIL_BYTES_MAX), TAIL_BYTES_MAX)
    });
    let text = tail.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES_MAX);
    let printable = |line: &&str| line.chars().filter(|c| !c.is_control()).collect();
    lines[from..].iter().map(printable).collect()
}

/// Reads at most `bytes_max` bytes of a file, from an offset on.
pub(super) fn read_part(mut file: File, from: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(from))?;
    let mut part = Vec::new();
    file.take(bytes_max).read_to_end(&mut part)?;
    Ok(part)
}
