//! Who asks for a service reads the pages that have its slowest spans, and not those of slower services.

use super::*;
use crate::run::PAGE_ROWS;

const MS_NS: u64 = 1_000_000;

/// A run of five pages. Of two services `slow` is in all of them and takes a second; `fast` is in all but the fourth, and
/// takes two milliseconds, in the second page one time fifty.
async fn tree() -> Arc<Tree> {
    let mut writer = BatchWriter::new();
    for row in 0..5 * PAGE_ROWS {
        let page = row / PAGE_ROWS;
        let is_fast = row % 3 == 0 && page != 3;
        let took_ms = match (is_fast, row) {
            (false, _) => 1_000,
            (true, row) if row == PAGE_ROWS + 3 - PAGE_ROWS % 3 => 50,
            (true, _) => 2,
        };
        let service = if is_fast { "fast" } else { "slow" };
        let attributes = format!(r#"{{"service.name":"{service}"}}"#);
        let resource = ResourceText { attributes: &attributes, ..ResourceText::default() };
        let span = SpanRow {
            trace_id: row as u128 + 1,
            span_id: row as u64 + 1,
            start_ns: row as u64,
            end_ns: row as u64 + took_ms * MS_NS,
            ..SpanRow::default()
        };
        writer.span(&resource, &ScopeText::default(), &span).expect("plain JSON");
    }
    let (batch, tenant) = (writer.finish().into(), "shop".into());
    let record = Record { signal: Signal::Traces, tenant, received_ns: 0, batch };
    let (mut parts, store) = empty().await;
    let rows = Decoded::of(record.signal, &record.batch, &Limits::default());
    store.insert(1, &record, rows.expect("a batch").0);
    store.seal(1);
    parts.flusher.flush(0).await.expect("memory");
    Arc::clone(store.spans())
}

#[test]
fn pages_without_the_service_or_with_faster_spans_of_it_are_not_read() {
    run(async {
        let tree = tree().await;
        let service_filter = |service: &str| Filter {
            conditions: vec![Condition::All(vec![condition(
                SpanField::Resource("service.name".to_owned()),
                Test::Is(text(service)),
            )])],
            ..Filter::of("shop")
        };
        let top = tree.top(&service_filter("fast"), Order::Slowest, HitUnit::Span, 1).await;
        assert_eq!(top.pages, (1, 4));
        assert_eq!(top.hits[0].duration_ns, 50 * MS_NS.cast_signed());
        let top = tree.top(&service_filter("slow"), Order::Slowest, HitUnit::Span, 1).await;
        assert_eq!((top.pages, &*top.hits[0].service), ((1, 5), "slow"));
        let top = tree.top(&service_filter("none"), Order::Slowest, HitUnit::Span, 1).await;
        assert_eq!((top.pages, top.hits), ((0, 0), Vec::new()));
        let count = AggregateQuery {
            filter: service_filter("fast"),
            what: Aggregate::Count,
            by: Vec::new(),
            step_ns: None,
        };
        let counted = tree.measure(&count).await.expect("a measure");
        let fast = (0..5 * PAGE_ROWS).filter(|row| row % 3 == 0 && row / PAGE_ROWS != 3).count();
        assert_eq!(counted.groups[0].count, fast as u64);
    });
}
