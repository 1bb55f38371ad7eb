//! Data folders, written by the store, and what their rows must come to.

use curtail_otlp::{
    BatchWriter, Decoded, Limits, LogRow, PlainValue, ResourceText, ScopeText, Signal, SpanRow,
    json::to_protobuf,
};
use curtail_store::log::Record;
use curtail_store::{Directory, Settings, Store, StoreParts, tree};
use curtail_units::Rng;
use object_store::local::LocalFileSystem;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const DAY_NS: u64 = 86_400_000_000_000;
/// The noon of 2024-10-04.
pub(crate) const NOON_NS: u64 = DAY_NS * 20_000 + DAY_NS / 2;
const NOW_MS: i64 = 1_728_043_200_000;

pub(crate) const SERVICES: [&str; 3] = ["cart", "pay", "shop"];
const ROUTES: [&str; 2] = ["/cart/{id}", "/pay"];

/// A span as it is sent, and expected back.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) trace_id: u128,
    pub(crate) span_id: u64,
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) service: &'static str,
    pub(crate) route: &'static str,
    pub(crate) basket: String,
    pub(crate) items: i64,
}

/// `count` spans from `first` on: four a trace, with durations that few have in common.
pub(crate) fn spans(rng: &mut Rng, first: u64, count: u64) -> Vec<Sent> {
    let span = |nth: u64| Sent {
        trace_id: trace_id(nth / 4),
        span_id: nth + 1,
        start_ns: NOON_NS + nth * 1_000_000,
        duration_ns: 1_000_000 + rng.next_u64() % 1_000_000_000,
        service: SERVICES[rng.below(3)],
        route: ROUTES[rng.below(2)],
        basket: format!("b{}", rng.below(50)),
        items: i64::try_from(rng.below(9)).expect("it is small"),
    };
    (first..first + count).map(span).collect()
}

/// That of the nth trace: in no order.
pub(crate) fn trace_id(nth: u64) -> u128 {
    let mut rng = Rng::new(nth);
    u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())
}

/// A folder, and the store that writes to it.
pub(crate) struct Writer {
    pub(crate) data: PathBuf,
    /// Whose rows are written.
    pub(crate) tenant: &'static str,
    parts: StoreParts,
    segment: u64,
}

impl Writer {
    /// An empty folder, under a name that no other test uses.
    pub(crate) async fn new(name: &str) -> Self {
        let data = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        if data.exists() {
            std::fs::remove_dir_all(&data).expect("it is ours");
        }
        let (log, tables) = (data.join("log"), data.join("tables"));
        std::fs::create_dir_all(&tables).expect("the folder is cargo's, for tests to write in");
        let objects = LocalFileSystem::new_with_prefix(&tables).expect("it is there");
        let settings = Settings {
            files: Arc::new(Directory::open(&log).expect("it is ours alone")),
            tables: tree::Settings {
                objects: Arc::new(objects),
                root: object_store::path::Path::default(),
                writer: "one".to_owned(),
                final_rows: tree::FINAL_ROWS,
                known: Default::default(),
            },
            memtable_bytes: 1,
            batch_key: curtail_store::recent::BatchKey::new([7; 32]),
        };
        let (parts, _) = Store::open(&settings, NOW_MS, "f0b1").await.expect("an empty folder");
        Self { data, tenant: "shop", parts, segment: 0 }
    }

    /// Writes a run of spans that arrived this number of days after the first.
    pub(crate) async fn spans(&mut self, spans: &[Sent], days: u64) {
        let mut writer = BatchWriter::new();
        for sent in spans {
            let resource = &format!(r#"{{"service.name":"{}"}}"#, sent.service);
            let resource = ResourceText { attributes: resource, ..ResourceText::default() };
            let attributes = [
                ("http.route", PlainValue::Text(sent.route)),
                ("shop.basket", PlainValue::Text(&sent.basket)),
                ("shop.items", PlainValue::Int(sent.items)),
            ];
            let span = SpanRow {
                trace_id: sent.trace_id,
                span_id: sent.span_id,
                start_ns: sent.start_ns,
                end_ns: sent.start_ns + sent.duration_ns,
                name: "GET /",
                kind: 2,
                attributes: &attributes,
                ..SpanRow::default()
            };
            writer.span(&resource, &ScopeText::default(), &span).expect("plain JSON");
        }
        self.write(Signal::Traces, writer.finish(), days).await;
    }

    /// Writes a run of log records, one for each trace, which says its number.
    pub(crate) async fn logs(&mut self, traces: std::ops::Range<u64>) {
        let mut writer = BatchWriter::new();
        for nth in traces {
            let body = &format!("trace {nth}\n\u{1b}[31m");
            let (trace_id, body) = (trace_id(nth), Some(PlainValue::Text(body)));
            let log = LogRow { trace_id, time_ns: NOON_NS + nth, body, ..LogRow::default() };
            let (resource, scope) = (ResourceText::default(), ScopeText::default());
            writer.record(&resource, &scope, &log).expect("plain JSON");
        }
        self.write(Signal::Logs, writer.finish(), 0).await;
    }

    /// Writes a run of points of one metric, with these values.
    pub(crate) async fn points(&mut self, values: &[f64]) {
        let points = (NOON_NS..).zip(values);
        let points: Vec<_> = points
            .map(|(time_ns, value)| json!({ "timeUnixNano": time_ns, "asDouble": value }))
            .collect();
        let metric = json!({ "name": "load", "gauge": { "dataPoints": points } });
        let batch = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] });
        let batch = to_protobuf(batch.to_string().as_bytes(), Signal::Metrics, &Limits::default());
        self.write(Signal::Metrics, batch.expect("OTLP"), 0).await;
    }

    /// Merges runs and writes checkpoints, as long as there is something to do.
    pub(crate) async fn keep(&mut self) -> usize {
        self.parts.compactor.refresh().await.expect("a table");
        self.parts.compactor.checkpoint(NOW_MS).await.expect("the disk is good");
        let mut merged = 0;
        while self
            .parts
            .compactor
            .compact(NOW_MS, &format!("m{merged}"))
            .await
            .expect("the runs are good")
        {
            merged += 1;
        }
        merged
    }

    async fn write(&mut self, signal: Signal, batch: Vec<u8>, days: u64) {
        self.segment += 1;
        let received_ns = NOON_NS + days * DAY_NS;
        let record =
            Record { signal, tenant: self.tenant.into(), received_ns, batch: batch.into() };
        let rows = Decoded::of(signal, &record.batch, &Limits::default()).expect("a good batch");
        self.parts.store.insert(self.segment, &record, rows.0);
        self.parts.store.seal(self.segment);
        let written = self.parts.flusher.flush(NOW_MS).await.expect("the disk is good");
        assert_eq!(written.len(), 1);
    }
}

/// Runs a test that writes.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(test)
}

/// A folder of 20,000 spans on two days, 500 log records, and 10 points; and its spans.
pub(crate) fn shop(name: &str) -> (PathBuf, Vec<Sent>) {
    const SEED: u64 = 71;
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    run(async {
        let mut writer = Writer::new(name).await;
        // More than two pages.
        let mut all = spans(&mut rng, 0, 18_000);
        writer.spans(&all, 0).await;
        let later = spans(&mut rng, 18_000, 2_000);
        writer.spans(&later, 1).await;
        all.extend(later);
        writer.logs(0..500).await;
        writer.points(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.5]).await;
        (writer.data, all)
    })
}
