//! The effect of a remedy on the requests of an upstream, from a random holdout that goes without the remedy.
//!
//! **Inputs**: for each request its side (with the remedy or without), its latency and its number of attempts, in the
//! order of time. A side is drawn at random for each request.
//! **Computes** for each [`PERCENTILES`] the quantile of both sides with a confidence sequence each ([`Sequence`]), the
//! ratio of the two, and a verdict. Both sequences have half of [`LEVEL`], so all intervals of a percentile hold at
//! once, at all looks, with 95 %. Each percentile has 5 % of its own.
//! **Periods**: a sequence restarts with each hour, and another one with each day. The guarantee covers all looks within
//! one hour, or one day: of twenty hours, one may be wrong. The figures of the last complete period are kept.
//! **Limits**: a percentile is stated only with [`EXCEEDANCES_MIN`] requests beyond it on each side. The memory does not
//! grow with the requests: two sequences for each period.
//! **Invariant**: a failed request counts as longer than every response. Verdict and intervals never disagree.
//! **Hurts when** a side affects the other: requests share queues, so the intervals miss what a remedy does to the load
//! of everybody ([`mod@crate::switchback`] has that).

use crate::compare::EXCEEDANCES_MIN;
use crate::sequence::{Interval, Sequence};
use curtail_sketch::{Histogram, Precision};
use curtail_units::{Duration, Instant, Quantile};

/// The probability that an interval of a percentile is wrong at any look within a period.
pub const LEVEL: f64 = 0.05;

/// The percentiles: name and quantile.
pub const PERCENTILES: [(&str, Quantile); 4] = [
    ("p50", Quantile::P50),
    ("p90", Quantile::P90),
    ("p99", Quantile::P99),
    ("p99.9", Quantile::P999),
];

/// The periods: name, length, and length of a block.
pub const PERIODS: [(&str, Duration, Duration); 2] = [
    ("hour", Duration::from_secs(3_600), Duration::from_secs(5)),
    ("day", Duration::from_secs(86_400), Duration::from_secs(60)),
];

/// The time until a percentile is stated: until [`EXCEEDANCES_MIN`] of the requests of the smaller side, a `share` of
/// `rate` requests a second, are beyond the quantile.
#[must_use]
pub fn time_to_state(share: f64, rate: f64, quantile: Quantile) -> Duration {
    Duration::from_secs_f64(EXCEEDANCES_MIN as f64 / (share * rate * (1.0 - quantile.get())))
}

/// A value for each side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides<T> {
    /// Without the remedy: the holdout.
    pub without: T,
    /// With the remedy.
    pub with: T,
}

impl<T> Sides<T> {
    /// The value of one side.
    pub const fn get_mut(&mut self, is_holdout: bool) -> &mut T {
        if is_holdout { &mut self.without } else { &mut self.with }
    }

    /// Applies `f` to both values.
    pub fn map<'a, U>(&'a self, f: impl Fn(&'a T) -> U) -> Sides<U> {
        Sides { without: f(&self.without), with: f(&self.with) }
    }
}

/// The requests of one side in one block.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    latencies: Histogram,
    attempts: u64,
}

impl Default for Block {
    fn default() -> Self {
        Self { latencies: Histogram::new(Precision::COARSE), attempts: 0 }
    }
}

impl Block {
    pub(crate) fn record(&mut self, latency: Duration, attempts: u64) {
        self.latencies.record(latency);
        self.attempts += attempts;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.latencies.count() == 0
    }

    fn merge(&mut self, other: &Self) {
        self.latencies.merge(&other.latencies);
        self.attempts = self.attempts.saturating_add(other.attempts);
    }

    pub(crate) fn clear(&mut self) {
        self.latencies.clear();
        self.attempts = 0;
    }
}

/// All requests of one side in one period.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    sequence: Sequence,
    attempts: u64,
}

impl Side {
    pub(crate) fn add(&mut self, block: &Block) {
        self.sequence.add(&block.latencies);
        self.attempts = self.attempts.saturating_add(block.attempts);
    }

    fn attempts_per_request(&self) -> f64 {
        match self.sequence.requests() {
            0 => 0.0,
            requests => self.attempts as f64 / requests as f64,
        }
    }
}

