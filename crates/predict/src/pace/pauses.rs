//! The pauses of replicas: gaps between departures that chance does not explain.
//!
//! **When a pause began and ended** is not recorded. Every start and end within its gap is possible, and as likely as the
//! executions in service are with it: one of them ended at the end of the gap, and the others lasted longer. Lengths
//! that other pauses have are likelier (empirical Bayes); the pause is the mean over all possible ones. Pauses start at
//! any instant alike, so a length is as likely as all of its starts together.
//! **Source**: Benjamini & Hochberg, "Controlling the false discovery rate", 1995; Robbins, "An empirical Bayes approach
//! to statistics", 1956.

use super::{ROUNDS, SlowPeriod, log_bin, works};
use crate::executions::Execution;
use curtail_units::{Duration, Instant, discovery_limit};
use std::collections::BTreeSet;

/// The share of the pauses of a replica that may be chance; the chance of a false one where there are none.
const FALSE_PAUSES: f64 = 0.02;

/// Maximum number of executions in service that are looked at for a gap. Fewer executions make a gap more likely by
/// chance, so a part of them finds fewer pauses, never more.
const OPEN_MAX: usize = 64;

/// The number of instants in a gap at which a pause may start or end, and of the executions in service that are evidence for one.
const GRID_STEPS: usize = 40;
const EVIDENCE_MAX: usize = 16;

/// The width of a bin of lengths, as a difference of natural logarithms, and the number of bins: up to about 10^18 ns.
const LENGTH_BIN_WIDTH: f64 = 0.03;
const LENGTH_BINS: usize = 1_380;

/// The number of rounds in which the distribution of the lengths of pauses is found.
const LENGTH_ROUNDS: usize = 20;

/// The number of pauses, of any length alike, that the distribution of lengths begins with.
const LENGTH_ANYWHERE: f64 = 1.0;

/// Finds the certain pauses of each replica: one is false with a chance of [`FALSE_PAUSES`].
pub(super) fn find_certain_pauses(executions: &[Vec<Execution>]) -> Vec<Vec<SlowPeriod>> {
    find_pauses(executions, |_, gaps| FALSE_PAUSES / gaps as f64)
}

/// Finds the pauses of each replica, up to the chance at which [`FALSE_PAUSES`] of them may be false.
pub(super) fn find_likely_pauses(executions: &[Vec<Execution>]) -> Vec<Vec<SlowPeriod>> {
    let limit = |long: &[LongGap<'_>], gaps| {
        discovery_limit(long.iter().map(|gap| gap.chance), gaps, FALSE_PAUSES)
    };
    find_pauses(executions, limit)
}

