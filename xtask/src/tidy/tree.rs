//! The files of the repository, for the checks.
//!
//! The tree contains every file that git tracks or would track: new files are checked before they are added, and
//! ignored files are not checked. A file up to [`BLOB_BYTES_MAX`] has its text, and a larger file only its size.

use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum size of a tracked file, because every clone contains it forever.
pub(super) const BLOB_BYTES_MAX: u64 = 1 << 20;

/// One file.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) bytes: u64,
    /// The text; empty when the file is not text, or too large.
    pub(super) text: String,
}

/// All files by their path relative to the root, with `/` between the parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<String, File>,
}

impl Tree {
    /// Returns the files whose path `wanted` accepts, with their text.
    pub(super) fn texts<'t>(
        &'t self,
        wanted: impl Fn(&str) -> bool + 't,
    ) -> impl Iterator<Item = (&'t str, &'t str)> {
        let texts = self.files.iter().map(|(path, file)| (path.as_str(), file.text.as_str()));
        texts.filter(move |(path, _)| wanted(path))
    }

    /// Returns the Rust files.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts(|path| path.ends_with(".rs"))
    }

    /// Whether a file or a folder exists at `path`.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |text: &str| File { bytes: text.len() as u64, text: text.to_owned() };
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect() }
    }
}

/// Whether a Rust file holds only tests.
pub(super) fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Reads the tree and the `cargo metadata` of the git checkout that contains the current directory, if there is one.
pub(super) fn of_the_repository() -> Result<Option<(Tree, Json)>, String> {
    let here = std::env::current_dir().map_err(|error| format!("current directory: {error}"))?;
    if !here.ancestors().any(|folder| folder.join(".git").exists()) {
        return Ok(None);
    }
    let root =
        PathBuf::from(output("git", &["rev-parse", "--show-toplevel"], Path::new("."))?.trim());
    let listed = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let mut tree = Tree::default();
    for path in output("git", &listed, &root)?.split_terminator('\0') {
        // A file that was deleted but is still in git's index is not there any more.
        if let Some(file) = read(&root.join(path)) {
            tree.files.insert(path.to_owned(), file);
        }
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata = output(&cargo, &["metadata", "--no-deps", "--format-version", "1"], &root)?;
    let metadata = serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    Ok(Some((tree, metadata)))
}

fn read(path: &Path) -> Option<File> {
    let bytes = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
    let text = if bytes > BLOB_BYTES_MAX { None } else { std::fs::read_to_string(path).ok() };
    Some(File { bytes, text: text.unwrap_or_default() })
}

fn output(program: &str, arguments: &[&str], folder: &Path) -> Result<String, String> {
    let said = |what: &dyn std::fmt::Display| format!("{program} {}: {what}", arguments.join(" "));
    let ran = Command::new(program).args(arguments).current_dir(folder).output();
    let ran = ran.map_err(|error| said(&error))?;
    if !ran.status.success() {
        return Err(said(&String::from_utf8_lossy(&ran.stderr).trim()));
    }
    String::from_utf8(ran.stdout).map_err(|error| said(&error))
}

#[cfg(test)]
mod tests {
    use super::{Tree, is_test};

    #[test]
    fn files_and_folders_are_found() {
        let tree = Tree::of(&[("crates/units/src/lib.rs", ""), ("Makefile", "")]);
        for path in
            ["crates", "crates/units", "crates/units/src/lib.rs", "crates/units/", "Makefile"]
        {
            assert!(tree.has(path), "{path}");
        }
        for path in ["crate", "crates/unit", "crates/units/src/lib", "Make"] {
            assert!(!tree.has(path), "{path}");
        }
    }

    #[test]
    fn test_files_are_known_by_their_place() {
        assert!(is_test("crates/a/src/b/tests.rs") && is_test("crates/a/tests/b.rs"));
        assert!(!is_test("crates/a/src/tests_of_time.rs") && !is_test("crates/testbed/src/lib.rs"));
    }
}
