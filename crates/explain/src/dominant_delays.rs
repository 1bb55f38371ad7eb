//! Dominant delays: components and fan-outs with most of the added time of many slow traces.
//!
//! A gap, a queue or a lookup has no attribute that other traces have with another value. A component **dominates** a slow
//! trace if more than half of its added time (beyond the mean of the baseline of its stratum) is there, and if the trace were
//! not slow without it. A component that works, and does not only wait, must also take [`WORK_FACTOR_MIN`] times its time in
//! the baseline: otherwise the operation that works most would seem to be the cause in every trace.
//!
//! A component can be how a factor makes traces slow: a slow replica has a queue. If the lower bound of the share of a
//! component's traces with a factor is more than twice the share by chance, then these are the factor's, and the component has
//! the others. A component that works has only traces without a factor: it is where they are slow, and a factor is why.
//!
//! A **fan-out** dominates a slow trace that nothing else explains if the same holds for the spread of its parallel calls.

use crate::cause::Cause;
use crate::component::Component;
use crate::excess::{Charge, Excess};
use crate::factors::{FACTORS_MAX, Factors, SLOW_MIN};
use crate::populations::Populations;
use crate::replica_pattern::ReplicaPattern;
use crate::traces::Traces;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use curtail_units::wilson_interval;

/// The smallest lower bound of a delay's share that is a finding.
const SHARE_MIN: f64 = 0.1;

/// The smallest share of the excess that a candidate has, and the largest number of candidates.
const EXCESS_MIN: f64 = 0.02;
const CANDIDATES_MAX: usize = 16;

/// The smallest time of a component that works, relative to its mean time in the baseline.
const WORK_FACTOR_MIN: f64 = 10.0;

/// A component or a fan-out that dominates slow traces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DominantDelay {
    /// The number of the component in [`Excess::components`]; absent: the traces of a fan-out are slow in many components.
    pub(crate) component: Option<u32>,
    /// The fan-out of most of its slow traces, if they wait for the slowest of its calls.
    pub(crate) fan_out: Option<ParallelCalls>,
    /// How the slow traces of the component are spread over replicas and time, if there is a pattern.
    pub(crate) replica_pattern: Option<ReplicaPattern>,
    /// The bit of its slow traces in [`Factors::masks`].
    pub(crate) bit: usize,
    /// The number of its slow traces.
    pub(crate) slow: u32,
}

/// Parallel calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ParallelCalls {
    /// The number of the service and operation that makes them.
    pub(crate) caller: u32,
    /// The mean number of calls.
    pub(crate) count: f64,
}

impl ParallelCalls {
    /// The fan-out of most of `all` traces.
    fn most<'a>(of_fan_outs: impl Iterator<Item = &'a (u32, u32)>, all: usize) -> Option<Self> {
        let mut of_callers: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
        for (caller, calls) in of_fan_outs {
            let (traces, sum) = of_callers.entry(*caller).or_default();
            (*traces, *sum) = (*traces + 1, *sum + f64::from(*calls));
        }
        let (caller, (traces, sum)) = of_callers.into_iter().max_by_key(|(_, of)| of.0)?;
        (traces * 2 > all).then(|| Self { caller, count: sum / traces as f64 })
    }
}

/// The mean times of a stratum's baseline, and the duration of its fastest slow trace.
#[derive(Clone, Debug)]
struct StratumBaseline {
    traces: f64,
    duration_ns: f64,
    /// The mean time of each candidate.
    times_ns: Vec<f64>,
    threshold_ns: f64,
}

impl StratumBaseline {
    /// Whether this delay dominates a trace: more than half of its added time, and not slow without it.
    fn is_dominated_by(&self, delay_ns: f64, duration_ns: i64) -> bool {
        let duration_ns = duration_ns as f64;
        delay_ns > (duration_ns - self.duration_ns) / 2.0
            && duration_ns - delay_ns < self.threshold_ns
    }
}

/// The slow traces that a fan-out dominates, each with the caller and the number of calls.
type FanOutTraces = BTreeMap<u32, (u32, u32)>;

