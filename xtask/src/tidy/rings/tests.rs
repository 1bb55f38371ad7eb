//! Small workspaces, each with one broken rule.

use super::check;
use crate::tidy::tree::Tree;
use serde_json::{Value as Json, json};

/// The metadata of a workspace of crates: name, ring, and what each uses (`dev:` before those of tests).
fn workspace(crates: &[(&str, u64, &[&str])]) -> Json {
    let package = |(name, ring, uses): &(&str, u64, &[&str])| {
        let used = |used: &&str| match used.strip_prefix("dev:") {
            Some(name) => json!({ "name": name, "kind": "dev" }),
            None => json!({ "name": used, "kind": null }),
        };
        json!({
            "name": name,
            "manifest_path": format!("/r/crates/{name}/Cargo.toml"),
            "metadata": { "curtail": { "ring": ring } },
            "dependencies": uses.iter().map(used).collect::<Vec<_>>(),
        })
    };
    json!({
        "workspace_root": "/r",
        "packages": crates.iter().map(package).collect::<Vec<_>>(),
    })
}

const PURE: (&str, &str) = ("crates/units/src/lib.rs", "//! Units.\n#![no_std]\n");

const LOCK: (&str, &str) = (
    "Cargo.lock",
    r#"
[[package]]
name = "ahash"
dependencies = [
 "once_cell",
 "getrandom 0.2.1",
]

[[package]]
name = "libm"

[[package]]
name = "once_cell"
"#,
);

/// The messages for a workspace with the given files.
fn messages(crates: &[(&str, u64, &[&str])], files: &[(&str, &str)]) -> Vec<String> {
    let problems = check(&Tree::of(files), &workspace(crates));
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn inward_edges_and_chains_within_a_ring_are_allowed() {
    let crates: [(&str, u64, &[&str]); 4] = [
        ("units", 0, &["libm"]),
        ("sim", 1, &["units", "config", "dev:expect-test"]),
        ("config", 1, &["units"]),
        ("proxy", 2, &["sim", "units", "tokio"]),
    ];
    assert_eq!(messages(&crates, &[PURE, LOCK]), [""; 0]);
}

#[test]
fn an_outward_edge_is_refused_even_in_tests() {
    assert_eq!(
        messages(&[("units", 0, &["dev:sim"]), ("sim", 1, &[])], &[PURE]),
        ["crates/units/Cargo.toml: units (ring 0) uses sim (ring 1): \
          a crate may only use rings further in"]
    );
}

#[test]
fn a_cycle_within_a_ring_is_refused() {
    assert_eq!(
        messages(&[("sim", 1, &["config"]), ("config", 1, &["dev:sim"])], &[]),
        [
            "crates/sim/Cargo.toml: sim uses itself, through crates of ring 1",
            "crates/config/Cargo.toml: config uses itself, through crates of ring 1",
        ]
    );
}

#[test]
fn a_crate_without_a_ring_is_refused() {
    let mut metadata = workspace(&[("sim", 1, &[])]);
    metadata["packages"][0]["metadata"] = Json::Null;
    let problems = check(&Tree::default(), &metadata);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains("expected `ring = …`"));
}

#[test]
fn entropy_behind_a_dependency_of_ring_0_is_found_but_not_in_its_tests() {
    assert_eq!(
        messages(&[("units", 0, &["libm", "ahash"])], &[PURE, LOCK]),
        ["crates/units/Cargo.toml: units is pure, but ahash brings in getrandom"]
    );
    assert_eq!(messages(&[("units", 0, &["dev:ahash"])], &[PURE, LOCK]), [""; 0]);
}

#[test]
fn ring_0_must_be_no_std() {
    let with = |line: &str| {
        let text = format!("//! Units.\n{line}\n");
        messages(&[("units", 0, &[])], &[("crates/units/src/lib.rs", &text)])
    };
    assert_eq!(with("#![cfg_attr(not(test), no_std)]"), [""; 0]);
    assert_eq!(
        with("// #![no_std]"),
        ["crates/units/src/lib.rs: a crate of ring 0 must be #![no_std]"]
    );
}

#[test]
fn versions_belong_to_the_workspace() {
    let manifest = r#"
[package]
name = "a"
version = "0.1.0"

[dependencies]
a.workspace = true
b = { workspace = true, features = ["x"] }
c = "1" # no
d = { version = "1" }

[dev-dependencies.e]
version = "1"
[target.'cfg(unix)'.dependencies]
f = { path = "../f" }
[build-dependencies.g]
workspace = true
features = ["x"]
"#;
    let problems = check(&Tree::of(&[("crates/a/Cargo.toml", manifest)]), &json!({}));
    assert_eq!(problems.iter().map(|p| p.line).collect::<Vec<_>>(), [9, 10, 13, 15]);
}
