//! Small documents, with what they name and what is there.

use super::{check, resolve};
use crate::tidy::tree::Tree;

const MAP: (&str, &str) = ("ARCHITECTURE.md", "# A\n\n## Code map\n\n- `crates/units`: numbers\n");
const UNITS: (&str, &str) = ("crates/units/Cargo.toml", "");

fn messages(files: &[(&str, &str)]) -> Vec<String> {
    check(&Tree::of(files)).iter().map(ToString::to_string).collect()
}

#[test]
fn paths_in_back_ticks_must_exist() {
    let text = "\
See `crates/units`, `crates/units/`, `crates/units/Cargo.toml:3` and `crates/units/gone.rs`.
Not paths: `crates/*/src`, `docs/<page>.md`, `bench/run --quick`, `hedge.rs`, crates/none.

```
`docs/in-a-fence.md`
```
And `docs/gone.md`.
";
    assert_eq!(
        messages(&[MAP, UNITS, ("docs/a.md", text)]),
        ["docs/a.md:1: there is no crates/units/gone.rs", "docs/a.md:7: there is no docs/gone.md"]
    );
}

#[test]
fn links_between_documents_must_lead_somewhere() {
    let text = "\
[a](b.md#part) [b](../ARCHITECTURE.md) [c](/crates/units) [d](#here) [e](https://example.org/x)
[f](gone.md) [g](../docs)
";
    assert_eq!(
        messages(&[MAP, UNITS, ("docs/a.md", text), ("docs/b.md", "")]),
        ["docs/a.md:2: the link gone.md leads nowhere"]
    );
}

#[test]
fn links_are_resolved_like_paths() {
    assert_eq!(resolve("docs/guide", "../concepts/./hedge.md"), "docs/concepts/hedge.md");
    assert_eq!(resolve("", "docs//a.md"), "docs/a.md");
    assert_eq!(resolve("docs", "/LICENSE"), "LICENSE");
}

#[test]
fn the_code_map_names_each_crate_once() {
    let map = "## Code map\n`crates/units` `crates/sim/`\n`crates/sim`\n## Other\n`crates/proxy`\n";
    let files = [
        ("ARCHITECTURE.md", map),
        UNITS,
        ("crates/sim/Cargo.toml", ""),
        ("crates/proxy/Cargo.toml", ""),
    ];
    assert_eq!(
        messages(&files),
        [
            "ARCHITECTURE.md:1: `crates/proxy` is named 0 times in \"Code map\": expected once",
            "ARCHITECTURE.md:1: `crates/sim` is named 2 times in \"Code map\": expected once",
        ]
    );
    assert_eq!(messages(&[UNITS]), ["ARCHITECTURE.md: expected a file with a code map"]);
}

#[test]
fn a_scenario_that_no_page_names_is_rejected() {
    let files = [
        MAP,
        UNITS,
        ("scenarios/fan_out.yaml", ""),
        ("scenarios/tied.yaml", ""),
        ("scenarios/lost.yaml", "# lost.yaml\n"),
        ("crates/units/src/lib.rs", "include_str!(\"fan_out.yaml\")"),
        ("docs/tied.md", "Run `scenarios/tied.yaml`."),
    ];
    assert_eq!(
        messages(&files),
        ["scenarios/lost.yaml: no test and no document names this scenario"]
    );
}
