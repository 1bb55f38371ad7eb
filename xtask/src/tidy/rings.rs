//! Checks dependencies between crates.
//!
//! Every crate declares its ring in `[package.metadata.curtail]`. A crate may use crates of inner rings, and crates of
//! its own ring if there is no cycle. Ring 0 is pure: `no_std`, and without dependencies on a runtime, sockets, logs or
//! entropy. The workspace declares the versions of all external crates. Only some crates may use dependencies that take
//! long to compile ([`heavy`]).

mod heavy;

use super::Problem;
use super::tree::Tree;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// Crates on which ring 0 must not depend, directly or indirectly.
const IMPURE: [&str; 6] = ["tokio", "hyper", "tracing", "getrandom", "rand", "mio"];

/// A crate of the workspace.
struct Member {
    name: String,
    ring: u64,
    /// The path of the crate's Cargo.toml, relative to the root.
    manifest: String,
    /// The dependencies, in builds and in tests.
    uses: Vec<Use>,
}

struct Use {
    name: String,
    /// Whether only tests and benchmarks of the crate use the dependency.
    dev: bool,
    /// The enabled features, except default features.
    features: Vec<String>,
}

pub(super) fn check(tree: &Tree, metadata: &Json) -> Vec<Problem> {
    let mut problems = Vec::new();
    let members = members(metadata, &mut problems);
    let lock = tree.files.get("Cargo.lock").map_or_else(BTreeMap::new, |file| lock(&file.text));
    for member in &members {
        check_edges(member, &members, &mut problems);
        heavy::check(member, &members, &lock, &mut problems);
        if member.ring == 0 {
            check_purity(member, &members, &lock, &mut problems);
            check_no_std(member, tree, &mut problems);
        }
    }
    check_cycles(&members, &mut problems);
    for (path, text) in tree.texts(|p| p.ends_with("/Cargo.toml")) {
        check_inherited(path, text, &mut problems);
    }
    problems
}

fn members(metadata: &Json, problems: &mut Vec<Problem>) -> Vec<Member> {
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let mut members = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = package["manifest_path"].as_str().unwrap_or_default();
        let manifest = manifest.trim_start_matches(root).trim_start_matches('/').to_owned();
        let Some(ring) = package["metadata"]["curtail"]["ring"].as_u64() else {
            let text = "expected `ring = …` in [package.metadata.curtail]";
            problems.push(Problem::new(&manifest, 0, text));
            continue;
        };
        let name = |json: &Json| json["name"].as_str().unwrap_or_default().to_owned();
        let uses = package["dependencies"].as_array().into_iter().flatten();
        let features = |used: &Json| -> Vec<_> {
            let features = used["features"].as_array().into_iter().flatten();
            features.filter_map(Json::as_str).map(str::to_owned).collect()
        };
        let used = |used: &Json| Use {
            name: name(used),
            dev: used["kind"] == "dev",
            features: features(used),
        };
        let uses = uses.map(used).collect();
        members.push(Member { name: name(package), ring, manifest, uses });
    }
    members
}

fn check_edges(member: &Member, members: &[Member], problems: &mut Vec<Problem>) {
    for used in &member.uses {
        let outer = members.iter().find(|m| m.name == used.name && m.ring > member.ring);
        if let Some(outer) = outer {
            let text = format!(
                "{} (ring {}) uses {} (ring {}): a crate may only use rings further in",
                member.name, member.ring, outer.name, outer.ring
            );
            problems.push(Problem::new(&member.manifest, 0, text));
        }
    }
}

/// Checks that crates of one ring form no cycle. Cargo itself accepts a cycle through a dependency of tests.
fn check_cycles(members: &[Member], problems: &mut Vec<Problem>) {
    for member in members {
        let mut reached = BTreeSet::new();
        let mut open = vec![member];
        while let Some(next) = open.pop() {
            for used in &next.uses {
                let inner = members.iter().find(|m| m.name == used.name && m.ring == member.ring);
                if let Some(inner) = inner
                    && reached.insert(&inner.name)
                {
                    open.push(inner);
                }
            }
        }
        if reached.contains(&member.name) {
            let text =
                format!("{} uses itself, through crates of ring {}", member.name, member.ring);
            problems.push(Problem::new(&member.manifest, 0, text));
        }
    }
}

fn check_purity(
    member: &Member,
    members: &[Member],
    lock: &BTreeMap<String, Vec<String>>,
    problems: &mut Vec<Problem>,
) {
    let is_member = |name: &str| members.iter().any(|m| m.name == name);
    let external = member.uses.iter().filter(|used| !used.dev && !is_member(&used.name));
    for used in external {
        let mut reached = BTreeSet::from([used.name.as_str()]);
        let mut open = vec![used.name.as_str()];
        while let Some(next) = open.pop() {
            let inner = lock.get(next).into_iter().flatten().map(String::as_str);
            open.extend(inner.filter(|name| reached.insert(name)));
        }
        for impure in IMPURE.iter().filter(|name| reached.contains(**name)) {
            let text = format!("{} is pure, but {} brings in {impure}", member.name, used.name);
            problems.push(Problem::new(&member.manifest, 0, text));
        }
    }
}

/// Returns the dependencies of each package of a Cargo.lock, by name; versions of one package are merged.
fn lock(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut packages: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("name = ") {
            name = value.trim_matches('"').to_owned();
        } else if let Some(used) = line.strip_prefix(" \"") {
            // "name", "name version" or "name version (source)", then a comma.
            let used = used.split([' ', '"']).next().unwrap_or_default();
            packages.entry(name.clone()).or_default().push(used.to_owned());
        }
    }
    packages
}

fn check_no_std(member: &Member, tree: &Tree, problems: &mut Vec<Problem>) {
    let path = member.manifest.replace("Cargo.toml", "src/lib.rs");
    let text = tree.files.get(&path).map_or("", |file| file.text.as_str());
    let no_std = ["#![no_std]", "#![cfg_attr(not(test), no_std)]"];
    if !text.lines().any(|line| no_std.contains(&line.trim())) {
        problems.push(Problem::new(&path, 0, "a crate of ring 0 must be #![no_std]"));
    }
}

/// Checks that a crate's Cargo.toml inherits all dependencies from the workspace.
fn check_inherited(path: &str, text: &str, problems: &mut Vec<Problem>) {
    let mut table = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') {
            table = line.trim_matches(['[', ']']);
            continue;
        }
        let inside = table.split('.').any(|part| part.ends_with("dependencies"));
        let inherited = line.contains("workspace = true");
        // A table of its own, [dependencies.x], may hold further keys beside the one that inherits.
        let own_table = !table.ends_with("dependencies");
        let chosen_here = |key: &str| line.starts_with(key) || line.contains(&format!("{key} ="));
        let broken = if own_table {
            ["version", "path", "git"].iter().any(|key| chosen_here(key))
        } else {
            !line.is_empty() && !inherited
        };
        if inside && broken {
            let text =
                "a dependency is chosen once, in the root Cargo.toml: expected `workspace = true`";
            problems.push(Problem::new(path, index + 1, text));
        }
    }
}

#[cfg(test)]
mod tests;
