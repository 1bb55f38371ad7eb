//! Counts of slow and of all traces, by factor and stratum.
//!
//! A **cell** is a value, a field or a bin of a numeric field, in one stratum. Each trace has the numbers of its cells, so
//! that counting needs no lookup. A number is in one bin, and a cut is a range of bins: a trace has one cell for all cuts
//! of a field. Traces are in the order of their strata, so that the cells in use are close together. Strata do not depend
//! on each other: a partition of them is filled and counted as a task of its own.

mod partition;

use super::candidates::Candidates;
use super::circular_shifts::{Circle, largest_lower};
use super::{Estimate, Factor, SLOW_MIN, TASKS, estimate};
use crate::populations::Populations;
use crate::traces::Traces;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::iter::Sum;
use core::ops::Range;
use curtail_units::{Rng, RunTasks, map_tasks};
use partition::Partition;

/// The number of random labelings, and the rank of the largest null fraction that is the bar: 1 of 20 exceeds it.
const LABELINGS: usize = 60;
const LABELINGS_ABOVE: usize = 3;

/// The number of random shifts in time, and how many may be as high as what was seen.
const SHIFTS: usize = 100;
const SHIFTS_ABOVE: usize = 1;

/// The number of shifts of a batch, which are tasks; after each batch, the search ends if too many were as high.
const SHIFTS_AT_ONCE: usize = 20;

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
#[derive(Debug)]
pub(super) struct FactorTable {
    pub(super) factors: Vec<Factor>,
    of_factors: Vec<Vec<FactorCells>>,
    cells: u32,
    /// The traces, stratum by stratum, each in the order of their starts.
    traces: Vec<u32>,
    partitions: Vec<Partition>,
    run_tasks: RunTasks,
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

impl FactorTable {
    pub(super) fn of(traces: &Traces, populations: &Populations, run_tasks: RunTasks) -> Self {
        let candidates = Candidates::of(traces, populations, run_tasks);
        let (order, strata) = traces_by_stratum(populations);
        let partitions = divide(strata, order.len().div_ceil(TASKS));
        let mut this = Self {
            partitions: map_tasks(run_tasks, partitions, |strata| {
                Partition::of(traces, &candidates, &order, strata)
            }),
            of_factors: vec![Vec::new(); candidates.factors.len()],
            cells: 0,
            factors: candidates.factors,
            traces: order,
            run_tasks,
        };
        for partition in &mut this.partitions {
            for (factor, cells) in partition.number_from(this.cells) {
                this.of_factors[factor as usize].push(cells);
            }
            this.cells = partition.cells.end;
        }
        this
    }

    /// The places of the traces of each stratum.
    fn strata(&self) -> impl Iterator<Item = &Range<usize>> {
        self.partitions.iter().flat_map(|partition| &partition.strata)
    }

    /// Fills the cells of each partition as a task of its own. Returns also what the tasks return.
    fn fill<R: Send>(
        &self,
        fill: impl Fn(&Partition, &mut [Cell]) -> R + Sync,
    ) -> (Vec<Cell>, Vec<R>) {
        let mut cells = vec![Cell::default(); self.cells as usize];
        let mut rest = &mut *cells;
        let tasks = self.partitions.iter().map(|partition| {
            let (own, others) = core::mem::take(&mut rest).split_at_mut(partition.cells.len());
            rest = others;
            (partition, own)
        });
        let results =
            map_tasks(self.run_tasks, tasks.collect(), |(partition, own)| fill(partition, own));
        (cells, results)
    }

