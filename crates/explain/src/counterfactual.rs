//! Milliseconds of a quantile: its value if the traces with some factors behaved like the others.
//!
//! The traces with a factor are replaced by the traces of their stratum without any of the removed factors: these get a
//! weight, so that the stratum keeps its size. The effects of single factors do not add up, because a trace can have two
//! of them. The joint effect is therefore shared as Shapley does it ("A value for n-person games", 1953): each factor
//! gets its mean effect over all orders of removal.

use crate::populations::{NO_STRATUM, Populations};
use crate::traces::Traces;
use alloc::vec;
use alloc::vec::Vec;
use curtail_sketch::tail_start;
use curtail_units::Quantile;

/// 1 − 0.9 is less than 0.1 by rounding.
const ROUNDING: f64 = 1e-12;

/// The quantile with and without the factors found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counterfactual {
    pub(crate) with_ns: f64,
    /// Without any of the factors.
    pub(crate) without_ns: f64,
    /// The part of the difference of each factor.
    pub(crate) of_factors_ns: Vec<f64>,
}

/// How many times as many traces are sorted as are above the quantile.
const LONGEST: usize = 4;

impl Counterfactual {
    /// `masks` has a bit for each factor of each trace.
    pub(crate) fn of(
        traces: &Traces,
        populations: &Populations,
        (masks, factors): (&[u16], usize),
        quantile: Quantile,
    ) -> Self {
        let mut sorted: Vec<(i64, u32)> = populations
            .slow
            .iter()
            .chain(&populations.baseline)
            .map(|nth| (traces.rows[*nth as usize].duration_ns, *nth))
            .collect();
        // The others are sorted only if most of the longest traces have a factor.
        let above = sorted.len() - tail_start(quantile.get(), sorted.len());
        let longest = sorted.len().min(above * LONGEST);
        if longest < sorted.len() {
            sorted.select_nth_unstable_by(longest, |one, other| other.cmp(one));
        }
        sorted[..longest].sort_unstable_by(|one, other| other.cmp(one));
        let subsets = 1_usize << factors;
        let mut counts: Vec<FactorSets<u32>> = vec![Vec::new(); populations.counts.len()];
        for (_, nth) in &sorted {
            let stratum = populations.strata[*nth as usize];
            if stratum != NO_STRATUM {
                *entry(&mut counts[stratum as usize], masks[*nth as usize]) += 1;
            }
        }
        let without = |sorted: &[(i64, u32)], removed: usize| {
            let kept = |counts: &FactorSets<u32>| -> u32 {
                let kept = counts.iter().filter(|(mask, _)| usize::from(*mask) & removed == 0);
                kept.map(|(_, n)| n).sum()
            };
            // A stratum in which every trace has a factor cannot be imagined without it.
            let weight = |counts: &FactorSets<u32>| match kept(counts) {
                0 => 0.0,
                kept => f64::from(counts.iter().map(|(_, n)| n).sum::<u32>()) / f64::from(kept),
            };
            let weights: Vec<f64> = counts.iter().map(weight).collect();
            let kept = counts.iter().map(kept).map(f64::from);
            let total: f64 = weights.iter().zip(kept).map(|(weight, kept)| weight * kept).sum();
            let mut above = total * (1.0 - quantile.get());
            for (duration_ns, nth) in sorted {
                if usize::from(masks[*nth as usize]) & removed == 0 {
                    above -= weights[populations.strata[*nth as usize] as usize];
                    if above < -ROUNDING * total {
                        return Some(*duration_ns as f64);
                    }
                }
            }
            None
        };
        let mut are_all_sorted = false;
        let mut value = |removed| {
            without(&sorted[..longest], removed).or_else(|| {
                if !core::mem::replace(&mut are_all_sorted, true) {
                    sorted[longest..].sort_unstable_by(|one, other| other.cmp(one));
                }
                without(&sorted, removed)
            })
        };
        let values: Vec<f64> = (0..subsets).map(|removed| value(removed).unwrap_or(0.0)).collect();
        let of_factors_ns = (0..factors).map(|factor| shapley(&values, factor, factors)).collect();
        Self { with_ns: values[0], without_ns: values[subsets - 1], of_factors_ns }
    }
}

/// The share of the slow traces that each factor explains, and the share that none explains.
///
/// Without some factors, a trace is slow as often as the traces of its stratum that have only its other factors. The joint
/// effect is shared as above, which is the average attributable fraction (Eide & Gefeller, "Sequential and average
/// attributable fractions as aids in the selection of preventive strategies", Journal of Clinical Epidemiology 48, 1995). So a
/// factor that often occurs together with another one is not charged for the other.
pub(crate) fn attributable_fractions(
    populations: &Populations,
    (masks, factors): (&[u16], usize),
) -> (Vec<f64>, f64) {
    let subsets = 1_usize << factors;
    // The counts of slow and of all traces of each stratum.
    let mut counts: Vec<FactorSets<[u32; 2]>> = vec![Vec::new(); populations.counts.len()];
    for (nth, stratum) in populations.strata.iter().enumerate().filter(|(_, s)| **s != NO_STRATUM) {
        let count = entry(&mut counts[*stratum as usize], masks[nth]);
        count[0] += u32::from(populations.is_slow[nth]);
        count[1] += 1;
    }
    let ratio = |[slow, all]: [u32; 2]| f64::from(slow) / f64::from(all);
    let mut explained = vec![0.0; subsets];
    for of_stratum in &counts {
        // Nothing is removed from traces without factors.
        for (mask, count) in of_stratum.iter().filter(|(mask, _)| *mask != 0) {
            for (removed, explained) in (0_u16..).zip(&mut explained) {
                // Nothing is known without the factors if no trace of the stratum is without them.
                let others = get(of_stratum, mask & !removed).filter(|_| mask & removed != 0);
                if let Some(others) = others {
                    *explained += f64::from(count[1]) * (ratio(*count) - ratio(*others));
                }
            }
        }
    }
    let slow = populations.slow.len() as f64;
    // `shapley` takes values that removal lowers.
    let values: Vec<f64> = explained.iter().map(|explained| 1.0 - explained / slow).collect();
    let of_factors = (0..factors).map(|factor| shapley(&values, factor, factors)).collect();
    (of_factors, values[subsets - 1].clamp(0.0, 1.0))
}

