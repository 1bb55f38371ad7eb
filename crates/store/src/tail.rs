//! Keeping the tail: of an old day, only the most informative traces are kept.
//!
//! | a trace | is kept | with weight |
//! |---|---|---|
//! | with a failed span | always | 1 |
//! | among the slowest share of its tenant, root service and root operation on that day | always | 1 |
//! | any other | if its ID is in the sample, by a hash | the inverse of the sampling rate |
//!
//! The duration of a trace is that of its root, or of all its spans if no run of the day has the root. All spans of a trace
//! that arrived on that day are kept or removed together, and all days sample the same IDs. The column `weight` (null: 1) is
//! the number of rows that a row stands for. Sums of weights are counts, and weighted quantiles are unbiased: this is
//! stratified sampling with one complete stratum.
//!
//! The slowest traces are exact up to [`EXACT_MAX`] traces a day; beyond that, a few that are up to 1 % faster are kept too.
//! Traces of one operation with equal durations are kept or removed together.
//!
//! **When it hurts**: rows that arrive for a day after its reduction are reduced separately. A day of which more than
//! [`STAYING_MAX`] traces would be kept is left as it is. Log records are not reduced.
//!
//! **Source**: Horvitz and Thompson, "A Generalization of Sampling Without Replacement From a Finite Universe", Journal of the
//! American Statistical Association 47, 1952.

mod bars;
mod staying;

pub(crate) use bars::Durations;
pub(crate) use staying::Staying;
pub use staying::TooMany;

use curtail_units::Ratio;
use std::num::NonZeroU32;

/// Maximum number of exact durations: 128 MB.
pub const EXACT_MAX: usize = 8 << 20;

/// Maximum number of kept traces: 400 MB of IDs.
pub const STAYING_MAX: usize = 8 << 20;

/// The age of the reduced days, and the size of their tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// The age in days after which a day is reduced.
    pub after_days: u32,
    /// The slowest share of the traces of an endpoint.
    pub slowest: Ratio,
    /// The inverse of the sampling rate of the others.
    pub sample: NonZeroU32,
}

#[cfg(test)]
mod tests;
