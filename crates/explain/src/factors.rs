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
//!
//! Factors are found one by one: the traces with the best factor leave, and the search goes on among the others. So a
//! second attribute of the same traces (the host of a pod) is no second finding.
//!
//! **Limits**: factors with at least [`SLOW_MIN`] slow traces, [`FACTORS_MAX`] found. All values count, no sample.

use crate::populations::{NO_STRATUM, Populations};
use crate::statistics::{discovery_limit, index, normal_above};
use crate::traces::Traces;
use alloc::vec;
use alloc::vec::Vec;
use curtail_units::Rng;
use hashbrown::HashMap;
use libm::sqrt;

/// The smallest number of slow traces with a factor.
pub(crate) const SLOW_MIN: u32 = 5;

/// The largest number of factors found.
pub(crate) const FACTORS_MAX: usize = 8;

/// The smallest lower bound of a fraction that is a finding.
const FRACTION_MIN: f64 = 0.02;

const FALSE_DISCOVERIES: f64 = 0.05;

/// The number of random labelings, and the rank of the largest null fraction that is the bar: 1 of 20 exceeds it.
const LABELINGS: usize = 60;
const LABELINGS_ABOVE: usize = 3;

/// The quantiles at which numbers are cut.
const CUTS_ABOVE: [f64; 9] = [0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999];
const CUTS_BELOW: [f64; 4] = [0.5, 0.25, 0.1, 0.02];

/// The field that every trace has.
const ANY_TRACE: u32 = u32::MAX;

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

/// A factor that explains slow traces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FoundFactor {
    pub(crate) factor: Factor,
    /// The share of the slow traces that would not be slow.
    pub(crate) fraction: f64,
    /// The 95 % interval of the fraction.
    pub(crate) interval: (f64, f64),
    pub(crate) p_value: f64,
    /// The number of slow and of all traces with the factor.
    pub(crate) slow: u32,
    pub(crate) all: u32,
    /// The slow ratio with the factor, relative to the ratio without.
    pub(crate) lift: f64,
    /// Further factors of nearly the same traces.
    pub(crate) aliases: Vec<Factor>,
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

/// The counts of one factor, or of the traces that have its attribute, in one stratum.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    all: u32,
    slow: u32,
}

/// Factors as cells: a factor in a stratum is a number, so that counting needs no lookup.
#[derive(Debug, Default)]
struct Table {
    factors: Vec<Factor>,
    /// The cells of each factor: its own, and that of its attribute.
    of_factors: Vec<Vec<(u32, u32)>>,
    cells: usize,
    /// The cells of each trace, at the indices that `ends` bound.
    of_traces: Vec<u32>,
    ends: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    fraction: f64,
    error: f64,
    p_value: f64,
    slow: u32,
    all: u32,
    lift: f64,
}

impl Estimate {
    fn lower(&self) -> f64 {
        self.fraction - 1.96 * self.error
    }
}

impl Factors {
    pub(crate) fn find(traces: &Traces, populations: &Populations, rng: &Rng) -> Self {
        let mut this = Self { masks: vec![0; traces.rows.len()], ..Self::default() };
        let table = Table::of(traces, populations);
        this.tested = table.factors.len();
        let slow_count = populations.slow.len() as f64;
        let mut cells = table.count(&populations.is_slow, &this.masks);
        let first = table.estimate(&cells, slow_count);
        this.null_fraction = table.null_fraction(populations, &cells, rng);
        let mut now = first.clone();
        while this.found.len() < FACTORS_MAX {
            let Some(best) = this.best(&now) else { break };
            let bit = 1 << this.found.len();
            let aliases = table.aliases(best, &now, (&this.masks, &populations.is_slow));
            for (mask, has) in this.masks.iter_mut().zip(table.traces_with(best)) {
                *mask |= if has { bit } else { 0 };
            }
            // Its share of all slow traces, whatever else was found before.
            let Estimate { fraction, error, p_value, slow, all, lift } = first[best];
            let interval = ((fraction - 1.96 * error).max(0.0), (fraction + 1.96 * error).min(1.0));
            let factor = table.factors[best];
            let aliases = aliases.into_iter().map(|alias| table.factors[alias]).collect();
            this.found.push(FoundFactor {
                factor,
                fraction,
                interval,
                p_value,
                slow,
                all,
                lift,
                aliases,
            });
            cells = table.count(&populations.is_slow, &this.masks);
            now = table.estimate(&cells, slow_count);
        }
        this
    }

