use super::super::super::action::Remove;
use super::super::super::checkpoint::encode;
use super::super::super::objects::faults::When;
use super::super::SourceRange;
use super::super::tests::{NOW_MS, add, adding, compacting, created, metadata, opened, paths};
use super::super::{Change, CommitError, Table, TableVersion};
use super::*;
use curtail_units::Rng;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use std::error::Error;
use std::sync::Arc;

const SEED: u64 = 17;

/// Long after all that the store's clock says.
const FAR_MS: i64 = 5_000_000_000_000;

fn in_log(name: &str) -> Path {
    Path::from("spans/_delta_log").join(name)
}

async fn open_table(store: &Arc<InMemory>) -> Table {
    opened(store).await.expect("it is read").expect("it is there")
}

async fn put(store: &Arc<InMemory>, name: &str, bytes: impl Into<bytes::Bytes>) {
    store.put(&in_log(name), bytes.into().into()).await.expect("put");
}

async fn delete(store: &Arc<InMemory>, name: &str) {
    store.delete(&in_log(name)).await.expect("deleted");
}

fn whole(version: u64) -> String {
    format!("{version:020}.checkpoint.parquet")
}

/// Commits that add, remove, and say how far a writer has come.
async fn busy(store: &Arc<InMemory>, commits: usize) -> Table {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut table = created(store).await;
    for nth in 0..commits {
        let files: Vec<_> = paths(&table).into_iter().map(str::to_owned).collect();
        let mut change = adding(&nth.to_string());
        if files.len() > 4 && rng.chance(0.4) {
            let gone = &files[rng.below(files.len())];
            change.remove = vec![Remove {
                path: gone.clone(),
                deletion_timestamp: Some(FAR_MS),
                data_change: true,
            }];
        }
        if rng.chance(0.5) {
            let source = format!("log {}", rng.below(3));
            let from = table.snapshot().position(&source);
            change.sources = vec![SourceRange { source, from, to: nth as u64 + 1 }];
        }
        table.commit(&change, NOW_MS, &nth.to_string()).await.expect("committed");
    }
    table
}

#[tokio::test]
async fn a_table_is_the_same_from_a_checkpoint_as_from_its_first_commit() {
    let store = Arc::new(InMemory::new());
    let mut table = busy(&store, 300).await;
    table.checkpoint(NOW_MS).await.expect("written");
    for nth in 0..20 {
        table.commit(&adding(&format!("later {nth}")), NOW_MS, "id").await.expect("committed");
    }
    let log = Arc::new(store.fork());
    delete(&log, "_last_checkpoint").await;
    delete(&log, &whole(300)).await;
    let from_log = open_table(&log).await;
    assert_eq!((from_log.version(), from_log.state.checkpoint), (320, 0));
    assert_eq!(from_log.snapshot(), table.snapshot());
    assert!(from_log.snapshot().removed().len() > 50, "files were removed");

    // What is before the checkpoint is not read at all.
    for version in 0..=300 {
        delete(&store, &format!("{version:020}.json")).await;
    }
    let from_checkpoint = open_table(&store).await;
    assert_eq!((from_checkpoint.version(), from_checkpoint.state.checkpoint), (320, 300));
    assert_eq!(from_checkpoint.snapshot(), from_log.snapshot());
}

#[tokio::test]
async fn a_hint_that_is_wrong_is_not_needed() {
    let store = Arc::new(InMemory::new());
    let mut table = busy(&store, 20).await;
    table.checkpoint(NOW_MS).await.expect("written");
    table.commit(&adding("later"), NOW_MS, "id").await.expect("committed");
    for version in 0..20 {
        delete(&store, &format!("{version:020}.json")).await;
    }
    for hint in [
        "",
        "nonsense",
        r#"{"version":-1,"size":1}"#,
        r#"{"version":18446744073709551615,"size":1}"#,
        r#"{"version":19,"size":1}"#,
        r#"{"version":20,"size":1,"parts":3}"#,
        r#"{"version":20,"size":1,"parts":4000000000}"#,
        r#"{"version":500,"size":1}"#,
    ] {
        put(&store, "_last_checkpoint", hint).await;
        let mut again = open_table(&store).await;
        assert_eq!(again.snapshot(), table.snapshot(), "{hint}");
        again.refresh().await.expect(hint);
        assert_eq!((again.version(), again.state.checkpoint), (21, 20), "{hint}");
    }
    delete(&store, "_last_checkpoint").await;
    assert_eq!(open_table(&store).await.snapshot(), table.snapshot());
}

