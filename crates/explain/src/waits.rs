//! Waits and hiccups: slow traces most of whose added time is in one component.
//!
//! A gap, a queue or a lookup has no attribute that other traces have with another value. A slow trace is **of** a component
//! if more than half of its added time (beyond the mean of the baseline of its stratum) is there, and if it were not slow
//! without it. A component that works, and does not only wait, must also take [`HICCUP`] times its usual time: otherwise
//! the largest of several works would seem to be the cause in every trace.
//!
//! A component can be how a factor makes traces slow: a slow replica has a queue. If surely more than half of the traces of
//! a component have a factor, beyond chance, then these are the factor's, and the component has the others. A component that
//! works has only traces without a factor: it is where they are slow, and a factor is why.

use crate::cause::Cause;
use crate::component::Part;
use crate::excess::{Charge, Excess};
use crate::factors::{FACTORS_MAX, Factors};
use crate::populations::Populations;
use crate::traces::Traces;
use alloc::vec;
use alloc::vec::Vec;
use curtail_units::wilson_interval;

/// The smallest lower bound of a wait's share that is a finding.
const SHARE_MIN: f64 = 0.1;

/// The smallest share of the excess of a component that is looked at, and the largest number of these.
const EXCESS_MIN: f64 = 0.02;
const CANDIDATES_MAX: usize = 16;

/// How many times its usual time a component takes that works.
const HICCUP: f64 = 10.0;

/// A component that explains slow traces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FoundWait {
    /// The number of the component in [`Excess::parts`].
    pub(crate) part: u32,
    /// The bit of its slow traces in [`Factors::masks`].
    pub(crate) bit: usize,
    /// The number of slow traces of the component.
    pub(crate) slow: u32,
}

/// The means of a stratum's baseline, and its fastest slow trace.
#[derive(Clone, Debug)]
struct Usual {
    traces: f64,
    duration_ns: f64,
    /// Of each candidate.
    times_ns: Vec<f64>,
    threshold_ns: f64,
}

/// Finds components, and marks their slow traces in the masks of `factors`.
pub(crate) fn find_waits(
    traces: &Traces,
    populations: &Populations,
    (excess, charge): (&Excess, Charge),
    factors: &mut Factors,
) -> Vec<FoundWait> {
    let candidates = candidates(traces, excess, charge);
    if candidates.is_empty() {
        return Vec::new();
    }
    let mut number = vec![None; excess.parts.len()];
    (0..).zip(&candidates).for_each(|(nth, (part, _))| number[*part as usize] = Some(nth));
    let times = |nth: u32| {
        let mut times_ns = vec![0.0; candidates.len()];
        for time in traces.times(&traces.rows[nth as usize]) {
            if let Some(candidate) = number[excess.resolved[time.part as usize] as usize] {
                let of_candidate: &mut f64 = &mut times_ns[candidate];
                *of_candidate += time.time_ns as f64;
            }
        }
        times_ns
    };
    let usual = usual(traces, populations, candidates.len(), times);
    let mut of_candidates = vec![Vec::new(); candidates.len()];
    for nth in &populations.slow {
        let usual = &usual[populations.strata[*nth as usize] as usize];
        let duration_ns = traces.rows[*nth as usize].duration_ns as f64;
        let most = times(*nth).into_iter().enumerate().find(|(candidate, time_ns)| {
            let usual_ns = usual.times_ns[*candidate];
            let added_ns = time_ns - usual_ns;
            let is_hiccup = candidates[*candidate].1 || *time_ns >= HICCUP * usual_ns;
            is_hiccup
                && added_ns > (duration_ns - usual.duration_ns) / 2.0
                && duration_ns - added_ns < usual.threshold_ns
        });
        if let Some((candidate, _)) = most {
            of_candidates[candidate].push(*nth);
        }
    }
    mark(populations, candidates.into_iter().zip(of_candidates), factors)
}

