//! `cargo xtask tidy`: checks rules of this repository that neither rustc nor clippy can check.
//!
//! The rules are about the repository and not about the behavior of programs: dependencies between crates, names and
//! lengths of files, and references in documents. The command prints all problems at once, each with its file and line.
//! Its input are text files and the output of `git ls-files` and of `cargo metadata`. It compiles no code and needs no
//! network.
//!
//! Each check is a function from a [`tree::Tree`] to problems, so a test can check a small tree.
//! **When it hurts**: the checks read lines, not syntax, so they also reject a forbidden word inside a string.

mod documents;
mod rings;
mod size;
mod sources;
mod tree;
mod words;

use std::collections::BTreeSet;
use std::fmt;
use std::process::ExitCode;

/// A violation of a rule: its file, its line and a message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    path: String,
    /// The line, from 1; 0 for the whole file.
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

/// Checks the repository that contains the current directory.
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
