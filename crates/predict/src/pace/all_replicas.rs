//! Slow periods that nearly all replicas have in common.

use super::{LogDensity, ROUNDS, SlowPeriod, change_cost, to_periods, viterbi, work_ns};
use crate::executions::Execution;
use curtail_units::Instant;

/// Finds the slow periods that nearly all replicas have in common, in order. Their replica is zero.
pub(super) fn find_common(executions: &[Vec<Execution>]) -> Vec<SlowPeriod> {
    if executions.len() < 2 {
        return Vec::new();
    }
    let of_replica = executions.iter().enumerate();
    let mut all: Vec<(&Execution, usize)> = of_replica
        .flat_map(|(nth, executions)| {
            let whole = executions.iter().filter(|execution| execution.is_whole);
            whole.map(move |execution| (execution, nth))
        })
        .collect();
    all.sort_unstable_by_key(|(execution, _)| execution.started);
    let lasted: Vec<(Instant, f64)> =
        all.iter().map(|(it, _)| (it.started, it.lasted().as_ns_f64())).collect();
    let end = all.iter().map(|(execution, _)| execution.ended).max().unwrap_or_default();
    let mut common: Vec<SlowPeriod> = Vec::new();
    for _ in 0..ROUNDS {
        let density = LogDensity::of(all.iter().map(|(execution, _)| work_ns(execution, &common)));
        let states = viterbi(&lasted, &density, change_cost(all.len()));
        common = to_periods(0, &lasted, &states, end);
        common.retain(|period| {
            let first = all.partition_point(|(execution, _)| execution.started < period.from);
            let within = all[first..].iter().take_while(|(it, _)| it.started < period.to);
            is_common(within, period.slowdown, &density, executions.len())
        });
    }
    common
}

/// Whether three in four of the replicas, and at least two, have executions that are more likely at this slowdown than at the
/// usual pace.
fn is_common<'e>(
    executions: impl Iterator<Item = &'e (&'e Execution, usize)>,
    slowdown: f64,
    density: &LogDensity,
    replicas: usize,
) -> bool {
    let mut gains: Vec<Option<f64>> = vec![None; replicas];
    for (execution, nth) in executions {
        let ns = execution.lasted().as_ns_f64();
        *gains[*nth].get_or_insert(0.0) += density.at(ns / slowdown) - density.at(ns);
    }
    let known = gains.iter().flatten().count();
    let slow = gains.iter().flatten().filter(|gain| **gain > 0.0).count();
    slow >= 2 && slow * 4 >= known * 3
}
