//! A confidence sequence for the quantiles of latencies: an interval that may be looked at after every block.
//!
//! An ordinary interval holds with its confidence at one look. With many looks, and a stop at a welcome interval, it is
//! wrong far more often. The intervals of a confidence sequence hold at all looks together.
//!
//! **How.** For a quantile `q`, a share `p = 1 − q` of all requests takes longer than the true quantile `x`. The arm has
//! `n` of these requests, and `k` of them took longer than `x`. The probability that `|k − p · n|` ever exceeds
//!
//! ```text
//! u(V) = sqrt((V + ρ) · ln((V + ρ) / (ρ · level²)))
//! ```
//!
//! is at most `level`, where `V` is the variance of `k − p · n`. The interval contains every latency around the observed
//! quantile that this test does not reject. It inverts one test, that of the true quantile, so it needs no correction
//! for the number of latencies that are tried. The bound is for a fixed `x`. The quantile of the requests so far moves,
//! so `crates/load/benches/holdout.rs` measures how often its interval holds.
//!
//! **Two truths**, with a variance each:
//! - [`Sequence::interval`] is about the requests of these blocks: those of the arm are a random draw from all of them.
//!   The draw alone is random, and not the latencies, so `V = p · (1 − p) · n` whatever the latencies depend on. The
//!   interval says nothing about stalls that have not come.
//! - [`Sequence::long_run_interval`] is about the service, if stalls go on as in these blocks. One stall slows many
//!   requests, so a block is one observation: `V = Σ (k_i − p · n_i)²` over the blocks `i`, and at least `p · (1 − p) · n`.
//!   If fewer requests than `p · n` were longer than `x`, then stalls are more frequent, if `x` is the true quantile, than
//!   those seen, and `V` is multiplied by `p · n / k`.
//!
//! **Inputs**: one histogram for each block of time. **Limits**: [`Precision::COARSE`], so ends of intervals are off by
//! at most 0.8 %; 40 bytes for each bucket that ever held a value, at most 190 KB.
//! **Invariant**: no block is kept, and the order of the blocks does not matter.
//! **Source**: Howard, Ramdas, `McAuliffe` and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences",
//! Annals of Statistics 49(2), 2021: section 3.2 for `u` (two-sided normal mixture), section 4.2 for draws from fixed
//! potential outcomes. Howard and Ramdas, "Sequential estimation of quantiles with applications to A/B testing and
//! best-arm identification", Bernoulli 28(3), 2022: one test at the true quantile. De la Peña, "A general class of
//! exponential inequalities for martingales and ratios", Annals of Probability 27(1), 1999: squares of the observations
//! as variance. The level is approximate, as in the central limit theorem; `crates/load/benches/holdout.rs` measures it.
//! **Hurts when** a stall lasts longer than a block, or when the stalls that matter are so rare that none has come yet:
//! the interval of the long run is then too narrow.

use curtail_sketch::{Bucket, Histogram, Precision, rank};
use curtail_units::{Duration, Quantile};

/// The variance at which an interval is tightest is about nine times this: that of some 400 independent requests beyond
/// the quantile. It is a constant because it must not depend on the data.
const RHO: f64 = 40.0;

/// The minimum number of blocks for an interval of the long run: in fewer, rare stalls may not have come yet.
pub(crate) const LONG_RUN_BLOCKS_MIN: u64 = 60;

/// The minimum number of independent events among the requests beyond a quantile for an interval of the long run: as
/// many equal stalls would give the variance of the blocks.
const STALLS_MIN: f64 = 50.0;

/// The sums over all blocks of a number `k` of requests of each block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    k: f64,
    k_squared: f64,
    k_times_n: f64,
}

/// The sums of the requests that fell into a bucket or beyond.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    lower: Duration,
    upper: Duration,
    reaching: Sums,
}

/// The latencies of one arm, block by block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    /// In ascending order.
    steps: Vec<Step>,
    requests: u64,
    n_squared: f64,
    blocks: u64,
}

/// An interval for a quantile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The lower end.
    pub low: Duration,
    /// The upper end; [`None`] when the requests so far do not bound the quantile, or when it may be a failed request.
    pub high: Option<Duration>,
}

impl Interval {
    /// Whether the interval has `latency`.
    #[must_use]
    pub fn contains(&self, latency: Duration) -> bool {
        self.low <= latency && self.high.is_none_or(|high| latency <= high)
    }
}

impl Sequence {
    /// A sequence without blocks.
    #[must_use]
    pub const fn new() -> Self {
        Self { steps: Vec::new(), requests: 0, n_squared: 0.0, blocks: 0 }
    }

    /// Adds the latencies of one block, at [`Precision::COARSE`]. A failed request has the latency [`Duration::MAX`]. A
    /// block without requests changes nothing.
    pub fn add(&mut self, block: &Histogram) {
        debug_assert_eq!(block.precision(), Precision::COARSE);
        if block.count() == 0 {
            return;
        }
        let n = block.count() as f64;
        self.requests = self.requests.saturating_add(block.count());
        self.n_squared += n * n;
        self.blocks += 1;
        block.buckets().for_each(|bucket| self.make_step(&bucket));
        let mut buckets = block.buckets().rev().peekable();
        let mut k = 0.0;
        for step in self.steps.iter_mut().rev() {
            while let Some(bucket) = buckets.next_if(|bucket| bucket.lower >= step.lower) {
                k += bucket.count as f64;
            }
            step.reaching.k += k;
            step.reaching.k_squared += k * k;
            step.reaching.k_times_n += k * n;
        }
    }

