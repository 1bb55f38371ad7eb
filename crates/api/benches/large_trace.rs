//! The cost of a trace of a million spans, or of as many thousands as the argument says: seconds, bytes, and the memory
//! of the process before, at its maximum, and afterwards.
//!
//! The trace has a root and a call below every second span, in 50 services with ten attributes a span. All but the last
//! tenth is in runs, as objects in memory. The client reads as fast as it can.
//!
//! ```sh
//! cargo bench -p curtail-api --bench large_trace -- 1000
//! ```

use curtail_api::{Api, MetricsPage, Sql, SqlProgram};
use curtail_otlp::{BatchWriter, Decoded, PlainValue, ResourceText, ScopeText, Signal, SpanRow};
use curtail_store::log::Record;
use curtail_store::{DEFAULT_TENANT, Directory, Settings, Store, tree};
use object_store::memory::InMemory;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const BATCH_SPANS: u64 = 10_000;
const SERVICES: u64 = 50;
const TARGETS: [&str; 3] = ["/api/v2/traces/77", "/api/traces/77", "/jaeger/api/traces/77"];

/// No page of metrics.
#[derive(Debug)]
struct NoMetrics;

impl MetricsPage for NoMetrics {
    fn render(&self, _: curtail_metrics::MetricsForm) -> (&'static str, Vec<u8>) {
        ("text/plain", Vec::new())
    }
}

fn main() {
    let thousands = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(1_000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(questions(thousands));
}

async fn questions(thousands: u64) {
    let store = filled(thousands * 1_000).await;
    let sql = Sql::new(SqlProgram::in_folder_of(Path::new("curtail")), None);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (limits, metrics, page) = (Arc::default(), Arc::default(), Arc::new(NoMetrics));
    let (access, query_threads) = (Arc::default(), None);
    let api = Api { tls: None, access, store, sql, limits, query_threads, metrics, page };
    let api = curtail_api::start(any, api).await.expect("a port");
    let address = api.address();
    println!("{} spans", thousands * 1_000);
    println!(
        "{:>26} {:>8} {:>8} {:>10} {:>9} {:>10}",
        "", "s", "MB", "MB before", "MB most", "MB after"
    );
    for accept in ["application/json", "application/protobuf"] {
        for target in TARGETS {
            if accept == "application/protobuf" && target.starts_with("/jaeger") {
                continue;
            }
            // Resets the kernel's maximum.
            std::fs::write("/proc/self/clear_refs", "5").expect("Linux");
            let (before, begun) = (memory("VmRSS"), Instant::now());
            let bytes = tokio::task::spawn_blocking(move || get(address, target, accept)).await;
            let (bytes, seconds) = (bytes.expect("a response"), begun.elapsed().as_secs_f64());
            println!(
                "{target:>26} {seconds:>8.1} {:>8.1} {before:>10.0} {:>9.0} {:>10.0}  {accept}",
                bytes as f64 / 1e6,
                memory("VmHWM"),
                memory("VmRSS"),
            );
        }
    }
    api.stop(std::time::Duration::ZERO).await;
}

/// Reads a whole response; returns its length in bytes.
fn get(address: SocketAddr, target: &str, accept: &str) -> usize {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let head = format!(
        "GET {target} HTTP/1.1\r\nhost: x\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    let (mut buffer, mut bytes, mut first) = (vec![0; 1 << 16], 0, Vec::new());
    loop {
        let len = stream.read(&mut buffer).expect("it is whole");
        if len == 0 {
            break;
        }
        bytes += len;
        first.extend_from_slice(&buffer[..len.min(100_usize.saturating_sub(first.len()))]);
    }
    assert!(first.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&first));
    bytes
}

/// A line of the kernel's status of this process, in megabytes.
fn memory(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(name)).expect("it is there");
    let kib: f64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB");
    kib * 1_024.0 / 1e6
}

async fn filled(spans: u64) -> Arc<Store> {
    let folder = std::env::temp_dir().join(format!("curtail-large-trace-{}", std::process::id()));
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
    let (mut parts, _) = Store::open(&settings, 0, "f0b1").await.expect("memory");
    let store = Arc::clone(&parts.store);
    for (segment, first) in (1..).zip((1..=spans).step_by(100_000)) {
        let last = spans.min(first + 99_999);
        for from in (first..=last).step_by(usize::try_from(BATCH_SPANS).expect("small")) {
            let batch = batch(from..=last.min(from + BATCH_SPANS - 1)).into();
            let record = Record {
                signal: Signal::Traces,
                tenant: DEFAULT_TENANT.into(),
                received_ns: 0,
                batch,
            };
            let rows = Decoded::of(Signal::Traces, &record.batch, &curtail_otlp::Limits::default());
            store.insert(segment, &record, rows.expect("a batch").0);
        }
        if last < spans {
            store.seal(segment);
            parts.flusher.flush(0).await.expect("memory and a folder");
        }
    }
    std::fs::remove_dir_all(&folder).expect("the bench made it");
    store
}

fn batch(ids: std::ops::RangeInclusive<u64>) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    for id in ids {
        let service = id % SERVICES;
        let resource =
            format!(r#"{{"service.name":"service-{service}","host.name":"host-{service}"}}"#);
        let resource = ResourceText { attributes: &resource, ..ResourceText::default() };
        let (path, user) = (format!("/cart/{}", id % 1_000), format!("user-{}", id % 10_000));
        let attributes = [
            ("http.request.method", PlainValue::Text("GET")),
            ("http.response.status_code", PlainValue::Int(200)),
            ("http.route", PlainValue::Text("/cart/{id}")),
            ("url.path", PlainValue::Text(&path)),
            ("server.address", PlainValue::Text("cart.shop.internal")),
            ("server.port", PlainValue::Int(8_080)),
            ("user.id", PlainValue::Text(&user)),
            ("shop.price", PlainValue::Double(12.5)),
            ("shop.region", PlainValue::Text("eu-west-1")),
            ("shop.is_member", PlainValue::Bool(id % 3 == 0)),
        ];
        let start_ns = 1_750_000_000_000_000_000 + id * 1_000;
        let span = SpanRow {
            trace_id: 0x77,
            span_id: id,
            parent_id: id / 2,
            name: "GET /cart/{id}",
            kind: 2,
            start_ns,
            end_ns: start_ns + 1_000_000,
            attributes: &attributes,
            ..SpanRow::default()
        };
        let scope = ScopeText { name: "shop", version: "1.0", ..ScopeText::default() };
        writer.span(&resource, &scope, &span).expect("plain JSON");
    }
    writer.finish()
}
