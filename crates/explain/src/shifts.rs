//! Which components take longer in one population than in the other, beyond chance.
//!
//! Each trace has one value of a component: its mean time a visit. The values are compared by their ranks, so that one
//! extreme trace decides nothing. They are compared within strata, so that a different mix of operations is no shift. All
//! components are tested together.

use crate::excess::Excess;
use crate::populations::Populations;
use crate::statistics::{SampleValue, discovery_limit, rank_sum};
use crate::traces::Traces;
use alloc::vec;
use alloc::vec::Vec;

/// The share of false discoveries that is accepted.
const FALSE_DISCOVERIES: f64 = 0.05;

/// The smallest shift worth a word, as a share of the baseline's mean duration.
const SHIFT_MIN: f64 = 0.01;

/// A component that takes longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shift {
    /// The number of the component in [`Excess::parts`].
    pub(crate) part: u32,
    pub(crate) p_value: f64,
}

/// The components that take longer, the largest excess first.
pub(crate) fn find_shifts(
    traces: &Traces,
    populations: &Populations,
    excess: &Excess,
    baseline_ns: f64,
) -> Vec<Shift> {
    let is_tested = |part: u32| excess.of_parts[part as usize].longer_ns >= SHIFT_MIN * baseline_ns;
    let mut values: Vec<Vec<SampleValue>> = vec![Vec::new(); excess.parts.len()];
    let mut of_trace: Vec<(u32, f64, f64)> = Vec::new();
    for nth in populations.slow.iter().chain(&populations.baseline) {
        of_trace.clear();
        for time in traces.times(&traces.rows[*nth as usize]) {
            let part = excess.resolved[time.part as usize];
            if is_tested(part) {
                of_trace.push((part, f64::from(time.visits), time.time_ns as f64));
            }
        }
        // Components of one trace that resolve to the same one are one value.
        of_trace.sort_unstable_by_key(|(part, ..)| *part);
        for same in of_trace.chunk_by(|one, other| one.0 == other.0) {
            let sum =
                same.iter().fold((0.0, 0.0), |sum, (_, visits, ns)| (sum.0 + visits, sum.1 + ns));
            values[same[0].0 as usize].push(SampleValue {
                stratum: populations.strata[*nth as usize],
                value: sum.1 / sum.0,
                is_first: populations.is_slow[*nth as usize],
            });
        }
    }
    let mut shifts = Vec::new();
    for (part, values) in (0..).zip(&mut values).filter(|(part, _)| is_tested(*part)) {
        shifts.extend(rank_sum(values).map(|p_value| Shift { part, p_value }));
    }
    // All components count as tests, also those whose excess is too small.
    let p_values = shifts.iter().map(|shift| shift.p_value);
    let limit = discovery_limit(p_values, excess.parts.len(), FALSE_DISCOVERIES);
    shifts.retain(|shift| shift.p_value <= limit);
    let longer_ns = |shift: &Shift| excess.of_parts[shift.part as usize].longer_ns;
    shifts.sort_by(|one, other| longer_ns(other).total_cmp(&longer_ns(one)));
    shifts
}
