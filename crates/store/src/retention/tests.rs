use super::*;
use std::collections::BTreeMap;

/// 2026-11-22, at noon.
const NOW_MS: i64 = 1_795_348_800_000;

fn add(day: &str, bytes: u64, modified_ms: i64) -> Add {
    Add {
        path: format!("day={day}/{modified_ms}.parquet"),
        partition_values: BTreeMap::from([("day".to_owned(), Some(day.to_owned()))]),
        size: bytes,
        modification_time: modified_ms,
        data_change: true,
        stats: None,
        tags: None,
    }
}

/// When those were written that go.
fn due(retention: &Retention, adds: &[Add]) -> Vec<i64> {
    let kept = adds.iter().filter_map(|add| Kept::new(0, add, add.size)).collect();
    retention.due(kept, NOW_MS).iter().map(|run| run.modified_ms).collect()
}

#[test]
fn a_day_goes_when_it_is_older_than_the_whole_days_kept() {
    let days = ["2026-10-22", "2026-10-23", "2026-11-21", "2026-11-22", "2026-11-23"];
    let adds: Vec<_> = days.iter().zip(1..).map(|(day, nth)| add(day, 10, nth)).collect();
    let days = |days| Retention { days, bytes: None };
    assert_eq!(due(&days(Some(30)), &adds), [1]);
    assert_eq!(due(&days(Some(29)), &adds), [1, 2]);
    assert_eq!(due(&days(Some(1)), &adds), [1, 2]);
    assert_eq!(due(&days(Some(0)), &adds), [1, 2, 3]);
    // Before the calendar begins nothing has come.
    assert!(due(&days(Some(u32::MAX)), &adds).is_empty());
    assert!(due(&days(None), &adds).is_empty());
}

#[test]
fn the_oldest_runs_go_until_the_rest_fits() {
    let adds = [
        add("2026-11-22", 1_000, 7),
        add("2026-11-21", 10, 2),
        add("2026-11-21", 5_000, 3),
        add("2026-11-21", 11, 1),
        add("2026-11-20", 1, 6),
    ];
    let bytes = |bytes| Retention { days: None, bytes: Some(bytes) };
    assert!(due(&bytes(6_022), &adds).is_empty());
    assert_eq!(due(&bytes(6_021), &adds), [6]);
    // The largest run of a day first, as it took longest to merge; among equal sizes, the oldest.
    assert_eq!(due(&bytes(6_020), &adds), [6, 3]);
    assert_eq!(due(&bytes(1_020), &adds), [6, 3, 1]);
    assert_eq!(due(&bytes(1_000), &adds), [6, 3, 1, 2]);
    assert_eq!(due(&bytes(0), &adds), [6, 3, 1, 2, 7]);
    // Runs deleted for their age make room.
    assert_eq!(due(&Retention { days: Some(1), bytes: Some(6_021) }, &adds), [6]);
}

#[test]
fn of_a_day_ranges_go_before_what_is_as_large_and_was_not_cut() {
    let add_with = |bytes, nth| add("2026-11-21", bytes, nth);
    let tags = Some(BTreeMap::from([(RANGE.to_owned(), Some("true".to_owned()))]));
    let adds = [add_with(5_000, 1), Add { tags, ..add_with(1_000, 2) }, add("2026-11-20", 1, 3)];
    assert_eq!(due(&Retention { days: None, bytes: Some(0) }, &adds), [3, 2, 1]);
}

#[test]
fn a_run_of_no_day_is_kept() {
    let adds = [add("", 10, 1), add("unknown", 10, 2), add("2026-11-01", 10, 3)];
    assert_eq!(due(&Retention { days: Some(1), bytes: Some(0) }, &adds), [3]);
}
