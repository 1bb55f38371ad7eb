//! A point in time on the clock of a driver: of the proxy, or of a simulation.

use crate::Duration;
use serde::{Deserialize, Serialize};

/// Nanoseconds since the start of the driver.
///
/// Instants of different drivers cannot be compared.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Instant(u64);

impl Instant {
    /// The start of the driver.
    pub const ZERO: Self = Self(0);
    /// Later than any event.
    pub const MAX: Self = Self(u64::MAX);

    /// The instant `ns` nanoseconds after the start.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later than `self`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_ns(self.0.saturating_sub(earlier.0))
    }
}

impl core::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_ns()))
    }
}
