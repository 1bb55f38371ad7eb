use super::*;
use crate::schema::spans::{KINDS, SPANS};
use crate::schema::{number, with_name};
use curtail_otlp::{BatchWriter, Limits, ResourceText, ScopeText, SpanRow, Spans};

fn insert(memtable: &mut Memtable, name: &str) {
    let mut writer = BatchWriter::new();
    let span = SpanRow { trace_id: 1, span_id: 1, name, ..SpanRow::default() };
    writer.span(&ResourceText::default(), &ScopeText::default(), &span).expect("no JSON in it");
    let batch = writer.finish();
    let (rows, _) = Spans::decode(&batch, &Limits::default()).expect("a good batch");
    memtable.insert("shop", &batch, &Decoded::Spans(rows));
}

#[test]
fn what_it_takes_is_known_and_what_repeats_takes_little() {
    let mut memtable = Memtable::new(&SPANS);
    assert!(memtable.is_empty());
    for nth in 0..1_000 {
        insert(&mut memtable, &format!("{nth:0>1000}"));
    }
    let different = memtable.bytes();
    assert!((1_000_000..4_000_000).contains(&different), "{different}");
    for _ in 0..1_000 {
        insert(&mut memtable, &"x".repeat(1_000));
    }
    let same = memtable.bytes() - different;
    assert!(same < 1_000 * 200, "{same}");
}

#[test]
fn a_name_that_is_not_known_is_its_number() {
    let named = |kind| {
        let mut named = String::new();
        with_name(&KINDS, kind, |name| name.clone_into(&mut named));
        assert_eq!(number(&KINDS, &named), kind);
        named
    };
    assert_eq!([0, 2, 5, 6, -1].map(named), ["unspecified", "server", "consumer", "6", "-1"]);
}