/// A figure of each set of factors that occurs in a stratum, in ascending order of the sets. A stratum has few of them.
type FactorSets<T> = Vec<(u16, T)>;

fn get<T>(sets: &[(u16, T)], mask: u16) -> Option<&T> {
    let at = sets.binary_search_by_key(&mask, |(mask, _)| *mask);
    at.ok().map(|at| &sets[at].1)
}

/// The figure of a set, which is added if it is new.
fn entry<T: Default>(sets: &mut FactorSets<T>, mask: u16) -> &mut T {
    let at = sets.binary_search_by_key(&mask, |(mask, _)| *mask).unwrap_or_else(|at| {
        sets.insert(at, (mask, T::default()));
        at
    });
    &mut sets[at].1
}

/// The mean effect of removing `factor` over all orders of removal, where `values` has the quantile for each set of
/// removed factors.
fn shapley(values: &[f64], factor: usize, factors: usize) -> f64 {
    let bit = 1_usize << factor;
    let mut weights = vec![0.0; factors];
    // s! (n - s - 1)! / n! for sets of s others.
    for (s, weight) in weights.iter_mut().enumerate() {
        *weight =
            (0..s).fold(1.0 / factors as f64, |w, k| w * (k + 1) as f64 / (factors - 1 - k) as f64);
    }
    let others = (0..values.len()).filter(|removed| removed & bit == 0);
    others
        .map(|removed| {
            weights[removed.count_ones() as usize] * (values[removed] - values[removed | bit])
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::{Side, SpanKind, SpanRow};
    use curtail_trace::Span;

    #[test]
    fn shares_are_those_of_a_worked_example() {
        // The glove game: 1 and 2 have left gloves, 3 has a right one; a pair is worth 1: 1/6, 1/6, 2/3.
        let values: Vec<f64> = (0..8)
            .map(|set: usize| if set & 4 != 0 && set & 3 != 0 { -1.0 } else { 0.0 })
            .collect();
        let shares: Vec<f64> = (0..3).map(|factor| shapley(&values, factor, 3)).collect();
        for (share, wanted) in shares.iter().zip([1.0 / 6.0, 1.0 / 6.0, 2.0 / 3.0]) {
            assert!((share - wanted).abs() < 1e-12, "{shares:?}");
        }
    }

    #[test]
    fn shares_sum_to_the_joint_effect() {
        let values = [100.0, 90.0, 80.0, 75.0, 60.0, 55.0, 58.0, 40.0];
        let sum: f64 = (0..3).map(|factor| shapley(&values, factor, 3)).sum();
        assert!((sum - 60.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn a_quantile_without_a_factor_may_be_far_below_the_longest_traces() {
        let (mut traces, mut populations) = (Traces::default(), Populations::default());
        // 1,000 traces of 1 to 1,000 µs; the 200 longest have the factor.
        for nth in 0..1_000 {
            let span = Span { id: 1, parent_id: 0, start_ns: 0, end_ns: (nth + 1) * 1_000 };
            let row = SpanRow {
                span,
                service: "shop",
                operation: "GET /",
                kind: SpanKind::Server,
                is_abandoned: false,
                attributes: &[],
            };
            traces.add(u128::from(nth.unsigned_abs()) + 1, Side::Baseline, &[row]);
            populations.strata.push(0);
            populations.baseline.push(u32::try_from(nth).expect("few"));
        }
        populations.counts.push((0, 1_000));
        let masks: Vec<u16> = (0..1_000).map(|nth| u16::from(nth >= 800)).collect();
        let effect = Counterfactual::of(&traces, &populations, (&masks, 1), Quantile::P99);
        assert_eq!((effect.with_ns, effect.without_ns), (990_000.0, 792_000.0));
        assert_eq!(effect.of_factors_ns, [198_000.0]);
    }

    #[test]
    fn a_factor_is_not_charged_for_a_factor_that_accompanies_it() {
        // Sets of factors with their slow and all traces. The first factor makes half of its traces slow; the second none,
        // but most of its traces have the first.
        let cells = [(0_u16, 1, 100), (1, 20, 40), (2, 1, 100), (3, 30, 60)];
        let (mut populations, mut masks) = (Populations::default(), Vec::new());
        for (mask, slow, all) in cells {
            for nth in 0..all {
                if nth < slow {
                    populations.slow.push(u32::try_from(masks.len()).expect("few"));
                }
                populations.is_slow.push(nth < slow);
                populations.strata.push(0);
                masks.push(mask);
            }
        }
        populations.counts.push((52, 300));
        let (fractions, unexplained) = attributable_fractions(&populations, (&masks, 2));
        // 100 traces have the first factor, and half of them are slow instead of one in a hundred.
        assert!((fractions[0] - 100.0 * (0.5 - 0.01) / 52.0).abs() < 1e-12, "{fractions:?}");
        assert!(fractions[1].abs() < 1e-12, "{fractions:?}");
        assert!((fractions.iter().sum::<f64>() + unexplained - 1.0).abs() < 1e-12);
    }
}
