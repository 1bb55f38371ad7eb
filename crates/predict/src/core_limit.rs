//! Cores that executions share: those of their replica, or of one machine on which all replicas run.
//!
//! With n executions and c cores, each execution has the pace min(1, c / n). Then an execution takes longer if further
//! requests arrive soon after its start. Nothing else in a service does that: where requests go does not depend on the
//! replica, so what slows one down, or makes a request heavy, brings it no arrivals.
//! **Decides** whether executions share cores: the partial rank correlation of their duration with the number of arrivals
//! in one median duration after their start. It must exceed [`CORRELATION_MIN`] and chance. If arrivals at **other**
//! replicas matter, all replicas share cores; if only those at the same replica do, each has its own.
//! **Controls for** the other arrivals after the start (those at the same replica, or those at other ones), and for all
//! arrivals in the same time before it: requests that come in groups come to all replicas. Ranks are those among
//! [`BLOCK`] executions in succession: some hours of a day have more requests, and a service may be slower then.
//! **Decides** their number: the one with which the work of an execution does not depend on these arrivals. With more
//! cores than there are, it still grows with their number; with fewer cores, it falls.
//! **Source**: arrivals are an instrumental variable: Wright, "The tariff on animal and vegetable oils", 1928, appendix B.
//! **Limits**: each execution uses one core; from 1 to 64 cores. Cores used by others than the replicas lower the number.
//! **Hurts when** replicas choose requests (a policy that prefers idle replicas). Only recordings of random replicas
//! without further attempts are looked at.

use crate::executions::{Execution, instant_before};
use crate::pace::{PacedTime, SlowPeriod, in_paced_time};
use curtail_units::{Duration, Instant};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// The smallest correlation that counts. A smaller one changes few executions, and pauses that come after a number of
/// executions depend on arrivals a little too.
const CORRELATION_MIN: f64 = 0.03;

/// The number of standard errors above which chance does not explain a correlation.
const STANDARD_ERRORS: f64 = 6.0;

/// The largest ratio of the ends of the 95 % interval of the number of cores. With a wider one, the number is not known.
const UNCERTAINTY_MAX: f64 = 2.0;

/// The number of executions among which ranks are given.
const BLOCK: usize = 200;

/// The range of the number of cores. With fewer, every execution would always be slowed down, which is slower work.
pub const CORES: RangeInclusive<f64> = 1.0..=64.0;

/// The number of times that the last factor of two is halved, on a logarithmic scale; the last step is 2 %.
const HALVINGS: usize = 5;

/// The number of cores that executions share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CoreLimit {
    /// Those at one replica.
    PerReplica(f64),
    /// Those at all replicas: processes on one machine.
    AllReplicas(f64),
}

impl CoreLimit {
    /// The cores of each replica, if they are its own.
    #[must_use]
    pub fn per_replica(self) -> Option<f64> {
        if let Self::PerReplica(cores) = self { Some(cores) } else { None }
    }

    /// The cores of all replicas together, if they share them.
    #[must_use]
    pub fn all_replicas(self) -> Option<f64> {
        if let Self::AllReplicas(cores) = self { Some(cores) } else { None }
    }
}

/// Finds the cores that executions share; absent: each has one, or their number is not known. `periods` has the pauses
/// of each replica.
pub(crate) fn find_core_limit(
    executions: &[Vec<Execution>],
    periods: &[Vec<SlowPeriod>],
) -> Option<CoreLimit> {
    let arrivals = Arrivals::count(executions);
    let standard_error = 1.0 / (arrivals.order.len().max(1) as f64).sqrt();
    let least = CORRELATION_MIN.max(STANDARD_ERRORS * standard_error);
    let correlation = |influence: &Influence<'_>, limit| {
        let paced = in_paced_time(executions, &paced_times(executions, periods, limit));
        influence.correlation(paced.iter().flatten().map(Execution::lasted))
    };
    let [of_others, of_own] = [CoreLimit::AllReplicas, CoreLimit::PerReplica].map(|of| {
        let influence = Influence::of(&arrivals, of(1.0))?;
        let found = correlation(&influence, of(f64::INFINITY))?;
        Some((influence, found))
    });
    let from_others = of_others.as_ref().map_or(0.0, |(_, found)| *found);
    let (influence, of): (_, fn(f64) -> CoreLimit) = match (of_others, of_own) {
        (Some((influence, found)), _) if found >= least => (influence, CoreLimit::AllReplicas),
        // With cores of its own, arrivals at other replicas do not matter.
        (_, Some((influence, found))) if found >= least && from_others < found / 2.0 => {
            (influence, CoreLimit::PerReplica)
        }
        _ => return None,
    };
    // The number, and the ends of its 95 % interval.
    let [cores, fewest, most] = [0.0, -2.0, 2.0].map(|errors| {
        let least = errors * standard_error;
        find_cores(|cores| correlation(&influence, of(cores)).is_some_and(|found| found > least))
    });
    (most? <= fewest? * UNCERTAINTY_MAX).then_some(of(cores?))
}