    /// The counts of the traces without a mark.
    pub(super) fn count(&self, is_slow: &[bool], masks: &[u16]) -> Vec<Cell> {
        let (cells, _) = self.fill(|partition, cells| {
            for place in partition.places() {
                let trace = self.traces[place] as usize;
                if masks[trace] == 0 {
                    partition.count(place, is_slow[trace], cells);
                }
            }
        });
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
        let slow_count = populations.slow.len() as f64;
        let label = |task: usize| {
            let mut rng = rng.split("labels").split_index(task as u64);
            let traces = u32::try_from(self.traces.len()).expect("a trace has a number of 32 bits");
            let mut order: Vec<u32> = (0..traces).collect();
            let mut labeled = cells.to_vec();
            let labelings = (task..LABELINGS).step_by(TASKS);
            let largest = labelings.map(|_| {
                self.label(&mut order, &mut labeled, &populations.counts, &mut rng);
                let estimates = self.estimate(&labeled, slow_count);
                let enough = estimates.iter().filter(|estimate| estimate.slow >= SLOW_MIN);
                enough.map(Estimate::lower).fold(0.0, f64::max)
            });
            largest.collect::<Vec<f64>>()
        };
        let mut largest = map_tasks(self.run_tasks, (0..TASKS).collect(), label).concat();
        largest.sort_unstable_by(|one, other| other.total_cmp(one));
        largest[LABELINGS_ABOVE]
    }

