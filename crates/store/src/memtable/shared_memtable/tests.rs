use super::*;
use crate::schema::spans::{NAME, SPANS};
use curtail_otlp::{BatchWriter, Limits, ResourceText, ScopeText, Signal, SpanRow};

fn record(name: &str) -> (Record, Decoded) {
    let mut writer = BatchWriter::new();
    let span = SpanRow { trace_id: 1, span_id: 1, name, ..SpanRow::default() };
    writer.span(&ResourceText::default(), &ScopeText::default(), &span).expect("no JSON in it");
    let batch = writer.finish().into();
    let record = Record { signal: Signal::Traces, tenant: "shop".into(), received_ns: 0, batch };
    let rows =
        Decoded::of(Signal::Traces, &record.batch, &Limits::default()).expect("a good batch").0;
    (record, rows)
}

fn insert(memtable: &SharedMemtable, nth: usize) {
    let (record, rows) = record(&nth.to_string());
    memtable.insert(&record, rows);
}

fn names(columns: &Columns) -> Vec<&str> {
    (0..columns.len()).map(|row| columns.coded(NAME).text(row)).collect()
}

#[test]
fn inserts_during_a_query_do_not_wait_and_are_all_seen_after_it() {
    let memtable = SharedMemtable::new(&SPANS);
    insert(&memtable, 1);
    let query = memtable.read();
    // These return although the query holds its lock.
    insert(&memtable, 2);
    insert(&memtable, 3);
    assert_eq!(names(query.columns()), ["1"]);
    let before = memtable.bytes();
    drop(query);
    assert_eq!(names(&memtable.columns(&[NAME].into())), ["1", "2", "3"]);
    assert_eq!(memtable.rows_with_id(1).len(), 3);
    assert!(before > 0 && memtable.bytes() > 0);
    let query = memtable.read();
    insert(&memtable, 4);
    memtable.seal();
    drop(query);
    let sealed = memtable.columns(&[NAME].into());
    assert_eq!(names(&sealed), ["1", "2", "3", "4"]);
    assert!(Arc::ptr_eq(&sealed, &memtable.columns(&BTreeSet::new())), "it is not copied");
}

#[test]
fn a_long_queue_waits_for_the_query() {
    let memtable = SharedMemtable::new(&SPANS);
    let (record, rows) = record(&"x".repeat(QUEUE_BYTES_MAX));
    std::thread::scope(|scope| {
        let query = memtable.read();
        let insert = scope.spawn(|| memtable.insert(&record, rows));
        while memtable.bytes() <= QUEUE_BYTES_MAX {
            std::thread::yield_now();
        }
        assert!(query.is_empty() && !insert.is_finished());
        drop(query);
        insert.join().expect("it is inserted");
        assert!(memtable.queue().batches.is_empty());
        assert_eq!(memtable.read().len(), 1);
    });
}
