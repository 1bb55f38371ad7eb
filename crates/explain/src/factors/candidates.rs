//! The factors to test: values and calls of enough slow traces, and cuts of numbers.

use super::{Factor, SLOW_MIN, TASKS};
use crate::populations::Populations;
use crate::traces::Traces;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use curtail_sketch::tail_start;
use curtail_units::{RunTasks, map_tasks};

/// The quantiles at which numbers are cut.
const CUTS_ABOVE: [f64; 9] = [0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999];
const CUTS_BELOW: [f64; 4] = [0.5, 0.25, 0.1, 0.02];

/// The quantiles of slow traces just below which numbers are cut.
const CUTS_BELOW_SLOW: [f64; 4] = [0.05, 0.1, 0.25, 0.5];

/// The factors to test.
#[derive(Debug)]
pub(super) struct Candidates {
    pub(super) factors: Vec<Factor>,
    /// The factor of each text value, if enough slow traces have it.
    pub(super) of_values: Vec<Option<u32>>,
    /// Each field, as far as it has numbers.
    pub(super) of_fields: Vec<NumericField>,
}

/// The factors of one numeric field.
#[derive(Clone, Debug, Default)]
pub(super) struct NumericField {
    /// The numbers that divide the field into bins, in ascending order.
    pub(super) cuts: Vec<f64>,
    /// Factors, each with the bins of its traces.
    pub(super) factors: Vec<(u32, BinRange)>,
    /// The factor of the operation that only some traces call.
    pub(super) called: Option<u32>,
}

/// The bins above a cut, or those up to a cut; a cut is the last number of the bin with its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinRange {
    Above(u32),
    UpTo(u32),
}

impl NumericField {
    /// The bin of a number.
    pub(super) fn bin(&self, number: f64) -> u32 {
        bin_number(self.cuts.partition_point(|cut| number > *cut))
    }

    /// The number of bins.
    pub(super) fn bins(&self) -> u32 {
        bin_number(self.cuts.len() + 1)
    }
}

impl Candidates {
    pub(super) fn of(traces: &Traces, populations: &Populations, run_tasks: RunTasks) -> Self {
        let mut counts = vec![0_u32; traces.values.len()];
        for nth in &populations.slow {
            let of_trace = traces.values_of(&traces.rows[*nth as usize]);
            of_trace.iter().for_each(|value| counts[*value as usize] += 1);
        }
        let mut this = Self {
            factors: Vec::new(),
            of_values: vec![None; counts.len()],
            of_fields: vec![NumericField::default(); traces.fields.len()],
        };
        for (value, _) in (0_u32..).zip(counts).filter(|(_, count)| *count >= SLOW_MIN) {
            this.of_values[value as usize] = Some(this.add(Factor::Value(value)));
        }
        let traces_count = populations.slow.len() + populations.baseline.len();
        let numbers = FieldNumbers::of_fields(traces, populations, run_tasks);
        let of_fields = map_tasks(run_tasks, numbers, |mut of| {
            let is_in_some = of.all.len() < traces_count && of.slow.len() >= SLOW_MIN as usize;
            (is_in_some, of.cuts())
        });
        for (field, (is_in_some, cuts)) in (0_u32..).zip(of_fields) {
            if is_in_some && traces.fields.get(field).is_call_count {
                this.of_fields[field as usize].called = Some(this.add(Factor::Called(field)));
            }
            this.add_cuts(field, cuts);
        }
        this
    }

    fn add(&mut self, factor: Factor) -> u32 {
        self.factors.push(factor);
        u32::try_from(self.factors.len() - 1).expect("there are fewer values")
    }

    fn add_cuts(&mut self, field: u32, Cuts { above, at_most }: Cuts) {
        let mut cuts = [&above[..], &at_most[..]].concat();
        cuts.sort_unstable_by(f64::total_cmp);
        cuts.dedup();
        let mut factors = Vec::with_capacity(above.len() + at_most.len());
        let bin = |cut: f64| bin_number(cuts.partition_point(|other| *other < cut));
        for cut in above {
            factors.push((self.add(Factor::Above(field, cut)), BinRange::Above(bin(cut))));
        }
        for cut in at_most {
            factors.push((self.add(Factor::AtMost(field, cut)), BinRange::UpTo(bin(cut))));
        }
        let of_field = &mut self.of_fields[field as usize];
        (of_field.cuts, of_field.factors) = (cuts, factors);
    }
}

