//! Log records.

use super::{any, around, attributes, own, resource, scope, trace_id, value};
use curtail_otlp::{BatchWriter, Limits, LogRow, Logs, Slice, plain};
use curtail_units::Rng;
use std::fmt::Debug;

/// Records of a few traces, and of none.
pub(crate) fn batch(rng: &mut Rng, records: usize, traces: usize) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    for _ in 0..records {
        let is_of_trace = rng.chance(0.5);
        let record = LogRow {
            time_ns: any(rng, &[0, 1, 1_750_000_000_000_000_000, i64::MAX as u64]),
            observed_ns: any(rng, &[0, 1_750_000_000_000_000_000]),
            trace_id: if is_of_trace { trace_id(rng.below(traces)) } else { 0 },
            span_id: if rng.chance(0.5) { rng.next_u64() } else { 0 },
            severity: any(rng, &[0, 9, 17, 24, 99, -1, i32::MIN]),
            severity_text: any(rng, &["", "INFO", "größer"]),
            body: if rng.chance(0.8) { Some(value(rng)) } else { None },
            event_name: any(rng, &["", "device.app"]),
            attributes: &own(rng),
            dropped_attributes: any(rng, &[0, 1, u32::MAX]),
            flags: any(rng, &[0, 1, u32::MAX]),
        };
        writer.record(&resource(rng), &scope(rng), &record).expect("plain JSON");
    }
    writer.finish()
}

/// All that a batch says of each record, in an order that does not depend on that of the batch.
pub(crate) fn facts(batch: &[u8]) -> Vec<String> {
    let (rows, rejected) = Logs::decode(batch, &Limits::default()).expect("a batch");
    assert_eq!(rejected.count, 0);
    let text = |slice: Slice| String::from_utf8_lossy(slice.of(batch));
    let facts = rows.records.iter().map(|record| {
        let mut body = Vec::new();
        plain::value(&mut body, &record.body, batch);
        let parts: [&dyn Debug; 8] = [
            &(record.trace_id, record.span_id, record.time_ns, record.observed_ns),
            &(record.severity, record.flags, record.dropped_attributes),
            &text(record.severity_text),
            &text(record.event_name),
            &String::from_utf8_lossy(&body),
            &std::mem::discriminant(&record.body),
            &attributes(batch, record.attributes.of(&rows.attributes)),
            &around(batch, &rows.envelope, record.scope),
        ];
        format!("{parts:?}")
    });
    let mut facts: Vec<_> = facts.collect();
    facts.sort();
    facts
}
