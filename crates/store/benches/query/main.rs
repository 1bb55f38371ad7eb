//! The time and the CPU time of queries, warm, in milliseconds: over a million spans, or another number of millions.
//!
//! Batches as services send them (see `batches`), flushed and compacted as a server does it, objects in memory.
//! One thread runs the queries, or another number of threads.
//!
//! ```sh
//! cargo bench -p curtail-store --bench query -- 10 threads=2
//! ```

#[path = "../run/batches.rs"]
mod batches;

use curtail_otlp::{Decoded, Limits, Signal, Spans};
use curtail_store::log::Record;
use curtail_store::query::{
    Aggregate, AggregateQuery, Condition, Filter, HitUnit, Order, SpanField, Test, Value,
};
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::spans::{DURATION, SPANS};
use curtail_store::{Directory, Recovery, Settings, Store, StoreParts, tree};
use curtail_units::{Quantile, Rng};
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Instant;

/// The number of spans for which batches are made at once.
const CHUNK: usize = 1_000_000;
const ROUNDS: usize = 21;
const LOOKUPS: usize = 2_000;
const MINUTE_NS: u64 = 60_000_000_000;

fn main() {
    let millions = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(1);
    let threads = |word: String| word.strip_prefix("threads=")?.parse().ok();
    let runtime = match std::env::args().find_map(threads) {
        None => tokio::runtime::Builder::new_current_thread().build(),
        Some(threads) => {
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build()
        }
    };
    runtime.expect("a runtime").block_on(queries(millions));
}

async fn queries(millions: u64) {
    let folder = std::env::temp_dir().join(format!("curtail-query-{}", std::process::id()));
    let (mut parts, _): (StoreParts, Recovery) = Store::open(
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
    let ids = fill(&mut parts, millions).await;
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let store = Arc::clone(&parts.store);
    let spans = store.spans();
    let (in_memory, runs) = spans.size();
    println!("{millions} million spans: {in_memory} in memory, the others in {runs} runs");
    println!("{:>24} {:>9} {:>9} {:>9}", "ms", "p50", "p99", "CPU");
    traces_by_id(spans, &ids).await;
    let filter = Filter::of("shop");
    let service = Condition::Is(SpanField::Column(SERVICE), Test::Is(Value::from("cart")));
    let of_service = Filter { conditions: vec![service], ..filter.clone() };
    let mut times = Times::new("slowest 20 of a service");
    for _ in 0..ROUNDS {
        let top = spans.top(&of_service, Order::Slowest, HitUnit::Trace, 20);
        times.push(async { assert_eq!(top.await.hits.len(), 20) }).await;
    }
    times.print();
    let by_minute = AggregateQuery {
        filter: filter.clone(),
        what: Aggregate::Quantiles(SpanField::Column(DURATION), vec![Quantile::P99]),
        by: vec![SpanField::Column(SERVICE)],
        step_ns: Some(MINUTE_NS),
    };
    let user = Condition::Is(
        SpanField::Attribute("enduser.id".to_owned()),
        Test::Is(Value::from("user-17")),
    );
    let of_user = Filter { conditions: vec![user], ..filter };
    let of_user =
        AggregateQuery { filter: of_user, by: Vec::new(), step_ns: None, ..by_minute.clone() };
    for (name, query) in [("p99 by service, minute", by_minute), ("p99 of an attribute", of_user)] {
        let mut times = Times::new(name);
        for _ in 0..ROUNDS {
            let result = spans.measure(&query);
            times
                .push(async { assert!(!result.await.expect("few groups").groups.is_empty()) })
                .await;
        }
        times.print();
    }
}

/// Stores spans as a server does; returns IDs of traces.
async fn fill(parts: &mut StoreParts, millions: u64) -> Vec<u128> {
    let store = Arc::clone(&parts.store);
    let (mut ids, mut segment) = (Vec::new(), 1);
    for seed in 0..millions {
        for batch in batches::batches(CHUNK, seed) {
            let (rows, _) = Spans::decode(&batch, &Limits::default()).expect("a batch");
            ids.extend(
                rows.spans.iter().filter(|span| span.parent_id == 0).map(|span| span.trace_id),
            );
            let batch = batch.into();
            let record =
                Record { signal: Signal::Traces, tenant: "shop".into(), received_ns: 0, batch };
            store.insert(segment, &record, Decoded::Spans(rows));
            if store.is_full() {
                store.seal(segment);
                segment += 1;
                parts.flusher.flush(0).await.expect("memory");
                let name = format!("merged-{segment}");
                while parts.compactor.compact(0, &name).await.expect("memory") {}
            }
        }
    }
    ids
}

/// The times of a query.
struct Times {
    name: &'static str,
    took_ms: Vec<f64>,
    cpu_before_ms: f64,
}

impl Times {
    fn new(name: &'static str) -> Self {
        Self { name, took_ms: Vec::new(), cpu_before_ms: cpu_ms() }
    }

    async fn push(&mut self, query: impl Future<Output = ()>) {
        let began = Instant::now();
        query.await;
        self.took_ms.push(began.elapsed().as_secs_f64() * 1e3);
    }

    fn print(mut self) {
        self.took_ms.sort_by(f64::total_cmp);
        let at = |percent: usize| self.took_ms[self.took_ms.len() * percent / 100];
        let cpu = (cpu_ms() - self.cpu_before_ms) / self.took_ms.len() as f64;
        println!("{:>24} {:>9.2} {:>9.2} {cpu:>9.2}", self.name, at(50), at(99));
    }
}

/// The CPU time of all threads.
fn cpu_ms() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux lists threads there");
    let of_thread = |thread: std::io::Result<std::fs::DirEntry>| {
        let path = thread.expect("an entry").path().join("schedstat");
        // A thread may have ended meanwhile.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or_default()
    };
    threads.map(of_thread).sum::<f64>() / 1e6
}

async fn traces_by_id(spans: &tree::Tree, ids: &[u128]) {
    let mut rng = Rng::new(7);
    let mut times = Times::new("trace by ID");
    let fields: Vec<_> = (0..SPANS.schema().fields().len()).collect();
    for _ in 0..LOOKUPS {
        let id = ids[rng.below(ids.len())];
        let trace = async {
            let found = spans.rows_with_id("shop", id, usize::MAX).await;
            assert_eq!(found.window(&fields, 0..found.len()).await.rows.len(), 8);
        };
        times.push(trace).await;
    }
    times.print();
}
