//! Statistics that several crates need: intervals of shares, normal probabilities, rank sums, the correlation of ranks, and
//! many tests at once.

mod discovery_limit;
mod normal;
mod rank_sum;
mod wilson;

pub use discovery_limit::discovery_limit;
pub use normal::normal_upper_tail;
pub use rank_sum::{RankSum, SampleValue, van_elteren_p_value};
pub use wilson::wilson_interval;