/// The components that are findings, with marks for their slow traces. If a component is how the factors make traces slow,
/// only its traces without a factor count.
fn mark(
    populations: &Populations,
    of_candidates: impl Iterator<Item = ((u32, bool), Vec<u32>)>,
    factors: &mut Factors,
) -> Vec<FoundWait> {
    let slow_count = populations.slow.len() as f64;
    let mut found = Vec::new();
    let has_factor = populations.baseline.iter().filter(|nth| factors.masks[**nth as usize] != 0);
    let by_chance: f64 = has_factor.map(|nth| populations.weight(*nth)).sum::<f64>() / slow_count;
    for ((part, only_waits), mut of_part) in of_candidates {
        let with_factor = of_part.iter().filter(|nth| factors.masks[**nth as usize] != 0).count();
        if !only_waits || is_explained((with_factor as f64, of_part.len() as f64), by_chance) {
            of_part.retain(|nth| factors.masks[*nth as usize] == 0);
        }
        let slow = u32::try_from(of_part.len()).expect("the number of traces is limited");
        let (lower, _) = wilson_interval(f64::from(slow) / slow_count, slow_count);
        let bit = factors.found.len() + found.len();
        if lower >= SHARE_MIN && bit < FACTORS_MAX {
            of_part.iter().for_each(|nth| factors.masks[*nth as usize] |= 1 << bit);
            found.push(FoundWait { part, bit, slow });
        }
    }
    found
}

/// Whether surely more than half of a component's slow traces have a factor, beyond those that have one by chance.
fn is_explained((with_factor, all): (f64, f64), by_chance: f64) -> bool {
    if all == 0.0 || by_chance >= 1.0 {
        return false;
    }
    let (lower, _) = wilson_interval(with_factor / all, all);
    (lower - by_chance) / (1.0 - by_chance) > 0.5
}

/// The components with the largest excess, each with whether it only waits.
fn candidates(traces: &Traces, excess: &Excess, charge: Charge) -> Vec<(u32, bool)> {
    let total_ns: f64 = excess.of_parts.iter().map(|part| part.charged_ns(charge)).sum();
    let of_parts = excess.of_parts.iter().map(|part| part.charged_ns(charge));
    let mut sorted: Vec<_> = (0_u32..)
        .zip(of_parts)
        .filter(|(_, ns)| *ns >= EXCESS_MIN * total_ns && *ns > 0.0)
        .collect();
    sorted.sort_by(|one, other| other.1.total_cmp(&one.1));
    sorted.truncate(CANDIDATES_MAX);
    let only_waits = |part: &Part| match part {
        Part::Own { operation, .. } => Cause::of_wait(traces.names.get(*operation)).is_some(),
        Part::Gap { .. } | Part::Phase { .. } => true,
        // A dependency works as well as it waits; nothing says which.
        Part::Unseen { .. } => false,
    };
    sorted.into_iter().map(|(part, _)| (part, only_waits(excess.parts.get(part)))).collect()
}

fn usual(
    traces: &Traces,
    populations: &Populations,
    candidates: usize,
    times: impl Fn(u32) -> Vec<f64>,
) -> Vec<Usual> {
    let none = Usual {
        traces: 0.0,
        duration_ns: 0.0,
        times_ns: vec![0.0; candidates],
        threshold_ns: f64::INFINITY,
    };
    let mut usual = vec![none; populations.counts.len()];
    for nth in &populations.baseline {
        let of_stratum = &mut usual[populations.strata[*nth as usize] as usize];
        of_stratum.traces += 1.0;
        of_stratum.duration_ns += traces.rows[*nth as usize].duration_ns as f64;
        of_stratum.times_ns.iter_mut().zip(times(*nth)).for_each(|(sum, ns)| *sum += ns);
    }
    for of_stratum in &mut usual {
        let Usual { traces, duration_ns, times_ns, .. } = of_stratum;
        *duration_ns /= *traces;
        times_ns.iter_mut().for_each(|sum| *sum /= *traces);
    }
    for nth in &populations.slow {
        let of_stratum = &mut usual[populations.strata[*nth as usize] as usize];
        let duration_ns = traces.rows[*nth as usize].duration_ns as f64;
        of_stratum.threshold_ns = of_stratum.threshold_ns.min(duration_ns);
    }
    usual
}

#[cfg(test)]
mod tests {
    use super::is_explained;

    #[test]
    fn traces_are_of_a_factor_only_beyond_chance() {
        // Nearly all traces of a queue are at one replica of four.
        assert!(is_explained((95.0, 100.0), 0.25));
        // One replica of four has a quarter of them.
        assert!(!is_explained((25.0, 100.0), 0.25));
        // A factor of nine traces in ten has most traces of every component.
        assert!(!is_explained((92.0, 100.0), 0.9));
        // Few traces prove little.
        assert!(!is_explained((3.0, 4.0), 0.25));
        assert!(!is_explained((0.0, 0.0), 0.0));
    }
}
