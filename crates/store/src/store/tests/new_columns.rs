//! Tables that were made before a column was known.

use super::*;
use crate::delta::Table;
use serde_json::Value;

/// The names of the columns of the table of spans, and how many commits it has.
async fn columns(objects: &Arc<Faulty>) -> (Vec<String>, u64) {
    let objects = Arc::clone(objects) as Arc<dyn ObjectStore>;
    let table = Table::open(objects, Path::from("data/spans")).await.expect("a table");
    let table = table.expect("it was made");
    let metadata = table.snapshot().metadata().expect("it was made");
    let schema: Value = serde_json::from_str(&metadata.schema_string).expect("JSON");
    let fields = schema["fields"].as_array().expect("fields").iter();
    let name = |field: &Value| field["name"].as_str().expect("a name").to_owned();
    (fields.map(name).collect(), table.version())
}

/// The first commit of a table, without one of its columns and with one that only others know.
fn before(commit: &[u8]) -> Vec<u8> {
    let mut lines = Vec::new();
    for line in commit.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let mut line: Value = serde_json::from_slice(line).expect("JSON");
        // Commits of other writers have no checksum.
        if let Some(info) = line["commitInfo"].as_object_mut() {
            info.remove("curtail.checksum");
        }
        if let Some(text) = line["metaData"]["schemaString"].as_str() {
            let mut schema: Value = serde_json::from_str(text).expect("JSON");
            let fields = schema["fields"].as_array_mut().expect("fields");
            for field in fields.iter_mut().filter(|field| field["name"] == "weight") {
                field["name"] = "theirs".into();
            }
            line["metaData"]["schemaString"] = schema.to_string().into();
        }
        lines.extend(serde_json::to_vec(&line).expect("JSON"));
        lines.push(b'\n');
    }
    lines
}

#[test]
fn they_get_it_once_and_keep_what_others_have_added() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        drop(open(&files, &objects).await.expect("an empty disk"));
        let first = Path::from("data/spans/_delta_log/00000000000000000000.json");
        let (all, version) = columns(&objects).await;
        assert!(version == 0 && all.contains(&"weight".to_owned()));
        objects.replace(&first, before).await;
        let (old, _) = columns(&objects).await;
        assert!(!old.contains(&"weight".to_owned()));
        let (mut parts, _) = open(&files, &objects).await.expect("a table");
        let (new, version) = columns(&objects).await;
        assert_eq!((new, version), ([&*old, &["weight".to_owned()]].concat(), 1));
        runs(&mut parts, 1..=1).await;
        drop(open(&files, &objects).await.expect("a table"));
        assert_eq!(columns(&objects).await.1, 2, "it was added once, and one run");
    });
}
