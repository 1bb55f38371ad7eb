//! Numbers with units, the only random number generator, and the statistics that several crates need.
//!
//! The crate has no clock: a driver (the proxy, or a simulation) passes [`Instant`]s. The crate draws no entropy: the
//! caller seeds the [`Rng`]. Arithmetic saturates: a duration that does not fit becomes the longest one.
#![no_std]

extern crate alloc;

mod bytes;
mod duration;
mod instant;
mod label;
mod rng;
mod statistics;
mod tasks;
mod unit_interval;

pub use bytes::Bytes;
pub use duration::Duration;
pub use instant::Instant;
pub use label::Label;
pub use rng::Rng;
pub use statistics::{
    RankSum, SampleValue, discovery_limit, normal_upper_tail, van_elteren_p_value, wilson_interval,
};
pub use tasks::{RunTasks, Task, map_tasks, run_serially};
pub use unit_interval::{Quantile, Ratio};

/// A number outside the range of its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutOfRange {
    /// The number.
    pub value: f64,
    /// The expected range.
    pub expected: &'static str,
}

impl core::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} is out of range: expected {}", self.value, self.expected)
    }
}

impl core::error::Error for OutOfRange {}
