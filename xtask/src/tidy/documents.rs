//! Checks references between documents and files.
//!
//! Back-ticked paths and relative links in Markdown must name existing files. The code map of ARCHITECTURE.md names
//! each crate exactly once. A test or a document names every scenario.

use super::Problem;
use super::tree::Tree;
use std::collections::BTreeMap;

/// Prefixes of back-ticked words that are paths relative to the root.
const ROOTS: [&str; 9] =
    ["crates/", "scenarios/", "docs/", "bench/", "xtask/", "testbeds/", "web/", "fuzz/", ".ci/"];

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const CODE_MAP: &str = "Code map";

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (document, text) in tree.texts(|path| path.ends_with(".md")) {
        let mut fenced = false;
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                check_line(tree, document, index + 1, line, &mut problems);
            }
        }
    }
    check_code_map(tree, &mut problems);
    check_scenarios(tree, &mut problems);
    problems
}

fn check_line(tree: &Tree, document: &str, at: usize, line: &str, problems: &mut Vec<Problem>) {
    for path in ticked(line).filter_map(as_path) {
        if !tree.has(path) {
            problems.push(Problem::new(document, at, format!("there is no {path}")));
        }
    }
    for target in links(line) {
        let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
        let path = resolve(folder, target.split('#').next().unwrap_or_default());
        // An empty path is a place in this document, or the root.
        if !path.is_empty() && !tree.has(&path) {
            problems.push(Problem::new(document, at, format!("the link {target} leads nowhere")));
        }
    }
}

/// Returns the words between back-ticks.
fn ticked(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns a back-ticked word if it is a path relative to the root, without placeholders.
fn as_path(word: &str) -> Option<&str> {
    let is_one = !word.contains(['*', '<', '{', '…', ' ', '$']);
    let is_path = ROOTS.iter().any(|root| word.starts_with(root));
    // A line number may follow: path:12.
    (is_one && is_path).then(|| word.split(':').next().unwrap_or(word))
}

/// Returns the targets of links to files: `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target).filter(|target| !target.contains(':'))
}

/// Resolves `target`, which is relative to `folder`, to a path relative to the root.
fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> =
        if target.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join("/")
}

fn check_code_map(tree: &Tree, problems: &mut Vec<Problem>) {
    let Some(file) = tree.files.get(ARCHITECTURE) else {
        problems.push(Problem::new(ARCHITECTURE, 0, "expected a file with a code map"));
        return;
    };
    let mut named: BTreeMap<String, usize> = BTreeMap::new();
    let (mut inside, mut at) = (false, 0);
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with("## ") {
            inside = line.contains(CODE_MAP);
            at = if inside { index + 1 } else { at };
        } else if inside {
            for word in ticked(line) {
                *named.entry(word.trim_end_matches('/').to_owned()).or_default() += 1;
            }
        }
    }
    let crates = tree.files.keys().filter_map(|path| path.strip_suffix("/Cargo.toml"));
    for path in crates.filter(|path| path.starts_with("crates/")) {
        let count = named.get(path).copied().unwrap_or_default();
        if count != 1 {
            let text = format!("`{path}` is named {count} times in \"{CODE_MAP}\": expected once");
            problems.push(Problem::new(ARCHITECTURE, at, text));
        }
    }
}

fn check_scenarios(tree: &Tree, problems: &mut Vec<Problem>) {
    let is_scenario = |path: &str| path.starts_with("scenarios/") && path.ends_with(".yaml");
    let may_name = |path: &str| path.ends_with(".rs") || path.ends_with(".md");
    for (path, _) in tree.texts(is_scenario) {
        let name = path.rsplit('/').next().unwrap_or(path);
        let mut named = tree.texts(may_name).filter(|(_, text)| text.contains(name));
        if named.next().is_none() {
            let text = "no test and no document names this scenario";
            problems.push(Problem::new(path, 0, text));
        }
    }
}

#[cfg(test)]
mod tests;
