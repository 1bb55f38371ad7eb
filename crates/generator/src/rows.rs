//! Rows of values for placeholders in requests, from a CSV file with a line of names.

use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum size of a data file, in bytes: all rows are in memory.
pub const DATA_BYTES_MAX: u64 = 256 << 20;

/// Rows of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// At least one, unless there are no columns.
    pub rows: Vec<Vec<String>>,
}

/// Why a file is no data.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// It cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line is not what it should be.
    #[error("{}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, the problem and the expected value.
        problem: String,
    },
}

impl Rows {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read, is too long, or a line does not fit the first.
    pub fn read(path: &Path) -> Result<Self, RowsError> {
        let io = |source| RowsError::Io { path: path.to_owned(), source };
        let file = std::fs::File::open(path).map_err(io)?;
        let mut text = Vec::new();
        file.take(DATA_BYTES_MAX + 1).read_to_end(&mut text).map_err(io)?;
        let problem = |problem| RowsError::Line { path: path.to_owned(), problem };
        if text.len() as u64 > DATA_BYTES_MAX {
            return Err(problem(format!(
                "longer than {DATA_BYTES_MAX} bytes: expected a smaller file"
            )));
        }
        Self::parse(&text).map_err(problem)
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        // A quote that is never closed takes the rest of the file for one value; a file that was cut off is such.
        let quotes = text.iter().filter(|byte| **byte == b'"').count();
        if quotes % 2 == 1 {
            let at = text.iter().rposition(|byte| *byte == b'"').unwrap_or(0);
            let line = 1 + text[..at].iter().filter(|byte| **byte == b'\n').count();
            return Err(format!(
                "line {line}: a quote is not closed: expected an even number of quotes"
            ));
        }
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::Headers).from_reader(text);
        let columns: Vec<String> = match reader.headers() {
            Ok(names) => names.iter().map(str::to_owned).collect(),
            Err(error) => return Err(said(&error)),
        };
        if columns.iter().all(String::is_empty) {
            return Err("line 1: expected the names of the columns, separated by commas".to_owned());
        }
        let mut rows = Vec::new();
        for row in reader.records() {
            let row = row.map_err(|error| said(&error))?;
            rows.push(row.iter().map(str::to_owned).collect());
        }
        if rows.is_empty() {
            return Err("line 2: expected at least one row of values".to_owned());
        }
        Ok(Self { columns, rows })
    }
}

fn said(error: &csv::Error) -> String {
    let line = error.position().map_or(1, csv::Position::line);
    if let csv::ErrorKind::UnequalLengths { expected_len, len, .. } = error.kind() {
        return format!(
            "line {line}: {len} values: expected {expected_len}, as many as there are names"
        );
    }
    if let csv::ErrorKind::Utf8 { .. } = error.kind() {
        return format!("line {line}: not UTF-8: expected text");
    }
    format!("line {line}: {error}")
}

#[cfg(test)]
mod tests {
    use super::Rows;

    #[test]
    fn rows_are_read_with_their_names() {
        let data = Rows::parse(b"word,id\nred,1\n\"a, b\",2\n").expect("rows");
        assert_eq!(data.columns, ["word", "id"]);
        assert_eq!(data.rows, [["red", "1"], ["a, b", "2"]]);
    }

    #[test]
    fn a_file_that_ends_early_is_refused_with_its_line() {
        for (text, says) in [
            (&b"word,id\nred,1\nblue"[..], "line 3: 1 values: expected 2"),
            (b"word,id\nred,1\n\"blu", "line 3: a quote is not closed"),
            (b"word,id\n", "line 2: expected at least one row"),
            (b"", "line 1: expected the names"),
            (b"word\n\xff\n", "line 2: not UTF-8"),
        ] {
            let error = Rows::parse(text).expect_err("no data");
            assert!(error.contains(says), "{error}");
        }
    }
}