/// Finds the pauses of each replica: its gaps up to the chance that `chance_max` makes of its long gaps and the number
/// of all its gaps.
fn find_pauses(
    executions: &[Vec<Execution>],
    chance_max: impl Fn(&[LongGap<'_>], usize) -> f64,
) -> Vec<Vec<SlowPeriod>> {
    let mut pauses: Vec<Vec<SlowPeriod>> = vec![Vec::new(); executions.len()];
    for _ in 0..ROUNDS {
        let survival = Survival::of(works(executions, &pauses));
        let gaps_of = |executions: &Vec<Execution>| {
            let mut gaps = find_long_gaps(executions, &survival);
            let chance_max = chance_max(&gaps, executions.len().max(1));
            gaps.retain(|gap| gap.chance <= chance_max);
            gaps.iter().map(|gap| PossiblePauses::of(gap, &survival)).collect()
        };
        let possible: Vec<Vec<PossiblePauses>> = executions.iter().map(gaps_of).collect();
        let lengths = length_weights(possible.iter().flatten());
        let pauses_of = |possible: &Vec<PossiblePauses>| {
            possible.iter().map(|possible| possible.mean(&lengths)).collect()
        };
        pauses = possible.iter().map(pauses_of).collect();
    }
    pauses
}

/// A gap between two departures that is longer than most.
struct LongGap<'e> {
    /// The chance of a gap this long.
    chance: f64,
    /// The instants of the departures.
    from: Instant,
    to: Instant,
    /// The executions in service in the gap.
    open: Vec<&'e Execution>,
}

/// Finds the long gaps of one replica; `executions` are in order of their start.
fn find_long_gaps<'e>(executions: &'e [Execution], survival: &Survival) -> Vec<LongGap<'e>> {
    let mut ends: Vec<(Instant, usize)> =
        executions.iter().zip(0..).map(|(execution, nth)| (execution.ended, nth)).collect();
    ends.sort_unstable();
    let mut long_gaps = Vec::new();
    // The executions that may be in service in the gap, in order of their start.
    let mut open: BTreeSet<usize> = BTreeSet::new();
    let (mut next, mut gone) = (0, 0);
    for pair in ends.windows(2) {
        let ((from, _), (to, last)) = (pair[0], pair[1]);
        while let Some((_, nth)) = ends.get(gone).filter(|(ended, _)| *ended <= from) {
            open.remove(nth);
            gone += 1;
        }
        while next < executions.len() && executions[next].started < to {
            if executions[next].ended > from {
                open.insert(next);
            }
            next += 1;
        }
        // Most gaps are short: nothing to look at.
        if to.since(from).as_ns_f64() < survival.median_ns() / 2.0 || open.len() < 2 {
            continue;
        }
        let mut looked_at: Vec<usize> = open.iter().copied().take(OPEN_MAX).collect();
        // The one that ends the gap shows when the pause ended.
        if open.contains(&last) && !looked_at.contains(&last) {
            looked_at.push(last);
        }
        let looked_at: Vec<&Execution> = looked_at.iter().map(|nth| &executions[*nth]).collect();
        let began = looked_at.iter().map(|execution| execution.started).min();
        let began = began.unwrap_or(from).max(from);
        let chance = log_chance(&looked_at, (began, to), survival).exp();
        if chance <= FALSE_PAUSES {
            long_gaps.push(LongGap { chance, from, to, open: looked_at });
        }
    }
    long_gaps
}

/// The logarithm of the chance that none of the executions ends between two instants.
fn log_chance(open: &[&Execution], (from, to): (Instant, Instant), of: &Survival) -> f64 {
    let lasts_on = |execution: &&Execution| {
        let age_ns = |at: Instant| at.since(execution.started).as_ns_f64();
        let before = if execution.started >= from { 0.0 } else { of.log_above(age_ns(from)) };
        of.log_above(age_ns(to) - 1.0) - before
    };
    open.iter().map(lasts_on).sum()
}

/// All pauses that a gap may be.
struct PossiblePauses {
    replica: u32,
    /// The start of the gap.
    from: Instant,
    pauses: Vec<PossiblePause>,
}

/// A pause, from and to these times after the start of the gap.
struct PossiblePause {
    start_ns: f64,
    end_ns: f64,
    length_bin: usize,
    /// How likely the executions in service are with it, divided by the number of lengths in its bin.
    likelihood: f64,
}

impl PossiblePauses {
    fn of(gap: &LongGap<'_>, survival: &Survival) -> Self {
        let gap_ns = gap.to.since(gap.from).as_ns_f64();
        let step_ns = gap_ns / GRID_STEPS as f64;
        let ending = gap.open.iter().position(|it| it.ended == gap.to && it.is_whole);
        let evidence =
            (0..).zip(&gap.open).filter(|(nth, _)| *nth < EVIDENCE_MAX || ending == Some(*nth));
        let evidence: Vec<(f64, bool)> = evidence
            .map(|(nth, it)| {
                let started_ns = it.started.as_ns() as f64 - gap.from.as_ns() as f64;
                (started_ns, ending == Some(nth))
            })
            .collect();
        let log_likelihood = |start_ns: f64, end_ns: f64| {
            let logs = evidence.iter().map(|(started_ns, is_ending)| {
                let paused_ns = (end_ns - start_ns.max(*started_ns)).max(0.0);
                let worked_ns = gap_ns - started_ns - paused_ns;
                match is_ending {
                    true => survival.log_ending(worked_ns, step_ns),
                    false => survival.log_above(worked_ns - 1.0),
                }
            });
            logs.sum::<f64>()
        };
        let bins: Vec<usize> = (0..=GRID_STEPS)
            .map(|steps| log_bin(steps as f64 * step_ns, LENGTH_BIN_WIDTH, LENGTH_BINS))
            .collect();
        let mut pauses = Vec::with_capacity(GRID_STEPS * (GRID_STEPS + 1) / 2);
        for start in 0..GRID_STEPS {
            for end in start + 1..=GRID_STEPS {
                let [start_ns, end_ns] = [start, end].map(|step| step as f64 * step_ns);
                let likelihood = log_likelihood(start_ns, end_ns);
                let length_bin = bins[end - start];
                pauses.push(PossiblePause { start_ns, end_ns, length_bin, likelihood });
            }
        }
        let best = pauses.iter().map(|pause| pause.likelihood).fold(f64::NEG_INFINITY, f64::max);
        // Every start is as likely, so all of a length count together, and lengths of the same bin on average.
        let mut of_bin = vec![0.0; LENGTH_BINS];
        for bin in &bins[1..] {
            of_bin[*bin] += 1.0;
        }
        for pause in &mut pauses {
            pause.likelihood = (pause.likelihood - best).exp() / of_bin[pause.length_bin];
        }
        Self { replica: gap.open[0].replica, from: gap.from, pauses }
    }

