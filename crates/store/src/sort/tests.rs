use super::*;
use curtail_units::Rng;

const SEED: u64 = 8;
const ROWS: usize = 1_000_000;

/// Rows with these IDs, in this order.
fn keys(ids: impl IntoIterator<Item = u128>) -> Vec<Key> {
    let key =
        |(row, trace_id)| Key { trace_id, start_ns: 7, position: RowPosition { batch: 0, row } };
    (0..).zip(ids).map(key).collect()
}

/// Sorts, and returns how many comparisons it took.
fn comparisons(keys: &mut [Key]) -> usize {
    let mut count = 0;
    keys.sort_unstable_by(|a, b| {
        count += 1;
        a.cmp(b)
    });
    assert!(keys.is_sorted());
    count
}

#[test]
fn rows_lie_by_trace_then_start_then_as_they_came() {
    let rows = [(2, 5), (1, 9), (2, 5), (1, 8), (2, 4)];
    let mut keys: Vec<Key> = (0..)
        .zip(rows)
        .map(|(row, (trace_id, start_ns))| Key {
            trace_id,
            start_ns,
            position: RowPosition { batch: 0, row },
        })
        .collect();
    sort(&mut keys);
    assert_eq!(keys.iter().map(|key| key.position.row).collect::<Vec<_>>(), [3, 1, 4, 0, 2]);
}

#[test]
fn a_million_identical_rows_take_no_more_than_a_comparison_each() {
    assert!(comparisons(&mut keys(std::iter::repeat_n(7, ROWS))) <= ROWS);
}

#[test]
fn rows_in_order_take_no_more_than_a_comparison_each() {
    // Eight rows of each trace.
    assert!(comparisons(&mut keys((0..ROWS as u128).map(|nth| nth / 8))) <= ROWS);
}

#[test]
fn rows_in_reverse_take_few_more() {
    assert!(comparisons(&mut keys((0..ROWS as u128).rev())) <= ROWS);
}

#[test]
fn random_ids_take_what_a_sort_by_comparisons_must() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let mut random = keys((0..ROWS).map(|_| u128::from(rng.next_u64()) << 64));
    let count = comparisons(&mut random);
    // log2 of a million, and a quarter for the choice of pivots.
    assert!(count < 25 * ROWS, "{count} comparisons");
}
