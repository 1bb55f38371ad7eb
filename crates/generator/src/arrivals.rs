//! Recorded arrivals from a CSV file with a column `start_ns`: nanoseconds of any epoch, in any order.
//!
//! `curtail sql --format csv "SELECT start_ns FROM spans WHERE …"` prints such a file.
//! **Limits**: [`ARRIVALS_MAX`] arrivals.

use crate::rows::describe;
use curtail_load::Schedule;
use curtail_units::Duration;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum number of arrivals of a file.
pub const ARRIVALS_MAX: usize = 50_000_000;

const COLUMN: &str = "start_ns";

/// The reason why a file has no valid arrivals.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", .path.display())]
pub struct ArrivalsError {
    /// The file.
    path: PathBuf,
    /// The line, the problem and the expected value.
    problem: String,
}

/// Reads the arrivals in `path`. The first is at the start; `speed` divides the distances between arrivals.
///
/// # Errors
/// When the file cannot be read, or a line is not a number of nanoseconds.
pub fn read(path: &Path, speed: f64) -> Result<Schedule, ArrivalsError> {
    let failed = |problem| ArrivalsError { path: path.to_owned(), problem };
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    parse(file, speed).map_err(failed)
}

fn parse(text: impl Read, speed: f64) -> Result<Schedule, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
    let names = reader.headers().map_err(|error| describe(&error))?;
    let column = match names.iter().position(|name| name == COLUMN) {
        Some(column) => column,
        None if names.len() == 1 && names[0].parse::<u64>().is_err() => 0,
        None => return Err(format!("line 1: expected the names of columns, {COLUMN} among them")),
    };
    let mut instants = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|error| describe(&error))?;
        let line = row.position().map_or(0, csv::Position::line);
        let value = row.get(column).unwrap_or_default();
        let ns: u64 = value.parse().map_err(|_| {
            format!("line {line}: {value:?}: expected a whole number of nanoseconds")
        })?;
        if instants.len() == ARRIVALS_MAX {
            return Err(format!(
                "line {line}: more than {ARRIVALS_MAX} arrivals: expected a part of them"
            ));
        }
        instants.push(ns);
    }
    instants.sort_unstable();
    let Some(first) = instants.first().copied() else {
        return Err("line 2: expected at least one arrival".to_owned());
    };
    let after = |ns: &u64| Duration::from_ns(ns - first).mul_f64(1.0 / speed);
    Ok(Schedule::Recorded(instants.iter().map(after).collect()))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use curtail_load::Schedule;
    use curtail_units::Duration;

    #[test]
    fn arrivals_begin_at_the_start_and_come_in_order() {
        let text = "service,start_ns\na,1700000000000003000\na,1700000000000001000\nb,1700000000000001000\n";
        let us =
            |us: &[u64]| Schedule::Recorded(us.iter().map(|us| Duration::from_us(*us)).collect());
        assert_eq!(parse(text.as_bytes(), 1.0), Ok(us(&[0, 0, 2])));
        assert_eq!(parse("t\n5000\n1000\n".as_bytes(), 2.0), Ok(us(&[0, 2])));
    }

    #[test]
    fn what_is_no_arrival_is_named() {
        for (text, says) in [
            ("a,b\n1,2\n", "line 1: expected the names of columns, start_ns among them"),
            ("1700000000000003000\n", "line 1: expected the names"),
            ("start_ns\n12\n1.5\n", "line 3: \"1.5\": expected a whole number"),
            ("start_ns\n", "line 2: expected at least one"),
            ("", "line 1: expected the names"),
            ("start_ns,a\n1,2\n3\n", "line 3: 1 values: expected 2"),
        ] {
            let error = parse(text.as_bytes(), 1.0).expect_err("no arrivals");
            assert!(error.contains(says), "{error}");
        }
    }
}
