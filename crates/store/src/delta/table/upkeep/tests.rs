use super::super::super::action::Remove;
use super::super::super::objects::faults::When;
use super::super::tests::{NOW_MS, adding, compacting, created, metadata, opened, paths};
use super::super::{Change, CommitError, Refused};
use super::*;
use curtail_units::Rng;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use std::collections::BTreeSet;
use std::sync::Arc;

const SEED: u64 = 23;

/// Long after all that the store's clock says.
const FAR_MS: i64 = 5_000_000_000_000;

const DAY_MS: i64 = 24 * 3_600_000;

async fn open_table(store: &Arc<InMemory>) -> Table {
    opened(store).await.expect("it is read").expect("it is there")
}

async fn with_properties(store: &Arc<InMemory>, properties: &[(&str, &str)]) -> Table {
    let mut metadata = metadata("one");
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    metadata.configuration = properties.iter().map(owned).collect();
    let made = Table::create(store.clone(), Path::from("spans"), metadata, NOW_MS, "made").await;
    made.expect("a table")
}

/// Puts the file of a table that its log calls `path`.
async fn put(store: &Arc<InMemory>, path: &str) {
    let path = Path::parse(format!("spans/{path}")).expect("it is a path");
    store.put(&path, "rows".into()).await.expect("put");
}

/// All objects but those of the log.
async fn data(store: &Arc<InMemory>) -> BTreeSet<String> {
    let mut folders = vec![Path::from("spans")];
    let mut data = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        let listed = store.list_with_delimiter(Some(&folder)).await.expect("listed");
        let is_data = |path: &Path| path.filename() != Some("_delta_log");
        folders.extend(listed.common_prefixes.into_iter().filter(is_data));
        let name = |path: Path| path.as_ref().strip_prefix("spans/").expect("in it").to_owned();
        data.extend(listed.objects.into_iter().map(|object| name(object.location)));
    }
    data
}

fn names(paths: &[Path]) -> Vec<&str> {
    paths.iter().filter_map(Path::filename).collect()
}

fn removing(path: &str, deletion_timestamp: i64) -> Change {
    let deletion_timestamp = Some(deletion_timestamp);
    let remove = vec![Remove { path: path.to_owned(), deletion_timestamp, data_change: true }];
    Change { operation: "DELETE", remove, ..Change::default() }
}

#[tokio::test]
async fn a_checkpoint_is_due_n_commits_after_the_last() {
    let store = Arc::new(InMemory::new());
    let mut table = with_properties(&store, &[("delta.checkpointInterval", "3")]).await;
    let mut due = Vec::new();
    for nth in 1..=7 {
        table.commit(&adding(&nth.to_string()), NOW_MS, "id").await.expect("committed");
        if table.is_checkpoint_due().expect("a number") {
            due.push(nth);
            // The first one fails: it is due still.
            if nth > 3 {
                table.checkpoint(NOW_MS).await.expect("written");
            }
        }
    }
    assert_eq!(due, [3, 4, 7]);
    let mut other = open_table(&store).await;
    for nth in 8..=10 {
        table.commit(&adding(&nth.to_string()), NOW_MS, "id").await.expect("committed");
    }
    other.refresh().await.expect("read");
    assert!(other.is_checkpoint_due().expect("a number"));
    table.checkpoint(NOW_MS).await.expect("written");
    other.refresh().await.expect("read");
    assert!(!other.is_checkpoint_due().expect("a number"), "the other has written one");
}

