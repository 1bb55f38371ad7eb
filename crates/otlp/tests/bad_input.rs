//! Batches that were cut off, turned over or made up: they are read, or refused with the place, and never
//! more than that.

use curtail_otlp::{
    Decoded, Envelope, Fault, Limits, Logs, Malformed, Points, Signal, Spans, json,
};
use curtail_units::Rng;

const GOLDEN: [(Signal, &[u8]); 3] = [
    (Signal::Traces, include_bytes!("golden/traces.pb")),
    (Signal::Logs, include_bytes!("golden/logs.pb")),
    (Signal::Metrics, include_bytes!("golden/metrics.pb")),
];
const SEED: u64 = 4_317;

/// How many rows there are.
fn rows(signal: Signal, batch: &[u8]) -> Result<usize, Malformed> {
    let limits = Limits::default();
    match signal {
        Signal::Traces => Spans::decode(batch, &limits).map(|(read, _)| read.spans.len()),
        Signal::Logs => Logs::decode(batch, &limits).map(|(read, _)| read.records.len()),
        Signal::Metrics => Points::decode(batch, &limits).map(|(read, _)| read.points.len()),
    }
}

/// Whether a batch is read; if not, that the place is one in it.
fn is_read(signal: Signal, batch: &[u8]) -> bool {
    let rows = rows(signal, batch);
    if let Err(malformed) = rows {
        assert!(malformed.at <= batch.len(), "{malformed}");
    }
    for mapping in [json::Mapping::Otlp, json::Mapping::Protobuf] {
        let Ok(json) = json::from_protobuf(batch, signal, mapping) else { continue };
        serde_json::from_str::<serde_json::Value>(&json).expect("JSON");
    }
    rows.is_ok()
}

#[test]
fn a_batch_that_is_cut_off_anywhere_is_refused() {
    for (signal, batch) in GOLDEN {
        let read: Vec<_> = (0..batch.len()).filter(|&len| is_read(signal, &batch[..len])).collect();
        // Whole resources are whole batches: the one before the empty one in the traces ends there.
        let whole = if signal == Signal::Traces { vec![0, batch.len() - 4] } else { vec![0] };
        assert_eq!(read, whole, "{signal:?}");
    }
}

#[test]
fn a_batch_with_other_bytes_is_read_or_refused() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut outcomes = [0, 0];
    for _ in 0..20_000 {
        let (signal, batch) = GOLDEN[rng.below(3)];
        let mut batch = batch.to_vec();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(batch.len());
            match rng.below(4) {
                0 => batch[at] = rng.next_u64().to_le_bytes()[0],
                1 => batch[at] ^= 1 << rng.below(8),
                2 => drop(batch.remove(at)),
                _ => batch.insert(at, rng.next_u64().to_le_bytes()[0]),
            }
        }
        outcomes[usize::from(is_read(signal, &batch))] += 1;
    }
    // Most bytes are those of texts, where another is as good.
    assert!(outcomes.iter().all(|count| *count > 1_000), "{outcomes:?}");
}

#[test]
fn noise_is_read_or_refused() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    for _ in 0..20_000 {
        let len = rng.below(200);
        let noise: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        for (signal, _) in GOLDEN {
            is_read(signal, &noise);
        }
    }
}

#[test]
fn json_with_other_bytes_is_read_or_refused_and_what_is_read_is_a_batch() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let text = include_bytes!("golden/traces.json");
    let mut outcomes = [0, 0];
    for _ in 0..5_000 {
        let mut text = text.to_vec();
        let at = rng.below(text.len());
        text[at] ^= 1 << rng.below(8);
        let read = json::to_protobuf(&text, Signal::Traces, &Limits::default());
        outcomes[usize::from(read.is_ok())] += 1;
        if let Ok(batch) = read {
            rows(Signal::Traces, &batch).expect("what we write we read");
        }
    }
    assert!(outcomes.iter().all(|count| *count > 500), "{outcomes:?}");
}