#[tokio::test]
async fn a_damaged_checkpoint_is_passed_over_as_long_as_nothing_is_lost() {
    let store = Arc::new(InMemory::new());
    let mut table = busy(&store, 20).await;
    table.checkpoint(NOW_MS).await.expect("written");
    table.commit(&adding("a"), NOW_MS, "id").await.expect("committed");
    table.checkpoint(NOW_MS).await.expect("written");
    table.commit(&adding("b"), NOW_MS, "id").await.expect("committed");
    put(&store, &whole(21), "PAR1 and no more").await;
    let from_older = open_table(&store).await;
    assert_eq!((from_older.snapshot(), from_older.state.checkpoint), (table.snapshot(), 20));

    // Without commit 21 the older checkpoint would be an older table.
    let cleaned = Arc::new(store.fork());
    delete(&cleaned, "00000000000000000021.json").await;
    let error = opened(&cleaned).await.expect_err("it cannot be read").to_string();
    assert_eq!(error, format!("{} cannot be read", in_log(&whole(21))));

    delete(&store, &whole(20)).await;
    let from_log = open_table(&store).await;
    assert_eq!((from_log.snapshot(), from_log.state.checkpoint), (table.snapshot(), 0));
    delete(&store, "00000000000000000000.json").await;
    let error = opened(&store).await.expect_err("it cannot be read").to_string();
    assert_eq!(error, format!("{} cannot be read", in_log(&whole(21))));
}

#[tokio::test]
async fn a_checkpoint_that_lacks_what_it_needs_or_is_of_a_later_kind_is_refused() {
    let no_metadata = encode(&[Action::Protocol(Protocol::OURS)]).expect("a file");
    let no_protocol = encode(&[Action::MetaData(metadata("one"))]).expect("a file");
    let later = "00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet";
    for (name, bytes, expected) in [
        (&*whole(10), no_metadata, "it holds no metaData or no protocol"),
        (&*whole(11), no_protocol, "it holds no metaData or no protocol"),
        (later, bytes::Bytes::new(), "it is of version 2 of the specification of checkpoints"),
    ] {
        let store = Arc::new(InMemory::new());
        put(&store, name, bytes).await;
        let error = opened(&store).await.expect_err(expected);
        assert_eq!(error.to_string(), format!("{} cannot be read", in_log(name)));
        let reason = error.source().expect("it has a reason").to_string();
        assert!(reason.starts_with(expected), "{reason}");
    }
}

#[tokio::test]
async fn a_protocol_that_is_not_known_is_refused_in_a_checkpoint_too() {
    let store = Arc::new(InMemory::new());
    let needed = Protocol { min_reader_version: 3, min_writer_version: 7 };
    let rows = [Action::Protocol(needed), Action::MetaData(metadata("one"))];
    put(&store, &whole(10), encode(&rows).expect("a file")).await;
    let error = opened(&store).await.expect_err("it is not known");
    assert!(matches!(error, OpenError::Protocol { .. }), "{error}");
}

