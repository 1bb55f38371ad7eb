//! A place in a distribution.

use crate::OutOfRange;
use serde::{Deserialize, Serialize};

/// A quantile in [0, 1]: 0.99 is what people call p99. Never a percent.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Quantile(f64);

impl Quantile {
    /// The median.
    pub const P50: Self = Self(0.5);
    /// One in ten is above.
    pub const P90: Self = Self(0.9);
    /// One in twenty is above.
    pub const P95: Self = Self(0.95);
    /// One in a hundred is above.
    pub const P99: Self = Self(0.99);
    /// One in a thousand is above.
    pub const P999: Self = Self(0.999);

    /// A quantile from a number in [0, 1].
    ///
    /// # Errors
    /// When `value` is not in [0, 1]; 99 is not a quantile, 0.99 is.
    pub fn new(value: f64) -> Result<Self, OutOfRange> {
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(OutOfRange { value, expected: "a quantile from 0 to 1 (0.99, not 99)" })
        }
    }

    /// The number in [0, 1].
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Quantile {
    type Error = OutOfRange;

    fn try_from(value: f64) -> Result<Self, OutOfRange> {
        Self::new(value)
    }
}

impl From<Quantile> for f64 {
    fn from(quantile: Quantile) -> Self {
        quantile.0
    }
}

impl core::fmt::Display for Quantile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}
