//! Sketch: what is remembered of many latencies, small, mergeable, and with an error that is stated.
//!
//! | type | remembers | error of a quantile | memory |
//! |---|---|---|---|
//! | [`Histogram`] | everything recorded | half a bucket: 0.05 % at [`Precision::FINE`] | the octaves seen, at most 264 KiB |
//! | [`Window`] | the last while | as its histogram | one histogram for each slot, and one |
//! | [`AtomicHistogram`] | everything, from many threads | the same, extremes included | all octaves, always |
//! | [`exponential::Exponential`] | what OpenTelemetry can carry | half a bucket of each form | `max_size` counts |
//! | [`Ewma`] | a mean that forgets | none: it has no quantiles | three numbers |
//!
//! A quantile of all of them is the value with rank `ceil(q · n)`, see [`rank()`]. There is no clock
//! here: time comes in as an argument.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod atomic;
mod counts;
mod ewma;
pub mod exponential;
mod histogram;
mod precision;
mod rank;
mod window;

pub use atomic::AtomicHistogram;
pub use ewma::Ewma;
pub use histogram::{Bucket, Exact, Histogram, Inconsistent, NotAPart};
pub use precision::Precision;
pub use rank::rank;
pub use window::Window;

#[cfg(test)]
mod samples;
