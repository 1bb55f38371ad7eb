//! The evidence for `remedy: auto`: the estimate of a dry run, and the comparison of slow requests with a holdout.
//!
//! The machine [`curtail_policy::Remedy`] decides, and its driver records the requests here. Every [`LOOK_EVERY`] the
//! driver hands over an event with the figures so far. Each decision of the machine begins new evidence.
//!
//! **Dry run**: each request counts on both sides, with its true latency and with the estimated one. A hedge lengthens no
//! request, so the slow requests with hedges are some of those without, and their share has a [`proportion::interval`].
//! The interval counts each slow request by itself. But one stall slows several requests, and hedges save all or none of
//! them, so it is too narrow. It decides only whether a trial is worth while.
//! **Comparison**: a request is slow if it takes longer than a threshold that was fixed before. If the remedy changes
//! nothing, each slow request is in the holdout with the probability of the draw, whatever its latency depends on. The
//! probability is known, and its [`proportion::interval`] becomes one of the ratio of the two shares of slow requests.
//! Counts above a fixed threshold need some 20 slow requests, where quantiles need some hundreds ([`mod@crate::holdout`]).
//! **Limits**: the interval of the comparison holds at all looks between two decisions, with a probability of 1 − [`LEVEL`].
//! **Invariant**: a request that arrived before the last decision counts for nothing, because it may be of either state.
//! **Hurts when** the draws of proxies in front have another share than this proxy: their requests are weighted by the
//! observed shares, which is exact only while the shares do not change.

use crate::holdout::Sides;
use crate::proportion;
use curtail_policy::{
    RemedyEstimate, RemedyState, RemedyStatus, SlowCount, SlowShares, UpstreamEvent,
};
use curtail_sketch::{Histogram, Precision};
use curtail_units::{Duration, Instant, Quantile};

/// The probability that an interval is wrong at any look between two decisions.
pub const LEVEL: f64 = 0.01;

/// The time between two looks.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The shares of requests beyond the quantiles that a dry run looks at. Stalls that slow a share of the requests show at
/// quantiles just below it.
const BEYOND: [f64; 5] = [0.02, 0.01, 0.005, 0.002, 0.001];

/// The evidence since the last decision.
#[derive(Clone, Debug)]
pub struct RemedyEvidence {
    status: RemedyStatus,
    began: Instant,
    look_at: Instant,
    /// Requests of a dry run.
    latencies: Sides<Histogram>,
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
                self.estimate().map(|estimate| UpstreamEvent::RemedyEstimated { estimate })
            }
            RemedyState::Trial | RemedyState::On => {
                Some(UpstreamEvent::RemedyMeasured { shares: self.shares() })
            }
            RemedyState::Off => None,
        }
    }

    /// The estimate with the largest gain; [`None`] without requests.
    fn estimate(&self) -> Option<RemedyEstimate> {
        let estimates = BEYOND.iter().filter_map(|beyond| self.estimate_at(1.0 - beyond));
        let order = |estimate: &RemedyEstimate| (!estimate.is_gain(), estimate.ratio_high);
        estimates.min_by(|a, b| {
            let ((a_is_none, a), (b_is_none, b)) = (order(a), order(b));
            a_is_none.cmp(&b_is_none).then(a.total_cmp(&b))
        })
    }

    fn estimate_at(&self, quantile: f64) -> Option<RemedyEstimate> {
        let quantile = Quantile::new(quantile).expect("below one");
        let latency = self.latencies.map(|histogram| histogram.quantile(quantile));
        let (without, with) = (latency.without?, latency.with?);
        let between = (without.as_ns_f64() * with.as_ns_f64()).sqrt();
        let threshold = Duration::from_ns_f64(between);
        let slow = self.latencies.map(|histogram| histogram.count_above(threshold));
        let saved = slow.without.saturating_sub(slow.with);
        let (_, ratio_high) = proportion::interval(slow.with, saved, LEVEL);
        Some(RemedyEstimate {
            requests: self.latencies.without.count(),
            quantile,
            without,
            with,
            threshold,
            slow_without: slow.without,
            slow_with: slow.with,
            ratio_high,
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
