//! Checks the lengths of files, with a list of exceptions.
//!
//! Rust files without tests have at most [`LINES_MAX`] lines. [`RATCHET`] lists exceptions as `path lines`, which must
//! be exact: it is a problem if such a file has grown or shrunk, or needs no exception. No tracked file is larger than
//! [`BLOB_BYTES_MAX`].

use super::Problem;
use super::tree::{BLOB_BYTES_MAX, Tree, is_test};
use std::collections::BTreeMap;

const LINES_MAX: usize = 600;
const RATCHET: &str = "xtask/ratchet.txt";

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, file) in tree.files.iter().filter(|(_, file)| file.bytes > BLOB_BYTES_MAX) {
        let text = format!("{} bytes: expected at most {BLOB_BYTES_MAX}", file.bytes);
        problems.push(Problem::new(path, 0, text));
    }
    let ratchet = tree.files.get(RATCHET).map_or("", |file| file.text.as_str());
    let mut exceptions = exceptions(ratchet, &mut problems);
    for (path, text) in tree.rust().filter(|(path, _)| !is_test(path)) {
        let lines = text.lines().count();
        let exception = exceptions.remove(path);
        let text = match exception {
            None if lines > LINES_MAX => format!("{lines} lines: expected at most {LINES_MAX}"),
            Some((_, listed)) if lines > listed && lines > LINES_MAX => {
                format!("{lines} lines: has grown from the {listed} that {RATCHET} allows")
            }
            Some((at, listed)) if lines <= LINES_MAX => {
                problems.push(Problem::new(
                    RATCHET,
                    at,
                    format!("{path} needs no exception: {listed}"),
                ));
                continue;
            }
            Some((at, listed)) if lines < listed => {
                let text = format!("{path} has shrunk to {lines} lines: expected that number here");
                problems.push(Problem::new(RATCHET, at, text));
                continue;
            }
            None | Some(_) => continue,
        };
        problems.push(Problem::new(path, 0, text));
    }
    for (path, (at, _)) in exceptions {
        problems.push(Problem::new(RATCHET, at, format!("there is no file {path}")));
    }
    problems
}

/// Returns the exceptions by path: the line of each exception in the list, and its number of lines.
fn exceptions<'t>(
    ratchet: &'t str,
    problems: &mut Vec<Problem>,
) -> BTreeMap<&'t str, (usize, usize)> {
    let mut exceptions = BTreeMap::new();
    for (index, line) in ratchet.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parsed =
            line.split_once(' ').and_then(|(path, n)| Some((path, n.trim().parse().ok()?)));
        match parsed {
            Some((path, lines)) => drop(exceptions.insert(path, (index + 1, lines))),
            None => problems.push(Problem::new(RATCHET, index + 1, "expected: path lines")),
        }
    }
    exceptions
}

#[cfg(test)]
mod tests {
    use super::{RATCHET, check};
    use crate::tidy::tree::{BLOB_BYTES_MAX, File, Tree};

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn long_files_are_refused_unless_they_are_tests() {
        let (long, fits) = ("\n".repeat(601), "\n".repeat(600));
        assert_eq!(
            messages(&[
                ("crates/a/src/long.rs", &long),
                ("crates/a/src/fits.rs", &fits),
                ("crates/a/src/long/tests.rs", &long),
                ("crates/a/tests/long.rs", &long),
                ("docs/long.md", &long),
            ]),
            ["crates/a/src/long.rs: 601 lines: expected at most 600"]
        );
    }

    #[test]
    fn an_exception_holds_only_for_its_exact_length() {
        let long = "\n".repeat(700);
        let with = |ratchet: &str| messages(&[("crates/a/src/b.rs", &long), (RATCHET, ratchet)]);
        assert_eq!(with("# why\ncrates/a/src/b.rs 700\n"), [""; 0]);
        assert_eq!(
            with("crates/a/src/b.rs 690\n"),
            ["crates/a/src/b.rs: 700 lines: has grown from the 690 that xtask/ratchet.txt allows"]
        );
        assert_eq!(
            with("crates/a/src/b.rs 710\n"),
            ["xtask/ratchet.txt:1: crates/a/src/b.rs has shrunk to 700 lines: \
              expected that number here"]
        );
    }

    #[test]
    fn an_exception_that_is_not_needed_is_refused() {
        let ratchet = "crates/a/src/b.rs 700\ncrates/a/src/gone.rs 800\nnonsense\n";
        assert_eq!(
            messages(&[("crates/a/src/b.rs", "//! Short.\n"), (RATCHET, ratchet)]),
            [
                "xtask/ratchet.txt:3: expected: path lines",
                "xtask/ratchet.txt:1: crates/a/src/b.rs needs no exception: 700",
                "xtask/ratchet.txt:2: there is no file crates/a/src/gone.rs",
            ]
        );
    }

    #[test]
    fn large_files_are_refused_whatever_they_hold() {
        let mut tree = Tree::default();
        let file = |bytes| File { bytes, text: String::new() };
        tree.files.insert("bench/results/a.bin".to_owned(), file(BLOB_BYTES_MAX + 1));
        tree.files.insert("bench/results/b.bin".to_owned(), file(BLOB_BYTES_MAX));
        let problems = check(&tree);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "bench/results/a.bin");
    }
}
