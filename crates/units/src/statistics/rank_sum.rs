//! Rank sums: whether the values of one sample are larger than those of another (Mann & Whitney, van Elteren).

use super::normal_upper_tail;
use alloc::vec;
use alloc::vec::Vec;
use libm::sqrt;

/// The largest number of values whose rank sums are counted exactly.
const EXACT_MAX: f64 = 24.0;

/// The rank sum of the first of two samples, as Mann and Whitney's U ("On a test of whether one of two random variables
/// is stochastically larger than the other", Annals of Mathematical Statistics 18, 1947).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankSum {
    /// The number of values of the first sample.
    pub first: f64,
    /// The number of values of the second sample.
    pub second: f64,
    /// The number of pairs in which the value of the first sample is larger; of equal values, half of the pairs.
    pub u: f64,
    /// The variance of `u` if both samples have the same distribution, corrected for ties.
    pub variance: f64,
    has_ties: bool,
}

impl RankSum {
    /// The rank sum of two samples: for each distinct value, in ascending order, how often the first and the second
    /// sample have it.
    #[must_use]
    pub fn of(counts: impl IntoIterator<Item = [f64; 2]>) -> Self {
        let (mut first, mut second, mut u, mut ties) = (0.0, 0.0, 0.0, 0.0);
        for [of_first, of_second] in counts {
            u += of_first * (second + of_second / 2.0);
            (first, second) = (first + of_first, second + of_second);
            let count = of_first + of_second;
            ties += count * count * count - count;
        }
        let all = first + second;
        let variance = first * second / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
        Self { first, second, u, variance, has_ties: ties > 0.0 }
    }

    /// The mean of `u` if both samples have the same distribution.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.first * self.second / 2.0
    }
}

/// A value of one of two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleValue {
    /// Values are compared within their stratum.
    pub stratum: u32,
    /// The value.
    pub value: f64,
    /// Whether the value is of the first sample.
    pub is_first: bool,
}

/// Compares two samples within strata (van Elteren, "On the combination of independent two-sample tests of Wilcoxon",
/// Bulletin of the International Statistical Institute 37, 1960): the rank sum of a stratum of n values has the weight
/// 1 / (n + 1). Sorts `values`. Returns the one-sided probability of ranks at least as high as those of the first sample,
/// if both samples have the same distribution in each stratum; [`None`] if no stratum has values of both.
pub fn van_elteren_p_value(values: &mut [SampleValue]) -> Option<f64> {
    values.sort_unstable_by(|one, other| {
        one.stratum.cmp(&other.stratum).then(one.value.total_cmp(&other.value))
    });
    let strata = values.chunk_by(|one, other| one.stratum == other.stratum).map(rank_sum_of);
    let strata: Vec<RankSum> = strata.filter(|of| of.first > 0.0 && of.second > 0.0).collect();
    if let [of @ RankSum { has_ties: false, .. }] = &*strata
        && of.first + of.second <= EXACT_MAX
    {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts")]
        let [first, second, u] = [of.first, of.second, of.u].map(|count| count as usize);
        return Some(exact_upper_tail(first, second, u));
    }
    let (mut above, mut variance, mut step) = (0.0, 0.0, f64::INFINITY);
    for of in &strata {
        let weight = 1.0 / (of.first + of.second + 1.0);
        above += weight * (of.u - of.mean());
        variance += weight * weight * of.variance;
        step = step.min(weight);
    }
    // The sum is discrete: half of its smallest step is the correction for continuity.
    let p_value = if variance <= 0.0 {
        1.0
    } else {
        normal_upper_tail((above - step / 2.0) / sqrt(variance))
    };
    (!strata.is_empty()).then_some(p_value)
}

/// The rank sum of sorted values.
fn rank_sum_of(values: &[SampleValue]) -> RankSum {
    let counts = |same: &[SampleValue]| {
        let first = same.iter().filter(|value| value.is_first).count();
        [first as f64, (same.len() - first) as f64]
    };
    RankSum::of(values.chunk_by(|one, other| one.value == other.value).map(counts))
}