    /// The factor with the best lower bound. Of factors that explain about as much, the one with the highest lift.
    fn best(&self, estimates: &[Estimate]) -> Option<usize> {
        let p_values = estimates.iter().map(|estimate| estimate.p_value);
        let limit = discovery_limit(p_values, estimates.len(), FALSE_DISCOVERIES);
        let bar = FRACTION_MIN.max(self.null_fraction);
        let passes = |estimate: &Estimate| {
            estimate.slow >= SLOW_MIN && estimate.p_value <= limit && estimate.lower() >= bar
        };
        let passing = || estimates.iter().enumerate().filter(|(_, estimate)| passes(estimate));
        let best = passing().map(|(_, estimate)| estimate.lower()).fold(0.0, f64::max);
        // Among many cuts of a number, a wide one has the best bound by chance.
        let equal = passing().filter(|(_, of)| {
            of.lower() >= 0.9 * best || of.lower() >= 0.8 * best && of.fraction + of.error >= best
        });
        equal.max_by(|(_, one), (_, other)| one.lift.total_cmp(&other.lift)).map(|(nth, _)| nth)
    }
}

impl Table {
    fn of(traces: &Traces, populations: &Populations) -> Self {
        let candidates = Candidates::of(traces, populations);
        let mut this = Self::default();
        // The cells of fields begin at zero, those of factors follow.
        let mut of_fields = HashMap::<(u32, u32), u32>::new();
        let mut of_factors = HashMap::<(u32, u32), u32>::new();
        let mut numbers = HashMap::<u32, u32>::new();
        let mut next = 0;
        let mut number = |cells: &mut HashMap<(u32, u32), u32>, key| {
            *cells.entry(key).or_insert_with(|| {
                next += 1;
                next - 1
            })
        };
        this.factors = candidates.factors;
        this.of_factors = vec![Vec::new(); this.factors.len()];
        let mut fields = Vec::new();
        for (nth, row) in traces.rows.iter().enumerate() {
            let stratum = populations.strata[nth];
            if stratum != NO_STRATUM {
                fields.clear();
                numbers.clear();
                let values = traces.values_of(row);
                fields.extend(values.iter().map(|value| traces.values.get(*value).0));
                fields.extend(traces.numbers_of(row).iter().map(|(field, _)| *field));
                fields.push(ANY_TRACE);
                fields.sort_unstable();
                fields.dedup();
                for field in &fields {
                    let cell = number(&mut of_fields, (*field, stratum));
                    this.of_traces.push(cell);
                    numbers.insert(*field, cell);
                }
                let of_values = values.iter().filter_map(|value| {
                    Some((*candidates.of_values.get(value)?, traces.values.get(*value).0))
                });
                let of_numbers = traces.numbers_of(row).iter().flat_map(|(field, number)| {
                    let cuts = candidates.of_fields.get(field).map_or(&[][..], Vec::as_slice);
                    cuts.iter().filter(|cut| cut.has(*number)).map(|cut| (cut.factor, *field))
                });
                let of_calls = traces
                    .numbers_of(row)
                    .iter()
                    .filter_map(|(field, _)| Some((*candidates.of_calls.get(field)?, ANY_TRACE)));
                for (factor, field) in of_values.chain(of_numbers).chain(of_calls) {
                    let before = of_factors.len();
                    let cell = number(&mut of_factors, (factor, stratum));
                    if of_factors.len() > before {
                        this.of_factors[factor as usize].push((cell, numbers[&field]));
                    }
                    this.of_traces.push(cell);
                }
            }
            this.ends.push(this.of_traces.len());
        }
        this.cells = next as usize;
        this
    }

    fn cells_of(&self, trace: usize) -> &[u32] {
        let from = trace.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.of_traces[from..self.ends[trace]]
    }

    /// Counts the traces whose mask is zero.
    fn count(&self, is_slow: &[bool], masks: &[u16]) -> Vec<Cell> {
        let mut cells = vec![Cell::default(); self.cells];
        for (trace, (is_slow, mask)) in is_slow.iter().zip(masks).enumerate() {
            for cell in self.cells_of(trace).iter().take_while(|_| *mask == 0) {
                let cell = &mut cells[*cell as usize];
                cell.all += 1;
                cell.slow += u32::from(*is_slow);
            }
        }
        cells
    }

    fn estimate(&self, cells: &[Cell], slow_count: f64) -> Vec<Estimate> {
        let estimate = |of: &Vec<(u32, u32)>| estimate(cells, of, slow_count);
        self.of_factors.iter().map(estimate).collect()
    }

