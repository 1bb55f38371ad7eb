//! The pace of each replica over time: when it paused, and when it was slower.
//!
//! A replica pauses or slows down for all of its executions together, and a heavy request is slow alone. So the evidence
//! of a slow period is that executions at one replica are slow *together*; a single slow execution proves nothing.
//!
//! **Pauses**: between two departures, with k executions in service, the chance of such a long gap is the product of
//! their chances to last on. Gaps that chance hardly explains are pauses, up to the chance at which 2 % of them are
//! expected to be false (Benjamini & Hochberg, 1995): where many pauses are certain, less evidence is enough for another.
//! **Slow periods**: a hidden Markov model with one state for each of [`SLOWDOWNS`]; the most likely sequence of states
//! (Viterbi, 1967), given the distribution of all executions.
//! **Common slow periods** come first, from the executions of all replicas together (`all_replicas.rs`): those of one replica may
//! be too few to show them. Pauses and slow periods of each replica are then found in a time without the common ones.
//! **Source**: the jointness of slow executions: ARCHITECTURE.md, "the problem"; Viterbi, "Error bounds for
//! convolutional codes", 1967.
//! **Hurts when** a replica executes one request at a time: then no two executions are slow together, and its pauses
//! count as slow requests.

mod all_replicas;
mod paced_time;
mod pauses;

use crate::executions::Execution;
use all_replicas::find_common;
use curtail_units::{Duration, Instant};
use paced_time::overlaid;
pub(crate) use paced_time::{PacedTime, in_paced_time};
use pauses::{find_certain_pauses, find_likely_pauses};

/// The slowdowns that are distinguished; 1 is the pace of most executions.
const SLOWDOWNS: [f64; 13] = [1.0, 0.5, 0.7, 1.3, 1.6, 2.0, 2.5, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0];

/// The number of rounds: each finds slow periods with the distribution of the executions outside those found before.
const ROUNDS: usize = 3;

/// A time in which a replica did not have its usual pace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowPeriod {
    /// The index of the replica.
    pub replica: u32,
    /// Its start.
    pub from: Instant,
    /// Its end.
    pub to: Instant,
    /// The usual pace divided by the pace in this period; infinite: the replica paused.
    pub slowdown: f64,
}

impl SlowPeriod {
    /// Its duration.
    #[must_use]
    pub const fn lasted(&self) -> Duration {
        self.to.since(self.from)
    }

    pub(crate) const fn is_pause(&self) -> bool {
        self.slowdown.is_infinite()
    }
}

/// Finds the slow periods of all replicas, by replica and start; `executions` are those of each replica.
pub(crate) fn find_slow_periods(executions: &[Vec<Execution>]) -> Vec<Vec<SlowPeriod>> {
    let common = vec![find_common(executions); executions.len()];
    with_known(find_outside(&common, executions, find_own), &common)
}

/// Finds the pauses and slow periods of each replica by itself. Certain pauses come first, so that they do not pass for
/// very slow periods, and the other pauses last, so that slow periods do not pass for many short pauses.
fn find_own(executions: &[Vec<Execution>]) -> Vec<Vec<SlowPeriod>> {
    let pauses = find_certain_pauses(executions);
    let mut paces = pauses.clone();
    for _ in 0..ROUNDS {
        paces = find_slowdowns(executions, &pauses, &paces);
    }
    for periods in &mut paces {
        periods.retain(|period| !period.is_pause());
    }
    with_known(find_outside(&paces, executions, find_likely_pauses), &paces)
}

/// Adds the known periods of each replica to those found.
fn with_known(found: Vec<Vec<SlowPeriod>>, known: &[Vec<SlowPeriod>]) -> Vec<Vec<SlowPeriod>> {
    let of_replicas = (0..).zip(found).zip(known);
    of_replicas.map(|((replica, found), known)| overlaid(replica, &found, known)).collect()
}

