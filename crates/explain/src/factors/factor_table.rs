//! Counts of slow and of all traces, by factor and stratum.
//!
//! A **cell** is a value, a field or a bin of a numeric field, in one stratum. Each trace has the numbers of its cells, so
//! that counting needs no lookup. A number is in one bin, and a cut is a range of bins: a trace has one cell for all cuts
//! of a field. Traces are in the order of their strata, so that the cells in use are close together.

use super::candidates::{BinRange, Candidates, NumericField};
use super::circular_shifts::{Circle, largest_lower};
use super::{Estimate, Factor, SLOW_MIN, estimate};
use crate::populations::Populations;
use crate::traces::Traces;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::iter::Sum;
use core::ops::Range;
use curtail_units::Rng;

/// The number of random labelings, and the rank of the largest null fraction that is the bar: 1 of 20 exceeds it.
const LABELINGS: usize = 60;
const LABELINGS_ABOVE: usize = 3;

/// The number of random shifts in time, and how many may be as high as what was seen.
const SHIFTS: usize = 100;
const SHIFTS_ABOVE: usize = 1;

/// Maximum number of factors of an attribute that are shifted.
const RIVALS_MAX: usize = 64;

/// The number of random assignments of clusters, and how many may have as many more slow traces than expected.
const ASSIGNMENTS: usize = 200;
const ASSIGNMENTS_ABOVE: usize = 2;

/// Maximum number of traces of a stratum whose values its clusters get.
const DRAWN_TRACES: usize = 4_096;

/// The longest time from the first to the last start of a cluster, relative to its longest trace.
const CLUSTER_LASTS: i64 = 2;

/// Numbers of traces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub(super) all: u32,
    pub(super) slow: u32,
}

impl Cell {
    fn add(&mut self, is_slow: bool) {
        self.all += 1;
        self.slow += u32::from(is_slow);
    }

    /// The other traces.
    pub(super) const fn without(self, taken: Self) -> Self {
        Self { all: self.all - taken.all, slow: self.slow - taken.slow }
    }
}

impl Sum for Cell {
    fn sum<I: Iterator<Item = Self>>(cells: I) -> Self {
        cells.fold(Self::default(), |sum, cell| Self {
            all: sum.all + cell.all,
            slow: sum.slow + cell.slow,
        })
    }
}

/// The cells of a factor in one stratum.
#[derive(Clone, Debug)]
struct FactorCells {
    own: Range<u32>,
    /// The cells of all traces that have the attribute.
    field: Range<u32>,
}

/// The cells of all factors and traces.
#[derive(Debug, Default)]
pub(super) struct FactorTable {
    pub(super) factors: Vec<Factor>,
    of_factors: Vec<Vec<FactorCells>>,
    cells: u32,
    /// The traces, stratum by stratum, each in the order of their starts, and the first of each stratum.
    traces: Vec<u32>,
    strata: Vec<usize>,
    /// The cells of each of `traces`, at the indices that `ends` bound.
    of_traces: Vec<u32>,
    ends: Vec<usize>,
}

/// The traces without the factors found so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemainingTraces<'a> {
    pub(super) traces: &'a Traces,
    pub(super) is_slow: &'a [bool],
    pub(super) masks: &'a [u16],
    pub(super) rng: &'a Rng,
}

impl RemainingTraces<'_> {
    fn has(&self, nth: u32) -> bool {
        self.masks[nth as usize] == 0
    }
}

/// The cells of the stratum whose traces are added.
#[derive(Debug)]
struct StratumCells {
    any_trace: u32,
    of_values: Vec<Option<u32>>,
    /// The cell of the texts of each field, and the last trace with the field.
    of_texts: Vec<Option<(u32, u32)>>,
    of_numbers: Vec<Option<u32>>,
}

