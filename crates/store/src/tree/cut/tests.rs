use super::*;
use curtail_units::Rng;

const SEED: u64 = 83;

/// Cuts IDs that come in groups; returns the runs.
fn runs(ids: &[u128], share: u64, in_group: usize) -> Vec<Vec<u128>> {
    let mut cut = Cut::new(share);
    let mut runs = vec![Vec::new()];
    for group in ids.chunks(in_group) {
        for (nth, part) in cut.parts(group, group.len()).into_iter().enumerate() {
            if nth > 0 {
                runs.push(Vec::new());
            }
            runs.last_mut().expect("there is one").extend(&group[part]);
        }
    }
    runs
}

/// IDs, how many rows are a share, and the runs that they come to.
type Case<'a> = (&'a [u128], u64, &'a [&'a [u128]]);

#[test]
fn a_run_ends_where_it_has_its_share_and_the_id_changes() {
    let cases: [Case<'_>; 6] = [
        (&[1, 2, 3, 4], 2, &[&[1, 2], &[3, 4]]),
        (&[1, 2, 2, 2, 3], 2, &[&[1, 2, 2, 2], &[3]]),
        (&[1, 1, 1, 2, 3, 4], 2, &[&[1, 1, 1], &[2, 3], &[4]]),
        (&[0, 0, 0, 5], 1, &[&[0, 0, 0], &[5]]),
        (&[7, 7, 7, 7], 1, &[&[7, 7, 7, 7]]),
        (&[1, 2, 3], u64::MAX, &[&[1, 2, 3]]),
    ];
    for (ids, share, want) in cases {
        for in_group in 1..=ids.len() {
            assert_eq!(runs(ids, share, in_group), want, "{ids:?} in groups of {in_group}");
        }
    }
}

#[test]
fn rows_without_ids_are_one_run() {
    let mut cut = Cut::new(2);
    for _ in 0..3 {
        let parts = cut.parts(&[], 5);
        assert!(parts.len() == 1 && parts[0] == (0..5), "{parts:?}");
    }
}

#[test]
fn whatever_the_ids_no_run_is_longer_than_it_must_be_and_no_id_is_in_two() {
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    for _ in 0..500 {
        let rows = 1 + rng.below(300);
        let id_count = 1 + rng.below(rows);
        let mut ids: Vec<_> = (0..rows).map(|_| rng.below(id_count) as u128).collect();
        ids.sort_unstable();
        let share = rows.div_ceil(8);
        let runs = runs(&ids, share as u64, 1 + rng.below(rows));
        assert_eq!(runs.concat(), ids);
        assert!(runs.len() <= 8 && runs.iter().all(|run| !run.is_empty()));
        for pair in runs.windows(2) {
            let [run, next] = pair else { panic!("two") };
            let last = run.last().expect("it has rows");
            assert!(run.len() >= share && last < next.first().expect("it has rows"));
            let before = run.iter().filter(|id| *id < last).count();
            assert!(before < share, "{before} rows were enough, of {share}");
        }
    }
}