/// A period in progress.
#[derive(Clone, Debug)]
struct Period {
    name: &'static str,
    length: Duration,
    block_len: Duration,
    began: Option<Instant>,
    ends: Option<Instant>,
    block_ends: Option<Instant>,
    block: Sides<Block>,
    sides: Sides<Side>,
    last: Option<PeriodEffects>,
}

/// The measurement of a remedy's effect.
#[derive(Clone, Debug)]
pub struct Holdout {
    /// The length of the shortest blocks.
    block_len: Duration,
    block_ends: Option<Instant>,
    block: Sides<Block>,
    periods: [Period; PERIODS.len()],
}

/// The effects in one period.
#[derive(Clone, Debug, PartialEq)]
pub struct PeriodEffects {
    /// The name of the period: `hour` or `day`.
    pub period: &'static str,
    /// When the period began; absent before the first request or reading, and for the days of a switchback.
    pub began: Option<Instant>,
    /// Whether the period is over.
    pub is_complete: bool,
    /// The number of measured requests.
    pub requests: Sides<u64>,
    /// The mean number of attempts for a request; 0 without requests.
    pub attempts_per_request: Sides<f64>,
    /// The percentiles that have enough requests.
    pub percentiles: Vec<PercentileEffect>,
}

/// The effect on one percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PercentileEffect {
    /// The name: `p99.9`.
    pub name: &'static str,
    /// The quantile.
    pub quantile: Quantile,
    /// The latency of each side; [`None`] when it is a failed request.
    pub latency: Sides<Option<Duration>>,
    /// The interval of each latency, for the requests of this period.
    pub interval: Sides<Interval>,
    /// The interval of each latency in the long run; [`None`] while there are too few stalls for one.
    pub long_run: Sides<Option<Interval>>,
}

/// The verdict on the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectVerdict {
    /// With the remedy, requests are faster at this percentile.
    Better,
    /// With the remedy, requests are slower at this percentile.
    Worse,
    /// The intervals of both sides overlap.
    Undecided,
}

curtail_units::labels!(EffectVerdict {
    Better => "better",
    Worse => "worse",
    Undecided => "undecided",
});

impl Default for Holdout {
    fn default() -> Self {
        Self::new()
    }
}

impl Holdout {
    /// A measurement without requests. Its first period begins with the first request.
    #[must_use]
    pub fn new() -> Self {
        let periods = PERIODS.map(|(name, length, block_len)| Period {
            name,
            length,
            block_len,
            began: None,
            ends: None,
            block_ends: None,
            block: Sides::default(),
            sides: Sides::default(),
            last: None,
        });
        Self { block_len: PERIODS[0].2, block_ends: None, block: Sides::default(), periods }
    }

    /// Records a request that ended at `now`. A failed request has the latency [`Duration::MAX`].
    pub fn record(&mut self, now: Instant, is_holdout: bool, latency: Duration, attempts: u64) {
        self.advance(now);
        self.block.get_mut(is_holdout).record(latency, attempts);
    }

    /// Ends the blocks and periods that are over.
    pub fn advance(&mut self, now: Instant) {
        if self.block_ends.is_some_and(|ends| now < ends) {
            return;
        }
        for period in &mut self.periods {
            period.add(&self.block, now);
        }
        self.block.without.clear();
        self.block.with.clear();
        self.block_ends = Some(now + self.block_len);
    }

    /// The effects in each period, up to its last complete block. Until a period states a percentile, its figures are
    /// those of the last complete period, if that stated one.
    #[must_use]
    pub fn effects(&self) -> Vec<PeriodEffects> {
        let effects = |period: &Period| {
            let current = period.effects();
            let last = period.last.as_ref().filter(|_| current.percentiles.is_empty());
            last.cloned().unwrap_or(current)
        };
        self.periods.iter().map(effects).collect()
    }
}

