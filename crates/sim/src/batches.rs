//! Batch means: the confidence interval of a mean, a quantile or a share of one long run.
//!
//! Latencies of successive requests depend on each other, so an error that ignores this is far too small. The run is
//! cut into at least [`BATCHES_MIN`] batches of successive requests. Beyond [`BATCHES_MAX`], adjacent batches are merged,
//! so batches grow with the run and become independent. Requests are numbered in order of arrival, so the batches of
//! two arms hold the same requests and can be compared ([`difference`]).
//! **Quantiles**: the interval is that of the share beyond the estimate, converted back into durations. If the interval
//! of the share reaches 0, that of the quantile has no upper end. Quantiles of batches are not averaged, which would be
//! biased.
//! **Failures** count as longer than every response.
//! **Limits**: below [`REQUESTS_MIN`], [`MEAN_REQUESTS_MIN`] and [`BEYOND_MIN`] there is no interval. These limits
//! depend only on the number of requests, because limits by latency would bias the remaining intervals.
//! **Source**: batch means: Law, "Simulation Modeling and Analysis", 5th edition, section 9.5.3; quantiles: Woodruff,
//! "Confidence intervals for medians and other position measures", 1952. From batches to an interval: [`residuals`].
//! **Hurts when** a stall or a busy hour is long compared with the run: whole batches then depend on each other, and
//! the interval is too narrow. `cargo bench -p curtail-sim --bench coverage` measures how often an interval contains
//! the true value.

pub(crate) mod difference;
mod residuals;

use curtail_sketch::{Histogram, Precision, rank};
use curtail_units::{Duration, Quantile};
use residuals::Residuals;

#[cfg(test)]
mod tests;

/// Minimum number of full batches of a run.
const BATCHES_MIN: usize = 48;

/// Maximum number of batches; beyond it, pairs are merged. The first and the last batch may be partial.
const BATCHES_MAX: usize = 2 * (BATCHES_MIN + 2);

/// The number of requests of each of the first batches.
const LEN_FIRST: u64 = 16;

/// Minimum number of requests for the interval of a quantile or a share. At a load of 0.8, 10,000 requests in one queue
/// are worth a few hundred independent ones.
pub const REQUESTS_MIN: u64 = 10_000;

/// Minimum number of requests for the interval of a mean. A few long stalls affect a mean more than a quantile: with a
/// dozen of them, the distribution of the mean is still far from normal.
pub const MEAN_REQUESTS_MIN: u64 = 30_000;

/// Minimum number of requests beyond a quantile for its interval; with stalls of 40 requests, that is five stalls.
pub const BEYOND_MIN: f64 = 200.0;

/// The run wanders if successive batch means differ by less than this share of their variance (von Neumann's ratio, 2 for
/// independent batches, near 0 for the random walk of a saturated queue) ...
const VON_NEUMANN_RATIO_MIN: f64 = 0.5;

/// ... and if batch means differ from their mean by at least this share of it.
const WANDERING_MIN: f64 = 0.1;

#[derive(Clone, Debug)]
struct Batch {
    succeeded: Histogram,
    failed: u64,
    above: Vec<u64>,
}

impl Batch {
    fn new(thresholds: usize) -> Self {
        Self { succeeded: Histogram::new(Precision::FINE), failed: 0, above: vec![0; thresholds] }
    }

    const fn len(&self) -> u64 {
        self.succeeded.count() + self.failed
    }

    fn absorb(&mut self, other: &Self) {
        self.succeeded.merge(&other.succeeded);
        self.failed += other.failed;
        for (above, more) in self.above.iter_mut().zip(&other.above) {
            *above += more;
        }
    }

    fn sum_ns(&self) -> f64 {
        self.succeeded.sum_secs_f64() * 1e9
    }

    /// Whether no request failed, and the latencies of all are equal, exact to a bucket.
    fn is_constant(&self) -> bool {
        self.failed == 0 && self.succeeded.buckets().count() == 1
    }

    fn mean_ns(&self) -> Option<f64> {
        let count = self.succeeded.count();
        (count > 0).then(|| self.sum_ns() / count as f64)
    }

    /// The number of requests above `limit`, exact to a bucket, failures included.
    fn count_reaching(&self, limit: Bound) -> f64 {
        let succeeded =
            limit.0.map_or(self.succeeded.count(), |below| self.succeeded.count_above(below));
        (succeeded + self.failed) as f64
    }

    /// The latency at `quantile` of all requests; [`None`] when it is a failure, or `quantile` is above 1.
    fn duration_at(&self, quantile: f64) -> Option<Duration> {
        // The rank is over all requests; failures come after all responses.
        let quantile = Quantile::new(quantile).ok()?;
        self.succeeded.at_rank(rank(quantile, self.len()))
    }

