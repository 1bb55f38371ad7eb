//! Numbers in [0, 1]: quantiles and ratios.

use crate::OutOfRange;
use serde::{Deserialize, Serialize};

macro_rules! unit_interval {
    ($(#[$doc:meta])* $type:ident, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $type(f64);

        impl $type {
            /// The value for a number in [0, 1].
            ///
            /// # Errors
            /// When `value` is not in [0, 1].
            pub fn new(value: f64) -> Result<Self, OutOfRange> {
                let is_valid = (0.0..=1.0).contains(&value);
                is_valid.then_some(Self(value)).ok_or(OutOfRange { value, expected: $expected })
            }

            /// The number in [0, 1].
            #[must_use]
            pub const fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $type {
            type Error = OutOfRange;

            fn try_from(value: f64) -> Result<Self, OutOfRange> {
                Self::new(value)
            }
        }

        impl From<$type> for f64 {
            fn from(value: $type) -> Self {
                value.0
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit_interval!(
    /// A quantile in [0, 1]: p99 is 0.99, never 99.
    Quantile,
    "a quantile from 0 to 1 (0.99, not 99)"
);

unit_interval!(
    /// A share in [0, 1]: 0.02 is two in a hundred.
    Ratio,
    "a ratio from 0 to 1 (0.02 for 2 %)"
);

impl Quantile {
    /// The median.
    pub const P50: Self = Self(0.5);
    /// The quantile that one value in ten exceeds.
    pub const P90: Self = Self(0.9);
    /// The quantile that one value in twenty exceeds.
    pub const P95: Self = Self(0.95);
    /// The quantile that one value in a hundred exceeds.
    pub const P99: Self = Self(0.99);
    /// The quantile that one value in two hundred exceeds.
    pub const P995: Self = Self(0.995);
    /// The quantile that one value in a thousand exceeds.
    pub const P999: Self = Self(0.999);
}

impl Ratio {
    /// The share of nothing.
    pub const ZERO: Self = Self(0.0);
    /// The share of everything.
    pub const ONE: Self = Self(1.0);
}
