//! Rows by ID, a window at a time, and fairness to other tasks meanwhile.

use super::*;
use crate::schema::spans::SPANS;
use futures_util::FutureExt as _;

#[test]
fn windows_have_the_rows_of_a_trace_in_order() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=2_000).map(|span_id| sent(&mut rng, span_id)).collect();
    let fields: Vec<_> = (0..SPANS.schema().fields().len()).collect();
    run(async {
        let tree = filled(&all).await;
        for trace_id in [1, 2, 100, 125, 250, 375, 501, 900] {
            let found = tree.rows_with_id("shop", trace_id, usize::MAX).await;
            let is_wanted = |span: &&Sent| {
                span.tenant == "shop" && u128::from(span.span_id / 4 + 1) == trace_id
            };
            let mut wanted: Vec<_> = all.iter().filter(is_wanted).collect();
            wanted.sort_by_key(|span| span.start_ns);
            let count = wanted.len();
            assert_eq!((found.len(), found.found()), (count, count), "{trace_id}");
            for window_rows in 1..=4 {
                let mut ids = Vec::new();
                for from in (0..found.len()).step_by(window_rows) {
                    let to = found.len().min(from + window_rows);
                    let window = found.window(&fields, from..to).await;
                    assert!(window.unread.is_empty() && window.rows.len() == to - from);
                    ids.extend_from_slice(window.rows.narrow(SPAN_ID));
                }
                let starts = |ids: &[u64]| -> Vec<_> {
                    let start_of =
                        |id: &u64| all[usize::try_from(*id).expect("small") - 1].start_ns;
                    ids.iter().map(start_of).collect()
                };
                assert!(starts(&ids).is_sorted(), "{ids:?}");
                ids.sort_unstable();
                let mut of_trace: Vec<_> = wanted.iter().map(|span| span.span_id).collect();
                of_trace.sort_unstable();
                assert_eq!(ids, of_trace);
            }
            let first = tree.rows_with_id("shop", trace_id, 1).await;
            assert_eq!((first.len(), first.found()), (count.min(1), count));
        }
    });
}

/// Objects in memory and files on a disk are always ready at once.
#[test]
fn a_query_lets_other_tasks_run_while_it_reads() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let all: Vec<_> = (1..=1_000).map(|span_id| sent(&mut rng, span_id)).collect();
    run(async {
        let (tree, filter) = (filled(&all).await, Filter::of("shop"));
        let query = AggregateQuery {
            filter: filter.clone(),
            what: Aggregate::Count,
            by: Vec::new(),
            step_ns: None,
        };
        assert!(tree.measure(&query).now_or_never().is_none());
        assert!(tree.top(&filter, Order::Slowest, HitUnit::Trace, 1_000).now_or_never().is_none());
        assert!(tree.values(&filter, &SpanField::Column(SERVICE), 5).now_or_never().is_none());
        // The first half of the spans are in runs: four of each trace.
        for trace_id in 1..=125 {
            let found = tree.rows_with_id("shop", trace_id, 5).now_or_never();
            assert!(found.is_none(), "trace {trace_id}");
        }
    });
}
