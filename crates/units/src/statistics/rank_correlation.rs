//! The correlation of ranks.

use alloc::vec;
use alloc::vec::Vec;
use libm::sqrt;

/// The correlation of the ranks of pairs, from -1 to 1; equal values have their mean rank. Absent if all values of one kind
/// are equal.
///
/// **Source**: Spearman, "The proof and measurement of association between two things", American Journal of Psychology 15,
/// 1904.
#[must_use]
pub fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let one = ranks(&pairs.iter().map(|(one, _)| *one).collect::<Vec<_>>());
    let other = ranks(&pairs.iter().map(|(_, other)| *other).collect::<Vec<_>>());
    let mean = (pairs.len() as f64 + 1.0) / 2.0;
    let product = |(one, other): (&f64, &f64)| (one - mean) * (other - mean);
    let sum = |one: &[f64], other: &[f64]| one.iter().zip(other).map(product).sum::<f64>();
    let (of_one, of_other) = (sum(&one, &one), sum(&other, &other));
    (of_one > 0.0 && of_other > 0.0).then(|| sum(&one, &other) / sqrt(of_one * of_other))
}

/// The rank of each value, from 1 on.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|one, other| values[*one].total_cmp(&values[*other]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for equal in order.chunk_by(|one, other| values[*one] == values[*other]) {
        let rank = before as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|nth| ranks[*nth] = rank);
        before += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::rank_correlation;

    #[test]
    fn a_worked_example() {
        // By hand: the sum of the squared differences of the ranks is 194, so 1 − 6 × 194 / (10 × 99).
        let pairs = [
            (106.0, 7.0),
            (100.0, 27.0),
            (86.0, 2.0),
            (101.0, 50.0),
            (99.0, 28.0),
            (103.0, 29.0),
            (97.0, 20.0),
            (113.0, 12.0),
            (112.0, 6.0),
            (110.0, 17.0),
        ];
        let correlation = rank_correlation(&pairs).expect("the values differ");
        assert!((correlation - (1.0 - 6.0 * 194.0 / 990.0)).abs() < 1e-12, "{correlation}");
    }

    #[test]
    fn equal_values_have_their_mean_rank() {
        // The ranks are 1.5, 1.5, 3 and 1, 2, 3: the correlation is 1.5 / √(1.5 × 2).
        let correlation = rank_correlation(&[(5.0, 1.0), (5.0, 2.0), (9.0, 3.0)]);
        assert!((correlation.expect("they differ") - 0.75_f64.sqrt()).abs() < 1e-12);
        assert_eq!(rank_correlation(&[(5.0, 1.0), (5.0, 2.0)]), None);
        assert_eq!(rank_correlation(&[]), None);
    }
}
