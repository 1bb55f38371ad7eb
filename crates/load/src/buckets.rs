//! How wrong a quantile is that was read from buckets: of a metric, a dashboard, a histogram on the wire.
//!
//! **Inputs**: every value, as whole nanoseconds ([`Values`]), and a [`Layout`]: where its bounds are and how what
//! stands between two of them is read. **Decides** nothing; it computes what a reader of the counts says, and by
//! which share of the true quantile ([`rank()`](curtail_sketch::rank)) that is off.
//!
//! | layout | bounds | what stands between two is read | as by |
//! |---|---|---|---|
//! | growth factor | powers of it, 1 of the data's unit is one of them | linearly | Google's tail latency lab, `histogram_quantile` |
//! | explicit bounds | as listed; 0 below, nothing above | linearly; above the last: the last | `histogram_quantile` |
//! | OpenTelemetry scale | powers of 2^(2^-scale) seconds | as its harmonic middle, off by the same share of both | `DDSketch`, `curtail_sketch` |
//! | Prometheus native schema | the same | exponentially | `histogram_quantile` since Prometheus 3.0 |
//!
//! A bound belongs to the bucket below it. OpenTelemetry says nothing on how its buckets are read.
//! **Error**: whatever the data, a read between the bounds `l` and `u` is off by at most `u/l − 1`, and a middle by
//! `(u − l)/(u + l)` ([`Layout::error_max`]). On given data it is less, and depends on where the bounds happen to
//! fall; [`coarsest()`] therefore tries many places for them.
//! **Source**: Google Cloud's `tail_latency_lab` (opencensus-jetty-demo, 2019), which shows what a percentile read
//! from few buckets is worth; `promql/quantile.go` of Prometheus; Masson et al., "`DDSketch`", 2019, for the middle.
//! **Hurts when** the values are few: the error of the sample is then larger than that of the buckets, and
//! nothing here says so.

mod coarsest;
pub mod lab;
mod layout;
mod values;

pub use coarsest::{Coarsest, coarsest};
pub use layout::{BadBounds, Layout, Reader};
pub use values::Values;

#[cfg(test)]
mod tests;
