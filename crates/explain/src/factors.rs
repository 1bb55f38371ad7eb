//! Which requests are slow: the population attributable fraction of each value.
//!
//! A **factor** is a value of a text attribute (`k8s.pod.name` is `pod-3`), or a number above or below a cut (body size
//! above 1 MiB). Within a stratum, the slow ratio p1 of the n1 traces with the factor is compared with the ratio p0 of
//! the traces that have the attribute with another value:
//!
//! | figure | formula | source |
//! |---|---|---|
//! | attributable fraction | Σ n1 (p1 − p0) / slow traces | Levin, Acta Unio Internationalis contra Cancrum 9, 1953 |
//! | p-value | observed against expected slow traces, over all strata | Mantel & Haenszel, Journal of the National Cancer Institute 22, 1959 |
//! | many factors | at most 5 % false discoveries, and a fraction above that of random labels | Benjamini & Hochberg 1995; Westfall & Young 1993 |
//! | clusters in time | a bound that at most one in a hundred random shifts of the labels reaches with any factor of the attribute | Lotwick & Silverman, Journal of the Royal Statistical Society B 44, 1982 |
//!
//! Slow traces come in clusters (a stall), and some values do too (a number that grows). Such a value may meet a cluster by
//! chance, much more often than random labels tell. Labels that are shifted in time keep their clusters. And a server that
//! had more stalls than the others may have had them by chance: then the cause is the stalls, not the server. So a
//! value must also have more slow traces than any value has when whole clusters get random values. Or both must hold of
//! traces that take long ([`crate::long_traces`]): at a server that is always slower, they come without clusters, even if
//! those come in clusters that are slow.
//!
//! Factors are found one by one, the one with the best evidence first: its traces leave, and the search goes on among the
//! others. So a second attribute of the same traces (the host of a pod) is no second finding.
//!
//! **Limits**: factors with at least [`SLOW_MIN`] slow traces, [`FACTORS_MAX`] found. All values count, no sample.

mod candidates;
mod circular_shifts;
mod factor_table;

use crate::populations::Populations;
use crate::traces::Traces;
use alloc::vec;
use alloc::vec::Vec;
use curtail_units::{Rng, RunTasks, discovery_limit, normal_upper_tail};
use factor_table::{Cell, FactorTable, RemainingTraces};
use libm::sqrt;

/// The smallest number of slow traces with a factor.
pub(crate) const SLOW_MIN: u32 = 5;

/// The largest number of factors found.
pub(crate) const FACTORS_MAX: usize = 8;

/// The smallest lower bound of a fraction that is a finding.
const FRACTION_MIN: f64 = 0.02;

const FALSE_DISCOVERIES: f64 = 0.05;

/// The largest number of factors that are compared with shifted labels and random clusters.
const TRIES_MAX: usize = 32;

/// Into how many tasks a pass over all traces is divided; the result depends on it, and on nothing about the machine.
const TASKS: usize = 16;

/// A property that a trace has or has not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Factor {
    /// A text attribute has this value; the number of the value.
    Value(u32),
    /// The numeric field is greater than the cut.
    Above(u32, f64),
    /// The numeric field is at most the cut.
    AtMost(u32, f64),
    /// The operation of this field is called at all.
    Called(u32),
}

impl Factor {
    /// The field of a number that the factor cuts.
    pub(crate) const fn number(self) -> Option<u32> {
        match self {
            Self::Above(field, _) | Self::AtMost(field, _) => Some(field),
            Self::Value(_) | Self::Called(_) => None,
        }
    }
}

/// A factor that explains slow traces, and further factors of nearly the same traces. Each has the estimate from all
/// traces, whatever else was found before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FoundFactor {
    /// The factor found is the first.
    pub(crate) same: Vec<(Factor, Estimate)>,
}

/// The factors found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Factors {
    pub(crate) found: Vec<FoundFactor>,
    /// The number of factors tested.
    pub(crate) tested: usize,
    /// The fraction that only one of twenty random labelings exceeds with any factor.
    pub(crate) null_fraction: f64,
    /// For each trace, a bit for each factor found.
    pub(crate) masks: Vec<u16>,
}

/// How many traces with a factor are slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The attributable fraction, and its standard error.
    fraction: f64,
    error: f64,
    /// The score of Mantel and Haenszel; not finite if there is nothing to compare with.
    score: f64,
    /// The number of slow and of all traces with the factor.
    pub(crate) slow: u32,
    pub(crate) all: u32,
    /// The number of slow traces with the factor in the strata that have others, and if they were slow as often as these.
    observed: f64,
    expected: f64,
}

impl Estimate {
    /// Half of the width of the 95 % interval of the fraction.
    pub(crate) fn half_width(&self) -> f64 {
        1.96 * self.error
    }

    fn lower(&self) -> f64 {
        self.fraction - self.half_width()
    }

    pub(crate) fn p_value(&self) -> f64 {
        normal_upper_tail(self.score)
    }

    /// The slow ratio with the factor, relative to the ratio without; absent if none of the others is slow.
    pub(crate) fn risk_ratio(&self) -> Option<f64> {
        (self.expected > 0.0).then(|| self.observed / self.expected)
    }

    /// The slow ratio with the factor, relative to the ratio without. Half a slow trace stands for none.
    fn least_risk_ratio(&self) -> f64 {
        self.observed / self.expected.max(0.5)
    }
}

