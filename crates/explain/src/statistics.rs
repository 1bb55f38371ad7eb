//! The statistics of this crate: rank sums, normal probabilities, and many tests at once.

use alloc::vec::Vec;
use libm::{erfc, sqrt};

/// The probability that a standard normal variable exceeds `z`.
pub(crate) fn normal_above(z: f64) -> f64 {
    erfc(z / core::f64::consts::SQRT_2) / 2.0
}

/// The index of a quantile among `len` sorted values; `len` is not zero.
pub(crate) fn index(quantile: f64, len: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most the length"
    )]
    let index = (quantile * len as f64) as usize;
    index.min(len - 1)
}

/// The largest number of values whose rank sums are counted exactly.
const EXACT_MAX: usize = 24;

/// Compares two samples (Mann & Whitney, "On a test of whether one of two random variables is stochastically larger
/// than the other", Annals of Mathematical Statistics 18, 1947). Sorts `values`: each with whether it is of the first
/// sample. Returns the one-sided probability of ranks at least as high as those of the first sample, if both samples have
/// the same distribution; [`None`] if a sample is empty.
pub(crate) fn rank_sum(values: &mut [(f64, bool)]) -> Option<f64> {
    values.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let n = values.len();
    let first = values.iter().filter(|(_, is_first)| *is_first).count();
    let second = n - first;
    if first == 0 || second == 0 {
        return None;
    }
    let (mut ranks, mut ties, mut from) = (0.0, 0.0, 0);
    while from < n {
        let same = values[from..].iter().take_while(|value| value.0 == values[from].0).count();
        let of_first = values[from..from + same].iter().filter(|value| value.1).count() as f64;
        // Ranks count from one; tied values share the mean of their ranks.
        ranks += of_first * (from as f64 + (same as f64 + 1.0) / 2.0);
        from += same;
        let same = same as f64;
        ties += same * same * same - same;
    }
    let (a, b, all) = (first as f64, second as f64, n as f64);
    let u = ranks - a * (a + 1.0) / 2.0;
    Some(if n <= EXACT_MAX && ties == 0.0 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let u = u as usize;
        exact_above(first, second, u)
    } else {
        let variance = a * b / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
        if variance <= 0.0 { 1.0 } else { normal_above((u - a * b / 2.0 - 0.5) / sqrt(variance)) }
    })
}

/// The probability that U is at least `u`, by counting: `counts[k][v]` selections of k of the ranks so far have U = v.
fn exact_above(first: usize, second: usize, u: usize) -> f64 {
    let top = first * second;
    let mut counts = alloc::vec![alloc::vec![0.0; top + 1]; first + 1];
    counts[0][0] = 1.0;
    for rank in 0..first + second {
        for chosen in (1..=first.min(rank + 1)).rev() {
            // The chosen value exceeds those before it that were not chosen.
            let exceeds = rank + 1 - chosen;
            if exceeds > second {
                continue;
            }
            for v in (exceeds..=top).rev() {
                counts[chosen][v] += counts[chosen - 1][v - exceeds];
            }
        }
    }
    let all: f64 = counts[first].iter().sum();
    counts[first][u.min(top)..].iter().sum::<f64>() / all
}

/// The largest p-value that is a discovery when a share of `q` of all discoveries may be false; below zero if none is
/// (Benjamini & Hochberg, "Controlling the false discovery rate", Journal of the Royal Statistical Society B 57, 1995).
/// `tests` is the number of all tests, of which `p_values` are the smallest ones.
#[must_use]
pub fn discovery_limit(p_values: impl IntoIterator<Item = f64>, tests: usize, q: f64) -> f64 {
    let mut sorted: Vec<f64> = p_values.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let limits = (1..).zip(&sorted).map(|(nth, p)| (f64::from(nth) * q / tests as f64, *p));
    limits.filter(|(limit, p)| p <= limit).map(|(_, p)| p).last().unwrap_or(-1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn samples(first: &[f64], second: &[f64]) -> Vec<(f64, bool)> {
        let of = |values: &[f64], is_first| -> Vec<_> {
            values.iter().map(|value| (*value, is_first)).collect()
        };
        [of(first, true), of(second, false)].concat()
    }

    #[test]
    fn rank_sums_are_those_of_a_published_table() {
        // Four values above all of nine others: one of the C(13, 4) = 715 selections.
        let mut values =
            samples(&[20.0, 21.0, 22.0, 23.0], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let p = rank_sum(&mut values).expect("two samples");
        assert!((p - 1.0 / 715.0).abs() < 1e-12, "{p}");
        // Mann & Whitney 1947, table I: n = 5, m = 5: P(U <= 4) = 0.048 (so U >= 21 by symmetry).
        let p = exact_above(5, 5, 21);
        assert!((p - 0.048).abs() < 0.0005, "{p}");
    }

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(rank_sum(&mut samples(&[1.0, 1.0], &[1.0, 1.0])), Some(1.0));
        assert_eq!(rank_sum(&mut samples(&[1.0], &[])), None);
    }

    #[test]
    fn the_exact_and_the_normal_probability_agree() {
        for u in [60, 72, 90, 100, 110] {
            let exact = exact_above(12, 12, u);
            let normal = normal_above((u as f64 - 72.0 - 0.5) / sqrt(12.0 * 12.0 * 25.0 / 12.0));
            assert!((exact - normal).abs() < 0.01, "{u}: {exact} {normal}");
        }
    }

    #[test]
    fn discoveries_are_those_of_the_paper() {
        // Benjamini & Hochberg 1995, section 3.2: 15 p-values, four discoveries at q = 0.05.
        let p = vec![
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
            0.5719, 0.6528, 0.7590, 1.0,
        ];
        assert_eq!(discovery_limit(p.iter().copied(), 15, 0.05), 0.0095);
        assert!(discovery_limit([0.9, 0.8], 2, 0.05) < 0.0);
    }
}