/// Finds components and fan-outs, and marks their slow traces in the masks of `factors`.
pub(crate) fn find_dominant_delays(
    traces: &Traces,
    populations: &Populations,
    (excess, is_long): (&Excess, &[bool]),
    factors: &mut Factors,
) -> Vec<DominantDelay> {
    let candidates = candidates(traces, excess);
    let fan_out = |nth: u32| traces.rows[nth as usize].fan_out;
    if candidates.is_empty() && populations.slow.iter().all(|nth| fan_out(*nth).is_none()) {
        return Vec::new();
    }
    let mut number = vec![None; excess.components.len()];
    (0..)
        .zip(&candidates)
        .for_each(|(nth, (component, _))| number[*component as usize] = Some(nth));
    // The last time is the spread of the fan-out.
    let spread = candidates.len();
    let add_times = |nth: u32, times_ns: &mut [f64]| {
        for time in traces.times(&traces.rows[nth as usize]) {
            if let Some(candidate) = number[excess.resolved[time.component as usize] as usize] {
                let of_candidate: &mut f64 = &mut times_ns[candidate];
                *of_candidate += time.time_ns as f64;
            }
        }
        times_ns[spread] += fan_out(nth).map_or(0.0, |of| of.spread_ns as f64);
    };
    let baselines = stratum_baselines(traces, populations, candidates.len() + 1, add_times);
    let mut of_candidates = vec![Vec::new(); candidates.len()];
    let mut of_fan_outs = FanOutTraces::new();
    for nth in &populations.slow {
        let baseline = &baselines[populations.strata[*nth as usize] as usize];
        let duration_ns = traces.rows[*nth as usize].duration_ns;
        let mut times = vec![0.0; candidates.len() + 1];
        add_times(*nth, &mut times);
        let is_dominated_by =
            |at: usize| baseline.is_dominated_by(times[at] - baseline.times_ns[at], duration_ns);
        let dominates = |candidate: &usize| {
            let (_, only_waits) = candidates[*candidate];
            let time_min_ns = WORK_FACTOR_MIN * baseline.times_ns[*candidate];
            (only_waits || times[*candidate] >= time_min_ns) && is_dominated_by(*candidate)
        };
        if let Some(candidate) = (0..candidates.len()).find(dominates) {
            of_candidates[candidate].push(*nth);
        }
        if let Some(fan_out) = fan_out(*nth).filter(|_| is_dominated_by(spread)) {
            of_fan_outs.insert(*nth, (fan_out.caller, fan_out.calls));
        }
    }
    let mut found = Vec::new();
    let of_candidates = candidates.into_iter().zip(of_candidates);
    let of_traces = (&of_fan_outs, is_long);
    add_components((traces, populations, excess), of_candidates, of_traces, (&mut found, factors));
    add_fan_outs(populations, of_fan_outs, (&mut found, factors));
    found
}

/// Adds the components that are findings, with marks for their slow traces. If a component is how the factors make traces
/// slow, only its traces without a factor count.
fn add_components(
    (traces, populations, excess): (&Traces, &Populations, &Excess),
    of_candidates: impl Iterator<Item = ((u32, bool), Vec<u32>)>,
    (of_fan_outs, is_long): (&FanOutTraces, &[bool]),
    (found, factors): (&mut Vec<DominantDelay>, &mut Factors),
) {
    let slow_count = populations.slow.len() as f64;
    let factor_count = factors.found.len();
    let has_factor = |nth: u32, bit: usize| factors.masks[nth as usize] & (1 << bit) != 0;
    let by_chance = |bit| {
        let with_factor = populations.baseline.iter().filter(|nth| has_factor(**nth, bit));
        with_factor.map(|nth| populations.weight(*nth)).sum::<f64>() / slow_count
    };
    let by_chance: Vec<f64> = (0..factor_count).map(by_chance).collect();
    for ((component, only_waits), mut of_component) in of_candidates {
        let is_factors = |bit: &usize| {
            let with_factor =
                of_component.iter().filter(|nth| factors.masks[**nth as usize] & (1 << bit) != 0);
            let counts = (with_factor.count() as f64, of_component.len() as f64);
            !only_waits || is_beyond_chance(counts, by_chance[*bit])
        };
        let of_factors: u16 = (0..factor_count).filter(is_factors).map(|bit| 1 << bit).sum();
        of_component.retain(|nth| factors.masks[*nth as usize] & of_factors == 0);
        let Some(delay) = add_delay(&of_component, slow_count, (found, factors)) else { continue };
        delay.component = Some(component);
        let in_fan_outs = of_component.iter().filter_map(|nth| of_fan_outs.get(nth));
        delay.fan_out = ParallelCalls::most(in_fan_outs, of_component.len());
        let mut is_dominated = vec![false; traces.rows.len()];
        of_component.iter().for_each(|nth| is_dominated[*nth as usize] = true);
        let component = *excess.components.get(component);
        delay.replica_pattern =
            ReplicaPattern::find(traces, populations, component, (&is_dominated, is_long));
    }
}

/// Adds a finding with marks for its slow traces, if they are many and there is room.
fn add_delay<'f>(
    slow: &[u32],
    slow_count: f64,
    (found, factors): (&'f mut Vec<DominantDelay>, &mut Factors),
) -> Option<&'f mut DominantDelay> {
    let count = u32::try_from(slow.len()).expect("the number of traces is limited");
    let (lower, _) = wilson_interval(f64::from(count) / slow_count, slow_count);
    let bit = factors.found.len() + found.len();
    if count < SLOW_MIN || lower < SHARE_MIN || bit >= FACTORS_MAX {
        return None;
    }
    slow.iter().for_each(|nth| factors.masks[*nth as usize] |= 1 << bit);
    found.push(DominantDelay {
        component: None,
        fan_out: None,
        replica_pattern: None,
        bit,
        slow: count,
    });
    found.last_mut()
}