impl Period {
    /// Adds the requests until `now`.
    fn add(&mut self, block: &Sides<Block>, now: Instant) {
        self.block.without.merge(&block.without);
        self.block.with.merge(&block.with);
        self.began.get_or_insert(now);
        let block_ends = *self.block_ends.get_or_insert(now + self.block_len);
        if now < block_ends {
            return;
        }
        self.block_ends = Some(now + self.block_len);
        for is_holdout in [false, true] {
            let block = self.block.get_mut(is_holdout);
            self.sides.get_mut(is_holdout).add(block);
            block.clear();
        }
        if now >= *self.ends.get_or_insert(now + self.length) {
            let complete = PeriodEffects { is_complete: true, ..self.effects() };
            self.last = Some(complete).filter(|effects| !effects.percentiles.is_empty());
            self.sides = Sides::default();
            self.began = Some(now);
            self.ends = Some(now + self.length);
        }
    }

    fn effects(&self) -> PeriodEffects {
        let of = PeriodEffects::of(self.name, &self.sides, |sides, percentile| {
            PercentileEffect::of(sides, percentile, LEVEL)
        });
        PeriodEffects { began: self.began, ..of }
    }
}

impl PeriodEffects {
    /// The effects in a period in progress. `effect` states a percentile, if both sides have enough requests beyond it.
    pub(crate) fn of(
        period: &'static str,
        sides: &Sides<Side>,
        effect: impl Fn(Sides<&Sequence>, (&'static str, Quantile)) -> Option<PercentileEffect>,
    ) -> Self {
        let sequences = sides.map(|side| &side.sequence);
        let is_enough = |(_, quantile): &(&str, Quantile)| {
            let is_enough =
                |sequence: &Sequence| sequence.exceedances(*quantile) >= EXCEEDANCES_MIN;
            is_enough(sequences.without) && is_enough(sequences.with)
        };
        let stated = PERCENTILES.into_iter().filter(is_enough);
        Self {
            period,
            began: None,
            is_complete: false,
            requests: sequences.map(|sequence| sequence.requests()),
            attempts_per_request: sides.map(Side::attempts_per_request),
            percentiles: stated.filter_map(|percentile| effect(sequences, percentile)).collect(),
        }
    }

    /// Extra attempts that the remedy sends, as a share of the requests; [`None`] without requests on a side, or if
    /// attempts are not counted.
    #[must_use]
    pub fn extra_ratio(&self) -> Option<f64> {
        let Sides { without, with } = self.attempts_per_request;
        (without > 0.0 && with > 0.0).then_some(with - without)
    }
}

impl PercentileEffect {
    /// The effect on a percentile, with intervals that hold together with a probability of 1 − `level`; [`None`] without
    /// requests on a side.
    #[must_use]
    pub fn of(
        sides: Sides<&Sequence>,
        (name, quantile): (&'static str, Quantile),
        level: f64,
    ) -> Option<Self> {
        let interval = |sequence: &Sequence| sequence.interval(quantile, level / 2.0);
        let interval = Sides { without: interval(sides.without)?, with: interval(sides.with)? };
        let latency = sides.map(|side| side.quantile(quantile));
        let long_run = sides.map(|side| side.long_run_interval(quantile, level / 2.0));
        Some(Self { name, quantile, latency, interval, long_run })
    }

    /// The latency with the remedy, divided by that without it; [`None`] when either is a failed request.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        Some(self.latency.with?.as_ns_f64() / self.latency.without?.as_ns_f64())
    }

    /// The interval of the ratio. It begins at 0, or ends at infinity, where the requests so far do not bound it.
    #[must_use]
    pub fn ratio_interval(&self) -> (f64, f64) {
        let Sides { without, with } = &self.interval;
        let ratio = |with: Option<Duration>, without: Option<Duration>| match (with, without) {
            (None, _) => f64::INFINITY,
            (Some(_), None) => 0.0,
            (Some(with), Some(without)) => with.as_ns_f64() / without.as_ns_f64().max(1.0),
        };
        (ratio(Some(with.low), without.high), ratio(with.high, Some(without.low)))
    }

    /// The verdict: a difference if the intervals of both sides are disjoint.
    #[must_use]
    pub fn verdict(&self) -> EffectVerdict {
        let Sides { without, with } = &self.interval;
        if with.high.is_some_and(|high| high <= without.low) {
            EffectVerdict::Better
        } else if without.high.is_some_and(|high| high <= with.low) {
            EffectVerdict::Worse
        } else {
            EffectVerdict::Undecided
        }
    }
}

#[cfg(test)]
mod tests;
