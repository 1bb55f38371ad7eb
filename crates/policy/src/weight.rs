//! The weight of a replica: the attempts that it gets, relative to the replicas with other weights.

use core::fmt;
use serde::{Deserialize, Serialize};

/// A weight, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(u32);

impl Weight {
    /// The replica gets no attempts.
    pub const ZERO: Self = Self(0);
    /// The smallest weight with which a replica gets attempts.
    pub const MIN: Self = Self(1);
    /// The usual weight.
    pub const ONE: Self = Self(1_000);
    /// The largest weight as a number.
    pub const MAX: f64 = 65_535.0;

    /// The weight of a number from 0 to [`Self::MAX`], if it is one; a positive number is at least [`Self::MIN`].
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the product is from 0 to 65,535,000"
    )]
    pub fn new(value: f64) -> Option<Self> {
        let thousandths = libm::round(value * 1_000.0);
        let is_weight = (0.0..=Self::MAX).contains(&value);
        is_weight
            .then(|| Self(thousandths as u32).max(if value > 0.0 { Self::MIN } else { Self::ZERO }))
    }

    /// The weight as a number.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1_000.0
    }

    /// Whether the replica gets no attempts.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Weight;
    use alloc::string::ToString;

    #[test]
    fn a_weight_is_a_number_from_0_to_65535_in_thousandths() {
        for (value, shown) in [
            (0.0, Some("0")),
            (1e-9, Some("0.001")),
            (0.0015, Some("0.002")),
            (1.0, Some("1")),
            (2.5, Some("2.5")),
            (65_535.0, Some("65535")),
            (65_535.1, None),
            (-0.1, None),
            (f64::NAN, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(Weight::new(value).map(|weight| weight.to_string()).as_deref(), shown);
        }
        assert_eq!(Weight::new(1.0), Some(Weight::default()));
    }
}
