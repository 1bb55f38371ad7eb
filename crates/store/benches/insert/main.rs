//! How long inserting a batch of 512 spans takes, in microseconds: alone, and next to a thread that queries without a
//! pause. Half of the spans are in a sealed memtable, half in the active one; there are no runs.
//!
//! ```sh
//! cargo bench -p curtail-store --bench insert
//! ```

#[path = "../run/batches.rs"]
mod batches;

use curtail_otlp::{Decoded, Limits, Signal};
use curtail_store::log::Record;
use curtail_store::query::{Aggregate, AggregateQuery, Filter, SpanField};
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::spans::DURATION;
use curtail_store::{Directory, Settings, Store, tree};
use curtail_units::Quantile;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The spans of each memtable before the measurement: about 128 MiB.
const SPANS: usize = 500_000;
const MEASURED_BATCHES: usize = 1_000;
/// A batch each millisecond: half a million spans a second.
const EVERY: Duration = Duration::from_millis(1);
const ROUNDS: usize = 3;

fn main() {
    println!("{:>24} {:>9} {:>9} {:>9} {:>9}", "µs", "p50", "p99", "p99.9", "max");
    for _ in 0..ROUNDS {
        for (name, is_queried) in [("alone", false), ("beside queries", true)] {
            let (mut took, queries) = insert(is_queried);
            took.sort_by(f64::total_cmp);
            let at = |per_mille: usize| took[(took.len() - 1) * per_mille / 1_000];
            println!(
                "{name:>24} {:>9.0} {:>9.0} {:>9.0} {:>9.0}   {queries} queries",
                at(500),
                at(990),
                at(999),
                at(1_000)
            );
        }
    }
}

/// The time of each insert, and the number of queries during the inserts.
fn insert(is_queried: bool) -> (Vec<f64>, u64) {
    let (_keeper, store) = open();
    let mut records =
        batches::batches(2 * SPANS + MEASURED_BATCHES * 512, 1).into_iter().map(|batch| {
            let batch = batch.into();
            let record =
                Record { signal: Signal::Traces, tenant: "shop".into(), received_ns: 0, batch };
            let rows = Decoded::of(Signal::Traces, &record.batch, &Limits::default());
            (record, rows.expect("a batch").0)
        });
    for segment in 1..=2 {
        for (record, rows) in records.by_ref().take(SPANS / 512) {
            store.insert(segment, &record, rows);
        }
        if segment == 1 {
            store.seal(segment);
        }
    }
    let measured: Vec<_> = records.take(MEASURED_BATCHES).collect();
    let (is_done, queries) = (AtomicBool::new(!is_queried), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            while !is_done.load(Ordering::Relaxed) {
                runtime.block_on(query(&store));
                queries.fetch_add(1, Ordering::Relaxed);
            }
        });
        let began = Instant::now();
        let mut took = Vec::new();
        for (nth, (record, rows)) in (0..).zip(measured) {
            // It may return early, which only makes the load less even.
            thread::park_timeout((EVERY * nth).saturating_sub(began.elapsed()));
            let began = Instant::now();
            store.insert(2, &record, rows);
            took.push(began.elapsed().as_secs_f64() * 1e6);
        }
        is_done.store(true, Ordering::Relaxed);
        (took, queries.load(Ordering::Relaxed))
    })
}

/// Quantiles by service, the keys of attributes (which reads the largest columns), and a trace by its ID.
async fn query(store: &Store) {
    let filter = Filter::of("shop");
    let aggregate = AggregateQuery {
        filter: filter.clone(),
        what: Aggregate::Quantiles(SpanField::Column(DURATION), vec![Quantile::P99]),
        by: vec![SpanField::Column(SERVICE)],
        step_ns: None,
    };
    assert!(!store.spans().measure(&aggregate).await.expect("few groups").groups.is_empty());
    assert!(!store.spans().keys(&filter).await.spans.is_empty());
    assert!(store.spans().rows_with_id("shop", 1, usize::MAX).await.is_empty());
}

fn open() -> (curtail_store::StoreParts, Arc<Store>) {
    let folder = std::env::temp_dir().join(format!("curtail-insert-{}", std::process::id()));
    let settings = Settings {
        files: Arc::new(Directory::open(&folder).expect("a folder")),
        tables: tree::Settings {
            objects: Arc::new(InMemory::new()),
            root: "data".into(),
            writer: "bench".to_owned(),
            final_rows: tree::FINAL_ROWS,
            known: Default::default(),
        },
        memtable_bytes: usize::MAX,
        batch_key: curtail_store::recent::BatchKey::new([7; 32]),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (parts, _) = runtime.block_on(Store::open(&settings, 0, "f0b1")).expect("memory");
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let store = Arc::clone(&parts.store);
    (parts, store)
}
