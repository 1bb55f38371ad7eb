//! Load: when requests are to be sent, what is recorded of them, and what a difference between two recordings is worth.
//!
//! | to | look at |
//! |---|---|
//! | say when requests are to be sent, and by which generator | [`Schedule`], [`Share`] |
//! | record requests | [`Latencies`], [`Failure`], [`Timeline`] |
//! | know whether a service has warmed up | [`mod@steady`] |
//! | know whether the generator kept up | [`mod@lag`] |
//! | find the rate that a service bears | [`mod@knee`] |
//! | compare two arms | [`compare`] |
//! | know how often comparisons are wrong | [`calibrate`], on the model in [`stalls`] |
//! | know how wrong a quantile is that was read from buckets | [`mod@buckets`] |
//!
//! There is no clock, no file and no socket here: instants and text come in as arguments, and everything random
//! follows from a seed.

pub mod buckets;
pub mod calibrate;
pub mod compare;
mod failure;
pub mod knee;
pub mod lag;
mod latencies;
pub mod schedule;
mod share;
pub mod stalls;
pub mod steady;
mod timeline;

pub use failure::{Failure, Failures};
pub use latencies::{Clock, Latencies, Timing};
pub use schedule::Schedule;
pub use share::Share;
pub use timeline::{SLOTS_MAX, Slot, Timeline};
