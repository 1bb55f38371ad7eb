//! `cargo xtask tidy`: the rules of the house that neither rustc nor clippy can check.
//!
//! Decides nothing about behaviour, only about the shape of the repository: which crate may use which,
//! what files are called, how long they are, whether documents name things that exist. All problems are
//! printed at once, each with its place. It reads text and the output of `git ls-files` and of
//! `cargo metadata`; it compiles nothing and needs no network.
//!
//! Each check is a function from a [`tree::Tree`] to problems, so each is tested on a tree written out in its
//! test. When it hurts: it reads lines, not syntax, so a forbidden word inside a string is found as well.

mod documents;
mod rings;
mod size;
mod sources;
mod tree;
mod words;

use std::collections::BTreeSet;
use std::fmt;
use std::process::ExitCode;

/// A broken rule and where it is broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    path: String,
    /// Counts from 1; 0 when the file as a whole is meant.
    line: usize,
    text: String,
}

impl Problem {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

/// Checks the repository that the current directory lies in.
pub(crate) fn run() -> ExitCode {
    let (tree, metadata) = match tree::of_the_repository() {
        Ok(Some(found)) => found,
        Ok(None) => {
            println!("tidy: these sources are not a git checkout, so nothing is checked");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("tidy: {message}");
            return ExitCode::from(3);
        }
    };
    let mut problems: BTreeSet<Problem> = rings::check(&tree, &metadata).into_iter().collect();
    problems.extend(sources::check(&tree));
    problems.extend(size::check(&tree));
    problems.extend(documents::check(&tree));
    problems.extend(words::check(&tree));
    for problem in &problems {
        println!("{problem}");
    }
    if problems.is_empty() {
        println!("tidy: {} files, no problems", tree.files.len());
        return ExitCode::SUCCESS;
    }
    println!("tidy: {} problems in {} files", problems.len(), tree.files.len());
    ExitCode::FAILURE
}
