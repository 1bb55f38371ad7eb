//! The error of a quantile that is read from buckets: those of a metric, a dashboard, or a histogram on the wire.
//!
//! **Inputs**: every value ([`Values`]), and a [`Layout`]: the bounds of the buckets, and the way to read a quantile
//! between two bounds. The error is relative to the true quantile ([`rank()`]).
//!
//! | layout | bounds | read between two bounds | reader |
//! |---|---|---|---|
//! | growth factor | powers of the factor; one of them is 1 in the unit of the data | linearly | Google's tail latency lab, `histogram_quantile` |
//! | explicit bounds | as listed; the first bucket begins at 0, the last has no end | linearly; in the last bucket its lower bound | `histogram_quantile` |
//! | OpenTelemetry scale | powers of 2^(2^-scale) seconds | at the value with the same relative error at both bounds | `DDSketch`, `curtail_sketch` |
//! | Prometheus native schema | powers of 2^(2^-schema) seconds | exponentially | `histogram_quantile` since Prometheus 3.0 |
//!
//! A bound belongs to the bucket below it. OpenTelemetry does not define how its buckets are read.
//! The **error** between the bounds `l` and `u` is at most `u/l − 1`, or `(u − l)/(u + l)` for [`Reader::Middle`]
//! ([`Layout::error_max`]). On given data, the error depends on the positions of the bounds; [`coarsest()`] tries many.
//! **Source**: Google Cloud's `tail_latency_lab` (opencensus-jetty-demo, 2019); `promql/quantile.go` of Prometheus;
//! Masson et al., "`DDSketch`", 2019, for the middle.
//! **Hurts when** the values are few: chance in the sample then causes a larger error than the buckets.

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

    /// The number of values.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Whether there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All values, the shortest first.
    #[must_use]
    pub fn as_slice(&self) -> &[Duration] {
        &self.0
    }

    /// The value with rank `ceil(q · n)`: one of the values, without interpolation. [`None`] without values.
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
