//! Reduces old days to their tail: only the most informative traces of such a day are kept.
//!
//! | a trace | is kept | with weight |
//! |---|---|---|
//! | with a failed span | always | 1 |
//! | among the slowest share of its operation on that day | always | 1 |
//! | any other | if its ID is in the sample, by a hash | the inverse of the sampling rate |
//!
//! An operation is a tenant, and the service and the name of the root. The duration of a trace is that of its root, or
//! of all its spans if no run of the day has the root. All spans of a trace from that day are kept or removed together,
//! and all days sample the same IDs. The column `weight` (null: 1) is the number of rows that a row stands for. Sums of
//! weights are counts, and weighted quantiles are unbiased (stratified sampling with one complete stratum).
//!
//! The slowest traces are exact up to [`EXACT_MAX`] traces a day. Beyond that, traces that are about 1 % faster are
//! kept too. Traces of an operation with equal durations all count as slow, or none does.
//!
//! **When it hurts**: rows of a day that are flushed after its reduction are reduced separately. A day with more than
//! [`KEPT_TRACES_MAX`] traces to keep is not reduced. Log records are not reduced.
//!
//! **Source**: Horvitz and Thompson, "A Generalization of Sampling Without Replacement From a Finite Universe", Journal of the
//! American Statistical Association 47, 1952.

mod bars;
mod kept_traces;

pub(crate) use bars::Durations;
pub(crate) use kept_traces::KeptTraces;
pub use kept_traces::TooMany;

use curtail_units::Ratio;
use std::num::NonZeroU32;

/// Maximum number of durations in memory, of all operations: 128 MB.
pub const EXACT_MAX: usize = 8 << 20;

/// Maximum number of kept traces: 400 MB of IDs.
pub const KEPT_TRACES_MAX: usize = 8 << 20;

/// The age of the reduced days, and the size of their tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// The age in days after which a day is reduced.
    pub after_days: u32,
    /// The share of the traces of an operation that count as slow.
    pub slowest: Ratio,
    /// The inverse of the sampling rate of all other traces.
    pub sample: NonZeroU32,
}

#[cfg(test)]
mod tests;
