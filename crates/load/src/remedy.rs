//! The evidence for `remedy: auto`: the estimate of a dry run, and the comparison of slow requests with a holdout.
//!
//! The machine [`curtail_policy::Remedy`] decides, and its driver records the requests here. Every [`LOOK_EVERY`] the
//! driver hands over an event with the figures so far. Each decision of the machine begins new evidence.
//!
//! **Dry run**: each request counts on both sides, with its true latency and with the estimated one. For p99 and p99.9
//! the event has both latencies and the ratio, with the interval of [`Sequence`].
//! **Comparison**: a request is slow if it takes longer than a threshold that was fixed before. If the remedy changes
//! nothing, each slow request is in the holdout with the probability of the draw, whatever its latency depends on. The
//! probability is known, and its [`proportion::interval`] becomes one of the ratio of the two shares of slow requests.
//! Counts above a fixed threshold need some 20 slow requests, where quantiles need some hundreds ([`mod@crate::holdout`]).
//! **Limits**: both intervals hold at all looks between two decisions, with a probability of 1 − [`LEVEL`].
//! **Invariant**: a request that arrived before the last decision counts for nothing, because it may be of either state.
//! **Hurts when** the draws of proxies in front have another share than this proxy: their requests are weighted by the
//! observed shares, which is exact only while the shares do not change.

use crate::holdout::{PERCENTILES, PercentileEffect, Sides};
use crate::proportion;
use crate::sequence::Sequence;
use curtail_policy::{
    RemedyEstimate, RemedyState, RemedyStatus, SlowCount, SlowShares, UpstreamEvent,
};
use curtail_sketch::{Histogram, Precision};
use curtail_units::{Duration, Instant};

/// The probability that an interval is wrong at any look between two decisions.
pub const LEVEL: f64 = 0.01;

/// The time between two looks.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The percentiles that a dry run looks at, as places in [`PERCENTILES`]: p99 and p99.9.
const ESTIMATED: core::ops::RangeFrom<usize> = 2..;

/// The evidence since the last decision.
#[derive(Clone, Debug)]
pub struct RemedyEvidence {
    status: RemedyStatus,
    began: Instant,
    look_at: Instant,
    /// Requests of a dry run since the last look.
    latencies: Sides<Histogram>,
    sequences: Sides<Sequence>,
    counts: Sides<SlowCount>,
}

impl RemedyEvidence {
    /// Evidence for `status`, from requests that arrive from now on.
    #[must_use]
    pub fn new(now: Instant, status: RemedyStatus) -> Self {
        let empty = || Histogram::new(Precision::COARSE);
        Self {
            status,
            began: now,
            look_at: now + LOOK_EVERY,
            latencies: Sides { without: empty(), with: empty() },
            sequences: Sides::default(),
            counts: Sides::default(),
        }
    }

    /// Begins new evidence if the machine has decided since.
    pub fn follow(&mut self, now: Instant, status: RemedyStatus) {
        if status != self.status {
            *self = Self::new(now, status);
        }
    }

    /// The state that the evidence is about.
    #[must_use]
    pub const fn state(&self) -> RemedyState {
        self.status.state
    }

    /// Records a request of a dry run that arrived at `arrived`, with its latency, and with that of the estimate. A failed
    /// request has the latency [`Duration::MAX`].
    pub fn record_dry_run(&mut self, arrived: Instant, latency: Sides<Duration>) {
        if arrived >= self.began && self.state() == RemedyState::DryRun {
            self.latencies.without.record(latency.without);
            self.latencies.with.record(latency.with);
        }
    }

    /// Records a request of one side of a comparison. A failed request has the latency [`Duration::MAX`].
    pub fn record(&mut self, arrived: Instant, is_holdout: bool, latency: Duration) {
        if arrived >= self.began && matches!(self.state(), RemedyState::Trial | RemedyState::On) {
            let count = self.counts.get_mut(is_holdout);
            count.requests += 1;
            count.slow += u64::from(latency > self.status.threshold);
        }
    }

    /// The figures so far as an event for the machine, once every [`LOOK_EVERY`].
    pub fn poll_event(&mut self, now: Instant) -> Option<UpstreamEvent> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now + LOOK_EVERY;
        match self.state() {
            RemedyState::DryRun => {
                self.sequences.without.add(&self.latencies.without);
                self.sequences.with.add(&self.latencies.with);
                self.latencies.without.clear();
                self.latencies.with.clear();
                self.estimate().map(|estimate| UpstreamEvent::RemedyEstimated { estimate })
            }
            RemedyState::Trial | RemedyState::On => {
                Some(UpstreamEvent::RemedyMeasured { shares: self.shares() })
            }
            RemedyState::Off => None,
        }
    }

    /// The estimate at the percentile with the largest gain; [`None`] without requests.
    fn estimate(&self) -> Option<RemedyEstimate> {
        let sides = self.sequences.map(|sequence| sequence);
        let effects = PERCENTILES[ESTIMATED]
            .iter()
            .filter_map(|percentile| PercentileEffect::of(sides, *percentile, LEVEL));
        let high = |effect: &PercentileEffect| effect.ratio_interval().1;
        let best = effects.min_by(|a, b| high(a).total_cmp(&high(b)))?;
        let Sides { without, with } = best.latency.map(|latency| latency.unwrap_or(Duration::MAX));
        let between = (without.as_ns_f64() * with.as_ns_f64()).sqrt();
        Some(RemedyEstimate {
            requests: self.sequences.without.requests(),
            quantile: best.quantile,
            without,
            with,
            ratio_high: Some(high(&best)).filter(|ratio| ratio.is_finite()),
            slow: Duration::from_ns_f64(between),
        })
    }

    /// The slow requests on both sides, with the interval of the ratio of their shares.
    fn shares(&self) -> SlowShares {
        let Sides { without, with } = self.counts;
        let (low, high) = proportion::interval(without.slow, with.slow, LEVEL);
        // The odds of a slow request to be in the holdout are the share without the remedy times the number of requests
        // there, to the same with the remedy.
        let ratio = |probability: f64| {
            (1.0 - probability) / probability * without.requests as f64 / with.requests as f64
        };
        let high_or_none = Some(ratio(low)).filter(|ratio| ratio.is_finite());
        SlowShares {
            threshold: self.status.threshold,
            without,
            with,
            ratio_low: Some(ratio(high)).filter(|ratio| ratio.is_finite()).unwrap_or(0.0),
            ratio_high: high_or_none,
        }
    }
}

#[cfg(test)]
mod tests;
