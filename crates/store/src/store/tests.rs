mod copies;
mod expire;
mod new_columns;
mod objects;
mod ranges;
mod tail;
mod traces;

use super::*;
use crate::columns::Columns;
use crate::delta::{CommitError, Refused};
use crate::files::failing::Failing;
use crate::log::Log;
use crate::memtable::Memtable;
use crate::query::{Filter, HitUnit, Order, SpanField};
use crate::schema::{
    logs,
    points::{self, POINTS},
    spans,
    traces::TRACES,
};
use crate::tree::{FlushError, StoredRun, Window};
use curtail_otlp::{
    BatchWriter, LogRow, PlainValue, ResourceText, ScopeText, Signal, SpanRow, json::to_protobuf,
};
use curtail_units::Rng;
use object_store::ObjectStore;
use object_store::path::Path;
use objects::{Faulty, When};
use serde_json::json;
use std::cell::Cell;

const SEED: u64 = 61;
const DAY_NS: u64 = 86_400_000_000_000;
const NOON_NS: u64 = DAY_NS * 20_000 + DAY_NS / 2;
const NOW_MS: i64 = 1_728_043_200_000;

const RESOURCE: ResourceText<'static> =
    ResourceText { attributes: "", dropped_attributes: 0, schema_url: "" };
const SCOPE: ScopeText<'static> =
    ScopeText { name: "", version: "", attributes: "", dropped_attributes: 0, schema_url: "" };

/// A batch of each signal: rows of one trace, or of one series, which say which batch they are of.
fn records(nth: u64, trace_id: u128) -> [Record; 3] {
    let (mut spans, mut logs, mut points) = (BatchWriter::new(), BatchWriter::new(), Vec::new());
    for span_id in 1..=3 {
        let name = &format!("{nth}.{span_id}");
        let (start_ns, end_ns) = (nth, nth + 1);
        let span = SpanRow { trace_id, span_id, name, start_ns, end_ns, ..SpanRow::default() };
        spans.span(&RESOURCE, &SCOPE, &span).expect("no JSON in it");
        let body = Some(PlainValue::Text(name));
        let log = LogRow { trace_id, time_ns: nth, body, ..LogRow::default() };
        logs.record(&RESOURCE, &SCOPE, &log).expect("no JSON in it");
        points.push(json!({ "timeUnixNano": nth, "asDouble": name }));
    }
    let metric = json!({ "name": trace_id.to_string(), "gauge": { "dataPoints": points } });
    let points = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] });
    let points = to_protobuf(points.to_string().as_bytes(), Signal::Metrics, &Limits::default());
    let batches = [
        (Signal::Traces, spans.finish()),
        (Signal::Logs, logs.finish()),
        (Signal::Metrics, points.expect("OTLP")),
    ];
    batches.map(|(signal, batch)| Record {
        signal,
        tenant: "shop".into(),
        received_ns: NOON_NS + nth,
        batch: batch.into(),
    })
}

/// That of the points that come with the rows of a trace.
fn series_id(trace_id: u128) -> u128 {
    let [.., record] = &records(1, trace_id);
    let rows = Decoded::of(Signal::Metrics, &record.batch, &Limits::default());
    let mut memtable = Memtable::new(&POINTS);
    memtable.insert("shop", &record.batch, &rows.expect("a good batch").0);
    memtable.columns().wide(points::SERIES_ID)[0]
}

fn insert(store: &Store, segment: u64, records: &[Record]) {
    for record in records {
        let rows = Decoded::of(record.signal, &record.batch, &Limits::default());
        store.insert(segment, record, rows.expect("a good batch").0);
    }
}