/// Finds the number of cores above which the work `grows` with the arrivals; absent: it does not with the largest number.
fn find_cores(grows: impl Fn(f64) -> bool) -> Option<f64> {
    let halves = std::iter::successors(Some(*CORES.end()), |cores| Some(cores / 2.0));
    let halves = halves.take_while(|cores| CORES.contains(cores));
    let mut more = halves.take_while(|cores| grows(*cores)).last()?;
    let mut fewer = more / 2.0;
    if fewer < *CORES.start() {
        return Some(more);
    }
    for _ in 0..HALVINGS {
        let middle = (fewer * more).sqrt();
        if grows(middle) { more = middle } else { fewer = middle }
    }
    Some((fewer * more).sqrt())
}

/// The numbers of arrivals around the start of each execution, replica by replica. Its own arrival counts as before it.
#[derive(Default)]
struct Arrivals {
    /// The executions in order of their start.
    order: Vec<usize>,
    own_after: Vec<f64>,
    own_before: Vec<f64>,
    others_after: Vec<f64>,
    others_before: Vec<f64>,
}

impl Arrivals {
    fn count(executions: &[Vec<Execution>]) -> Self {
        let width = median_duration(executions);
        let all = sorted_arrivals(executions.iter().flatten());
        let mut counts = Self::default();
        for of_replica in executions {
            let own = sorted_arrivals(of_replica.iter());
            for Execution { started, .. } in of_replica {
                let counted = |arrivals: &[Instant]| {
                    let [from, start, to] =
                        [instant_before(*started, width), *started, *started + width]
                            .map(|end| arrivals.partition_point(|at| *at <= end) as f64);
                    (start - from, to - start)
                };
                let (own_before, own_after) = counted(&own);
                let (all_before, all_after) = counted(&all);
                counts.own_before.push(own_before);
                counts.own_after.push(own_after);
                counts.others_before.push(all_before - own_before);
                counts.others_after.push(all_after - own_after);
            }
        }
        let starts: Vec<Instant> = executions.iter().flatten().map(|it| it.started).collect();
        counts.order = (0..starts.len()).collect();
        counts.order.sort_by_key(|nth| starts[*nth]);
        counts
    }
}

fn sorted_arrivals<'e>(executions: impl Iterator<Item = &'e Execution>) -> Vec<Instant> {
    let mut arrivals: Vec<Instant> = executions.map(|it| it.arrived).collect();
    arrivals.sort_unstable();
    arrivals
}

fn median_duration(executions: &[Vec<Execution>]) -> Duration {
    let mut all: Vec<Duration> = executions.iter().flatten().map(Execution::lasted).collect();
    let middle = all.len() / 2;
    if all.is_empty() { Duration::ZERO } else { *all.select_nth_unstable(middle).1 }
}

/// The influence of the arrivals that share cores with an execution.
struct Influence<'a> {
    order: &'a [usize],
    /// The ranks of their numbers, without what the `controls` explain, as a vector of length 1.
    arrivals: Vec<f64>,
    /// The ranks of the other numbers, as vectors of length 1 at right angles.
    controls: Vec<Vec<f64>>,
}

impl<'a> Influence<'a> {
    /// Absent: the controls explain the arrivals.
    fn of(arrivals: &'a Arrivals, limit: CoreLimit) -> Option<Self> {
        let Arrivals { order, own_after, own_before, others_after, others_before } = arrivals;
        let (arrivals, other_place) = match limit {
            CoreLimit::PerReplica(_) => (own_after, others_after),
            CoreLimit::AllReplicas(_) => (others_after, own_after),
        };
        let mut controls: Vec<Vec<f64>> = Vec::new();
        for control in [other_place, own_before, others_before] {
            let rest = without(block_ranks(control, order), &controls);
            controls.extend(to_unit_length(rest));
        }
        let arrivals = to_unit_length(without(block_ranks(arrivals, order), &controls))?;
        Some(Self { order, arrivals, controls })
    }

