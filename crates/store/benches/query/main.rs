//! What questions take, warm, in milliseconds: over a million spans, or as many millions as are asked for.
//!
//! Batches as services send them (see `batches`), flushed and compacted as a server does it, objects in memory.
//! One core answers.
//!
//! ```sh
//! cargo bench -p curtail-store --bench query -- 10
//! ```

#[path = "../run/batches.rs"]
mod batches;

use curtail_otlp::{Decoded, Limits, Signal};
use curtail_store::log::Record;
use curtail_store::query::{Condition, Each, Filter, MeasureOf, Of, Order, Test, Value, What};
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::spans::DURATION;
use curtail_store::{Directory, Found, Keeper, Rows, Settings, SpanRows, Store, tree};
use curtail_units::{Quantile, Rng};
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Instant;

/// Batches are made for so many spans at a time.
const CHUNK: usize = 1_000_000;
const ROUNDS: usize = 21;
const LOOKUPS: usize = 2_000;
const MINUTE_NS: u64 = 60_000_000_000;

fn main() {
    let millions = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(questions(millions));
}

async fn questions(millions: u64) {
    let folder = std::env::temp_dir().join(format!("curtail-query-{}", std::process::id()));
    let (mut keeper, _): (Keeper, Found) = Store::open(
        &Settings {
            files: Arc::new(Directory::open(&folder).expect("a folder")),
            tables: tree::Settings {
                objects: Arc::new(InMemory::new()),
                root: "data".into(),
                writer: "bench".to_owned(),
                final_rows: tree::FINAL_ROWS,
                known: Default::default(),
            },
            memtable_bytes: 128 << 20,
            batch_key: curtail_store::recent::BatchKey::new([7; 32]),
        },
        0,
        "f0b1",
    )
    .await
    .expect("memory");
    let ids = fill(&mut keeper, millions).await;
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let store = Arc::clone(keeper.store());
    let spans = store.spans();
    let (in_memory, runs) = spans.size();
    println!("{millions} million spans: {in_memory} in memory, the others in {runs} runs");
    println!("{:>24} {:>9} {:>9}", "ms", "p50", "p99");
    let mut rng = Rng::new(7);
    let mut took = Vec::new();
    for _ in 0..LOOKUPS {
        let id = ids[rng.below(ids.len())];
        let began = Instant::now();
        assert_eq!(spans.with_id("shop", id).await.len(), 8);
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    report("trace by ID", took);
    let filter = Filter::of("shop");
    let service = Condition::Is(Of::Column(SERVICE), Test::Is(Value::from("cart")));
    let of_service = Filter { conditions: vec![service], ..filter.clone() };
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        assert_eq!(spans.top(&of_service, Order::Slowest, Each::Trace, 20).await.hits.len(), 20);
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    report("slowest 20 of a service", took);
    let by_minute = MeasureOf {
        filter: filter.clone(),
        what: What::Quantiles(Of::Column(DURATION), vec![Quantile::P99]),
        by: vec![Of::Column(SERVICE)],
        step_ns: Some(MINUTE_NS),
    };
    let user =
        Condition::Is(Of::Attribute("enduser.id".to_owned()), Test::Is(Value::from("user-17")));
    let of_user = Filter { conditions: vec![user], ..filter };
    let of_user = MeasureOf { filter: of_user, by: Vec::new(), step_ns: None, ..by_minute.clone() };
    for (name, of) in [("p99 by service, minute", by_minute), ("p99 of an attribute", of_user)] {
        let mut took = Vec::new();
        for _ in 0..5 {
            let began = Instant::now();
            assert!(!spans.measure(&of).await.expect("few groups").groups.is_empty());
            took.push(began.elapsed().as_secs_f64() * 1e3);
        }
        report(name, took);
    }
}

/// Stores spans as a server does; returns IDs of traces.
async fn fill(keeper: &mut Keeper, millions: u64) -> Vec<u128> {
    let store = Arc::clone(keeper.store());
    let (mut ids, mut segment) = (Vec::new(), 1);
    for seed in 0..millions {
        for batch in batches::batches(CHUNK, seed) {
            let (rows, _) = SpanRows::decode(&batch, &Limits::default()).expect("a batch");
            ids.extend(
                rows.spans.iter().filter(|span| span.parent_id == 0).map(|span| span.trace_id),
            );
            let batch = batch.into();
            let record =
                Record { signal: Signal::Traces, tenant: "shop".into(), received_ns: 0, batch };
            store.insert(segment, &record, &Decoded::Spans(rows));
            if store.is_full() {
                store.seal(segment);
                segment += 1;
                keeper.flush(0).await.expect("memory");
                let name = format!("merged-{segment}");
                while keeper.compact(0, &name).await.expect("memory") {}
            }
        }
    }
    ids
}

fn report(name: &str, mut took: Vec<f64>) {
    took.sort_by(f64::total_cmp);
    let (median, high) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("{name:>24} {median:>9.2} {high:>9.2}");
}
