//! Executions: the time in service of each attempt, apart from its waiting.
//!
//! A server starts requests in order of arrival, at most `concurrency` at once. With the instants of arrival and
//! departure known, the start of each execution follows exactly: the later of its arrival and the first instant with
//! fewer than `concurrency` executions. No distribution is assumed.
//! **Decides** the concurrency: the smallest one under which hardly any execution ends before it starts, and those that
//! waited are not shorter than the others. With a smaller one, requests would have overtaken the requests that they waited
//! for, and a part of their service would count as waiting.
//! **Source** of the comparison: Mann and Whitney, "On a test of whether one of two random variables is stochastically
//! larger than the other" (1947), for each replica; the statistics and their variances are added.
//! **Inputs**: all attempts to a replica. Load that is not in the recording makes times in service longer.
//! **Hurts when** servers start requests in another order, or share cores: the concurrency is then the largest number
//! of requests that were at one server, and waiting counts as service.

use crate::recording::{AttemptEnd, RecordedAttempt, Recording, UNKNOWN};
use curtail_units::{Duration, Instant};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Minimum number of attempts that waited, for a statement on the concurrency.
const WAITED_MIN: u64 = 20;

/// The share of those that waited that may end before their turn: the instants of a recording are those of the root, and
/// messages do not take equally long. With a concurrency that is too small by one, a percent or more do.
const OVERTAKING_MAX: f64 = 0.002;

/// The standard normal quantile from which on executions that waited are shorter: 1 % of samples without a difference.
const SHORTER_Z: f64 = -2.33;

/// The difference between the probabilities to be longer and to be shorter, halved, from which on it is relevant. Executions
/// that waited lack the time of messages.
const SHORTER_MIN: f64 = -0.05;

/// One execution of an attempt at a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Execution {
    /// The index of the request.
    pub(crate) request: u32,
    /// The number of the attempt among those of its request.
    pub(crate) nth: u32,
    pub(crate) replica: u32,
    /// The arrival of its attempt.
    pub(crate) arrived: Instant,
    pub(crate) started: Instant,
    pub(crate) ended: Instant,
    /// Whether it is complete: a cancelled one would have been longer.
    pub(crate) is_whole: bool,
}

impl Execution {
    pub(crate) fn lasted(&self) -> Duration {
        self.ended.since(self.started)
    }
}

/// The executions of a recording.
#[derive(Clone, Debug)]
pub(crate) struct Executions {
    /// The executions of each replica, in order of their start. One list if the replicas are not known.
    pub(crate) of_replica: Vec<Vec<Execution>>,
    /// Maximum number of executions at once, if requests waited for it.
    pub(crate) concurrency: Option<u32>,
    /// Whether servers reported their times in service.
    pub(crate) is_measured: bool,
    /// Attempts that failed, and all attempts.
    pub(crate) failed: u64,
    pub(crate) attempts: u64,
}

/// An attempt at its server.
#[derive(Clone, Copy, Debug)]
struct Visit {
    request: u32,
    nth: u32,
    arrived: Instant,
    left: Instant,
    end: AttemptEnd,
    service: Option<Duration>,
}

impl Executions {
    /// Infers the executions of `recording`. Messages take its `message_delay` one way.
    pub(crate) fn infer(recording: &Recording) -> Self {
        let visits = visits(recording);
        let all = visits.iter().flatten();
        let is_measured = all.clone().any(|visit| visit.service.is_some());
        let failed = all.clone().filter(|visit| visit.end == AttemptEnd::Failed).count() as u64;
        let attempts = all.count() as u64;
        let at_once_max = visits.iter().map(|visits| at_once_max(visits)).max().unwrap_or(1);
        let has_replicas = !recording.replicas.is_empty();
        let concurrency = if has_replicas { find_concurrency(&visits, at_once_max) } else { None };
        let at_once = if has_replicas { concurrency.unwrap_or(at_once_max) } else { u32::MAX };
        let of_replica = (0..).zip(&visits).map(|(replica, visits)| {
            let mut executions = Vec::with_capacity(visits.len());
            for (visit, inferred) in visits.iter().zip(Starts::new(visits, at_once)) {
                let measured = visit.service.map(|service| instant_before(visit.left, service));
                // A cancelled attempt may have left while it waited, and a rejected one was not executed.
                let started = measured.unwrap_or(inferred);
                if started >= visit.left || visit.end == AttemptEnd::Failed {
                    continue;
                }
                executions.push(Execution {
                    request: visit.request,
                    nth: visit.nth,
                    replica,
                    arrived: visit.arrived,
                    started,
                    ended: visit.left,
                    is_whole: visit.end == AttemptEnd::Responded,
                });
            }
            executions.sort_by_key(|execution| execution.started);
            executions
        });
        let of_replica = of_replica.collect();
        Self { of_replica, concurrency, is_measured, failed, attempts }
    }

    /// The time in service of all executions together, until an instant.
    pub(crate) fn total_until(&self, end: Instant) -> Duration {
        let all = self.of_replica.iter().flatten();
        all.fold(Duration::ZERO, |sum, execution| {
            sum + execution.ended.min(end).since(execution.started)
        })
    }
}

/// The visits of each replica, in order of arrival.
fn visits(recording: &Recording) -> Vec<Vec<Visit>> {
    let delay = recording.message_delay.unwrap_or_default();
    let mut visits = vec![Vec::new(); recording.replicas.len().max(1)];
    for (request, (_, attempts)) in (0..).zip(recording.with_attempts()) {
        for (nth, attempt) in (0..).zip(attempts) {
            // Among named replicas, an attempt to none of them counts for none.
            let index = match attempt.replica {
                UNKNOWN if recording.replicas.is_empty() => 0,
                replica => replica as usize,
            };
            let Some(visits) = visits.get_mut(index) else { continue };
            visits.push(visit((request, nth), attempt, delay));
        }
    }
    for visits in &mut visits {
        visits.sort_by_key(|visit| visit.arrived);
    }
    visits
}

