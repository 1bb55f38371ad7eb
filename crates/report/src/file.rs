//! The results file: one run as JSON (`curtail.bench/1`), from which every report can be made again.
//!
//! It holds all of [`Results`]: reading returns an equal value. Histograms are in `HdrHistogram`'s compressed form
//! (`hdr_v2`), with the exact sum, minimum and maximum. The percentiles under `figures` are for other programs.
//! **Limits**: files of at most [`FILE_LEN_MAX`]. The `state` of an interrupted run says so.
//! **Invariant**: a file appears completely or not at all.

mod wire;

use super::figures;
use crate::Results;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Maximum size of a file; a run of a hundred arms with fifty series in a hundred blocks stays below it.
pub const FILE_LEN_MAX: u64 = 1 << 30;

const SCHEMA: &str = "curtail.bench/1";

/// A results file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system cannot read it.
    #[error("{}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not a valid results file.
    #[error("{}: {place}: expected {expected}", .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The place: line and column, or the path of a key.
        place: String,
        /// The expected value.
        expected: String,
    },
}

/// The results as the text of a file.
///
/// # Panics
/// Never: all results can be written as JSON.
#[must_use]
pub fn to_json(results: &Results) -> String {
    let document = wire::Document::new(SCHEMA, results, figures::of_arms(results));
    let mut text = serde_json::to_string(&document).expect("numbers and texts can be written");
    text.push('\n');
    text
}

/// Reads results from the text of `file`, which is named in errors.
///
/// # Errors
/// When the text is not what [`to_json`] has made.
pub fn from_json(file: &Path, text: &[u8]) -> Result<Results, ReadError> {
    let damaged = |place: String, expected: String| ReadError::Damaged {
        file: file.to_owned(),
        place,
        expected,
    };
    let head: wire::Head = serde_json::from_slice(text).map_err(|error| not_json(file, &error))?;
    if head.schema.as_deref() != Some(SCHEMA) {
        let found = head.schema.map_or("not there".to_owned(), |schema| format!("{schema:?}"));
        let expected = format!("{SCHEMA:?}, which `curtail bench` writes; it is {found}");
        return Err(damaged("schema".to_owned(), expected));
    }
    let document: wire::Document<'_> =
        serde_json::from_slice(text).map_err(|error| not_json(file, &error))?;
    document.into_results().map_err(|wire::Wrong { place, expected }| damaged(place, expected))
}

fn not_json(file: &Path, error: &serde_json::Error) -> ReadError {
    let expected = if error.is_eof() {
        "more: the file was cut off".to_owned()
    } else {
        format!("a results file ({error})")
    };
    let place = format!("line {}, column {}", error.line(), error.column());
    ReadError::Damaged { file: file.to_owned(), place, expected }
}

/// Reads the results in `file`.
///
/// # Errors
/// When it cannot be opened, is too long, or is not what [`to_json`] has made.
pub fn read(file: &Path) -> Result<Results, ReadError> {
    let of_system = |source| ReadError::Io { file: file.to_owned(), source };
    let mut text = Vec::new();
    let opened = File::open(file).map_err(of_system)?;
    opened.take(FILE_LEN_MAX + 1).read_to_end(&mut text).map_err(of_system)?;
    if text.len() as u64 > FILE_LEN_MAX {
        let place = format!("byte {FILE_LEN_MAX}");
        let expected = "the end: a results file is shorter".to_owned();
        return Err(ReadError::Damaged { file: file.to_owned(), place, expected });
    }
    from_json(file, &text)
}

/// Replaces the content of `file` completely or not at all, by renaming a temporary file. An error names the file.
pub(super) fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = File::create(&beside)
        .and_then(|mut part| part.write_all(bytes))
        .and_then(|()| std::fs::rename(&beside, file));
    written.map_err(|error| {
        // It may not even be there; what matters is the error before.
        let _removed = std::fs::remove_file(&beside);
        io::Error::new(error.kind(), format!("{}: {error}", file.display()))
    })
}
