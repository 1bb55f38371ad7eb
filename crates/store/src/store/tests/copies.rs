//! Batches and spans that are sent again.

use super::*;
use crate::recent::WINDOW_NS;

/// The same batch in another encoding, with an unknown field.
fn reencoded(record: &Record) -> Record {
    let batch = [&record.batch[..], &[0x78, 1]].concat().into();
    Record { batch, ..record.clone() }
}

#[test]
fn copies_of_spans_are_dropped_when_a_trace_is_read_and_when_runs_merge() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let store = Arc::clone(&parts.store);
        let holds = async |of_spans: u64| {
            let [spans, logs, points] = tables(&store, 7).await;
            assert_eq!(spans, names_of(&[1]), "one copy is read");
            // Identical log records and points are legitimate.
            assert_eq!((logs.len(), points.len()), (24, 24));
            assert_eq!(
                of_spans,
                store.spans().run_set().runs().iter().map(|run| run.row_count()).sum::<u64>()
            );
        };
        for nth in 1..=8 {
            // Two copies in one run, and one in each of seven others.
            let all = records(1, 7);
            let again: Vec<_> = all.iter().map(reencoded).collect();
            insert(&store, nth, if nth % 2 == 0 { &again } else { &all });
            store.seal(nth);
            assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 3);
        }
        holds(24).await;
        assert!(parts.compactor.compact(NOW_MS, "a").await.expect("eight runs are merged"));
        holds(3).await;
        let (again, _) = open(&files, &objects).await.expect("a table");
        assert_eq!(tables(&again.store, 7).await, tables(&store, 7).await);
    });
}

#[test]
fn spans_that_differ_in_any_field_are_not_copies() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let store = Arc::clone(&parts.store);
        let plain =
            SpanRow { trace_id: 7, span_id: 1, start_ns: 5, end_ns: 9, ..SpanRow::default() };
        for (nth, (tenant, span)) in (1..).zip([
            ("shop", plain),
            ("other", plain),
            ("shop", SpanRow { span_id: 2, ..plain }),
            ("shop", SpanRow { name: "a", ..plain }),
            ("shop", SpanRow { end_ns: 10, ..plain }),
            ("shop", SpanRow { parent_id: 3, ..plain }),
            ("shop", SpanRow { start_ns: 4, end_ns: 8, ..plain }),
            ("shop", plain),
        ]) {
            let mut spans = BatchWriter::new();
            spans.span(&RESOURCE, &SCOPE, &span).expect("a valid span");
            let record = Record {
                signal: Signal::Traces,
                tenant: tenant.into(),
                received_ns: NOON_NS,
                batch: spans.finish().into(),
            };
            insert(&store, nth, &[record]);
            store.seal(nth);
            assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 1);
        }
        assert_eq!(with_id(store.spans(), "shop", 7).await.rows.len(), 6);
        assert!(parts.compactor.compact(NOW_MS, "a").await.expect("eight runs are merged"));
        assert_eq!(store.spans().run_set().runs()[0].row_count(), 7, "one of eight rows is a copy");
        assert_eq!(with_id(store.spans(), "shop", 7).await.rows.len(), 6);
        assert_eq!(with_id(store.spans(), "other", 7).await.rows.len(), 1);
    });
}

#[test]
fn a_duplicate_batch_in_the_log_is_inserted_once_and_then_known() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let mut log = Log::open(Arc::new(files.clone()), 0, Rng::new(SEED)).expect("an empty disk");
        let all = records(1, 7);
        // As if a group was written but could be neither synced nor cut off.
        log.append(&all).expect("written");
        log.append(&all).expect("written");
        let (mut parts, found) = open(&files, &objects).await.expect("a good log");
        assert_eq!(found.rows, [("spans", 3), ("logs", 6), ("points", 3)]);
        assert_eq!(found.duplicates, 2);
        while !parts.flusher.flush(NOW_MS).await.expect("written").is_empty() {}
        assert!(log::segments(&files).expect("a list").is_empty());
        // The log's segment is removed, and then the power fails.
        let files = files.after_power_cut(&mut Rng::new(SEED));
        let (parts, _) = open(&files, &objects).await.expect("good tables");
        let recent = parts.store.recent();
        let [spans, logs, points] = all.map(|record| recent.key().id_of(&record));
        assert_eq!(logs, None, "identical log records are legitimate");
        let ids = [spans, points].map(|id| id.expect("spans and points have IDs"));
        assert!(ids.iter().all(|id| recent.contains(*id, NOON_NS + 1 + WINDOW_NS)));
        assert!(!ids.iter().any(|id| recent.contains(*id, NOON_NS + 2 + WINDOW_NS)));
    });
}

#[test]
fn a_batch_after_a_failed_cut_is_stored_when_it_is_acknowledged() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let store = Arc::clone(&parts.store);
        let mut log = Log::open(Arc::new(files.clone()), 0, Rng::new(SEED)).expect("an empty disk");
        let [first, second] = [1, 2].map(|nth| records(nth, 7));
        insert(&store, log.append(&first).expect("written"), &first);
        // The second group is written but neither synced nor cut off, and all operations fail for a while.
        let next = files.operations();
        files.fail(next + 1..usize::MAX);
        log.append(&second).expect_err("the sync fails");
        if log.end_segment().is_ok() {
            store.seal(log.last_segment());
        }
        parts.flusher.flush(NOW_MS).await.ok();
        files.fail(0..0);
        insert(&store, log.append(&second).expect("written"), &second);
        // The process ends before any segment is removed.
        let (parts, _) = open(&files, &objects).await.expect("good tables");
        assert_eq!(names(&parts.store, 7).await, names_of(&[1, 2]));
    });
}

#[test]
fn segments_are_removed_from_a_disk_that_is_too_full_for_a_flush_record() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let store = Arc::clone(&parts.store);
        let mut log = Log::open(Arc::new(files.clone()), 0, Rng::new(SEED)).expect("an empty disk");
        let all: Vec<_> = (1..=2).map(|nth| records(nth, 7)).collect();
        for records in &all {
            let segment = log.append(records).expect("written");
            insert(&store, segment, records);
            for record in records {
                if let Some(id) = store.recent().key().id_of(record) {
                    store.recent().insert(id, record.received_ns, segment);
                }
            }
            log.end_segment().expect("ended");
        }
        store.seal(log.last_segment());
        files.fill();
        assert_eq!(parts.flusher.flush(NOW_MS).await.expect("there is room now").len(), 3);
        assert!(log::segments(&files).expect("a list").is_empty());
        let (again, found) = open(&files, &objects).await.expect("good tables");
        assert!(found.unread_records.is_empty());
        let recent = again.store.recent();
        let ids = all.iter().flatten().filter_map(|record| recent.key().id_of(record));
        assert!(ids.into_iter().all(|id| recent.contains(id, NOON_NS)));
    });
}