    /// The bound between the bucket of `found` and all longer ones.
    fn end_of(&self, found: Duration) -> Bound {
        let bucket = self.succeeded.buckets().find(|bucket| found < bucket.upper);
        let upper = bucket.map_or(found, |bucket| bucket.upper);
        Bound(upper.as_ns().checked_sub(1).map(Duration::from_ns))
    }

    /// The bound between the bucket of `found` and all shorter ones.
    fn bound_of(&self, found: Duration) -> Bound {
        let bucket = self.succeeded.buckets().find(|bucket| found < bucket.upper);
        let lower = bucket.map_or(found, |bucket| bucket.lower);
        Bound(lower.as_ns().checked_sub(1).map(Duration::from_ns))
    }
}

/// An exclusive lower bound of durations; [`None`] includes all of them.
#[derive(Clone, Copy, Debug)]
struct Bound(Option<Duration>);

/// An estimate and, if there are enough requests, its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// The ends of the 95 % confidence interval; the upper end is infinite if the run does not bound the value from
    /// above.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// Half the width of the interval divided by the value; infinite without an interval or an upper end.
    #[must_use]
    pub fn relative_error(&self) -> f64 {
        self.interval.map_or(f64::INFINITY, |(low, high)| (high - low) / 2.0 / self.value)
    }

    /// Whether `value` lies within the interval.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        self.interval.is_some_and(|(low, high)| low <= value && value <= high)
    }
}

/// The latencies of one run, in batches.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    thresholds: Vec<Duration>,
    /// The number of the first batch; batches are numbered from the first arrival on.
    base: u64,
    batches: Vec<Batch>,
    batch_len: u64,
}

impl Batches {
    /// No batches yet, with `thresholds` for [`Self::above`]. The first counted request has the number `first`.
    pub(crate) fn new(thresholds: &[Duration], first: u64) -> Self {
        let (base, batches) = (first / LEN_FIRST, Vec::new());
        Self { thresholds: thresholds.to_vec(), base, batches, batch_len: LEN_FIRST }
    }

    /// Empty batches with the same thresholds.
    pub(crate) fn beginning_at(&self, first: u64) -> Self {
        Self::new(&self.thresholds, first)
    }

    /// Records the latency of a request, or its failure. Returns true when the request fills a batch.
    ///
    /// # Panics
    /// When the request is earlier than the first counted one.
    pub(crate) fn record(&mut self, number: u64, latency: Option<Duration>) -> bool {
        let nth = loop {
            let nth = (number / self.batch_len).checked_sub(self.base).expect("a counted request");
            let nth = usize::try_from(nth).unwrap_or(usize::MAX);
            if nth < BATCHES_MAX {
                break nth;
            }
            self.merge_adjacent();
        };
        let empty = || Batch::new(self.thresholds.len());
        self.batches.resize_with(self.batches.len().max(nth + 1), empty);
        let batch = &mut self.batches[nth];
        if let Some(latency) = latency {
            batch.succeeded.record(latency);
        } else {
            batch.failed += 1;
        }
        for (above, threshold) in batch.above.iter_mut().zip(&self.thresholds) {
            *above += u64::from(latency.is_none_or(|latency| latency > *threshold));
        }
        batch.len() == self.batch_len
    }

    /// The number of recorded requests.
    pub(crate) fn len(&self) -> u64 {
        self.batches.iter().map(Batch::len).sum()
    }

