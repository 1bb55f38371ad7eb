//! Quantiles are those of what was sent, on the shapes on which buckets of powers of two go wrong by tens of
//! percent.
//!
//! Samples are sent as spans, half of them in runs and half in memory. The quantiles that a query returns are compared
//! with those of the sorted sample, and the sample with its distribution, so that it is the intended one.

use curtail_otlp::{BatchWriter, Decoded, Limits, ResourceText, ScopeText, Signal, SpanRow};
use curtail_sketch::rank;
use curtail_store::log::Record;
use curtail_store::query::{Aggregate, AggregateQuery, Filter, Group, Numbers, SpanField};
use curtail_store::schema::envelope::SERVICE;
use curtail_store::schema::spans::DURATION;
use curtail_store::{Directory, Settings, Store, tree};
use curtail_units::{Duration, Quantile, Rng};
use object_store::memory::InMemory;
use std::path::Path;
use std::sync::Arc;

const SEED: u64 = 31;
const BATCH: usize = 10_000;
const TENANT: &str = "shop";
const QUANTILES: [Quantile; 3] = [Quantile::P50, Quantile::P99, Quantile::P999];

/// The largest error of a quantile, as a share of it.
const ERROR_MAX: f64 = 0.005;

/// Latencies of one service.
struct Sample {
    service: &'static str,
    count: usize,
    draw_ms: fn(&mut Rng) -> f64,
    /// Quantiles as they are known of the distribution, in milliseconds.
    known: &'static [(Quantile, f64)],
}

/// Values near `fast`, and a share of them near `slow`: each a mean and a standard deviation, in milliseconds.
fn mixed(rng: &mut Rng, share: f64, fast: (f64, f64), slow: (f64, f64)) -> f64 {
    let (mean, deviation) = if rng.chance(share) { slow } else { fast };
    mean + deviation * rng.normal()
}

const SAMPLES: [Sample; 5] = [
    Sample {
        service: "narrow",
        count: 200_000,
        draw_ms: |rng| 10.0 + 0.2 * rng.normal(),
        known: &[(Quantile::P99, 10.465)],
    },
    Sample {
        service: "timeouts",
        count: 200_000,
        draw_ms: |rng| mixed(rng, 0.005, (2.0, 0.1), (1_000.0, 5.0)),
        known: &[(Quantile::P99, 2.257), (Quantile::P999, 1_004.2)],
    },
    Sample {
        service: "two ways",
        count: 200_000,
        draw_ms: |rng| mixed(rng, 0.012, (3.0, 0.15), (520.0, 2.0)),
        known: &[(Quantile::P99, 518.1)],
    },
    Sample {
        service: "two ways, few",
        count: 20_000,
        draw_ms: |rng| mixed(rng, 0.012, (3.0, 0.15), (520.0, 2.0)),
        known: &[(Quantile::P50, 3.0), (Quantile::P99, 518.1)],
    },
    Sample {
        service: "lognormal",
        count: 200_000,
        draw_ms: |rng| 10.0 * (0.8 * rng.normal()).exp(),
        known: &[(Quantile::P50, 10.0), (Quantile::P99, 64.3)],
    },
];

/// Spans of a sample, as batches.
fn records(service: &str, durations_ns: &[u64]) -> Vec<Record> {
    let attributes = format!(r#"{{"service.name":"{service}"}}"#);
    let resource = ResourceText { attributes: &attributes, ..ResourceText::default() };
    let batch = |(nth, durations): (usize, &[u64])| {
        let mut writer = BatchWriter::new();
        for (duration, id) in durations.iter().zip((nth * BATCH + 1) as u64..) {
            let start_ns = 1_750_000_000_000_000_000 + id * 1_000_000;
            let row = SpanRow {
                trace_id: u128::from(id),
                span_id: id,
                name: "GET /",
                start_ns,
                end_ns: start_ns + duration,
                ..SpanRow::default()
            };
            writer.span(&resource, &ScopeText::default(), &row).expect("plain JSON");
        }
        let (batch, tenant) = (writer.finish().into(), TENANT.into());
        Record { signal: Signal::Traces, tenant, received_ns: 0, batch }
    };
    durations_ns.chunks(BATCH).enumerate().map(batch).collect()
}

/// A store that has half of each sample in a run, and half in memory.
async fn filled(samples: &[(&str, Vec<u64>)]) -> Arc<Store> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("accuracy");
    let tables = tree::Settings {
        objects: Arc::new(InMemory::new()),
        root: "data".into(),
        writer: "one".to_owned(),
        final_rows: tree::FINAL_ROWS,
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
    for half in 0..2 {
        for (service, durations) in samples {
            for record in records(service, durations).iter().skip(half).step_by(2) {
                let rows = Decoded::of(Signal::Traces, &record.batch, &Limits::default());
                store.insert(1 + half as u64, record, rows.expect("a batch").0);
            }
        }
        if half == 0 {
            store.seal(1);
            assert_eq!(parts.flusher.flush(0).await.expect("memory").len(), 1);
        }
    }
    store
}

/// The value of a quantile's rank.
fn of_rank(sorted: &[u64], quantile: Quantile) -> f64 {
    let rank = rank(quantile, sorted.len() as u64);
    sorted[usize::try_from(rank).expect("few") - 1] as f64
}

#[test]
fn quantiles_of_five_samples_are_within_half_a_percent() {
    println!("seed {SEED}");
    let drawn = SAMPLES.map(|Sample { service, count, draw_ms, .. }| {
        let mut rng = Rng::new(SEED).split(service);
        let ns = |ms: f64| Duration::from_ns_f64(ms * 1e6).as_ns();
        (service, (0..count).map(|_| ns(draw_ms(&mut rng))).collect::<Vec<_>>())
    });
    let query = AggregateQuery {
        filter: Filter::of(TENANT),
        what: Aggregate::Quantiles(SpanField::Column(DURATION), QUANTILES.to_vec()),
        by: vec![SpanField::Column(SERVICE)],
        step_ns: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let result = runtime.block_on(async {
        let store = filled(&drawn).await;
        let (in_memory, runs) = store.spans().size();
        assert!(in_memory >= 400_000 && runs == 1, "{in_memory} {runs}");
        store.spans().measure(&query).await.expect("five groups")
    });
    assert_eq!(result.groups.len(), SAMPLES.len());
    for (sample, (service, mut all)) in SAMPLES.iter().zip(drawn) {
        all.sort_unstable();
        for (quantile, ms) in sample.known {
            let drawn_ms = of_rank(&all, *quantile) / 1e6;
            assert!((drawn_ms / ms - 1.0).abs() < 0.02, "{service}: {drawn_ms} ms, not {ms}");
        }
        let is_it = |group: &&Group| group.values == [Some(service.to_owned())];
        let group = result.groups.iter().find(is_it).expect("a group for each");
        let Numbers::Quantiles(quantiles) = &group.numbers else { panic!("{group:?}") };
        assert_eq!(group.count, sample.count as u64, "{service}");
        for (got, quantile) in quantiles.iter().zip(QUANTILES) {
            let exact = of_rank(&all, quantile);
            let error = (got / exact - 1.0).abs();
            println!("{service} {quantile}: {got} ns, exact {exact} ns, error {error:.6}");
            assert!(error <= ERROR_MAX, "{service} {quantile}: {got} ns, not {exact} ns");
        }
    }
}
