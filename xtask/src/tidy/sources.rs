//! Checks the contents and the names of Rust files.
//!
//! Every module begins with `//!` prose. Names without meaning are rejected. Tests neither sleep nor are ignored. A
//! lint is disabled only with `expect` and a reason. Open work is in the tracker, not in a comment.

use super::Problem;
use super::tree::{Tree, is_test};

/// Rejected file names, which do not state what a file contains.
const EMPTY_NAMES: [&str; 12] = [
    "utils", "util", "helpers", "helper", "common", "misc", "manager", "handler", "data", "info",
    "stuff", "shared",
];

// Put together from halves, so that this file does not break its own rules.
const SLEEP: &str = concat!("sle", "ep(");
const IGNORE: &str = concat!("#[ign", "ore");
const ALLOW: [&str; 2] = [concat!("#[al", "low("), concat!("#![al", "low(")];
const LEFT_OVER: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.rust() {
        check_name(path, &mut problems);
        // The file beside it documents its unit tests.
        if !path.ends_with("/tests.rs") {
            check_opening(path, text, &mut problems);
        }
        check_lines(path, text, &mut problems);
    }
    for (path, text) in tree.texts(is_maintained) {
        check_left_over(path, text, &mut problems);
    }
    problems
}

/// Whether notes about open work are rejected in a file.
fn is_maintained(path: &str) -> bool {
    let by_ending = [".rs", ".toml", ".yaml", ".sh", ".py", ".ts"];
    by_ending.iter().any(|ending| path.ends_with(ending)) || path == "Makefile" || path == ".ci/run"
}

fn check_name(path: &str, problems: &mut Vec<Problem>) {
    let name = path.rsplit('/').next().unwrap_or_default();
    if name == "mod.rs" {
        let text = "expected foo.rs beside the folder foo, not foo/mod.rs";
        problems.push(Problem::new(path, 0, text));
    }
    // Folders count as well: their name is part of every path inside.
    for part in path.split('/').map(|part| part.trim_end_matches(".rs")) {
        if EMPTY_NAMES.contains(&part) {
            let text = format!("the name {part} says nothing: expected what the file holds");
            problems.push(Problem::new(path, 0, text));
        }
    }
}

fn check_opening(path: &str, text: &str, problems: &mut Vec<Problem>) {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let says_something = first.strip_prefix("//!").is_some_and(|prose| prose.trim().len() >= 8);
    if !says_something {
        let text = "expected the file to open with //! and what it holds or decides";
        problems.push(Problem::new(path, 1, text));
    }
}

fn check_lines(path: &str, text: &str, problems: &mut Vec<Problem>) {
    let mut in_tests = is_test(path);
    let mut mentioned = |index: usize, text: &str| {
        problems.push(Problem::new(path, index + 1, text));
    };
    for (index, line) in text.lines().enumerate() {
        // Inline tests are the last item of their file.
        in_tests |= line.trim() == "#[cfg(test)]";
        if in_tests && line.contains(SLEEP) {
            mentioned(index, "a test must not sleep: wait for what it waits for");
        }
        if line.contains(IGNORE) {
            mentioned(index, "a test is either run or not there");
        }
        if ALLOW.iter().any(|allow| line.contains(allow)) {
            mentioned(
                index,
                "expected #[expect(lint, reason = \"…\")]: it says when it is not needed",
            );
        }
    }
}

fn check_left_over(path: &str, text: &str, problems: &mut Vec<Problem>) {
    for (index, line) in text.lines().enumerate() {
        for mark in LEFT_OVER.iter().filter(|mark| has_word(line, mark)) {
            let text = format!("{mark}: expected it done, or in the tracker");
            problems.push(Problem::new(path, index + 1, text));
        }
    }
}

/// Whether `line` contains `word` or its plural as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + word.len()..];
        let after = after.strip_prefix('s').unwrap_or(after).chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests;