impl FactorTable {
    pub(super) fn of(traces: &Traces, populations: &Populations) -> Self {
        let candidates = Candidates::of(traces, populations);
        let mut this = Self::default();
        this.sort_traces(populations);
        this.of_factors = vec![Vec::new(); candidates.factors.len()];
        this.ends.reserve(this.traces.len());
        let by_stratum = core::mem::take(&mut this.traces);
        let mut in_use = StratumCells {
            any_trace: 0,
            of_values: vec![None; traces.values.len()],
            of_texts: vec![None; traces.fields.len()],
            of_numbers: vec![None; traces.fields.len()],
        };
        for of_stratum in this.strata.clone().windows(2) {
            in_use.any_trace = this.add_cells(1).start;
            let of_stratum = &by_stratum[of_stratum[0]..of_stratum[1]];
            for nth in of_stratum {
                let row = &traces.rows[*nth as usize];
                this.of_traces.push(in_use.any_trace);
                this.add_values((traces, *nth), &candidates, &mut in_use);
                this.add_numbers(traces.numbers_of(row), &candidates.of_fields, &mut in_use);
                this.ends.push(this.of_traces.len());
            }
            in_use.clear(traces, of_stratum);
        }
        (this.traces, this.factors) = (by_stratum, candidates.factors);
        this
    }

