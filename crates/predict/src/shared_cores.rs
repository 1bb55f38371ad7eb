//! Cores that the replicas share, because they are processes on one machine.
//!
//! With n executions at all replicas and c cores, each execution has the pace min(1, c / n). Then executions take longer
//! while the **other** replicas are busy. With cores of their own, these do not matter: requests go to random replicas, and what
//! slows a replica down also keeps its own executions there, but not those of others.
//!
//! **Decides** whether cores are shared: the rank correlation of the work of an execution with the number of
//! executions that it finds at other replicas. Slow periods that all replicas have in common explain such a correlation
//! too, so the work is that without them. It must exceed [`CORRELATION_MIN`] and chance.
//! **Decides** their number: the one with which the work no longer depends on the others. With more cores than there
//! are, it still grows with their number; with fewer cores, it falls. Slow periods are found anew for each number.
//! **Limits**: each execution uses one core; at most 64 cores.
//! Cores used by others than the replicas lower the number.
//! **Hurts when** replicas choose requests (a policy that prefers idle replicas): then busy replicas go together with other
//! busy ones. Only recordings with random replicas and without further attempts are looked at.

use crate::executions::Execution;
use crate::pace::{SlowPeriod, find_slow_periods_besides, work_ns};
use curtail_units::{Instant, rank_correlation};
use std::ops::RangeInclusive;

/// The smallest correlation that counts. None of the recordings of the twelve services of `bench/predictions` reaches it.
const CORRELATION_MIN: f64 = 0.05;

/// The number of standard errors above which chance does not explain a correlation; slow periods make executions dependent.
const STANDARD_ERRORS: f64 = 6.0;

/// The range of the number of cores. With fewer, every execution would always be slowed down, which is slower work.
pub const CORES: RangeInclusive<f64> = 1.0..=64.0;

/// The number of standard errors up to which a correlation counts as none.
const ERRORS_OF_NONE: f64 = 2.0;

/// The number of times that the last factor of two is halved, on a logarithmic scale; the last step is 2 %.
const HALVINGS: usize = 5;

/// The number of cores that the replicas share; absent: they have cores of their own. `periods` are the slow periods of each
/// replica, if they do.
pub(crate) fn find(executions: &[Vec<Execution>], periods: &[Vec<SlowPeriod>]) -> Option<f64> {
    let others = others_in_service(executions);
    let correlation = |periods: &[Vec<SlowPeriod>]| {
        let of_replicas = executions.iter().zip(periods);
        let works = of_replicas
            .flat_map(|(executions, periods)| executions.iter().map(|it| work_ns(it, periods)));
        rank_correlation(&works.zip(others.iter().copied()).collect::<Vec<_>>())
    };
    let standard_error = 1.0 / (others.len().max(1) as f64).sqrt();
    let least = CORRELATION_MIN.max(STANDARD_ERRORS * standard_error);
    if correlation(periods).is_none_or(|found| found < least) {
        return None;
    }
    let grows_with_others = |cores: f64| {
        let (_, all) = slow_periods(executions, periods, cores);
        correlation(&all).is_some_and(|found| found > ERRORS_OF_NONE * standard_error)
    };
    let halves = std::iter::successors(Some(*CORES.end()), |cores| Some(cores / 2.0));
    let mut halves = halves.take_while(|cores| CORES.contains(cores));
    let mut fewer = halves.find(|cores| !grows_with_others(*cores))?;
    let mut more = fewer * 2.0;
    for _ in 0..HALVINGS {
        let middle = (fewer * more).sqrt();
        if grows_with_others(middle) { more = middle } else { fewer = middle }
    }
    Some((fewer * more).sqrt())
}

/// The slow periods of each replica besides shared cores, and together with these. `periods` has its pauses.
pub(crate) fn slow_periods(
    executions: &[Vec<Execution>],
    periods: &[Vec<SlowPeriod>],
    cores: f64,
) -> (Vec<Vec<SlowPeriod>>, Vec<Vec<SlowPeriod>>) {
    find_slow_periods_besides(&slowdowns(executions, periods, cores), executions)
}

/// The number of executions at other replicas at the start of each execution, replica by replica.
fn others_in_service(executions: &[Vec<Execution>]) -> Vec<f64> {
    let sorted = |at: fn(&Execution) -> Instant| {
        let of_replica = |executions: &Vec<Execution>| {
            let mut all: Vec<Instant> = executions.iter().map(at).collect();
            all.sort_unstable();
            all
        };
        executions.iter().map(of_replica).collect::<Vec<_>>()
    };
    let (starts, ends) = (sorted(|it| it.started), sorted(|it| it.ended));
    let in_service = |replica: usize, at: Instant| {
        let started = starts[replica].partition_point(|start| *start < at);
        started - ends[replica].partition_point(|end| *end < at).min(started)
    };
    let others = |(own, execution): (usize, &Execution)| {
        let others = (0..executions.len()).filter(|replica| *replica != own);
        others.map(|replica| in_service(replica, execution.started)).sum::<usize>() as f64
    };
    let own = executions.iter().enumerate();
    own.flat_map(|(own, of_own)| of_own.iter().map(move |it| (own, it))).map(others).collect()
}

/// The times in which the executions at all replicas are more than the cores. Executions at a replica that pauses use none.
fn slowdowns(
    executions: &[Vec<Execution>],
    periods: &[Vec<SlowPeriod>],
    cores: f64,
) -> Vec<SlowPeriod> {
    // The changes of the number of executions that use a core.
    let mut changes: Vec<(Instant, i64)> = Vec::new();
    for (executions, periods) in executions.iter().zip(periods) {
        let pauses: Vec<&SlowPeriod> = periods.iter().filter(|it| it.is_pause()).collect();
        for Execution { started, ended, .. } in executions {
            changes.extend([(*started, 1), (*ended, -1)]);
            let first = pauses.partition_point(|pause| pause.to <= *started);
            for pause in pauses[first..].iter().take_while(|pause| pause.from < *ended) {
                changes.extend([(pause.from.max(*started), -1), (pause.to.min(*ended), 1)]);
            }
        }
    }
    changes.sort_unstable();
    let mut running = 0;
    let mut slowdowns: Vec<SlowPeriod> = Vec::new();
    for pair in changes.windows(2) {
        running += pair[0].1;
        let (from, to, slowdown) = (pair[0].0, pair[1].0, running as f64 / cores);
        if from < to && slowdown > 1.0 {
            slowdowns.push(SlowPeriod { replica: 0, from, to, slowdown });
        }
    }
    slowdowns
}

#[cfg(test)]
mod tests;
