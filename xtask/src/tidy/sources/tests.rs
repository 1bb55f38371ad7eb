//! Small files, each with one broken rule.

use super::{ALLOW, IGNORE, LEFT_OVER, SLEEP, check};
use crate::tidy::tree::Tree;

const OPENING: &str = "//! What this file holds.\n";

/// The messages for one file; its text follows a proper opening.
fn messages(path: &str, text: &str) -> Vec<String> {
    let tree = Tree::of(&[(path, &format!("{OPENING}{text}"))]);
    check(&tree).iter().map(ToString::to_string).collect()
}

#[test]
fn a_clean_file_has_no_problems() {
    assert_eq!(
        messages("crates/a/src/hedge.rs", "fn a() {}\n#[cfg(test)]\nmod tests {}\n"),
        [""; 0]
    );
}

#[test]
fn a_file_opens_with_prose() {
    for text in ["", "use std::fmt;\n//! Late.\n", "//!\n//! Second line.\n", "//! x\n"] {
        let problems = check(&Tree::of(&[("crates/a/src/b.rs", text)]));
        assert_eq!(problems.len(), 1, "{text:?}");
        assert_eq!(problems[0].line, 1);
    }
    assert_eq!(check(&Tree::of(&[("crates/a/src/b.rs", "\n//! What it holds.\n")])), []);
    assert_eq!(check(&Tree::of(&[("crates/a/src/b/tests.rs", "use super::b;\n")])), []);
}

#[test]
fn names_that_say_nothing_are_refused() {
    for path in ["crates/a/src/utils.rs", "crates/a/src/common/x.rs", "crates/a/src/manager.rs"] {
        assert_eq!(messages(path, "").len(), 1, "{path}");
    }
    assert_eq!(
        messages("crates/a/src/hedge/mod.rs", ""),
        ["crates/a/src/hedge/mod.rs: expected foo.rs beside the folder foo, not foo/mod.rs"]
    );
    assert_eq!(messages("crates/a/src/database.rs", ""), [""; 0]);
}

#[test]
fn tests_must_not_sleep_but_programs_may() {
    let line = format!("    thread::{SLEEP}time);\n");
    assert_eq!(messages("crates/a/src/b.rs", &line), [""; 0]);
    for (path, text) in [
        ("crates/a/src/b.rs", format!("#[cfg(test)]\nmod tests {{\n{line}}}\n")),
        ("crates/a/src/b/tests.rs", line.clone()),
        ("crates/a/tests/b.rs", line.clone()),
    ] {
        let messages = messages(path, &text);
        assert_eq!(messages.len(), 1, "{path}");
        assert!(messages[0].contains("must not sleep"), "{messages:?}");
    }
}

#[test]
fn ignored_tests_and_bare_allowances_are_refused() {
    let text = format!("{IGNORE} = \"slow\"]\nfn a() {{}}\n{}dead_code)]\n", ALLOW[0]);
    let messages = messages("crates/a/src/b.rs", &text);
    assert_eq!(messages.len(), 2);
    assert!(messages[0].starts_with("crates/a/src/b.rs:2: a test is either run"));
    assert!(messages[1].starts_with("crates/a/src/b.rs:4: expected #[expect("));
    let at_the_top = format!("{}dead_code)]\n", ALLOW[1]);
    assert_eq!(check(&Tree::of(&[("xtask/src/a.rs", &format!("{OPENING}{at_the_top}"))])).len(), 1);
}

#[test]
fn notes_to_oneself_are_refused_in_every_kind_of_source() {
    let note = format!("# {}: later\n", LEFT_OVER[0]);
    for path in ["Makefile", "scenarios/a.yaml", "crates/a/Cargo.toml", ".ci/run"] {
        let problems = check(&Tree::of(&[(path, &note)]));
        assert_eq!(problems.len(), 1, "{path}");
    }
    let inside_a_word = format!("// {}LIST\n", LEFT_OVER[0]);
    assert_eq!(messages("crates/a/src/b.rs", &inside_a_word), [""; 0]);
}
