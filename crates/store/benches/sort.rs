//! What sorting a million rows of a memtable costs, in nanoseconds a row.
//!
//! ```sh
//! cargo bench -p curtail-store
//! ```

use curtail_store::{Key, RowPosition, sort};
use curtail_units::Rng;
use std::time::Instant;

const ROWS: usize = 1_000_000;
const ROUNDS: usize = 11;
const SEED: u64 = 1;

fn main() {
    println!("{ROWS} rows, seed {SEED}; median of {ROUNDS} rounds, in ns a row");
    let mut rng = Rng::new(SEED);
    let random: Vec<u128> =
        (0..ROWS).map(|_| u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).collect();
    let mut sorted = random.clone();
    sorted.sort_unstable();
    let mut nearly = sorted.clone();
    for _ in 0..ROWS / 100 {
        nearly.swap(rng.below(ROWS), rng.below(ROWS));
    }
    // Spans of a trace mostly come together, from a service each.
    let traces: Vec<u128> = (0..ROWS).map(|nth| random[nth / 8 + rng.below(1_000)]).collect();
    report("random", &random);
    report("traces of 8", &traces);
    report("64 bits", &random.iter().map(|id| id >> 64).collect::<Vec<_>>());
    report("sorted", &sorted);
    report("nearly sorted", &nearly);
    report("reversed", &sorted.iter().rev().copied().collect::<Vec<_>>());
    report("all identical", &[7; ROWS]);
    report("1,000 distinct", &(0..ROWS).map(|_| random[rng.below(1_000)]).collect::<Vec<_>>());
}

fn report(name: &str, ids: &[u128]) {
    let keys: Vec<Key> = (0..)
        .zip(ids)
        .map(|(row, &trace_id)| Key {
            trace_id,
            start_ns: 1_000 * u64::from(row),
            position: RowPosition { batch: 0, row },
        })
        .collect();
    let mut all: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let mut keys = keys.clone();
            let began = Instant::now();
            sort(&mut keys);
            let ns = began.elapsed().as_secs_f64() * 1e9 / ROWS as f64;
            assert!(keys.is_sorted());
            ns
        })
        .collect();
    all.sort_by(f64::total_cmp);
    println!("{name:>20} {:>8.1}", all[ROUNDS / 2]);
}
