//! The error of a quantile that is read from buckets: of a metric, a dashboard, a histogram on the wire.
//!
//! **Inputs**: every value ([`Values`]), and a [`Layout`]: the bounds of the buckets, and the way to read between them.
//! The error is a share of the true quantile ([`rank()`]).
//!
//! | layout | bounds | read between two bounds | reader |
//! |---|---|---|---|
//! | growth factor | powers of it, 1 of the data's unit is one of them | linearly | Google's tail latency lab, `histogram_quantile` |
//! | explicit bounds | as listed; 0 below, nothing above | linearly; above the last: the last | `histogram_quantile` |
//! | OpenTelemetry scale | powers of 2^(2^-scale) seconds | middle with the same relative error at both | `DDSketch`, `curtail_sketch` |
//! | Prometheus native schema | the same | exponentially | `histogram_quantile` since Prometheus 3.0 |
//!
//! A bound belongs to the bucket below it. OpenTelemetry does not define how its buckets are read.
//! **Error**: between the bounds `l` and `u` it is at most `u/l − 1`, for a middle `(u − l)/(u + l)`
//! ([`Layout::error_max`]). On given data it depends on where the bounds fall, so [`coarsest()`] tries many positions.
//! **Source**: Google Cloud's `tail_latency_lab` (opencensus-jetty-demo, 2019); `promql/quantile.go` of Prometheus;
//! Masson et al., "`DDSketch`", 2019, for the middle.
//! **Hurts when** the values are few: the error of the sample is then larger than that of the buckets.

mod coarsest;
pub mod lab;
mod layout;

pub use coarsest::{Coarsest, coarsest};
pub use layout::{Layout, Reader};

use curtail_sketch::rank;
use curtail_units::{Duration, Quantile};

#[cfg(test)]
mod tests;

/// Values, the shortest first, so that a quantile is a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values(Vec<Duration>);

impl Values {
    /// All of `values`, in any order.
    #[must_use]
    pub fn new(mut values: Vec<Duration>) -> Self {
        values.sort_unstable();
        Self(values)
    }

    /// Number of values.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, the shortest first.
    #[must_use]
    pub fn as_slice(&self) -> &[Duration] {
        &self.0
    }

    /// The value with rank `ceil(q · n)`: one that is there, not one in between. [`None`] without values.
    #[must_use]
    pub fn quantile(&self, quantile: Quantile) -> Option<Duration> {
        let place = usize::try_from(rank(quantile, self.len())).ok()?.checked_sub(1)?;
        self.0.get(place).copied()
    }

    /// The number of values up to `bound_ns`.
    fn up_to(&self, bound_ns: f64) -> u64 {
        self.0.partition_point(|value| value.as_ns_f64() <= bound_ns) as u64
    }
}