#[tokio::test]
async fn the_hint_says_what_was_written_and_never_goes_back() {
    let store = Arc::new(InMemory::new());
    let mut table = created(&store).await;
    let mut behind = open_table(&store).await;
    for path in ["a", "b"] {
        table.commit(&adding(path), NOW_MS, path).await.expect("committed");
    }
    table.commit(&removing("a", FAR_MS), NOW_MS, "id").await.expect("committed");
    table.checkpoint(NOW_MS).await.expect("written");
    behind.checkpoint(NOW_MS).await.expect("written");
    let hint = store.get(&table.log.last_path()).await.expect("it is there").bytes().await;
    let file = table.log.folder().join("00000000000000000003.checkpoint.parquet");
    let size = store.head(&file).await.expect("it is there").size;
    let want = format!(r#"{{"version":3,"size":4,"sizeInBytes":{size},"numOfAddFiles":1}}"#);
    assert_eq!(String::from_utf8_lossy(&hint.expect("read")), want);
}

#[tokio::test]
async fn removed_files_are_in_a_checkpoint_as_long_as_they_are_kept() {
    let store = Arc::new(InMemory::new());
    let properties = [("delta.deletedFileRetentionDuration", "interval 2 days")];
    let mut table = with_properties(&store, &properties).await;
    for path in ["old", "new", "live"] {
        table.commit(&adding(path), NOW_MS, path).await.expect("committed");
    }
    table.commit(&removing("old", NOW_MS), NOW_MS, "1").await.expect("committed");
    table.commit(&removing("new", NOW_MS + 1), NOW_MS, "2").await.expect("committed");
    table.checkpoint(NOW_MS + 2 * DAY_MS).await.expect("written");
    let again = open_table(&store).await;
    assert_eq!(again.state.checkpoint, 5);
    let removed: Vec<_> = again.snapshot().removed().map(|remove| &*remove.path).collect();
    assert_eq!((removed, paths(&again)), (vec!["new"], vec!["live"]));
}

#[test]
fn what_the_log_needs_is_kept() {
    let listed = |files: &[(&str, i64)]| -> Vec<File> {
        let file = |(name, modified_ms): &(&str, i64)| File {
            path: Path::from("_delta_log").join(*name),
            modified_ms: *modified_ms,
        };
        files.iter().map(file).collect()
    };
    let files = listed(&[
        ("00000000000000000000.json", 1),
        ("00000000000000000001.00000000000000000003.compacted.json", 3),
        ("00000000000000000001.crc", 1),
        ("00000000000000000001.json", 99),
        ("00000000000000000002.checkpoint.0000000001.0000000002.parquet", 2),
        ("00000000000000000002.json", 2),
        ("00000000000000000003.checkpoint.parquet", 3),
        ("00000000000000000003.json", 3),
        ("00000000000000000004.checkpoint.0000000001.0000000002.parquet", 4),
        ("00000000000000000004.checkpoint.0000000002.0000000002.parquet", 6),
        ("00000000000000000004.json", 4),
        ("00000000000000000005.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", 5),
        ("00000000000000000005.json", 5),
        ("_last_checkpoint", 1),
        ("notes.txt", 1),
    ]);
    for (before_ms, want) in [(2, None), (3, Some(6)), (5, Some(6)), (6, Some(8)), (1000, Some(8))]
    {
        let needless = needless(&files, before_ms).map(|(_, needless)| needless);
        let want = want.map(|first: usize| files[..first].iter().map(|file| file.path.clone()));
        assert_eq!(needless, want.map(Iterator::collect), "up to {before_ms}");
    }
    assert_eq!(needless(&files[6..8], 1000), None, "nothing is before it");
}

#[tokio::test]
async fn a_cleaned_log_is_the_same_table() {
    let store = Arc::new(InMemory::new());
    let mut table = created(&store).await;
    for nth in 0..50 {
        table.commit(&adding(&nth.to_string()), NOW_MS, &nth.to_string()).await.expect("committed");
        if nth % 20 == 19 {
            table.checkpoint(NOW_MS).await.expect("written");
        }
    }
    let path = table.log.folder().join("00000000000000000040.checkpoint.parquet");
    let written_ms = store.head(&path).await.expect("there").last_modified.timestamp_millis();
    let kept = table.clean_log(written_ms + 30 * DAY_MS - 60_000).await.expect("nothing to do");
    assert_eq!(kept, []);
    // What is not known to be readable is not relied upon.
    let whole = store.get(&path).await.expect("there").bytes().await.expect("read");
    store.put(&path, whole.slice(..100).into()).await.expect("put");
    let error = table.clean_log(FAR_MS).await.expect_err("it is cut off").to_string();
    assert!(error.contains(path.as_ref()), "{error}");
    assert_eq!(open_table(&store).await.snapshot(), table.snapshot());

    store.put(&path, whole.into()).await.expect("put");
    store.put(&table.log.last_path(), "damaged".into()).await.expect("put");
    let cleaned = table.clean_log(FAR_MS).await.expect("cleaned");
    let cleaned = names(&cleaned);
    assert_eq!(cleaned.len(), 41, "40 commits and a checkpoint");
    assert_eq!(cleaned[..1], ["00000000000000000000.json"]);
    assert_eq!(
        cleaned[19..22],
        [
            "00000000000000000019.json",
            "00000000000000000020.checkpoint.parquet",
            "00000000000000000020.json"
        ]
    );
    let again = open_table(&store).await;
    assert_eq!((again.snapshot(), again.state.checkpoint), (table.snapshot(), 40));
    assert_eq!(table.log.last_checkpoint().await.expect("read").map(|last| last.version), Some(40));
    assert_eq!(table.clean_log(FAR_MS).await.expect("nothing to do"), []);
}

#[tokio::test]
async fn vacuum_deletes_only_what_no_reader_can_read() {
    let store = Arc::new(InMemory::new());
    let mut table = created(&store).await;
    // In the log as in a URL; on the store as it is.
    let in_log = ["day=1/live%20one", "day=1/new", "day=2/old", "x%2520y"];
    for path in in_log {
        table.commit(&adding(path), NOW_MS, path).await.expect("committed");
    }
    for path in ["day=1/live one", "day=1/new", "day=2/old", "x%20y"] {
        put(&store, path).await;
    }
    for path in ["orphan", "day=3/deep/orphan", "_private/a", "_b", ".c", "day=1/.d"] {
        put(&store, path).await;
    }
    // As by another writer, whose commits this one has not read yet.
    let mut other = open_table(&store).await;
    other.commit(&adding("by%20other"), NOW_MS, "id").await.expect("committed");
    put(&store, "by other").await;
    other.commit(&removing("day=1/new", FAR_MS - DAY_MS), NOW_MS, "1").await.expect("committed");
    other
        .commit(&removing("day=2/old", FAR_MS - 7 * DAY_MS), NOW_MS, "2")
        .await
        .expect("committed");

    let before = data(&store).await;
    let any = Path::from("spans/orphan");
    let written_ms = store.head(&any).await.expect("there").last_modified.timestamp_millis();
    let young = table.vacuum(written_ms + 7 * DAY_MS - 60_000).await.expect("nothing to do");
    assert_eq!((young, data(&store).await), (vec![], before.clone()));

    let mut deleted = table.vacuum(FAR_MS).await.expect("vacuumed");
    deleted.sort_unstable();
    let want = ["spans/day=2/old", "spans/day=3/deep/orphan", "spans/orphan"];
    assert_eq!(deleted.iter().map(AsRef::as_ref).collect::<Vec<_>>(), want);
    let gone = want.map(|path| path.trim_start_matches("spans/").to_owned());
    assert_eq!(data(&store).await, &before - &BTreeSet::from(gone));
    let removed: Vec<_> = table.snapshot().removed().map(|remove| &*remove.path).collect();
    assert_eq!(removed, ["day=1/new"], "what is deleted is forgotten");
}

#[tokio::test]
async fn where_a_path_is_not_understood_nothing_is_deleted() {
    for path in ["s3://other/a", "/root/a", "../a", "a//b", ""] {
        let store = Arc::new(InMemory::new());
        let mut table = created(&store).await;
        put(&store, "orphan").await;
        table.commit(&adding(path), NOW_MS, "id").await.expect("committed");
        let error = table.vacuum(FAR_MS).await.expect_err(path).to_string();
        assert!(error.contains(&format!("spans has the file {path:?}")), "{error}");
        assert_eq!(data(&store).await.len(), 1);
    }
}

#[tokio::test]
async fn a_property_that_says_nothing_stops_what_needs_it() {
    for (key, whose) in [
        ("delta.checkpointInterval", 0),
        ("delta.logRetentionDuration", 1),
        ("delta.deletedFileRetentionDuration", 2),
    ] {
        let store = Arc::new(InMemory::new());
        let mut table = with_properties(&store, &[(key, "soon")]).await;
        put(&store, "orphan").await;
        table.commit(&adding("a"), NOW_MS, "id").await.expect("it needs none");
        let done = [
            table.is_checkpoint_due().map_err(UpkeepError::from).map(drop),
            table.clean_log(FAR_MS).await.map(drop),
            table.vacuum(FAR_MS).await.map(drop),
        ];
        for (nth, done) in done.into_iter().enumerate() {
            let error = done.err().map(|error| error.to_string());
            let want = (nth == whose).then(|| format!("the table's property {key} is \"soon\""));
            assert_eq!(error.is_some(), want.is_some(), "{key}, {nth}");
            assert!(error.zip(want).is_none_or(|(error, want)| error.starts_with(&want)), "{key}");
        }
    }
}

/// The life of a writer, which continues after failures. Returns its acknowledged commits.
async fn live(store: &Arc<InMemory>, table: &mut Table) -> Vec<&'static str> {
    let mut committed = Vec::new();
    put(store, "new").await;
    let change = Change { remove: removing("b", NOW_MS).remove, ..adding("new") };
    if table.commit(&change, NOW_MS, "new").await.is_ok() {
        committed.push("new");
    }
    drop(table.checkpoint(FAR_MS).await);
    drop(table.clean_log(FAR_MS).await);
    drop(table.vacuum(FAR_MS).await);
    put(store, "last").await;
    if table.commit(&adding("last"), NOW_MS, "last").await.is_ok() {
        committed.push("last");
    }
    committed
}

