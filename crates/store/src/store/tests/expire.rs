//! Runs that are not kept any longer.

use super::*;
use crate::retention::{Expired, Retention};
use std::collections::BTreeSet;

const DAY_MS: i64 = 86_400_000;

/// Writes a run for each batch, on a day counted from the first.
async fn runs_of_day(parts: &mut StoreParts, batches: std::ops::RangeInclusive<u64>, day: u64) {
    let store = Arc::clone(&parts.store);
    for nth in batches {
        let of_day =
            |record: Record| Record { received_ns: record.received_ns + day * DAY_NS, ..record };
        insert(&store, nth, &records(nth, 7).map(of_day));
        store.seal(nth);
        assert_eq!(parts.flusher.flush(NOW_MS).await.expect("written").len(), 3);
    }
}

fn days(days: u32) -> Retention {
    Retention { days: Some(days), bytes: None }
}

/// The number of expired runs of each table.
fn gone(expired: &[Expired]) -> Vec<(&str, usize)> {
    expired.iter().map(|expiry| (expiry.table, expiry.runs)).collect()
}

#[test]
fn days_that_are_over_leave_all_tables_and_then_the_disk() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        runs_of_day(&mut parts, 1..=2, 0).await;
        runs_of_day(&mut parts, 3..=3, 1).await;
        let store = Arc::clone(&parts.store);
        assert!(
            parts
                .compactor
                .expire(&days(2), NOW_MS + 2 * DAY_MS)
                .await
                .expect("nothing")
                .is_empty()
        );
        let now_ms = NOW_MS + 3 * DAY_MS;
        let expired = parts.compactor.expire(&days(2), now_ms).await.expect("removed");
        assert_eq!(gone(&expired), [("spans", 2), ("logs", 2), ("points", 2)]);
        assert_eq!(
            (expired[0].first.to_string(), expired[0].first),
            ("2024-10-04".to_owned(), expired[0].last)
        );
        assert!(expired.iter().all(|expiry| expiry.bytes > 0));
        assert!(parts.compactor.expire(&days(2), now_ms).await.expect("nothing").is_empty());
        let (again, _) = open(&files, &objects).await.expect("a table");
        for store in [&store, &again.store] {
            assert_eq!(names(store, 7).await, names_of(&[3]));
        }
        // Files are kept for a day for readers; the time at which the store says they were written is unknown here.
        let far_ms = i64::MAX / 2;
        parts.compactor.clean(now_ms).await.expect("nothing to do");
        assert_eq!(objects.paths("data/spans/day=2024-10-04").await.len(), 2);
        parts.compactor.clean(far_ms).await.expect("removed");
        assert!(objects.paths("data/spans/day=2024-10-04").await.is_empty());
        assert_eq!(objects.paths("data/spans/day=2024-10-05").await.len(), 1);
        assert_eq!(names(&store, 7).await, names_of(&[3]));
    });
}

#[test]
fn what_is_late_is_written_and_then_goes() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        let now_ms = NOW_MS + 9 * DAY_MS;
        parts.compactor.expire(&days(1), now_ms).await.expect("nothing");
        runs_of_day(&mut parts, 1..=1, 0).await;
        assert_eq!(names(&parts.store, 7).await, names_of(&[1]));
        let expired = parts.compactor.expire(&days(1), now_ms).await.expect("removed");
        assert_eq!(gone(&expired), [("spans", 1), ("logs", 1), ("points", 1)]);
        assert!(names(&parts.store, 7).await.is_empty());
    });
}

#[test]
fn tables_take_no_more_than_they_may_in_all() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        for day in 0..3 {
            runs_of_day(&mut parts, day + 1..=day + 1, day).await;
        }
        parts.compactor.refresh().await.expect("a table");
        let sizes = parts.compactor.tables.iter().map(|table| table.writer.files());
        let sizes: Vec<Vec<_>> = sizes.map(|adds| adds.map(|add| add.size).collect()).collect();
        let of_day = |day: usize| sizes.iter().map(|table| table[day]).sum::<u64>();
        let bytes = |bytes| Retention { days: None, bytes: Some(bytes) };
        let all = bytes(of_day(0) + of_day(1) + of_day(2));
        assert!(parts.compactor.expire(&all, NOW_MS).await.expect("nothing").is_empty());
        let two = bytes(of_day(1) + of_day(2));
        let expired = parts.compactor.expire(&two, NOW_MS).await.expect("removed");
        assert_eq!(gone(&expired), [("spans", 1), ("logs", 1), ("points", 1)]);
        assert_eq!(names(&parts.store, 7).await, names_of(&[2, 3]));
        parts.compactor.expire(&bytes(0), NOW_MS).await.expect("removed");
        assert!(names(&parts.store, 7).await.is_empty());
    });
}