#[tokio::test]
async fn a_checkpoint_of_several_files_is_read_when_all_are_there() {
    let store = Arc::new(InMemory::new());
    let table = busy(&store, 20).await;
    let rows = table.snapshot().actions(NOW_MS);
    for (nth, rows) in rows.chunks(rows.len().div_ceil(3)).enumerate() {
        let name = format!("{:020}.checkpoint.{:010}.{:010}.parquet", 20, nth + 1, 3);
        put(&store, &name, encode(rows).expect("a file")).await;
    }
    put(&store, "_last_checkpoint", format!(r#"{{"version":20,"size":{},"parts":3}}"#, rows.len()))
        .await;
    let from_parts = open_table(&store).await;
    assert_eq!((from_parts.snapshot(), from_parts.state.checkpoint), (table.snapshot(), 20));
    delete(&store, "_last_checkpoint").await;
    assert_eq!(open_table(&store).await.state.checkpoint, 20);
    delete(&store, "00000000000000000020.checkpoint.0000000002.0000000003.parquet").await;
    let from_log = open_table(&store).await;
    assert_eq!((from_log.snapshot(), from_log.state.checkpoint), (table.snapshot(), 0));
}

#[tokio::test]
async fn a_commit_that_is_missing_is_an_error_and_no_older_table() {
    let store = Arc::new(InMemory::new());
    busy(&store, 20).await;
    delete(&store, "00000000000000000007.json").await;
    let error = opened(&store).await.expect_err("it is not whole").to_string();
    assert_eq!(error, "the log of spans goes up to 20, but commit 7 is missing");
}

#[tokio::test]
async fn a_reader_behind_a_cleaned_log_begins_anew() {
    let store = Arc::new(InMemory::new());
    let mut table = created(&store).await;
    let mut reader = open_table(&store).await;
    let mut writer = open_table(&store).await;
    for nth in 0..30 {
        table.commit(&adding(&nth.to_string()), NOW_MS, &nth.to_string()).await.expect("committed");
    }
    table.checkpoint(NOW_MS).await.expect("written");
    let cleaned = table.clean_log(FAR_MS).await.expect("cleaned");
    assert_eq!(cleaned.len(), 30, "all but the commit of the checkpoint");
    reader.refresh().await.expect("it begins anew");
    assert_eq!((reader.version(), reader.snapshot()), (30, table.snapshot()));

    // Its next number would be free: what it says would never be read.
    let result = writer.commit(&adding("7"), NOW_MS, "id").await;
    assert!(matches!(result, Err(CommitError::Refused(_))), "{result:?}");
    assert_eq!(writer.commit(&adding("new"), NOW_MS, "id").await.expect("committed"), 31);
    assert!(paths(&open_table(&store).await).contains(&"new"));
}

#[tokio::test]
async fn a_reader_that_cannot_begin_anew_stays_where_it_is() {
    let store = Arc::new(InMemory::new());
    let mut table = created(&store).await;
    table.commit(&adding("a"), NOW_MS, "id").await.expect("committed");
    table.checkpoint(NOW_MS).await.expect("written");
    table.commit(&adding("b"), NOW_MS, "id").await.expect("committed");
    let mut behind = open_table(&store).await;
    behind.commit(&adding("c"), NOW_MS, "id").await.expect("committed");
    for path in ["d", "e"] {
        table.commit(&adding(path), NOW_MS, path).await.expect("committed");
    }
    table.checkpoint(NOW_MS).await.expect("written");
    // The older checkpoint is left, and all that leads on from it is gone.
    for version in 2..5 {
        delete(&store, &format!("{version:020}.json")).await;
    }
    put(&store, &whole(5), "PAR1").await;
    let error = behind.refresh().await.expect_err("it cannot be read").to_string();
    assert_eq!(error, format!("{} cannot be read", in_log(&whole(5))));
    assert_eq!((behind.version(), paths(&behind)), (3, vec!["a", "b", "c"]));
}

#[tokio::test]
async fn a_shorter_log_in_place_of_the_one_that_was_is_not_taken_for_it() {
    let store = Arc::new(InMemory::new());
    let mut table = busy(&store, 9).await;
    for version in 1..10 {
        delete(&store, &format!("{version:020}.json")).await;
    }
    put(&store, "_last_checkpoint", r#"{"version":20,"size":1}"#).await;
    let error = table.refresh().await.expect_err("it is another");
    assert!(matches!(error, OpenError::NoBeginning(_)), "{error}");
    assert_eq!(table.version(), 9);
}

#[tokio::test]
async fn a_cleaning_that_stops_half_way_is_seen_by_a_reader_that_is_behind() {
    let store = Arc::new(InMemory::new());
    let mut table = created(&store).await;
    let mut behind = open_table(&store).await;
    for path in ["a", "b", "c", "d"] {
        table.commit(&adding(path), NOW_MS, path).await.expect("committed");
    }
    table.checkpoint(NOW_MS).await.expect("written");
    delete(&store, "_last_checkpoint").await;
    // A list, the checkpoint, the hint read and written, two commits deleted.
    table.log.objects.faults.arm(7, When::Before);
    table.clean_log(FAR_MS).await.expect_err("it stops");
    let first = store.get(&in_log("00000000000000000001.json")).await;
    assert!(matches!(first, Err(object_store::Error::NotFound { .. })), "{first:?}");
    store.get(&in_log("00000000000000000002.json")).await.expect("it is left");
    behind.refresh().await.expect("it begins anew");
    assert_eq!((behind.version(), behind.snapshot()), (4, table.snapshot()));
}

#[tokio::test]
async fn a_writer_that_was_idle_for_long_does_not_take_a_cleaned_number() {
    let store = Arc::new(InMemory::new());
    let mut sleeper = created(&store).await;
    sleeper.commit(&adding("first"), NOW_MS, "id").await.expect("committed");
    let mut table = open_table(&store).await;
    for path in ["a", "b", "c"] {
        table.commit(&adding(path), NOW_MS, path).await.expect("committed");
    }
    table.checkpoint(NOW_MS).await.expect("written");
    table.clean_log(FAR_MS).await.expect("cleaned");
    let version = sleeper.commit(&compacting(&["a", "b"], "ab"), FAR_MS, "id").await;
    assert_eq!(version.expect("committed"), 5);
    assert_eq!(paths(&open_table(&store).await), ["ab", "c", "first"]);
}

#[tokio::test]
async fn a_table_without_its_first_commit_is_not_made_again() {
    let store = Arc::new(InMemory::new());
    let mut table = created(&store).await;
    table.commit(&adding("a"), NOW_MS, "id").await.expect("committed");
    table.checkpoint(NOW_MS).await.expect("written");
    table.clean_log(FAR_MS).await.expect("cleaned");
    let again = created(&store).await;
    assert_eq!((again.version(), paths(&again)), (1, vec!["a"]));
    let first = store.get(&in_log("00000000000000000000.json")).await;
    assert!(matches!(first, Err(object_store::Error::NotFound { .. })), "{first:?}");
}

#[tokio::test]
async fn a_commit_that_cannot_be_followed_leaves_the_table_as_it_was() {
    let store = Arc::new(InMemory::new());
    let mut table = created(&store).await;
    let change = Change { add: vec![add("a")], ..adding("b") };
    table.commit(&change, NOW_MS, "id").await.expect("committed");
    let upgrade = concat!(
        r#"{"remove":{"path":"a","dataChange":true}}"#,
        "\n",
        r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7}}"#
    );
    put(&store, "00000000000000000002.json", upgrade).await;
    let error = table.refresh().await.expect_err("it is not known");
    assert!(matches!(error, OpenError::Protocol { .. }), "{error}");
    assert_eq!((table.version(), paths(&table)), (1, vec!["a"]));
}

#[test]
fn a_table_is_used_from_any_thread() {
    fn is_send<T: Send>(_: &T) {}
    let store = || Arc::new(InMemory::new());
    let path = || Path::from("spans");
    is_send(&Table::create(store(), path(), metadata("one"), NOW_MS, "made"));
    is_send(&async move {
        let mut table = Table::open(store(), path()).await.expect("read").expect("there");
        table.commit(&adding("a"), NOW_MS, "id").await.expect("committed");
        table.checkpoint(NOW_MS).await.expect("written");
        table.clean_log(NOW_MS).await.expect("cleaned");
        table.vacuum(NOW_MS).await.expect("vacuumed");
    });
}

#[tokio::test]
async fn a_missing_commit_between_others_is_named_from_every_starting_point() {
    for has_checkpoint in [false, true] {
        let store = Arc::new(InMemory::new());
        let mut table = busy(&store, 5).await;
        if has_checkpoint {
            table.checkpoint(NOW_MS).await.expect("written");
        }
        for path in ["x", "y", "z"] {
            table.commit(&adding(path), NOW_MS, path).await.expect("committed");
        }
        delete(&store, "00000000000000000007.json").await;
        let gap = opened(&store).await.expect_err("commit 7 is missing").to_string();
        assert!(gap.contains("goes up to 8, but commit 7 is missing"), "{gap}");
    }
}

#[tokio::test]
async fn a_truncated_or_changed_commit_is_named() {
    let store = Arc::new(InMemory::new());
    busy(&store, 3).await;
    let name = "00000000000000000003.json";
    let bytes = store.get(&in_log(name)).await.expect("there").bytes().await.expect("read");
    for len in 0..bytes.len() {
        put(&store, name, bytes.slice(..len)).await;
        let error = opened(&store).await.expect_err("it is cut off").to_string();
        assert!(error.contains(name), "{len} bytes: {error}");
    }
    let first_line = bytes.iter().position(|byte| *byte == b'\n').expect("lines");
    for at in first_line + 1..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[at] ^= 1;
        put(&store, name, changed).await;
        let error = opened(&store).await.expect_err("it is changed").to_string();
        assert!(error.contains(name), "byte {at}: {error}");
    }
    put(&store, name, bytes).await;
    assert_eq!(open_table(&store).await.version(), 3);
}

#[tokio::test]
async fn a_table_is_compared_with_its_last_known_version() {
    let store = Arc::new(InMemory::new());
    let table = busy(&store, 3).await;
    let known = table.committed();
    table.check(&known).expect("the same");
    delete(&store, "00000000000000000003.json").await;
    let behind =
        open_table(&store).await.check(&known).expect_err("a commit is missing").to_string();
    assert!(behind.contains("_delta_log/00000000000000000003.json is missing"), "{behind}");
    let another = TableVersion { id: "another".to_owned(), ..known };
    let another = table.check(&another).expect_err("it is not that table").to_string();
    assert!(another.contains("is not the table"), "{another}");
}
