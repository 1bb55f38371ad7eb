use super::*;
use curtail_otlp::{Limits, Signal, json};
use curtail_units::Rng;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const SEED: u64 = 3;

/// A batch of spans with these traces and starts; each is named after both.
fn batch(spans: &[(u128, u64)]) -> Batch {
    let mut text = String::new();
    for (trace_id, start_ns) in spans {
        let separator = if text.is_empty() { "" } else { "," };
        write!(
            text,
            r#"{separator}{{"traceId":"{trace_id:032x}","spanId":"00000000000000ff","name":"{trace_id} {start_ns}","startTimeUnixNano":"{start_ns}","attributes":[{{"key":"a"}}]}}"#
        )
        .expect("text takes everything");
    }
    let text = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{text}]}}]}}]}}"#);
    let batch = json::to_protobuf(text.as_bytes(), Signal::Traces).expect("a good batch");
    let (rows, refused) = Spans::decode(&batch, &Limits::default()).expect("a good batch");
    assert_eq!(refused.count, 0);
    Batch { tenant: Arc::from("shop"), received_ns: 1, batch: batch.into(), rows }
}

/// A memtable of many batches, and the names of the spans that it must have, by trace.
fn filled() -> (Memtable, BTreeMap<u128, Vec<String>>) {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let (mut memtable, mut names) = (Memtable::default(), BTreeMap::<_, Vec<_>>::new());
    for _ in 0..50 {
        let spans: Vec<_> = (0..rng.below(20))
            .map(|_| {
                // Traces that share a half of their ID, and spans that began together.
                let trace_id = (rng.below(4) as u128) << 64 | (1 + rng.below(5)) as u128;
                (trace_id, rng.below(10) as u64)
            })
            .collect();
        for (trace_id, start_ns) in &spans {
            names.entry(*trace_id).or_default().push(format!("{trace_id} {start_ns}"));
        }
        memtable.insert(batch(&spans));
    }
    (memtable, names)
}

fn name(memtable: &Memtable, place: Place) -> &str {
    let (batch, span) = memtable.get(place);
    std::str::from_utf8(span.name.of(&batch.batch)).expect("text")
}

#[test]
fn a_trace_is_found_with_all_its_spans() {
    let (memtable, names) = filled();
    assert_eq!(memtable.len(), names.values().map(Vec::len).sum::<usize>());
    for (trace_id, names) in names {
        let found: Vec<_> =
            memtable.trace(trace_id).map(|place| name(&memtable, place).to_owned()).collect();
        assert_eq!(found, names, "{trace_id}");
    }
    assert_eq!(memtable.trace(9 << 64 | 1).count(), 0);
}

#[test]
fn spans_come_in_the_order_of_a_run() {
    let (memtable, names) = filled();
    let mut want: Vec<_> = names.into_values().flatten().collect();
    // What is equal stays in the order in which it came.
    want.sort_by_key(|name| {
        let (trace_id, start_ns) = name.split_once(' ').expect("two numbers");
        (trace_id.parse::<u128>().expect("a number"), start_ns.parse::<u64>().expect("a number"))
    });
    let keys = memtable.sorted();
    let found: Vec<_> = keys.iter().map(|key| name(&memtable, key.place)).collect();
    assert_eq!(found, want);
}

#[test]
fn what_it_takes_is_known() {
    let mut memtable = Memtable::default();
    assert!(memtable.is_empty() && memtable.bytes() == 0);
    let one = batch(&[(1, 1)]);
    let least = one.batch.len() + size_of::<Span>() + size_of::<Attribute>();
    for count in 1..5 {
        memtable.insert(one.clone());
        let bytes = memtable.bytes();
        assert!(
            (count * least..4 * count * least).contains(&bytes),
            "{bytes} for {count}, {least}"
        );
    }
}
