//! The effect of a remedy on the load of everybody, from random blocks of time in which it is off for all requests.
//!
//! Requests of a [holdout](mod@crate::holdout) share queues with all others, so a holdout misses what a remedy does to the
//! queues. Here the whole service changes sides: a switchback experiment.
//!
//! **Inputs**: for each request the times of its arrival and end, its latency and its number of attempts.
//! **Computes** the same statement as a holdout, for a day at a time. A block of time is one observation, so the
//! intervals are those of the long run ([`Sequence::long_run_interval`]).
//! **The schedule** ([`is_off`]) depends on the time alone: proxies with the same share switch at the same moment, as far as
//! their clocks agree.
//! **Carry-over**: requests that arrive in the first [`WASHOUT`] of a block are not measured, because they meet the queues
//! of the block before.
//! **Limits**: a request that ends after the end of the next block is not measured.
//! **Invariant**: a failed request counts as longer than every response. A block has requests of one side only.
//! **Hurts when** a change of sides takes longer than [`WASHOUT`] to show: both sides are then alike. It needs far more
//! time than a holdout: [`Sequence::long_run_interval`] says how many blocks.
//! **Source**: Bojinov, Simchi-Levi and Zhao, "Design and analysis of switchback experiments", Management Science 69(7),
//! 2023: random blocks, and the part of each that is not measured.

use crate::holdout::{Block, LEVEL, PERIODS, PercentileEffect, PeriodEffects, Side, Sides};
use crate::sequence::{LONG_RUN_BLOCKS_MIN, Sequence};
use curtail_units::{Duration, Quantile, Ratio, Rng};

/// The length of a block.
pub const BLOCK: Duration = Duration::from_secs(30);

/// The first part of each block, which is not measured.
pub const WASHOUT: Duration = Duration::from_secs(5);

const DAY: (&str, Duration) = (PERIODS[1].0, PERIODS[1].1);

/// Whether the remedy is off at this time, in nanoseconds since 1970, if it is off for a `share` of the blocks.
#[must_use]
pub fn is_off(share: Ratio, unix_ns: u64) -> bool {
    is_block_off(share, number(unix_ns))
}

/// The mean time until there are enough blocks without the remedy, a `share` of all, for a statement.
#[must_use]
pub fn time_to_state(share: Ratio) -> Duration {
    BLOCK.mul_f64(LONG_RUN_BLOCKS_MIN as f64 / share.get())
}

/// The blocks that are off with a share are also off with each larger share.
fn is_block_off(share: Ratio, number: u64) -> bool {
    Rng::new(number).chance(share.get())
}

/// The number of a block since 1970.
fn number(unix_ns: u64) -> u64 {
    unix_ns / BLOCK.as_ns()
}

/// A block in progress, or the one before it, whose last requests may not have ended.
#[derive(Clone, Debug, Default)]
struct NumberedBlock {
    number: u64,
    requests: Block,
}

/// The measurement of a remedy's effect on everybody.
#[derive(Clone, Debug)]
pub struct Switchback {
    share: Ratio,
    /// The number of the first measured block: the one before it began without a measurement.
    first: u64,
    /// The numbers are consecutive, in ascending order.
    blocks: [NumberedBlock; 2],
    /// The number of the first block of the next day.
    day_ends: u64,
    sides: Sides<Side>,
    last: Option<PeriodEffects>,
}

impl Switchback {
    /// A measurement that begins with the next block. The remedy is off for a `share` of the blocks.
    #[must_use]
    pub fn new(share: Ratio, unix_ns: u64) -> Self {
        let first = number(unix_ns) + 1;
        let block = |number| NumberedBlock { number, requests: Block::default() };
        let (blocks, day_ends) = ([block(first - 1), block(first)], day_after(first));
        Self { share, first, blocks, day_ends, sides: Sides::default(), last: None }
    }

    /// The share of the blocks without the remedy.
    #[must_use]
    pub const fn share(&self) -> Ratio {
        self.share
    }

    /// Records a request that arrived at one time and ended at another, in nanoseconds since 1970. A failed request has the
    /// latency [`Duration::MAX`].
    pub fn record(&mut self, (arrived_ns, ended_ns): (u64, u64), latency: Duration, attempts: u64) {
        self.advance(ended_ns);
        let arrived = number(arrived_ns);
        if arrived < self.first || arrived_ns % BLOCK.as_ns() < WASHOUT.as_ns() {
            return;
        }
        if let Some(block) = self.blocks.iter_mut().find(|block| block.number == arrived) {
            block.requests.record(latency, attempts);
        }
    }

    /// Ends the blocks and the day that are over.
    pub fn advance(&mut self, unix_ns: u64) {
        let now = number(unix_ns);
        while self.blocks[1].number < now {
            self.end_block();
            if self.blocks.iter().all(|block| block.requests.is_empty()) {
                (self.blocks[0].number, self.blocks[1].number) = (now - 1, now);
            }
            if self.blocks[0].number >= self.day_ends {
                self.end_day();
            }
        }
    }

    /// Adds the block before the one in progress to its side, and begins the next block.
    fn end_block(&mut self) {
        let [over, latest] = &mut self.blocks;
        self.sides.get_mut(is_block_off(self.share, over.number)).add(&over.requests);
        over.requests.clear();
        over.number = latest.number + 1;
        self.blocks.swap(0, 1);
    }

    fn end_day(&mut self) {
        let complete = PeriodEffects { is_complete: true, ..self.of_day() };
        self.last = Some(complete).filter(|effects| !effects.percentiles.is_empty());
        self.sides = Sides::default();
        self.day_ends = day_after(self.blocks[0].number);
    }

    /// The effect in this day, up to its last complete block; until this day states a percentile, that of the day before,
    /// if it stated one.
    #[must_use]
    pub fn effects(&self) -> PeriodEffects {
        let current = self.of_day();
        let last = self.last.as_ref().filter(|_| current.percentiles.is_empty());
        last.cloned().unwrap_or(current)
    }

    fn of_day(&self) -> PeriodEffects {
        PeriodEffects::of(DAY.0, &self.sides, percentile)
    }
}

fn day_after(block: u64) -> u64 {
    block + DAY.1.as_ns() / BLOCK.as_ns()
}

/// The effect on a percentile, with intervals in which each block is one observation.
fn percentile(
    sides: Sides<&Sequence>,
    (name, quantile): (&'static str, Quantile),
) -> Option<PercentileEffect> {
    let interval = |sequence: &Sequence| sequence.long_run_interval(quantile, LEVEL / 2.0);
    let interval = Sides { without: interval(sides.without)?, with: interval(sides.with)? };
    let latency = sides.map(|side| side.quantile(quantile));
    let long_run = interval.map(|interval| Some(*interval));
    Some(PercentileEffect { name, quantile, latency, interval, long_run })
}

#[cfg(test)]
mod tests;