/// Adds the fan-outs of the slow traces that nothing else explains.
fn add_fan_outs(
    populations: &Populations,
    mut of_fan_outs: FanOutTraces,
    (found, factors): (&mut Vec<DominantDelay>, &mut Factors),
) {
    of_fan_outs.retain(|nth, _| factors.masks[*nth as usize] == 0);
    let slow_count = populations.slow.len() as f64;
    let callers: BTreeSet<u32> = of_fan_outs.values().map(|(caller, _)| *caller).collect();
    for caller in callers {
        let of_caller = || of_fan_outs.iter().filter(|(_, of)| of.0 == caller);
        let slow: Vec<u32> = of_caller().map(|(nth, _)| *nth).collect();
        let calls = ParallelCalls::most(of_caller().map(|(_, of)| of), slow.len());
        if let Some(delay) = add_delay(&slow, slow_count, (found, factors)) {
            delay.fan_out = calls;
        }
    }
}

/// Whether the lower bound of the share of a component's slow traces with a factor is more than twice the share by chance.
fn is_beyond_chance((with_factor, all): (f64, f64), by_chance: f64) -> bool {
    all > 0.0 && wilson_interval(with_factor / all, all).0 > 2.0 * by_chance
}

/// The components with the largest excess, each with whether it only waits.
fn candidates(traces: &Traces, excess: &Excess) -> Vec<(u32, bool)> {
    let charged_ns =
        || excess.by_component.iter().map(|component| component.charged_ns(Charge::AllTime));
    let total_ns: f64 = charged_ns().sum();
    let mut sorted: Vec<_> = (0_u32..)
        .zip(charged_ns())
        .filter(|(_, ns)| *ns >= EXCESS_MIN * total_ns && *ns > 0.0)
        .collect();
    sorted.sort_by(|one, other| other.1.total_cmp(&one.1));
    sorted.truncate(CANDIDATES_MAX);
    let only_waits = |component: &Component| match component {
        Component::SelfTime { operation, .. } => {
            Cause::of_wait(traces.names.get(*operation)).is_some()
        }
        Component::Gap { .. } | Component::Phase { .. } => true,
        // A dependency works as well as it waits; nothing says which.
        Component::UntracedCall { .. } => false,
    };
    sorted
        .into_iter()
        .map(|(component, _)| (component, only_waits(excess.components.get(component))))
        .collect()
}

fn stratum_baselines(
    traces: &Traces,
    populations: &Populations,
    candidates: usize,
    add_times: impl Fn(u32, &mut [f64]),
) -> Vec<StratumBaseline> {
    let none = StratumBaseline {
        traces: 0.0,
        duration_ns: 0.0,
        times_ns: vec![0.0; candidates],
        threshold_ns: f64::INFINITY,
    };
    let mut baselines = vec![none; populations.counts.len()];
    for nth in &populations.baseline {
        let of_stratum = &mut baselines[populations.strata[*nth as usize] as usize];
        of_stratum.traces += 1.0;
        of_stratum.duration_ns += traces.rows[*nth as usize].duration_ns as f64;
        add_times(*nth, &mut of_stratum.times_ns);
    }
    for of_stratum in &mut baselines {
        let StratumBaseline { traces, duration_ns, times_ns, .. } = of_stratum;
        *duration_ns /= *traces;
        times_ns.iter_mut().for_each(|sum| *sum /= *traces);
    }
    for nth in &populations.slow {
        let of_stratum = &mut baselines[populations.strata[*nth as usize] as usize];
        let duration_ns = traces.rows[*nth as usize].duration_ns as f64;
        of_stratum.threshold_ns = of_stratum.threshold_ns.min(duration_ns);
    }
    baselines
}

#[cfg(test)]
mod tests {
    use super::is_beyond_chance;

    #[test]
    fn traces_are_of_a_factor_only_beyond_chance() {
        // Nearly all traces of a queue are at one replica of four.
        assert!(is_beyond_chance((95.0, 100.0), 0.25));
        // One replica of four has a quarter of them.
        assert!(!is_beyond_chance((25.0, 100.0), 0.25));
        // A factor of nine traces in ten has most traces of every component.
        assert!(!is_beyond_chance((92.0, 100.0), 0.9));
        // Few traces prove little.
        assert!(!is_beyond_chance((3.0, 4.0), 0.25));
        assert!(!is_beyond_chance((0.0, 0.0), 0.0));
    }
}
