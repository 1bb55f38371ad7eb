//! The break-even load of each remedy, and the number of replicas that are needed with it.
//!
//! A remedy that sends more requests helps at a low load, and hurts from the break-even load on. **Decides** the first load, as a
//! multiple of the recorded one, at which p99 with the remedy is above p99 without it, at that load; and the least number
//! of replicas with which the whole band of the p99 is at most the present one.
//! **Limits**: loads up to [`LOADS`]; one run each, with the same arrivals and the same random numbers, so a
//! break-even load has no band.

use crate::candidate::Candidate;
use crate::prediction::{PredictionCancelled, RemedyPrediction, Runs, Simulations, p99_ratio};
use crate::world::simulate;

/// The loads that are tried, as multiples of the recorded one.
const LOADS: [f64; 7] = [1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0];

/// A difference of p99 that counts.
const WORSE: f64 = 1.03;

/// Finds the break-even load of each remedy that is a policy.
pub(crate) fn find_loads(
    simulations: &Simulations<'_>,
    remedies: &mut [RemedyPrediction],
) -> Result<(), PredictionCancelled> {
    let fit = simulations.fit;
    let policies = remedies.iter().filter(|one| one.candidate.is_policy(fit));
    let none = Candidate::none(fit);
    let tasks: Vec<Candidate> = std::iter::once(&none)
        .chain(policies.map(|one| &one.candidate))
        .flat_map(|candidate| LOADS.map(|load_ratio| Candidate { load_ratio, ..candidate.clone() }))
        .collect();
    let p99s = simulations.in_parallel(&tasks, |candidate| {
        simulate(fit, candidate, fit.intrinsic.ratio, simulations.seed).latencies_ns[1]
    })?;
    let (present, with_remedies) = p99s.split_at(LOADS.len());
    let policies = remedies.iter_mut().filter(|one| one.candidate.is_policy(fit));
    for (one, p99s) in policies.zip(with_remedies.chunks(LOADS.len())) {
        let hurts = |((with, without), _): &((&f64, &f64), f64)| **with > **without * WORSE;
        let break_even = p99s.iter().zip(present).zip(LOADS).find(hurts);
        one.break_even_load_ratio = break_even.map(|(_, load)| load);
    }
    Ok(())
}

/// The least number of replicas with which the p99 with the remedy is for certain at most that of the `present` runs, if
/// it is fewer than there are.
pub(crate) fn replicas_needed(
    simulations: &Simulations<'_>,
    with: &Candidate,
    present: &[Runs],
) -> Result<Option<u32>, PredictionCancelled> {
    let fit = simulations.fit;
    // Replicas whose concurrency is not known bear any load, and further ones add no cores to shared ones.
    let is_capacity_known = match fit.core_limit {
        None => fit.concurrency.is_some(),
        Some(limit) => limit.per_replica().is_some(),
    };
    if !is_capacity_known || !fit.separates_waiting() || !fit.intrinsic.is_known() {
        return Ok(None);
    }
    let (mut too_few, mut enough) = (0, fit.replicas);
    // Mostly, one fewer is too few already.
    let mut next = fit.replicas - 1;
    while next > too_few {
        let runs = simulations.run_all(&[Candidate { replicas: next, ..with.clone() }])?;
        let is_enough = p99_ratio(&runs[0], present).band.1 <= 1.0;
        if is_enough {
            enough = next
        } else {
            too_few = next
        }
        next = u32::midpoint(too_few, enough);
    }
    Ok(Some(enough).filter(|replicas| *replicas < fit.replicas))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::{Fit, FitOverrides};
    use crate::lab::Lab;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn fewer_replicas_need_a_certain_gain() {
        let lab = Lab {
            seed: 1,
            requests: 12_000,
            per_second: 100.0,
            replicas: 4,
            concurrency: 2,
            work_ms: |rng| 10.0 * (0.3 * rng.normal()).exp(),
            periods: Lab::periods((1, 4), 2.0, 100, f64::INFINITY, 120.0),
        };
        let overrides = FitOverrides { intrinsic_ratio: Some(0.0), ..FitOverrides::default() };
        let fit = Fit::new(&lab.record(), overrides).expect("enough requests");
        let simulations = Simulations { fit: &fit, seed: 1, is_cancelled: &AtomicBool::new(false) };
        let none = Candidate::none(&fit);
        let runs = simulations.run_all(std::slice::from_ref(&none)).expect("it is not cancelled");
        // p99 is nearly the same with three replicas, but not for certain.
        let needed = |with| replicas_needed(&simulations, with, &runs[0]).ok().flatten();
        assert_eq!(needed(&none), None);
        let hedge = Candidate::named(&fit, "hedge p95").expect("it fits").remove(0);
        assert!(matches!(needed(&hedge), Some(2..=3)), "{:?}", needed(&hedge));
    }
}
