//! Large runs of a day are cut by ranges of IDs: a trace is in one of eight.

use super::traces::{LATER_MS, counted, settle, summaries};
use super::*;
use crate::run::GROUP_ROWS;
use crate::traces::SETTLED_AFTER_MS;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// Every run of a batch is large.
pub(super) const SMALL: u64 = 2;

/// The rows of a batch.
const ROWS: usize = 3;

pub(super) async fn open_with(
    files: &Failing,
    objects: &Arc<Faulty>,
    final_rows: u64,
) -> (StoreParts, Recovery) {
    let mut settings = settings(files, objects);
    settings.tables.final_rows = final_rows;
    Store::open(&settings, NOW_MS, "f0b1").await.expect("good tables")
}

/// By trace, the batches that it has.
type Traces = BTreeMap<u128, Vec<u64>>;

/// Writes `in_run` batches into each run; `id` returns the trace ID of a batch. Returns the batches by trace.
async fn write(
    parts: &mut StoreParts,
    batches: RangeInclusive<u64>,
    in_run: usize,
    mut id: impl FnMut(u64) -> u128,
) -> Traces {
    let (store, mut written) = (Arc::clone(&parts.store), Traces::new());
    let batches: Vec<_> = batches.collect();
    for of_run in batches.chunks(in_run) {
        for nth in of_run {
            let id = id(*nth);
            insert(&store, *nth, &records(*nth, id));
            written.entry(id).or_default().push(*nth);
        }
        store.seal(of_run[of_run.len() - 1]);
        assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 3);
    }
    written
}

/// Merges until nothing is left to merge; returns the number of merges.
async fn compact(parts: &mut StoreParts, name: &str) -> usize {
    let mut steps = 0;
    while parts.compactor.compact(NOW_MS, &format!("{name}{steps}")).await.expect("merged") {
        steps += 1;
    }
    steps
}

/// The IDs of the rows of each run, by its first one; where no row of a run has any, zeros. All runs are ranges.
async fn ids(tree: &Tree) -> Vec<Vec<u128>> {
    let mut all = Vec::new();
    for run in tree.run_set().runs() {
        assert!(run.is_range() && !run.is_tail(), "{}", run.path());
        let mut ids = Vec::new();
        for group in 0..run.run().groups() {
            let rows = row_group(&run, &**tree.objects(), group).await;
            ids.extend_from_slice(rows.wide(tree.table().order.0));
        }
        ids.resize(usize::try_from(run.row_count()).expect("few"), 0);
        all.push(ids);
    }
    all.sort();
    all
}

/// The runs of a tree are one set of ranges; a lookup of a trace reads one range, and of an unknown ID no range.
async fn apart(tree: &Tree, objects: &Faulty) -> Vec<usize> {
    let runs = ids(tree).await;
    for pair in runs.windows(2) {
        assert!(pair[0].last() < pair[1].first(), "{} {pair:?}", tree.table().name);
    }
    assert!(runs.iter().flatten().is_sorted(), "{}", tree.table().name);
    let of_all: BTreeSet<_> = runs.iter().flatten().copied().collect();
    for id in &of_all {
        objects.take_read_paths();
        let found = tree.rows_with_id("shop", *id, usize::MAX).await.len();
        assert_eq!(found, runs.iter().flatten().filter(|each| *each == id).count());
        let read_paths = objects.take_read_paths();
        assert_eq!(read_paths.len(), 1, "{} {id:x}: {read_paths:?}", tree.table().name);
    }
    let last = of_all.last().expect("there are some");
    assert!(tree.rows_with_id("shop", last + 1, usize::MAX).await.is_empty());
    assert!(objects.take_read_paths().is_empty());
    runs.iter().map(Vec::len).collect()
}

/// All traces are as they were written.
async fn whole(store: &Store, written: &Traces) {
    for (id, batches) in written {
        assert_eq!(names(store, *id).await, names_of(batches), "{id:x}");
    }
}