    /// Labels random traces of each stratum as slow, and returns the fraction that few labelings exceed.
    fn null_fraction(&self, populations: &Populations, cells: &[Cell], rng: &Rng) -> f64 {
        let mut rng = rng.split("labels");
        let mut of_strata = vec![Vec::new(); populations.counts.len()];
        for (trace, stratum) in
            populations.strata.iter().enumerate().filter(|(_, stratum)| **stratum != NO_STRATUM)
        {
            of_strata[*stratum as usize].push(trace);
        }
        let slow_count = populations.slow.len() as f64;
        let mut largest: Vec<f64> = Vec::with_capacity(LABELINGS);
        let mut labeled: Vec<Cell> = cells.iter().map(|cell| Cell { slow: 0, ..*cell }).collect();
        for _ in 0..LABELINGS {
            labeled.iter_mut().for_each(|cell| cell.slow = 0);
            for (traces, (slow, _)) in of_strata.iter_mut().zip(&populations.counts) {
                for drawn in 0..*slow as usize {
                    let other = drawn + rng.below(traces.len() - drawn);
                    traces.swap(drawn, other);
                    for cell in self.cells_of(traces[drawn]) {
                        labeled[*cell as usize].slow += 1;
                    }
                }
            }
            let estimates = self.estimate(&labeled, slow_count);
            let lower =
                estimates.iter().filter(|estimate| estimate.slow >= SLOW_MIN).map(Estimate::lower);
            largest.push(lower.fold(0.0, f64::max));
        }
        largest.sort_unstable_by(|one, other| other.total_cmp(one));
        largest[LABELINGS_ABOVE]
    }

    /// Whether each trace has a factor.
    fn traces_with(&self, factor: usize) -> Vec<bool> {
        let mut is_of_factor = vec![false; self.cells];
        for (cell, _) in &self.of_factors[factor] {
            is_of_factor[*cell as usize] = true;
        }
        let has = |trace| self.cells_of(trace).iter().any(|cell| is_of_factor[*cell as usize]);
        (0..self.ends.len()).map(has).collect()
    }

    /// The factors whose traces are nearly those of `factor`, among the traces whose mask is zero.
    fn aliases(
        &self,
        factor: usize,
        estimates: &[Estimate],
        (masks, is_slow): (&[u16], &[bool]),
    ) -> Vec<usize> {
        let mut common = vec![Cell::default(); self.cells];
        let has = self.traces_with(factor);
        let active = |trace: &usize| masks[*trace] == 0 && has[*trace];
        for trace in (0..masks.len()).filter(active) {
            for cell in self.cells_of(trace) {
                let cell = &mut common[*cell as usize];
                cell.all += 1;
                cell.slow += u32::from(is_slow[trace]);
            }
        }
        let share = |common: u32, one: u32, other: u32| {
            let union = one + other - common;
            f64::from(common) >= 0.9 * f64::from(union)
        };
        let own = &estimates[factor];
        let is_alias = |nth: &usize| {
            let both = self.of_factors[*nth].iter().fold(Cell::default(), |sum, (cell, _)| {
                let cell = common[*cell as usize];
                Cell { all: sum.all + cell.all, slow: sum.slow + cell.slow }
            });
            let other = &estimates[*nth];
            *nth != factor
                && share(both.slow, own.slow, other.slow)
                && share(both.all, own.all, other.all)
        };
        (0..self.factors.len()).filter(is_alias).collect()
    }
}

/// The estimate of a factor from its cells and those of its attribute.
fn estimate(cells: &[Cell], of_factor: &[(u32, u32)], slow_count: f64) -> Estimate {
    let (mut excess, mut variance) = (0.0, 0.0);
    let (mut observed, mut expected, mut spread) = (0.0, 0.0, 0.0);
    let (mut slow, mut all) = (0, 0);
    for (own, field) in of_factor {
        let (own, field) = (cells[*own as usize], cells[*field as usize]);
        let (n1, n) = (f64::from(own.all), f64::from(field.all));
        let (s1, s) = (f64::from(own.slow), f64::from(field.slow));
        (slow, all) = (slow + own.slow, all + own.all);
        let n0 = n - n1;
        if n1 == 0.0 || n0 == 0.0 || n < 2.0 {
            continue;
        }
        let (p1, p0) = (s1 / n1, (s - s1) / n0);
        excess += n1 * (p1 - p0);
        // The ratio of all, because that of few others is zero by chance, and would seem to be without error.
        let p = s / n;
        variance += n1 * p1 * (1.0 - p1) + n1 * n1 * p * (1.0 - p) / n0;
        observed += s1;
        expected += n1 * s / n;
        spread += n1 * n0 * s * (n - s) / (n * n * (n - 1.0));
    }
    let p_value =
        if spread > 0.0 { normal_above((observed - expected - 0.5) / sqrt(spread)) } else { 1.0 };
    let without = observed - excess;
    Estimate {
        fraction: excess / slow_count,
        error: sqrt(variance) / slow_count,
        p_value,
        slow,
        all,
        lift: if without >= 0.5 { observed / without } else { f64::INFINITY },
    }
}

