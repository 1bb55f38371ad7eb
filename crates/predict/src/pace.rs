//! The pace of each replica over time: when it stopped, and when it was slower.
//!
//! A replica stops or slows down for all of its executions together, and a heavy request is slow alone. So the evidence
//! of a slow period is that executions at one replica are slow *together*; a single slow execution proves nothing.
//!
//! **Stops**: between two departures, with k executions in service, the chance of such a long gap is the product of
//! their chances to last on. A gap that chance hardly explains (1 in 100 over the whole recording) is a stop; the time
//! beyond the usual rest of executions, before and after, is lost. If the replica was idle, the stop began before the first
//! arrival, on average in the middle of the idle time.
//! **Slow periods**: a hidden Markov model with one state for each of [`SLOWDOWNS`]; the most likely sequence of states
//! (Viterbi, 1967), given the distribution of all executions.
//! **Common slow periods** come first, from the executions of all replicas together (`all_replicas.rs`): those of one replica may
//! be too few to show them. Stops and slow periods of each replica are then found in a time without the common ones.
//! **Source**: the jointness of slow executions: ARCHITECTURE.md, "the problem"; Viterbi, "Error bounds for
//! convolutional codes", 1967.
//! **Hurts when** a replica executes one request at a time: then no two executions are slow together, and its stops
//! count as slow requests.

mod all_replicas;

use crate::executions::{Execution, instant_before};
use all_replicas::{PacedTime, find_common, overlaid};
use curtail_units::{Duration, Instant};
use std::collections::VecDeque;

/// The slowdowns that are distinguished; 1 is the pace of most executions.
const SLOWDOWNS: [f64; 13] = [1.0, 0.5, 0.7, 1.3, 1.6, 2.0, 2.5, 3.0, 4.0, 6.0, 9.0, 14.0, 20.0];

/// Chance of one false stop in a whole recording.
const FALSE_STOPS: f64 = 0.01;

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
    /// The usual pace divided by the pace in this period; infinite: the replica stopped.
    pub slowdown: f64,
}

impl SlowPeriod {
    /// Its duration.
    #[must_use]
    pub const fn lasted(&self) -> Duration {
        self.to.since(self.from)
    }

    const fn is_stop(&self) -> bool {
        self.slowdown.is_infinite()
    }
}

/// Finds the slow periods of all replicas, by replica and start; `executions` are those of each replica.
pub(crate) fn find_slow_periods(executions: &[Vec<Execution>]) -> Vec<Vec<SlowPeriod>> {
    let common = find_common(executions);
    if common.is_empty() {
        return find_own(executions);
    }
    let time = PacedTime::new(&common);
    let paced = |execution: &Execution| Execution {
        started: time.paced(execution.started),
        ended: time.paced(execution.ended),
        ..*execution
    };
    let of_replica = |executions: &Vec<Execution>| executions.iter().map(paced).collect();
    let paced: Vec<Vec<Execution>> = executions.iter().map(of_replica).collect();
    let own = find_own(&paced).into_iter().zip(executions);
    own.map(|(own, executions)| {
        let replica = executions.first().map_or(0, |execution| execution.replica);
        overlaid(replica, &time.real_periods(own), &common)
    })
    .collect()
}

