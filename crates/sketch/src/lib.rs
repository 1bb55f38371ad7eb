//! Compact summaries of many latencies, each with a known error.
//!
//! | type | holds | error of a quantile | memory |
//! |---|---|---|---|
//! | [`Histogram`] | all values | half a bucket: 0.05 % at [`Precision::FINE`] | the octaves seen, at most 264 KiB |
//! | [`Window`] | the values of a sliding window | as [`Histogram`] | one histogram for each slot, and one for the total |
//! | [`AtomicHistogram`] | all values, from many threads | as [`Histogram`], also for extremes | all octaves, always |
//! | [`exponential::Exponential`] | OpenTelemetry's form for transport | half a bucket, plus that of [`Histogram`] | `max_size` counts |
//!
//! A quantile is the value with rank `ceil(q · n)`, see [`rank()`]. Time is an argument: the crate reads no clock.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod atomic;
mod counts;
pub mod exponential;
mod histogram;
mod precision;
mod rank;
mod window;

pub use atomic::AtomicHistogram;
pub use histogram::{Bucket, Exact, Histogram, Inconsistent};
pub use precision::Precision;
pub use rank::{rank, tail_start};
pub use window::Window;

#[cfg(test)]
mod samples;