/// The probability that U is at least `u`, by counting: `counts[k][v]` selections of k of the ranks so far have U = v.
fn exact_upper_tail(first: usize, second: usize, u: usize) -> f64 {
    let top = first * second;
    let mut counts = vec![vec![0.0; top + 1]; first + 1];
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

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(first: &[f64], second: &[f64]) -> Vec<SampleValue> {
        in_stratum(0, first, second)
    }

    fn in_stratum(stratum: u32, first: &[f64], second: &[f64]) -> Vec<SampleValue> {
        let of = |values: &[f64], is_first| -> Vec<_> {
            values.iter().map(|value| SampleValue { stratum, value: *value, is_first }).collect()
        };
        [of(first, true), of(second, false)].concat()
    }

    #[test]
    fn rank_sums_are_those_of_a_published_table() {
        // Four values above all of nine others: one of the C(13, 4) = 715 selections.
        let mut values =
            samples(&[20.0, 21.0, 22.0, 23.0], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
        let p = van_elteren_p_value(&mut values).expect("two samples");
        assert!((p - 1.0 / 715.0).abs() < 1e-12, "{p}");
        // Mann & Whitney 1947, table I: n = 5, m = 5: P(U <= 4) = 0.048 (so U >= 21 by symmetry).
        let p = exact_upper_tail(5, 5, 21);
        assert!((p - 0.048).abs() < 0.0005, "{p}");
    }

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(van_elteren_p_value(&mut samples(&[1.0, 1.0], &[1.0, 1.0])), Some(1.0));
        assert_eq!(van_elteren_p_value(&mut samples(&[1.0], &[])), None);
    }

    #[test]
    fn strata_add_up_by_their_weights() {
        // One stratum is the test of Mann and Whitney: n = 15 and 15, without ties, U = 225 of 225.
        let values = |from: u32| -> Vec<f64> { (from..from + 15).map(f64::from).collect() };
        let (low, high) = (values(0), values(100));
        let p = van_elteren_p_value(&mut samples(&high, &low)).expect("two samples");
        let mann_whitney = normal_upper_tail((112.5 - 0.5) / sqrt(15.0 * 15.0 * 31.0 / 12.0));
        assert!((p / mann_whitney - 1.0).abs() < 1e-9, "{p} {mann_whitney}");
        // Two pairs of two: U = 4 of 4 in each, with a mean of 2 and a variance of 5/3. A stratum of one sample adds nothing.
        let of = |stratum| in_stratum(stratum, &[3.0, 4.0], &[1.0, 2.0]);
        let mut both = [of(7), of(3), in_stratum(5, &[9.0], &[])].concat();
        let p = van_elteren_p_value(&mut both).expect("two samples");
        assert!((p - normal_upper_tail(3.5 / sqrt(10.0 / 3.0))).abs() < 1e-12, "{p}");
    }

    #[test]
    fn another_mix_of_strata_is_no_difference() {
        let cycle =
            |count: u32| -> Vec<f64> { (0..count).map(|nth| f64::from(nth % 10)).collect() };
        let slower =
            |count| -> Vec<f64> { cycle(count).iter().map(|value| value + 100.0).collect() };
        let mut mixed =
            [in_stratum(0, &cycle(20), &cycle(80)), in_stratum(1, &slower(80), &slower(20))]
                .concat();
        let p = van_elteren_p_value(&mut mixed).expect("two samples");
        assert!(p > 0.4, "{p}");
        mixed.iter_mut().for_each(|value| value.stratum = 0);
        let pooled = van_elteren_p_value(&mut mixed).expect("two samples");
        assert!(pooled < 1e-9, "{pooled}");
    }

    #[test]
    fn the_exact_and_the_normal_probability_agree() {
        for u in [60, 72, 90, 100, 110] {
            let exact = exact_upper_tail(12, 12, u);
            let normal =
                normal_upper_tail((u as f64 - 72.0 - 0.5) / sqrt(12.0 * 12.0 * 25.0 / 12.0));
            assert!((exact - normal).abs() < 0.01, "{u}: {exact} {normal}");
        }
    }
}