/// Finds periods in a time without the `known` ones of each replica.
fn find_outside(
    known: &[Vec<SlowPeriod>],
    executions: &[Vec<Execution>],
    find: impl Fn(&[Vec<Execution>]) -> Vec<Vec<SlowPeriod>>,
) -> Vec<Vec<SlowPeriod>> {
    let times: Vec<PacedTime> = known.iter().map(|known| PacedTime::new(known)).collect();
    let found = find(&in_paced_time(executions, &times));
    found.into_iter().zip(&times).map(|(found, time)| time.real_periods(found)).collect()
}

/// The work of an execution: its duration at the usual pace. `periods` are those of its replica, in order.
pub(crate) fn work_ns(execution: &Execution, periods: &[SlowPeriod]) -> f64 {
    let first = periods.partition_point(|period| period.to <= execution.started);
    let mut work = execution.lasted().as_ns_f64();
    for period in periods[first..].iter().take_while(|period| period.from < execution.ended) {
        let from = period.from.max(execution.started);
        let to = period.to.min(execution.ended);
        work -= to.since(from).as_ns_f64() * (1.0 - 1.0 / period.slowdown);
    }
    work.max(0.0)
}

/// The work of the executions that are complete.
fn works(executions: &[Vec<Execution>], periods: &[Vec<SlowPeriod>]) -> Vec<f64> {
    let of_replica = |(executions, periods): (&Vec<Execution>, &Vec<SlowPeriod>)| {
        let whole = executions.iter().filter(|execution| execution.is_whole);
        whole.map(|execution| work_ns(execution, periods)).collect::<Vec<f64>>()
    };
    executions.iter().zip(periods).flat_map(of_replica).collect()
}

/// The width of a bin of [`LogDensity`], as a difference of natural logarithms.
const BIN_WIDTH: f64 = 0.1;
/// The bins cover durations from 1 ns to about 4 × 10^17 ns.
const BINS: usize = 410;

/// The logarithm of the density of durations, over their logarithm.
struct LogDensity {
    log_density: Vec<f64>,
}

impl LogDensity {
    fn of(durations_ns: impl Iterator<Item = f64>) -> Self {
        let mut counts = vec![0.0; BINS];
        let mut all = 0.0;
        for ns in durations_ns {
            // A triangle of five bins: neighbors of a filled bin are likely too.
            let bin = bin(ns);
            for (offset, weight) in [1.0, 2.0, 3.0, 2.0, 1.0].into_iter().enumerate() {
                counts[(bin + offset).saturating_sub(2).min(BINS - 1)] += weight / 9.0;
            }
            all += 1.0;
        }
        // A little of everywhere: an outlier is unlikely at every pace alike, and switches none.
        let floor = 0.02 * all / BINS as f64 + 1e-3;
        let total = all * 1.02 + 1e-3 * BINS as f64;
        let log_density = counts.iter().map(|count| ((count + floor) / total).ln()).collect();
        Self { log_density }
    }

    fn at(&self, ns: f64) -> f64 {
        self.log_density[bin(ns)]
    }
}

fn bin(ns: f64) -> usize {
    log_bin(ns, BIN_WIDTH, BINS)
}

/// The bin of a duration among `bins`, whose width is a difference of natural logarithms.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bin is within the limits before the conversion"
)]
fn log_bin(ns: f64, width: f64, bins: usize) -> usize {
    (ns.max(1.0).ln() / width).clamp(0.0, (bins - 1) as f64) as usize
}

/// What a change of state must be worth: more than chance makes of this number of executions.
fn change_cost(executions: usize) -> f64 {
    (executions.max(2) as f64).ln() + 2.0
}

/// One round: the most likely pace of each replica, with the distribution of executions at the paces found before.
fn find_slowdowns(
    executions: &[Vec<Execution>],
    pauses: &[Vec<SlowPeriod>],
    before: &[Vec<SlowPeriod>],
) -> Vec<Vec<SlowPeriod>> {
    let works = works(executions, before);
    let count = works.len();
    let density = LogDensity::of(works.into_iter());
    let change = change_cost(count);
    let of_replica = |(executions, pauses): (&Vec<Execution>, &Vec<SlowPeriod>)| {
        let whole = executions.iter().filter(|execution| execution.is_whole);
        let whole: Vec<(Instant, f64)> =
            whole.map(|execution| (execution.started, work_ns(execution, pauses))).collect();
        let states = viterbi(&whole, &density, change);
        let end = executions.iter().map(|execution| execution.ended).max().unwrap_or_default();
        let replica = executions.first().map_or(0, |execution| execution.replica);
        let mut periods = to_periods(replica, &whole, &states, end);
        periods = without_pauses(periods, pauses);
        periods.extend(pauses.iter().copied());
        periods.sort_by_key(|period| period.from);
        periods
    };
    executions.iter().zip(pauses).map(of_replica).collect()
}