#[tokio::test]
async fn whatever_fails_nothing_committed_is_lost_and_no_live_file_deleted() {
    for when in [When::Before, When::After] {
        let mut failures = 0;
        for nth in 1.. {
            let store = Arc::new(InMemory::new());
            let mut table = created(&store).await;
            for path in ["a", "b", "c", "d"] {
                put(&store, path).await;
                table.commit(&adding(path), NOW_MS, path).await.expect("committed");
            }
            table.checkpoint(NOW_MS).await.expect("written");
            put(&store, "orphan").await;

            table.log.objects.faults.arm(nth, when);
            let committed = live(&store, &mut table).await;
            if table.log.objects.faults.disarm() {
                assert_eq!(committed, ["new", "last"], "nothing failed");
                break;
            }
            failures += 1;
            let again = open_table(&store).await;
            let (live, data) = (paths(&again), data(&store).await);
            for path in committed.iter().chain(&["a", "c", "d"]) {
                assert!(live.contains(path), "{path} is lost when operation {nth} fails {when:?}");
            }
            for path in &live {
                assert!(
                    data.contains(*path),
                    "{path} is deleted when operation {nth} fails {when:?}"
                );
            }
            table.refresh().await.expect("it goes on");
            assert_eq!(paths(&table), live, "operation {nth} fails {when:?}");
            table.checkpoint(FAR_MS).await.expect("it goes on");
            table.clean_log(FAR_MS).await.expect("it goes on");
            table.vacuum(FAR_MS).await.expect("it goes on");
            assert_eq!(open_table(&store).await.snapshot(), table.snapshot());
        }
        assert!(failures > 15, "{failures} operations failed");
    }
}