    /// The partial rank correlation with the work of executions; absent: the controls explain the work.
    fn correlation(&self, works: impl Iterator<Item = Duration>) -> Option<f64> {
        let works: Vec<f64> = works.map(|work| work.as_ns_f64()).collect();
        let works = to_unit_length(without(block_ranks(&works, self.order), &self.controls))?;
        Some(dot(&works, &self.arrivals))
    }
}

/// The ranks of values among each [`BLOCK`] of them in `order`, about their mean. Equal values share their ranks.
fn block_ranks(values: &[f64], order: &[usize]) -> Vec<f64> {
    let mut ranks = vec![0.0; values.len()];
    for block in order.chunks(BLOCK) {
        let mut sorted = block.to_vec();
        sorted.sort_unstable_by(|one, other| values[*one].total_cmp(&values[*other]));
        let mean = (block.len() as f64 - 1.0) / 2.0;
        let mut before = 0;
        for equal in sorted.chunk_by(|one, other| values[*one] == values[*other]) {
            let rank = before as f64 + (equal.len() as f64 - 1.0) / 2.0 - mean;
            equal.iter().for_each(|nth| ranks[*nth] = rank);
            before += equal.len();
        }
    }
    ranks
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// The part of a vector at right angles to all of `units`.
fn without(mut vector: Vec<f64>, units: &[Vec<f64>]) -> Vec<f64> {
    for unit in units {
        let along = dot(&vector, unit);
        vector.iter_mut().zip(unit).for_each(|(value, unit)| *value -= along * unit);
    }
    vector
}

/// A vector of the same direction; absent: it has none, but for rounding.
fn to_unit_length(mut vector: Vec<f64>) -> Option<Vec<f64>> {
    let length = dot(&vector, &vector).sqrt();
    vector.iter_mut().for_each(|value| *value /= length);
    (length > 1e-6).then_some(vector)
}

/// The time of each replica in which executions have a core each. Executions at a replica that pauses use none of the
/// common cores; `periods` has these pauses.
pub(crate) fn paced_times(
    executions: &[Vec<Execution>],
    periods: &[Vec<SlowPeriod>],
    limit: CoreLimit,
) -> Vec<Rc<PacedTime>> {
    match limit {
        CoreLimit::PerReplica(cores) => {
            let of_replica = |all: &Vec<Execution>| PacedTime::new(&above(users(all, &[]), cores));
            executions.iter().map(of_replica).map(Rc::new).collect()
        }
        CoreLimit::AllReplicas(cores) => {
            let of_replicas = executions.iter().zip(periods);
            let users = of_replicas.flat_map(|(all, periods)| users(all, periods));
            let common = Rc::new(PacedTime::new(&above(users.collect(), cores)));
            vec![common; executions.len()]
        }
    }
}

/// The changes of the number of executions at a replica that use a core.
fn users(executions: &[Execution], periods: &[SlowPeriod]) -> Vec<(Instant, i64)> {
    let pauses: Vec<&SlowPeriod> = periods.iter().filter(|it| it.is_pause()).collect();
    let mut changes = Vec::with_capacity(2 * executions.len());
    for Execution { started, ended, .. } in executions {
        changes.extend([(*started, 1), (*ended, -1)]);
        let first = pauses.partition_point(|pause| pause.to <= *started);
        for pause in pauses[first..].iter().take_while(|pause| pause.from < *ended) {
            changes.extend([(pause.from.max(*started), -1), (pause.to.min(*ended), 1)]);
        }
    }
    changes
}

/// The times in which there are more users than cores.
fn above(mut changes: Vec<(Instant, i64)>, cores: f64) -> Vec<SlowPeriod> {
    changes.sort_unstable();
    let mut users = 0;
    let mut slowdowns: Vec<SlowPeriod> = Vec::new();
    for pair in changes.windows(2) {
        users += pair[0].1;
        let (from, to, slowdown) = (pair[0].0, pair[1].0, users as f64 / cores);
        if from < to && slowdown > 1.0 {
            slowdowns.push(SlowPeriod { replica: 0, from, to, slowdown });
        }
    }
    slowdowns
}

#[cfg(test)]
mod tests;