    /// The number of recorded requests that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.batches.iter().map(|batch| batch.failed).sum()
    }

    /// The mean of the requests that succeeded, in nanoseconds.
    pub(crate) fn mean_ns(&self) -> Option<Estimate> {
        let value = self.total().mean_ns()?;
        let residuals = Residuals::of_mean(&self.full(), value);
        let enough = self.len() >= MEAN_REQUESTS_MIN;
        let interval = residuals.filter(|_| enough).map(|residuals| residuals.interval(value));
        Some(Estimate { value, interval })
    }

    /// A quantile over all requests, in nanoseconds; nothing when it lies among those that failed.
    pub(crate) fn quantile_ns(&self, quantile: Quantile) -> Option<Estimate> {
        let total = self.total();
        let found = total.duration_at(quantile.get())?;
        let full = self.full();
        let reaching = Residuals::of_share(&full, total.bound_of(found));
        // They differ where many requests take equally long, as most do beside rare stalls: none of these may be beyond
        // the quantile, and then only the longer ones tell how uncertain it is.
        let beyond = Residuals::of_share(&full, total.end_of(found));
        let enough = has_enough(self.len(), quantile);
        let interval = reaching.zip(beyond).filter(|_| enough).map(|(reaching, beyond)| {
            // Equal requests are all in one bucket, and none beyond it could tell of an error.
            let error = match total.is_constant() {
                true => 0.0,
                false => reaching.error_of_share().max(beyond.error_of_share()),
            };
            let low = total.duration_at((quantile.get() - error).max(0.0)).unwrap_or(found);
            let high = total.duration_at(quantile.get() + error);
            (low.as_ns_f64(), high.map_or(f64::INFINITY, Duration::as_ns_f64))
        });
        Some(Estimate { value: found.as_ns_f64(), interval })
    }

    /// Quantiles in ascending order, see [`Self::quantile_ns`]. A bound from below of one quantile also holds for higher
    /// ones, and a bound from above also for lower ones, so both ends of the intervals ascend.
    pub(crate) fn quantiles_ns(&self, quantiles: &[Quantile]) -> Vec<(Quantile, Option<Estimate>)> {
        let mut estimates: Vec<_> =
            quantiles.iter().map(|quantile| (*quantile, self.quantile_ns(*quantile))).collect();
        let (mut low_min, mut high_max) = (0.0_f64, f64::INFINITY);
        for (low, _) in estimates.iter_mut().filter_map(interval_mut) {
            low_min = low_min.max(*low);
            *low = low_min;
        }
        for (_, high) in estimates.iter_mut().rev().filter_map(interval_mut) {
            high_max = high_max.min(*high);
            *high = high_max;
        }
        estimates
    }

    /// The share of requests above each threshold, failures included.
    pub(crate) fn above(&self) -> Vec<(Duration, Estimate)> {
        let (total, full) = (self.total(), self.full());
        let len = total.len();
        let estimate = |(nth, threshold): (usize, &Duration)| {
            let value = total.above[nth] as f64 / len.max(1) as f64;
            // The rarer requests tell how uncertain the share is; if there are none, its interval is from 0 to 1.
            let rarer = |batch: &&Batch| match value > 0.5 {
                true => batch.len() - batch.above[nth],
                false => batch.above[nth],
            };
            let counts = full.iter().map(|batch| rarer(batch) as f64).collect();
            let residuals = Residuals::of_counts(&full, counts).filter(|_| len >= REQUESTS_MIN);
            let interval = residuals.map(|residuals| {
                let error = residuals.error_of_share();
                ((value - error).max(0.0), (value + error).min(1.0))
            });
            (*threshold, Estimate { value, interval })
        };
        self.thresholds.iter().enumerate().map(estimate).collect()
    }

    /// Whether the run never reaches a steady state, or is only a few times as long as requests depend on each other:
    /// the means of successive batches are alike, but those of distant batches are not.
    pub(crate) fn wanders(&self) -> bool {
        if self.len() < REQUESTS_MIN {
            return false;
        }
        let means: Vec<f64> = self.full().iter().filter_map(|batch| batch.mean_ns()).collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let squares: f64 = means.iter().map(|of| (of - mean).powi(2)).sum();
        let steps: f64 = means.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
        let deviation = (squares / means.len() as f64).sqrt();
        steps < VON_NEUMANN_RATIO_MIN * squares && deviation > WANDERING_MIN * mean
    }

    fn total(&self) -> Batch {
        let mut total = Batch::new(self.thresholds.len());
        for batch in &self.batches {
            total.absorb(batch);
        }
        total
    }

    /// The batches whose requests have all ended and count.
    fn full(&self) -> Vec<&Batch> {
        self.batches.iter().filter(|batch| batch.len() == self.batch_len).collect()
    }

    /// Merges batches in pairs. The first of a pair has an even number, so pairs are the same in every arm.
    fn merge_adjacent(&mut self) {
        let base = self.base / 2;
        let mut merged: Vec<Batch> = Vec::with_capacity(BATCHES_MAX / 2 + 1);
        for (number, batch) in (self.base..).zip(std::mem::take(&mut self.batches)) {
            match merged.last_mut() {
                Some(last) if number % 2 == 1 => last.absorb(&batch),
                _ => merged.push(batch),
            }
        }
        (self.base, self.batches) = (base, merged);
        self.batch_len *= 2;
    }
}

fn interval_mut((_, estimate): &mut (Quantile, Option<Estimate>)) -> Option<&mut (f64, f64)> {
    estimate.as_mut()?.interval.as_mut()
}

/// Whether there are enough requests for the interval of a quantile.
fn has_enough(requests: u64, quantile: Quantile) -> bool {
    // The margin offsets the rounding of decimal quantiles to binary.
    let beyond = (1.0 - quantile.get()) * requests as f64 * (1.0 + 1e-9);
    requests >= REQUESTS_MIN && beyond >= BEYOND_MIN
}