/// Finds the stops and slow periods of each replica by itself.
fn find_own(executions: &[Vec<Execution>]) -> Vec<Vec<SlowPeriod>> {
    let mut stops: Vec<Vec<SlowPeriod>> = vec![Vec::new(); executions.len()];
    for _ in 0..ROUNDS {
        let survival = Survival::of(works(executions, &stops));
        stops = executions.iter().map(|executions| find_stops(executions, &survival)).collect();
    }
    let mut paces = stops.clone();
    for _ in 0..ROUNDS {
        paces = find_slowdowns(executions, &stops, &paces);
    }
    paces
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

fn works(executions: &[Vec<Execution>], periods: &[Vec<SlowPeriod>]) -> Vec<f64> {
    let of_replica = |(executions, periods): (&Vec<Execution>, &Vec<SlowPeriod>)| {
        let whole = executions.iter().filter(|execution| execution.is_whole);
        whole.map(|execution| work_ns(execution, periods)).collect::<Vec<f64>>()
    };
    executions.iter().zip(periods).flat_map(of_replica).collect()
}

/// The share of executions that last longer than a time.
struct Survival {
    sorted_ns: Vec<f64>,
    /// The mean time until the first of k executions ends, from a random instant on, for each k from 1.
    first_ends_ns: [f64; FIRST_OF_MAX],
}

/// The largest k in [`Survival::first_ends_ns`].
const FIRST_OF_MAX: usize = 16;

impl Survival {
    fn of(mut durations_ns: Vec<f64>) -> Self {
        durations_ns.sort_unstable_by(f64::total_cmp);
        let first_ends_ns = first_ends(&durations_ns);
        Self { sorted_ns: durations_ns, first_ends_ns }
    }

    fn log_above(&self, ns: f64) -> f64 {
        let len = self.sorted_ns.len();
        let above = len - self.sorted_ns.partition_point(|known| *known <= ns);
        ((above as f64 + 0.5) / (len as f64 + 1.0)).ln()
    }

    /// The mean time until the first of `count` executions ends; zero if there are none.
    fn first_end_ns(&self, count: usize) -> f64 {
        count.checked_sub(1).map_or(0.0, |nth| self.first_ends_ns[nth.min(FIRST_OF_MAX - 1)])
    }

    fn median_ns(&self) -> f64 {
        self.sorted_ns.get(self.sorted_ns.len() / 2).copied().unwrap_or(0.0)
    }
}

/// The mean time until the first of k executions ends. At a random instant, the rest of an execution is above t with the
/// chance `R(t) = E[max(0, S − t)] / E[S]`, and the first of k rests has the mean `∫ R(t)^k dt`.
fn first_ends(sorted_ns: &[f64]) -> [f64; FIRST_OF_MAX] {
    let mut means = [0.0; FIRST_OF_MAX];
    let sum: f64 = sorted_ns.iter().sum();
    let (mut above_sum, mut from) = (sum, 0.0);
    for (nth, ns) in sorted_ns.iter().enumerate() {
        let above = (sorted_ns.len() - nth) as f64;
        let middle = f64::midpoint(from, *ns);
        let rest = ((above_sum - above * middle) / sum.max(1.0)).max(0.0);
        let mut power = rest;
        for mean in &mut means {
            *mean += power * (ns - from);
            power *= rest;
        }
        (above_sum, from) = (above_sum - ns, *ns);
    }
    means
}

/// Finds the stops of one replica; `executions` are in order of their start.
fn find_stops(executions: &[Execution], survival: &Survival) -> Vec<SlowPeriod> {
    let mut ends: Vec<Instant> = executions.iter().map(|execution| execution.ended).collect();
    ends.sort_unstable();
    let chance_min = FALSE_STOPS.ln() - (ends.len().max(1) as f64).ln();
    let mut stops: Vec<SlowPeriod> = Vec::new();
    // The executions that may be in service in the gap.
    let mut open: VecDeque<&Execution> = VecDeque::new();
    let mut next = 0;
    for pair in ends.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        open.retain(|execution| execution.ended > from);
        while next < executions.len() && executions[next].started < to {
            if executions[next].ended > from {
                open.push_back(&executions[next]);
            }
            next += 1;
        }
        let gap_ns = to.since(from).as_ns_f64();
        // Most gaps are short: nothing to look at.
        if gap_ns < survival.median_ns() / 2.0 || open.is_empty() {
            continue;
        }
        let began = open.iter().map(|execution| execution.started).min().unwrap_or(from).max(from);
        if open.len() < 2 || log_chance(&open, (began, to), survival) > chance_min {
            continue;
        }
        let replica = open[0].replica;
        let before = open.iter().filter(|execution| execution.started < began).count();
        let usual_ns = [before, open.len()].map(|count| survival.first_end_ns(count));
        let length_ns = to.since(began).as_ns_f64();
        let scale = (length_ns / 2.0 / (usual_ns[0] + usual_ns[1])).min(1.0);
        let [from, until] = usual_ns.map(|ns| Duration::from_ns_f64(ns * scale));
        let to = began + Duration::from_ns_f64(length_ns - until.as_ns_f64());
        // An idle replica stops anywhere between the departure before and the first arrival.
        let from = match before {
            0 => instant_before(began, began.since(pair[0]).mul_f64(0.5)),
            _ => began + from,
        };
        stops.push(SlowPeriod { replica, from, to, slowdown: f64::INFINITY });
    }
    stops
}

