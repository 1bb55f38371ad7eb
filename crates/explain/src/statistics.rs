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

/// A value of one of two samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleValue {
    /// Values are compared within their stratum.
    pub(crate) stratum: u32,
    pub(crate) value: f64,
    pub(crate) is_first: bool,
}

/// Compares two samples (Mann & Whitney, "On a test of whether one of two random variables is stochastically larger
/// than the other", Annals of Mathematical Statistics 18, 1947), within strata (van Elteren, "On the combination of
/// independent two-sample tests of Wilcoxon", Bulletin of the International Statistical Institute 37, 1960): the rank sum of a
/// stratum of n values has the weight 1 / (n + 1). Sorts `values`. Returns the one-sided probability of ranks at least as
/// high as those of the first sample, if both samples have the same distribution in each stratum; [`None`] if no stratum
/// has values of both.
pub(crate) fn rank_sum(values: &mut [SampleValue]) -> Option<f64> {
    values.sort_unstable_by(|one, other| {
        one.stratum.cmp(&other.stratum).then(one.value.total_cmp(&other.value))
    });
    let strata = values.chunk_by(|one, other| one.stratum == other.stratum);
    let strata: Vec<StratumRanks> = strata.filter_map(StratumRanks::of).collect();
    if let [of @ StratumRanks { has_ties: false, .. }] = &*strata
        && of.first + of.second <= EXACT_MAX
    {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let u = of.u as usize;
        return Some(exact_above(of.first, of.second, u));
    }
    let (mut above, mut variance, mut step) = (0.0, 0.0, f64::INFINITY);
    for of in &strata {
        let weight = 1.0 / ((of.first + of.second) as f64 + 1.0);
        above += weight * (of.u - of.first as f64 * of.second as f64 / 2.0);
        variance += weight * weight * of.variance;
        step = step.min(weight);
    }
    // The sum is discrete: half of its smallest step is the correction for continuity.
    let p_value =
        if variance <= 0.0 { 1.0 } else { normal_above((above - step / 2.0) / sqrt(variance)) };
    (!strata.is_empty()).then_some(p_value)
}

/// The ranks of the first sample in one stratum.
#[derive(Clone, Copy, Debug)]
struct StratumRanks {
    /// The numbers of values of the first and of the second sample.
    first: usize,
    second: usize,
    /// The number of pairs in which the value of the first sample is larger; of equal values, half of the pairs.
    u: f64,
    variance: f64,
    has_ties: bool,
}

impl StratumRanks {
    /// The ranks of sorted values; [`None`] if one sample has none of them.
    fn of(values: &[SampleValue]) -> Option<Self> {
        let n = values.len();
        let first = values.iter().filter(|value| value.is_first).count();
        let second = n - first;
        if first == 0 || second == 0 {
            return None;
        }
        let (mut ranks, mut ties, mut from) = (0.0, 0.0, 0);
        for same in values.chunk_by(|one, other| one.value == other.value) {
            let of_first = same.iter().filter(|value| value.is_first).count() as f64;
            let count = same.len() as f64;
            // Ranks count from one; tied values share the mean of their ranks.
            ranks += of_first * (from as f64 + (count + 1.0) / 2.0);
            from += same.len();
            ties += count * count * count - count;
        }
        let (a, b, all) = (first as f64, second as f64, n as f64);
        Some(Self {
            first,
            second,
            u: ranks - a * (a + 1.0) / 2.0,
            variance: a * b / 12.0 * (all + 1.0 - ties / (all * (all - 1.0))),
            has_ties: ties > 0.0,
        })
    }
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
    fn strata_add_up_by_their_weights() {
        // One stratum is the test of Mann and Whitney: n = 15 and 15, without ties, U = 225 of 225.
        let values = |from: u32| -> Vec<f64> { (from..from + 15).map(f64::from).collect() };
        let (low, high) = (values(0), values(100));
        let p = rank_sum(&mut samples(&high, &low)).expect("two samples");
        let mann_whitney = normal_above((112.5 - 0.5) / sqrt(15.0 * 15.0 * 31.0 / 12.0));
        assert!((p / mann_whitney - 1.0).abs() < 1e-9, "{p} {mann_whitney}");
        // Two pairs of two: U = 4 of 4 in each, with a mean of 2 and a variance of 5/3. A stratum of one sample adds nothing.
        let of = |stratum| in_stratum(stratum, &[3.0, 4.0], &[1.0, 2.0]);
        let mut both = [of(7), of(3), in_stratum(5, &[9.0], &[])].concat();
        let p = rank_sum(&mut both).expect("two samples");
        assert!((p - normal_above(3.5 / sqrt(10.0 / 3.0))).abs() < 1e-12, "{p}");
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
        let p = rank_sum(&mut mixed).expect("two samples");
        assert!(p > 0.4, "{p}");
        mixed.iter_mut().for_each(|value| value.stratum = 0);
        let pooled = rank_sum(&mut mixed).expect("two samples");
        assert!(pooled < 1e-9, "{pooled}");
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