fn settings(files: &Failing, objects: &Arc<Faulty>) -> Settings {
    Settings {
        files: Arc::new(files.clone()),
        tables: tree::Settings {
            objects: Arc::clone(objects) as Arc<dyn ObjectStore>,
            root: Path::from("data"),
            writer: "one".to_owned(),
            final_rows: tree::FINAL_ROWS,
            known: Default::default(),
        },
        // Every group fills it.
        memtable_bytes: 1,
        batch_key: BatchKey::new([7; 32]),
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(test)
}

async fn open(files: &Failing, objects: &Arc<Faulty>) -> Result<(StoreParts, Recovery), OpenError> {
    Store::open(&settings(files, objects), NOW_MS, "f0b1").await
}

/// All rows with an ID, and the runs that may have more.
async fn with_id(tree: &Tree, tenant: &str, id: u128) -> Window {
    let found = tree.rows_with_id(tenant, id, usize::MAX).await;
    let fields: Vec<_> = (0..tree.table().schema().fields().len()).collect();
    let mut window = found.window(&fields, 0..found.len()).await;
    window.unread.extend_from_slice(found.unread());
    window
}

/// All of a row group.
async fn row_group(run: &StoredRun, objects: &dyn ObjectStore, group: usize) -> Columns {
    let all: Vec<_> = (0..run.run().schema().fields().len()).collect();
    let rows = 0..run.run().rows(group);
    run.rows(objects, group, &all, rows).await.expect("it is good")
}

/// The rows with an ID, each as text, sorted.
async fn row_texts(
    tree: &Tree,
    id: u128,
    row_text: impl Fn(&Columns, usize) -> String,
) -> Vec<String> {
    let found = with_id(tree, "shop", id).await;
    assert!(found.unread.is_empty(), "{:?}", found.unread);
    let mut row_texts: Vec<_> =
        (0..found.rows.len()).map(|row| row_text(&found.rows, row)).collect();
    row_texts.sort();
    row_texts
}

/// The rows of a trace, as text, in each table: spans, log records, points.
async fn tables(store: &Store, trace_id: u128) -> [Vec<String>; 3] {
    let text = |field| move |rows: &Columns, row| rows.coded(field).text(row).to_owned();
    let double = |rows: &Columns, row| {
        let bits = rows.coded(points::VALUE_DOUBLE).int(row).expect("it has one");
        f64::from_bits(bits.cast_unsigned()).to_string()
    };
    [
        row_texts(store.spans(), trace_id, text(spans::NAME)).await,
        row_texts(store.logs(), trace_id, text(logs::BODY)).await,
        row_texts(store.tree(&POINTS), series_id(trace_id), double).await,
    ]
}

/// The names in the rows of a trace, which are the same in each table.
async fn names(store: &Store, trace_id: u128) -> Vec<String> {
    let [spans, logs, points] = tables(store, trace_id).await;
    assert_eq!(spans, logs);
    assert_eq!(spans, points);
    spans
}

fn names_of(batches: &[u64]) -> Vec<String> {
    let mut names: Vec<_> =
        batches.iter().flat_map(|nth| (1..=3).map(move |span| format!("{nth}.{span}"))).collect();
    names.sort();
    names
}

#[test]
fn a_trace_is_whole_wherever_its_spans_are() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, found) = open(&files, &objects).await.expect("an empty disk");
        assert_eq!((found.rows, parts.last_segment), (vec![], 0));
        let store = Arc::clone(&parts.store);
        for nth in 1..=3 {
            insert(&store, nth, &records(nth, 7));
            insert(&store, nth, &records(10 + nth, 8));
            if nth < 3 {
                store.seal(nth);
            }
            if nth == 1 {
                let flushed = parts.flusher.flush(NOW_MS).await.expect("written");
                assert_eq!(flushed.iter().map(|run| run.rows).collect::<Vec<_>>(), [6, 6, 6]);
                assert_eq!(
                    flushed[0].path.as_ref(),
                    "data/spans/day=2024-10-04/one-000000000001-000000000001.parquet"
                );
            }
        }
        // One part of it is in a run, one in a sealed memtable, one in that which is being filled.
        assert_eq!(store.spans().size(), (12, 1));
        assert_eq!(names(&store, 7).await, names_of(&[1, 2, 3]));
        assert_eq!(names(&store, 8).await, names_of(&[11, 12, 13]));
        assert!(names(&store, 9).await.is_empty());
        assert!(with_id(store.spans(), "others", 7).await.rows.is_empty());
    });
}