/// A cut of a numeric field.
#[derive(Clone, Copy, Debug)]
struct Cut {
    factor: u32,
    at: f64,
    is_above: bool,
}

impl Cut {
    fn has(&self, number: f64) -> bool {
        (number > self.at) == self.is_above
    }
}

/// The factors to test.
#[derive(Debug, Default)]
struct Candidates {
    factors: Vec<Factor>,
    /// The factor of each text value that enough slow traces have.
    of_values: HashMap<u32, u32>,
    /// The cuts of each numeric field.
    of_fields: HashMap<u32, Vec<Cut>>,
    /// The factor of each operation that only some traces call.
    of_calls: HashMap<u32, u32>,
}

impl Candidates {
    fn of(traces: &Traces, populations: &Populations) -> Self {
        let mut this = Self::default();
        let mut counts = HashMap::<u32, u32>::new();
        let mut slow_numbers = HashMap::<u32, Vec<f64>>::new();
        for nth in &populations.slow {
            let row = &traces.rows[*nth as usize];
            for value in traces.values_of(row) {
                *counts.entry(*value).or_default() += 1;
            }
            for (field, number) in traces.numbers_of(row) {
                slow_numbers.entry(*field).or_default().push(*number);
            }
        }
        let mut values: Vec<u32> = counts
            .into_iter()
            .filter(|(_, count)| *count >= SLOW_MIN)
            .map(|(value, _)| value)
            .collect();
        values.sort_unstable();
        for value in values {
            let factor = this.add(Factor::Value(value));
            this.of_values.insert(value, factor);
        }
        let mut numbers: HashMap<u32, Vec<f64>> = HashMap::new();
        for nth in &populations.baseline {
            for (field, number) in traces.numbers_of(&traces.rows[*nth as usize]) {
                if slow_numbers.contains_key(field) {
                    numbers.entry(*field).or_default().push(*number);
                }
            }
        }
        let mut fields: Vec<_> = slow_numbers.into_iter().collect();
        fields.sort_unstable_by_key(|(field, _)| *field);
        for (field, slow) in fields {
            let baseline = numbers.remove(&field).unwrap_or_default();
            let count = slow.len() + baseline.len();
            let is_rare = count < populations.slow.len() + populations.baseline.len();
            if traces.fields.get(field).is_call_count && is_rare && slow.len() >= SLOW_MIN as usize
            {
                let factor = this.add(Factor::Called(field));
                this.of_calls.insert(field, factor);
            }
            this.cut(field, slow, baseline);
        }
        this
    }

    fn add(&mut self, factor: Factor) -> u32 {
        self.factors.push(factor);
        u32::try_from(self.factors.len() - 1).expect("there are fewer values")
    }

    /// Adds the cuts of a numeric field: at quantiles of all its values, and of those of slow traces.
    fn cut(&mut self, field: u32, mut slow: Vec<f64>, mut all: Vec<f64>) {
        all.extend_from_slice(&slow);
        all.sort_unstable_by(f64::total_cmp);
        slow.sort_unstable_by(f64::total_cmp);
        let at = |sorted: &[f64], quantile| sorted[index(quantile, sorted.len())];
        let (Some(least), Some(most)) = (all.first().copied(), all.last().copied()) else { return };
        let mut above: Vec<f64> = CUTS_ABOVE.iter().map(|q| at(&all, *q)).collect();
        above.extend([0.05, 0.1, 0.25, 0.5].iter().map(|q| below(&all, at(&slow, *q))));
        let mut at_most: Vec<f64> = CUTS_BELOW.iter().map(|q| at(&all, *q)).collect();
        at_most.push(at(&slow, 0.9));
        for (mut cuts, is_above) in [(above, true), (at_most, false)] {
            cuts.sort_unstable_by(f64::total_cmp);
            cuts.dedup();
            for at in cuts.into_iter().filter(|at| (least..most).contains(at)) {
                let factor =
                    if is_above { Factor::Above(field, at) } else { Factor::AtMost(field, at) };
                let factor = self.add(factor);
                self.of_fields.entry(field).or_default().push(Cut { factor, at, is_above });
            }
        }
    }
}

/// The largest of the sorted numbers that is less than `number`.
fn below(sorted: &[f64], number: f64) -> f64 {
    let at = sorted.partition_point(|other| *other < number);
    at.checked_sub(1).map_or(f64::NEG_INFINITY, |at| sorted[at])
}