#[test]
fn eight_large_runs_become_ranges_and_a_trace_is_read_from_one() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let random: Vec<_> =
        (0..40).map(|_| u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).collect();
    let by_time = |nth| u128::from(nth) << 80 | 7;
    run(async {
        for is_random in [true, false] {
            let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
            let (mut parts, _) = open_with(&files, &objects, SMALL).await;
            let store = Arc::clone(&parts.store);
            let id = |nth| if is_random { random[rng.below(random.len())] } else { by_time(nth) };
            let written = write(&mut parts, 1..=96, 12, id).await;
            whole(&store, &written).await;
            assert_eq!(compact(&mut parts, "a").await, 1, "ranges are not merged again");
            let (again, _) = open_with(&files, &objects, SMALL).await;
            let longest = ROWS * written.values().map(Vec::len).max().expect("some");
            for store in [&store, &again.store] {
                whole(store, &written).await;
                assert_eq!(summaries(store).await, counted(store).await);
                let sizes = [
                    apart(store.spans(), &objects).await,
                    apart(store.logs(), &objects).await,
                    apart(store.tree(&POINTS), &objects).await,
                ];
                for sizes in sizes {
                    assert_eq!(sizes.iter().sum::<usize>(), 96 * ROWS);
                    let (last, first) = sizes.split_last().expect("some");
                    let share = 12 * ROWS;
                    let is_even = |rows: &usize| (share..share + longest).contains(rows);
                    assert!(first.iter().all(is_even) && *last < share + longest, "{sizes:?}");
                    assert!(sizes.len() >= 6, "{sizes:?}");
                }
            }
            assert!(again.store.spans().run_set().due().is_none());
        }
    });
}

#[test]
fn runs_grow_until_they_are_large_and_then_become_ranges() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open_with(&files, &objects, 20).await;
        let mut written = write(&mut parts, 1..=63, 1, u128::from).await;
        // Seven times eight, of 24 rows each; that is as large as they may be.
        assert_eq!(compact(&mut parts, "a").await, 7);
        assert_eq!(parts.store.spans().size(), (0, 7 + 7));
        written.extend(write(&mut parts, 64..=64, 1, u128::from).await);
        assert_eq!(compact(&mut parts, "b").await, 2);
        let store = Arc::clone(&parts.store);
        assert_eq!(apart(store.spans(), &objects).await, [24; 8]);
        whole(&store, &written).await;
        // Eight more, of the same traces: a set of ranges of their own.
        for (id, batches) in write(&mut parts, 65..=128, 1, |nth| u128::from(nth - 64)).await {
            written.entry(id).or_default().extend(batches);
        }
        assert_eq!(compact(&mut parts, "c").await, 9);
        assert_eq!(ids(store.spans()).await.len(), 16);
        whole(&store, &written).await;
        assert_eq!(summaries(&store).await, counted(&store).await);
        objects.take_read_paths();
        assert_eq!(with_id(store.spans(), "shop", 30).await.rows.len(), 2 * ROWS);
        assert_eq!(objects.take_read_paths().len(), 2);
    });
}

#[test]
fn runs_of_one_trace_or_of_none_become_one_and_stay_so() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open_with(&files, &objects, SMALL).await;
        let store = Arc::clone(&parts.store);
        let written = write(&mut parts, 1..=8, 1, |_| 7).await;
        assert_eq!(compact(&mut parts, "a").await, 1);
        whole(&store, &written).await;
        assert_eq!(ids(store.spans()).await, [[7; 24]]);
        assert_eq!(ids(store.tree(&POINTS)).await.len(), 1);
        // Log records of no trace, and then with some of a trace each.
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open_with(&files, &objects, SMALL).await;
        let store = Arc::clone(&parts.store);
        for nth in 1..=16 {
            let [_, of_none, _] = records(nth, 0);
            let [_, of_trace, _] = records(100 + nth, nth.into());
            insert(&store, nth, &[of_none]);
            if nth > 8 {
                insert(&store, nth, &[of_trace]);
            }
            store.seal(nth);
            assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 1);
            if nth == 8 {
                assert_eq!(compact(&mut parts, "none").await, 1);
                assert_eq!(ids(store.logs()).await, [[0; 24]]);
            }
        }
        assert_eq!(compact(&mut parts, "some").await, 1);
        // Half of the rows are of no trace, and stay together.
        let runs = ids(store.logs()).await;
        assert_eq!(runs.iter().map(Vec::len).collect::<Vec<_>>(), [24, 24, 6, 6, 6, 6]);
        assert_eq!(runs[1], [0; 24]);
        for nth in 9..=16 {
            let [_, logs, _] = tables(&store, nth.into()).await;
            assert_eq!(logs, names_of(&[100 + nth]));
        }
    });
}