#[test]
fn runs_that_somebody_else_has_removed_or_merged_do_not_keep_the_others() {
    run(async {
        let objects = Arc::new(Faulty::default());
        let (one_files, two_files) = (Failing::default(), Failing::default());
        let (mut one, _) = open(&one_files, &objects).await.expect("an empty disk");
        let mut two = settings(&two_files, &objects);
        two.tables.writer = "two".to_owned();
        let (mut two, _) = Store::open(&two, NOW_MS, "f0b2").await.expect("the same table");
        runs_of_day(&mut one, 1..=8, 0).await;
        runs_of_day(&mut one, 9..=9, 1).await;
        one.compactor.refresh().await.expect("a table");
        two.compactor.refresh().await.expect("a table");
        assert!(two.compactor.compact(NOW_MS, "two").await.expect("merged"));
        // Writer one has not read this commit: all eight files are merged, and it does not know the merged file.
        let now_ms = NOW_MS + 2 * DAY_MS;
        let paths: BTreeSet<_> =
            one.compactor.tables[0].writer.files().map(|add| add.path.clone()).collect();
        assert_eq!(paths.len(), 9);
        let removed =
            one.compactor.tables[0].writer.remove(&paths, now_ms).await.expect("one is there");
        assert_eq!(removed.len(), 1);
        assert_eq!(one.store.spans().size(), (0, 1));
        // Then the merged file of the eight is removed as well, also in the other tables.
        let expired = one.compactor.expire(&days(1), now_ms).await.expect("removed");
        assert_eq!(gone(&expired), [("spans", 1), ("logs", 1), ("points", 1)]);
        assert_eq!(two.store.spans().size(), (0, 2), "it has not refreshed yet");
        two.compactor.refresh().await.expect("a table");
        for store in [&one.store, &two.store] {
            let runs = [store.spans().size(), store.logs().size(), store.tree(&POINTS).size()];
            assert_eq!(runs, [(0, 0), (0, 1), (0, 1)]);
        }
    });
}

#[test]
fn what_goes_while_it_is_merged_does_not_come_back() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        runs_of_day(&mut parts, 1..=8, 0).await;
        let tree = Arc::clone(parts.store.spans());
        let due = tree.run_set().due().expect("eight are enough");
        let merged = tree
            .run_set()
            .rewrite(due, "late", |_, rows| rows, async |_, _| {})
            .await
            .expect("they are there");
        parts.compactor.expire(&days(1), NOW_MS + 2 * DAY_MS).await.expect("removed");
        let error = parts.compactor.tables[0]
            .writer
            .replace(merged, NOW_MS)
            .await
            .expect_err("they have gone");
        assert!(matches!(error, CommitError::Refused(_)), "{error}");
        assert!(names(&parts.store, 7).await.is_empty());
    });
}

#[test]
fn runs_of_different_days_do_not_become_one() {
    run(async {
        let (files, objects) = (Failing::default(), Arc::new(Faulty::default()));
        let (mut parts, _) = open(&files, &objects).await.expect("an empty disk");
        runs_of_day(&mut parts, 1..=7, 0).await;
        runs_of_day(&mut parts, 8..=14, 1).await;
        assert!(
            !parts.compactor.compact(NOW_MS, "a").await.expect("nothing to do"),
            "seven of each"
        );
        runs_of_day(&mut parts, 15..=15, 1).await;
        assert!(parts.compactor.compact(NOW_MS, "b").await.expect("merged"));
        assert_eq!(objects.paths("data/spans/day=2024-10-04").await.len(), 7);
        assert_eq!(parts.store.spans().size(), (0, 8));
    });
}
