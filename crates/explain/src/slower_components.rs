//! Which components take longer in one population than in the other, beyond chance.
//!
//! Each trace has one value of a component: its mean time a visit. The values are compared by their ranks, so that one
//! extreme trace decides nothing. They are compared within strata, so that a different mix of operations is no difference. All
//! components are tested together.

use crate::excess::Excess;
use crate::populations::Populations;
use crate::traces::Traces;
use alloc::vec;
use alloc::vec::Vec;
use curtail_units::{SampleValue, discovery_limit, van_elteren_p_value};

/// The share of false discoveries that is accepted.
const FALSE_DISCOVERIES: f64 = 0.05;

/// The smallest excess of a component that is tested, as a share of the baseline's mean duration.
const EXCESS_MIN: f64 = 0.01;

/// A component that takes longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlowerComponent {
    /// The number of the component in [`Excess::components`].
    pub(crate) component: u32,
    pub(crate) p_value: f64,
}

/// The components that take longer, the largest excess first.
pub(crate) fn find_slower_components(
    traces: &Traces,
    populations: &Populations,
    excess: &Excess,
    baseline_ns: f64,
) -> Vec<SlowerComponent> {
    let is_tested = |component: u32| {
        excess.by_component[component as usize].longer_ns >= EXCESS_MIN * baseline_ns
    };
    let mut values: Vec<Vec<SampleValue>> = vec![Vec::new(); excess.components.len()];
    let mut of_trace: Vec<(u32, f64, f64)> = Vec::new();
    for nth in populations.slow.iter().chain(&populations.baseline) {
        of_trace.clear();
        for time in traces.times(&traces.rows[*nth as usize]) {
            let component = excess.resolved[time.component as usize];
            if is_tested(component) {
                of_trace.push((component, f64::from(time.visits), time.time_ns as f64));
            }
        }
        // Components of one trace that resolve to the same one are one value.
        of_trace.sort_unstable_by_key(|(component, ..)| *component);
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
    let mut found = Vec::new();
    for (component, values) in (0..).zip(&mut values).filter(|(component, _)| is_tested(*component))
    {
        found.extend(
            van_elteren_p_value(values).map(|p_value| SlowerComponent { component, p_value }),
        );
    }
    // All components count as tests, also those whose excess is too small.
    let p_values = found.iter().map(|slower| slower.p_value);
    let limit = discovery_limit(p_values, excess.components.len(), FALSE_DISCOVERIES);
    found.retain(|slower| slower.p_value <= limit);
    let longer_ns =
        |slower: &SlowerComponent| excess.by_component[slower.component as usize].longer_ns;
    found.sort_by(|one, other| longer_ns(other).total_cmp(&longer_ns(one)));
    found
}