    /// Labels random traces of each stratum as slow; `order` is any order of the places within each stratum.
    fn label(&self, order: &mut [u32], cells: &mut [Cell], counts: &[(u32, u32)], rng: &mut Rng) {
        cells.iter_mut().for_each(|cell| cell.slow = 0);
        let strata = self
            .partitions
            .iter()
            .flat_map(|partition| partition.strata.iter().map(move |stratum| (partition, stratum)));
        for ((partition, stratum), (slow, _)) in strata.zip(counts) {
            let cells = &mut cells[as_usize(&partition.cells)];
            let places = &mut order[stratum.clone()];
            for drawn in 0..*slow as usize {
                let other = drawn + rng.below(places.len() - drawn);
                places.swap(drawn, other);
                for cell in partition.cells_of(places[drawn] as usize) {
                    cells[*cell as usize].slow += 1;
                }
            }
        }
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
        let rng = remaining.rng.split("shifts").split_index(factor as u64);
        let slow_count = remaining.is_slow.iter().filter(|is_slow| **is_slow).count() as f64;
        let of_stratum = |of: &FactorCells| (sum(cells, &of.own), sum(cells, &of.field));
        let lower = estimate(self.of_factors[factor].iter().map(of_stratum), slow_count).lower();
        let circles = self.circles(factor, remaining, cells);
        let is_as_high = |shift: usize| {
            largest_lower(&circles, slow_count, &mut rng.split_index(shift as u64)) >= lower
        };
        let mut as_high = 0;
        (0..SHIFTS).step_by(SHIFTS_AT_ONCE).all(|from| {
            let shifts = (from..from + SHIFTS_AT_ONCE).collect();
            let are_as_high = map_tasks(self.run_tasks, shifts, is_as_high);
            as_high += are_as_high.iter().filter(|is_as_high| **is_as_high).count();
            as_high <= SHIFTS_ABOVE
        })
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
        let clusters_of_stratum = |places: &Range<usize>| {
            let of_stratum = &self.traces[places.clone()];
            let clusters = clusters_of(remaining, of_stratum, field);
            if clusters.is_empty() {
                return (clusters, Vec::new());
            }
            let values = drawn_values(remaining, of_stratum, field, &mut rng);
            (clusters, values)
        };
        let strata: Vec<_> = self.strata().map(clusters_of_stratum).collect();
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
        self.circles_with(remaining, rivals.len(), |partition, place, factors| {
            let (is_used, of_cells) = (partition.own(&is_used), partition.own(&of_cells));
            let has_attribute = partition.own(&has_attribute);
            // Most cells are of other attributes.
            let of_trace = partition.cells_of(place).iter().map(|cell| *cell as usize);
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
        let values_of = |place: usize| {
            let nth = self.traces[place];
            values_of_field(traces, nth, field).filter(move |_| remaining.has(nth))
        };
        let of_partition = |partition: &Partition| partition.places().flat_map(values_of).collect();
        let values: Vec<Vec<u32>> =
            map_tasks(self.run_tasks, self.partitions.iter().collect(), of_partition);
        let mut counts = vec![0_u32; traces.values.len()];
        values.iter().flatten().for_each(|value| counts[*value as usize] += 1);
        let counted = (0_u32..).zip(&counts).filter(|(_, count)| **count > 0);
        let mut rivals: Vec<u32> = counted.map(|(of, _)| of).collect();
        rivals.sort_by_key(|of| (*of != value, Reverse(counts[*of as usize])));
        rivals.truncate(RIVALS_MAX);
        let mut numbers: Vec<Option<u16>> = vec![None; counts.len()];
        rivals.iter().zip(0..).for_each(|(of, number)| numbers[*of as usize] = Some(number));
        self.circles_with(remaining, rivals.len(), |_, place, factors| {
            let mut of_trace = values_of(place).peekable();
            let has_attribute = of_trace.peek().is_some();
            factors.extend(of_trace.filter_map(|value| numbers[value as usize]));
            has_attribute
        })
    }

    fn circles_with(
        &self,
        remaining: &RemainingTraces<'_>,
        factors: usize,
        add: impl Fn(&Partition, usize, &mut Vec<u16>) -> bool + Sync,
    ) -> Vec<Circle> {
        let circle = |partition: &Partition, stratum: &Range<usize>| {
            let has = |place: &usize| remaining.has(self.traces[*place]);
            let places: Vec<usize> = stratum.clone().filter(has).collect();
            let slow = places.iter().map(|at| remaining.is_slow[self.traces[*at] as usize]);
            let slow = (0..).zip(slow).filter(|(_, is_slow)| *is_slow).map(|(at, _)| at).collect();
            Circle::new(slow, &places, factors, |place, factors| add(partition, place, factors))
        };
        let of_partition = |partition: &Partition| {
            partition.strata.iter().map(|stratum| circle(partition, stratum)).collect::<Vec<_>>()
        };
        let circles = map_tasks(self.run_tasks, self.partitions.iter().collect(), of_partition);
        circles.into_iter().flatten().collect()
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
        let (taken, marked) = self.fill(|partition, taken| {
            let is_of_factor = partition.own(&is_of_factor);
            let has_factor = |place: &usize| {
                partition.cells_of(*place).iter().any(|cell| is_of_factor[*cell as usize])
            };
            let mut marked = Vec::new();
            for place in partition.places().filter(has_factor) {
                let trace = self.traces[place] as usize;
                if masks[trace] == 0 {
                    partition.count(place, is_slow[trace], taken);
                }
                marked.push(trace);
            }
            marked
        });
        marked.iter().flatten().for_each(|trace| masks[*trace] |= mark);
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

/// The traces in the order of their strata and starts, and the places of each stratum.
fn traces_by_stratum(populations: &Populations) -> (Vec<u32>, Vec<Range<usize>>) {
    let mut end = 0;
    let places = populations.counts.iter().map(|(_, all)| {
        end += *all as usize;
        end - *all as usize..end
    });
    let strata: Vec<Range<usize>> = places.collect();
    let mut next: Vec<usize> = strata.iter().map(|stratum| stratum.start).collect();
    let mut order = vec![0; populations.by_start.len()];
    for nth in &populations.by_start {
        let place = &mut next[populations.strata[*nth as usize] as usize];
        order[*place] = *nth;
        *place += 1;
    }
    (order, strata)
}

/// Divides strata into partitions, each with about `size` traces or one stratum.
fn divide(strata: Vec<Range<usize>>, size: usize) -> Vec<Vec<Range<usize>>> {
    let mut partitions: Vec<Vec<Range<usize>>> = Vec::new();
    for stratum in strata {
        match partitions.last_mut() {
            Some(last) if stratum.end - last[0].start <= size => last.push(stratum),
            _ => partitions.push(vec![stratum]),
        }
    }
    partitions
}

fn sum(cells: &[Cell], range: &Range<u32>) -> Cell {
    cells[as_usize(range)].iter().copied().sum()
}

const fn as_usize(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}