    fn sort_traces(&mut self, populations: &Populations) {
        self.strata = vec![0];
        let counts = populations.counts.iter().map(|(_, all)| *all as usize);
        self.strata.extend(counts.scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }));
        let mut next = self.strata.clone();
        self.traces = vec![0; populations.by_start.len()];
        for nth in &populations.by_start {
            let at = &mut next[populations.strata[*nth as usize] as usize];
            self.traces[*at] = *nth;
            *at += 1;
        }
    }

    fn add_cells(&mut self, count: u32) -> Range<u32> {
        let from = self.cells;
        self.cells = from.checked_add(count).expect("memory has room for fewer cells");
        from..self.cells
    }

    fn add_values(
        &mut self,
        (traces, nth): (&Traces, u32),
        candidates: &Candidates,
        in_use: &mut StratumCells,
    ) {
        for value in traces.values_of(&traces.rows[nth as usize]) {
            let field = traces.values.get(*value).0 as usize;
            let (of_field, last) = match in_use.of_texts[field] {
                Some((cell, last)) => (cell, Some(last)),
                None => (self.add_cells(1).start, None),
            };
            // A field with several values counts once.
            if last != Some(nth) {
                in_use.of_texts[field] = Some((of_field, nth));
                self.of_traces.push(of_field);
            }
            if let Some(factor) = candidates.of_values[*value as usize] {
                let own = in_use.of_values[*value as usize].unwrap_or_else(|| {
                    let own = self.add_cells(1);
                    let cells = FactorCells { own: own.clone(), field: of_field..of_field + 1 };
                    self.of_factors[factor as usize].push(cells);
                    own.start
                });
                in_use.of_values[*value as usize] = Some(own);
                self.of_traces.push(own);
            }
        }
    }

    fn add_numbers(
        &mut self,
        numbers: &[(u32, f64)],
        fields: &[NumericField],
        in_use: &mut StratumCells,
    ) {
        for (field, number) in numbers {
            let of_field = &fields[*field as usize];
            if of_field.factors.is_empty() && of_field.called.is_none() {
                continue;
            }
            let first = in_use.of_numbers[*field as usize]
                .unwrap_or_else(|| self.add_bins(of_field, in_use.any_trace));
            in_use.of_numbers[*field as usize] = Some(first);
            self.of_traces.push(first + of_field.bin(*number));
        }
    }

    /// Adds the bins of a field, and returns the first.
    fn add_bins(&mut self, of_field: &NumericField, any_trace: u32) -> u32 {
        let field = self.add_cells(of_field.bins());
        for (factor, bins) in &of_field.factors {
            let own = match bins {
                BinRange::Above(last) => field.start + last + 1..field.end,
                BinRange::UpTo(last) => field.start..field.start + last + 1,
            };
            self.of_factors[*factor as usize].push(FactorCells { own, field: field.clone() });
        }
        if let Some(factor) = of_field.called {
            let cells = FactorCells { own: field.clone(), field: any_trace..any_trace + 1 };
            self.of_factors[factor as usize].push(cells);
        }
        field.start
    }

    fn cells_of(&self, at: usize) -> &[u32] {
        let from = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.of_traces[from..self.ends[at]]
    }

    fn empty_cells(&self) -> Vec<Cell> {
        vec![Cell::default(); self.cells as usize]
    }

    /// The counts of the traces without a mark.
    pub(super) fn count(&self, is_slow: &[bool], masks: &[u16]) -> Vec<Cell> {
        let mut cells = self.empty_cells();
        let traces = self.traces.iter().enumerate();
        for (at, trace) in traces.filter(|(_, trace)| masks[**trace as usize] == 0) {
            let is_slow = is_slow[*trace as usize];
            self.cells_of(at).iter().for_each(|cell| cells[*cell as usize].add(is_slow));
        }
        cells
    }

    pub(super) fn estimate(&self, cells: &[Cell], slow_count: f64) -> Vec<Estimate> {
        let of_stratum = |of: &FactorCells| (sum(cells, &of.own), sum(cells, &of.field));
        let estimate = |of: &Vec<FactorCells>| estimate(of.iter().map(of_stratum), slow_count);
        self.of_factors.iter().map(estimate).collect()
    }

    /// Labels random traces of each stratum as slow, and returns the fraction that few labelings exceed.
    pub(super) fn null_fraction(
        &self,
        populations: &Populations,
        cells: &[Cell],
        rng: &Rng,
    ) -> f64 {
        let mut rng = rng.split("labels");
        let mut order: Vec<u32> = (0..).take(self.traces.len()).collect();
        let slow_count = populations.slow.len() as f64;
        let mut largest: Vec<f64> = Vec::with_capacity(LABELINGS);
        let mut labeled = cells.to_vec();
        for _ in 0..LABELINGS {
            labeled.iter_mut().for_each(|cell| cell.slow = 0);
            for (stratum, (slow, _)) in self.strata.windows(2).zip(&populations.counts) {
                let traces = &mut order[stratum[0]..stratum[1]];
                for drawn in 0..*slow as usize {
                    let other = drawn + rng.below(traces.len() - drawn);
                    traces.swap(drawn, other);
                    for cell in self.cells_of(traces[drawn] as usize) {
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

    /// Whether the slow traces with a factor are more than by chance, although slow traces come in clusters. `cells` are the
    /// counts of the remaining traces.
    pub(super) fn is_beyond_chance(
        &self,
        factor: usize,
        remaining: &RemainingTraces<'_>,
        cells: &[Cell],
    ) -> bool {
        self.exceeds_shifts(factor, remaining, cells)
            && self.exceeds_clusters(factor, remaining, cells)
    }

    /// Whether at most one in a hundred random shifts of the labels in time gives any factor of the same attribute a lower
    /// bound as high as this factor has.
    fn exceeds_shifts(
        &self,
        factor: usize,
        remaining: &RemainingTraces<'_>,
        cells: &[Cell],
    ) -> bool {
        let mut rng = remaining.rng.split("shifts").split_index(factor as u64);
        let slow_count = remaining.is_slow.iter().filter(|is_slow| **is_slow).count() as f64;
        let of_stratum = |of: &FactorCells| (sum(cells, &of.own), sum(cells, &of.field));
        let lower = estimate(self.of_factors[factor].iter().map(of_stratum), slow_count).lower();
        let circles = self.circles(factor, remaining, cells);
        let as_high =
            (0..SHIFTS).filter(|_| largest_lower(&circles, slow_count, &mut rng) >= lower);
        as_high.take(SHIFTS_ABOVE + 1).count() <= SHIFTS_ABOVE
    }

    /// Whether at most one in a hundred random assignments of the clusters of slow traces to the values of a field gives any
    /// value as many more slow traces than expected as `factor`. A cluster is slow traces with one value that begin soon
    /// after one another: a stall of a server. Numbers have no clusters.
    fn exceeds_clusters(
        &self,
        factor: usize,
        remaining: &RemainingTraces<'_>,
        cells: &[Cell],
    ) -> bool {
        let Factor::Value(value) = self.factors[factor] else { return true };
        let field = remaining.traces.values.get(value).0;
        let mut rng = remaining.rng.split("clusters").split_index(factor as u64);
        let clusters_of_stratum = |of: &[usize]| {
            let of_stratum = &self.traces[of[0]..of[1]];
            let clusters = clusters_of(remaining, of_stratum, field);
            if clusters.is_empty() {
                return (clusters, Vec::new());
            }
            let values = drawn_values(remaining, of_stratum, field, &mut rng);
            (clusters, values)
        };
        let strata: Vec<_> = self.strata.windows(2).map(clusters_of_stratum).collect();
        let mut surplus = 0.0;
        for of in &self.of_factors[factor] {
            let (own, field) = (sum(cells, &of.own), sum(cells, &of.field));
            if field.all == 0 {
                continue;
            }
            let expected = f64::from(own.all) / f64::from(field.all) * f64::from(field.slow);
            surplus += f64::from(own.slow) - expected;
        }
        let assign = |_| {
            let mut assigned: BTreeMap<u32, u32> = BTreeMap::new();
            for (clusters, values) in strata.iter().filter(|(_, values)| !values.is_empty()) {
                for slow in clusters {
                    *assigned.entry(values[rng.below(values.len())]).or_default() += slow;
                }
            }
            assigned
        };
        let assigned: Vec<_> = (0..ASSIGNMENTS).map(assign).collect();
        let mut expected: BTreeMap<u32, f64> = BTreeMap::new();
        for (value, slow) in assigned.iter().flatten() {
            *expected.entry(*value).or_default() += f64::from(*slow) / ASSIGNMENTS as f64;
        }
        let largest = |of: &BTreeMap<u32, u32>| {
            of.iter().map(|(value, slow)| f64::from(*slow) - expected[value]).fold(0.0, f64::max)
        };
        let as_large = assigned.iter().filter(|of| largest(of) >= surplus);
        as_large.take(ASSIGNMENTS_ABOVE + 1).count() <= ASSIGNMENTS_ABOVE
    }

    /// The strata as circles, for the attribute of a factor.
    fn circles(
        &self,
        factor: usize,
        remaining: &RemainingTraces<'_>,
        cells: &[Cell],
    ) -> Vec<Circle> {
        if let Factor::Value(value) = self.factors[factor] {
            return self.circles_of_values(value, remaining);
        }
        let rivals = self.rivals(factor, cells);
        let mut is_used = vec![false; self.cells as usize];
        let mut has_attribute = is_used.clone();
        let mut of_cells: Vec<Vec<u16>> = vec![Vec::new(); self.cells as usize];
        for (number, rival) in (0..).zip(&rivals) {
            for FactorCells { own, field } in &self.of_factors[*rival] {
                has_attribute[as_usize(field)].fill(true);
                is_used[as_usize(field)].fill(true);
                is_used[as_usize(own)].fill(true);
                of_cells[as_usize(own)].iter_mut().for_each(|of_cell| of_cell.push(number));
            }
        }
        self.circles_with(remaining, rivals.len(), |at, factors| {
            // Most cells are of other attributes.
            let of_trace = self.cells_of(at).iter().map(|cell| *cell as usize);
            of_trace.filter(|cell| is_used[*cell]).fold(false, |has, cell| {
                factors.extend_from_slice(&of_cells[cell]);
                has || has_attribute[cell]
            })
        })
    }

    /// The strata as circles, for the values of an attribute. Also values of few slow traces count: after a shift, they may
    /// have many.
    fn circles_of_values(&self, value: u32, remaining: &RemainingTraces<'_>) -> Vec<Circle> {
        let traces = remaining.traces;
        let field = traces.values.get(value).0;
        // The values of each trace, at the indices that `ends` bounds.
        let (mut values, mut ends) = (Vec::new(), Vec::with_capacity(self.traces.len()));
        for nth in &self.traces {
            values.extend(values_of_field(traces, *nth, field).filter(|_| remaining.has(*nth)));
            ends.push(values.len());
        }
        let mut counts = vec![0_u32; traces.values.len()];
        values.iter().for_each(|value| counts[*value as usize] += 1);
        let counted = (0_u32..).zip(&counts).filter(|(_, count)| **count > 0);
        let mut rivals: Vec<u32> = counted.map(|(of, _)| of).collect();
        rivals.sort_by_key(|of| (*of != value, Reverse(counts[*of as usize])));
        rivals.truncate(RIVALS_MAX);
        let mut numbers: Vec<Option<u16>> = vec![None; counts.len()];
        rivals.iter().zip(0..).for_each(|(of, number)| numbers[*of as usize] = Some(number));
        self.circles_with(remaining, rivals.len(), |at, factors| {
            let from = at.checked_sub(1).map_or(0, |before| ends[before]);
            let of_trace = &values[from..ends[at]];
            factors.extend(of_trace.iter().filter_map(|value| numbers[*value as usize]));
            !of_trace.is_empty()
        })
    }

    fn circles_with(
        &self,
        remaining: &RemainingTraces<'_>,
        factors: usize,
        add: impl Fn(usize, &mut Vec<u16>) -> bool,
    ) -> Vec<Circle> {
        let circle = |of_stratum: &[usize]| {
            let places = of_stratum[0]..of_stratum[1];
            let places: Vec<usize> = places.filter(|at| remaining.has(self.traces[*at])).collect();
            let slow = places.iter().map(|at| remaining.is_slow[self.traces[*at] as usize]);
            let slow = (0..).zip(slow).filter(|(_, is_slow)| *is_slow).map(|(at, _)| at).collect();
            Circle::new(slow, &places, factors, &add)
        };
        self.strata.windows(2).map(circle).collect()
    }

    /// The cuts of the same number as `factor`, which is one of them: those with the most traces.
    fn rivals(&self, factor: usize, cells: &[Cell]) -> Vec<usize> {
        let number = self.factors[factor].number();
        let is_rival =
            |of: &usize| *of == factor || number.is_some() && self.factors[*of].number() == number;
        let mut rivals: Vec<usize> = (0..self.factors.len()).filter(is_rival).collect();
        let all =
            |of: usize| self.of_factors[of].iter().map(|of| sum(cells, &of.own).all).sum::<u32>();
        rivals.sort_by_cached_key(|of| (*of != factor, Reverse(all(*of))));
        rivals.truncate(RIVALS_MAX);
        rivals
    }

    /// Rejects a factor, and all other cuts of its number.
    pub(super) fn reject(&self, factor: usize, rejected: &mut [bool]) {
        rejected[factor] = true;
        let number = self.factors[factor].number();
        for (other, rejected) in self.factors.iter().zip(rejected) {
            *rejected |= number.is_some() && other.number() == number;
        }
    }

    /// Marks the traces with a factor in `masks`, and returns the counts of those that had no mark.
    pub(super) fn take(
        &self,
        factor: usize,
        mark: u16,
        is_slow: &[bool],
        masks: &mut [u16],
    ) -> Vec<Cell> {
        let mut is_of_factor = vec![false; self.cells as usize];
        for FactorCells { own, .. } in &self.of_factors[factor] {
            is_of_factor[as_usize(own)].fill(true);
        }
        let mut taken = self.empty_cells();
        for (at, trace) in self.traces.iter().enumerate() {
            let of_trace = self.cells_of(at);
            if of_trace.iter().any(|cell| is_of_factor[*cell as usize]) {
                let mask = &mut masks[*trace as usize];
                if *mask == 0 {
                    let is_slow = is_slow[*trace as usize];
                    of_trace.iter().for_each(|cell| taken[*cell as usize].add(is_slow));
                }
                *mask |= mark;
            }
        }
        taken
    }

    /// The factors whose traces are nearly those of `factor`; `common` counts the traces with `factor`. An attribute with one
    /// value is contrasted with nothing: it says only that a span is there.
    pub(super) fn aliases(
        &self,
        factor: usize,
        estimates: &[Estimate],
        common: &[Cell],
    ) -> Vec<usize> {
        let share = |common: u32, one: u32, other: u32| {
            let union = one + other - common;
            f64::from(common) >= 0.9 * f64::from(union)
        };
        let own = &estimates[factor];
        let is_alias = |nth: &usize| {
            let both: Cell = self.of_factors[*nth].iter().map(|of| sum(common, &of.own)).sum();
            let other = &estimates[*nth];
            *nth != factor
                && other.score.is_finite()
                && share(both.slow, own.slow, other.slow)
                && share(both.all, own.all, other.all)
        };
        (0..self.factors.len()).filter(is_alias).collect()
    }
}

/// The values of a field that a trace has.
fn values_of_field(
    traces: &Traces,
    nth: u32,
    field: u32,
) -> impl Iterator<Item = u32> + Clone + use<'_> {
    let values = traces.values_of(&traces.rows[nth as usize]).iter().copied();
    values.filter(move |value| traces.values.get(*value).0 == field)
}

/// Values of a field that random traces of a stratum have.
fn drawn_values(
    remaining: &RemainingTraces<'_>,
    of_stratum: &[u32],
    field: u32,
    rng: &mut Rng,
) -> Vec<u32> {
    let drawn =
        (0..DRAWN_TRACES.min(of_stratum.len())).map(|_| of_stratum[rng.below(of_stratum.len())]);
    let drawn = drawn.filter(|nth| remaining.has(*nth));
    drawn.flat_map(|nth| values_of_field(remaining.traces, nth, field)).collect()
}

/// The number of slow traces of each cluster of a stratum.
fn clusters_of(remaining: &RemainingTraces<'_>, of_stratum: &[u32], field: u32) -> Vec<u32> {
    let mut open: BTreeMap<u32, Cluster> = BTreeMap::new();
    let mut ended = Vec::new();
    let is_slow = |nth: &&u32| remaining.is_slow[**nth as usize] && remaining.has(**nth);
    for nth in of_stratum.iter().filter(is_slow) {
        let row = &remaining.traces.rows[*nth as usize];
        let new = Cluster { start_ns: row.start_ns, longest_ns: 0, slow: 0 };
        for value in values_of_field(remaining.traces, *nth, field) {
            let cluster = open.entry(value).or_insert(new);
            if row.start_ns - cluster.start_ns > cluster.longest_ns.saturating_mul(CLUSTER_LASTS) {
                ended.push(core::mem::replace(cluster, new).slow);
            }
            cluster.slow += 1;
            cluster.longest_ns = cluster.longest_ns.max(row.duration_ns);
        }
    }
    ended.extend(open.into_values().map(|cluster| cluster.slow));
    ended
}

/// Slow traces with one value that begin soon after one another.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    start_ns: i64,
    longest_ns: i64,
    slow: u32,
}

impl StratumCells {
    /// Forgets the cells of a stratum.
    fn clear(&mut self, traces: &Traces, of_stratum: &[u32]) {
        self.of_texts.fill(None);
        self.of_numbers.fill(None);
        let of_traces =
            || of_stratum.iter().map(|nth| traces.values_of(&traces.rows[*nth as usize]));
        if of_traces().map(<[u32]>::len).sum::<usize>() > self.of_values.len() {
            self.of_values.fill(None);
        } else {
            of_traces().flatten().for_each(|value| self.of_values[*value as usize] = None);
        }
    }
}

fn sum(cells: &[Cell], range: &Range<u32>) -> Cell {
    cells[as_usize(range)].iter().copied().sum()
}

const fn as_usize(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}