#[test]
fn a_memtable_is_of_one_day() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let large = Settings { memtable_bytes: usize::MAX, ..settings(&files, &objects) };
        let (parts, _) = Store::open(&large, NOW_MS, "f0b1").await.expect("an empty disk");
        let store = &parts.store;
        insert(store, 1, &records(1, 7));
        assert!(!store.is_full());
        let [_, log, _] = records(2, 7);
        insert(store, 1, &[Record { received_ns: NOON_NS + DAY_NS, ..log }]);
        assert!(store.is_full());
        store.seal(1);
        assert!(!store.is_full() && store.waiting_bytes() > 0);
    });
}

/// Writes a run for each batch.
async fn runs(parts: &mut StoreParts, batches: std::ops::RangeInclusive<u64>) {
    let store = Arc::clone(&parts.store);
    for nth in batches {
        // In as many traces as there are numbers below three.
        insert(&store, nth, &records(nth, 7 + u128::from(nth % 3)));
        store.seal(nth);
        assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 3);
    }
}

#[test]
fn runs_become_one_and_nothing_is_lost_or_doubled() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let store = Arc::clone(&parts.store);
        runs(&mut parts, 1..=7).await;
        assert!(
            !parts.compactor.compact(NOW_MS, "a").await.expect("nothing to do"),
            "seven are few"
        );
        runs(&mut parts, 8..=9).await;
        assert!(parts.compactor.compact(NOW_MS, "a").await.expect("merged"));
        assert!(!parts.compactor.compact(NOW_MS, "b").await.expect("nothing to do"));
        // The oldest eight are one now.
        assert_eq!(store.spans().size(), (0, 2));
        let (again, _) = open(&files, &objects).await.expect("a table");
        for store in [&store, &again.store] {
            assert_eq!(names(store, 7).await, names_of(&[3, 6, 9]));
            assert_eq!(names(store, 8).await, names_of(&[1, 4, 7]));
            assert_eq!(names(store, 9).await, names_of(&[2, 5, 8]));
        }
    });
}

#[test]
fn a_run_that_is_damaged_stays_and_the_others_become_one() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        runs(&mut parts, 1..=8).await;
        let path = Path::from("data/spans/day=2024-10-04/one-000000000003-000000000003.parquet");
        objects.damage(&path, 60).await;
        let error = parts.compactor.compact(NOW_MS, "a").await.expect_err("it cannot be read");
        assert!(error.to_string().contains("one-000000000003-000000000003"), "{error}");
        assert!(!parts.compactor.compact(NOW_MS, "b").await.expect("the others are too few"));
        runs(&mut parts, 9..=9).await;
        assert!(parts.compactor.compact(NOW_MS, "c").await.expect("the others are good"));
        assert_eq!(parts.store.spans().size().1, 2);
    });
}

#[test]
fn two_writers_and_two_compactors_lose_and_double_nothing() {
    run(async {
        let objects = Arc::new(Faulty::default());
        let (one_files, two_files) = (Failing::default(), Failing::default());
        let (mut one, _) = open(&one_files, &objects).await.expect("an empty disk");
        let mut two = settings(&two_files, &objects);
        two.tables.writer = "two".to_owned();
        let (mut two, _) = Store::open(&two, NOW_MS, "f0b2").await.expect("the same table");
        runs(&mut one, 1..=5).await;
        runs(&mut two, 6..=10).await;
        // One sees what the other has committed when it looks.
        assert!(one.compactor.refresh().await.expect("a table").is_empty());
        let here = one.store.spans().run_set().due().expect("ten are enough");
        two.compactor.refresh().await.expect("a table");
        assert!(two.compactor.compact(NOW_MS, "two").await.expect("merged"));
        let tree = Arc::clone(one.store.spans());
        let merged = tree
            .run_set()
            .rewrite(here, "one", |_, rows| rows, async |_, _| {})
            .await
            .expect("they are still there");
        let error = one.compactor.tables[0]
            .writer
            .replace(merged, NOW_MS)
            .await
            .expect_err("they have been replaced");
        assert!(matches!(error, CommitError::Refused(_)), "{error}");
        runs(&mut one, 11..=12).await;
        two.compactor.refresh().await.expect("a table");
        for parts in [&one, &two] {
            assert_eq!(parts.store.spans().size(), (0, 5));
            assert_eq!(names(&parts.store, 7).await, names_of(&[3, 6, 9, 12]));
            assert_eq!(names(&parts.store, 8).await, names_of(&[1, 4, 7, 10]));
            assert_eq!(names(&parts.store, 9).await, names_of(&[2, 5, 8, 11]));
        }
    });
}

