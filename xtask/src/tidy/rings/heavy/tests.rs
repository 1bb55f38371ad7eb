use super::super::check;
use crate::tidy::tree::Tree;
use serde_json::json;

const LOCK: &str = r#"
[[package]]
name = "datafusion"
dependencies = [
 "arrow",
 "parquet",
]

[[package]]
name = "parquet"
dependencies = [
 "arrow-array",
]

[[package]]
name = "engine"
dependencies = [
 "datafusion 55.2.0",
]
"#;

/// The messages for a crate with these uses: names, kinds, features.
fn messages(name: &str, uses: &[(&str, &str, &[&str])]) -> Vec<String> {
    let used = |(name, kind, features): &(&str, &str, &[&str])| json!({ "name": name, "kind": kind, "features": features });
    let package = |name: &str, uses: &[(&str, &str, &[&str])]| {
        json!({
            "name": name,
            "manifest_path": format!("/r/crates/{name}/Cargo.toml"),
            "metadata": { "curtail": { "ring": 3 } },
            "dependencies": uses.iter().map(used).collect::<Vec<_>>(),
        })
    };
    let store = package("curtail-store", &[("parquet", "", &["zstd"])]);
    let metadata = json!({ "workspace_root": "/r", "packages": [package(name, uses), store] });
    let lock = ("Cargo.lock", LOCK);
    let problems = check(&Tree::of(&[lock]), &metadata);
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn one_crate_links_a_query_engine() {
    let engine: (&str, &str, &[&str]) = ("datafusion", "", &[]);
    assert_eq!(messages("curtail-sql", &[engine, ("arrow", "", &[])]), [""; 0]);
    let only_sql = "crates/curtail/Cargo.toml: curtail brings in DataFusion: only curtail-sql does";
    assert_eq!(messages("curtail", &[engine]), [only_sql]);
    assert_eq!(messages("curtail", &[("engine", "", &[])]), [only_sql]);
    assert_eq!(messages("curtail", &[("curtail-sql", "", &[])]), [only_sql]);
    assert_eq!(messages("curtail", &[("curtail-store", "", &[])]), [""; 0]);
}

#[test]
fn arrow_comes_in_neither_by_its_name_nor_as_a_part_of_parquet() {
    let only_sql = ["crates/curtail/Cargo.toml: curtail brings in Arrow: only curtail-sql does"];
    assert_eq!(messages("curtail", &[("arrow-array", "dev", &[])]), only_sql);
    assert_eq!(messages("curtail", &[("parquet", "", &["arrow", "zstd"])]), only_sql);
}

#[test]
fn what_stands_beside_every_service_links_no_store() {
    let lean = [
        "crates/curtail-proxy/Cargo.toml: curtail-proxy brings in parquet: it stands beside every service, and is lean",
    ];
    assert_eq!(messages("curtail-proxy", &[("curtail-store", "", &[])]), lean);
    assert_eq!(messages("curtail-proxy", &[("curtail-store", "dev", &[])]), [""; 0]);
}