/// The most likely index of a slowdown for each execution.
fn viterbi(executions: &[(Instant, f64)], density: &LogDensity, change: f64) -> Vec<u8> {
    let score = |state: usize, ns: f64| density.at(ns / SLOWDOWNS[state]);
    let mut best = [0.0_f64; SLOWDOWNS.len()];
    let mut came_from: Vec<[u8; SLOWDOWNS.len()]> = Vec::with_capacity(executions.len());
    for (_, ns) in executions {
        let top = (0..best.len()).max_by(|a, b| best[*a].total_cmp(&best[*b])).unwrap_or(0);
        let mut from = [0; SLOWDOWNS.len()];
        let mut next = [0.0; SLOWDOWNS.len()];
        for state in 0..SLOWDOWNS.len() {
            let (source, kept) = if best[top] - change > best[state] {
                (top, best[top] - change)
            } else {
                (state, best[state])
            };
            from[state] = u8::try_from(source).expect("there are few slowdowns");
            next[state] = kept + score(state, *ns);
        }
        (best, _) = (next, came_from.push(from));
    }
    let last = (0..best.len()).max_by(|a, b| best[*a].total_cmp(&best[*b])).unwrap_or(0);
    let mut state = u8::try_from(last).expect("there are few slowdowns");
    let mut states: Vec<u8> = Vec::with_capacity(came_from.len());
    for from in came_from.iter().rev() {
        states.push(state);
        state = from[usize::from(state)];
    }
    states.reverse();
    states
}

/// The stretches of equal states that are not the usual one.
fn to_periods(
    replica: u32,
    executions: &[(Instant, f64)],
    states: &[u8],
    end: Instant,
) -> Vec<SlowPeriod> {
    let mut periods: Vec<SlowPeriod> = Vec::new();
    let mut previous = 0;
    for ((started, _), state) in executions.iter().zip(states) {
        if *state != previous {
            if previous != 0
                && let Some(last) = periods.last_mut()
            {
                last.to = *started;
            }
            if *state != 0 {
                let slowdown = SLOWDOWNS[usize::from(*state)];
                periods.push(SlowPeriod { replica, from: *started, to: end, slowdown });
            }
            previous = *state;
        }
    }
    periods
}

/// Cuts pauses out of slow periods; both are in order.
fn without_pauses(periods: Vec<SlowPeriod>, pauses: &[SlowPeriod]) -> Vec<SlowPeriod> {
    let mut rest = Vec::new();
    for mut period in periods {
        let first = pauses.partition_point(|pause| pause.to <= period.from);
        for pause in pauses[first..].iter().take_while(|pause| pause.from < period.to) {
            if pause.from > period.from {
                rest.push(SlowPeriod { to: pause.from, ..period });
            }
            period.from = pause.to;
        }
        if period.from < period.to {
            rest.push(period);
        }
    }
    rest
}

/// The share of `span` in which replicas paused, and in which they were slower, over all `replicas`.
pub(crate) fn shares(periods: &[SlowPeriod], replicas: usize, span: Duration) -> (f64, f64) {
    let all = span.as_secs_f64().max(1e-9) * replicas.max(1) as f64;
    let sum = |is_pause: bool| {
        let of_kind = periods.iter().filter(|period| period.is_pause() == is_pause);
        of_kind.map(|period| period.lasted().as_secs_f64()).sum::<f64>() / all
    };
    (sum(true), sum(false))
}

#[cfg(test)]
mod tests;