/// A process sleeps, another one takes over its log, and the first one wakes up with rows that the other has committed.
#[test]
fn a_process_that_was_replaced_commits_nothing_over_its_successor() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut old, _) = open(&files, &objects).await.expect("an empty disk");
        runs(&mut old, 1..=1).await;
        let (mut new, _) = open(&files, &objects).await.expect("a table");
        runs(&mut new, 2..=3).await;
        for nth in 2..=4 {
            insert(&old.store, nth, &records(nth, 7 + u128::from(nth % 3)));
        }
        old.store.seal(4);
        for _ in 0..2 {
            let error = old.flusher.flush(NOW_MS).await.expect_err("others have committed these");
            let FlushError::Commit(CommitError::Refused(error)) = error else { panic!("{error}") };
            assert!(matches!(error, Refused::Overtaken { committed: 3, .. }), "{error}");
        }
        runs(&mut new, 4..=5).await;
        let (again, _) = open(&files, &objects).await.expect("a table");
        for store in [&new.store, &again.store] {
            assert_eq!(names(store, 7).await, names_of(&[3]));
            assert_eq!(names(store, 8).await, names_of(&[1, 4]));
            assert_eq!(names(store, 9).await, names_of(&[2, 5]));
        }
    });
}

/// Neither calls the other: the flusher gets its turn when the compactor yields.
#[test]
fn a_memtable_is_flushed_while_runs_are_merged() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        runs(&mut parts, 1..=8).await;
        let StoreParts { store, mut flusher, mut compactor, .. } = parts;
        insert(&store, 9, &records(9, 7));
        store.seal(9);
        let is_flushed = Cell::new(false);
        let flush = async {
            // The compactor has begun.
            tokio::task::yield_now().await;
            assert_eq!(flusher.flush(NOW_MS).await.expect("written").len(), 3);
            is_flushed.set(true);
        };
        let compact = async {
            assert!(compactor.compact(NOW_MS, "a").await.expect("merged"));
            assert!(is_flushed.get(), "the flush did not wait for the merge");
        };
        tokio::join!(compact, flush);
        assert_eq!(store.spans().size(), (0, 2));
        let (again, _) = open(&files, &objects).await.expect("a table");
        for store in [&store, &again.store] {
            assert_eq!(names(store, 7).await, names_of(&[3, 6, 9]));
        }
        // What one of them knew of the table before does not replace what the other has made visible.
        let stale = compactor.tables[0].writer.clone();
        insert(&store, 10, &records(10, 7));
        store.seal(10);
        assert_eq!(flusher.flush(NOW_MS).await.expect("written").len(), 3);
        compactor.tables[0].writer = stale;
        compactor.tables[0].writer.publish(None).await;
        assert_eq!(names(&store, 7).await, names_of(&[3, 6, 9, 10]));
    });
}

/// Writes batches with a flush now and then, going on where something fails, until the power goes. Returns the
/// batches that were acknowledged.
async fn life(files: &Failing, objects: &Arc<Faulty>, batches: std::ops::Range<u64>) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    let Ok((mut parts, _)) = open(files, objects).await else { return acknowledged };
    let store = Arc::clone(&parts.store);
    let Ok(mut log) = Log::open(Arc::new(files.clone()), parts.last_segment, Rng::new(SEED)) else {
        return acknowledged;
    };
    for nth in batches {
        let records = records(nth, 7);
        if let Ok(segment) = log.append(&records) {
            insert(&store, segment, &records);
            acknowledged.push(nth);
        }
        if log.end_segment().is_ok() {
            store.seal(log.last_segment());
        }
        // What fails is tried again with the next one.
        drop(parts.flusher.flush(NOW_MS).await);
        drop(parts.compactor.compact(NOW_MS, &format!("merged-{nth}")).await);
        // Batches are there as a whole, even while a run is not read.
        assert_eq!(with_id(store.spans(), "shop", 7).await.rows.len() % 3, 0);
    }
    acknowledged
}

