//! The results file: one run as JSON (`curtail.bench/1`), from which every report can be made again.
//!
//! The file holds all of [`Results`]: reading returns an equal value. Histograms are in `HdrHistogram`'s compressed
//! form (`hdr_v2`), with the exact sum, minimum and maximum. The percentiles under `figures` are for other programs.
//! **Limits**: files of at most 1 GiB. The `state` says whether the run was interrupted.
//! **Invariant**: a file appears completely or not at all.

pub(crate) mod wire;

use super::figures::{self, ArmFigures};
use crate::Results;
use crate::results::Shares;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// Maximum size of a file; a run of a hundred arms with fifty series in a hundred blocks stays below it.
const FILE_LEN_MAX: u64 = 1 << 30;

const SCHEMA: &str = "curtail.bench/1";

/// The content of a file.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    results: &'a Results,
    figures: Vec<ArmFigures>,
}

/// A results file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum ReadError {
    /// The system cannot read the file.
    #[error("{}", .file.display())]
    Io { file: PathBuf, source: io::Error },
    /// The file is not a valid results file.
    #[error("{}: {place}: expected {expected}", .file.display())]
    Damaged { file: PathBuf, place: String, expected: String },
}

/// The results as the text of a file.
///
/// # Panics
/// Never: all results can be written as JSON.
#[must_use]
pub fn to_json(results: &Results) -> String {
    let document = Document { schema: SCHEMA, results, figures: figures::of_arms(results) };
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
    let results = serde_json::from_slice(text).map_err(|error| not_json(file, &error))?;
    match inconsistency(&results) {
        Some((place, expected)) => Err(damaged(place, expected)),
        None => Ok(results),
    }
}

/// The first key that does not fit the others, and its expected value.
fn inconsistency(results: &Results) -> Option<(String, String)> {
    let Results { shares: Shares { of, sent }, arms, series, blocks, .. } = results;
    let is_ascending = sent.is_sorted_by(|one, other| one < other);
    if sent.is_empty() || !is_ascending || !sent.iter().all(|nth| (1..=*of).contains(nth)) {
        let expected = format!("ascending numbers from 1 to {of}, at least one");
        return Some(("shares.sent".to_owned(), expected));
    }
    blocks.iter().enumerate().find_map(|(nth, block)| {
        let (arms, series) = (arms.len(), series.len());
        if block.arm >= arms {
            Some((format!("blocks[{nth}].arm"), format!("the place of one of {arms} arms")))
        } else if block.latencies.len() != series {
            let expected = format!("one for each of {series} series");
            Some((format!("blocks[{nth}].latencies"), expected))
        } else {
            None
        }
    })
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
/// When the file cannot be opened, is too long, or is not what [`to_json`] has made.
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