/// The numbers of a numeric field.
#[derive(Clone, Debug, Default)]
struct FieldNumbers {
    slow: Vec<f64>,
    /// Of all traces; empty if no slow trace has the field.
    all: Vec<f64>,
}

/// The numbers at which a field is cut, in ascending order.
#[derive(Clone, Debug, Default)]
struct Cuts {
    above: Vec<f64>,
    at_most: Vec<f64>,
}

impl FieldNumbers {
    fn of_fields(traces: &Traces, populations: &Populations, run_tasks: RunTasks) -> Vec<Self> {
        let mut fields = vec![Self::default(); traces.fields.len()];
        for nth in &populations.slow {
            for (field, number) in traces.numbers_of(&traces.rows[*nth as usize]) {
                fields[*field as usize].slow.push(*number);
            }
        }
        let baseline = &populations.baseline;
        let tasks = baseline.chunks(baseline.len().div_ceil(TASKS).max(1)).collect();
        let of_tasks = map_tasks(run_tasks, tasks, |of_task| {
            let mut numbers = vec![Vec::new(); fields.len()];
            for nth in of_task {
                for (field, number) in traces.numbers_of(&traces.rows[*nth as usize]) {
                    if !fields[*field as usize].slow.is_empty() {
                        numbers[*field as usize].push(*number);
                    }
                }
            }
            numbers
        });
        for (nth, field) in fields.iter_mut().enumerate() {
            field.all = of_tasks.iter().map(|numbers| &*numbers[nth]).collect::<Vec<_>>().concat();
            field.all.extend_from_slice(&field.slow);
        }
        fields
    }

    /// The quantiles of all numbers, and of those of slow traces.
    fn cuts(&mut self) -> Cuts {
        let Self { slow, all } = self;
        let Some(most) = all.iter().copied().max_by(f64::total_cmp) else { return Cuts::default() };
        let least = all.iter().copied().fold(most, f64::min);
        // Not sorted as a whole: most of them are between two cuts.
        let ranks = CUTS_ABOVE.iter().chain(&CUTS_BELOW).map(|q| tail_start(*q, all.len()));
        let ranks: BTreeSet<usize> = ranks.collect();
        select(all, &Vec::from_iter(ranks));
        slow.sort_unstable_by(f64::total_cmp);
        let at = |numbers: &[f64], quantile| numbers[tail_start(quantile, numbers.len())];
        let mut above = CUTS_ABOVE.map(|quantile| at(all, quantile)).to_vec();
        above.extend(CUTS_BELOW_SLOW.map(|quantile| below(all, at(slow, quantile))));
        let mut at_most = CUTS_BELOW.map(|quantile| at(all, quantile)).to_vec();
        at_most.push(at(slow, 0.9));
        for cuts in [&mut above, &mut at_most] {
            cuts.retain(|at| (least..most).contains(at));
            cuts.sort_unstable_by(f64::total_cmp);
            cuts.dedup();
        }
        Cuts { above, at_most }
    }
}

fn bin_number(index: usize) -> u32 {
    u32::try_from(index).expect("a field has few cuts")
}

/// Moves the numbers of some ranks, which rise, to where sorting would move them.
fn select(numbers: &mut [f64], ranks: &[usize]) {
    let half = ranks.len() / 2;
    let Some(rank) = ranks.get(half) else { return };
    let (lower, _, higher) = numbers.select_nth_unstable_by(*rank, f64::total_cmp);
    select(lower, &ranks[..half]);
    let of_higher: Vec<usize> = ranks[half + 1..].iter().map(|other| other - rank - 1).collect();
    select(higher, &of_higher);
}

/// The largest of the numbers that is less than `number`.
fn below(numbers: &[f64], number: f64) -> f64 {
    numbers.iter().copied().filter(|other| *other < number).fold(f64::NEG_INFINITY, f64::max)
}

#[cfg(test)]
mod tests {
    use super::select;
    use alloc::vec::Vec;
    use curtail_units::Rng;

    #[test]
    fn selected_numbers_are_where_sorting_moves_them() {
        let mut rng = Rng::new(1);
        let ranks = [0, 1, 17, 500, 501, 998, 999];
        let mut numbers: Vec<f64> = (0..1_000).map(|_| (rng.unit() * 100.0).floor()).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        select(&mut numbers, &ranks);
        for rank in ranks {
            assert_eq!(numbers[rank].to_bits(), sorted[rank].to_bits(), "rank {rank}");
        }
    }
}