/// Every operation on the log or on the objects fails once, at each of the first two starts, until there are no
/// more of them in the first; after each the power goes. What was acknowledged is there, once; what was not may be.
#[test]
fn nothing_acknowledged_is_lost_or_doubled_whatever_fails_and_when_the_power_goes() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    run(async {
        let (mut lives, mut merged) = (0, 0);
        for fault in [Fault::Log, Fault::Objects(When::Before), Fault::Objects(When::After)] {
            for nth in 0.. {
                let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
                arm(fault, nth, &files, &objects);
                let mut acknowledged = life(&files, &objects, 1..10).await;
                let has_failed = match fault {
                    Fault::Log => files.operations() > nth,
                    Fault::Objects(_) => objects.disarm(),
                };
                let runs = objects.paths("data/spans/day=2024-10-04").await;
                merged += usize::from(runs.iter().any(|path| path.contains("merged")));
                let files = files.after_power_cut(&mut rng);
                arm(fault, nth, &files, &objects);
                acknowledged.extend(life(&files, &objects, 10..13).await);
                objects.disarm();
                let files = files.after_power_cut(&mut rng);
                let (mut parts, _) = open(&files, &objects).await.expect("nothing fails now");
                let store = Arc::clone(&parts.store);
                holds(&store, &acknowledged, (nth, fault)).await;
                while !parts.flusher.flush(NOW_MS).await.expect("nothing fails now").is_empty() {}
                holds(&store, &acknowledged, (nth, fault)).await;
                assert!(log::segments(&files).expect("a list").is_empty());
                lives += 1;
                if !has_failed {
                    break;
                }
            }
        }
        assert!(lives > 300 && merged > lives / 2, "{merged} of {lives}");
    });
}

#[test]
fn a_commit_that_is_in_conflict_with_nothing_is_tried_again() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        for nth in 1..=2 {
            insert(&parts.store, nth, &records(nth, 7));
            parts.store.seal(nth);
            if nth == 2 {
                // The first operation is the file of a run, the second its commit.
                objects.arm(1, When::Conflict);
            }
            assert_eq!(parts.flusher.flush(NOW_MS).await.expect("it is tried again").len(), 3);
        }
        assert!(objects.disarm());
        assert_eq!(names(&parts.store, 7).await, names_of(&[1, 2]));
    });
}

/// A process dies while a put of its is on the way, at each of its puts; it is done before each of the
/// operations of the process that follows. That one puts more into one run, under another number.
#[test]
fn what_a_dead_process_had_on_its_way_is_not_there_twice() {
    run(async {
        let mut deaths = 0;
        for nth in 0.. {
            let mut has_died = false;
            for before in 0.. {
                let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
                let large = Settings { memtable_bytes: usize::MAX, ..settings(&files, &objects) };
                has_died = dies(&large, &objects, nth).await;
                let was_late = objects.is_late();
                objects.deliver(before);
                let (mut parts, _) =
                    Store::open(&large, NOW_MS, "f0b2").await.expect("good tables");
                while !parts.flusher.flush(NOW_MS).await.expect("nothing fails now").is_empty() {}
                let is_late = objects.is_late();
                // What is late for longer than that comes now.
                objects.deliver(0);
                let (parts, _) = Store::open(&large, NOW_MS, "f0b3").await.expect("good tables");
                let store = Arc::clone(&parts.store);
                holds(&store, &[1, 2, 3], (nth, before)).await;
                deaths += usize::from(was_late);
                if is_late || !was_late {
                    break;
                }
            }
            if !has_died {
                break;
            }
        }
        assert!(deaths > 30, "{deaths}");
    });
}