#[tokio::test]
async fn writers_lose_nothing_while_others_check_clean_and_vacuum() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let store = Arc::new(InMemory::new());
    // Nothing is kept longer than it must be, so that each clean-up deletes all it may.
    let at_once = "interval 0 days";
    let properties =
        [("delta.logRetentionDuration", at_once), ("delta.deletedFileRetentionDuration", at_once)];
    let mut tables = vec![with_properties(&store, &properties).await];
    for _ in 0..3 {
        tables.push(open_table(&store).await);
    }
    let (mut written, mut refusals, mut cleaned, mut vacuumed) = (BTreeSet::new(), 0, 0, 0);
    for nth in 0..1000_i64 {
        let table = &mut tables[rng.below(4)];
        let (id, now_ms) = (nth.to_string(), FAR_MS + nth);
        let files: Vec<_> = paths(table).into_iter().map(str::to_owned).collect();
        match rng.below(10) {
            0 => table.checkpoint(now_ms).await.expect("written"),
            1 => cleaned += table.clean_log(now_ms).await.expect("cleaned").len(),
            2 => vacuumed += table.vacuum(now_ms).await.expect("vacuumed").len(),
            3 | 4 if files.len() > 2 => {
                let from = rng.below(files.len() - 1);
                let some: Vec<&str> = files[from..from + 2].iter().map(|path| &**path).collect();
                let merged = some.join("+");
                put(&store, &merged).await;
                match table.commit(&compacting(&some, &merged), now_ms, &id).await {
                    Ok(_) => {}
                    Err(CommitError::Refused(Refused::Gone(_))) => refusals += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            _ => {
                put(&store, &id).await;
                table.commit(&adding(&id), now_ms, &id).await.expect("it is new");
                written.insert(id);
            }
        }
    }
    let last = open_table(&store).await;
    let (live, data) = (paths(&last), data(&store).await);
    let rows: BTreeSet<_> = live.iter().flat_map(|path| path.split('+')).collect();
    assert_eq!(rows, written.iter().map(|row| &**row).collect());
    assert!(live.iter().all(|path| data.contains(*path)), "a live file is gone");
    for table in &mut tables {
        table.refresh().await.expect("read");
        assert_eq!((table.version(), paths(table)), (last.version(), live.clone()));
    }
    let did = (refusals, cleaned, vacuumed);
    assert!(refusals > 0 && cleaned > 100 && vacuumed > 50, "{did:?}");
}
