//! Large runs become ranges of IDs, and nothing of a row is lost on the way.

use crate::batch_rows::{BatchRows, LOG_ROWS, POINT_ROWS, SPAN_ROWS};
use crate::random::{batch, facts, logs, points};
use crate::round_trip::{open, read};
use curtail_otlp::{Decoded, Limits, Signal};
use curtail_store::log::Record;
use curtail_store::schema::{Table, points::POINTS};
use curtail_store::tree::{self, Tree};
use curtail_store::{Columns, Directory, Settings, Store};
use curtail_units::Rng;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SEED: u64 = 20_803;

/// One batch of each signal in each.
const RUNS: usize = 8;

/// The values of the rows of a batch, independent of their order.
type Facts = fn(&[u8]) -> Vec<String>;

/// The rows of each run in a table's folder that is a range.
async fn ranges(table: &'static Table, objects: &InMemory) -> Vec<Vec<Columns>> {
    let mut ranges = Vec::new();
    let folder = Path::from(format!("data/{}/day=1970-01-01", table.name));
    let files = objects.list_with_delimiter(Some(&folder)).await.expect("memory").objects;
    for file in files {
        if file.location.filename().is_some_and(|name| name.starts_with("range")) {
            let file = objects.get(&file.location).await.expect("it is there");
            let file = file.bytes().await.expect("memory");
            let run = open(table, &file);
            let groups = 0..run.groups();
            let rows = groups.map(|group| read(&run, &file, group, 0..run.rows(group)));
            ranges.push(rows.map(|rows| rows.expect("a good run")).collect());
        }
    }
    ranges
}

/// The facts of the rows of each ID.
async fn by_id(
    table_rows: BatchRows,
    tree: &Tree,
    ids: &BTreeSet<u128>,
    facts: Facts,
) -> BTreeMap<u128, Vec<String>> {
    let mut all = BTreeMap::new();
    let fields: Vec<_> = (0..tree.table().schema().fields().len()).collect();
    for id in ids {
        let found = tree.rows_with_id("shop", *id, usize::MAX).await;
        let window = found.window(&fields, 0..found.len()).await;
        assert!(found.unread().is_empty() && window.unread.is_empty(), "{id:x}");
        assert!(!window.rows.is_empty(), "{id:x}");
        all.insert(*id, facts(&(table_rows.batch)(&[window.rows])));
    }
    all
}

/// The IDs that rows have.
fn ids(table: &Table, rows: &[Columns]) -> BTreeSet<u128> {
    rows.iter().flat_map(|rows| rows.wide(table.order.0)).copied().collect()
}

/// The ranges of a table have all rows of the batches; each ID is in one range, and a lookup by ID finds its rows.
async fn have(
    table_rows: BatchRows,
    tree: &Tree,
    objects: &InMemory,
    (batches, facts): (&[Vec<u8>], Facts),
) {
    let table = tree.table();
    let ranges = ranges(table, objects).await;
    let mut expected: Vec<_> = batches.iter().flat_map(|batch| facts(batch)).collect();
    expected.sort();
    let rows = ranges.concat();
    assert!(facts(&(table_rows.batch)(&rows)) == expected, "{}", table.name);
    assert!(ranges.len() > 4, "{} has {}", table.name, ranges.len());
    let of_all = ids(table, &rows);
    let of_each = ranges.iter().map(|range| ids(table, range).len());
    assert_eq!(of_each.sum::<usize>(), of_all.len(), "{}", table.name);
    assert_eq!(tree.size(), (0, ranges.len()));
    // Zero is no ID.
    let of_all: BTreeSet<_> = of_all.into_iter().filter(|id| *id != 0).collect();
    let found_by_id = by_id(table_rows, tree, &of_all, facts).await;
    let of_rows: usize = found_by_id.values().map(Vec::len).sum();
    let with_id = rows.iter().flat_map(|rows| rows.wide(table.order.0)).filter(|id| **id != 0);
    assert_eq!(of_rows, with_id.count());
    assert!(found_by_id.values().flatten().all(|row| expected.binary_search(row).is_ok()));
}

#[test]
fn every_field_of_every_row_is_in_a_range() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut batches = |batch: fn(&mut Rng, usize, usize) -> Vec<u8>| -> Vec<_> {
        (0..RUNS).map(|_| batch(&mut rng, 200, 60)).collect()
    };
    let (spans, of_logs, of_points) =
        (batches(batch), batches(logs::batch), batches(points::batch));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("ranges");
        let objects = Arc::new(InMemory::new());
        let tables = tree::Settings {
            objects: Arc::clone(&objects) as Arc<dyn ObjectStore>,
            root: "data".into(),
            writer: "one".to_owned(),
            final_rows: 100,
            known: Default::default(),
        };
        let files = Arc::new(Directory::open(&folder).expect("a folder"));
        let settings = Settings {
            files,
            tables,
            memtable_bytes: usize::MAX,
            batch_key: curtail_store::recent::BatchKey::new([7; 32]),
        };
        let (mut parts, _) = Store::open(&settings, 0, "f0b1").await.expect("memory");
        let store = Arc::clone(&parts.store);
        for nth in 0..RUNS {
            let batches = [
                (Signal::Traces, &spans[nth]),
                (Signal::Logs, &of_logs[nth]),
                (Signal::Metrics, &of_points[nth]),
            ];
            let segment = 1 + nth as u64;
            for (signal, batch) in batches {
                let batch = batch.clone().into();
                let record = Record { signal, tenant: "shop".into(), received_ns: 0, batch };
                let rows = Decoded::of(signal, &record.batch, &Limits::default());
                store.insert(segment, &record, rows.expect("a batch").0);
            }
            store.seal(segment);
            assert_eq!(parts.flusher.flush(0).await.expect("memory").len(), 3);
        }
        assert!(parts.compactor.compact(0, "range").await.expect("memory"));
        have(SPAN_ROWS, store.spans(), &objects, (&spans, facts)).await;
        have(LOG_ROWS, store.logs(), &objects, (&of_logs, logs::facts)).await;
        have(POINT_ROWS, store.tree(&POINTS), &objects, (&of_points, points::facts)).await;
    });
}
