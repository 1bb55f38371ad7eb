//! Checks that no file uses a word that the glossary rejects.
//!
//! The column "not" of the tables in [`GLOSSARY`] lists these words. The check covers Rust and Python files
//! (identifiers, comments and texts), YAML and Markdown, and ignores case and plural. `TwoWords` and `two_words` are two
//! words.

use super::Problem;
use super::tree::Tree;
use std::collections::BTreeMap;

const GLOSSARY: &str = "docs/glossary.md";

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let rejected = rejected(tree.files.get(GLOSSARY).map_or("", |file| file.text.as_str()));
    let mut problems = Vec::new();
    for (path, text) in tree.texts(is_checked) {
        for (index, line) in text.lines().enumerate() {
            let line = spaced(line);
            for (word, replacement) in rejected.iter().filter(|(word, _)| has_word(&line, word)) {
                let text = format!("{word:?}: expected {replacement:?}");
                problems.push(Problem::new(path, index + 1, text));
            }
        }
    }
    problems
}

/// Whether a file is checked: by its suffix, except [`GLOSSARY`], this check with its tests, results, and the history of
/// changes, which must name what it renames. DNS has names of its own for the parts of a message.
fn is_checked(path: &str) -> bool {
    let is_kind = [".rs", ".py", ".yaml", ".md"].iter().any(|kind| path.ends_with(kind));
    let exempt =
        [GLOSSARY, "CHANGELOG.md", "xtask/src/tidy/words.rs", "crates/testbed/src/name_server.rs"];
    let is_exempt = exempt.contains(&path);
    is_kind && !is_exempt && !path.starts_with("bench/results/")
}

/// Returns the rejected words of the glossary, each with the word to use.
fn rejected(glossary: &str) -> BTreeMap<&str, &str> {
    let mut rejected = BTreeMap::new();
    for line in glossary.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", word, .., not, ""] = cells[..] else { continue };
        if not != "not" && !not.starts_with("---") {
            let words = not.split(", ").filter(|word| !word.is_empty());
            rejected.extend(words.map(|rejected| (rejected, word)));
        }
    }
    rejected
}

/// Converts a line to lower case, with spaces between the words of identifiers.
fn spaced(line: &str) -> String {
    let mut spaced = String::with_capacity(line.len() + 8);
    let mut before = ' ';
    for letter in line.chars() {
        if before.is_lowercase() && letter.is_uppercase() {
            spaced.push(' ');
        }
        before = letter;
        spaced.push(if letter == '_' { ' ' } else { letter.to_ascii_lowercase() });
    }
    spaced
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
mod tests {
    use super::{GLOSSARY, check, has_word, spaced};
    use crate::tidy::tree::Tree;

    const TABLE: &str = "\
| word | meaning | not |\n|---|---|---|\n| replica | a server | backend, upstream host |\n| root | a side | |\n";

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = [(GLOSSARY, TABLE)].iter().chain(files).copied().collect();
        check(&Tree::of(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_rejected_word_is_found_in_identifiers_texts_and_pages() {
        for (path, text) in [
            ("crates/a/src/b.rs", "/// Picks one of the Backends."),
            ("crates/a/src/b.rs", "struct SlowBackend;"),
            ("crates/a/src/b.rs", "fn slow_upstream_host() {}"),
            ("crates/a/tests/b.rs", "help = \"the backend to use\""),
            ("bench/a.py", "def start_backend():"),
            ("suites/a.yaml", "# one backend"),
            ("docs/a.md", "the upstream hosts"),
            ("README.md", "a `backend`"),
        ] {
            let messages = messages(&[(path, text)]);
            assert_eq!(messages.len(), 1, "{text}");
            assert!(messages[0].starts_with(&format!("{path}:1: ")), "{messages:?}");
            assert!(messages[0].ends_with("expected \"replica\""), "{messages:?}");
        }
        for (path, text) in [
            ("crates/a/src/b.rs", "a replica, backendless, at the root"),
            ("bench/results/a.md", "the backend"),
            ("CHANGELOG.md", "the backend"),
        ] {
            assert_eq!(messages(&[(path, text)]), [""; 0], "{text}");
        }
    }

    #[test]
    fn each_word_of_the_glossary_is_looked_for_in_every_line() {
        let planted = messages(&[("docs/a.md", "a backend\n\nbackends of the upstream host")]);
        let text =
            |line: u8, word: &str| format!("docs/a.md:{line}: {word:?}: expected \"replica\"");
        let expected = [text(1, "backend"), text(3, "backend"), text(3, "upstream host")];
        assert_eq!(planted, expected);
    }

    #[test]
    fn words_end_where_letters_end() {
        for line in ["a backend.", "`backend_of`", "BackendOf", "x-backends"] {
            assert!(has_word(&spaced(line), "backend"), "{line}");
        }
        for line in ["backending", "mybackend", "backen d", "backendss"] {
            assert!(!has_word(&spaced(line), "backend"), "{line}");
        }
    }
}