/// A value of lists and maps nested `depth` deep, in JSON.
fn nested(depth: usize) -> String {
    let list = (r#"{"arrayValue":{"values":["#, "]}}");
    let map = (r#"{"kvlistValue":{"values":[{"key":"k","value":"#, "}]}}");
    let around = [list, map].into_iter().cycle().take(depth).collect::<Vec<_>>();
    let opened: String = around.iter().map(|(open, _)| *open).collect();
    let closed: String = around.iter().rev().map(|(_, close)| *close).collect();
    opened + r#"{"stringValue":"leaf"}"# + &closed
}

#[test]
fn a_row_with_a_value_nested_too_deep_is_left_out_and_others_are_kept() {
    const IDS: &str = r#""traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":"00f067aa0ba902b7""#;
    let (traces, logs) =
        (["resourceSpans", "scopeSpans", "spans"], ["resourceLogs", "scopeLogs", "logRecords"]);
    let metrics = ["resourceMetrics", "scopeMetrics", "metrics"];
    let (span, none) = (", span 00f067aa0ba902b7, trace 4bf92f3577b34da6a3ce929d0e0e4736", "");
    // Around the value.
    for (signal, lists, begin, end, names) in [
        (Signal::Traces, traces, r#""attributes":[{"key":"k","value":"#, "}]", span),
        (Signal::Traces, traces, r#""events":[{"attributes":[{"key":"k","value":"#, "}]}]", span),
        (Signal::Logs, logs, r#""body":"#, "", span),
        (Signal::Logs, logs, r#""attributes":[{"key":"k","value":"#, "}]", span),
        (
            Signal::Metrics,
            metrics,
            r#""gauge":{"dataPoints":[{"attributes":[{"key":"k","value":"#,
            "}]}]}",
            none,
        ),
        (
            Signal::Metrics,
            metrics,
            r#""sum":{"dataPoints":[{"exemplars":[{"filteredAttributes":[{"key":"k","value":"#,
            "}]}]}]}",
            none,
        ),
    ] {
        let [resources, scopes, list] = lists;
        let row = |depth| format!("{{{IDS},{begin}{}{end}}}", nested(depth));
        for depth in [17, 40, 5_000] {
            let rows = [row(16), row(depth), row(16)].join(",");
            let batch = format!(r#"{{"{resources}":[{{"{scopes}":[{{"{list}":[{rows}]}}]}}]}}"#);
            let limits = Limits::default();
            let batch = json::to_protobuf(batch.as_bytes(), signal, &limits).expect("JSON");
            let (kept, rejected) = Decoded::of(signal, &batch, &limits).expect("a batch");
            assert_eq!(kept.len(), 2, "{begin} {depth}");
            assert_eq!(
                rejected.to_string(),
                format!(
                    "1 rejected; the first is number 2 of the batch{names}: a value with lists or maps nested more \
                     than 16 deep"
                ),
                "{begin}"
            );
        }
    }
}

/// All that is in memory of a batch once it is decoded.
fn parts(signal: Signal, batch: &[u8]) -> usize {
    let limits = Limits::default();
    let around = |envelope: &Envelope| {
        envelope.resources.len() + envelope.scopes.len() + envelope.attributes.len()
    };
    match signal {
        Signal::Traces => {
            let (read, _) = Spans::decode(batch, &limits).expect("golden");
            let lists = read.events.len() + read.links.len() + read.inner_attributes.len();
            around(&read.envelope) + read.spans.len() + read.attributes.len() + lists
        }
        Signal::Logs => {
            let (read, _) = Logs::decode(batch, &limits).expect("golden");
            around(&read.envelope) + read.records.len() + read.attributes.len()
        }
        Signal::Metrics => {
            let (read, _) = Points::decode(batch, &limits).expect("golden");
            around(&read.envelope) + read.metrics.len() + read.points.len() + read.attributes.len()
        }
    }
}

#[test]
fn a_batch_has_as_many_parts_as_it_may() {
    for (signal, batch) in GOLDEN {
        let decoded = |parts| {
            let limits = Limits { parts, ..Limits::default() };
            Decoded::of(signal, batch, &limits).map(drop)
        };
        let parts = u32::try_from(parts(signal, batch)).expect("few");
        assert_eq!(decoded(parts), Ok(()), "{signal:?}");
        let malformed = decoded(parts - 1).expect_err("one too many");
        assert_eq!(malformed.fault, Fault::Parts { max: parts - 1 }, "{signal:?}");
    }
}

#[test]
fn what_is_empty_counts_too() {
    // Two bytes each: an empty resource.
    let batch = [0x0A, 0].repeat(11);
    let limits = Limits { parts: 10, ..Limits::default() };
    let malformed = Spans::decode(&batch, &limits).expect_err("one too many");
    assert_eq!((malformed.fault, malformed.at), (Fault::Parts { max: 10 }, 22));
}
