use super::super::action::Format;
use super::*;
use curtail_units::Rng;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use std::collections::{BTreeMap, BTreeSet};

const SEED: u64 = 6;
pub(super) const NOW_MS: i64 = 1_750_000_000_000;

pub(super) fn metadata(id: &str) -> Metadata {
    Metadata {
        id: id.to_owned(),
        name: None,
        format: Format { provider: "parquet".to_owned(), options: BTreeMap::new() },
        schema_string: r#"{"type":"struct","fields":[]}"#.to_owned(),
        partition_columns: vec!["day".to_owned()],
        configuration: BTreeMap::new(),
        created_time: Some(NOW_MS),
    }
}

pub(super) fn add(path: &str) -> Add {
    Add {
        path: path.to_owned(),
        partition_values: BTreeMap::from([("day".to_owned(), Some("2026-11-22".to_owned()))]),
        size: 7,
        modification_time: NOW_MS,
        data_change: true,
        stats: Some(r#"{"numRecords":3}"#.to_owned()),
        tags: None,
    }
}

fn range(source: &str, from: u64, to: u64) -> SourceRange {
    SourceRange { source: source.to_owned(), from, to }
}

/// If one of several sources has an unexpected position, no source advances.
#[tokio::test]
async fn several_sources_advance_together_or_not_at_all() {
    let mut table = created(&Arc::new(InMemory::new())).await;
    let sources = vec![range("topic/0", 0, 7), range("topic/1", 0, 9)];
    let change = Change { sources, ..adding("a") };
    table.commit(&change, NOW_MS, "1").await.expect("committed");
    let sources = vec![range("topic/0", 7, 8), range("topic/1", 0, 10)];
    let result = table.commit(&Change { sources, ..adding("b") }, NOW_MS, "2").await;
    assert!(matches!(result, Err(CommitError::Refused(Refused::Overtaken { .. }))), "{result:?}");
    let positions =
        ["topic/0", "topic/1", "topic/2"].map(|source| table.snapshot().position(source));
    assert_eq!(positions, [7, 9, 0]);
}

pub(super) fn adding(path: &str) -> Change {
    Change { operation: "WRITE", add: vec![add(path)], ..Change::default() }
}

/// One file in place of others.
pub(super) fn compacting(from: &[&str], to: &str) -> Change {
    let remove = |path: &&str| Remove {
        path: (*path).to_owned(),
        deletion_timestamp: Some(NOW_MS),
        data_change: false,
    };
    Change {
        operation: "OPTIMIZE",
        add: vec![Add { data_change: false, ..add(to) }],
        remove: from.iter().map(remove).collect(),
        ..Change::default()
    }
}

pub(super) async fn created(store: &Arc<InMemory>) -> Table {
    let store: Arc<dyn ObjectStore> = store.clone();
    let made = Table::create(store, Path::from("spans"), metadata("one"), NOW_MS, "made").await;
    made.expect("a table")
}

pub(super) async fn opened(store: &Arc<InMemory>) -> Result<Option<Table>, OpenError> {
    Table::open(store.clone(), Path::from("spans")).await
}

pub(super) fn paths(table: &Table) -> Vec<&str> {
    table.snapshot().files().map(|add| &*add.path).collect()
}

async fn put(store: &InMemory, name: &str, text: &'static str) {
    let path = Path::from("spans/_delta_log").join(name);
    store.put(&path, text.into()).await.expect("put");
}

#[tokio::test]
async fn what_was_committed_is_there_at_the_next_opening() {
    let store = Arc::new(InMemory::new());
    assert!(opened(&store).await.expect("nothing is wrong").is_none());
    let mut table = created(&store).await;
    assert_eq!(table.commit(&adding("a"), NOW_MS, "1").await.expect("committed"), 1);
    assert_eq!(table.commit(&adding("b"), NOW_MS, "2").await.expect("committed"), 2);
    let compacted = table.commit(&compacting(&["a", "b"], "c"), NOW_MS, "3").await;
    assert_eq!(compacted.expect("committed"), 3);
    let again = opened(&store).await.expect("it is read").expect("it is there");
    assert_eq!((again.version(), again.snapshot()), (3, table.snapshot()));
    assert_eq!(paths(&again), ["c"]);
    assert_eq!(again.snapshot().removed().len(), 2);
    assert_eq!(again.snapshot().metadata(), Some(&metadata("one")));
    assert_eq!(again.snapshot().protocol, Some(Protocol::OURS));
}

#[tokio::test]
async fn a_commit_is_written_as_the_protocol_has_it() {
    let store = Arc::new(InMemory::new());
    let mut table = created(&store).await;
    table.commit(&adding("a"), NOW_MS, "1").await.expect("committed");
    let change = Change { sources: vec![range("log", 0, 9)], ..compacting(&["a"], "b") };
    table.commit(&change, NOW_MS, "id").await.expect("committed");
    let path = Path::from("spans/_delta_log/00000000000000000002.json");
    let bytes = store.get(&path).await.expect("it is there").bytes().await.expect("read");
    let want = [
        concat!(
            r#"{"commitInfo":{"timestamp":1750000000000,"operation":"OPTIMIZE","engineInfo":"curtail/"#,
            env!("CARGO_PKG_VERSION"),
            r#"","txnId":"id","curtail.checksum":"f7216b72"}}"#
        ),
        r#"{"txn":{"appId":"log","version":9,"lastUpdated":1750000000000}}"#,
        r#"{"remove":{"path":"a","deletionTimestamp":1750000000000,"dataChange":false}}"#,
        r#"{"add":{"path":"b","partitionValues":{"day":"2026-11-22"},"size":7,"modificationTime":1750000000000,"dataChange":false,"stats":"{\"numRecords\":3}"}}"#,
        "",
    ];
    assert_eq!(String::from_utf8_lossy(&bytes), want.join("\n"));
}

#[tokio::test]
async fn of_two_that_make_a_table_one_does_and_both_have_it() {
    let store = Arc::new(InMemory::new());
    created(&store).await;
    let made = Table::create(store, Path::from("spans"), metadata("other"), NOW_MS, "later").await;
    assert_eq!(made.expect("a table").snapshot().metadata(), Some(&metadata("one")));
}

#[tokio::test]
async fn of_two_compactions_of_the_same_files_one_happens() {
    let store = Arc::new(InMemory::new());
    let mut one = created(&store).await;
    for path in ["a", "b", "c"] {
        one.commit(&adding(path), NOW_MS, path).await.expect("committed");
    }
    let mut other = opened(&store).await.expect("it is read").expect("it is there");
    one.commit(&compacting(&["a", "b"], "ab"), NOW_MS, "one").await.expect("committed");
    let result = other.commit(&compacting(&["b", "c"], "bc"), NOW_MS, "other").await;
    let Err(CommitError::Refused(reason)) = result else { panic!("{result:?}") };
    assert_eq!(reason, Refused::Gone("b".to_owned()));
    assert_eq!(paths(&other), ["ab", "c"], "it has refreshed");
    let done = other.commit(&compacting(&["ab", "c"], "abc"), NOW_MS, "again").await;
    assert_eq!(done.expect("committed"), 5);
}

#[tokio::test]
async fn rows_of_a_source_are_committed_once_and_without_a_gap() {
    let store = Arc::new(InMemory::new());
    let mut one = created(&store).await;
    let mut other = opened(&store).await.expect("it is read").expect("it is there");
    let change = |from, to, path| Change { sources: vec![range("log", from, to)], ..adding(path) };
    one.commit(&change(0, 3, "a"), NOW_MS, "1").await.expect("committed");
    for to in [2, 3] {
        let result = other.commit(&change(0, to, "b"), NOW_MS, "2").await;
        let Err(CommitError::Refused(reason)) = result else { panic!("{result:?}") };
        assert_eq!(reason, Refused::Done { range: range("log", 0, to), committed: 3 });
    }
    // Rows up to 3 would be there twice, or those after 3 missing.
    for from in [2, 4] {
        let result = other.commit(&change(from, 5, "b"), NOW_MS, "3").await;
        let Err(CommitError::Refused(reason)) = result else { panic!("{result:?}") };
        assert_eq!(reason, Refused::Overtaken { range: range("log", from, 5), committed: 3 });
    }
    other.commit(&change(3, 4, "b"), NOW_MS, "4").await.expect("committed");
    assert_eq!(other.snapshot().position("log"), 4);
    let result = one.commit(&adding("b"), NOW_MS, "4").await;
    assert!(matches!(result, Err(CommitError::Refused(Refused::There(_)))), "{result:?}");
}

#[tokio::test]
async fn a_commit_that_was_written_without_acknowledgement_is_ours() {
    let store = Arc::new(InMemory::new());
    let mut one = created(&store).await;
    let mut same = opened(&store).await.expect("it is read").expect("it is there");
    assert_eq!(same.commit(&adding("a"), NOW_MS, "1").await.expect("committed"), 1);
    assert_eq!(one.commit(&adding("b"), NOW_MS, "id").await.expect("committed"), 2);
    // The same commit once more, as after a response that was lost.
    assert_eq!(same.commit(&adding("b"), NOW_MS, "id").await.expect("committed"), 2);
    assert_eq!((paths(&same), same.version()), (vec!["a", "b"], 2));
}

#[tokio::test]
async fn writers_and_a_compactor_lose_and_double_nothing() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let store = Arc::new(InMemory::new());
    let mut tables = vec![created(&store).await];
    for _ in 0..4 {
        tables.push(opened(&store).await.expect("it is read").expect("it is there"));
    }
    // Each file stands for the rows that are named in its path.
    let mut written = BTreeSet::new();
    let mut refusals = 0;
    for nth in 0..600 {
        let table = &mut tables[rng.below(5)];
        let files: Vec<String> = paths(table).into_iter().map(str::to_owned).collect();
        let id = nth.to_string();
        if rng.chance(0.7) || files.len() < 3 {
            table.commit(&adding(&id), NOW_MS, &id).await.expect("it is new");
            written.insert(id);
            continue;
        }
        let from = rng.below(files.len() - 2);
        let some: Vec<&str> = files[from..from + 3].iter().map(|path| &**path).collect();
        let merged = compacting(&some, &some.join("+"));
        match table.commit(&merged, NOW_MS, &id).await {
            Ok(_) => {}
            Err(CommitError::Refused(Refused::Gone(_))) => refusals += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let last = opened(&store).await.expect("it is read").expect("it is there");
    let mut rows: Vec<_> = paths(&last).into_iter().flat_map(|path| path.split('+')).collect();
    rows.sort_unstable();
    let want: Vec<_> = written.iter().map(|row| &**row).collect();
    assert_eq!(rows, want);
    assert!(refusals > 10, "{refusals} compactions came too late");
    assert_eq!(last.version(), 600 - refusals);
}

#[tokio::test]
async fn a_table_that_cannot_be_read_is_refused_with_the_reason() {
    let first = "00000000000000000000.json";
    for (name, text, expected) in [
        (
            first,
            r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["x"]}}"#,
            "needs version Protocol { min_reader_version: 3, min_writer_version: 7 }",
        ),
        (first, "{\"txn\":{\"appId\":\"a\",\"version\":1}}\nnonsense\n", "line 2, is no action"),
        (first, r#"{"add":{"path":"without all else"}}"#, "line 1, is no action"),
        ("00000000000000000010.json", "", "begins with neither its first commit nor a checkpoint"),
    ] {
        let store = Arc::new(InMemory::new());
        put(&store, name, text).await;
        let error = opened(&store).await.expect_err(expected);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn what_others_write_is_followed_and_what_is_not_known_passed_over() {
    let store = Arc::new(InMemory::new());
    put(
        &store,
        "00000000000000000000.json",
        r#"{"commitInfo":{"clientVersion":"x"}}
{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
{"metaData":{"id":"i","format":{"provider":"parquet"},"schemaString":"{}","partitionColumns":[],"configuration":{}}}
{"later":{"a":1}}

{"add":{"path":"a%20b","partitionValues":{},"size":1,"modificationTime":0,"dataChange":true,"later":1}}
{"remove":{"path":"gone","dataChange":true,"extendedFileMetadata":true,"size":3}}
"#,
    )
    .await;
    let table = opened(&store).await.expect("it is read").expect("it is there");
    assert_eq!(paths(&table), ["a%20b"]);
    assert_eq!(table.snapshot().removed().len(), 1);
}