fn visit((request, nth): (u32, u32), attempt: &RecordedAttempt, delay: Duration) -> Visit {
    let RecordedAttempt { sent, end, service, .. } = *attempt;
    let arrived = sent + delay;
    // A cancellation travels to the server, a response from it.
    let left = match end {
        AttemptEnd::Cancelled => attempt.ended() + delay,
        AttemptEnd::Responded | AttemptEnd::Failed => instant_before(attempt.ended(), delay),
    };
    Visit { request, nth, arrived, left: left.max(arrived), end, service }
}

pub(crate) fn instant_before(at: Instant, by: Duration) -> Instant {
    Instant::from_ns(at.as_ns().saturating_sub(by.as_ns()))
}

/// The starts of visits in order of arrival, when at most `concurrency` are in service.
struct Starts<'v> {
    visits: std::slice::Iter<'v, Visit>,
    concurrency: usize,
    /// The ends of the executions in service.
    busy_until: BinaryHeap<Reverse<Instant>>,
}

impl<'v> Starts<'v> {
    fn new(visits: &'v [Visit], concurrency: u32) -> Self {
        let concurrency = concurrency.max(1) as usize;
        Self { visits: visits.iter(), concurrency, busy_until: BinaryHeap::new() }
    }
}

impl Iterator for Starts<'_> {
    type Item = Instant;

    fn next(&mut self) -> Option<Instant> {
        let visit = self.visits.next()?;
        let has_ended = |busy_until: &BinaryHeap<Reverse<Instant>>| {
            busy_until.peek().is_some_and(|Reverse(until)| *until <= visit.arrived)
        };
        while has_ended(&self.busy_until) {
            self.busy_until.pop();
        }
        if self.busy_until.len() < self.concurrency {
            self.busy_until.push(Reverse(visit.left));
            return Some(visit.arrived);
        }
        let Reverse(free) = self.busy_until.peek().copied()?;
        // A cancelled attempt that left before its turn was not executed.
        if visit.left > free || visit.end != AttemptEnd::Cancelled {
            self.busy_until.pop();
            self.busy_until.push(Reverse(visit.left.max(free)));
        }
        Some(free)
    }
}

fn at_once_max(visits: &[Visit]) -> u32 {
    let mut leaving = BinaryHeap::new();
    let mut max = 1;
    for visit in visits {
        while leaving.peek().is_some_and(|Reverse(left)| *left <= visit.arrived) {
            leaving.pop();
        }
        leaving.push(Reverse(visit.left));
        max = max.max(leaving.len());
    }
    u32::try_from(max).unwrap_or(u32::MAX)
}

/// The smallest concurrency under which executions end after their start; [`None`] if no attempt waited with it.
fn find_concurrency(visits: &[Vec<Visit>], at_once_max: u32) -> Option<u32> {
    let (mut too_small, mut enough) = (0, at_once_max);
    while too_small + 1 < enough {
        let middle = u32::midpoint(too_small, enough);
        if count_waits(visits, middle).is_some() { enough = middle } else { too_small = middle }
    }
    let waited = count_waits(visits, enough)?;
    (waited >= WAITED_MIN).then_some(enough)
}

/// The number of attempts that waited under this concurrency; [`None`] if too many of them ended before their turn, or they
/// are shorter than the others.
fn count_waits(visits: &[Vec<Visit>], concurrency: u32) -> Option<u64> {
    let (mut waits, mut overtook) = (0_u64, 0_u64);
    let mut longer = Longer::default();
    for visits in visits {
        let (mut waited, mut others) = (Vec::new(), Vec::new());
        for (visit, started) in visits.iter().zip(Starts::new(visits, concurrency)) {
            if visit.end != AttemptEnd::Responded {
                continue;
            }
            let has_waited = started > visit.arrived;
            overtook += u64::from(has_waited && started >= visit.left);
            if has_waited { &mut waited } else { &mut others }.push(visit.left.since(started));
        }
        waits += waited.len() as u64;
        longer.add(&waited, others);
    }
    let is_enough = overtook as f64 <= OVERTAKING_MAX * waits as f64 && !longer.is_shorter();
    is_enough.then_some(waits)
}

/// Whether durations are longer or shorter than others, by ranks: sums over replicas.
#[derive(Default)]
struct Longer {
    /// The number of pairs in which the duration is longer minus half of all pairs.
    statistic: f64,
    variance: f64,
    pairs: f64,
}

impl Longer {
    fn add(&mut self, durations: &[Duration], mut others: Vec<Duration>) {
        others.sort_unstable();
        let (count, other_count) = (durations.len() as f64, others.len() as f64);
        let longer = durations.iter().map(|one| {
            let below = others.partition_point(|other| other < one);
            let equal = others[below..].partition_point(|other| other == one);
            below as f64 + equal as f64 / 2.0
        });
        let pairs = count * other_count;
        self.statistic += longer.sum::<f64>() - pairs / 2.0;
        self.variance += pairs * (count + other_count + 1.0) / 12.0;
        self.pairs += pairs;
    }

    fn is_shorter(&self) -> bool {
        self.statistic < SHORTER_Z * self.variance.sqrt()
            && self.statistic < SHORTER_MIN * self.pairs
    }
}

#[cfg(test)]
mod tests;
