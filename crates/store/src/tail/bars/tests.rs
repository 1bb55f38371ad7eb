use super::*;
use crate::schema::traces::TRACES;
use crate::tail::tests::trace;
use curtail_units::Rng;

const SEED: u64 = 83;

fn ratio(ratio: f64) -> Ratio {
    Ratio::new(ratio).expect("a share")
}

/// The durations that are among the slowest of one operation.
fn slowest(durations: &[i64], share: f64) -> Vec<i64> {
    let mut rows = Columns::new(TRACES.schema());
    for (id, duration_ns) in (1..).zip(durations) {
        trace(&mut rows, "shop", id, Some(("GET /", *duration_ns)), 0);
    }
    let mut gathered = Durations::default();
    gathered.take(&rows);
    let is_slow = gathered.bars(ratio(share)).slowest(&rows);
    let slow = durations.iter().zip(is_slow).filter(|(_, is_slow)| *is_slow);
    slow.map(|(duration_ns, _)| *duration_ns).collect()
}

#[test]
fn the_slowest_share_is_counted_up() {
    let durations: Vec<_> = (1..=1_000).rev().collect();
    assert!(slowest(&durations, 0.01).into_iter().eq((991..=1_000).rev()));
    assert_eq!(slowest(&durations, 0.001), [1_000]);
    assert_eq!(slowest(&durations, 0.001_1), [1_000, 999]);
    // At least one of few.
    assert_eq!(slowest(&[5, 7, 6], 0.01), [7]);
    assert_eq!(slowest(&[5, 7, 6], 1.0), [5, 7, 6]);
    assert!(slowest(&durations, 0.0).is_empty());
    // Traces of equal duration are kept or dropped together.
    assert_eq!(slowest(&[5, 7, 7, 7], 0.25), [7, 7, 7]);
}

#[test]
fn each_tenant_service_and_operation_has_its_own_slowest() {
    let mut rows = Columns::new(TRACES.schema());
    for (id, (tenant, root)) in (1..).zip([
        ("shop", Some(("a", 10))),
        ("shop", Some(("a", 11))),
        ("shop", Some(("b", 1))),
        ("other", Some(("a", 2))),
        ("shop", None),
    ]) {
        trace(&mut rows, tenant, id, root, 0);
    }
    let mut gathered = Durations::default();
    gathered.take(&rows);
    // In another row group values have other numbers.
    let mut more = Columns::new(TRACES.schema());
    trace(&mut more, "other", 6, Some(("b", 1)), 0);
    trace(&mut more, "other", 7, Some(("a", 1)), 0);
    trace(&mut more, "shop", 8, Some(("b", 3)), 0);
    gathered.take(&more);
    let bars = gathered.bars(ratio(0.01));
    assert_eq!(bars.slowest(&rows), [false, true, false, true, true]);
    assert_eq!(bars.slowest(&more), [true, false, true]);
}

#[test]
fn a_known_operation_keeps_its_own_slowest_beyond_the_limit_and_others_share_one() {
    let mut rows = Columns::new(TRACES.schema());
    for id in 1..=OPERATIONS_MAX {
        trace(&mut rows, "shop", id as u128, Some((&format!("GET /{id}"), 1_000)), 0);
    }
    let mut gathered = Durations::default();
    gathered.take(&rows);
    let mut more = Columns::new(TRACES.schema());
    for (id, root) in (1..).zip([("GET /1", 10), ("GET /new", 5), ("GET /other", 7)]) {
        trace(&mut more, "shop", id, Some(root), 0);
    }
    gathered.take(&more);
    assert_eq!(gathered.bars(ratio(0.01)).slowest(&more), [false, false, true]);
}

#[test]
fn of_very_many_none_of_the_slowest_is_missed_and_few_more_are_taken() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let count = EXACT_MAX + 1_000;
    let mut gathered = Durations::default();
    let mut rows = Columns::new(TRACES.schema());
    // Of the operation that the others are of.
    trace(&mut rows, "shop", 1, Some(("a", 0)), 0);
    gathered.take(&rows);
    let mut all = vec![0];
    for _ in 1..count {
        let duration_ns = 1_000_000 + i64::try_from(rng.next_u64() % 100_000_000).expect("small");
        gathered.push(0, duration_ns);
        all.push(duration_ns);
    }
    let bars = gathered.bars(ratio(0.01));
    let nth = count - count.div_ceil(100);
    let exact_ns = *all.select_nth_unstable(nth).1;
    let bar_ns = bars.bars_ns[0];
    assert!(bar_ns <= exact_ns && bar_ns >= exact_ns / 100 * 98, "{bar_ns} for {exact_ns}");
}
