//! Wilcoxon's signed-rank test, which checks the paired t: ranks do not depend on single large blocks.
//!
//! Differences of zero are left out; ties share their middle rank. Up to [`EXACT_MAX`] differences without ties the
//! result is exact. Beyond, it is the normal approximation, corrected for ties and continuity.
//! **Source**: Wilcoxon, "Individual comparisons by ranking methods" (1945); Hollander & Wolfe, section 3.1.

use super::student::two_sided_normal;

/// Maximum number of differences with an exact distribution.
const EXACT_MAX: usize = 50;

/// The probability that signs given by chance make the ranks of `differences` at least as uneven.
pub(crate) fn two_sided(differences: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    sorted.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    if sorted.is_empty() {
        return 1.0;
    }
    let (mut positive, mut ties, mut before) = (0.0, 0.0, 0.0);
    for equals in sorted.chunk_by(|a, b| a.abs() == b.abs()) {
        let len = equals.len() as f64;
        let rank = before + f64::midpoint(len, 1.0);
        positive += rank * equals.iter().filter(|d| **d > 0.0).count() as f64;
        ties += len * len * len - len;
        before += len;
    }
    let all = before * (before + 1.0) / 2.0;
    let smaller = positive.min(all - positive);
    if ties == 0.0 && sorted.len() <= EXACT_MAX {
        return exact(sorted.len(), smaller);
    }
    let variance = before * (before + 1.0) * (2.0 * before + 1.0) / 24.0 - ties / 48.0;
    let distance = (all / 2.0 - smaller - 0.5).max(0.0);
    two_sided_normal(distance / variance.sqrt())
}

/// Twice the share of the 2^`count` ways to give signs in which the positive ranks add up to at most `sum`.
fn exact(count: usize, sum: f64) -> f64 {
    let most = count * (count + 1) / 2;
    // ways[s]: in how many ways the ranks so far add up to s.
    let mut ways = vec![0.0_f64; most + 1];
    ways[0] = 1.0;
    for rank in 1..=count {
        for s in (rank..=most).rev() {
            ways[s] += ways[s - rank];
        }
    }
    let all: f64 = ways.iter().sum();
    let at_most: f64 =
        ways.iter().enumerate().filter(|(s, _)| *s as f64 <= sum).map(|(_, n)| n).sum();
    (2.0 * at_most / all).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::{exact, two_sided};

    /// The ranks 1 to `count`; the positive ones add up to `sum`.
    fn with_sum(count: u32, sum: u32) -> Vec<f64> {
        let mut left = sum;
        let sign = |rank: u32| {
            let take = rank <= left;
            if take {
                left -= rank;
            }
            if take { f64::from(rank) } else { -f64::from(rank) }
        };
        let differences: Vec<f64> = (1..=count).rev().map(sign).collect();
        assert_eq!(differences.iter().filter(|d| **d > 0.0).sum::<f64>(), f64::from(sum));
        differences
    }

    #[test]
    fn it_agrees_with_the_printed_table_of_critical_sums() {
        // The largest smaller sum that is significant at two-sided 5 %, and at 1 %.
        for (count, five, one) in [
            (6, 0, None),
            (8, 3, Some(0)),
            (10, 8, Some(3)),
            (15, 25, Some(15)),
            (20, 52, Some(37)),
            (25, 89, Some(68)),
        ] {
            let at = |sum| exact(count, f64::from(sum));
            assert!(at(five) <= 0.05 && at(five + 1) > 0.05, "{count}: {}", at(five));
            if let Some(one) = one {
                assert!(at(one) <= 0.01 && at(one + 1) > 0.01, "{count}: {}", at(one));
            }
        }
        assert_eq!(exact(6, 0.0), 2.0 / 64.0);
    }

    #[test]
    fn signs_count_and_sizes_do_not() {
        let differences = with_sum(20, 52);
        let p = two_sided(&differences);
        assert!((p - exact(20, 52.0)).abs() < 1e-15);
        let cubed: Vec<f64> = differences.iter().map(|d| d.powi(3)).collect();
        let turned: Vec<f64> = differences.iter().map(|d| -d).collect();
        assert_eq!((two_sided(&cubed), two_sided(&turned)), (p, p));
        let mut with_zeros = differences;
        with_zeros.extend([0.0; 7]);
        assert_eq!(two_sided(&with_zeros), p);
        assert_eq!(two_sided(&[0.0, 0.0]), 1.0);
        assert_eq!(two_sided(&[]), 1.0);
    }

    #[test]
    fn the_approximation_meets_the_count() {
        let exactly = exact(50, 434.0);
        let mut differences = with_sum(50, 434);
        // Two equals turn the count off and change next to nothing.
        let last = differences.last_mut().expect("fifty");
        *last = last.signum() * 2.0;
        let close = two_sided(&differences);
        assert!((close / exactly - 1.0).abs() < 0.03, "{close} and {exactly}");
    }
}
