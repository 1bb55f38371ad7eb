//! Summaries are in step with the runs of spans.

use super::*;
use crate::retention::Retention;
use crate::schema::traces;
use crate::traces::SETTLED_AFTER_MS;
use std::collections::BTreeMap;

pub(super) const LATER_MS: i64 = NOW_MS + SETTLED_AFTER_MS;

/// By the path of a run below its table: how many spans each trace has there, in the order of their IDs.
pub(super) async fn summaries(store: &Store) -> BTreeMap<String, Vec<(u128, i64)>> {
    let mut all = BTreeMap::new();
    for run in store.tree(&TRACES).run_set().runs() {
        let mut of_run = Vec::new();
        for group in 0..run.run().groups() {
            let rows = row_group(&run, &**store.tree(&TRACES).objects(), group).await;
            let ids = rows.wide(traces::TRACE_ID).iter().copied();
            of_run.extend(ids.zip(rows.longs(traces::SPAN_COUNT).iter().copied()));
        }
        all.insert(run.add().path.clone(), of_run);
    }
    all
}

/// The same, counted in the runs of spans.
pub(super) async fn counted(store: &Store) -> BTreeMap<String, Vec<(u128, i64)>> {
    let mut all = BTreeMap::new();
    for run in store.spans().run_set().runs() {
        let mut of_run = BTreeMap::new();
        for group in 0..run.run().groups() {
            let rows = row_group(&run, &**store.spans().objects(), group).await;
            for id in rows.wide(spans::TRACE_ID) {
                *of_run.entry(*id).or_default() += 1;
            }
        }
        all.insert(run.add().path.clone(), of_run.into_iter().collect());
    }
    all
}

/// Does what there is to do; returns how many steps it took.
pub(super) async fn settle(parts: &mut StoreParts, now_ms: i64) -> usize {
    let mut steps = 0;
    while parts.compactor.summarize(now_ms).await.expect("nothing fails") {
        steps += 1;
    }
    steps
}

#[test]
fn merged_runs_are_summarized_in_passing_and_others_when_they_are_old() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let store = Arc::clone(&parts.store);
        runs(&mut parts, 1..=10).await;
        assert_eq!(settle(&mut parts, NOW_MS).await, 0);
        assert!(parts.compactor.compact(NOW_MS, "a").await.expect("merged"));
        let merged = "day=2024-10-04/a.parquet".to_owned();
        // Eight batches of three spans, of three traces in turn.
        let of_merged = vec![(7, 6), (8, 9), (9, 9)];
        assert_eq!(summaries(&store).await, BTreeMap::from([(merged, of_merged)]));
        assert_eq!(settle(&mut parts, LATER_MS - 1).await, 0);
        // Two runs are left.
        assert_eq!(settle(&mut parts, LATER_MS).await, 2);
        assert_eq!(summaries(&store).await, counted(&store).await);
        let (again, _) = open(&files, &objects).await.expect("tables");
        assert_eq!(summaries(&again.store).await, counted(&store).await);
    });
}

#[test]
fn when_runs_become_one_or_go_their_summaries_do() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let store = Arc::clone(&parts.store);
        runs(&mut parts, 1..=8).await;
        assert_eq!(settle(&mut parts, LATER_MS).await, 8);
        assert!(parts.compactor.compact(LATER_MS, "a").await.expect("merged"));
        assert_eq!(summaries(&store).await.len(), 1);
        assert_eq!(summaries(&store).await, counted(&store).await);
        // With its summaries a run is larger than it may be.
        let adds = parts.compactor.tables.iter().flat_map(|table| table.writer.files());
        let bytes = Some(adds.map(|add| add.size).sum());
        parts.compactor.expire(&Retention { days: None, bytes }, LATER_MS).await.expect("removed");
        assert_eq!(store.spans().size(), (0, 0));
        assert_eq!(summaries(&store).await.len(), 1);
        assert_eq!(settle(&mut parts, LATER_MS).await, 1);
        assert!(summaries(&store).await.is_empty());
    });
}

#[test]
fn whatever_fails_while_runs_become_one_summaries_come_to_be_those_of_the_runs() {
    run(async {
        for when in [When::Before, When::After] {
            for nth in 0.. {
                let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
                let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
                runs(&mut parts, 1..=9).await;
                objects.arm(nth, when);
                let done = parts.compactor.compact(LATER_MS, "a").await;
                drop(parts.compactor.summarize(LATER_MS).await);
                let has_failed = objects.disarm();
                // As after a restart, and as without one.
                let (mut again, _) = open(&files, &objects).await.expect("nothing fails now");
                for parts in [&mut again, &mut parts] {
                    parts.compactor.refresh().await.expect("nothing fails now");
                    settle(parts, LATER_MS + SETTLED_AFTER_MS).await;
                    let store = Arc::clone(&parts.store);
                    assert_eq!(summaries(&store).await, counted(&store).await, "{when:?} {nth}");
                    assert_eq!(names(&store, 7).await, names_of(&[3, 6, 9]), "{when:?} {nth}");
                }
                if !has_failed {
                    assert!(done.expect("nothing failed") && nth > 20, "{nth}");
                    break;
                }
            }
        }
    });
}

#[test]
fn two_keepers_of_one_table_summarize_each_run_once() {
    run(async {
        let objects = Arc::new(Faulty::default());
        let (one_files, two_files) = (Failing::default(), Failing::default());
        let (mut one, _) = open(&one_files, &objects).await.expect("an empty disk");
        let mut two = settings(&two_files, &objects);
        two.tables.writer = "two".to_owned();
        let (mut two, _) = Store::open(&two, NOW_MS, "f0b2").await.expect("the same tables");
        runs(&mut one, 1..=9).await;
        two.compactor.refresh().await.expect("a table");
        assert_eq!(settle(&mut two, LATER_MS).await, 9);
        // The other one finds that all is done, and what has been done has not gone.
        settle(&mut one, LATER_MS).await;
        assert_eq!(summaries(&one.store).await, counted(&one.store).await);
        assert!(one.compactor.compact(LATER_MS, "one").await.expect("merged"));
        // This reader does not know it yet: nothing is removed.
        runs(&mut two, 10..=10).await;
        settle(&mut two, LATER_MS).await;
        for parts in [&mut one, &mut two] {
            parts.compactor.refresh().await.expect("a table");
            settle(parts, LATER_MS + SETTLED_AFTER_MS).await;
            let store = Arc::clone(&parts.store);
            assert_eq!(summaries(&store).await, counted(&store).await);
            assert_eq!(summaries(&store).await.len(), 3);
        }
    });
}
