//! What reading a batch costs, in nanoseconds a span: the median of many rounds, and the least. So does writing
//! all attributes as plain JSON, one object a span, and reading them back; and writing the spans as a batch
//! again, with an attribute in a column each.
//!
//! A batch is what an SDK sends: 1,000 spans of one service with 11 attributes each, as they come from a
//! server of HTTP. The cost of copying it is measured as well, to compare with the memory bandwidth.
//!
//! ```sh
//! cargo bench -p curtail-otlp
//! ```

use curtail_otlp::{
    BatchWriter, Limits, PlainValue, ResourceText, ScopeText, Signal, Slice, Span, SpanRow, Spans,
    Value, json, plain,
};
use curtail_units::Rng;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

const SPANS: u32 = 1_000;
const ROUNDS: usize = 301;
const SEED: u64 = 1;

fn main() {
    let json = batch();
    let limits = Limits::default();
    let batch = json::to_protobuf(json.as_bytes(), Signal::Traces, &limits).expect("a good batch");
    let (spans, rejected) = Spans::decode(&batch, &limits).expect("a good batch");
    assert_eq!((spans.spans.len(), rejected.count), (SPANS as usize, 0));
    let attributes = spans.attributes.len() / spans.spans.len();
    let bytes = batch.len() / spans.spans.len();
    println!("{SPANS} spans, {attributes} attributes and {bytes} bytes each, seed {SEED}");
    println!("median of {ROUNDS} rounds, and the least, in ns a span");
    report("copy", || {
        black_box(black_box(&batch).clone());
    });
    report("decode", || {
        drop(black_box(Spans::decode(black_box(&batch), &limits)));
    });
    report("json to protobuf", || {
        drop(black_box(json::to_protobuf(black_box(json.as_bytes()), Signal::Traces, &limits)));
    });
    report("protobuf to json", || {
        drop(black_box(json::from_protobuf(
            black_box(&batch),
            Signal::Traces,
            json::Mapping::Otlp,
        )));
    });
    let mut out = Vec::new();
    report("to plain JSON", || {
        for span in &spans.spans {
            out.clear();
            plain::attributes(&mut out, span.attributes.of(&spans.attributes), black_box(&batch));
        }
    });
    let mut again = Vec::new();
    report("from plain JSON", || {
        for _ in &spans.spans {
            again.clear();
            plain::write_attributes(&mut again, 9, black_box(&out)).expect("plain JSON");
        }
    });
    let columns: Vec<_> = spans.spans.iter().map(|span| columns(span, &spans, &batch)).collect();
    let resource =
        ResourceText { attributes: r#"{"service.name":"shop"}"#, ..ResourceText::default() };
    let scope = ScopeText { name: "http", version: "1.2", ..ScopeText::default() };
    report("rows to protobuf", || {
        let mut writer = BatchWriter::new();
        for (span, attributes) in spans.spans.iter().zip(&columns) {
            let row = SpanRow {
                trace_id: span.trace_id,
                span_id: span.span_id,
                parent_id: span.parent_id,
                start_ns: span.start_ns,
                end_ns: span.end_ns,
                name: "GET /api/items",
                kind: span.kind,
                flags: span.flags,
                attributes,
                ..SpanRow::default()
            };
            writer.span(black_box(&resource), &scope, &row).expect("plain JSON");
        }
        drop(black_box(writer.finish()));
    });
}

/// The attributes of a span as a table has them.
fn columns<'a>(span: &Span, spans: &Spans, batch: &'a [u8]) -> Vec<(&'a str, PlainValue<'a>)> {
    let text = |slice: Slice| std::str::from_utf8(slice.of(batch)).expect("text");
    let attributes = span.attributes.of(&spans.attributes).iter();
    attributes
        .map(|attribute| match attribute.value {
            Value::Text(slice) => (text(attribute.key), PlainValue::Text(text(slice))),
            Value::Int(number) => (text(attribute.key), PlainValue::Int(number)),
            Value::Empty
            | Value::Bool(_)
            | Value::Double(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Bytes(_) => unreachable!("this batch has texts and whole numbers"),
        })
        .collect()
}

fn report(name: &str, mut round: impl FnMut()) {
    let mut all: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            round();
            began.elapsed().as_secs_f64() * 1e9 / f64::from(SPANS)
        })
        .collect();
    all.sort_by(f64::total_cmp);
    println!("{name:>20} {:>8.1} {:>8.1}", all[ROUNDS / 2], all[0]);
}

/// A batch in JSON.
fn batch() -> String {
    let mut rng = Rng::new(SEED);
    let mut spans = String::new();
    for nth in 0..SPANS {
        let separator = if nth == 0 { "" } else { "," };
        let start_ns = 1_750_000_000_000_000_000 + 200_000 * nth as usize;
        let end_ns = start_ns + 1_000_000 + rng.below(50_000_000);
        let (trace, span) =
            (format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64()), rng.next_u64());
        let parent = rng.next_u64();
        let text = |key: &str, value: &str| {
            format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#)
        };
        let int = |key: &str, value: usize| {
            format!(r#"{{"key":"{key}","value":{{"intValue":"{value}"}}}}"#)
        };
        let attributes = [
            text("http.request.method", "GET"),
            text("url.path", &format!("/api/items/{}", rng.below(10_000))),
            text("url.scheme", "http"),
            text("http.route", "/api/items/{item}"),
            int("http.response.status_code", 200),
            text("server.address", &format!("shop-{}.example", rng.below(40))),
            int("server.port", 8_080),
            text("network.peer.address", &format!("10.0.{}.{}", rng.below(4), rng.below(250))),
            text("user_agent.original", "checkout/3.14 (linux)"),
            text("enduser.id", &format!("user-{}", rng.below(100_000))),
            int("http.response.body.size", rng.below(100_000)),
        ]
        .join(",");
        write!(
            spans,
            r#"{separator}{{"traceId":"{trace}","spanId":"{span:016x}","parentSpanId":"{parent:016x}","name":"GET /api/items","kind":2,"startTimeUnixNano":"{start_ns}","endTimeUnixNano":"{end_ns}","attributes":[{attributes}],"status":{{}},"flags":257}}"#
        )
        .expect("text takes everything");
    }
    let service = r#"{"key":"service.name","value":{"stringValue":"shop"}}"#;
    format!(
        r#"{{"resourceSpans":[{{"resource":{{"attributes":[{service}]}},"scopeSpans":[{{"scope":{{"name":"http","version":"1.2"}},"spans":[{spans}]}}]}}]}}"#
    )
}
