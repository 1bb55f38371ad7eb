//! Load: the plan of requests, the recording of latencies, and the statistics of comparisons.
//!
//! | task | module |
//! |---|---|
//! | plan requests, and divide them among generators | [`Schedule`], [`Share`] |
//! | record requests | [`Latencies`], [`Failure`], [`Timeline`] |
//! | detect the end of a warm-up | [`mod@steady`] |
//! | detect a generator that is late | [`mod@lag`] |
//! | find the rate that a service bears | [`mod@knee`] |
//! | compare two arms | [`compare`] |
//! | state the effect of a remedy at any time, from a random holdout | [`mod@holdout`], with [`mod@sequence`] |
//! | state its effect on everybody's load, from blocks of time without it | [`mod@switchback`] |
//! | decide whether a remedy gains, within a minute | [`mod@remedy`], with [`mod@proportion`] |
//! | measure how often comparisons are wrong | [`calibrate`], on the model in [`stalls`] |
//! | measure the error of a quantile that is read from buckets | [`mod@buckets`] |
//!
//! There is no clock, no file and no socket here. Everything random follows from a seed.

pub mod buckets;
pub mod calibrate;
pub mod compare;
mod failure;
pub mod holdout;
pub mod knee;
pub mod lag;
mod latencies;
pub mod proportion;
pub mod remedy;
pub mod schedule;
pub mod sequence;
pub mod stalls;
pub mod steady;
pub mod switchback;
mod timeline;

pub use failure::{Failure, Failures};
pub use latencies::{Latencies, LatencyKind, Timing};
pub use schedule::{Schedule, Share};
pub use timeline::{SLOTS_MAX, Slot, Timeline};
