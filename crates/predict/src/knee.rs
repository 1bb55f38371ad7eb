//! The knee of each remedy, and the number of replicas that are needed with it.
//!
//! A remedy that sends more requests helps while there is room, and hurts beyond a load. **Decides** the first load, as a
//! multiple of the recorded one, at which p99 with the remedy is above p99 without it, at that load.
//! **Limits**: loads up to [`LOADS`]; one run each, with the same arrivals and the same random numbers.

use crate::fit::Fit;
use crate::prediction::{RemedyPrediction, in_parallel};
use crate::remedy::Remedy;
use crate::world::simulate;

/// The loads that are tried, as multiples of the recorded one.
const LOADS: [f64; 7] = [1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0];

/// A difference of p99 that counts.
const WORSE: f64 = 1.03;

/// Finds the knee of each remedy that is a policy.
pub(crate) fn find(fit: &Fit, remedies: &mut [RemedyPrediction], seed: u64) {
    let policies = remedies.iter().enumerate().filter(|(_, one)| one.remedy.is_policy(fit));
    let none = Remedy::none(fit);
    let mut remedies_tried = vec![(None, none)];
    remedies_tried.extend(policies.map(|(nth, one)| (Some(nth), one.remedy.clone())));
    let tasks: Vec<Remedy> = remedies_tried
        .iter()
        .flat_map(|(_, remedy)| LOADS.map(|load_ratio| Remedy { load_ratio, ..remedy.clone() }))
        .collect();
    let p99s = in_parallel(&tasks, |remedy| {
        simulate(fit, remedy, fit.intrinsic.ratio, seed).latencies_ns[1]
    });
    let (present, with_remedies) = p99s.split_at(LOADS.len());
    for ((place, _), p99s) in remedies_tried[1..].iter().zip(with_remedies.chunks(LOADS.len())) {
        let hurts = |((with, without), _): &((&f64, &f64), f64)| **with > **without * WORSE;
        let knee = p99s.iter().zip(present).zip(LOADS).find(hurts);
        if let Some(nth) = place {
            remedies[*nth].knee_load_ratio = knee.map(|(_, load)| load);
        }
    }
}

/// The least number of replicas whose p99 with the remedy is at most `p99_ns`, if it is fewer than there are.
pub(crate) fn replicas_needed(
    fit: &Fit,
    with: &RemedyPrediction,
    p99_ns: f64,
    seed: u64,
) -> Option<u32> {
    if !fit.separates_waiting() || !fit.intrinsic.is_known() {
        return None;
    }
    let enough = |replicas: &u32| {
        let remedy = Remedy { replicas: *replicas, ..with.remedy.clone() };
        simulate(fit, &remedy, fit.intrinsic.ratio, seed).latencies_ns[1] <= p99_ns
    };
    (1..fit.replicas).rev().take_while(enough).last()
}
