//! A length of time.

use serde::{Deserialize, Serialize};

/// A length of time in whole nanoseconds (0 to about 584 years).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Duration(u64);

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest duration; also the result of an overflow.
    pub const MAX: Self = Self(u64::MAX);

    /// A duration of `ns` nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// A duration of `us` microseconds.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000))
    }

    /// A duration of `ms` milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// A duration of `seconds` seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// The nearest duration to `seconds`; negative numbers and NaN become zero.
    #[must_use]
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self::from_ns_f64(seconds * 1e9)
    }

    /// The nearest duration to `ns` nanoseconds. Negative numbers and NaN become 0, others at most [`Self::MAX`].
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from float to integer saturates, which is what this function promises"
    )]
    pub fn from_ns_f64(ns: f64) -> Self {
        Self(libm::rint(ns) as u64)
    }

    /// Whole nanoseconds.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Nanoseconds as a float, for statistics.
    #[must_use]
    pub const fn as_ns_f64(self) -> f64 {
        self.0 as f64
    }

    /// Milliseconds with their fraction, for people.
    #[must_use]
    pub const fn as_ms_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds with their fraction.
    #[must_use]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self` times `factor` (at least 0), rounded to the nearest nanosecond.
    #[must_use]
    pub fn mul_f64(self, factor: f64) -> Self {
        Self::from_ns_f64(self.as_ns_f64() * factor)
    }
}

impl core::ops::Add for Duration {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl core::ops::Sub for Duration {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(duration: Duration) -> Self {
        Self::from_nanos(duration.0)
    }
}

impl From<core::time::Duration> for Duration {
    fn from(duration: core::time::Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl core::fmt::Display for Duration {
    /// The largest unit that leaves a whole part, with up to three decimals: `1.5 ms`, `250 us`.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (unit_ns, unit) = match self.0 {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "us"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let whole = self.0 / unit_ns;
        let thousandths = self.0 % unit_ns * 1_000 / unit_ns;
        match thousandths {
            0 => write!(f, "{whole} {unit}"),
            t if t % 100 == 0 => write!(f, "{whole}.{} {unit}", t / 100),
            t if t % 10 == 0 => write!(f, "{whole}.{:02} {unit}", t / 10),
            t => write!(f, "{whole}.{t:03} {unit}"),
        }
    }
}
