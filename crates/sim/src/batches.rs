//! Batch means: how sure a mean, a quantile or a share of one long run is.
//!
//! Latencies of successive requests depend on each other (they waited in the same queue), so an error
//! computed as if they did not is far too small. The run is cut into between [`BATCHES_MIN`] and twice as
//! many batches in a row; when there are too many, neighbours are merged, so batches grow with the run and
//! become independent of each other.
//!
//! **Holds** for each batch a histogram, the sum, what failed, and how many were above each threshold.
//! **Quantiles**: the interval is that of the share below the estimate, turned back into durations. The
//! quantiles of the single batches are not averaged, for in short batches a high quantile is biased.
//! **Failures** count as longer than every answer, never as absent.
//! **Source**: batch means: Law, "Simulation Modeling and Analysis", 5th edition, section 9.5.3; the
//! interval of a quantile through that of its share: Woodruff, "Confidence intervals for medians and other
//! position measures", 1952.
//! **Hurts when** the run is short in relation to what slowness is made of (a stall, a busy hour): then even
//! whole batches depend on each other, and the interval is too narrow.

use curtail_sketch::{Histogram, Precision};
use curtail_units::{Duration, Quantile};

#[cfg(test)]
mod tests;

/// Fewer batches give no interval.
pub(crate) const BATCHES_MIN: usize = 32;

/// Requests in the first batches.
const LEN_FIRST: u64 = 16;

/// How many requests beyond a quantile its interval needs: a tenth either way is then noticed.
const BEYOND_MIN: f64 = 100.0;

#[derive(Clone, Debug)]
struct Batch {
    answered: Histogram,
    failed: u64,
    above: Vec<u64>,
}

impl Batch {
    fn new(thresholds: usize) -> Self {
        Self { answered: Histogram::new(Precision::FINE), failed: 0, above: vec![0; thresholds] }
    }

    const fn len(&self) -> u64 {
        self.answered.count() + self.failed
    }

    fn absorb(&mut self, other: &Self) {
        self.answered.merge(&other.answered);
        self.failed += other.failed;
        for (above, more) in self.above.iter_mut().zip(&other.above) {
            *above += more;
        }
    }

    fn mean_ns(&self) -> Option<f64> {
        let count = self.answered.count();
        (count > 0).then(|| self.answered.sum_secs_f64() * 1e9 / count as f64)
    }

    /// The share that is longer than `limit`, failures included.
    fn beyond(&self, limit: Duration) -> f64 {
        (self.answered.count_above(limit) + self.failed) as f64 / self.len() as f64
    }
}

/// An estimate and its 95 % confidence interval, if there is enough to tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// From where to where the true value lies, 19 times out of 20.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    /// Half the width of the interval, as a share of the value; infinite when there is no interval.
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
pub struct Batches {
    thresholds: Vec<Duration>,
    full: Vec<Batch>,
    filling: Batch,
    batch_len: u64,
}

impl Batches {
    /// Nothing so far; counts how many are above each of the `thresholds`.
    #[must_use]
    pub fn new(thresholds: &[Duration]) -> Self {
        Self {
            thresholds: thresholds.to_vec(),
            full: Vec::new(),
            filling: Batch::new(thresholds.len()),
            batch_len: LEN_FIRST,
        }
    }

    /// Records a request: its latency, or that it failed. True when this has filled a batch.
    pub fn record(&mut self, latency: Option<Duration>) -> bool {
        if let Some(latency) = latency {
            self.filling.answered.record(latency);
        } else {
            self.filling.failed += 1;
        }
        for (above, threshold) in self.filling.above.iter_mut().zip(&self.thresholds) {
            *above += u64::from(latency.is_none_or(|latency| latency > *threshold));
        }
        if self.filling.len() < self.batch_len {
            return false;
        }
        let empty = Batch::new(self.thresholds.len());
        self.full.push(std::mem::replace(&mut self.filling, empty));
        if self.full.len() == 2 * BATCHES_MIN {
            self.merge_neighbours();
        }
        true
    }

    /// Requests recorded.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.full.iter().map(Batch::len).sum::<u64>() + self.filling.len()
    }

    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests that failed.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.full.iter().map(|batch| batch.failed).sum::<u64>() + self.filling.failed
    }

    /// The mean of those that were answered, in nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> Option<Estimate> {
        let value = self.total().mean_ns()?;
        let error = error_of_mean(self.full.iter().filter_map(Batch::mean_ns));
        Some(Estimate { value, interval: error.map(|error| (value - error, value + error)) })
    }

    /// A quantile over all requests, in nanoseconds; nothing when it lies among those that failed.
    #[must_use]
    pub fn quantile_ns(&self, quantile: Quantile) -> Option<Estimate> {
        let total = self.total();
        let found = duration_at(&total, quantile.get())?;
        let enough = (1.0 - quantile.get()) * total.len() as f64 >= BEYOND_MIN;
        let error = error_of_mean(self.full.iter().map(|batch| batch.beyond(found)));
        let interval = error.filter(|_| enough).and_then(|error| {
            let low = duration_at(&total, (quantile.get() - error).max(0.0))?;
            let high = duration_at(&total, quantile.get() + error)?;
            Some((low.as_ns_f64(), high.as_ns_f64()))
        });
        Some(Estimate { value: found.as_ns_f64(), interval })
    }

    /// The share of requests above each threshold, failures included.
    #[must_use]
    pub fn above(&self) -> Vec<(Duration, Estimate)> {
        let total = self.total();
        let share = |batch: &Batch, nth: usize| batch.above[nth] as f64 / batch.len() as f64;
        let estimate = |(nth, threshold): (usize, &Duration)| {
            let value = share(&total, nth);
            let error = error_of_mean(self.full.iter().map(|batch| share(batch, nth)));
            let interval = error.map(|error| ((value - error).max(0.0), (value + error).min(1.0)));
            (*threshold, Estimate { value, interval })
        };
        self.thresholds.iter().enumerate().map(estimate).collect()
    }

    fn total(&self) -> Batch {
        let mut total = self.filling.clone();
        for batch in &self.full {
            total.absorb(batch);
        }
        total
    }

    fn merge_neighbours(&mut self) {
        let mut merged = Vec::with_capacity(BATCHES_MIN);
        let mut batches = std::mem::take(&mut self.full).into_iter();
        while let (Some(mut first), Some(second)) = (batches.next(), batches.next()) {
            first.absorb(&second);
            merged.push(first);
        }
        self.full = merged;
        self.batch_len *= 2;
    }
}

/// The duration that a share `quantile` of all requests does not exceed; `None` among the failures, and
/// beyond the last request.
fn duration_at(batch: &Batch, quantile: f64) -> Option<Duration> {
    let answered = batch.answered.count() as f64 / batch.len().max(1) as f64;
    if answered <= 0.0 || quantile > 1.0 {
        return None;
    }
    // A quantile of all is a higher one of those that were answered.
    let quantile = Quantile::new(quantile / answered).ok()?;
    batch.answered.quantile(quantile)
}

/// Half the width of the 95 % interval of the mean of independent `values`; nothing with too few of them.
fn error_of_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    if values.len() < BATCHES_MIN {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    Some(student_t(count - 1.0) * (squares / (count - 1.0) / count).sqrt())
}

/// The 0.975 quantile of Student's distribution, by its expansion around the normal one (Fisher & Cornish,
/// 1960); from 30 degrees of freedom on it is right to three decimals.
fn student_t(freedom: f64) -> f64 {
    let z = 1.959_964_f64;
    let z3 = z.powi(3);
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z.powi(5) + 16.0 * z3 + 3.0 * z) / (96.0 * freedom * freedom)
}