/// Each operation fails once while large runs of spans become ranges: what is there is the same, and all that was begun
/// has ended.
#[test]
fn whatever_fails_while_runs_become_ranges_nothing_is_lost_or_doubled() {
    run(async {
        let (eight, mut written) = (Arc::new(Faulty::default()), Traces::new());
        let (mut parts, _) = open_with(&Failing::default(), &eight, SMALL).await;
        for nth in 1..=32 {
            let id = 1 + u128::from(nth % 20);
            let [spans, ..] = records(nth, id);
            insert(&parts.store, nth, &[spans]);
            written.entry(id).or_default().push(nth);
            if nth % 4 == 0 {
                parts.store.seal(nth);
                assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 1);
            }
        }
        for when in [When::Before, When::After] {
            let mut left = 0;
            for nth in 0.. {
                let (files, objects) = (Failing::default(), Arc::new(eight.copy()));
                let (mut parts, _) = open_with(&files, &objects, SMALL).await;
                objects.arm(nth, when);
                let done = parts.compactor.compact(NOW_MS, "a").await;
                drop(parts.compactor.summarize(LATER_MS).await);
                let has_failed = objects.disarm();
                assert_eq!(objects.open_uploads(), 0, "{when:?} {nth}");
                let file_count = objects.paths("data/spans/day=2024-10-04").await.len();
                // What was written is part of the table, or has gone, unless the store reported a wrong result.
                assert!(
                    when == When::After || [8, 16].contains(&file_count),
                    "{file_count} {when:?} {nth}"
                );
                left += usize::from(file_count == 8);
                // As after a restart, and as without one.
                let (mut again, _) = open_with(&files, &objects, SMALL).await;
                for parts in [&mut again, &mut parts] {
                    parts.compactor.refresh().await.expect("nothing fails now");
                    as_written(&parts.store, &written, (when, nth)).await;
                    // What has not been done is done now.
                    compact(parts, "b").await;
                    settle(parts, LATER_MS + SETTLED_AFTER_MS).await;
                    let store = Arc::clone(&parts.store);
                    as_written(&store, &written, (when, nth)).await;
                    assert!(apart(store.spans(), &objects).await.len() > 5, "{when:?} {nth}");
                    assert_eq!(summaries(&store).await, counted(&store).await, "{when:?} {nth}");
                    // Files that are no part of the table go.
                    parts.compactor.clean(i64::MAX / 2).await.expect("nothing fails now");
                    let paths = objects.paths("data/spans/day=2024-10-04").await;
                    assert_eq!(paths.len(), store.spans().size().1, "{when:?} {nth}");
                }
                if !has_failed {
                    assert!(done.expect("nothing failed") && nth > 50 && left > 20, "{nth} {left}");
                    break;
                }
            }
        }
    });
}

/// By then some ranges are whole, and one is being written.
#[test]
fn when_a_run_is_damaged_in_the_middle_nothing_is_left_of_the_ranges() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open_with(&files, &objects, SMALL).await;
        let store = Arc::clone(&parts.store);
        let mut writer = BatchWriter::new();
        for id in 0..=GROUP_ROWS as u64 {
            let span = SpanRow { trace_id: u128::from(id) + 1, span_id: 1, ..SpanRow::default() };
            writer.span(&RESOURCE, &SCOPE, &span).expect("no JSON in it");
        }
        let [record, ..] = records(1, 1);
        insert(&store, 1, &[Record { batch: writer.finish().into(), ..record }]);
        for nth in 1..=8 {
            if nth > 1 {
                insert(&store, nth, &records(nth, u128::MAX)[..1]);
            }
            store.seal(nth);
            assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 1);
        }
        let runs = store.spans().run_set().runs();
        let two_groups = runs.iter().find(|run| run.run().groups() == 2).expect("it was written");
        let at = two_groups.run().want(1, &[spans::TRACE_ID], 0..1).ranges[0].start;
        objects.damage(two_groups.path(), usize::try_from(at).expect("short") + 8).await;
        let error = parts.compactor.compact(NOW_MS, "a").await.expect_err("it cannot be read");
        assert!(error.to_string().contains(two_groups.path().as_ref()), "{error}");
        assert_eq!(objects.open_uploads(), 0);
        assert_eq!(objects.paths("data/spans/day=2024-10-04").await.len(), 8);
        assert!(objects.paths("data/traces/day=2024-10-04").await.is_empty());
        assert!(
            !parts.compactor.compact(NOW_MS, "b").await.expect("nothing to do"),
            "seven are good"
        );
    });
}

/// The spans of all traces are as they were written.
async fn as_written(store: &Store, written: &Traces, what: impl std::fmt::Debug) {
    for (id, batches) in written {
        let [spans, ..] = tables(store, *id).await;
        assert_eq!(spans, names_of(batches), "{what:?}: {id:x}");
    }
}
