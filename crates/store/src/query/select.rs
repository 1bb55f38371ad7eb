//! Finds the number at a rank among unsorted numbers, which are in several pieces and are not moved.
//!
//! Two numbers of a sorted sample most probably enclose the wanted number. One pass counts the numbers below these
//! bounds, and collects the numbers between them. If the wanted number is not between them, all numbers are collected.
//!
//! **Source**: Floyd and Rivest, "Expected time bounds for selection", CACM 18, 1975.

/// The size of the sample.
const SAMPLE: usize = 2_048;

/// Minimum count of numbers from which a sample is taken.
const SAMPLED_MIN: usize = 4 * SAMPLE;

/// The number at index `nth` of all numbers in ascending order.
///
/// # Panics
/// When there are at most `nth` numbers.
pub(super) fn select(pieces: &[Vec<i64>], nth: usize) -> i64 {
    let len = pieces.iter().map(Vec::len).sum::<usize>();
    assert!(nth < len, "number {nth} of {len}");
    if len >= SAMPLED_MIN {
        let (least, greatest) = bounds(pieces, len, nth);
        let (below, mut between) = partition(pieces, least, greatest);
        if let Some(nth) = nth.checked_sub(below)
            && nth < between.len()
        {
            return *between.select_nth_unstable(nth).1;
        }
    }
    *pieces.concat().select_nth_unstable(nth).1
}

/// Two numbers that most probably enclose the number at an index.
fn bounds(pieces: &[Vec<i64>], len: usize, nth: usize) -> (i64, i64) {
    let step = len / SAMPLE;
    let mut sample = Vec::with_capacity(SAMPLE + 1);
    let mut next = step / 2;
    for piece in pieces {
        sample.extend(piece.iter().skip(next).step_by(step));
        // The step to the next sampled number continues in the next piece.
        let taken = piece.len().saturating_sub(next).div_ceil(step);
        next = next + taken * step - piece.len();
    }
    sample.sort_unstable();
    let count = sample.len();
    let at = nth / step;
    // The variance of a rank in a sample is at most count·q·(1 − q); four deviations are hardly ever exceeded.
    let variance = at.min(count) * count.saturating_sub(at) / count;
    let margin = 4 * variance.isqrt() + 4;
    let least = at.checked_sub(margin).map_or(i64::MIN, |least| sample[least]);
    let greatest = sample.get(at + margin).copied().unwrap_or(i64::MAX);
    (least, greatest)
}

/// The count of numbers below the bounds, and the numbers between them.
fn partition(pieces: &[Vec<i64>], least: i64, greatest: i64) -> (usize, Vec<i64>) {
    const BLOCK: usize = 64;
    let (mut below, mut between) = (0, Vec::new());
    for block in pieces.iter().flat_map(|piece| piece.chunks(BLOCK)) {
        // Without a branch for each number; most blocks have none between the bounds.
        let less = block.iter().map(|number| u32::from(*number < least)).sum::<u32>();
        let more = block.iter().map(|number| u32::from(*number > greatest)).sum::<u32>();
        below += less as usize;
        if (less + more) as usize != block.len() {
            let is_between = |number: &&i64| (least..=greatest).contains(*number);
            between.extend(block.iter().filter(is_between));
        }
    }
    (below, between)
}

#[cfg(test)]
mod tests {
    use super::*;
    use curtail_units::Rng;

    const SEED: u64 = 9_216;

    #[test]
    fn the_selected_number_is_that_of_the_sorted_ones() {
        println!("seed {SEED}");
        let mut rng = Rng::new(SEED);
        for round in 0..60 {
            let len = 1 + rng.below(if round % 2 == 0 { 50 } else { 40_000 });
            let distinct = [1, 3, 1_000, usize::MAX >> 1][round % 4];
            let mut all: Vec<_> = (0..len)
                .map(|_| i64::try_from(rng.below(distinct)).expect("small") - 500)
                .collect();
            if round % 3 == 0 {
                // Sorted ones are the worst sample of pieces.
                all.sort_unstable();
            }
            let pieces: Vec<_> = all
                .chunks(1 + rng.below(len))
                .flat_map(|piece| [piece.to_vec(), Vec::new()])
                .collect();
            let mut sorted = all.clone();
            sorted.sort_unstable();
            for nth in [0, len / 2, len - 1, len * 99 / 100, rng.below(len)] {
                assert_eq!(
                    select(&pieces, nth),
                    sorted[nth],
                    "{nth} of {len}, {distinct} distinct"
                );
            }
        }
    }

    #[test]
    fn a_misleading_sample_costs_time_alone() {
        // The sample has none of the small numbers.
        let step = 2 * SAMPLED_MIN / SAMPLE;
        let number = |nth: usize| i64::from(nth % step == step / 2) * 1_000_000 + (nth % 97) as i64;
        let all: Vec<_> = (0..2 * SAMPLED_MIN).map(number).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        let pieces = [all];
        for nth in [0, 100, SAMPLED_MIN, 2 * SAMPLED_MIN - 1] {
            assert_eq!(select(&pieces, nth), sorted[nth]);
        }
    }
}