    /// Adds a step for a bucket that held no value before. The requests that reached it are those of the next step.
    fn make_step(&mut self, bucket: &Bucket) {
        if let Err(place) = self.steps.binary_search_by_key(&bucket.lower, |step| step.lower) {
            let reaching = self.beyond(place);
            let step = Step { lower: bucket.lower, upper: bucket.upper, reaching };
            self.steps.insert(place, step);
        }
    }

    /// The sums of the requests in step `place` or beyond.
    fn beyond(&self, place: usize) -> Sums {
        self.steps.get(place).map_or(Sums::default(), |step| step.reaching)
    }

    /// The number of requests.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// The number of blocks with requests.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The number of requests beyond the quantile.
    #[must_use]
    pub fn exceedances(&self, quantile: Quantile) -> u64 {
        self.requests - rank(quantile, self.requests)
    }

    /// The quantile of all requests so far; [`None`] when it is a failed request, or without requests.
    #[must_use]
    pub fn quantile(&self, quantile: Quantile) -> Option<Duration> {
        let step = self.steps.get(self.place(quantile)?)?;
        let middle = step.lower + Duration::from_ns((step.upper - step.lower).as_ns() / 2);
        (step.upper < Precision::END).then_some(middle)
    }

    /// The step of the quantile.
    fn place(&self, quantile: Quantile) -> Option<usize> {
        let reaching = (self.exceedances(quantile) + 1) as f64;
        let steps = self.steps.partition_point(|step| step.reaching.k >= reaching);
        steps.checked_sub(1)
    }

    /// The interval at this moment of the quantile of all requests from which this arm was drawn; [`None`] without
    /// requests. The probability that any of these intervals, after any block, misses the quantile is at most `level`.
    #[must_use]
    pub fn interval(&self, quantile: Quantile, level: f64) -> Option<Interval> {
        let independent = quantile.get() * (1.0 - quantile.get()) * self.requests as f64;
        self.invert(quantile, level, |_| independent)
    }

    /// The interval at this moment of the quantile in the long run, if stalls go on as in the blocks so far; [`None`]
    /// before there are [`LONG_RUN_BLOCKS_MIN`] blocks and [`STALLS_MIN`] stalls.
    #[must_use]
    pub fn long_run_interval(&self, quantile: Quantile, level: f64) -> Option<Interval> {
        let p = 1.0 - quantile.get();
        let exceedances = self.exceedances(quantile) as f64;
        let variance = self.variance_of_blocks(self.beyond(self.place(quantile)? + 1), p);
        let is_enough = exceedances * exceedances >= STALLS_MIN * variance;
        if self.blocks < LONG_RUN_BLOCKS_MIN || !is_enough {
            return None;
        }
        self.invert(quantile, level, |sums| self.variance_of_blocks(sums, p))
    }

    /// The latencies around the quantile that the test does not reject, given the variance of the number of requests
    /// beyond a latency.
    fn invert(
        &self,
        quantile: Quantile,
        level: f64,
        variance: impl Fn(Sums) -> f64,
    ) -> Option<Interval> {
        let (expected, place) =
            ((1.0 - quantile.get()) * self.requests as f64, self.place(quantile)?);
        let bound = |sums: Sums| {
            let mixed = variance(sums) + RHO;
            (mixed * libm::log(mixed / (RHO * level * level))).sqrt()
        };
        let too_many = |sums: Sums| sums.k - expected > bound(sums);
        let too_few = |sums: Sums| expected - sums.k > bound(sums);
        // The true quantile may lie in a bucket unless too many requests are beyond it, or too few reach it.
        let below = (0..place).rev().take_while(|&step| !too_many(self.beyond(step + 1)));
        let above = (place + 1..=self.steps.len()).take_while(|&step| !too_few(self.beyond(step)));
        let low = self.steps[below.last().unwrap_or(place)].lower;
        let last = above.last().unwrap_or(place);
        let high = self.steps.get(last).map(|step| step.upper).filter(|end| *end < Precision::END);
        Some(Interval { low, high })
    }

    /// The variance of the number of requests beyond a latency if a share `p` of the requests is beyond it in the long
    /// run. `sums` are the requests that were.
    fn variance_of_blocks(&self, sums: Sums, p: f64) -> f64 {
        let Sums { k, k_squared, k_times_n } = sums;
        let expected = p * self.requests as f64;
        let by_blocks = k_squared - 2.0 * p * k_times_n + p * p * self.n_squared;
        let independent = expected * (1.0 - p);
        let rarer = (expected / k).clamp(1.0, expected.max(1.0));
        by_blocks.max(independent) * rarer
    }
}

#[cfg(test)]
mod tests;
