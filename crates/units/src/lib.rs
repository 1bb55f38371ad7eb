//! Units: the types that give numbers their meaning, and the one source of randomness.
//!
//! Everything here is pure: there is no clock, only [`Instant`]s that a driver hands in; there is no
//! entropy, only an [`Rng`] seeded by the caller. Arithmetic saturates: a duration that does not fit
//! becomes the longest one, never a wrapped short one.
#![no_std]

mod bytes;
mod duration;
mod instant;
mod quantile;
mod ratio;
mod rng;

pub use bytes::Bytes;
pub use duration::Duration;
pub use instant::Instant;
pub use quantile::Quantile;
pub use ratio::Ratio;
pub use rng::Rng;

/// A number that lies outside the range of its unit, with the range that was expected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutOfRange {
    /// The number that was given.
    pub value: f64,
    /// The range that the unit allows, in words.
    pub expected: &'static str,
}

impl core::fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} is out of range: expected {}", self.value, self.expected)
    }
}

impl core::error::Error for OutOfRange {}