/// Acknowledges three batches, and dies when a put is late while it writes the second: the one with this number,
/// if there are that many.
async fn dies(settings: &Settings, objects: &Faulty, nth: usize) -> bool {
    let (mut parts, _) = Store::open(settings, NOW_MS, "f0b1").await.expect("an empty disk");
    let store = Arc::clone(&parts.store);
    let mut log = Log::open(Arc::clone(&settings.files), parts.last_segment, Rng::new(SEED))
        .expect("a folder");
    for batch in 1..=3 {
        let records = records(batch, 7);
        insert(&store, log.append(&records).expect("written"), &records);
        log.end_segment().expect("ended");
        if batch < 3 {
            store.seal(log.last_segment());
        }
        if batch == 1 {
            parts.flusher.flush(NOW_MS).await.expect("nothing fails yet");
        }
    }
    objects.arm(nth, When::Late);
    drop(parts.flusher.flush(NOW_MS).await);
    objects.disarm()
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Log,
    Objects(When),
}

fn arm(fault: Fault, nth: usize, files: &Failing, objects: &Faulty) {
    match fault {
        Fault::Log => files.fail(nth..nth + 1),
        Fault::Objects(when) => objects.arm(nth, when),
    }
}

async fn holds(store: &Store, acknowledged: &[u64], what: impl std::fmt::Debug) {
    for rows in tables(store, 7).await {
        let mut once = rows.clone();
        once.dedup();
        assert_eq!(rows, once, "{what:?}: nothing is there twice");
        for name in names_of(acknowledged) {
            assert!(rows.contains(&name), "{what:?}: {name} is lost of {acknowledged:?}");
        }
    }
}

#[test]
fn a_damaged_segment_is_reported_and_kept_and_its_other_records_are_read() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let mut log = Log::open(Arc::new(files.clone()), 0, Rng::new(SEED)).expect("an empty disk");
        for nth in 1..=3 {
            log.append(&records(nth, 7)).expect("written");
            log.append(&records(10 + nth, 7)).expect("written");
            log.end_segment().expect("ended");
        }
        // In the second record of the second segment.
        files.damage("log-000000000002", 2 * crate::files::BLOCK_BYTES + 60);
        let (mut parts, found) = open(&files, &objects).await.expect("the rest is good");
        assert_eq!(found.damaged.iter().map(|(segment, _)| *segment).collect::<Vec<_>>(), [2]);
        let store = Arc::clone(&parts.store);
        // The record of spans is damaged.
        let [spans, logs, points] = tables(&store, 7).await;
        assert_eq!(spans, names_of(&[1, 11, 2, 3, 13]));
        assert!(logs == names_of(&[1, 11, 2, 12, 3, 13]) && points == logs);
        while !parts.flusher.flush(NOW_MS).await.expect("written").is_empty() {}
        let left = files.list().expect("a list");
        let (records, left): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|name| name.starts_with("flushed-"));
        assert_eq!((records.len(), &*left), (3, &["damaged-log-000000000002".to_owned()][..]));
        assert_eq!(tables(&store, 7).await, [spans, logs, points]);
    });
}