    /// The mean of the possible pauses, with these weights of their lengths.
    fn mean(&self, lengths: &[f64]) -> SlowPeriod {
        let [mut weights, mut starts, mut ends] = [0.0; 3];
        for pause in &self.pauses {
            let weight = pause.likelihood * lengths[pause.length_bin];
            weights += weight;
            starts += weight * pause.start_ns;
            ends += weight * pause.end_ns;
        }
        let at = |sum_ns: f64| self.from + Duration::from_ns_f64(sum_ns / weights);
        SlowPeriod {
            replica: self.replica,
            from: at(starts),
            to: at(ends),
            slowdown: f64::INFINITY,
        }
    }
}

/// The distribution of the lengths of pauses, in bins, under which the gaps are most likely: each round takes the lengths
/// that the pauses have with the distribution of the round before (expectation maximization). A little of every length
/// remains.
fn length_weights<'p>(all: impl Iterator<Item = &'p PossiblePauses>) -> Vec<f64> {
    let of_gap = |possible: &PossiblePauses| {
        let mut likelihoods: Vec<(usize, f64)> = Vec::new();
        let mut by_bin = vec![0.0; LENGTH_BINS];
        for pause in &possible.pauses {
            by_bin[pause.length_bin] += pause.likelihood;
        }
        likelihoods.extend((0..).zip(by_bin).filter(|(_, likelihood)| *likelihood > 0.0));
        likelihoods
    };
    let gaps: Vec<Vec<(usize, f64)>> = all.map(of_gap).collect();
    let mut weights = vec![1.0; LENGTH_BINS];
    for _ in 0..LENGTH_ROUNDS {
        let mut next = vec![LENGTH_ANYWHERE / LENGTH_BINS as f64; LENGTH_BINS];
        for likelihoods in &gaps {
            let all: f64 = likelihoods.iter().map(|(bin, l)| weights[*bin] * l).sum();
            for (bin, likelihood) in likelihoods {
                next[*bin] += weights[*bin] * likelihood / all;
            }
        }
        weights = next;
    }
    weights
}

/// The share of executions that last longer than a time.
struct Survival {
    sorted_ns: Vec<f64>,
}

impl Survival {
    fn of(mut durations_ns: Vec<f64>) -> Self {
        durations_ns.sort_unstable_by(f64::total_cmp);
        Self { sorted_ns: durations_ns }
    }

    fn above(&self, ns: f64) -> f64 {
        let len = self.sorted_ns.len();
        let above = len - self.sorted_ns.partition_point(|known| *known <= ns);
        (above as f64 + 0.5) / (len as f64 + 1.0)
    }

    fn log_above(&self, ns: f64) -> f64 {
        self.above(ns).ln()
    }

    /// The logarithm of the share of executions that end within `width_ns` after `ns`.
    fn log_ending(&self, ns: f64, width_ns: f64) -> f64 {
        let least = 0.5 / (self.sorted_ns.len() as f64 + 1.0);
        (self.above(ns) - self.above(ns + width_ns)).max(least).ln()
    }

    fn median_ns(&self) -> f64 {
        self.sorted_ns.get(self.sorted_ns.len() / 2).copied().unwrap_or(0.0)
    }
}