/// The logarithm of the chance that none of the executions ends between two instants.
fn log_chance(open: &VecDeque<&Execution>, (from, to): (Instant, Instant), of: &Survival) -> f64 {
    let lasts_on = |execution: &&Execution| {
        let age_ns = |at: Instant| at.since(execution.started).as_ns_f64();
        let before = if execution.started >= from { 0.0 } else { of.log_above(age_ns(from)) };
        of.log_above(age_ns(to) - 1.0) - before
    };
    open.iter().map(lasts_on).sum()
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

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the bin is within the limits before the conversion"
)]
fn bin(ns: f64) -> usize {
    (ns.max(1.0).ln() / BIN_WIDTH).clamp(0.0, (BINS - 1) as f64) as usize
}

/// What a change of state must be worth: more than chance makes of this number of executions.
fn change_cost(executions: usize) -> f64 {
    (executions.max(2) as f64).ln() + 2.0
}

/// One round: the most likely pace of each replica, with the distribution of executions at the paces found before.
fn find_slowdowns(
    executions: &[Vec<Execution>],
    stops: &[Vec<SlowPeriod>],
    before: &[Vec<SlowPeriod>],
) -> Vec<Vec<SlowPeriod>> {
    let works = works(executions, before);
    let count = works.len();
    let density = LogDensity::of(works.into_iter());
    let change = change_cost(count);
    let of_replica = |(executions, stops): (&Vec<Execution>, &Vec<SlowPeriod>)| {
        let whole = executions.iter().filter(|execution| execution.is_whole);
        let whole: Vec<(Instant, f64)> =
            whole.map(|execution| (execution.started, work_ns(execution, stops))).collect();
        let states = viterbi(&whole, &density, change);
        let end = executions.iter().map(|execution| execution.ended).max().unwrap_or_default();
        let replica = executions.first().map_or(0, |execution| execution.replica);
        let mut periods = to_periods(replica, &whole, &states, end);
        periods = without_stops(periods, stops);
        periods.extend(stops.iter().copied());
        periods.sort_by_key(|period| period.from);
        periods
    };
    executions.iter().zip(stops).map(of_replica).collect()
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

/// Cuts stops out of slow periods; both are in order.
fn without_stops(periods: Vec<SlowPeriod>, stops: &[SlowPeriod]) -> Vec<SlowPeriod> {
    let mut rest = Vec::new();
    for mut period in periods {
        let first = stops.partition_point(|stop| stop.to <= period.from);
        for stop in stops[first..].iter().take_while(|stop| stop.from < period.to) {
            if stop.from > period.from {
                rest.push(SlowPeriod { to: stop.from, ..period });
            }
            period.from = stop.to;
        }
        if period.from < period.to {
            rest.push(period);
        }
    }
    rest
}

/// The share of `span` in which replicas stopped, and in which they were slower, over all `replicas`.
pub(crate) fn shares(periods: &[SlowPeriod], replicas: usize, span: Duration) -> (f64, f64) {
    let all = span.as_secs_f64().max(1e-9) * replicas.max(1) as f64;
    let sum = |is_stop: bool| {
        let of_kind = periods.iter().filter(|period| period.is_stop() == is_stop);
        of_kind.map(|period| period.lasted().as_secs_f64()).sum::<f64>() / all
    };
    (sum(true), sum(false))
}

#[cfg(test)]
mod tests;