impl Factors {
    pub(crate) fn find(
        traces: &Traces,
        populations: &Populations,
        is_long: &[bool],
        (rng, run_tasks): (&Rng, RunTasks),
    ) -> Self {
        let mut this = Self { masks: vec![0; traces.rows.len()], ..Self::default() };
        let table = FactorTable::of(traces, populations, run_tasks);
        this.tested = table.factors.len();
        let slow_count = populations.slow.len() as f64;
        let mut cells = table.count(&populations.is_slow, &this.masks);
        let first = table.estimate(&cells, slow_count);
        this.null_fraction = table.null_fraction(populations, &cells, rng);
        let mut now = first.clone();
        let mut rejected = vec![false; table.factors.len()];
        let mut tries = 0;
        while this.found.len() < FACTORS_MAX && tries < TRIES_MAX {
            let Some(best) = this.best(&table.factors, &now, &rejected) else { break };
            tries += 1;
            // Of the traces without the factors found before: beside these, the next one may seem to be less than usual.
            let masks = &this.masks;
            let is_beyond_chance = |is_slow, cells: &[Cell]| {
                let remaining = RemainingTraces { traces, is_slow, masks, rng };
                table.is_beyond_chance(best, &remaining, cells)
            };
            if !is_beyond_chance(&populations.is_slow, &cells)
                && !is_beyond_chance(is_long, &table.count(is_long, masks))
            {
                table.reject(best, &mut rejected);
                continue;
            }
            let bit = 1 << this.found.len();
            let with_best = table.take(best, bit, &populations.is_slow, &mut this.masks);
            let same = [best].into_iter().chain(table.aliases(best, &now, &with_best));
            let same = same.map(|nth| (table.factors[nth], first[nth])).collect();
            this.found.push(FoundFactor { same });
            cells.iter_mut().zip(&with_best).for_each(|(cell, taken)| *cell = cell.without(*taken));
            now = table.estimate(&cells, slow_count);
        }
        this
    }

    /// The factor with the highest score that was not rejected. If it is a cut of a number, the cut with the best lower bound;
    /// of cuts that explain about as much, the one with the highest risk ratio.
    fn best(&self, factors: &[Factor], estimates: &[Estimate], rejected: &[bool]) -> Option<usize> {
        let p_values = estimates.iter().map(Estimate::p_value);
        let limit = discovery_limit(p_values, estimates.len(), FALSE_DISCOVERIES);
        let bar = FRACTION_MIN.max(self.null_fraction);
        let passes = |nth: &usize| {
            let of = &estimates[*nth];
            !rejected[*nth] && of.slow >= SLOW_MIN && of.p_value() <= limit && of.lower() >= bar
        };
        let passing = || (0..estimates.len()).filter(passes);
        let by_score =
            |one: &usize, other: &usize| estimates[*one].score.total_cmp(&estimates[*other].score);
        let best = passing().max_by(by_score)?;
        let Some(number) = factors[best].number() else { return Some(best) };
        let cuts = || {
            passing()
                .filter(|nth| factors[*nth].number() == Some(number))
                .map(|nth| (nth, &estimates[nth]))
        };
        let bound = cuts().map(|(_, of)| of.lower()).fold(0.0, f64::max);
        // Among many cuts of a number, a wide one has the best bound by chance.
        let equal = cuts().filter(|(_, of)| {
            of.lower() >= 0.9 * bound
                || of.lower() >= 0.8 * bound && of.fraction + of.error >= bound
        });
        equal
            .max_by(|(_, one), (_, other)| {
                one.least_risk_ratio().total_cmp(&other.least_risk_ratio())
            })
            .map(|(nth, _)| nth)
    }
}

/// The estimate of a factor from its counts and those of its attribute, in each stratum.
fn estimate(of_strata: impl Iterator<Item = (Cell, Cell)>, slow_count: f64) -> Estimate {
    let (mut attributable, mut variance) = (0.0, 0.0);
    let (mut observed, mut hypergeometric, mut spread) = (0.0, 0.0, 0.0);
    let (mut slow, mut all) = (0, 0);
    for (own, field) in of_strata {
        let (n1, n) = (f64::from(own.all), f64::from(field.all));
        let (s1, s) = (f64::from(own.slow), f64::from(field.slow));
        (slow, all) = (slow + own.slow, all + own.all);
        let n0 = n - n1;
        if n1 == 0.0 || n0 == 0.0 || n < 2.0 {
            continue;
        }
        let (p1, p0) = (s1 / n1, (s - s1) / n0);
        attributable += n1 * (p1 - p0);
        // The ratio of all, because that of few others is zero by chance, and would seem to be without error.
        let p = s / n;
        variance += n1 * p1 * (1.0 - p1) + n1 * n1 * p * (1.0 - p) / n0;
        observed += s1;
        hypergeometric += n1 * s / n;
        spread += n1 * n0 * s * (n - s) / (n * n * (n - 1.0));
    }
    let score = if spread > 0.0 {
        (observed - hypergeometric - 0.5) / sqrt(spread)
    } else {
        f64::NEG_INFINITY
    };
    Estimate {
        fraction: attributable / slow_count,
        error: sqrt(variance) / slow_count,
        score,
        slow,
        all,
        observed,
        expected: observed - attributable,
    }
}
