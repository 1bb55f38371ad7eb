//! Rows of values for placeholders in requests, from a CSV file with a line of names.

use std::fmt::Display;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// Maximum size of a data file, in bytes: all rows are in memory.
const DATA_BYTES_MAX: u64 = 256 << 20;

/// Rows of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) columns: Vec<String>,
    /// At least one row, unless there are no columns.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Rows {
    /// Reads the file at `path`; an error names the file and the line.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let problem = |problem: &dyn Display| format!("{}: {problem}", path.display());
        let mut text = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(DATA_BYTES_MAX + 1).read_to_end(&mut text));
        read.map_err(|error| problem(&error))?;
        if text.len() as u64 > DATA_BYTES_MAX {
            let text = format!("longer than {DATA_BYTES_MAX} bytes: expected a smaller file");
            return Err(problem(&text));
        }
        Self::parse(&text).map_err(|error| problem(&error))
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
            Err(error) => return Err(describe(&error)),
        };
        if columns.iter().all(String::is_empty) {
            return Err("line 1: expected the names of the columns, separated by commas".to_owned());
        }
        let mut rows = Vec::new();
        for row in reader.records() {
            let row = row.map_err(|error| describe(&error))?;
            rows.push(row.iter().map(str::to_owned).collect());
        }
        if rows.is_empty() {
            return Err("line 2: expected at least one row of values".to_owned());
        }
        Ok(Self { columns, rows })
    }
}

/// An error of a CSV file, with its line.
pub(crate) fn describe(error: &csv::Error) -> String {
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