#[test]
fn a_run_that_cannot_be_read_is_named_and_the_others_are_read() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let store = Arc::clone(&parts.store);
        for nth in 1..=2 {
            insert(&store, nth, &records(nth, 7));
            store.seal(nth);
            assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 3);
        }
        let path = Path::from("data/spans/day=2024-10-04/one-000000000001-000000000001.parquet");
        objects.damage(&path, 60).await;
        let trace = with_id(store.spans(), "shop", 7).await;
        assert_eq!((trace.rows.len(), trace.unread.len()), (3, 1));
        assert_eq!(trace.unread[0].path, path);
        // Without its end it is not even opened.
        objects.cut(&path, 50).await;
        let (mut parts, found) = open(&files, &objects).await.expect("the other is good");
        assert_eq!(found.unread.len(), 1, "{:?}", found.unread);
        let store = Arc::clone(&parts.store);
        for (nth, rows) in [(3, 3), (4, 6)] {
            // Every query reports it, also after other flushes.
            let spans = store.spans();
            let (trace, filter) = (with_id(spans, "shop", 7).await, Filter::of("shop"));
            let top = spans.top(&filter, Order::Newest, HitUnit::Span, 100).await;
            let values = spans.values(&filter, &SpanField::Column(spans::NAME), 100).await;
            let cut = spans.values(&filter, &SpanField::Column(spans::NAME), 0).await;
            let keys = spans.keys(&filter).await;
            assert_eq!((trace.rows.len(), top.hits.len(), cut.is_cut), (rows, rows, true));
            for unread in [trace.unread, top.unread, values.unread, cut.unread, keys.unread] {
                assert_eq!(unread.iter().map(|unread| &unread.path).collect::<Vec<_>>(), [&path]);
            }
            insert(&store, nth, &records(nth, 7));
            store.seal(nth);
            assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 3);
        }
    });
}

#[test]
fn a_changed_byte_of_an_end_is_seen_of_written_and_of_merged_runs() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        runs(&mut parts, 1..=9).await;
        assert!(parts.compactor.compact(NOW_MS, "a").await.expect("eight are merged"));
        let stored: Vec<_> = parts.store.spans().run_set().runs();
        assert_eq!(stored.len(), 2);
        for run in stored {
            let (path, len) = (run.path(), run.add().size);
            let begins = run.run().end_begins().expect("it has indexes");
            for at in (begins..len).step_by(97) {
                let at = usize::try_from(at).expect("it is in memory");
                objects.damage(path, at).await;
                let (_, found) = open(&files, &objects).await.expect("the other is good");
                let unread: Vec<_> = found.unread.iter().map(|unread| &unread.path).collect();
                assert_eq!(unread, [path], "byte {at}");
                // The same bit once more.
                objects.damage(path, at).await;
            }
        }
    });
}

#[test]
fn a_table_that_cannot_be_written_keeps_none_of_the_others_and_its_rows_stay_in_the_log() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let store = Arc::clone(&parts.store);
        let mut log = Log::open(Arc::new(files.clone()), 0, Rng::new(SEED)).expect("an empty disk");
        let records = records(1, 7);
        insert(&store, log.append(&records).expect("written"), &records);
        log.end_segment().expect("ended");
        store.seal(log.last_segment());
        // The first operation is the file of the table that is written first.
        objects.arm(0, When::Before);
        parts.flusher.flush(NOW_MS).await.expect_err("it fails once");
        let runs = [store.spans().size().1, store.logs().size().1, store.tree(&POINTS).size().1];
        assert_eq!(runs, [0, 1, 1]);
        assert_eq!(log::segments(&files).expect("a list"), [1]);
        // When it is opened again, the log has what one table needs, and the others do not take it in again.
        let (mut again, found) = open(&files, &objects).await.expect("good tables");
        assert_eq!(found.rows, [("spans", 3)]);
        assert_eq!(names(&again.store, 7).await, names_of(&[1]));
        assert_eq!(again.flusher.flush(NOW_MS).await.expect("written").len(), 1);
        assert!(log::segments(&files).expect("a list").is_empty());
        assert_eq!(names(&again.store, 7).await, names_of(&[1]));
    });
}

#[test]
fn a_log_that_was_lost_does_not_begin_with_numbers_that_are_written() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        insert(&parts.store, 5, &records(1, 7));
        parts.store.seal(5);
        assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 3);
        let (mut parts, _) = open(&Failing::default(), &objects).await.expect("a table");
        assert_eq!(parts.last_segment, 5);
        // A start with them fails, and nothing is deleted.
        insert(&parts.store, 1, &records(2, 7));
        parts.store.seal(1);
        for _ in 0..2 {
            let error = parts.flusher.flush(NOW_MS).await.expect_err("it is an old number");
            assert!(matches!(error, FlushError::Commit(_)), "{error}");
        }
        assert_eq!(names(&parts.store, 7).await, names_of(&[1, 2]));
    });
}
