//! Keeping the tail: of a day that is over for long only the traces stay that say most.
//!
//! | a trace | stays | with a weight of |
//! |---|---|---|
//! | with a span that has failed | always | 1 |
//! | among the slowest share of those of its tenant, root service and root operation on that day | always | 1 |
//! | any other | if it is one of the sample: one in so many, by a hash of its ID | as many as it stands for |
//!
//! A trace takes as long as its root, or, where none of its day's runs has one, from its first span to its last. It
//! stays or goes with all spans that came on that day; which ones are sampled is the same on every day. The weight
//! of a row, in the column `weight` (none: 1), is how many rows it stands for: sums of weights are counts, and
//! quantiles that count each row as often as its weight says have no bias. For the sample's share that is
//! stratified sampling, with one stratum that is kept as a whole.
//!
//! The slowest are exactly known up to [`EXACT_MAX`] traces a day; of more, a few that are up to 1 % faster are
//! kept as well. Traces of one endpoint that took equally long stay or go together.
//!
//! **When it hurts**: what came for a day after its tail was kept is decided by itself. A day of which more than
//! [`STAYING_MAX`] traces would stay is left as it is: with so many errors it says a lot. Log records are not looked at.
//!
//! **Source**: Horvitz and Thompson, "A Generalization of Sampling Without Replacement From a Finite Universe",
//! Journal of the American Statistical Association 47, 1952.

mod bars;
mod staying;

pub(crate) use bars::Durations;
pub(crate) use staying::Staying;
pub use staying::TooMany;

use curtail_units::Ratio;
use std::num::NonZeroU32;

/// So many durations are held to find the slowest: 128 MB at most.
pub const EXACT_MAX: usize = 8 << 20;

/// So many IDs of traces that stay are held: 400 MB at most.
pub const STAYING_MAX: usize = 8 << 20;

/// Of which days the tail is kept, and what is the tail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail {
    /// Of days that are over for more than so many.
    pub after_days: u32,
    /// The slowest share of the traces of an endpoint.
    pub slowest: Ratio,
    /// Of the others, one in so many.
    pub sample: NonZeroU32,
}

#[cfg(test)]
mod tests;
