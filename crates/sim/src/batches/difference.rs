//! The ratio of two arms with its interval.
//!
//! Arms see the same requests, so batch `i` of one arm is compared with batch `i` of the other, and their common noise
//! cancels out.
//! **A mean's ratio**: the residuals are paired, and the interval is that of a mean.
//! **A quantile's ratio**: the paired differences of the shares beyond the quantile `q` have an error `h`. With the
//! arms' quantile functions `QA` and `QB`, the interval goes from `QB(q − h/2) / QA(q + h/2)` to
//! `QB(q + h/2) / QA(q − h/2)`, as in `curtail_load::compare`.
//! **Limits**: only batches that are full in both arms count, and the minima of [`super`] apply to them.

use super::residuals::Residuals;
use super::{Batch, Batches, Estimate, MEAN_REQUESTS_MIN, has_enough};
use curtail_units::{Duration, Quantile};

/// Two arms, batch by batch.
#[derive(Debug)]
pub(crate) struct Difference {
    a: Batches,
    b: Batches,
    totals: (Batch, Batch),
}

impl Difference {
    /// Pairs the batches of `a` and `b`, which saw the same requests.
    pub(crate) fn new(a: &Batches, b: &Batches) -> Self {
        let (mut a, mut b) = (a.clone(), b.clone());
        while a.batch_len < b.batch_len {
            a.merge_adjacent();
        }
        while b.batch_len < a.batch_len {
            b.merge_adjacent();
        }
        let len = a.batch_len;
        let base = a.base.max(b.base);
        let from = |batches: &mut Batches| {
            let skipped = usize::try_from(base - batches.base).unwrap_or(usize::MAX);
            std::mem::take(&mut batches.batches).into_iter().skip(skipped)
        };
        let is_full = |(a, b): &(Batch, Batch)| a.len() == len && b.len() == len;
        (a.batches, b.batches) = from(&mut a).zip(from(&mut b)).filter(is_full).unzip();
        let totals = (a.total(), b.total());
        Self { a, b, totals }
    }

    /// The ratio of means, B/A.
    pub(crate) fn mean(&self) -> Option<Estimate> {
        let (mean_a, mean_b) = (self.totals.0.mean_ns()?, self.totals.1.mean_ns()?);
        let ratio = mean_b / mean_a;
        let residuals_a = Residuals::of_mean(&self.a.full(), mean_a);
        let residuals_b = Residuals::of_mean(&self.b.full(), mean_b);
        let enough = self.totals.0.len() >= MEAN_REQUESTS_MIN;
        let interval = residuals_a.zip(residuals_b).filter(|_| enough).map(|(a, b)| {
            let (low, high) = a.paired(&b, ratio).interval(0.0);
            (ratio + low / mean_a, ratio + high / mean_a)
        });
        Some(Estimate { value: ratio, interval })
    }

    /// The ratio of a quantile, B/A; [`None`] when it lies among the failures of either arm.
    pub(crate) fn quantile(&self, quantile: Quantile) -> Option<Estimate> {
        let (a, b) = (&self.totals.0, &self.totals.1);
        let q = quantile.get();
        let (found_a, found_b) = (a.duration_at(q)?, b.duration_at(q)?);
        let residuals_a = Residuals::of_share(&self.a.full(), a.bound_of(found_a));
        let residuals_b = Residuals::of_share(&self.b.full(), b.bound_of(found_b));
        let enough = has_enough(a.len(), quantile);
        let interval = residuals_a.zip(residuals_b).filter(|_| enough).map(|(of_a, of_b)| {
            let half = of_a.paired(&of_b, 1.0).error_of_share() / 2.0;
            let low = |batch: &Batch| at(batch, (q - half).max(0.0));
            let high = |batch: &Batch| at(batch, q + half);
            (low(b) / high(a), high(b) / low(a))
        });
        Some(Estimate { value: found_b.as_ns_f64() / found_a.as_ns_f64(), interval })
    }
}

/// The latency at `quantile`, in nanoseconds; infinite beyond the last response.
fn at(batch: &Batch, quantile: f64) -> f64 {
    batch.duration_at(quantile).map_or(f64::INFINITY, Duration::as_ns_f64)
}
