//! One word for each thing: the words that the glossary rejects.
//!
//! The column "not" of the tables in [`GLOSSARY`] lists them. They are looked for in Rust files (identifiers, comments and
//! texts alike) and in Markdown, case and plural aside; `TwoWords` and `two_words` are two words. The occurrences that
//! were there before a word was rejected stand in [`LEFT`], one `count word` each, and can only get fewer.

use super::Problem;
use super::tree::Tree;
use std::cmp::Ordering;
use std::collections::BTreeMap;

const GLOSSARY: &str = "docs/glossary.md";
const LEFT: &str = "xtask/words-left.txt";

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let text = |path| tree.files.get(path).map_or("", |file| file.text.as_str());
    let rejected = rejected(text(GLOSSARY));
    let mut problems = Vec::new();
    let mut left = left(text(LEFT), &mut problems);
    for (word, replacement) in &rejected {
        let found: Vec<_> = tree
            .texts(is_checked)
            .flat_map(|(path, text)| occurrences(text, word).map(move |line| (path, line)))
            .collect();
        let Some((at, allowed)) = left.remove(word) else {
            for (path, line) in found {
                let text = format!("{word:?}: expected {replacement:?}");
                problems.push(Problem::new(path, line, text));
            }
            continue;
        };
        // Which occurrences are new is unknown here; `git diff` shows them.
        let text = match found.len().cmp(&allowed) {
            Ordering::Equal => continue,
            Ordering::Less => "expected that number here".to_owned(),
            Ordering::Greater => format!("expected {replacement:?} in what is new"),
        };
        let text = format!("{word:?} occurs {} times, not {allowed}: {text}", found.len());
        problems.push(Problem::new(LEFT, at, text));
    }
    for (word, (at, _)) in left {
        problems.push(Problem::new(LEFT, at, format!("{GLOSSARY} does not reject {word:?}")));
    }
    problems
}

/// Whether a file is checked: what people read and write, but not the history of changes.
fn is_checked(path: &str) -> bool {
    let is_rust = path.starts_with("crates/") && path.ends_with(".rs");
    let is_result = path.starts_with("bench/results/") || path == "CHANGELOG.md";
    is_rust || path.ends_with(".md") && path != GLOSSARY && !is_result
}

/// The rejected words of the glossary, each with the word to use.
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

/// The lines where `word` occurs, once for each occurrence; lines count from 1.
fn occurrences<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + use<'t> {
    text.lines().enumerate().flat_map(move |(index, line)| {
        let count = count(&spaced(line), word);
        std::iter::repeat_n(index + 1, count)
    })
}

/// A line in small letters, with spaces between the words of identifiers.
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

/// How often `word`, or its plural, stands in `line` with no letter around it.
fn count(line: &str, word: &str) -> usize {
    let is_whole = |(at, _): &(usize, &str)| {
        let before = line[..*at].chars().next_back();
        let after = &line[at + word.len()..];
        let after = after.strip_prefix('s').unwrap_or(after).chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    };
    line.match_indices(word).filter(is_whole).count()
}

/// The occurrences that are left by word: the line where each stands, and its number.
fn left<'t>(text: &'t str, problems: &mut Vec<Problem>) -> BTreeMap<&'t str, (usize, usize)> {
    let mut left = BTreeMap::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        match line.split_once(' ').map(|(count, word)| (count.parse(), word)) {
            Some((Ok(count), word)) => drop(left.insert(word, (index + 1, count))),
            _ => problems.push(Problem::new(LEFT, index + 1, "expected: count word")),
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::{GLOSSARY, LEFT, check, count, spaced};
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
    fn old_occurrences_can_only_get_fewer() {
        let (old, left) = (("docs/a.md", "a backend\nbackends"), (LEFT, "# comment\n2 backend\n"));
        assert_eq!(messages(&[old, left]), [""; 0]);
        let planted = messages(&[old, left, ("docs/b.md", "\nthe backend")]);
        let text = "\"backend\" occurs 3 times, not 2: expected \"replica\" in what is new";
        assert_eq!(planted, [format!("{LEFT}:2: {text}")]);
        let fewer = messages(&[("docs/a.md", "a backend"), left]);
        let text = "\"backend\" occurs 1 times, not 2: expected that number here";
        assert_eq!(fewer, [format!("{LEFT}:2: {text}")]);
        let unknown = messages(&[(LEFT, "1 frontend\nnonsense\n")]);
        assert_eq!(unknown.len(), 2, "{unknown:?}");
    }

    #[test]
    fn words_end_where_letters_end() {
        for (line, expected) in [
            ("a backend.", 1),
            ("`backend_of` BackendOf", 2),
            ("x-backends", 1),
            ("backending mybackend backen d backendss", 0),
        ] {
            assert_eq!(count(&spaced(line), "backend"), expected, "{line}");
        }
    }
}
